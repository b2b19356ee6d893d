"""Kernels that write the new value of an input in its memory: steps of training, small."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import F32
from tunegrad.ir.expr import Apply, Const, Expr, Load, Op, Value
from tunegrad.ir.fusion import Fusion, overwriting, schedule
from tunegrad.ir.kernel import Axis, Kernel, Param, Reduce, Store

__all__ = ["OVERWRITING", "overwriting_kernel"]


def _x(name: str, *shape: int, dtype: str = "f32") -> Tensor:
    return Tensor.input(name, shape, dtype)


def _made(y: Tensor, old: str) -> Kernel:
    """The last kernel of a graph, over the input of that name."""
    plan = schedule((y.node,))
    launch = plan.launches[-1]
    source = next(b.id for b in plan.buffers if b.name == old)
    made = overwriting(launch.kernel, "p0", f"p{launch.args.index(source)}")
    assert made is not None, launch.kernel
    return made


def _softmax_step() -> Kernel:
    w, g = _x("w", 5, 13), _x("g", 5, 13)
    return _made(w - (g.softmax(1)), "w")


def _momentum() -> Kernel:
    """A product that ends in a new moment, and a new parameter made of that."""
    w, m, x, g = _x("w", 13, 21), _x("m", 13, 21), _x("x", 9, 13), _x("g", 9, 21)
    moment = m * 0.9 + x.T @ g
    outputs, news = (moment.node, (w - moment * 0.1).node), ((0, "m"), (1, "w"))
    (launch,) = Fusion.of(outputs, news=news).as_run().launches
    assert len(launch.kernel.overwritten) == 2, launch.kernel
    return launch.kernel


def _scaled(x: Expr, factor: float) -> Expr:
    return Apply(Op.MUL, (Const(factor, F32), x), F32)


def _sum(a: Expr, b: Expr) -> Expr:
    return Apply(Op.ADD, (a, b), F32)


def _adam(rows: int, columns: int) -> Kernel:
    """Parameter and both moments by one kernel, which stores the parameter first."""
    shape = rows, columns
    axes = Axis("i", rows), Axis("j", columns)
    at = tuple(a.index for a in axes)
    names = ("w", "m", "v")
    params = (
        *(Param(f"{n}1", F32, shape, "out", Param.dense("", F32, shape, "out").layout, n)
          for n in names),
        *(Param.dense(n, F32, shape, "in") for n in (*names, "g")),
    )  # fmt: skip
    w, m, v, g = (Load(n, at, F32) for n in (*names, "g"))
    m1 = _sum(_scaled(m, 0.9), _scaled(g, 0.1))
    v1 = _sum(_scaled(v, 0.99), _scaled(Apply(Op.MUL, (g, g), F32), 0.01))
    size = _sum(Apply(Op.SQRT, (Apply(Op.MAX, (v1, Const(0.0, F32)), F32),), F32), Const(0.1, F32))
    w1 = _sum(w, _scaled(Apply(Op.DIV, (m1, size), F32), -0.01))
    stores = tuple(Store(f"{n}1", at, x) for n, x in zip(names, (w1, m1, v1), strict=True))
    return Kernel(params, axes, stores).canonical()


def _halves() -> Kernel:
    """The first three rows move by one tensor, the others by the sums of another one's rows."""
    w = Param("w1", F32, (8, 9), "out", Param.dense("", F32, (8, 9), "out").layout, "w")
    params = (
        w,
        *(Param.dense(n, F32, s, "in") for n, s in (("w", (8, 9)), ("g", (3, 9)))),
        (Param.dense("h", F32, (9, 7), "in")),
    )
    j, i, k, r = Axis("j", 9), Axis("i", 3), Axis("k", 5), Axis("r", 7)
    total = Reduce("s", Op.ADD, (r,), Load("h", (j.index, r.index), F32), F32)
    first, rest = (i.index, j.index), (k.index + 3, j.index)
    stages = (
        total,
        Store("w1", first, _sum(Load("w", first, F32), Load("g", first, F32)), (i,)),
        Store("w1", rest, _sum(Load("w", rest, F32), Value("s", F32)), (k,)),
    )
    return Kernel(params, (j,), stages).canonical()


_MAKERS: dict[str, Callable[[], Kernel]] = {
    "over: add": lambda: _made(_x("a", 7, 19) + _x("b", 7, 19), "a"),
    "over: add large": lambda: _made(_x("a", 64, 48) + _x("b", 64, 48) * 2.0, "a"),
    "over: turned add": lambda: _made(_x("a", 12, 17) + _x("b", 17, 12).T, "a"),
    "over: gemm": lambda: _made(_x("w", 13, 21) - (_x("x", 9, 13).T @ _x("g", 9, 21)) * 0.1, "w"),
    "over: gemm square": lambda: _made(
        _x("w", 32, 32) * 0.9 + (_x("x", 32, 32) @ _x("g", 32, 32)), "w"
    ),
    "over: momentum": _momentum,
    "over: rows": lambda: _made(_x("b", 11) - _x("g", 6, 11).sum(0), "b"),
    "over: softmax": _softmax_step,
    "over: i32": lambda: _made(_x("a", 7, 32, dtype="i32") * _x("b", 7, 32, dtype="i32"), "a"),
    "over: adam": lambda: _adam(5, 24),
    "over: adam odd": lambda: _adam(3, 7),
    "over: parts": _halves,
}
OVERWRITING = tuple(_MAKERS)


@cache
def overwriting_kernel(name: str) -> Kernel:
    """The kernel of that name, verified."""
    return _MAKERS[name]()
