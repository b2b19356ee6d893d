"""The history of one model or one kernel in a store, oldest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from difflib import get_close_matches
from statistics import median

from tunegrad.db.contents import Contents, Identity, Subject, identity, subject
from tunegrad.db.records import Decision, Latency, LatencyKind, Question
from tunegrad.db.rows import key_of, machine_id
from tunegrad.errors import StoreError
from tunegrad.lazy import dataclass
from tunegrad.paired import Interval, gain_interval
from tunegrad.trial import Status, Trial

_SHOWN = 8

_SHORTEST_PREFIX = 4


def find_kernel(contents: Contents, wanted: str) -> tuple[str, str]:
    """(text, name) of the kernel with this name, key, start of a key (four digits), or text.

    Raises StoreError: for a name or prefix of several, which lists them; for an unknown one, with
    the nearest names.
    """
    found = [k for k in contents.kernels if wanted in (k[1], k[0], k[0].strip(), key_of(k[0]))]
    if not found and len(wanted) >= _SHORTEST_PREFIX:
        found = [k for k in contents.kernels if key_of(k[0]).startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        keys = ", ".join(f"{key_of(text)} {name}".strip() for text, name in found[:_SHOWN])
        raise StoreError(
            f"kernel {wanted!r}: is the name or prefix of {len(found)}: {keys}; give one key"
        )
    names = sorted({name for _, name in contents.kernels if name})
    close = get_close_matches(wanted, names, n=_SHOWN, cutoff=0.4)
    close = [n for n in names if wanted.lower() in n.lower()][:_SHOWN] or close
    if not contents.kernels:
        advice = "the store is empty"
    elif close:
        advice = f"nearest names: {', '.join(close)}"
    else:
        some = names or [key_of(text) for text, _ in contents.kernels]
        more = f" and {len(some) - _SHOWN} more" if len(some) > _SHOWN else ""
        advice = f"it knows {', '.join(some[:_SHOWN])}{more}"
    raise StoreError(
        f"kernel {wanted!r}: unknown to this store: no name, key or text like it; {advice}"
    )


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """One latency of a whole model; times are medians.

    ``change`` is the time over that of the row before, of the same machine, graph and kind; None
    for the first. ``gain`` is over the default schedules in the same turns, and
    ``interval`` where it lies at 95 %.
    """

    created_s: float
    kind: LatencyKind
    machine: str
    time_ms: float
    default_ms: float | None
    gain: float | None
    interval: Interval | None
    change: float | None
    samples: int
    versions: Mapping[str, float | str]
    state: Mapping[str, float | str]
    imported: bool
    session: str


@dataclass(frozen=True, slots=True)
class MeasurementRow:
    """One measurement of a schedule.

    ``ratio`` is its time over that of what ran in the same turns, where any did. ``facts`` are of
    its code, ``state`` is the device's when it had been timed.
    """

    created_s: float
    machine: str
    actions: str
    status: Status
    time_ms: float | None
    ratio: float | None
    promoted: bool
    withdrawn: bool
    origin: str
    session: str
    error: str
    facts: Mapping[str, float | str]
    state: Mapping[str, float | str]


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """One alternative of a question; times are medians of the samples that were compared."""

    created_s: float
    machine: str
    kind: Question
    choice: str
    chosen: bool
    test: str
    p_value: float
    incumbent_ms: float | None
    challenger_ms: float | None
    status: Status
    error: str
    imported: bool
    session: str


@dataclass(frozen=True, slots=True)
class History:
    """Of a model its latencies; of a kernel, or a text of decisions, measurements and decisions.

    ``left_out`` counts the measurements of schedules that never won and were measured once.
    """

    name: str
    key: str
    latencies: tuple[LatencyRow, ...] = ()
    measurements: tuple[MeasurementRow, ...] = ()
    decisions: tuple[DecisionRow, ...] = ()
    left_out: int = 0


def model_history(model: str, latencies: Iterable[Latency], since_s: float = 0.0) -> History:
    """The history of a model by its latencies; what is older than ``since_s`` only compares."""
    rows = (r for r in _latencies(latencies) if r.created_s >= since_s)
    return History(model, "", latencies=tuple(rows))


def history(
    contents: Contents, wanted: str, since_s: float = 0.0, *, every: bool = False
) -> History:
    """The history of a kernel by its name, key, start of a key, or text.

    Those measurements are listed that show change: of schedules that were promoted, or measured
    more than once; ``every``: all. ``since_s`` leaves out what is older, in seconds since the
    epoch. Raises StoreError for what the store does not know, and names the models that it knows.
    """
    text, name = _kernel(contents, wanted)
    key = key_of(text)
    trials = [t for t in contents.trials if t.kernel_key == key]
    shown = trials if every else _changing(contents, trials)
    decisions = [
        decision_view(d) for d in contents.decisions if d.key == key and d.created_s >= since_s
    ]
    marks = {p.trial for p in contents.promotions}, contents.withdrawn
    rows = [_measurement(t, *marks) for t in shown if t.created_s >= since_s]
    return History(
        name,
        key,
        measurements=tuple(sorted(rows, key=lambda r: r.created_s)),
        decisions=tuple(sorted(decisions, key=lambda r: r.created_s)),
        left_out=len(trials) - len(shown),
    )


def _kernel(contents: Contents, wanted: str) -> tuple[str, str]:
    try:
        return find_kernel(contents, wanted)
    except StoreError as error:
        models = sorted({x.model for x in contents.latencies})
        known = (
            f"models with latencies: {', '.join(models)}"
            if models
            else "it has latencies of no model"
        )
        raise StoreError(f"{error}; {known}") from error


def _latencies(given: Iterable[Latency]) -> list[LatencyRow]:
    before: dict[tuple[object, ...], float] = {}
    rows = []
    for x in sorted(given, key=lambda x: x.created_s):
        at = x.fingerprint, x.model_key, x.kind
        last_s = before.get(at)
        before[at] = x.seconds
        rows.append(
            LatencyRow(
                created_s=x.created_s,
                kind=x.kind,
                machine=machine_id(x.fingerprint),
                time_ms=1e3 * x.seconds,
                default_ms=median_ms(x.default_samples_s),
                gain=x.gain,
                interval=_interval(x.default_samples_s, x.samples_s),
                change=x.seconds / last_s if last_s else None,
                samples=len(x.samples_s),
                versions=dict(x.versions),
                state=dict(x.state),
                imported=x.imported,
                session=x.session,
            )
        )
    return rows


def _changing(contents: Contents, trials: list[Trial]) -> list[Trial]:
    promoted = {p.trial.subject for p in contents.promotions}
    counts = Counter(map(subject, trials))
    return [t for t in trials if counts[subject(t)] > 1 or subject(t) in promoted]


def _measurement(trial: Trial, promoted: Set[Identity], withdrawn: Set[Subject]) -> MeasurementRow:
    m = trial.measurement
    return MeasurementRow(
        created_s=trial.created_s,
        machine=machine_id(trial.fingerprint),
        actions=trial.actions,
        status=m.status,
        time_ms=1e3 * m.seconds if m.ran else None,
        ratio=m.ratio if m.reference_samples_s else None,
        promoted=identity(trial) in promoted,
        withdrawn=subject(trial) in withdrawn,
        origin=trial.origin,
        session=trial.session,
        error=m.error,
        facts=dict(m.facts),
        state=dict(m.state),
    )


def decision_view(d: Decision) -> DecisionRow:
    """A decision as reports show it."""
    e = d.evidence
    return DecisionRow(
        created_s=d.created_s,
        machine=machine_id(d.fingerprint),
        kind=d.kind,
        choice=d.choice,
        chosen=d.chosen,
        test=e.test,
        p_value=e.p_value,
        incumbent_ms=median_ms(e.incumbent_samples_s),
        challenger_ms=median_ms(e.challenger_samples_s),
        status=d.status,
        error=d.error,
        imported=d.imported,
        session=d.session,
    )


def median_ms(samples_s: tuple[float, ...]) -> float | None:
    """The median of samples in milliseconds; None where there are none."""
    return 1e3 * median(samples_s) if samples_s else None


def _interval(default_s: Sequence[float], tuned_s: Sequence[float]) -> Interval | None:
    """Confidence interval of the gain; None where there are too few pairs, or none."""
    return gain_interval(default_s, tuned_s) if len(default_s) == len(tuned_s) else None
