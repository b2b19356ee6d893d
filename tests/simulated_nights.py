"""Nights of a machine as sweeps record them, simulated: what is known of them says what a verdict
has to say.

    sample = level + drift of the machine + night + slow minute + noise + burst     (logarithms)

A machine drifts from night to night (autoregressive, 2.5 %), and slows every kernel differently.
Memory lies elsewhere every night (Student t of four degrees, 0.5 %), now and then badly (one night
in twenty: 2 % times a t of three degrees, to slower). In one night of seven there are minutes that
are 10 to 50 % slower. A sample scatters by 2 %, and one in sixteen meets a burst without a second
moment (Pareto 1.5).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tunegrad.db import Latency, open_store
from tunegrad.regress.bisecting import CommitError, Round
from tunegrad.regress.nights import (
    DEFAULTS,
    SWEEP,
    YARDSTICK,
    Night,
    kernel_series,
    place_of,
    with_defaults,
)
from tunegrad.trial import Fingerprint

MODEL = "simulated"
HERE = Fingerprint((("compiler_version", "22.1"), ("cpu_name", "one"), ("device", "cpu")))
VERSIONS = (("compiler", "22.1"), ("revision", "aaaa"), ("tunegrad", "0.1.0"))


@dataclass(frozen=True)
class World:
    """How many nights of how many kernels; from which night on what is how many times slower.

    ``step``: (night, kernel, ratio); ``drift``: (kernel, ratio at the last night); ``machine`` and
    ``everything``: (night, ratio), with and without the yardsticks.
    """

    nights: int = 60
    kernels: int = 20
    turns: int = 24
    step: tuple[int, int, float] | None = None
    drift: tuple[int, float] | None = None
    machine: tuple[int, float] | None = None
    everything: tuple[int, float] | None = None

    def run(self, seed: int) -> list[Night]:
        return list(self._nights(np.random.default_rng(seed)))

    def _nights(self, rng: np.random.Generator) -> Iterator[Night]:
        count = 2 * self.kernels + 2
        feels, level = rng.uniform(0.7, 1.3, count), np.log(10.0 ** rng.uniform(-5, -3, count))
        drifted = 0.0
        for night in range(self.nights):
            drifted = 0.8 * drifted + rng.normal(0, 0.015)
            common = drifted + _since(self.machine, night)
            logs = level + feels * (common + _slow_minutes(rng, self.turns)[:, None])
            logs += _elsewhere(rng, count) + _samples(rng, (self.turns, count))
            logs[:, : 2 * self.kernels] += _since(self.everything, night)
            if self.step is not None:
                logs[:, self.step[1]] += _since((self.step[0], self.step[2]), night)
            if self.drift is not None:
                logs[:, self.drift[0]] += np.log(self.drift[1]) * night / (self.nights - 1)
            yield self._night(night, np.exp(logs))

    def _night(self, number: int, seconds: np.ndarray) -> Night:
        def row(series: str, key: str, mine: np.ndarray, default: np.ndarray) -> Latency:
            versions = VERSIONS
            if any(s is not None and number >= s[0] for s in (self.step, self.everything)):
                versions = (*VERSIONS[:1], ("revision", "bbbb"), *VERSIONS[2:])
            state = (("asked", "cpu"), ("governor", "performance"), ("load_1m", 1.0))
            return Latency(
                series, key, "tuned", HERE, tuple(mine.tolist()), tuple(default.tolist()),
                f"night{number}", 86_400.0 * number, versions, state,
            )  # fmt: skip

        n = self.kernels
        rows = [
            row(kernel_series(MODEL, f"k{k}"), f"key{k}", seconds[:, k], seconds[:, n + k])
            for k in range(n)
        ]
        none = np.zeros(0)
        rows += [
            row(kernel_series(MODEL, YARDSTICK + name), name, seconds[:, 2 * n + i], none)
            for i, name in enumerate(("stream", "product"))
        ]
        both = [seconds[:, part].sum(axis=1) for part in (slice(n), slice(n, 2 * n))]
        rows.append(row(MODEL, "graph", *both))
        found = {(r.model, r.model_key): r for r in rows}
        return Night(f"night{number}", 86_400.0 * number, place_of(HERE), with_defaults(found))


class Commits:
    """A measurer of commits, named by their numbers, of which some made kernels slower.

    ``slower``: ratios by commit and kernel; ``broken`` do not build, ``crash`` do not run. Each
    process of a commit finds its memory elsewhere, and turns have slow minutes, as nights do.
    """

    def __init__(
        self,
        seed: int,
        slower: Mapping[int, Mapping[int, float]],
        kernels: int = 8,
        broken: Container[int] = (),
        crash: Container[int] = (),
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._slower, self._kernels = slower, kernels
        self._broken, self._crash = broken, crash
        self._level = np.log(10.0 ** self._rng.uniform(-4, -3, kernels + 2))
        self._feels = self._rng.uniform(0.7, 1.3, kernels + 2)
        self.builds: list[str] = []
        self.rounds = 0

    def build(self, commit: str) -> None:
        if commit in self.builds:
            return
        self.builds.append(commit)
        if int(commit) in self._broken:
            raise CommitError(commit, "no rule to make target")

    def round(self, commits: Sequence[str], turns: int = 5) -> Round:
        for commit in commits:
            if int(commit) in self._crash:
                raise CommitError(commit, "signal 11")
        self.rounds += 1
        names = [kernel_series(MODEL, f"k{k}") for k in range(self._kernels)]
        names += [f"{YARDSTICK}stream", f"{YARDSTICK}product"]
        common = self._feels * _slow_minutes(self._rng, turns)[:, None]
        found: dict[str, dict[str, list[float]]] = {name: {} for name in (MODEL, *names)}
        for commit in commits:
            logs = self._level + common + _elsewhere(self._rng, len(names))
            logs += _samples(self._rng, (turns, len(names)))
            for at, kernels in self._slower.items():
                for kernel, ratio in kernels.items() if at <= int(commit) else ():
                    logs[:, kernel] += np.log(ratio)
            seconds = np.exp(logs)
            found[MODEL][commit] = seconds[:, : self._kernels].sum(axis=1).tolist()
            for name, column in zip(names, seconds.T, strict=True):
                found[name][commit] = column.tolist()
        return found


def busy(night: Night, others: float = 1.0) -> Night:
    """A night in which others took CPUs that the model needed."""
    state = (("lacking_cpus", others), ("others_cpus", others))
    rows = {
        key: replace(row, state=tuple(sorted((*row.state, *state))))
        for key, row in night.rows.items()
    }
    return replace(night, rows=rows)


def stored(path: Path, nights: list[Night]) -> Path:
    """A store of these nights, as sweeps make it."""
    with open_store(path, "write") as store:
        for night in nights:
            with store.session(SWEEP, 0, {}, "0.1.0", night.sweep):
                for row in night.rows.values():
                    if DEFAULTS not in row.model:
                        store.record_latency(row)
    return path


def _since(change: tuple[int, float] | None, night: int) -> float:
    return 0.0 if change is None or night < change[0] else float(np.log(change[1]))


def _slow_minutes(rng: np.random.Generator, turns: int) -> np.ndarray:
    slow = np.abs(rng.normal(0, 0.01, turns))
    if rng.random() < 1 / 7:
        begin = rng.integers(turns)
        slow[begin : begin + rng.integers(2, turns)] += rng.uniform(0.1, 0.5)
    return slow


def _elsewhere(rng: np.random.Generator, count: int) -> np.ndarray:
    found = 0.005 * rng.standard_t(4, count) / np.sqrt(2)
    if rng.random() < 1 / 20:
        found += 0.02 * np.abs(rng.standard_t(3, count))
    return found


def _samples(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    bursts = (rng.random(shape) < 1 / 16) * np.log1p(0.2 * rng.pareto(1.5, shape))
    return rng.normal(0, 0.02, shape) + bursts
