"""The kernels of a session, before and after.

whole models at its end, in turns        --> both times and an interval, if the session said so
else the race that the winner won        --> both sides in turns, in whole models
else trials of the kernel alone          --> the default's and the fastest one's
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from statistics import median

from tunegrad.db import PART, Contents, Evidence, Latency, Promotion, Session
from tunegrad.devices import L3_SHARE_BYTES
from tunegrad.ir.parse_kernel import read_back
from tunegrad.paired import Interval, gain_interval, paired_gain
from tunegrad.trial import Status, Trial

from ..roofline import needed_flops
from .candidates import search_of, source_of
from .records import Failure, KernelEntry, KernelFacts, Measured, PeerTime, SessionFacts, Source


def entries_of(
    session: Session,
    facts: SessionFacts,
    trials: Sequence[Trial],
    contents: Contents,
    texts: Mapping[str, tuple[str, str]],
) -> tuple[tuple[KernelEntry, ...], int]:
    """The kernels that the session's models launch in the end, the heaviest before it first, and
    how many others it measured on the way. A session that did not say has all that it measured.

    ``texts`` are the text and the name of each kernel, by key.
    """
    measured = dict.fromkeys(t.kernel_key for t in trials)
    searched_s = _searched_s(trials)
    keys = list(facts.kernels) or list(measured)
    promoted = _promotions(session, trials, contents)
    rows = contents.by_identity()
    entries = []
    for key in keys:
        won = [(rows[p.trial], p.evidence) for p in promoted if p.place.kernel_key == key]
        mine = [t for t in trials if t.kernel_key == key]
        entry = _entry(key, *texts.get(key, ("", "")), facts, mine, won)
        entries.append(replace(entry, search=search_of(mine, searched_s, entry.actions)))
    entries.sort(key=lambda e: -e.uses * (e.before_s or e.after_s or 0.0))
    return tuple(entries), len(measured.keys() - set(keys))


def _searched_s(trials: Sequence[Trial]) -> dict[int, float]:
    """Seconds since the trial before it, of every trial by ``id``: what a session gave to it."""
    before_s, found = min((t.created_s for t in trials), default=0.0), {}
    for t in trials:
        found[id(t)], before_s = max(0.0, t.created_s - before_s), t.created_s
    return found


def _promotions(session: Session, trials: Sequence[Trial], contents: Contents) -> list[Promotion]:
    """Up to the end of the session, on the machine of its own trials."""
    ended_s = inf if session.ended_s is None else session.ended_s + 1.0
    machines = {t.fingerprint for t in trials}
    return [
        p
        for p in contents.promotions
        if p.created_s <= ended_s and (not machines or p.place.fingerprint in machines)
    ]


def _entry(
    key: str,
    text: str,
    name: str,
    facts: SessionFacts,
    mine: Sequence[Trial],
    won: Sequence[tuple[Trial, Evidence]],
) -> KernelEntry:
    """``mine`` are the session's trials of the kernel, ``won`` its promotions so far."""
    said = facts.kernels.get(key, KernelFacts(1))
    fastest = min((t for t in mine if t.measurement.ran), key=_seconds, default=None)
    winner = won[-1][0] if won else fastest
    flops, unique_bytes = needs(text)
    alone = [t for t in mine if winner and t.actions == winner.actions and t.measurement.ran]
    return KernelEntry(
        name or key[:12],
        key,
        said.uses,
        said.layers,
        *_times(said, won, mine, winner),
        winner.actions if winner else "",
        winner.origin if winner else "",
        flops,
        unique_bytes,
        Counter(str(t.measurement.status) for t in mine),
        dict(winner.measurement.facts) if winner else {},
        text,
        *_bounds(text, said, facts, mine),
        min(map(_seconds, alone), default=None),
    )


def _seconds(trial: Trial) -> float:
    return trial.measurement.seconds


_Times = tuple[float | None, float | None, float | None, Interval | None, Measured]
"""Before, after, the gain and its interval, and where they are from."""


