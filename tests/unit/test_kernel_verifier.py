"""The kernel's verifier refuses a kernel with any one thing broken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.graph_builders import conv, relu, softmax, tensor, weight
from tunegrad.errors import VerifyError
from tunegrad.ir.dtypes import BF16, BF16X2, BOOL, F16, F32, F64, I32
from tunegrad.ir.expr import Apply, Cast, Const, Expr, IndexValue, Inside, Load, Op, Value
from tunegrad.ir.fusion import schedule
from tunegrad.ir.index import NEVER, Range, Valid, as_index, var
from tunegrad.ir.kernel import Axis, Kernel, Param, Reduce, Store
from tunegrad.ir.layout import Layout
from tunegrad.ir.verify.kernel import verify_kernel

A, B, R = Axis("a", 4), Axis("b", 6), Axis("r", 5)
LOAD = Load("x", (A.index, R.index), F32)


def kernel(
    expr: Expr = LOAD,
    store: Expr = Value("v", F32),  # noqa: B008
    index: tuple[object, ...] = (A.index,),
    op: Op = Op.ADD,
    x: Param = Param.dense("x", F32, (4, 5), "in"),  # noqa: B008
    y: Param = Param.dense("y", F32, (4,), "out"),  # noqa: B008
    axes: tuple[Axis, ...] = (A,),
    own: tuple[Axis, ...] = (),
) -> Kernel:
    stages = (Reduce("v", op, (R,), expr, expr.dtype), Store("y", index, store, own))  # type: ignore[arg-type]
    return Kernel((y, x), axes, stages, name="k")


def half(x: Expr) -> Expr:
    return Cast(x, F16)


F16X = Param.dense("x", F16, (4, 5), "in")
BROKEN: dict[str, tuple[Kernel, str]] = {
    "unknown parameter": (
        kernel(Load("z", (A.index, R.index), F32)),
        "load of z, which is not a parameter",
    ),
    "wrong load type": (kernel(Load("x", (A.index, R.index), F64)), "load of x as f64, it is f32"),
    "too few indices": (kernel(Load("x", (A.index,), F32)), "has 1 indices, x has 2 dimensions"),
    "axis out of scope": (
        kernel(Load("x", (A.index, B.index), F32)),
        "is not an axis of this stage",
    ),
    "axis of another extent": (
        kernel(Load("x", (A.index, var("r", 3)), F32)),
        "is not an axis of this stage",
    ),
    "reduce axis in the store": (kernel(store=LOAD), "is not an axis of this stage"),
    "condition out of scope": (
        kernel(Load("x", (A.index, R.index), F32, Valid((Range(B.index, 0, 3),)))),
        "is not an axis of this stage",
    ),
    "load past the end": (kernel(Load("x", (A.index, R.index + 1), F32)), "leaves"),
    "load before the start": (kernel(Load("x", (A.index - 1, R.index), F32)), "leaves"),
    "condition too wide": (
        kernel(Load("x", (A.index, R.index - 1), F32, Valid((Range(R.index, 0, 4),)))),
        "leaves",
    ),
    "unknown value": (kernel(store=Value("w", F32)), "w is read as f32"),
    "value of another type": (kernel(store=Cast(Value("v", F64), F32)), "v is read as f64"),
    "arithmetic in f16": (
        kernel(Cast(Apply(Op.NEG, (Load("x", (A.index, R.index), F16),), F16), F32), x=F16X),
        "f16 and bf16 are computed in f32",
    ),
    "f16 to f64": (
        kernel(Cast(Cast(Load("x", (A.index, R.index), F16), F64), F32), x=F16X),
        "to and from f32 only",
    ),
    "f16 to bf16": (
        kernel(Cast(Cast(Load("x", (A.index, R.index), F16), BF16), F32), x=F16X),
        "to and from f32 only",
    ),
    "cast to itself": (kernel(Cast(LOAD, F32)), "no cast from f32 to f32"),
    "mixed types": (kernel(Apply(Op.ADD, (LOAD, Const(1, I32)), F32)), "does not give f32"),
    "wrong result type": (kernel(Cast(Apply(Op.ADD, (LOAD, LOAD), F64), F32)), "does not give f64"),
    "too few arguments": (kernel(Apply(Op.ADD, (LOAD,), F32)), "does not give f32"),
    "exp of an int": (
        kernel(Cast(Apply(Op.EXP, (Cast(LOAD, I32),), I32), F32)),
        "does not give i32",
    ),
    "constant of another type": (
        kernel(Apply(Op.ADD, (LOAD, Const(1, F32)), F32)),
        "is not of type f32",
    ),
    "constant too large": (
        kernel(Cast(Const(1 << 31, I32), F32)),
        "constant 2147483648 does not fit i32",
    ),
    "cast to a pair": (
        kernel(Cast(Cast(LOAD, BF16X2), F32)),
        "words are made and taken apart by operations",
    ),
    "index as a pair": (
        kernel(store=Apply(Op.LOW, (IndexValue(A.index, BF16X2),), F32)),
        "can not be a bf16x2",
    ),
    "operation of programs": (
        kernel(Apply(Op.DOT2_ADD, (*(Apply(Op.PAIR, (LOAD, LOAD), BF16X2),) * 2, LOAD), F32)),
        "dot2_add is an operation of programs",
    ),
    "index as bool": (kernel(store=Cast(IndexValue(A.index, BOOL), F32)), "can not be a bool"),
    "fold by sub": (kernel(op=Op.SUB), "can not fold"),
    "sum of bools": (
        kernel(Cast(LOAD, BOOL), store=Cast(Value("v", BOOL), F32)),
        "can not fold bool",
    ),
    "accumulator in f16": (
        kernel(half(LOAD), store=Cast(Value("v", F16), F32)),
        "can not fold f16",
    ),
    "store of another type": (
        kernel(store=Cast(Value("v", F32), F64)),
        "store of f64 to y, which is f32",
    ),
    "store past the end": (kernel(index=(A.index + 1,)), "leaves"),
    "store written twice": (kernel(index=(A.index // 2 * 2,)), "writes some elements twice"),
    "store over too few points": (
        kernel(y=Param.dense("y", F32, (5,), "out")),
        "runs over 4 points for 5 elements",
    ),
    "store over too many points": (kernel(own=(B,)), "runs over 4\\*6 points for 4 elements"),
    "unused input": (kernel(Const(1.0, F32)), "input x is never loaded"),
    "layout of another shape": (
        kernel(x=replace(Param.dense("x", F32, (4, 5), "in"), layout=Layout.row_major((5, 4)))),
        "has a layout of shape",
    ),
    "one name twice": (kernel(own=(Axis("a", 1),)), "name 'a' is used twice"),
    "empty axis": (kernel(own=(Axis("e", 0),)), "axis e has extent 0"),
}


@pytest.mark.parametrize(("broken", "rule"), BROKEN.values(), ids=list(BROKEN))
def test_kernel_verifier_refuses(broken: Kernel, rule: str) -> None:
    with pytest.raises(VerifyError, match=f"kernel k: .*{rule}"):
        verify_kernel(broken)


def test_kernel_verifier_refuses_a_load_of_an_output() -> None:
    k = kernel(store=Apply(Op.ADD, (Value("v", F32), Load("y", (A.index,), F32)), F32))
    with pytest.raises(VerifyError, match="output y must be stored and never loaded"):
        verify_kernel(k)


def test_kernel_verifier_refuses_two_stores_to_one_output() -> None:
    k = kernel()
    with pytest.raises(VerifyError, match="stores to y write some elements twice"):
        verify_kernel(replace(k, stages=(*k.stages, k.stages[-1])))


def test_kernel_verifier_refuses_a_store_to_an_input() -> None:
    k = kernel()
    with pytest.raises(VerifyError, match="store to x, which is not an output"):
        verify_kernel(
            replace(k, stages=(*k.stages, Store("x", (A.index, as_index(0)), Const(0.0, F32))))
        )


def test_kernel_verifier_accepts_the_unbroken_one() -> None:
    verify_kernel(kernel())


def test_kernel_verifier_accepts_a_load_that_never_happens() -> None:
    verify_kernel(kernel(Load("x", (A.index + 9, R.index), F32, NEVER)))


def test_kernel_verifier_proves_large_kernels_without_running_through_them() -> None:
    x = relu(conv(tensor("x", 1, 256, 512, 512), weight("w", 256, 256, 3, 3), 1, 1))
    for out in (x, softmax(tensor("y", 4096, 4096))):
        for launch in schedule((out,)).launches:
            verify_kernel(launch.kernel)


def test_kernel_verifier_leaves_out_dimensions_that_stores_count_through() -> None:
    long, r, s = Axis("a", 1 << 20), Axis("r", 2), Axis("s", 2)
    param = Param.dense("y", F32, (1 << 20, 4), "out")
    evens = Store("y", (long.index, r.index * 2), Const(0.0, F32), (r,))
    odds = Store("y", (long.index * -1 + (1 << 20) - 1, s.index * 2 + 1), Const(1.0, F32), (s,))
    verify_kernel(Kernel((param,), (long,), (evens, odds), name="k"), points=100)
    again = replace(odds, index=(long.index, s.index * 2))
    with pytest.raises(VerifyError, match="stores to y write some elements twice"):
        verify_kernel(Kernel((param,), (long,), (evens, again), name="k"), points=100)


def test_kernel_verifier_does_not_run_through_an_axis_without_bound() -> None:
    long = Axis("a", 1 << 40)
    part = Store("y", (long.index,), Const(0.0, F32), (), Valid((Range(long.index, 0, 4),)))
    with pytest.raises(VerifyError, match="can not be proved to write each element once"):
        verify_kernel(Kernel((Param.dense("y", F32, (4,), "out"),), (long,), (part,), name="k"))


def test_kernel_verifier_bounds_all_its_searches_together() -> None:
    index = R.index * 2 - R.index // 2 * 3
    k = kernel(Load("x", (A.index, index), F32, Valid((Range(R.index, 0, 4),))))
    verify_kernel(k, points=5)
    with pytest.raises(VerifyError, match="can not be proved to be in"):
        verify_kernel(k, points=4)


def test_kernel_verifier_uses_conditions_in_bounds() -> None:
    inside = Valid((Range(R.index, 1, 5),))
    verify_kernel(kernel(Load("x", (A.index, R.index - 1), F32, inside)))
    scattered = Load(
        "x", (A.index, R.index * 2 - R.index // 2 * 3), F32, Valid((Range(R.index, 0, 4),))
    )
    verify_kernel(kernel(Apply(Op.WHERE, (Inside(inside), scattered, Const(0.0, F32)), F32)))
