"""A report's records from a store's rows.

contents of a store   -->   the sessions that are asked for   -->   a page each, and the history of
                                                                    their models
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from tunegrad.db import Contents, Session, decision_view, key_of, model_history, read_contents
from tunegrad.errors import ConfigError
from tunegrad.paired import gain_interval
from tunegrad.trial import Fingerprint, Trial

from ..machine import busy_text
from .kernels import (
    counted,
    entries_of,
    failures_of,
    model_of,
    peers_of,
    progress_of,
    sources_of,
    statuses_of,
    swept,
    whole_models,
)
from .records import (
    Beside,
    HistoryChart,
    Judgement,
    KernelEntry,
    Latencies,
    Machine,
    ReportPage,
    SessionFacts,
    SessionLine,
    SessionPage,
    facts_of,
)

Judge = Callable[[Contents, Sequence[str]], Judgement]
"""Says what sweeps found, and where levels began; findings of these sessions."""


def gather(
    path: Path,
    session: str = "",
    models: Sequence[str] = (),
    judge: Judge = lambda _, __: Judgement(),
) -> ReportPage:
    """The report of a session (``last``, or the beginning of an id), or of the store: then with the
    newest session of every model and device. ``models`` leaves out what is about others.

    Raises StoreError for a store that can not be read, ConfigError for sessions and models that it
    does not know.
    """
    contents, problems = read_contents(path)
    counts = Counter(t.session for t in contents.trials)
    lines = [_line(s, counts[s.id], contents) for s in contents.sessions]
    every = lines = [x for x in lines if x.candidates or x.latencies]
    known = sorted({m for x in lines for m in x.models})
    if missing := [m for m in models if m not in known]:
        raise ConfigError(
            f"report: store {path} has no session of model {missing[0]!r}; "
            f"it has sessions of {', '.join(known) or 'no model'}"
        )
    lines = [x for x in lines if not models or set(models) & set(x.models)]
    if not lines:
        raise ConfigError(f"report: store {path} has no session that measured anything")
    shown = [_named(lines, session, path)] if session else _newest(lines)
    wanted = {m for x in shown for m in x.models if not models or m in models}
    judged = judge(contents, [x.id for x in shown])
    return ReportPage(
        store=str(path),
        whole_store=not session,
        pages=tuple(_page(x, every, contents, judged) for x in shown),
        sessions=tuple(reversed(lines)),
        histories=_histories(contents, wanted, judged),
        problems=len(problems),
    )


def _named(lines: Sequence[SessionLine], session: str, path: Path) -> SessionLine:
    if session == "last":
        return lines[-1]
    found = [x for x in lines if x.id.startswith(session)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f"report: {len(found)} sessions of {path} begin with {session!r}")
    newest = ", ".join(x.id[:12] for x in reversed(lines[-5:]))
    raise ConfigError(
        f"report: no session of {path} begins with {session!r}; the newest are {newest}, or last"
    )


def _newest(lines: Sequence[SessionLine]) -> list[SessionLine]:
    """The newest session of every set of models on every device, the newest first; one that
    measured candidates where there is one.
    """
    found = {(x.models, x.where): x for x in lines}
    found |= {(x.models, x.where): x for x in lines if x.candidates}
    return sorted(found.values(), key=lambda x: -x.started_s)


def _line(session: Session, candidates: int, contents: Contents) -> SessionLine:
    settings = settings_of(session)
    mine = [x for x in whole_models(contents.latencies) if x.session == session.id]
    latencies = tuple(
        Latencies(
            x.model,
            median(x.default_samples_s) if x.default_samples_s else None,
            x.seconds,
            x.gain,
            gain_interval(x.default_samples_s, x.samples_s) if x.default_samples_s else None,
        )
        for x in mine
    )
    return SessionLine(
        session.id,
        session.command,
        _models(settings) or tuple(dict.fromkeys(x.model for x in mine)),
        _where(settings),
        session.started_s,
        _took_s(session),
        str(settings.get("searcher", "")),
        candidates,
        latencies,
    )


def _took_s(session: Session) -> float | None:
    """Seconds that a session took: the sum of its parts; None where it did not end."""
    if session.ended_s is None:
        return None
    return sum(facts_of(session).seconds.values()) or session.ended_s - session.started_s


def settings_of(session: Session) -> dict[str, object]:
    """The settings in a session's row."""
    found = json.loads(session.settings)
    return found if isinstance(found, dict) else {}


