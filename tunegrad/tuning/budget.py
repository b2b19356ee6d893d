"""The time of a session: its parts, stages' ends, the wanted latency, the budget that is left."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Literal, get_args

from tunegrad.config import TuneSettings
from tunegrad.db import STOPPED, Store
from tunegrad.opts import SPACE_VERSION
from tunegrad.search import LEAST_EFFECT, KernelSearch, optuna_installed
from tunegrad.trial import Fingerprint, Policy

from .race import compared_s, least_s, most_compared_s
from .workload import Workload

Part = Literal[
    "start-up",
    "model",
    "plans",
    "asking",
    "lowering",
    "compiling",
    "verifying",
    "timing",
    "waiting",
    "store",
    "finals",
    "whole model",
    "other",
]
"""``plans``: whole models compared to decide their cut and variants. ``asking``: the space and the
searcher.

``lowering`` and ``compiling``: as far as the session waited for them; what is done while it asks is
``asking``. ``waiting``: for workers to start and answer, and for the slowest of a batch.
``verifying`` holds inputs and references.
"""

PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(slots=True)
class Window:
    """The time that one opened part took of its own, in seconds; divided once it is over."""

    seconds: float
    book: dict[Part, float]
    part: Part
    sealed: bool

    def divide(self, shares: Mapping[Part, float]) -> None:
        """Give time to other parts: their seconds, or less where they add up to more."""
        if self.sealed:
            return
        claimed_s = sum(shares.values())
        scale = min(1.0, self.seconds / claimed_s) if claimed_s > 0.0 else 0.0
        for part, seconds in shares.items():
            self.book[part] += scale * seconds
            self.book[self.part] -= scale * seconds
        self.seconds -= scale * claimed_s


class Costs:
    """A stopwatch with parts. ``clock`` is monotonic, in seconds; ``began_s`` of it is when a
    command began, whose time until now was start-up. Not for several threads.

    part "plans"    |====          ===|
      part "asking"      |==|            a part inside a part takes its time out of the outer one
      window "waiting"       |=====|     divided afterwards: what workers say they did, and the rest
    no part open: "other"

    Work that several processes do at once counts with what it took of the session's time, not of
    theirs. What they do while this one works counts as what this one did, and only the wait for the
    rest is theirs:

        this process    |== asks for B ==|== waits for A ==|
        its workers     |=========== compile A ============|
        counts as       "asking"         "lowering", "compiling", or "waiting"
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, began_s: float | None = None
    ) -> None:
        self._clock = clock
        self._mark_s = clock()
        self.began_s = self._mark_s if began_s is None else min(began_s, self._mark_s)
        self._book: dict[Part, float] = dict.fromkeys(PARTS, 0.0)
        self._book["start-up"] = self._mark_s - self.began_s
        self._open: list[Window] = []

    @property
    def total_s(self) -> float:
        """Seconds since it was made."""
        return self._clock() - self.began_s

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of every part that took any, in the order of ``PARTS``, up to ``total_s`` now."""
        self._charge()
        return {part: self._book[part] for part in PARTS if self._book[part] > 0.0}

    @contextmanager
    def part(self, part: Part, sealed: bool = False) -> Iterator[Window]:
        """Charge a part while the block runs.

        ``sealed``: parts that are opened inside count as this one.
        """
        outer = self._open[-1] if self._open else None
        if outer is not None and outer.sealed:
            yield Window(0.0, self._book, part, True)
            return
        self._charge()
        window = Window(0.0, self._book, part, sealed)
        self._open.append(window)
        try:
            yield window
        finally:
            self._charge()
            self._open.pop()

    def _charge(self) -> None:
        now_s = self._clock()
        took_s, self._mark_s = now_s - self._mark_s, now_s
        if self._open:
            self._open[-1].seconds += took_s
        self._book[self._open[-1].part if self._open else "other"] += took_s


def compiling(measurements: Sequence[tuple[float, float]], workers: int) -> dict[Part, float]:
    """Seconds of a session that a batch compiled by ``workers`` took, by (lower_s, compile_s)."""
    busy = max(1, min(workers, len(measurements)))
    return {
        "lowering": sum(lower_s for lower_s, _ in measurements) / busy,
        "compiling": sum(compile_s for _, compile_s in measurements) / busy,
    }


_LEAST_SHARE = 0.1
"""Least part of a budget that is left after start-up: a slow load ends a session later."""

_PLANS_SHARE = 0.35
"""Share of what is left then: plans that are not decided by its end stay as the store has them."""

_EVALUATED_SHARE = 0.5
"""Share until whose end a model's evaluation may go on: given up, it was for nothing."""

_RESERVED_SHARE = 0.5
"""Share that may be kept for races and whole models, at most, however slow the models are."""

_WHOLE_SHARE, _WHOLE_MOST_S = 0.09, 12.0

_CLOSING_S = 0.3

_GRACE_S, _WHOLE_GRACE_S = 1.5, 2.5
"""Seconds after its end at which a wait is given up that was expected to be over."""

_SPENT_S = 10.0
"""Seconds that whole models, and a race of what was left open, may take where the budget was spent
by sessions before.
"""

_INTERRUPTED_S = 3.0
"""Seconds that a race, and then a whole model, may take after Ctrl-C."""


