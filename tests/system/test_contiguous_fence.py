"""``contiguous(layout=, schedule=)``: one more kernel, its memory laid out and its loops scheduled
as asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import THREADS

import tunegrad as tg
from tests.verifiers.graph import verify_graph
from tunegrad.config import ModelSpec, TuneSettings
from tunegrad.db import open_store
from tunegrad.errors import IllegalAction, ShapeError
from tunegrad.frontend import Tensor
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import LaunchPlan, schedule
from tunegrad.ir.graph import GraphOp
from tunegrad.ir.layout import Layout, Part
from tunegrad.ir.text import print_graph
from tunegrad.tuning.session import run_session
from tunegrad.tuning.workload import workload_of_function

RNG = np.random.default_rng(6)
X = RNG.standard_normal((2, 8, 5, 6), dtype=np.float32)
K = RNG.standard_normal((7, 8, 3, 3), dtype=np.float32)
LAYOUTS: dict[str, Any] = {
    "row-major": (0, 1, 2, 3),
    "channels-last": (0, 2, 3, 1),
    "reversed": (3, 2, 1, 0),
    "blocked": Layout(
        (2, 8, 5, 6), (Part(0, 1, 2), Part(1, 4, 2), Part(2, 1, 5), Part(3, 1, 6), Part(1, 1, 4))
    ),
    "padded": Layout((2, 8, 5, 6), (Part(0, 1, 2), Part(1, 1, 8), Part(2, 1, 5), Part(3, 1, 8))),
}
TILED = "tile(axis=a, size=2) vectorize(axis=a1)"


def fenced(**asked: Any) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        y = (x * 2.0 + 1.0).relu()
        y = y.contiguous(**asked) if asked else y
        return y.conv2d(Tensor.constant(K), padding=1)

    return function


def plan_of(function: Callable[[Tensor], Tensor]) -> LaunchPlan:
    return schedule(fold_constants((function(Tensor.input("x", X.shape)).node,)))


def temps(plan: LaunchPlan) -> list[Layout]:
    return [b.layout for b in plan.buffers if b.role == "temp"]


@pytest.fixture(scope="module")
def want() -> np.ndarray[Any, Any]:
    return np.asarray(tg.compile(fenced(), X, store=False, threads=THREADS)(X))


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_fence_is_one_more_kernel_and_one_temporary_of_its_layout(
    name: str, want: np.ndarray[Any, Any]
) -> None:
    function = fenced(layout=LAYOUTS[name])
    plan = plan_of(function)
    assert len(plan.launches) == len(plan_of(fenced()).launches) + 1
    layout = LAYOUTS[name]
    assert temps(plan) == [
        layout if isinstance(layout, Layout) else Layout.permuted(X.shape, layout)
    ]
    got = tg.compile(function, X, store=False, threads=THREADS)(X)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", [None, (0, 2, 3, 1)])
def test_a_fence_s_schedule_is_the_one_that_runs(layout: Any, want: np.ndarray[Any, Any]) -> None:
    model = tg.compile(fenced(layout=layout, schedule=TILED), X, store=False, threads=THREADS)
    (row,) = [r for r in model.report() if r.outcome == "fixed"]
    assert row.actions == TILED
    np.testing.assert_allclose(model(X), want, rtol=1e-4, atol=1e-4)


def test_kernels_that_differ_in_their_fixed_schedule_have_different_keys() -> None:
    first, second = (
        plan_of(fenced(schedule=s)).launches[0].kernel for s in (TILED, "tile(axis=a, size=4)")
    )
    free = plan_of(fenced(layout=(0, 2, 3, 1))).launches[0].kernel
    assert len({first.key, second.key, free.key}) == 3
    assert replace(first, fixed="").key == free.key


def test_two_layouts_of_one_tensor_are_two_buffers() -> None:
    def function(x: Tensor) -> Tensor:
        y = x * 2.0
        return y.contiguous(layout=(0, 2, 3, 1)).sum(1) + y.contiguous(layout=(3, 2, 1, 0)).sum(1)

    assert len(set(temps(plan_of(function)))) == 2
    got = tg.compile(function, X, store=False, threads=THREADS)(X)
    np.testing.assert_allclose(got, 4 * X.sum(1), rtol=1e-5)


def test_an_output_is_row_major_and_copied_from_a_fence_that_is_not() -> None:
    model = tg.compile(
        lambda x: (x + 1.0).contiguous(layout=(0, 2, 3, 1)), X, store=False, threads=THREADS
    )
    assert [r.kernel.split(" ")[0] for r in model.report()] == ["elementwise", "copy"]
    np.testing.assert_array_equal(model(X), X + 1.0)


def test_an_output_s_own_kernel_takes_the_schedule_of_its_fence() -> None:
    model = tg.compile(
        lambda x: (x + 1.0).contiguous(schedule=TILED), X, store=False, threads=THREADS
    )
    assert [(r.outcome, r.actions) for r in model.report()] == [("fixed", TILED)]
    np.testing.assert_array_equal(model(X), X + 1.0)


def test_an_input_is_copied_into_the_layout_that_is_asked_for() -> None:
    function = lambda x: x.contiguous(layout=(3, 2, 1, 0)).relu()  # noqa: E731
    assert temps(plan_of(function)) == [Layout.permuted(X.shape, (3, 2, 1, 0))]
    got = tg.compile(function, X, store=False, threads=THREADS)(X)
    np.testing.assert_array_equal(got, np.maximum(X, 0))


def test_a_fence_that_asks_for_nothing_is_the_plain_one() -> None:
    x = Tensor.input("x", (3, 4)) + 1.0
    plain = x.contiguous()
    assert plain.node.op is GraphOp.CONTIGUOUS
    assert plain.node.arg is None
    assert plain.contiguous().node is plain.node
    assert plain.contiguous(layout=(1, 0)).node.srcs == (x.node,)


def test_a_fence_prints_and_verifies() -> None:
    node = (Tensor.input("x", (3, 4)) + 1.0).contiguous((1, 0), TILED).node
    verify_graph((node,))
    assert f"contiguous %2 layout=(1 0) schedule=({TILED}) f32[3,4]" in print_graph((node,))


BAD_LAYOUTS: dict[str, tuple[Any, str]] = {
    "short": ((0, 2, 3), (r"layout \(0, 2, 3\) is not a permutation of the 4 dimensions of \(2, "
                         r"8, 5, 6\)")),
    "repeated": ((0, 1, 1, 2), "is not a permutation"),
    "no numbers": (("N", "H", "W", "C"), "is not a permutation"),
    "another shape": (Layout.row_major((2, 8, 5)), "does not fit a tensor of shape"),
    "positions lost": (Layout((2, 8, 5, 6), (Part(0, 1, 2), Part(1, 1, 8), Part(2, 1, 5))),
        ("dimension 3 do not "
        "tell")),
    "a step missing": (
        Layout((2, 8, 5, 6), (*Layout.row_major((2, 8, 5)).parts, Part(3, 2, 3))),
        ("dimension 3 do not tell its "
            "6")
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_LAYOUTS)
def test_a_layout_that_does_not_fit_is_an_error(name: str) -> None:
    layout, message = BAD_LAYOUTS[name]
    with pytest.raises(ShapeError, match=message):
        (Tensor.input("x", X.shape) + 1.0).contiguous(layout)


def test_a_schedule_that_does_not_parse_is_an_error() -> None:
    with pytest.raises(IllegalAction, match="no action 'turn'"):
        (Tensor.input("x", X.shape) + 1.0).contiguous(schedule="turn(axis=a)")


def test_an_illegal_schedule_names_kernel_and_action(tmp_path: Path) -> None:
    message = (
        r"kernel elementwise mul-add-max .*: contiguous\(schedule='unroll\(axis=q\)'\): "
        r"unroll\(axis=q\): no loop"
    )
    function = fenced(schedule="unroll(axis=q)")
    with pytest.raises(IllegalAction, match=message):
        tg.compile(function, X, store=False, threads=THREADS)
    work = workload_of_function(function, (X,))
    spec = ModelSpec("fenced", f"kernels:{work.key}", source="a function")
    with pytest.raises(IllegalAction, match=message):
        run_session(TuneSettings(spec, "cpu", THREADS, 0.5, "beam", tmp_path / "s.db", 3), work, [])


def test_a_schedule_of_too_many_threads_is_illegal() -> None:
    with pytest.raises(IllegalAction, match="more threads than the target's 1"):
        tg.compile(fenced(schedule="thread(axis=a, count=2)"), X, store=False, threads=1)


def test_a_session_does_not_search_a_fixed_kernel_and_reports_it(tmp_path: Path) -> None:
    work = workload_of_function(lambda x: (x + 1.0).contiguous(schedule=TILED).sum(1), (X[0],))
    spec = ModelSpec("fenced", f"kernels:{work.key}", source="a function")
    report = run_session(
        TuneSettings(spec, "cpu", THREADS, 0.3, "beam", tmp_path / "s.db", 3), work, []
    )
    (fixed,) = [r for r in report.rows if r.origin == "fixed"]
    assert (fixed.actions, fixed.candidates) == (TILED, {})
    assert len(report.rows) == 2
    with open_store(tmp_path / "s.db") as store:
        assert store.trials(fixed.key) == []
