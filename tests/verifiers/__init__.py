"""Verifiers of forms: of graphs, loop trees and programs, and of each form that passes make."""

from __future__ import annotations

from tests.verifiers.graph import verify_graph
from tests.verifiers.looptree import verify_looptree
from tests.verifiers.program import describe, verify_program
from tunegrad.errors import VerifyError
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.looptree import LoopTree
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target
from tunegrad.ir.verify.kernel import verify_kernel
from tunegrad.opts import Form, Observer

__all__ = ["verify_graph", "verify_looptree", "verify_program", "verifying"]


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
