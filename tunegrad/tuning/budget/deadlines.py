"""Deadlines of a session's stages, so that the whole command takes its budget.

    began              ready                                                          over
    | start-up | plans | search .................. | race | whole models | closing |
                                                   <----- reserved ------>

What comes after the search is reserved before it: a share of the budget, and at least what the
least race and one comparison of whole models take, as far as that can be told from what kernels
take. Waits that go on after a stage's end are given up there (``Interrupt.until``), so a device
that compiles for minutes can not take more than it is given either.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..race.model_track import compared_s, least_s, most_compared_s

__all__ = ["Deadlines"]

_START_SHARE = 0.25
"""Of a budget that start-up may take at most: what it takes beyond that comes on top."""

_PLANS_SHARE = 0.35
"""Share of what is left then: plans that are not decided by its end stay as the store has them."""

_RESERVED_SHARE = 0.5
"""Share that may be kept for races and whole models, at most, however slow the models are."""

_WHOLE_SHARE, _WHOLE_MOST_S = 0.12, 6.0
_CLOSING_S = 0.3
_GRACE_S, _WHOLE_GRACE_S = 1.5, 2.5
"""Seconds after its end at which a wait is given up that was expected to be over."""

_SPENT_S = 10.0
"""Seconds that whole models may take where the budget was spent by sessions before."""

_INTERRUPTED_S = 3.0
"""Seconds that a race, and then a whole model, may take after Ctrl-C."""


@dataclass(slots=True)
class Deadlines:
    """Ends of the stages, in seconds of a monotonic clock. Mutable: it learns what a model takes.

    ``budget_s`` seconds are left of the budget of a command that began at ``began_s``; its workers
    were ready at ``ready_s``. ``race_share`` of it are for the last race. ``both_s``: seconds of
    whole models by their default schedules and by the best ones, together, summed over the models;
    0 while unknown.
    """

    budget_s: float
    began_s: float
    ready_s: float
    race_share: float
    both_s: float = 0.0

    @property
    def over_s(self) -> float:
        """Time at which the command shall be over."""
        return max(
            self.began_s + self.budget_s, self.ready_s + (1.0 - _START_SHARE) * self.budget_s
        )

    @property
    def plans_s(self) -> float:
        """Time at which plans have to be decided."""
        return self.ready_s + _PLANS_SHARE * (self.over_s - self.ready_s)

    @property
    def search_s(self) -> float:
        """Time at which the search shall be over."""
        race_s, whole_s = self._reserved
        return self.over_s - _CLOSING_S - race_s - whole_s

    @property
    def race_s(self) -> float:
        """Time at which the last race shall be over."""
        return self.over_s - _CLOSING_S - self._reserved[1]

    @property
    def whole_s(self) -> float:
        """Time at which whole models shall have been compared."""
        return self.over_s - _CLOSING_S

    def given_up(self, end_s: float) -> float:
        """Time at which waits of a stage that shall end at ``end_s`` are given up."""
        return end_s + _GRACE_S

    def defaults_given_up(self, now_s: float) -> float:
        """Time at which defaults that are begun now are given up: those of one kernel fit in any
        case.
        """
        return self.given_up(max(now_s, self.search_s))

    def whole_given_up(self, now_s: float, interrupted: bool) -> float:
        """Time at which a comparison of whole models that begins now is given up."""
        if interrupted:
            return now_s + _INTERRUPTED_S
        grace_s = _WHOLE_GRACE_S if self.budget_s > 0.0 else _SPENT_S
        return max(self.over_s, now_s) + grace_s

    def race_given_up(self, now_s: float, interrupted: bool) -> float:
        """Time at which a last race that begins now is given up."""
        return now_s + _INTERRUPTED_S if interrupted else self.given_up(max(now_s, self.race_s))

    @property
    def _reserved(self) -> tuple[float, float]:
        """Seconds kept for the last race, and for whole models."""
        race_s = max(self.race_share * self.budget_s, least_s(self.both_s) if self.both_s else 0.0)
        share_s = min(_WHOLE_MOST_S, _WHOLE_SHARE * self.budget_s)
        whole_s = share_s
        if self.both_s:
            whole_s = max(compared_s(self.both_s), min(share_s, most_compared_s(self.both_s)))
        scale = min(1.0, _RESERVED_SHARE * self.budget_s / max(race_s + whole_s, 1e-9))
        return scale * race_s, scale * whole_s
