"""Rewriting axes keeps what a kernel computes where a store holds at some of its points only."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tunegrad.ir import expr
from tunegrad.ir.dtypes import F32
from tunegrad.ir.expr import Expr, Load
from tunegrad.ir.fusion.axes import all_indices, conditions, merge_axes, split_axes, uses
from tunegrad.ir.index import Index, Range, Valid
from tunegrad.ir.interpret.kernel import interpret
from tunegrad.ir.kernel import Axis, Kernel, Param, Store
from tunegrad.ir.verify.kernel import verify_kernel

A, B, T = Axis("a", 4), Axis("b", 6), Axis("t", 24)


def masked(axes: tuple[Axis, ...], row: Index, index: tuple[Index, ...]) -> Kernel:
    """Y[row] = X[index] for the first 20 rows."""
    params = (Param.dense("Y", F32, (20,), "out"), Param.dense("X", F32, (4, 6), "in"))
    return Kernel(
        params, axes, (Store("Y", (row,), Load("X", index, F32), (), Valid((Range(row, 0, 20),))),)
    )


CASES: dict[str, tuple[Callable[[Kernel], Kernel], Kernel]] = {
    "split": (split_axes, masked((T,), T.index, (T.index // 6, T.index % 6))),
    "merge": (merge_axes, masked((A, B), A.index * 6 + B.index, (A.index, B.index))),
}


@pytest.mark.parametrize("name", CASES)
def test_masked_store_stays_masked(name: str) -> None:
    rewrite, kernel = CASES[name]
    made = rewrite(kernel)
    verify_kernel(made)
    x = np.arange(24, dtype=np.float32)
    np.testing.assert_array_equal(interpret(made, {"X": x})["Y"], x[:20])


def test_conditions_name_those_of_stores() -> None:
    _, kernel = CASES["merge"]
    assert [str(v) for v in conditions(kernel) if not v.always] == [str(kernel.stores[0].valid)]


def test_an_expression_of_a_kernel_is_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    walked, nodes = list[Expr](), expr.nodes

    def counted(x: Expr) -> Iterator[Expr]:
        walked.append(x)
        return nodes(x)

    for user in ("kernel", "fusion.axes"):
        monkeypatch.setattr(f"tunegrad.ir.{user}.nodes", counted)
    kernel = masked((A, B), A.index * 6 + B.index, (A.index, B.index))
    assert [*all_indices(kernel)]
    assert [*uses(kernel)]
    assert [*conditions(kernel)]
    assert len(walked) == 1
