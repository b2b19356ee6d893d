"""The bench of searchers from the command line, on the recorded spaces of the tests."""

from __future__ import annotations

import json
from itertools import pairwise
from math import log
from pathlib import Path
from random import Random
from statistics import fmean

import pytest

from benchmarks import search_bench as command
from benchmarks import space as space_command
from benchmarks.recorded import RecordedSpace, ReplayMeasurer, excess, play, read_recording
from benchmarks.recorded.bench import LoadedSpace, find_spaces, search_bench
from tunegrad.search import make_searcher

SPACES = Path(__file__).parents[1] / "data" / "spaces"
NAMES = sorted(path.name.removesuffix(".jsonl.gz") for path in SPACES.iterdir())
FAST = ["--searchers", "random,beam", "--seeds", "2", "--trials", "16"]


@pytest.fixture(scope="module")
def spaces() -> tuple[LoadedSpace, ...]:
    return find_spaces([SPACES])


def test_recorded_spaces_are_sound(spaces: tuple[LoadedSpace, ...]) -> None:
    assert [s.name for s in spaces] == NAMES
    assert 10 <= len(NAMES) <= 16
    for space in spaces:
        assert space.problems == ()
        assert space.recording.complete
        assert len(RecordedSpace(space.recording).defaults()) == 1


def test_bench_compares_every_searcher_on_every_space(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--spaces", str(SPACES), *FAST, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [(r["space"], r["searcher"]) for r in report["rows"]] == [
        (n, s) for n in NAMES for s in ("random", "beam")
    ]
    assert all(len(r["curve"]) == 17 for r in report["rows"])
    assert all(a >= b for r in report["rows"] for a, b in pairwise(r["curve"]))
    assert all(r["score"] == 0.0 for r in report["rows"] if r["searcher"] == "random")
    assert [t["searcher"] for t in report["totals"]] == ["random", "beam"]
    assert report["totals"][0] == {
        "searcher": "random",
        "score": 0.0,
        "better": 0,
        "clearly": 0,
        "spaces": len(NAMES),
    }


@pytest.mark.parametrize("name", ["conv7", "scores"])
def test_bench_finds_every_learner_better_than_random(
    spaces: tuple[LoadedSpace, ...], name: str
) -> None:
    learners = ["beam", "bayesian", "evolutionary", "portfolio"]
    report = search_bench([s for s in spaces if s.name == name], learners, seeds=2, trials=48)
    areas = {row.searcher: row.area for row in report.rows}
    assert [learner for learner in learners if areas[learner] >= 0.8 * areas["random"]] == []


def test_two_searches_of_a_kernel_end_within_three_percent(spaces: tuple[LoadedSpace, ...]) -> None:
    """By recorded times, so that only the searcher's own draws tell them apart."""
    apart, off = [], []
    for recording in (s.recording for s in spaces):
        space, measurer = RecordedSpace(recording), ReplayMeasurer(recording)
        trials, ends = min(100, recording.programs - 1), []
        for seed in (0, 1):
            searcher = make_searcher("portfolio", space, Random(f"{seed} {recording.kernel_key}"))
            ends.append(1.0 + excess(play(searcher, space, measurer, trials, 8), recording)[-1])
        apart.append(abs(log(ends[0] / ends[1])))
        off += [log(end) for end in ends]
    assert sum(x <= log(1.03) for x in apart) >= len(apart) - 2, apart
    assert fmean(apart) <= log(1.03)
    assert fmean(off) <= log(1.03), "near the best, not near each other alone"


@pytest.mark.slow
def test_bench_finds_the_portfolio_no_more_than_a_twentieth_behind_its_best_member(
    spaces: tuple[LoadedSpace, ...],
) -> None:
    report = search_bench(spaces, ["beam", "bayesian", "evolutionary", "portfolio"], seeds=5)
    areas = {total.searcher: 1.0 - (total.score or 0.0) for total in report.totals}
    assert areas["portfolio"] <= 1.05 * min(areas["beam"], areas["bayesian"], areas["evolutionary"])
    for total in report.totals[1:]:
        assert total.better >= 0.8 * total.spaces, total.searcher


def test_space_converts_to_t4_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, t4, back = (
        SPACES / "layernorm.jsonl.gz",
        tmp_path / "a.t4.json",
        tmp_path / "b.jsonl.gz",
    )
    assert space_command.main(["convert", str(source), str(t4), "--format", "t4"]) == 0
    assert space_command.main(["convert", str(t4), str(back), "--format", "tunegrad"]) == 0
    assert read_recording(back).recording == read_recording(source).recording
    assert space_command.main(["show", str(t4)]) == 0
    assert f"({read_recording(source).recording.kernel_key[:6]})" in capsys.readouterr().out
