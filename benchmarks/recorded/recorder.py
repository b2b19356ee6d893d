"""Recording: every schedule of a part of a kernel's space, verified and timed on this machine.

    decisions  -->  every combination   -->  compiled, verified,  -->  a recording
    to vary         of their options         timed

The decisions that are not varied stay at their defaults. Programs that several schedules share are
measured once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.recorded import read_recording, write_recording, write_t4
from tunegrad import devices
from tunegrad.compiling import HOOKS, Payload
from tunegrad.config import Numerics, TuneSettings
from tunegrad.devices import Candidate, CompiledCandidate, Device, DeviceMeasurer, Limits
from tunegrad.errors import ConfigError
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.variants import parts_of
from tunegrad.opts import SPACE_VERSION, Space
from tunegrad.planning import allowed
from tunegrad.trial import Measured, Measurement, Policy
from tunegrad.tuning.workload import Workload, workload_of_spec

from .points import MOST_POINTS, Point, Vary, points_of, settle_vary, vary_of
from .space import Question, RecordedTrial, Recording

__all__ = ["RECORD_POLICY", "find_kernel", "record", "record_file"]

RECORD_POLICY = Policy(
    cache="warm", min_samples=3, max_samples=20, tolerance=0.02, budget_s=0.015, timeout_s=2.0
)
"""As in a search, but that no time to beat is known: a loser is timed to the end."""

_BATCH = 32
_DISTURBED = 1.1
"""A median this much above the fastest sample is measured again: something else ran, as a rule."""

_AGAIN = 2
"""Number of times that it is measured again, in one call."""

_DIGITS_S = 10
"""Decimals that are kept of a time in seconds: a tenth of a nanosecond."""


def find_kernel(workload: Workload, name: str, numerics: Numerics = "contract") -> Kernel:
    """The kernel of that name or key (or a unique start of it), parts of variants included.

    Raises ConfigError.
    """
    kernels = [use.kernel for use in workload.kernels]
    parts = [
        part for k in kernels for variant in allowed(k, numerics) for part in parts_of(k, variant)
    ]
    named = {use.name: use.kernel for use in workload.kernels}
    keys = {k.key for k in kernels}
    for part in parts:
        if part.key not in keys:
            keys.add(part.key)
            named[part.name if part.name not in named else f"{part.name} [{part.key[:6]}]"] = part
    if name in named:
        return named[name]
    matching = {k.key: k for k in named.values() if len(name) >= 4 and k.key.startswith(name)}
    if len(matching) == 1:
        return next(iter(matching.values()))
    raise ConfigError(
        f"kernel {name!r} is not one of {workload.name}; valid: {', '.join(sorted(named))}"
    )


@dataclass(slots=True)
class _Log:
    """The program of each text, and one measurement for each program ('': the text's own).

    Mutable.
    """

    programs: dict[str, str] = field(default_factory=dict)
    measured: dict[str, Measurement] = field(default_factory=dict)

    def add(self, text: str, program: str, measurement: Measurement) -> None:
        """Keep what came of a text; of two measurements of a program, the less disturbed one."""
        self.programs[text] = program
        known = self.measured.get(program or text)
        if known is None or _disturbance(measurement) < _disturbance(known):
            self.measured[program or text] = measurement

    def of(self, text: str) -> tuple[str, Measurement]:
        """The program of a text and what came of it."""
        program = self.programs[text]
        return program, self.measured[program or text]

    def disturbed(self) -> list[str]:
        """A text for each program whose samples say that something else ran meanwhile."""
        texts = {program: text for text, program in self.programs.items() if program}
        return [
            text
            for program, text in texts.items()
            if _disturbance(self.measured[program]) > _DISTURBED
        ]


def _disturbance(m: Measurement) -> float:
    """The median over the fastest sample; 1 where there are no samples."""
    return m.seconds / min(m.samples_s) if m.samples_s else 1.0


def record(
    kernel: Kernel,
    device: Device,
    vary: Vary,
    numerics: Numerics = "contract",
    known: Recording | None = None,
    go_on: Callable[[int, int], bool] = lambda _done, _all: True,
) -> Recording:
    """Measure every point of the part of the space that ``vary`` names, but those in ``known``,
    which come first. The order is drawn, so that a part of them stands for all.

    What seems to have been disturbed, in ``known`` too, is measured again; the steadier measurement
    counts. Between batches ``go_on`` is asked, with how many of how many schedules are there; once
    it says no, what there is is returned. Raises ConfigError where ``known`` is of another kernel,
    machine or policy.
    """
    here = device.fingerprint(numerics)
    points = list(points_of(Space(kernel, device.target), vary))
    empty = Recording(
        kernel.name,
        kernel.key,
        kernel.text,
        here,
        RECORD_POLICY,
        SPACE_VERSION,
        len(points),
        (),
        (),
    )
    log = _Log()
    if known is not None:
        _check_same(known, kernel, here.text)
        for trial in known.trials:
            log.add(trial.actions, trial.program_hash, trial.measurement)
    texts = dict.fromkeys(p.schedule.text for p in points)
    fresh = [text for text in texts if text not in log.programs]
    random.Random(kernel.key).shuffle(fresh)
    with DeviceMeasurer(device, HOOKS, Limits(), 0) as workers:
        missing = len(fresh)
        for _ in range(1 + _AGAIN):
            for batch in (fresh[i : i + _BATCH] for i in range(0, len(fresh), _BATCH)):
                if not go_on(len(texts) - missing, len(texts)):
                    return _assembled(empty, points, log)
                _measure(workers, kernel, batch, log)
                missing = sum(text not in log.programs for text in texts)
            fresh = [text for text in log.disturbed() if text in texts]
    go_on(len(texts) - missing, len(texts))
    return _assembled(empty, points, log)


def _check_same(known: Recording, kernel: Kernel, here: str) -> None:
    for what, theirs, ours in (
        ("kernel", known.kernel_key, kernel.key),
        ("machine", known.fingerprint.text, here),
        ("policy", known.policy.text, RECORD_POLICY.text),
        ("space version", str(known.space_version), str(SPACE_VERSION)),
    ):
        if theirs != ours:
            raise ConfigError(
                f"the recording that is there is of another {what}: {theirs}, not {ours}"
            )


def _measure(workers: DeviceMeasurer, kernel: Kernel, texts: Sequence[str], log: _Log) -> None:
    """Measure texts that are not known, or known and disturbed; another text of a program that is
    known is not.
    """
    candidates = [Candidate(kernel.key, Payload(kernel, text, workers.device)) for text in texts]
    mine = {log.programs.get(text, "") for text in texts}
    compiled = workers.compile(candidates, log.measured.keys() - mine)
    done = set(log.measured) - mine
    for text, candidate, code in zip(texts, candidates, compiled, strict=True):
        if isinstance(code, Measured):
            log.add(text, code.program_hash, _rounded(code.measurement))
        elif code.program_hash in done:
            log.add(text, code.program_hash, log.measured[code.program_hash])
        else:
            done.add(code.program_hash)
            log.add(text, code.program_hash, _run(workers, candidate, code))


def _run(workers: DeviceMeasurer, candidate: Candidate, code: CompiledCandidate) -> Measurement:
    return _rounded(workers.measure_compiled(candidate, code, RECORD_POLICY))


def _rounded(m: Measurement) -> Measurement:
    return replace(
        m,
        samples_s=tuple(round(s, _DIGITS_S) for s in m.samples_s),
        lower_s=round(m.lower_s, 6),
        compile_s=round(m.compile_s, 6),
        verify_s=round(m.verify_s, 6),
        timing_s=round(m.timing_s, 6),
        max_error=float(f"{m.max_error:.4g}"),
    )


def _assembled(empty: Recording, points: Sequence[Point], log: _Log) -> Recording:
    """Points whose text was measured, as trials; questions are numbered as they come up."""
    numbers: dict[Question, int] = {}
    paths: dict[str, list[tuple[tuple[int, int], ...]]] = {}
    for point in points:
        text = point.schedule.text
        if text in log.programs:
            path = tuple(
                (numbers.setdefault(q, len(numbers)), choice) for q, choice in point.answers
            )
            paths.setdefault(text, []).append(path)
    trials = tuple(
        RecordedTrial(text, *log.of(text), tuple(found)) for text, found in paths.items()
    )
    return replace(empty, questions=tuple(numbers), trials=trials)


def record_file(
    settings: TuneSettings,
    kernel: str,
    out: Path,
    vary: Sequence[str] = (),
    most: int = MOST_POINTS,
    *,
    t4: bool = False,
    go_on: Callable[[int, int], bool] = lambda _done, _all: True,
) -> Recording:
    """Record a kernel of a model into a file; what a file of that name holds already is not
    measured again.

    Raises ConfigError for an unknown kernel or decision, StoreError for a file that is there and is
    none of ours.
    """
    device = devices.running(settings.device, settings.threads)
    workload = workload_of_spec(
        settings.model, settings.seed, settings.numerics, device.target, settings.dtype
    )
    found = find_kernel(workload, kernel, settings.numerics)
    chosen = settle_vary(Space(found, device.target), vary_of(vary), most)
    known = read_recording(out).recording if out.exists() else None
    recording = record(found, device, chosen, settings.numerics, known, go_on)
    if not recording.trials:
        raise ConfigError("the budget ended before anything was recorded")
    (write_t4 if t4 else write_recording)(out, recording)
    return recording
