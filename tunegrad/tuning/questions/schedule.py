"""The schedules of a session's kernels, raced: in whole models, launch by launch.

    stands  the promoted schedule of a kernel, at first its default: its row is promoted without a
            contest. Where no default ran nothing stands, and nothing is promoted
    others  those of different programs within 1.25 of the fastest of the search, the fastest first;
            the more, the more of the model the kernel takes
    a win   proved faster there, in a fresh process: promoted with the evidence

In a model a kernel finds what the kernels before it left in the caches of each core, and leaves it
to the next one; no measurement of a kernel alone shows that (decision 0028). Where a model does not
run, each kernel is raced in its first launch alone. A schedule that ends a process, hangs or spoils
what the model computes is withdrawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import median

from tunegrad.db import Evidence, Store, imported
from tunegrad.devices import CONTENDING
from tunegrad.errors import CandidateFailure, InternalError
from tunegrad.events import Event, Warned, WinnerPromoted
from tunegrad.opts import Schedule
from tunegrad.search import LEAST_EFFECT, KernelSearch
from tunegrad.trial import Cache, Fingerprint, Measurement, Status, Trial

from ..executor import SessionMeasurer
from ..models import Models, WholeModel
from ..race import Choice, Met, ModelTrack, most_at_once, race
from ..workload import Workload, only
from .question import evidence_of, measured_here

_FIELD = 40
"""Others of the heaviest kernel that are raced where there is time: the best one was found as far
as the 38th place of the search (decision 0028).
"""

_CLAIMS = 3
"""Of those that were not verified on every input set, the fastest that are, and then raced."""

_FIRST = "first"
"""The test of a winner that nothing came before."""

Void = Callable[[Trial, CandidateFailure], None]


@dataclass(frozen=True, slots=True)
class _Field:
    """A kernel: what stands, whether promoted, and the others, fastest in the search first."""

    search: KernelSearch
    stands: Trial
    promoted: bool
    others: tuple[Trial, ...]

    @property
    def key(self) -> str:
        return self.search.task.key

    @property
    def model_s(self) -> float:
        """Model seconds of the kernel, as the search measured it."""
        return self.search.task.uses * min(
            t.measurement.seconds for t in (self.stands, *self.others)
        )

    @property
    def cache(self) -> Cache:
        return self.stands.policy.cache


@dataclass(frozen=True, slots=True)
class Schedules:
    """Settles each kernel's winner; ``void`` withdraws a trial for what it did in a model."""

    measurer: SessionMeasurer
    models: Models
    store: Store
    here: Fingerprint
    void: Void
    observe: Callable[[Event], None]

    def promote_proved(
        self, searches: Sequence[KernelSearch], works: Sequence[Workload], deadline_s: float = inf
    ) -> None:
        """Promote what is proved faster, of each changed kernel, in the first model with it."""
        fields = [self._verified(f) for s in searches if (f := self._field(s)) is not None]
        fields.sort(key=lambda f: f.model_s, reverse=True)
        for field in fields:
            if not field.promoted:
                samples_s = field.stands.measurement.samples_s
                promote(
                    self.store,
                    field.stands,
                    Evidence(_FIRST, 1.0, (), samples_s, cold=_cold(field)),
                )
        left = {f.key: f for f in fields if f.others}
        for work in works:
            mine = [left.pop(u.key) for u in work.kernels if u.key in left]
            try:
                self._race(mine, work, deadline_s)
            except CandidateFailure as error:
                self.observe(Warned(f"model {work.name}: its kernels are raced alone: {error}"))
                self._alone(mine, work, deadline_s)

    def _race(self, fields: Sequence[_Field], work: Workload, deadline_s: float) -> None:
        self._crown(
            fields, race(_choices(fields), track_of(self.models, work, self.void), deadline_s)
        )

    def _alone(self, fields: Sequence[_Field], work: Workload, deadline_s: float) -> None:
        for field in fields:
            try:
                self._race([field], only(work, field.key), deadline_s)
            except CandidateFailure as error:
                name = field.search.task.name
                self.observe(Warned(f"kernel {name}: its schedules are not raced: {error}"))

    # ---- the field of a race

    def _field(self, search: KernelSearch) -> _Field | None:
        """The field of a kernel's race; None where nothing ran, where no default did and nothing
        stands, and where nothing could take the place of what stands: nothing new, nor what the
        store has as faster and a race before this one did not settle.
        """
        if wrong := _wrong_default(search):
            self.observe(Warned(f"kernel {search.task.name}: {wrong}"))
        ranked = search.finalists(1 << 30)
        if not ranked:
            return None
        promotions = measured_here(self.store, search.task.key, self.here)
        known = [t for t, _ in promotions if t.space_version == search.space.version]
        # One that was timed otherwise is a seed of this search, and stands as it was timed now.
        held = [t for t in known if t.policy.cache == ranked[0].policy.cache]
        default = next((t for s in search.defaults for t in ranked if t.actions == s.text), None)
        before = next((t for t in ranked if known and t.actions == known[-1].actions), None)
        stands = held[-1] if held else before or default
        if stands is None:  # what met no default is no winner
            self.observe(Warned(f"kernel {search.task.name}: {_unmet(search)}"))
            return None
        # Slower ones were not verified on every input set.
        fastest = next((t for t in ranked if not imported(t)), ranked[0])
        contending_s = CONTENDING * fastest.measurement.seconds
        others = [
            t
            for t in ranked
            if t.program_hash != stands.program_hash and t.measurement.seconds <= contending_s
        ]
        least_s = (1.0 - LEAST_EFFECT) * stands.measurement.seconds
        hopeful = bool(others) and others[0].measurement.seconds <= least_s
        if held and not (others and (search.statuses or hopeful)):
            return None
        return _Field(search, stands, bool(held), tuple(others[:_FIELD]))

    def _verified(self, field: _Field) -> _Field:
        """The same without what was not verified on every input set here, but for its few fastest
        that prove right: what a file brought, and what was slow beside a claim of a file or beside
        what was withdrawn since.
        """
        search = field.search
        withdrawn = self.store.withdrawals(search.task.key, self.here)
        gone = [w.trial for w in withdrawn] + [t for t in search.trials if imported(t)]
        least_s = CONTENDING * min((t.measurement.seconds for t in gone), default=inf)
        unsure = [t for t in field.others if imported(t) or t.measurement.seconds > least_s]
        tried = {t.actions: Schedule.parse(t.actions) for t in unsure[:_CLAIMS]}
        right: set[str] = set()
        if tried:
            measured = self.measurer.measure(
                search.task.kernel, list(tried.values()), inf, frozenset()
            )
            ran = (found is not None and found.measurement.ran for found in measured)
            right = {text for text, sound in zip(tried, ran, strict=True) if sound}
        left_out = {t.actions for t in unsure} - right
        return replace(field, others=tuple(t for t in field.others if t.actions not in left_out))

    # ---- what a win means

    def _crown(self, fields: Sequence[_Field], found: Mapping[str, Met[Trial]]) -> None:
        for field in fields:
            met = found.get(field.key)
            if met is None or not met.won:
                continue
            trial = met.alternative
            evidence = evidence_of(met)
            promote(self.store, trial, evidence)
            seconds, previous_s = (
                median(evidence.challenger_samples_s),
                median(evidence.incumbent_samples_s),
            )
            name = field.search.task.name
            self.observe(
                WinnerPromoted(name, field.key, trial.actions, seconds, previous_s, trial.origin)
            )


