"""The account of a session: its budget, and what it remembers for the sessions after it.

budget - spent by earlier sessions      -->  left_s  -->  charged as it goes
         of the same search
a search that stopped early             -->  remembered: within that budget
                                             there is nothing to do
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from tunegrad.config import TuneSettings
from tunegrad.db import STOPPED, Store
from tunegrad.opts import SPACE_VERSION
from tunegrad.search import LEARNED, cost_model_installed
from tunegrad.trial import Fingerprint, Policy

from ..workload import Workload
from .costs import Costs

__all__ = ["LEAST_S", "Account", "resumed_sessions", "session_record", "sessions_since"]

LEAST_S = 0.05
"""A budget with less than this left is spent."""

_LIMITS = ("budget_s", "patience", "target_ms", "max_trials")
"""Settings that say when a search ends, and nothing of what it asks until then."""


@dataclass(slots=True)
class Account:
    """The budget of one search of one model (or several), on one machine. Mutable.

    ``before_s`` of it were spent by earlier sessions, ``spent_s`` is what this one has charged so
    far.
    """

    settings: TuneSettings
    policy: Policy
    store: Store
    here: Fingerprint
    work_key: str
    costs: Costs
    spent_s: float = 0.0
    before_s: float = field(init=False)
    over: bool = field(init=False)
    """True when an earlier session with the same limits stopped early, within no smaller a
    budget.
    """

    def __post_init__(self) -> None:
        with self.costs.part("store"):
            self.before_s = self.store.spent(self.work_key, self.here, self._key)
            self.over = (
                self.store.spent(self.work_key, self.here, self._stop_key) >= self.settings.budget_s
            )

    @property
    def most_s(self) -> float:
        """Seconds that this session may charge at most."""
        return max(0.0, self.settings.budget_s - self.before_s)

    @property
    def left_s(self) -> float:
        """Seconds that may be spent from now on; below ``LEAST_S`` there is nothing to do."""
        return 0.0 if self.over else self.settings.budget_s - self.before_s - self.spent_s

    def charge(self, total_s: float) -> None:
        """Note that this session has spent ``total_s`` in all."""
        if total_s > self.spent_s:
            with self.costs.part("store"):
                self.store.add_spend(self.work_key, self.here, self._key, total_s - self.spent_s)
            self.spent_s = total_s

    def stop(self) -> None:
        """Remember that within this budget, with these limits, nothing more is to be done."""
        known_s = self.store.spent(self.work_key, self.here, self._stop_key)
        self.store.add_spend(
            self.work_key, self.here, self._stop_key, max(0.0, self.settings.budget_s - known_s)
        )

    def charge_used(
        self, stopped: str | None, left_s: float, used_s: float, interrupted: bool
    ) -> float:
        """Charge what was used, and remember a search that stopped early.

        Returns the seconds that this saved.
        """
        if stopped is None:
            return 0.0
        if stopped in ("budget", "interrupted"):
            # A search that ran to its end has used its budget, whether the race took less or more
            # than was left.
            self.charge(used_s if interrupted else left_s)
            return 0.0
        self.charge(used_s)
        self.stop()
        return max(0.0, left_s - used_s)

    @property
    def nothing_left(self) -> str:
        """Reason for which there is nothing to do."""
        if self.over:
            return (
                "the search stopped early before, and is over within "
                f"{self.settings.budget_s:g} s; a larger budget "
                "or other limits (patience, target, trials) go on from here"
            )
        return (
            f"the budget of {self.settings.budget_s:g} s is spent; a larger one goes on from here"
        )

    @property
    def _key(self) -> str:
        """Identity of a budget: the same search of the same model with the same seed."""
        s = self.settings
        start = "" if s.warm_start else "warm_start=False "
        return (
            f"{start}searcher={s.searcher} seed={s.seed} space={SPACE_VERSION} {self.policy.text}"
        )

    @property
    def _stop_key(self) -> str:
        s = self.settings
        return (
            f"{STOPPED}patience={s.patience} target_ms={s.target_ms} "
            f"max_trials={s.max_trials} {self._key}"
        )


def session_record(
    settings: TuneSettings, policy: Policy, works: Sequence[Workload] = ()
) -> dict[str, object]:
    """The settings as the session's row keeps them.

    A model without a builder is an object of the caller; it goes by the kernels of ``works``.
    """
    name, builder = settings.model.name, settings.model.builder
    if not builder and works:
        name, builder = works[0].name, f"kernels:{works[0].key}"
    record: dict[str, object] = {
        "model": name,
        "builder": builder,
        "batch": settings.model.batch,
        "args": [
            [name, list(value) if isinstance(value, tuple) else value]
            for name, value in settings.model.args
        ],
        "device": settings.device,
        "threads": settings.threads,
        "budget_s": settings.budget_s,
        "searcher": settings.searcher,
        "space_version": SPACE_VERSION,
        "policy": policy.text,
        "numerics": settings.numerics,
    }
    if settings.searcher in LEARNED:
        record["cost_model"] = cost_model_installed()
    if settings.in_flight > 1:
        record["in_flight"] = settings.in_flight
    if settings.warm_start:
        record["warm_start"] = True
    if settings.dtype != "f32":
        record["dtype"] = settings.dtype
    if settings.others:
        record["others"] = [
            [m.name, m.builder, m.batch, [list(a) for a in m.args]] for m in settings.others
        ]
    limits = {name: getattr(settings, name) for name in _LIMITS}
    return record | {name: value for name, value in limits.items() if value is not None}


def resumed_sessions(
    store: Store, record: Mapping[str, object], seed: int, mine: str
) -> frozenset[str]:
    """Sessions that asked the same questions: rows answer them now, in the same order, and this one
    goes on.
    """
    asked = _questions(json.dumps(record))
    same = [s for s in store.sessions() if s.id != mine and s.command == "tune" and s.seed == seed]
    return frozenset(s.id for s in same if _questions(s.settings) == asked)


def sessions_since(store: Store, mine: frozenset[str]) -> frozenset[str]:
    """These sessions, and all that began after the first of them: what they measured it did not
    know.
    """
    began_s = {s.id: s.started_s for s in store.sessions()}
    first_s = min((began_s[name] for name in mine if name in began_s), default=inf)
    return mine | {name for name, s in began_s.items() if s >= first_s}


def _questions(text: str) -> Mapping[str, object]:
    """The settings that decide what a search asks: all but those that say when it ends."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return (
        {name: v for name, v in found.items() if name not in _LIMITS}
        if isinstance(found, dict)
        else {}
    )
