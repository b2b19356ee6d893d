"""Whatever the code of a kernel tries in a whole model, it costs that comparison: the bench of
finals, variants, forms.

All of them, and the last comparison of a session, ask ``LocalBench`` for the same calls: a check,
then turns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hostile_programs import PROGRAMS, Victims, planted, unguarded
from small_models import THREADS, bench_here, here, workload_in
from test_models_sound import other_schedules

from tunegrad.compiling import candidate
from tunegrad.db import Store, open_store
from tunegrad.devices import Candidate, CompiledCandidate
from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.facts import host_target
from tunegrad.errors import CandidateCrashed, CandidateTimeout, WrongResult
from tunegrad.trial import Measured, Status
from tunegrad.tuning.models import LocalBench, Models, WholeModel
from tunegrad.tuning.workload import Workload

TARGET = host_target(THREADS)
FAILURES = {
    Status.CRASHED: CandidateCrashed,
    Status.TIMED_OUT: CandidateTimeout,
    Status.WRONG: (WrongResult, CandidateCrashed),
}
SPINNING = "starts threads"
"""A worker of models starts threads for each of them, so it may; they keep its cores busy until
it is killed.
"""

ALWAYS = (
    "kills its group",
    "reads the session's memory",
    "unlinks",
    "forges a reply",
    "exits",
    "writes before a buffer",
)
"""One of each kind; the others are slow tests."""

Compiler = Callable[[Sequence[Candidate]], Sequence[CompiledCandidate | Measured]]


@dataclass
class Planting:
    """A compiler that plants ``body`` in what has the ``actions``.

    Mutable: each test has its own of both.
    """

    compiler: Compiler
    actions: str = ""
    body: str = ""
    after: int = 0
    met: list[str] = field(default_factory=list)

    def __call__(self, candidates: Sequence[Candidate]) -> list[CompiledCandidate | Measured]:
        return [
            self._with_body(c, made)
            for c, made in zip(candidates, self.compiler(candidates), strict=True)
        ]

    def _with_body(
        self, asked: Candidate, made: CompiledCandidate | Measured
    ) -> CompiledCandidate | Measured:
        if asked.payload.actions != self.actions or isinstance(made, Measured):
            return made
        lowered = candidate.lower(asked.payload)
        image = compile_llvm(planted(lowered.text, lowered.entry, self.body, self.after), TARGET)
        self.met.append(self.actions)
        return replace(made, image=image, program_hash=f"{made.program_hash[:40]} {len(self.met)}")


@dataclass
class Place:
    work: Workload
    bench: LocalBench
    models: Models
    planting: Planting
    good: WholeModel
    evil: list[str]


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with open_store(":memory:", "write") as opened:
        yield opened


@pytest.fixture(scope="module")
def place(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    work = workload_in(tmp_path_factory.mktemp("hostile"))
    with bench_here(of=unguarded) as bench:
        bench._compiler = planting = Planting(bench._compiler)
        models = Models(store, TARGET, here(), bench)
        yield Place(
            work,
            bench,
            models,
            planting,
            models.of(work),
            other_schedules(work.kernels[1], True, 2 * len(PROGRAMS)),
        )


@pytest.mark.parametrize("after", [0, pytest.param(12, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", [n if n in ALWAYS else pytest.param(n, marks=pytest.mark.slow) for n in PROGRAMS]
)
def test_hostile_model_harms_nothing_outside_its_worker(
    place: Place, tmp_path: Path, name: str, after: int
) -> None:
    """At its first launch it is being checked, and at a later one timed."""
    row, victims, planting = PROGRAMS[name], Victims.make(tmp_path / "victims"), place.planting
    planting.actions, planting.body, planting.after = place.evil.pop(), row.body(victims), after
    bad = place.models.of(place.work, {place.work.kernels[1].key: planting.actions})
    if row.status is Status.OK:  # what was refused did no harm, and goes on
        with suppress(CandidateTimeout) if name == SPINNING else nullcontext():
            assert len(place.bench.profiled([place.good, bad], 5)[1]) == 5
    else:
        with pytest.raises(FAILURES[row.status]):
            place.bench.profiled([place.good, bad], 5)
    assert planting.met[-1] == planting.actions, "it was planted"
    assert victims.unharmed()
    assert os.getpid() == victims.session
    assert len(place.bench.profiled([place.good, place.good], 3)[0]) == 3, (
        "the next comparison is as ever"
    )
