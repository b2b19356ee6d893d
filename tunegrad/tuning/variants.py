"""Which variant each kernel of a model runs as, settled by measuring.

every part of every variant, default schedules --> verified and timed by the device, rows in the
                                                   store
sums of parts, of kernels that multiply alike --> the near variants: ``Rivals``, whose kernels are
                                                  searched a while
whole models of these, launch by launch, in turns --> the fastest; a row and a promotion each:
                                                      ``variant(NAME)``

A variant's constants may be nine times the direct kernel's: only a whole model shows what reading
them costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from time import monotonic

from tunegrad.config import Numerics
from tunegrad.db import Store
from tunegrad.errors import CandidateFailure
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.variants import DIRECT, parts_of, variants_of
from tunegrad.opts import SPACE_VERSION
from tunegrad.planning.variants import allowed
from tunegrad.trial import Fingerprint

from .claims import decided_here, measured_here
from .contest import PARTS_POLICY
from .decisions import DecisionRows, evidence_of
from .models import Models, WholeModel, culprit
from .race import FAULTS, PROOF_TURNS, Choice, Pair, race
from .rivals import NEAR, Group, Rivals
from .tracks import ModelTrack, least_s, most_at_once
from .workload import Workload, with_variants

__all__ = ["Void", "choose_variants", "rivals_of"]

_ALONE = "alone"
"""What stands for a test where there is nothing to compare the fastest variant with."""

Void = Callable[[str, str, CandidateFailure], None]
"""Withdraws the actions of a kernel, by its key, for what they did in the whole model."""

_Picks = Mapping[str, str]
"""A variant for each group, by the key of its first kernel."""


def rivals_of(
    workload: Workload,
    here: Fingerprint,
    store: Store,
    measure: Callable[[Sequence[Kernel]], dict[str, float]],
    numerics: Numerics = "contract",
) -> Rivals:
    """The variants that each kernel of the workload may run as: what the store has settled, else
    the near ones.

    ``measure`` verifies and times default schedules and gives seconds by key, infinity where none
    ran.
    """
    names = {u.key: allowed(u.kernel, numerics) for u in workload.kernels}
    picks = _settled(workload, names, here, store)
    open_kernels = [
        u.kernel for u in workload.kernels if u.key not in picks and len(names[u.key]) > 1
    ]
    if not open_kernels:
        return Rivals(workload, picks)
    parts = {p.key: p for k in open_kernels for v in names[k.key] for p in parts_of(k, v)}
    alike: dict[tuple[str, ...], list[str]] = {}
    for k in open_kernels:
        alike.setdefault(_work_of(k), []).append(k.key)
    groups = tuple(Group(tuple(keys), names[keys[0]]) for keys in alike.values())
    return Rivals(workload, picks, groups).narrowed(measure(list(parts.values())), NEAR)


def choose_variants(
    rivals: Rivals,
    actions: Mapping[str, str],
    models: Models,
    session: str,
    void: Void,
    deadline_s: float = inf,
) -> dict[str, str]:
    """A variant by key for every kernel that has several, raced in whole models of these
    ``actions`` by kernel key.

    Kernels without actions run as the store or their defaults have them. Where ``deadline_s``
    leaves no time for whole models, or they do not run, the favourites are picked, and nothing is
    settled. Actions that end a race, alone and twice, are told to ``void``; a variant that does so
    with default schedules has a row that says it.
    """
    groups = {g.keys[0]: g for g in rivals.groups if g.others or g.stands != DIRECT}
    both_s = sum(rivals.seconds(g)[v] for g in groups.values() for v in (g.stands, *g.others[:1]))
    if not groups or monotonic() + least_s(both_s) > deadline_s:
        return rivals.favourites
    rows = DecisionRows(models.store, models.here, session, "variant")
    texts = {u.key: u.kernel.text for u in rivals.work.kernels}

    def blamed(key: str, variant: str, failure: CandidateFailure) -> None:
        rows.failed(texts[key], variant, failure)

    track = _Track(rivals, groups, models, dict(actions), void, blamed)
    try:
        found = race(
            [Choice(key, g.stands, g.others) for key, g in groups.items()], track, deadline_s
        )
    except CandidateFailure:
        return rivals.favourites
    picks = dict(rivals.favourites)
    for first, group in groups.items():
        met = found.get(first)
        won = met.alternative if met is not None and met.won else group.stands
        picks |= dict.fromkeys(group.keys, won)
        for key in group.keys:
            if group.stands != DIRECT:
                took_s = (rivals.seconds(group)[group.stands],)
                rows.stands(texts[key], group.stands, PARTS_POLICY, took_s, _ALONE)
            if met is not None:
                rows.challenged(
                    texts[key], met.alternative, evidence_of(met.verdict, met.samples), met.won
                )
    return picks


def _settled(
    workload: Workload, allowed_here: Mapping[str, Sequence[str]], here: Fingerprint, store: Store
) -> dict[str, str]:
    picks = {}
    for use in workload.kernels:
        names = allowed_here[use.key]
        if len(names) == 1:
            continue
        found = decided_here(store, "variant", use.key, here)
        if found is not None:
            picks[use.key] = found.choice if found.choice in names else DIRECT
        elif any(t.space_version == SPACE_VERSION for t, _ in measured_here(store, use.key, here)):
            picks[use.key] = DIRECT
    return picks


def _work_of(kernel: Kernel) -> tuple[str, ...]:
    """Kernels whose variants multiply the same shapes, and differ in their epilogues only, are
    settled together.
    """
    return tuple(
        p.key for v in variants_of(kernel) if v != DIRECT for p in parts_of(kernel, v) if p.reduces
    )


class _Track(ModelTrack[str]):
    """Whole models in which each group runs as one of its variants, the others as picked.

    Actions may be at fault.
    """

    def __init__(
        self,
        rivals: Rivals,
        groups: Mapping[str, Group],
        models: Models,
        actions: dict[str, str],
        void: Void,
        blamed: Callable[[str, str, CandidateFailure], None],
    ) -> None:
        super().__init__(models.bench, self._made, self._places, blamed, most_at_once(rivals.work))
        self._rivals, self._groups, self._all = rivals, groups, models
        self._actions, self._void = actions, void

    def ready(self, stands: _Picks, lineups: Sequence[_Picks]) -> None:
        """See ``Track``."""
        while True:
            try:
                return super().ready(stands, lineups)
            except FAULTS:
                if not self._withdrawn(stands, lineups):
                    raise

    def turns(
        self, stands: _Picks, lineups: Sequence[_Picks], rounds: int
    ) -> list[dict[str, Pair]]:
        """See ``Track``."""
        while True:
            try:
                return super().turns(stands, lineups, rounds)
            except FAULTS:
                if not self._withdrawn(stands, lineups):
                    raise
                self.ready(stands, lineups)

    def _withdrawn(self, stands: _Picks, lineups: Sequence[_Picks]) -> bool:
        """Whether one of the actions is at fault, alone and twice, and no variant.

        It is withdrawn then.
        """

        def fails(keys: Sequence[str]) -> CandidateFailure | None:
            self.bench.renew()
            mine = {key: self._actions[key] for key in keys}
            made = [self._model({**stands, **x}, mine, stored=False) for x in ({}, *lineups)]
            try:
                self.bench.profiled([m for m in made if m is not None], PROOF_TURNS)
            except FAULTS as error:
                return error
            return None

        found = None if fails([]) is not None else culprit(list(self._actions), fails)
        if found is None:
            return False
        key, failure = found
        self._void(key, self._actions.pop(key), failure)
        return True

    def _made(self, lineups: Sequence[_Picks]) -> list[WholeModel | None]:
        return [self._model(x, self._actions) for x in lineups]

    def _model(
        self, lineup: _Picks, actions: Mapping[str, str], stored: bool = True
    ) -> WholeModel | None:
        work = with_variants(self._rivals.work, self._picks(lineup))
        mine = {u.key: actions[u.key] for u in work.kernels if u.key in actions}
        try:
            return self._all.of(work, mine, stored)
        except CandidateFailure:
            return None

    def _picks(self, lineup: _Picks) -> dict[str, str]:
        """The variant of every kernel."""
        raced = {
            key: variant for first, variant in lineup.items() for key in self._groups[first].keys
        }
        return {**self._rivals.favourites, **raced}

    def _places(self, lineup: _Picks) -> dict[str, list[slice]]:
        """Where the parts of every use of the groups' kernels are among the launches."""
        picks, at = self._picks(lineup), 0
        group_of = {key: first for first in lineup for key in self._groups[first].keys}
        places: dict[str, list[slice]] = {}
        for launch in self._rivals.work.plan.launches:
            key = launch.kernel.key
            count = len(parts_of(launch.kernel, picks.get(key, DIRECT)))
            if key in group_of:
                places.setdefault(group_of[key], []).append(slice(at, at + count))
            at += count
        return places