def _times(
    said: KernelFacts,
    won: Sequence[tuple[Trial, Evidence]],
    mine: Sequence[Trial],
    winner: Trial | None,
) -> _Times:
    if said.default_s is not None and said.tuned_s is not None:
        by_turns = said.gain or said.default_s / said.tuned_s
        return said.default_s, said.tuned_s, by_turns, said.interval, "model"
    if won and won[-1][1].incumbent_samples_s:
        return _raced(won[-1][1])
    ran = [t for t in mine if t.measurement.ran]
    default = next((t for t in ran if t.origin == "default"), None)
    before_s = default.measurement.seconds if default else None
    after_s = winner.measurement.seconds if winner and winner.measurement.ran else None
    gain = before_s / after_s if before_s and after_s else None
    return before_s, after_s, gain, None, "alone"


def _raced(e: Evidence) -> _Times:
    """Times of the incumbent and of the winner, in the turns of a proof."""
    before_s, after_s = e.incumbent_samples_s, e.challenger_samples_s
    pairs = min(len(before_s), len(after_s))
    sides = before_s[:pairs], after_s[:pairs]
    return (
        median(before_s), median(after_s), paired_gain(*sides), gain_interval(*sides), "race",
    )  # fmt: skip


def needs(text: str) -> tuple[int | None, int | None]:
    """Operations and bytes of one launch."""
    kernel = read_back(text)
    return (None, None) if kernel is None else (needed_flops(kernel), kernel.unique_bytes)


def counted(text: str) -> int | None:
    """The number that a field of a fingerprint is; None for other texts, and for very long ones."""
    return int(text) if text.isdecimal() and len(text) < 16 else None


def _bounds(
    text: str, said: KernelFacts, facts: SessionFacts, mine: Sequence[Trial]
) -> tuple[float | None, float | None]:
    """Seconds of a kernel's arithmetic and of its traffic at the machine's limits: as the session
    said, or of an older one by f32's peak, where all that the kernel reads and writes is f32.
    """
    if said.flops_s or said.bytes_s:
        return said.flops_s, said.bytes_s
    kernel = read_back(text)
    if kernel is None or not mine:
        return None, None
    held = min(L3_SHARE_BYTES, counted(dict(mine[-1].fingerprint.fields).get("l3", "")) or 0)
    near = kernel.unique_bytes <= held and facts.cache_gb_per_s
    rate = facts.cache_gb_per_s if near else facts.memory_gb_per_s
    plain = facts.peak_gflops and all(p.dtype.name == "f32" for p in kernel.params)
    return (
        needed_flops(kernel) / (1e9 * facts.peak_gflops) if plain and facts.peak_gflops else None,
        kernel.unique_bytes / (1e9 * rate) if rate else None,
    )


_YARDSTICK, _PEER = "yardstick ", "peer "


def model_of(series: str) -> str:
    """The model that a latency is of."""
    return series.partition(PART)[0]


def whole_models(latencies: Iterable[Latency]) -> list[Latency]:
    """Those of whole models."""
    return [x for x in latencies if PART not in x.model]


def peers_of(latencies: Iterable[Latency]) -> tuple[PeerTime, ...]:
    """Those of other libraries."""
    split = [(x, *x.model.partition(PART)[::2]) for x in latencies]
    return tuple(
        PeerTime(model, name.removeprefix(_PEER), x.seconds)
        for x, model, name in split
        if name.startswith(_PEER)
    )


def swept(
    latencies: Sequence[Latency], texts: Mapping[str, tuple[str, str]]
) -> tuple[KernelEntry, ...]:
    """The kernels of a sweep's latencies, those whose launches take longest together first.

    ``texts`` are the text and the name of each kernel that the store has, by key.

    resnet18                            a whole model
    resnet18: conv3x3 64->64 56x56      a kernel of it: one launch
    resnet18: peer ort                  another library on it
    resnet18: yardstick stream          what never changes
    """
    found = [_swept(x, texts.get(x.model_key, ("", ""))[0]) for x in latencies if _is_kernel(x)]
    return tuple(sorted(found, key=lambda k: -k.uses * (k.after_s or 0.0)))