def _where(settings: dict[str, object]) -> str:
    device, threads = settings.get("device"), settings.get("threads")
    said = f", {threads} thread{'' if threads == 1 else 's'}" if isinstance(threads, int) else ""
    return f"{device}{said}" if isinstance(device, str) else ""


def _models(settings: dict[str, object]) -> tuple[str, ...]:
    """The names of the models of a session, the first one first."""
    others = settings.get("others")
    listed = others if isinstance(others, list) else []
    names = [settings.get("model"), *(x[0] for x in listed if isinstance(x, list) and x)]
    dtype = settings.get("dtype")
    label = f" {dtype}" if isinstance(dtype, str) else ""
    return tuple(f"{name}{label}" for name in names if isinstance(name, str) and name)


def _page(
    line: SessionLine, lines: Sequence[SessionLine], contents: Contents, judged: Judgement
) -> SessionPage:
    """``lines`` are those of all sessions, the oldest first."""
    session = next(s for s in contents.sessions if s.id == line.id)
    texts = {key_of(text): (text, name) for text, name in contents.kernels}
    names = {key: name for key, (_, name) in texts.items()}
    facts = facts_of(session)
    trials = _trials(line, contents)
    kernels, left = _entries(line, facts, contents, texts)
    timed = [x for x in contents.latencies if x.session == line.id]
    places = [*(t.fingerprint for t in trials), *(x.fingerprint for x in timed)]
    machine = places[-1] if places else Fingerprint(())
    threads = settings_of(session).get("threads")
    facts, kernels, raised = _under_peak(facts, kernels, machine, contents)
    return SessionPage(
        line=line,
        settings=settings_of(session),
        conditions=_conditions(session),
        facts=facts,
        kernels=kernels,
        left=left,
        progress=progress_of(kernels, trials, session.started_s),
        sources=sources_of(kernels, trials),
        seconds=_seconds(facts.seconds, trials),
        statuses=statuses_of(trials),
        failures=failures_of(trials, names),
        decisions=tuple(decision_view(d) for d in contents.decisions if d.session == line.id),
        machine=Machine(dict(machine.fields), _busy(facts, machine, threads), raised),
        findings=judged.findings.get(line.id),
        peers=peers_of(timed),
        decided=_decided(line, contents, names),
        beside=_beside(line, lines, contents, texts),
    )


def _trials(line: SessionLine, contents: Contents) -> list[Trial]:
    """The trials of a session, in the order of measuring."""
    mine = (t for t in contents.trials if t.session == line.id)
    return sorted(mine, key=lambda t: t.created_s)


def _entries(
    line: SessionLine, facts: SessionFacts, contents: Contents, texts: Mapping[str, tuple[str, str]]
) -> tuple[tuple[KernelEntry, ...], int]:
    session = next(s for s in contents.sessions if s.id == line.id)
    found, left = entries_of(session, facts, _trials(line, contents), contents, texts)
    return found or swept([x for x in contents.latencies if x.session == line.id], texts), left


