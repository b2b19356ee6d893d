"""Observers of the pipeline: dump what it made, and trace what changed.

build(kernel, schedule, device, dump_to_folder(Path("forms")))       forms/3-lower.txt
"""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path
from typing import Literal

from tunegrad.ir.kernel import Kernel
from tunegrad.ir.looptree import LoopTree

from .actions import Action
from .passes import Form, Observer


def dump_to_folder(folder: Path) -> Observer:
    """Writes every form to a file of ``folder``: 0-kernel.txt, 1-loops.txt, ... to 6-render.txt.

    A pass that only checks writes none. The folder is made; its other files stay.
    """
    folder.mkdir(parents=True, exist_ok=True)
    count = 0

    def write(name: str, form: Form) -> None:
        (folder / f"{name}.txt").write_text(form_text(form), encoding="utf-8")

    def observe(name: str, before: Form, after: Form) -> None:
        nonlocal count
        if isinstance(before, Kernel):
            count = 0
            write("0-kernel", before)
        count += 1
        if after is not before:
            write(f"{count}-{name}", after)

    return observe


def form_text(form: Form) -> str:
    """A kernel, loop tree, program or rendered program as text that ends with its last line."""
    text: str = str(form) if isinstance(form, LoopTree) else form.text
    return f"{text.rstrip()}\n"


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
