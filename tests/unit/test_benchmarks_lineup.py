"""Contestants that can not be built, are wrong, or fail get a reason; the others are timed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from benchmarks.contestants import Contestant, disagreement
from benchmarks.interleave import Pace
from benchmarks.lineup import check, measure
from benchmarks.rows import DEFAULT, Row
from benchmarks.workloads import Array, select

_WORKLOAD = select("kernels", ["gemm 512"])[0]
_EXPECTED = np.array([1.0, -4.0], dtype=np.float32)
_PACE = Pace(min_rounds=2, max_rounds=2, min_s=0.0)


@dataclass(frozen=True, slots=True)
class _Fixed:
    peer: str
    result: tuple[float, ...]
    variant: str = "fake"
    layout: str = ""
    seconds: float = 1e-3

    def time(self, calls: int) -> Sequence[float]:
        if self.result != (1.0, -4.0):
            raise AssertionError(f"{self.peer} is wrong and must not be timed")
        return [self.seconds] * calls

    def output(self) -> Array:
        return np.array(self.result, dtype=np.float32)


def _right() -> Iterator[Contestant]:
    yield _Fixed("right", (1.0, -4.0))


def _wrong() -> Iterator[Contestant]:
    yield _Fixed("wrong", (1.0, -4.5))


def _missing() -> Iterator[Contestant]:
    raise ModuleNotFoundError("No module named 'missing'")


def _measured(**sources: object) -> Row:
    named = {DEFAULT if name == "default" else name: source for name, source in sources.items()}
    peers = [name for name in named if name != DEFAULT]
    return measure(_WORKLOAD, 1, peers, named, lambda: _EXPECTED, _PACE, lambda: True)  # type: ignore[arg-type]


def test_check_separates_wrong_results() -> None:
    right, (failure,) = check([*_right(), *_wrong()], _EXPECTED, 1e-4)
    assert [c.peer for c in right] == ["right"]
    assert (
        failure.error
        == "result is off by 0.5 where PyTorch's largest value is 4 (allowed: 0.0001 of it)"
    )


def test_measure_times_the_right_and_explains_the_rest() -> None:
    row = _measured(right=_right, wrong=_wrong, missing=_missing, default=_missing)
    assert row.peers["right"] == 1.0
    assert (row.peers["wrong"], row.peers["missing"], row.default_ms) == (None, None, None)
    assert row.errors["wrong"].startswith("result is off by 0.5")
    assert (
        row.errors["missing"]
        == row.errors[DEFAULT]
        == "ModuleNotFoundError: No module named 'missing'"
    )


@pytest.mark.parametrize(
    ("layouts", "ms", "pairing"), [(("nchw", "nhwc"), 1.0, "best"), (("nchw",), 2.0, "nchw")]
)
def test_measure_lets_all_contestants_choose_of_the_same_layouts(
    layouts: tuple[str, ...], ms: float, pairing: str
) -> None:
    right = (1.0, -4.0)

    def both() -> Iterator[Contestant]:
        yield _Fixed("peer", right, "rows", "nchw", 2e-3)
        yield _Fixed("peer", right, "channels", "nhwc", 1e-3)

    images = select("convs")[0]
    row = measure(
        images, 1, ("peer",), {"peer": both}, lambda: _EXPECTED, _PACE, lambda: True, layouts
    )
    assert (row.peers["peer"], row.layout) == (ms, pairing)


def test_measure_without_a_reference_times_nothing() -> None:
    def fail() -> Array:
        raise ModuleNotFoundError("No module named 'torch'")

    row = measure(_WORKLOAD, 1, ("right",), {"right": _right}, fail, _PACE, lambda: True)
    why = "nothing to check against, PyTorch failed: ModuleNotFoundError: No module named 'torch'"
    assert (row.peers["right"], row.errors["right"]) == (None, why)


def test_disagreement_sees_not_a_number() -> None:
    assert disagreement(np.array([1.0, np.nan], np.float32), _EXPECTED, 1e-4) != ""