def _decided(line: SessionLine, contents: Contents, names: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the kernels that the decisions of a session are about, in their order."""
    mine = [d for d in contents.decisions if d.session == line.id]
    return tuple(names.get(d.key) or d.key[:12] for d in mine)


def _busy(facts: SessionFacts, machine: Fingerprint, threads: object) -> str:
    """Text about the CPUs that others used of the machine over the session."""
    cores = counted(dict(machine.fields).get("cores", ""))
    if facts.others_cpus is None or cores is None or not isinstance(threads, int):
        return ""
    return busy_text(facts.others_cpus, threads, cores)


def _under_peak(
    facts: SessionFacts, kernels: Sequence[KernelEntry], machine: Fingerprint, contents: Contents
) -> tuple[SessionFacts, tuple[KernelEntry, ...], str]:
    """The session under the highest arithmetic peak that is known of its machine, and what raised
    it: another session that measured more, or a kernel that was faster than the peak.
    """
    own = facts.peak_gflops
    if not own:
        return facts, tuple(kernels), ""
    here = {t.session for t in contents.trials if t.fingerprint == machine}
    known = {s.id: facts_of(s).peak_gflops or 0.0 for s in contents.sessions if s.id in here}
    highest, raised = own, ""
    if known and max(known.values()) > own:
        name = max(known, key=lambda s: known[s])
        highest, raised = known[name], f"session {name[:12]} measured more on this machine"
    for k in kernels:
        if k.flops_s and k.after_s and own * k.flops_s / k.after_s > highest:
            highest, raised = own * k.flops_s / k.after_s, f"{k.name} is faster than was measured"
    if not raised:
        return facts, tuple(kernels), ""
    under = tuple(
        replace(k, flops_s=k.flops_s * own / highest) if k.flops_s else k for k in kernels
    )
    said = (
        f"peak {highest:.0f} instead of the {own:.0f} GFLOP/s that the session measured: {raised}"
    )
    return replace(facts, peak_gflops=highest), under, said


_BESIDE = 3


def _beside(
    line: SessionLine,
    lines: Sequence[SessionLine],
    contents: Contents,
    texts: Mapping[str, tuple[str, str]],
) -> tuple[Beside, ...]:
    """Earlier sessions of the same models and device, newest first; of a sweep the sweeps."""
    before = [
        x
        for x in lines[: lines.index(line)]
        if (x.models, x.where, bool(x.candidates))
        == (line.models, line.where, bool(line.candidates))
    ]
    sessions = {s.id: s for s in contents.sessions}
    found = []
    for x in reversed(before[-_BESIDE:]):
        kernels, _ = _entries(x, facts_of(sessions[x.id]), contents, texts)
        times = {k.key: k.after_s for k in kernels}
        found.append(Beside(x, times, _conditions(sessions[x.id])))
    return tuple(found)


def _conditions(session: Session) -> tuple[tuple[str, str], ...]:
    """Conditions of a session: the software that measured, and the state of the machine."""
    apart = (
        "seconds.",
        "kernel.",
        "planned.",
        "peak_gflops",
        "cache_gb_per_s",
        "memory_gb_per_s",
        "others_",
    )
    state = [(n, v) for n, v in session.state if not n.startswith(apart)]
    said = [(n, v if isinstance(v, str) else f"{v:.3g}") for n, v in (*session.versions, *state)]
    moment = datetime.fromtimestamp(session.started_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (("began", moment), ("seed", str(session.seed)), *said)


def _seconds(parts: dict[str, float], trials: Sequence[Trial]) -> tuple[tuple[str, float], ...]:
    """The parts of the session, the largest first; of an older one what its trials say, which is
    seconds of several processes at once.
    """
    if not parts:
        names = ("lower_s", "compile_s", "verify_s", "timing_s")
        parts = {
            f"{name.removesuffix('_s')} (all processes)": sum(
                getattr(t.measurement, name) for t in trials
            )
            for name in names
        }
    return tuple(sorted((p for p in parts.items() if p[1] > 0.0), key=lambda p: -p[1]))


def _histories(contents: Contents, models: set[str], judged: Judgement) -> tuple[HistoryChart, ...]:
    """Of the models; and of those of their kernels, as sweeps time them, that changed."""
    found = []
    for model in sorted({x.model for x in contents.latencies}):
        own = model_of(model)
        rows = model_history(model, [x for x in contents.latencies if x.model == model]).latencies
        places = [judged.places.get(r.machine, r.machine) for r in rows]
        for place in dict.fromkeys(places if own in models else ()):
            here = tuple(
                r for r, at in zip(rows, places, strict=True) if at == place and r.kind == "tuned"
            )
            began = [(model, r.session, r.machine) in judged.begun for r in here]
            changes = tuple(i for i, new in enumerate(began) if new)
            if here and (own == model or changes):
                found.append(HistoryChart(model, place, here, changes))
    return tuple(found)
