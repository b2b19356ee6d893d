"""A row has the promised keys, the best variant stands for its peer, and a column without a figure
says why.
"""

from __future__ import annotations

import math

import pytest

from benchmarks.interleave import Timing
from benchmarks.rows import DEFAULT, TUNED, UNTUNED, Row, assemble


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


def test_row_takes_the_fastest_variant_and_names_it() -> None:
    assert _ROW.peers["torch"] == pytest.approx(20.0)
    assert _ROW.variants == {
        DEFAULT: "plain",
        TUNED: "plain",
        "torch": "channels_last",
        "ort": "plain",
    }


def test_row_says_why_a_peer_has_no_figure() -> None:
    assert _ROW.peers["openvino"] is None
    assert _ROW.errors == {"openvino": "ImportError: no openvino"}


def test_row_ratio_is_tuned_over_the_best_peer() -> None:
    assert _ROW.best_peer == ("ort", 16.0)
    assert _ROW.ratio == pytest.approx(0.75)


def test_row_without_winners_compares_the_default_schedules() -> None:
    row = Row("mlp", 1, default_ms=3.0, peers={"ort": 2.0}, errors={TUNED: UNTUNED})
    assert row.ratio == pytest.approx(1.5)


def test_row_whose_tuning_failed_has_no_ratio() -> None:
    row = Row("mlp", 1, default_ms=3.0, peers={"ort": 2.0}, errors={TUNED: "tuning failed"})
    assert row.ratio is None
