"""The bench of searchers from the command line, on the recorded spaces of the tests."""

from __future__ import annotations

import json
import re
import sys
from itertools import pairwise
from math import log
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

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


def test_recorded_spaces_are_small() -> None:
    sizes = [path.stat().st_size for path in SPACES.iterdir()]
    assert max(sizes) < 300_000
    assert sum(sizes) < 1_500_000


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


def test_bench_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--spaces", str(SPACES / "softmax.jsonl.gz"), *FAST]) == 0
    shown = capsys.readouterr().out.splitlines()
    words = "space trials best ms searcher area score within 5 % after of seeds % trials/s"
    assert shown[0].split() == words.split()
    assert [line.split()[0] for line in shown[2:4]] == ["softmax", "beam"]
    assert shown[-1].startswith("2 seeds, batches of 8, ")


def test_one_seed_says_nothing_about_errors(spaces: tuple[LoadedSpace, ...]) -> None:
    small = [s for s in spaces if s.name == "layernorm"]
    report = search_bench(small, ["beam"], seeds=1, trials=10)
    assert all(total.clearly == 0 for total in report.totals)
    assert "unknown" in command.bench_text(report)
    assert "±" not in command.bench_text(report)
    assert "±" in command.bench_text(search_bench(small, ["beam"], seeds=2, trials=10))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--searchers", "beam,bean"], "searcher 'bean' is unknown"),
        (["--figure", "/no_such_directory/x.svg"], "directory /no_such_directory does not exist"),
    ],
)
def test_bench_tells_what_is_wrong_before_it_reads_spaces(
    words: list[str], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "find_spaces", lambda *_: pytest.fail("read"))
    assert command.main(words) == 1
    assert why in capsys.readouterr().err


def test_documented_python_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "SEARCH_BENCH.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(SPACES)
    names: dict[str, Any] = {}
    exec(block, names)  # noqa: S102  # our own page
    assert len(names["best_s"]) == 101
    assert names["best_s"][-1] <= names["best_s"][0]


def test_documented_spaces_are_these(spaces: tuple[LoadedSpace, ...]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "SEARCH_BENCH.md").read_text(encoding="utf-8")
    for space in spaces:
        r = space.recording
        assert re.search(
            rf"^\| {space.name} \| {re.escape(r.kernel_name)} \| {r.points}\b.*\| {r.programs} \|",
            page,
            re.MULTILINE,
        )


def test_bench_plays_no_more_trials_than_there_are_programs(
    spaces: tuple[LoadedSpace, ...],
) -> None:
    small = min(spaces, key=lambda s: s.recording.programs)
    report = search_bench([small], ["random"], seeds=1, trials=10_000)
    assert report.spaces[0].trials == small.recording.programs - 1
    assert report.rows[0].near_share == 1.0


def test_bench_draws_the_figure(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the figure needs the [plot] extra")
    figure = tmp_path / "curves.svg"
    assert (
        command.main(
            [
                "--spaces",
                str(SPACES / "softmax.jsonl.gz"),
                *FAST,
                "--figure",
                str(figure),
            ]
        )
        == 0
    )
    assert "<svg" in figure.read_text(encoding="utf-8")


def test_bench_says_what_a_figure_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert command.main(["--spaces", str(SPACES), "--figure", str(tmp_path / "x.svg")]) == 1
    assert "needs matplotlib, which is not installed: tunegrad[plot]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--spaces", str(SPACES), "--searchers", "beem"], "searcher 'beem' is unknown; valid: "),
        (["--spaces", str(SPACES), "--seeds", "0"], "seeds 0 is not a positive whole number"),
        (
            ["--spaces", str(SPACES), "--figure", "x.bmp"],
            "figure 'x.bmp' does not end in .svg, .png, .pdf",
        ),
        (
            ["--spaces", str(SPACES.parent)],
            "no recorded space there (*.jsonl, *.jsonl.gz, *.t4.json)",
        ),
        (
            ["--spaces", str(SPACES), "--spaces", str(SPACES / "gemm.jsonl.gz")],
            "gemm.jsonl.gz: another recorded space is called gemm, too",
        ),
        (
            ["--spaces", "nowhere.jsonl"],
            "nowhere.jsonl: can not be read: No such file or directory",
        ),
    ],
)
def test_bench_names_what_is_wrong(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([*arguments]) == 1
    assert why in capsys.readouterr().err


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


def test_space_show_reports_broken_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = tmp_path / "a.jsonl"
    space_command.main(
        ["convert", str(SPACES / "layernorm.jsonl.gz"), str(plain), "--format", "tunegrad"]
    )
    lines = plain.read_text(encoding="utf-8").splitlines()
    plain.write_text("\n".join([*lines[:-1], lines[-1].replace("ok", "no")]), encoding="utf-8")
    assert space_command.main(["show", str(plain), "--json"]) == 3
    report = json.loads(capsys.readouterr().out)
    assert report["problems"] == [
        f"lines row {len(lines)}: its checksum does not match its content"
    ]
    assert report["recorded"] == report["points"] - 1
    assert not report["complete"]
