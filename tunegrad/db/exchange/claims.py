"""Claims of a file, which no measurement here confirms, and the rule that judges them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from tunegrad.db.records import Question
from tunegrad.errors import IllegalAction
from tunegrad.lazy import dataclass
from tunegrad.trial import Fingerprint

MAX_ACTIONS = 256
"""Of one schedule; searchers make some ten. Applying so many takes 0.2 s; time grows by squares."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of a row: that a kernel ran so on a machine, in the words of a version of the
    space.

    Of a decision ``kind`` is the question's, and ``actions`` the choice.
    """

    kernel_text: str
    machine: Fingerprint
    space_version: int
    actions: str
    kind: Literal["schedule"] | Question = "schedule"


@dataclass(frozen=True, slots=True)
class Finding:
    """On a claim: ``fault`` is what is wrong with the actions, ``unchecked`` why that can not be
    told.

    Both empty: legal.
    """

    fault: str = ""
    unchecked: str = ""


ActionRule = Callable[[Claim], Finding]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row that was not taken.

    Its line counts from 1; then the field, its value shortened, and the rule that it breaks.
    """

    line: int
    row: str
    field: str
    value: str
    rule: str

    def __str__(self) -> str:
        kind = f"{self.row} row" if self.row else "row"
        return f"line {self.line}: {kind}: {self.field} is {self.value}: {self.rule}"


def actions_fault(actions: str) -> str | None:
    """Fault of an action text that does not parse, or is too long; None for a good one."""
    from tunegrad.opts import parse_actions
    from tunegrad.untrusted import shortened

    try:
        count = len(parse_actions(actions))
    except (IllegalAction, ValueError) as error:
        return f"must be a list of actions ({shortened(str(error))})"
    return None if count <= MAX_ACTIONS else f"must have at most {MAX_ACTIONS} actions, not {count}"


def parsed_only(claim: Claim) -> Finding:
    """The rule of a caller that gives none."""
    fault = actions_fault(claim.actions) if claim.kind == "schedule" else None
    return Finding(fault=fault) if fault else Finding(unchecked="not checked")