def promote(store: Store, trial: Trial, evidence: Evidence) -> None:
    """Have a trial of the store win. Raises InternalError for one that is not there."""
    number = store.id_of(trial)
    if number is None:
        raise InternalError(
            f"kernel {trial.kernel_key}: the winner {trial.actions!r} is not in the store"
        )
    store.promote(number, evidence)


def track_of(models: Models, work: Workload, void: Void) -> ModelTrack[Trial]:
    """Models of a workload whose kernels run as trials; ``void`` hears which one ended a race."""
    kernels = {u.key: u.kernel for u in work.kernels}
    launches = [launch.kernel.key for launch in work.plan.launches]

    def made(lineups: Sequence[Mapping[str, Trial]]) -> list[WholeModel | None]:
        models.prepare([(kernels[key], t.actions) for x in lineups for key, t in x.items()])
        return [_model(models, work, x) for x in lineups]

    def places(lineup: Mapping[str, Trial]) -> dict[str, list[slice]]:
        return {
            key: [slice(i, i + 1) for i, at in enumerate(launches) if at == key] for key in lineup
        }

    def blamed(_: str, trial: Trial, failure: CandidateFailure) -> None:
        void(trial, failure)

    return ModelTrack(models.bench, made, places, blamed, most_at_once(work))


def _choices(fields: Sequence[_Field]) -> list[Choice[Trial]]:
    """Each kernel with as many others as its part of the model's time gives it, at least one."""
    most_s = max((f.model_s for f in fields), default=0.0)
    count = {
        f.key: max(1, round(_FIELD * f.model_s / most_s)) if most_s > 0.0 else 1 for f in fields
    }
    return [Choice(f.key, f.stands, f.others[: count[f.key]]) for f in fields]


def _model(models: Models, work: Workload, lineup: Mapping[str, Trial]) -> WholeModel | None:
    try:
        return models.of_trials(work, lineup)
    except CandidateFailure:
        return None


def _of_defaults(search: KernelSearch) -> list[Measurement]:
    """The measurements of a kernel's default schedules."""
    texts = {s.text for s in search.defaults}
    return [t.measurement for t in search.trials if t.actions in texts]


def _wrong_default(search: KernelSearch) -> str:
    """Return the sentence about a default schedule that computed something else, or ""."""
    wrong = next((m for m in _of_defaults(search) if m.status is Status.WRONG), None)
    if wrong is None:
        return ""
    return (
        f"a default schedule computed a wrong result ({wrong.error}); an untuned model may run it: "
        "please report this"
    )


def _unmet(search: KernelSearch) -> str:
    """Return the reason why nothing of a kernel is promoted: what came of its defaults."""
    found = dict.fromkeys(f"{m.status}, {m.error}" for m in _of_defaults(search))
    why = "; ".join(found) or "not measured"
    return f"nothing is promoted, since none of its default schedules ran ({why})"


def _cold(field: _Field) -> bool:
    """True when anything is evicted before a sample of a kernel: constants, if any."""
    constants = any(p.role == "const" for p in field.search.task.kernel.params)
    return field.cache == "cold" or (field.cache == "constants" and constants)
