"""Values that travel to and from the workers: a candidate to measure, its lowered program, and the
result.

Plain data.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from tunegrad.devices.lowered import Geometry, KernelIO, Lowered, Parameter, io_of, unread
from tunegrad.trial import Properties

__all__ = [
    "CONTENDING", "EXIT_WROTE", "MOST_TOLD", "WROTE_READ_ONLY", "Beside", "Candidate",
    "CompiledCandidate", "Geometry", "Hooks", "KernelIO", "Limits", "Lowered", "Parameter",
    "Ran", "Reference", "Samples", "Timed", "Verdict", "digest", "identity", "io_of", "unread",
]  # fmt: skip

Array = npt.NDArray[Any]

CONTENDING = 1.25
"""A candidate up to this much of the best time is verified on all input sets, others on one."""


@dataclass(frozen=True, slots=True)
class CompiledCandidate:
    """A candidate as a value: what a device loads, and how it is launched.

    ``image`` is empty for a program that the caller said it knows (see ``known``).
    ``program_hash`` is of the text: two action lists may lower to one program. ``facts`` are what
    its image says of it.
    """

    image: bytes
    entry: str
    io: KernelIO
    scratch_bytes: tuple[int, ...]
    geometry: Geometry
    program_hash: str
    lower_s: float = 0.0
    compile_s: float = 0.0
    facts: Properties = ()

    @property
    def duplicate(self) -> bool:
        return not self.image


@dataclass(frozen=True, slots=True)
class Beside:
    """A sound program that candidates are timed in turns with; it stands for ``seconds``."""

    compiled: CompiledCandidate
    seconds: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate to measure.

    ``payload`` is any picklable value that the hooks understand; without hooks, a ``Lowered``.

    Candidates of one ``kernel_key`` compute the same thing: they share inputs and references.
    """

    kernel_key: str
    payload: object


@dataclass(frozen=True, slots=True)
class Reference:
    """Expected values of an output: float64 (integers: int64), of the whole buffer, or of the
    elements ``indices``.

    The tolerance follows from ``terms``, the fold steps behind one element that round, and from
    ``roundings``, those of the result itself: 0 where it is exact, None where terms may cancel.
    ``within`` names the 16-bit type that values are rounded to on the way, if any. ``bounds`` is
    how far each value may be from what the kernel's own dtypes give (``ir.rounding``): infinite
    where that is undecided, NaN where it is not known, None where it is known of no value.
    ``fault``: why nothing can be compared with it, in words; no candidate is right then.
    ``signed``: zeros that are exact have one sign, whatever the order of operations.
    ``slack``: what each value may be off by roundings of sums that cancel, where results are few.
    """

    values: Array
    terms: int = 1
    indices: npt.NDArray[np.int64] | None = None
    roundings: int | None = None
    within: str = ""
    fault: str = ""
    bounds: npt.NDArray[np.float32] | None = None
    signed: bool = False
    slack: float = 0.0

    @property
    def nbytes(self) -> int:
        arrays = (self.values, self.indices, self.bounds)
        return sum(int(a.nbytes) for a in arrays if a is not None)


@dataclass(frozen=True, slots=True)
class Hooks:
    """Functions the workers import, as ``package.module:function``; an empty one means the default.

    ``lower(payload) -> Lowered`` runs in the compile workers. In the referee, once per kernel:
    ``kinds(payload) -> kinds of its input sets``, the first of which is timed (default:
    ``inputs.KINDS``). Once per kernel and input set: ``inputs(payload, io, seed, kind) -> dict of
    flat arrays`` (default: drawn by ``inputs.draw_inputs``), and ``reference(payload, inputs) ->
    dict of Reference per output`` (no default: without it a candidate is timed and not compared,
    which only tests of the device do). Once per kernel: ``changed(payload, inputs of the first set,
    seed) -> a further set, partly the first one, and a function that gives its references`` (no
    default: there is none).
    """

    lower: str = ""
    inputs: str = ""
    reference: str = ""
    kinds: str = ""
    changed: str = ""

    @property
    def modules(self) -> set[str]:
        """The modules of the functions."""
        named = (self.lower, self.inputs, self.reference, self.kinds, self.changed)
        return {hook.partition(":")[0] for hook in named if hook}


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of what one candidate may cost before it is stopped. ``policy.timeout_s`` bounds its
    run.

    Two turns are enough of a candidate that took ``losing_factor`` times the best one's time in
    them. ``cache_bytes`` bounds the inputs that the bench keeps, the references that all referees
    keep (and a quarter as much of inputs), and those that this process does; each of them takes at
    most an eighth of the machine's memory.
    """

    compile_s: float = 5.0
    compile_memory_bytes: int = 2 << 30
    run_memory_bytes: int = 8 << 30
    text_bytes: int = 8 << 20
    reference_s: float = 120.0
    cache_bytes: int = 4 << 30
    worker_start_s: float = 60.0
    losing_factor: float = 1.1


# ---- replies
#
# Replies of the bench and the referee: plain values within bounds, and nothing else is read.
#
# A bench has run candidates, so what it says is held against what was asked: ``measured`` must be
# the ``identity`` of the code and the input set. A reply that does not fit costs the candidate, see
# ``examine``.


EXIT_WROTE = 128
"""The exit code of a process whose candidate wrote to what is watched first; the next ones are of
those that follow."""

MOST_TOLD = 64
"""Places that have an exit code of their own; later ones are told as the last of these."""

Text = Annotated[str, Meta(max_length=8192)]

Seconds = Annotated[float, Meta(ge=0.0, lt=1e9)]

Digest = Annotated[str, Meta(max_length=64)]

Samples = Annotated[tuple[Seconds, ...], Meta(max_length=65536)]

State = Annotated[
    tuple[tuple[Annotated[str, Meta(pattern="^[a-z_]{1,32}$")], float], ...], Meta(max_length=32)
]
"""Names and numbers; see ``Device.state``."""

WROTE_READ_ONLY = "the candidate wrote to this buffer, which it may only read"
"""The damage of memory that was protected."""


def digest(image: bytes) -> bytes:
    """Of a candidate's code."""
    return hashlib.blake2b(image, digest_size=16).digest()


def identity(code: bytes, kernel_key: str, index: int) -> str:
    """Of a candidate with this ``digest`` on one input set."""
    return hashlib.blake2b(code + f"{kernel_key}\0{index}".encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Ran:
    """One run on one input set, ``once_s`` seconds long.

    ``damage``: what it wrote outside its buffers, in words.

    ``written``: the digest of its outputs. ``unprepared``: this process has no inputs for the
    kernel. In the last two states ``damage`` says why.
    """

    measured: Digest
    state: Literal["ran", "unprepared", "compile_error", "out_of_resources"] = "ran"
    once_s: Seconds = 0.0
    damage: Text = ""
    written: Digest = ""


@dataclass(frozen=True, slots=True)
class Timed:
    """Samples in seconds, and what was found after them: damage, and the digest of the outputs.

    ``reference_samples_s`` are of the program beside it, turn by turn; empty where there is none.
    ``state`` is the device's, right after the samples.
    """

    measured: Digest
    samples_s: Samples
    damage: Text = ""
    written: Digest = ""
    reference_samples_s: Samples = ()
    state: State = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The referee's verdict on outputs: no ``error`` where they are right.

    ``sets``: how many input sets the kernel has; 0 where the referee knows no such kernel.
    """

    sets: Annotated[int, Meta(ge=0)] = 0
    error: Text = ""
    max_error: float = 0.0
