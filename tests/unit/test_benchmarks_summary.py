"""The summary: geometric means per group, the worst row, and verdicts that need all rows of a
target to pass.
"""

from __future__ import annotations

import pytest

from benchmarks.rows import Row
from benchmarks.summary import geomeans, judge, speedup
from benchmarks.targets import TARGETS, Target

_PAIR = Target("pair", ("gemm 512", "gemm 1024"), geomean=1.2, each=0.75)


def _row(name: str, speed: float) -> Row:
    return Row(name, 1, tuned_ms=1.0, peers={"torch": speed, "ort": 2 * speed, "openvino": None})


def test_speedup_is_the_best_peer_over_ours() -> None:
    assert speedup(_row("mlp", 1.5)) == 1.5


def test_geomeans_are_by_group_and_leave_out_rows_without_figures() -> None:
    rows = [
        _row("gemm 512", 2.0),
        _row("gemm 1024", 0.5),
        _row("gelu 1M", 1.5),
        Row("softmax 1024", 1),
    ]
    assert geomeans(rows) == {"gemm": (2, pytest.approx(1.0)), "rows": (1, pytest.approx(1.5))}


@pytest.mark.parametrize(
    ("speeds", "passed"),
    [
        ((1.2, 1.3), True),
        ((1.0, 1.3), False),
        ((0.7, 9.0), False),
        ((9.0,), None),
        ((0.7,), False),
        ((0.8,), None),
    ],
)
def test_judge_passes_only_with_every_row(speeds: tuple[float, ...], passed: bool | None) -> None:
    verdict = judge(
        _PAIR, [_row(name, speed) for name, speed in zip(_PAIR.workloads, speeds, strict=False)]
    )
    assert verdict is not None
    assert verdict.passed is passed


def test_judge_compares_a_copy_with_memcpy() -> None:
    (target,) = (t for t in TARGETS if t.name == "copy")
    row = Row("copy 64 MB", 2, tuned_ms=4.0, peers={"torch": 2.0, "memcpy": 3.8})
    verdict = judge(target, [row])
    assert verdict is not None
    assert (verdict.passed, verdict.worst) == (True, pytest.approx(0.95))
