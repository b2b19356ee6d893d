"""Observers of the pipeline: dump what it made, verify that it is well formed, time each pass,
trace what changed.

build(kernel, schedule, device, dump_to_folder(Path("forms")))       forms/3-lower.txt
build(kernel, schedule, device, verifying(device.target))            VerifyError
build(kernel, schedule, device, seconds := Seconds())                seconds.of["lower"]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path
from typing import Literal, TextIO

from tunegrad.errors import VerifyError
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.looptree import LoopTree
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target
from tunegrad.ir.verify.kernel import verify_kernel
from tunegrad.ir.verify.looptree import verify_looptree
from tunegrad.ir.verify.program import describe, verify_program

from .actions import Action
from .passes import Form, Observer


def dump_to_stream(stream: TextIO) -> Observer:
    """Writes every form under a heading: the kernel, then what each pass made."""
    return _dump(lambda name, text: stream.write(f"== {name} ==\n{text}"))


def dump_to_folder(folder: Path) -> Observer:
    """Writes every form to a file of ``folder``: 0-kernel.txt, 1-loops.txt, ... to 6-render.txt.

    A pass that only checks writes none. The folder is made; its other files stay.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return _dump(lambda name, text: (folder / f"{name}.txt").write_text(text, encoding="utf-8"))


def _dump(write: Callable[[str, str], object]) -> Observer:
    count = 0

    def observe(name: str, before: Form, after: Form) -> None:
        nonlocal count
        if isinstance(before, Kernel):
            count = 0
            write("0-kernel", form_text(before))
        count += 1
        if after is not before:
            write(f"{count}-{name}", form_text(after))

    return observe


def form_text(form: Form) -> str:
    """A kernel, loop tree, program or rendered program as text that ends with its last line."""
    text: str = str(form) if isinstance(form, LoopTree) else form.text
    return f"{text.rstrip()}\n"


def verifying(target: Target) -> Observer:
    """Checks every form by the rules of its kind. Raises VerifyError, which names the rule.

    A program is checked when ``races`` has let it pass: an action list whose race is refused there
    is illegal, and no fault of lowering. An access that is not proved to be in bounds is refused as
    well. Text is the compiler's to check.
    """

    def observe(name: str, before: Form, after: Form) -> None:
        if isinstance(before, Kernel):
            verify_kernel(before)
        if isinstance(after, LoopTree):
            verify_looptree(after)
        elif isinstance(after, Program) and name != "lower":
            unproved = verify_program(after, target)
            if unproved:
                raise VerifyError(
                    f"program {after.name}: `{describe(unproved[0])}`: not proved to stay inside "
                    f"its buffer, one of {len(unproved)}"
                )

    return observe


@dataclass(slots=True)
class Seconds:
    """Adds up the seconds of each pass, by name; from when it was made, or last ``start``ed."""

    clock: Callable[[], float] = time.perf_counter
    of: dict[str, float] = field(default_factory=dict)
    _mark: float = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """The next pass begins now."""
        self._mark = self.clock()

    def __call__(self, name: str, *_: Form) -> None:
        now = self.clock()
        self.of[name] = self.of.get(name, 0.0) + now - self._mark
        self._mark = now


_AROUND = 1
"""Lines that are shown around a change."""


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One action, or one pass.

    ``change`` is how ``text`` is to be read: a ``new`` form is all there; a ``difference`` has
    lines that begin with ``-`` and ``+``; of what is the ``same`` there is no text.
    """

    name: str
    kind: Literal["action", "pass"]
    change: Literal["new", "difference", "same"]
    text: str


@dataclass(slots=True)
class Trace:
    """Two observers, of passes and of actions, that fill ``steps`` in order. Mutable.

    trace = Trace()
    build(kernel, schedule, device, trace.passed, trace.acted)
    trace.steps[2].text:    -for b in 8:
                            +for b0 in 2:
                            +    for b1 in 4:

    It keeps texts and no forms, so nothing stays alive for it.
    """

    steps: list[TraceStep] = field(default_factory=list)

    def acted(self, action: Action, before: LoopTree, after: LoopTree) -> None:
        """An action was applied."""
        self.steps.append(_step(str(action), "action", before, after))

    def passed(self, name: str, before: Form, after: Form) -> None:
        """A pass ran; of the schedule as a whole its actions said everything."""
        if any(step.kind == "action" for step in self.steps) and name == "schedule":
            return
        self.steps.append(_step(name, "pass", before, after))


def _step(name: str, kind: Literal["action", "pass"], before: Form, after: Form) -> TraceStep:
    if after is before:
        return TraceStep(name, kind, "same", "")
    if type(after) is not type(before):
        return TraceStep(name, kind, "new", form_text(after))
    old, new = form_text(before).splitlines(), form_text(after).splitlines()
    lines = list(unified_diff(old, new, n=_AROUND, lineterm=""))[2:]  # without names of files
    shown = "\n".join("..." if x.startswith("@@") else x for x in lines)
    return TraceStep(name, kind, "difference" if lines else "same", shown)
