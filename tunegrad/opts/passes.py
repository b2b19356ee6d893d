"""The pipeline of a kernel: one tuple of named passes, pure functions of a form and a context.

    kernel   --loops-->   loop tree   --schedule-->   loop tree   --lower-->   program
    program  --races-->   program     --limit-->      program     --render-->  text

An observer is called after every pass with its name, the form before and the form after;
``observers`` has three: they dump, verify and time. ``races`` and ``limit`` hand on the program
that they were given, or refuse it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tunegrad.errors import IllegalAction, InternalError, OutOfResources, VerifyError
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.looptree import LoopTree, loop_tree
from tunegrad.ir.program import Program, size
from tunegrad.ir.target import Target
from tunegrad.ir.verify.races import verify_races

from .actions import Action, ActionObserver, apply_actions, print_actions
from .lowering import emit

__all__ = [
    "MAX_INSTRUCTIONS",
    "PASSES",
    "TO_PROGRAM",
    "TO_TREE",
    "Context",
    "Form",
    "Observer",
    "Pass",
    "lower",
    "run_passes",
]

MAX_INSTRUCTIONS = 20_000
"""Instructions of a program, at most: LLVM needs about a second for as many vector ones, and longer
for scalar ones."""

Form = Any
"""A Kernel, a LoopTree, a Program, or what ``Context.render`` makes of one."""

Observer = Callable[[str, Form, Form], None]
"""Is told the name of a pass that ran, the form before it and the form after it."""


class Text(Protocol):
    """The output of a renderer: a program in the language of its device."""

    @property
    def text(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Context:
    """Inputs of passes beside the form: the kernel, the target, the schedule.

    ``render`` is the device's; passes up to the program do without. ``acted``, where given, is
    called with every action of the schedule.
    """

    kernel: Kernel
    target: Target
    actions: tuple[Action, ...] = ()
    render: Callable[[Program], Text] | None = None
    acted: ActionObserver | None = None


@dataclass(frozen=True, slots=True)
class Pass:
    """A step of the pipeline. ``run`` is pure; an unchanged form is the same object."""

    name: str
    run: Callable[[Form, Context], Form]


def _loops(kernel: Kernel, context: Context) -> LoopTree:
    """Every axis a serial loop."""
    return loop_tree(kernel, context.target)


def _schedule(tree: LoopTree, context: Context) -> LoopTree:
    """Every action of the schedule in turn. Raises IllegalAction, which names the action."""
    return apply_actions(tree, context.actions, context.acted)


def _lower(tree: LoopTree, _: Context) -> Program:
    """Vectors, registers, copies, masks, barriers. IllegalAction for a copy that does not fit."""
    return emit(tree)


def _races(program: Program, context: Context) -> Program:
    """Prove that there is no race. Raises IllegalAction where one can not be ruled out."""
    try:
        verify_races(program, context.target.has_work_items)
    except VerifyError as error:
        raise IllegalAction(f"kernel {context.kernel.name}: a race: {error}") from None
    return program


def _limit(program: Program, _: Context) -> Program:
    """Raises OutOfResources for a program of more than ``MAX_INSTRUCTIONS``."""
    count = size(program.body)
    if count > MAX_INSTRUCTIONS:
        raise OutOfResources(f"program of {count} instructions: at most {MAX_INSTRUCTIONS}")
    return program


def _render(program: Program, context: Context) -> Text:
    """The program in the device's language. Raises IllegalAction where the device refuses it."""
    if context.render is None:
        raise InternalError(f"kernel {context.kernel.name}: no renderer was given to pass render")
    try:
        return context.render(program)
    except IllegalAction as error:
        raise IllegalAction(f"{print_actions(context.actions)}: {error}") from error


PASSES = (
    Pass("loops", _loops),
    Pass("schedule", _schedule),
    Pass("lower", _lower),
    Pass("races", _races),
    Pass("limit", _limit),
    Pass("render", _render),
)
"""From a kernel to text, in the order in which they run."""

TO_TREE, TO_PROGRAM = PASSES[:2], PASSES[2:4]
"""The parts that are asked for alone: to a scheduled loop tree, and on to a proved program."""


def run_passes(
    passes: tuple[Pass, ...],
    form: Form,
    context: Context,
    observe: Observer | None = None,
) -> Form:
    """The form after all passes, in order.

    Raises what they raise; the observer is not told of a pass that fails.
    """
    for step in passes:
        before, form = form, step.run(form, context)
        if observe is not None:
            observe(step.name, before, form)
    return form


def lower(tree: LoopTree) -> Program:
    """The program of a loop tree, free of races by proof. Raises IllegalAction."""
    program: Program = run_passes(TO_PROGRAM, tree, Context(tree.kernel, tree.target))
    return program