@dataclass(slots=True)
class Deadlines:
    """Ends of the stages, in seconds of a monotonic clock. Mutable: it learns what a model takes.

    ``budget_s`` seconds are left of the budget of a command that began at ``began_s``; its workers
    were ready at ``ready_s``. ``race_share`` of it are for the last race. ``both_s``: seconds of
    whole models by their default schedules and by the best ones, together, summed over the models;
    0 while unknown. ``data_s``: seconds that their inputs and outputs take once, beside the runs.

        began              ready                                                          over
        | start-up | plans | search .................. | race | whole models | closing |
                                                       <----- reserved ------>

    What comes after the search is reserved before it: a share of the budget, and at least what the
    least race and one comparison of whole models take, as far as that can be told from what kernels
    take. Waits that go on after a stage's end are given up there (``Interrupt.until``), so a device
    that compiles for minutes can not take more than it is given either.
    """

    budget_s: float
    began_s: float
    ready_s: float
    race_share: float
    both_s: float = 0.0
    data_s: float = 0.0

    @property
    def over_s(self) -> float:
        """Time at which the command shall be over."""
        return max(self.began_s + self.budget_s, self.ready_s + _LEAST_SHARE * self.budget_s)

    @property
    def plans_s(self) -> float:
        """Time at which plans have to be decided."""
        return self.ready_s + _PLANS_SHARE * (self.over_s - self.ready_s)

    @property
    def evaluated_s(self) -> float:
        """Time at which an evaluation that is not over is given up."""
        return self.ready_s + _EVALUATED_SHARE * (self.over_s - self.ready_s)

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
        """Time at which defaults begun now are given up: one kernel's fit in any case."""
        return self.given_up(max(now_s, self.search_s))

    def whole_given_up(self, now_s: float, interrupted: bool) -> float:
        """Time at which a comparison of whole models that begins now is given up."""
        if interrupted:
            return now_s + _INTERRUPTED_S
        grace_s = _WHOLE_GRACE_S if self.budget_s > 0.0 else _SPENT_S
        return max(self.over_s, now_s) + grace_s

    def last_race_s(self, now_s: float, interrupted: bool) -> float:
        """Time at which a last race that begins now shall be over."""
        if interrupted:
            return now_s
        settles_s = _SPENT_S if self.budget_s < LEAST_S else 0.0
        return max(now_s + settles_s, self.race_s)

    def race_given_up(self, now_s: float, interrupted: bool) -> float:
        """Time at which a last race that begins now is given up."""
        if interrupted:
            return now_s + _INTERRUPTED_S
        return self.given_up(self.last_race_s(now_s, interrupted))

    @property
    def _reserved(self) -> tuple[float, float]:
        """Seconds kept for the last race, and for whole models."""
        race_s = self.race_share * self.budget_s
        whole_s = share_s = min(_WHOLE_MOST_S, _WHOLE_SHARE * self.budget_s)
        if self.both_s:
            race_s = max(race_s, least_s(self.both_s, self.data_s))
            whole_s = min(share_s, most_compared_s(self.both_s))
        if self.both_s or self.data_s:
            whole_s = max(whole_s, compared_s(self.both_s, self.data_s))
        left_s = max(0.0, min(self.budget_s, self.over_s - self.ready_s))
        scale = min(1.0, _RESERVED_SHARE * left_s / max(race_s + whole_s, 1e-9))
        return scale * race_s, scale * whole_s


@dataclass(slots=True)
class Goal:
    """The goal of a session: the whole model takes at most ``target_s``.

    Mutable: it learns how far predictions are off.

    ``searches`` gives those of the kernels that the model runs, ``measure`` times the whole model
    with the fastest schedules so far, in seconds. A model that was measured and is too slow is
    measured again only when its kernels have become faster by as much as was missing; one that
    could not be measured (infinity), when they have become a little faster.

    predicted: sum of the best kernel times x what the last measurement took over its prediction (1
    at first)
    """

    target_s: float
    searches: Callable[[], Sequence[KernelSearch]]
    measure: Callable[[], float]
    factor: float = 1.0
    measured: int = 0

    def __call__(self) -> bool:
        predicted_s = sum(s.task.uses * s.best_s for s in self.searches())
        if not self.factor * predicted_s <= self.target_s:
            return False
        seconds = self.measure()
        self.measured += 1
        if seconds == math.inf:
            self.factor = (1.0 + LEAST_EFFECT) * self.target_s / predicted_s
        else:
            self.factor = seconds / predicted_s if predicted_s > 0.0 else 1.0
        return seconds <= self.target_s


LEAST_S = 0.05
"""A budget with less than this left is spent."""

_LIMITS = ("budget_s", "patience", "target_ms", "max_trials")
"""Settings that say when a search ends, and nothing of what it asks until then."""


@dataclass(slots=True)
class Account:
    """The budget of one search of one model (or several), on one machine. Mutable.

    ``before_s`` of it were spent by earlier sessions, ``spent_s`` is what this one has charged so
    far.

    budget - spent by earlier sessions      -->  left_s  -->  charged as it goes
             of the same search
    a search that stopped early             -->  remembered: within that budget
                                                 there is nothing to do
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
    """True when an earlier session with the same limits, and no less budget, stopped early."""

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
    if settings.searcher == "portfolio":
        record["optuna"] = optuna_installed()
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
    """Sessions that asked the same questions: rows answer in order, and this one goes on."""
    asked = _questions(json.dumps(record))
    same = [s for s in store.sessions() if s.id != mine and s.command == "tune" and s.seed == seed]
    return frozenset(s.id for s in same if _questions(s.settings) == asked)


def sessions_since(store: Store, mine: frozenset[str]) -> frozenset[str]:
    """These sessions and all begun after the first: what they measured was not known to it."""
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
