"""Observers of the pipeline: dump what it made, verify that it is well formed, time each pass.

build(kernel, schedule, device, dump_to_folder(Path("forms")))       forms/3-lower.txt
build(kernel, schedule, device, verifying(device.target))            VerifyError
build(kernel, schedule, device, seconds := Seconds())                seconds.of["lower"]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from tunegrad.errors import VerifyError
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.looptree import LoopTree
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target
from tunegrad.ir.verify.kernel import verify_kernel
from tunegrad.ir.verify.looptree import verify_looptree
from tunegrad.ir.verify.program import verify_program
from tunegrad.ir.verify.rules import describe

from .passes import PASSES, Form, Observer

__all__ = ["Seconds", "dump_to_folder", "dump_to_stream", "form_text", "verifying"]

_FILES = {p.name: f"{i}-{p.name}" for i, p in enumerate(PASSES, 1)}


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
    def observe(name: str, before: Form, after: Form) -> None:
        if name == PASSES[0].name:
            write("0-kernel", form_text(before))
        if after is not before:
            write(_FILES[name], form_text(after))

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