def _is_kernel(x: Latency) -> bool:
    """True for a kernel of a model, with what it runs with."""
    kernel = x.model.partition(PART)[2]
    return x.kind == "tuned" and bool(kernel) and not kernel.startswith((_YARDSTICK, _PEER))


def _swept(x: Latency, text: str) -> KernelEntry:
    beside = x.default_samples_s
    said = dict(x.versions).get("uses")
    uses = int(said) if isinstance(said, float) and 1.0 <= said < inf else None
    flops, unique_bytes = needs(text)
    return KernelEntry(
        name=x.model.partition(PART)[2],
        key=x.model_key,
        uses=uses or 1,
        layers=f"in {model_of(x.model)}{'' if uses else ', launched an unknown number of times'}",
        before_s=median(beside) if beside else None,
        after_s=x.seconds,
        gain=x.gain,
        interval=gain_interval(beside, x.samples_s) if beside else None,
        measured="sweep",
        actions="",
        origin="sweep",
        flops=flops,
        unique_bytes=unique_bytes,
    )


def progress_of(
    kernels: Sequence[KernelEntry], trials: Sequence[Trial], begun_s: float
) -> tuple[tuple[float, float], ...]:
    """The sum of all kernels' best times so far, from when each has one; kernels of which the
    session measured nothing are left out.
    """
    uses = {k.key: k.uses for k in kernels}
    mine = [t for t in trials if t.measurement.ran and t.kernel_key in uses]
    best = dict.fromkeys((t.kernel_key for t in mine), inf)
    points = []
    for t in mine:
        if t.measurement.seconds < best[t.kernel_key]:
            best[t.kernel_key] = t.measurement.seconds
            total_s = sum(uses[key] * seconds for key, seconds in best.items())
            if total_s < inf:
                points.append((t.created_s - begun_s, total_s))
    if points:
        points.append((mine[-1].created_s - begun_s, points[-1][1]))
    return tuple(points)


def sources_of(kernels: Sequence[KernelEntry], trials: Sequence[Trial]) -> tuple[Source, ...]:
    """Contribution of each source, those with the most candidates first."""
    asked, failed, better = Counter[str](), Counter[str](), Counter[str]()
    best: dict[str, float] = {}
    for t in sorted(trials, key=lambda t: t.created_s):
        origin = source_of(t)
        asked[origin] += 1
        if not t.measurement.ran:
            failed[origin] += 1
        elif t.measurement.seconds < best.get(t.kernel_key, inf):
            better[origin] += t.kernel_key in best
            best[t.kernel_key] = t.measurement.seconds
    won = Counter(k.origin.split(" ", 1)[0] for k in kernels if k.origin)
    return tuple(
        Source(origin, count, failed[origin], better[origin], won[origin])
        for origin, count in asked.most_common()
    )


_MOST = 12

_NUMBER = re.compile(r"\d[\d.,e+-]*")


def statuses_of(trials: Sequence[Trial]) -> tuple[tuple[Status, int], ...]:
    """Number of candidates by outcome; nothing of what did not happen."""
    counts = Counter(t.measurement.status for t in trials)
    return tuple((s, counts[s]) for s in Status if counts[s])


def failures_of(trials: Sequence[Trial], names: Mapping[str, str]) -> tuple[Failure, ...]:
    """Failures by kind: alike are those of one status whose messages differ in numbers only. The
    most frequent first, a dozen at most.
    """
    failed = [t for t in trials if t.measurement.status is not Status.OK]
    alike: dict[tuple[Status, str], list[Trial]] = {}
    for t in failed:
        alike.setdefault((t.measurement.status, _NUMBER.sub("N", _first(t))), []).append(t)
    found = [
        Failure(status, _first(some[0]), len(some), names.get(some[0].kernel_key, ""),
            some[0].actions)
        for (status, _), some in alike.items()
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda f: -f.count)[:_MOST])


def _first(trial: Trial) -> str:
    """The first line of what was said."""
    lines = trial.measurement.error.strip().splitlines()
    return lines[0][:300] if lines else ""
