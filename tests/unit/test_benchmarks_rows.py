"""A row has the promised keys, the best variant stands for its peer, and a column without a figure
says why.
"""

from __future__ import annotations

import json
import math

import pytest

from benchmarks.interleave import Timing
from benchmarks.rows import CALLED, DEFAULT, TUNED, UNTUNED, Row, assemble, table


def _timing(peer: str, ms: float, variant: str = "plain", restless: bool = False) -> Timing:
    return Timing(peer, variant, ms * 1e-3, 0.004, 15, "", restless)


def _failed(peer: str, why: str, variant: str = "plain") -> Timing:
    return Timing(peer, variant, math.inf, math.inf, 0, why)


_TIMINGS = (
    _timing(DEFAULT, 30.0),
    _timing(TUNED, 12.0),
    _timing("torch", 24.0, "nchw"),
    _timing("torch", 20.0, "channels_last"),
    _timing("ort", 16.0),
    _failed("openvino", "ImportError: no openvino"),
)
_ROW = assemble("resnet18", 2, ("torch", "ort", "openvino"), _TIMINGS, {})


def test_row_has_the_promised_keys() -> None:
    promised = [
        "workload",
        "threads",
        "default_ms",
        "tuned_ms",
        "peers",
        "pct_peak",
        "tune_s",
        "candidates",
    ]
    assert list(json.loads(json.dumps(_ROW.to_json())))[: len(promised)] == promised


def test_row_takes_the_fastest_variant_and_names_it() -> None:
    assert _ROW.peers["torch"] == pytest.approx(20.0)
    assert _ROW.variants == {
        DEFAULT: "plain",
        TUNED: "plain",
        "torch": "channels_last",
        "ort": "plain",
    }


def test_row_keeps_the_figures_of_all_variants() -> None:
    assert _ROW.figures["torch"] == pytest.approx({"nchw": 24.0, "channels_last": 20.0})


def test_row_says_why_a_peer_has_no_figure() -> None:
    assert _ROW.peers["openvino"] is None
    assert _ROW.errors == {"openvino": "ImportError: no openvino"}


def test_row_notes_a_failed_variant_of_a_peer_that_has_a_figure() -> None:
    row = assemble(
        "mlp", 1, ("torch",), (_timing("torch", 1.0), _failed("torch", "boom", "channels_last")), {}
    )
    assert "torch" not in row.errors
    assert row.notes == ("torch channels_last: boom",)


def test_row_notes_threads_that_stay_busy() -> None:
    row = assemble("mlp", 1, ("ort",), (_timing("ort", 1.0, restless=True),), {})
    assert row.notes == ("ort plain: its threads were still busy after the rest",)


def test_row_ratio_is_tuned_over_the_best_peer() -> None:
    assert _ROW.best_peer == ("ort", 16.0)
    assert _ROW.ratio == pytest.approx(0.75)


def test_row_without_winners_compares_the_default_schedules() -> None:
    row = Row("mlp", 1, default_ms=3.0, peers={"ort": 2.0}, errors={TUNED: UNTUNED})
    assert row.ratio == pytest.approx(1.5)


def test_row_whose_tuning_failed_has_no_ratio() -> None:
    row = Row("mlp", 1, default_ms=3.0, peers={"ort": 2.0}, errors={TUNED: "tuning failed"})
    assert row.ratio is None


def test_row_without_peers_has_no_ratio() -> None:
    row = Row("mlp", 1, tuned_ms=1.0, peers={"torch": None})
    assert (row.best_peer, row.ratio) == (None, None)


def test_table_aligns_figures_and_explains_gaps_below() -> None:
    row = assemble(
        "gemm 512", 1, ("torch", "ort"), (_timing("torch", 0.1234), _failed("ort", "no ort")), {}
    )
    assert table([row], ("torch", "ort"), peers_only=True).splitlines() == [
        "workload  thr  torch  ort  best peer",
        "--------  ---  -----  ---  -------------",
        "gemm 512    1  0.123  [1]  torch (plain)",
        "[1] ort: no ort",
    ]


def test_table_has_a_dash_for_a_peer_that_takes_no_part() -> None:
    row = assemble("copy 64 MB", 1, ("memcpy",), (_timing("memcpy", 6.0),), {})
    assert table([row], ("ort", "memcpy"), peers_only=True).splitlines()[2].split()[-4:] == [
        "-",
        "6.00",
        "memcpy",
        "(plain)",
    ]


def test_table_gives_one_reason_once() -> None:
    rows = [assemble(name, 1, ("ort",), (_failed("ort", "no ort"),), {}) for name in ("a", "b")]
    assert table(rows, ("ort",), peers_only=True).count("no ort") == 1


def test_table_shows_our_columns_and_the_ratio() -> None:
    head, _, line, *_ = table([_ROW], ("torch", "ort", "openvino")).splitlines()
    assert head.split()[:4] == ["workload", "thr", "default", "tuned"]
    assert line.split()[:4] == ["resnet18", "2", "30.0", "12.0"]
    assert line.split()[-2:] == ["0.75", "-"]


def test_call_of_a_user_has_a_column_and_a_ratio_of_its_own() -> None:
    called = Timing(CALLED, "stored winners", 0.02, 0.0, 9, "")
    row = assemble("resnet18", 2, ("torch", "ort", "openvino"), (*_TIMINGS, called), {})
    assert row.called_ms == 20.0
    assert row.called_ratio == pytest.approx(1.25)
    head, _, line, *_ = table([row], ("torch", "ort", "openvino")).splitlines()
    assert head.split()[4] == "called"
    assert line.split()[4] == "20.0"
    assert line.split()[-2:] == ["0.75", "1.25"]
    assert table([_ROW], ("torch",)).splitlines()[2].split()[4] == "-"
