"""Passes of a kernel: pure functions of a form and a context, from its loops to the text.

    kernel   --LOOPS-->   loop tree   --SCHEDULE-->   loop tree   --LOWER-->   program
    program  --RACES-->   program     --LIMIT-->      program     --RENDER-->  text

``tunegrad.pipeline`` runs them after the passes of graphs. An observer is called after every pass
with its name, the form before and the form after; ``observers`` has some: they dump, verify, time
and trace. ``RACES`` and ``LIMIT`` hand on the program that they were given, or refuse it.

What a pass needs is imported when it runs: a text that was lowered before is found without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from tunegrad.errors import IllegalAction, InternalError, OutOfResources, VerifyError
from tunegrad.lazy import dataclass

if TYPE_CHECKING:
    from tunegrad.ir.kernel import Kernel
    from tunegrad.ir.looptree import LoopTree
    from tunegrad.ir.program import Program
    from tunegrad.ir.target import Target

    from .actions import Action, ActionObserver

SPACE_VERSION = 2
"""Raised when an action text starts to mean another program, by another space, lowering or
rendering.

It is part of the store's key. ``python -m tools.lowered`` knows the code of each version, and a
test asks it.
"""

MAX_INSTRUCTIONS = 20_000
"""Instructions of a program, at most: LLVM needs about a second for as many vector ones, and longer
for scalar ones."""

Form = Any
"""A value that passes hand on: of a kernel's a Kernel, a LoopTree, a Program, or what
``Context.render`` makes of one."""

Observer = Callable[[str, Form, Form], None]
"""Is told the name of a pass that ran, the form before it and the form after it."""

C = TypeVar("C")


class Text(Protocol):
    """The output of a renderer: a program in the language of its device."""

    @property
    def text(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Pass(Generic[C]):
    """A step of the pipeline. ``run`` is pure; an unchanged form is the same object."""

    name: str
    run: Callable[[Form, C], Form]


def run_passes(
    passes: tuple[Pass[C], ...],
    form: Form,
    context: C,
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


def _loops(kernel: Kernel, context: Context) -> LoopTree:
    """Every axis a serial loop."""
    from tunegrad.ir.looptree import loop_tree

    return loop_tree(kernel, context.target)


def _schedule(tree: LoopTree, context: Context) -> LoopTree:
    """Every action of the schedule in turn. Raises IllegalAction, which names the action."""
    from .actions import apply_actions

    return apply_actions(tree, context.actions, context.acted)


def _lower(tree: LoopTree, _: Context) -> Program:
    """Vectors, registers, copies, masks, barriers. IllegalAction for a copy that does not fit."""
    from .lowering import emit

    return emit(tree)


def _races(program: Program, context: Context) -> Program:
    """Prove that there is no race. Raises IllegalAction where one can not be ruled out."""
    from tunegrad.ir.verify.races import verify_races

    try:
        verify_races(program, context.target.has_work_items)
    except VerifyError as error:
        raise IllegalAction(f"kernel {context.kernel.name}: a race: {error}") from None
    return program


def _limit(program: Program, _: Context) -> Program:
    """Raises OutOfResources for a program of more than ``MAX_INSTRUCTIONS``."""
    from tunegrad.ir.program import size

    count = size(program.body)
    if count > MAX_INSTRUCTIONS:
        raise OutOfResources(f"program of {count} instructions: at most {MAX_INSTRUCTIONS}")
    return program


def _render(program: Program, context: Context) -> Text:
    """The program in the device's language. Raises IllegalAction where the device refuses it."""
    from .actions import print_actions

    if context.render is None:
        raise InternalError(f"kernel {context.kernel.name}: no renderer was given to pass render")
    try:
        return context.render(program)
    except IllegalAction as error:
        raise IllegalAction(f"{print_actions(context.actions)}: {error}") from error


LOOPS = Pass("loops", _loops)
SCHEDULE = Pass("schedule", _schedule)
LOWER = Pass("lower", _lower)
RACES = Pass("races", _races)
LIMIT = Pass("limit", _limit)
RENDER = Pass("render", _render)


def lower(tree: LoopTree) -> Program:
    """The program of a loop tree, free of races by proof. Raises IllegalAction."""
    program: Program = run_passes((LOWER, RACES), tree, Context(tree.kernel, tree.target))
    return program
