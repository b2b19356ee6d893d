"""Every exception tunegrad raises on purpose.

    TunegradError
    ├── UserError               the caller can fix it: one line, exit code 1
    │   ├── ConfigError         a key, value or file of the settings
    │   ├── ModelError          an unknown model, or one that can not be built
    │   │   └── ModelCodeError  the user's own code raised while a model was built
    │   ├── ShapeError          shapes that do not fit (also a ValueError and a RuntimeError)
    │   │   ├── AxisError       an axis or an index that is not there (also an IndexError)
    │   │   └── IndexOutOfRange  a position beyond its dimension (also an IndexError)
    │   ├── DTypeError          dtypes that do not fit (also a TypeError and a RuntimeError)
    │   │   └── IndexTypeError  what is no index (also an IndexError)
    │   ├── GradientError       a tensor that requires a gradient, or none (also a RuntimeError)
    │   ├── WeightsError        missing, extra or misshapen weights
    │   ├── DataError           a sample that a loader can not read, or a dead worker of one
    │   ├── DeviceError         an unknown or absent device, a missing extra
    │   │   └── NothingRunsError  a device that only compiles
    │   ├── StoreError          an unreadable, foreign or damaged store
    │   ├── IllegalAction       a schedule action whose rule is broken, or whose text does not parse
    │   ├── KernelTextError     a text that does not parse as a kernel
    │   └── MissError           no stored winner, and the caller chose on_miss="error"
    ├── CandidateFailure        a candidate schedule failed: data for the search, never its end
    │   ├── CompileFailure      the compiler refused it
    │   ├── CandidateCrashed    its process died
    │   ├── CandidateTimeout    it ran, or compiled, for too long
    │   ├── OutOfResources      too many registers, too much memory, too large a program
    │   └── WrongResult         it disagrees with the reference, or wrote outside its buffers
    ├── DeviceFault             a kernel ended the device's work in this process
    └── InternalError           a broken invariant of tunegrad itself: a bug, with full context
        ├── MismatchError       a model of PyTorch gives other results than in PyTorch
        ├── VerifyError         a form of a program breaks the rules of its form
        └── WrongPlan           a plan does not compute the graph that it is of

A message names the thing, the value, the rule and the place. Nothing matches on message text.
"""

from __future__ import annotations

__all__ = [
    "AxisError", "CandidateCrashed", "CandidateFailure", "CandidateTimeout", "CompileFailure",
    "ConfigError", "DTypeError", "DataError", "DeviceError", "DeviceFault", "GradientError",
    "IllegalAction", "IndexOutOfRange", "IndexTypeError", "InternalError", "KernelTextError",
    "MismatchError", "MissError", "ModelCodeError", "ModelError", "NothingRunsError",
    "OutOfResources", "ShapeError", "StoreError", "TunegradError", "UserError", "VerifyError",
    "WeightsError", "WrongPlan", "WrongResult",
]  # fmt: skip


class TunegradError(Exception):
    """Root of the tree."""


class UserError(TunegradError):
    """Something the caller can fix; the message is one line."""


class ConfigError(UserError):
    """A setting, a settings file or a command-line value breaks its rule."""


class ModelError(UserError):
    """A model name, file or factory that can not be used."""


class ModelCodeError(ModelError):
    """A user's own code raised while a model was imported or built.

    ``frames`` is the part of the traceback that is theirs, a line or two each; the cause is what
    was raised.
    """

    def __init__(self, message: str, frames: str) -> None:
        super().__init__(message)
        self.frames = frames


class ShapeError(UserError, ValueError, RuntimeError):
    """Shapes or arguments that do not fit the operation.

    It is what PyTorch raises as RuntimeError and numpy as ValueError.
    """


class AxisError(ShapeError, IndexError):
    """An axis or an index that the shape does not have; PyTorch and numpy raise IndexError."""


class IndexOutOfRange(ShapeError, IndexError):
    """A position that is beyond the dimension it points into."""


class DTypeError(UserError, TypeError, RuntimeError):
    """Dtypes, or kinds of values, that do not fit the operation.

    It is what PyTorch raises as RuntimeError and numpy as TypeError.
    """


class IndexTypeError(DTypeError, IndexError):
    """An index of a kind that selects nothing; PyTorch and numpy raise IndexError or TypeError."""


class GradientError(UserError, RuntimeError):
    """A tensor that requires a gradient is written to, or one that has none is differentiated."""


class WeightsError(UserError):
    """Missing, unexpected or misshapen weights."""


class DataError(UserError):
    """A sample that a loader can not read, or a worker process of one that died.

    ``samples`` are the indices that it is about. The cause, or a note, has the traceback.
    """

    def __init__(self, message: str, samples: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.samples = samples


class DeviceError(UserError):
    """An unknown device, absent hardware, or an extra that is not installed."""


class NothingRunsError(DeviceError):
    """A device that compiles and runs nothing, where something was to be run."""


class StoreError(UserError):
    """A store that is unreadable, foreign, damaged, or newer than this version."""


class IllegalAction(UserError):
    """An action whose precondition does not hold; the state it was given is untouched."""


class KernelTextError(UserError):
    """A text that does not parse as a kernel's canonical text.

    ``offset`` is the first character that does not fit.
    """

    def __init__(self, offset: int, found: str, expected: str) -> None:
        super().__init__(f"kernel text, at {offset}: found {found}, expected {expected}")
        self.offset = offset


class MissError(UserError):
    """No stored winner for a kernel, and the caller asked for an error."""


class CandidateFailure(TunegradError):
    """A candidate failed; recorded as a row, never ends a search."""


class CompileFailure(CandidateFailure):
    """The compiler refused the candidate; the message carries the compiler's text, and the numbered
    lines of the source that it is about.
    """


class CandidateCrashed(CandidateFailure):
    """The process that ran the candidate died."""


class CandidateTimeout(CandidateFailure):
    """The candidate compiled or ran past its time limit."""


class OutOfResources(CandidateFailure):
    """The candidate needs more registers, memory or program text than the target allows."""


class WrongResult(CandidateFailure):
    """The candidate's outputs disagree with the reference, or it wrote outside its buffers."""


class DeviceFault(TunegradError):
    """A kernel ended the device's work in this process: an invalid address, a trap.

    Nothing works on the device in this process any more.
    """


class InternalError(TunegradError):
    """A broken invariant of tunegrad itself."""


class MismatchError(InternalError):
    """A model of PyTorch gives other results than in PyTorch, by more than rounding."""


class VerifyError(InternalError):
    """A graph, kernel, loop tree or program breaks the rules of its form."""


class WrongPlan(InternalError):
    """A plan does not compute the graph that it is of: it is not run."""
