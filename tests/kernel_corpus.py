"""Small kernels of every kind that models have, for tests that need many: made by the front end and
fusion.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tunegrad.frontend import Tensor, functional, grad
from tunegrad.frontend.nodes import folds, indexing
from tunegrad.ir.dtypes import F32
from tunegrad.ir.expr import Apply, Const, Load, Op, Value
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import Fusion, blocked, schedule
from tunegrad.ir.graph import Node
from tunegrad.ir.index import Range, Valid
from tunegrad.ir.kernel import Axis, Kernel, Param, Reduce, Store
from tunegrad.ir.variants import parts_of

__all__ = ["GRAPHS", "NAMES", "corpus_kernel", "graph_of", "kernels_of"]


def _x(*shape: int, dtype: str = "f32") -> Tensor:
    return Tensor.input(f"x{'_'.join(map(str, shape))}{dtype}", shape, dtype)


def _w(*shape: int) -> Tensor:
    rng = np.random.default_rng(sum(shape))
    return Tensor.constant(rng.standard_normal(shape).astype(np.float32))


def _conv(ci: int, co: int, h: int, k: int, stride: int, padding: int, **more: Any) -> Tensor:
    x, w = _x(1, ci, h, h), _w(co, ci // more.get("groups", 1), k, k)
    y = x.conv2d(w, _w(co), stride=stride, padding=padding, **more)
    return (y * 1.5).relu()


def _residual() -> Tensor:
    x, w = _x(1, 6, 5, 5), _w(6, 6, 3, 3)
    mid = (x * 2.0).contiguous()
    return (mid.conv2d(w, _w(6), padding=1) + mid).relu()


def _conv_blocked() -> Kernel:
    """A convolution between two others, its images with channels in blocks of 4."""
    x = _x(1, 8, 7, 7).conv2d(_w(8, 8, 1, 1)).conv2d(_w(12, 8, 3, 3), _w(12), padding=1).relu()
    nodes = fold_constants((x.conv2d(_w(5, 12, 3, 3)).node,))
    return schedule(nodes, images=blocked(4)).launches[1].kernel


def _gemm_prime() -> Tensor:
    return (_x(7, 11) @ _w(11, 17) + _w(17)).gelu()


_MAKERS: dict[str, Callable[[], Tensor]] = {
    "gemm": lambda: _x(13, 9) @ _x(9, 21),
    "gemm_square": lambda: _x(16, 16) @ _w(16, 16),
    "gemm_prime": _gemm_prime,
    "linear": lambda: _x(5, 24) @ _w(19, 24).transpose(0, 1),
    "gemv": lambda: _x(37, 40) @ _x(40),
    "batched": lambda: _x(3, 5, 8) @ _x(3, 8, 18),
    "scores": lambda: (_x(2, 6, 8) @ _x(2, 7, 8).transpose(1, 2)) * 0.125,
    "conv3x3": lambda: _conv(4, 17, 6, 3, 1, 1),
    "conv3x3s2": lambda: _conv(3, 8, 9, 3, 2, 1),
    "conv1x1": lambda: _conv(8, 16, 5, 1, 1, 0),
    "conv1x1s2": lambda: _conv(5, 18, 6, 1, 2, 0),
    "conv5x5": lambda: _conv(2, 5, 7, 5, 1, 2),
    "conv_dilated": lambda: _conv(2, 6, 9, 3, 1, 2, dilation=2),
    "conv_grouped": lambda: _conv(4, 8, 5, 3, 1, 1, groups=2),
    "conv_depthwise": lambda: _conv(6, 6, 5, 3, 1, 1, groups=6),
    "conv_residual": _residual,
    "max_pool": lambda: _x(1, 5, 9, 9).max_pool2d(3, stride=2, padding=1),
    "avg_pool": lambda: _x(1, 6, 8, 8).avg_pool2d(2),
    "global_pool": lambda: _x(1, 20, 5, 5).mean((2, 3)),
    "softmax": lambda: _x(5, 23).softmax(-1),
    "softmax_columns": lambda: _x(9, 20).softmax(0),
    "layer_norm": lambda: _x(4, 33).layer_norm(_w(33), _w(33)),
    "row_sum": lambda: _x(6, 45).sum(1),
    "column_sum": lambda: _x(45, 21).sum(0),
    "full_sum": lambda: _x(7, 19).sum(),
    "row_max": lambda: _x(6, 37).max(1),
    "transpose": lambda: _x(19, 22).transpose(0, 1).contiguous(),
    "add": lambda: _x(3, 50) + _x(50),
    "gelu": lambda: _x(131).gelu(),
    "pad": lambda: _x(5, 7).pad(((1, 2), (0, 3)), value=2.5),
    "flip": lambda: _x(6, 18).flip(1) * 2.0,
    "integers": lambda: _x(4, 19, dtype="i32") * 3 + 1,
    "doubles": lambda: _x(9, 12, dtype="f64").sum(1),
    "halves": lambda: _x(40, dtype="f16") + 1.0,
    "compare": lambda: _x(35) < _x(1),
    "bytes": lambda: (_x(5, 37, dtype="u8") >> 1) % 7 + 200,
    "embedding": lambda: _indexed(indexing.embedding, _x(9, 20), _x(3, 4, dtype="i32")),
    "gather": lambda: _indexed(
        lambda x, i: indexing.gather(x, i, 1), _x(5, 7) * 2.0, _x(5, 18, dtype="i64")
    ),
    "gather_sums": lambda: _indexed(
        lambda x, i: indexing.take(x, i, 0), _x(11, 6), _x(4, 5, dtype="u8")
    ).sum(1),
    "gather_padded": lambda: _indexed(
        lambda x, i, j: indexing.index(x, (i, None, j)),
        _x(4, 5, 6),
        _x(3, dtype="i16"),
        _x(3, dtype="i64"),
    ).pad(((0, 1), (2, 0))),
    "argmax": lambda: _indexed(lambda x: folds.argextremum(Op.MAX, x, 1), _x(6, 37)),
    "argmin_columns": lambda: _indexed(
        lambda x: folds.argextremum(Op.MIN, x, 0), _x(9, 19, dtype="i16")
    ),
    "cumsum": lambda: _indexed(lambda x: folds.cumulative("sum", x, 1), _x(5, 21)),
    "cumsum_long": lambda: _indexed(lambda x: folds.cumulative("sum", x, 0), _x(70, 3)),
    "ranks": lambda: _indexed(lambda x: folds.argsort(x, 1), _x(3, 18)),
    "next_best": lambda: _indexed(lambda x: folds.topk(x, 2, 1)[1], _x(2, 131)),
    "exchange": lambda: _indexed(
        lambda x, i: folds.exchanged(x, i, 4, 2, descending=False),
        _x(1, 5),
        _x(1, 8, dtype="i32"),
    ),
    "scatter": lambda: _indexed(
        lambda x, i, s: indexing.scatter(x, i, s, 0, "add"),
        _x(9, 17),
        _x(4, 17, dtype="i32"),
        _x(4, 17),
    ),
}


def _indexed(function: Callable[..., Node], *tensors: Tensor) -> Tensor:
    return Tensor.of(function(*(t.node for t in tensors)))


def _part(name: str, variant: str, at: int) -> Kernel:
    """A kernel of a variant of a corpus entry."""
    return parts_of(corpus_kernel(name), variant)[at]


def _masked_stores() -> Kernel:
    """Rows in pairs, the second of the last pair missing; a store with an axis of its own; shared
    subexpressions.

    Y[2a+i] = 2 X[a].max() + i        Z[s, a] = X[a].max() + B[s]  for s in two parts
    """
    a, k, s, t = Axis("a", 4), Axis("k", 9), Axis("s", 8), Axis("t", 8)
    params = (
        Param.dense("Y", F32, (7,), "out"), Param.dense("Z", F32, (13, 4), "out"),
        Param.dense("X", F32, (4, 9), "in"), Param.dense("B", F32, (13,), "const"),
    )  # fmt: skip
    top = Reduce("v0", Op.MAX, (k,), Load("X", (a.index, k.index), F32), F32)
    double = Apply(Op.MUL, (Value("v0", F32), Const(2.0, F32)), F32)
    more = Apply(Op.ADD, (double, Const(1.0, F32)), F32)
    inside = Valid((Range(t.index + 8, 0, 13),))
    left = Apply(Op.ADD, (Value("v0", F32), Load("B", (s.index,), F32)), F32)
    right = Apply(Op.ADD, (Value("v0", F32), Load("B", (t.index + 8,), F32, inside)), F32)
    stores = (
        Store("Y", (a.index * 2,), double),
        Store("Y", (a.index * 2 + 1,), more, (), Valid((Range(a.index * 2 + 1, 0, 7),))),
        Store("Z", (s.index, a.index), left, (s,)),
        Store("Z", (t.index + 8, a.index), right, (t,), inside),
    )
    return Kernel(params, (a,), (top, *stores), "masked stores").canonical()


def _masked_sums() -> Kernel:
    """A product whose rows go to two places, the masked one first: partial sums must not live in
    it.
    """
    a, b, k = Axis("a", 4), Axis("b", 18), Axis("k", 6)
    params = (
        Param.dense("Y", F32, (7, 18), "out"), Param.dense("A", F32, (4, 6), "in"),
        Param.dense("B", F32, (6, 18), "in")
    )  # fmt: skip
    terms = (Load("A", (a.index, k.index), F32), Load("B", (k.index, b.index), F32))
    total = Reduce("v0", Op.ADD, (k,), Apply(Op.MUL, terms, F32), F32)
    double = Apply(Op.MUL, (Value("v0", F32), Const(2.0, F32)), F32)
    row = a.index * 2 + 1
    masked = Store("Y", (row, b.index), double, (), Valid((Range(row, 0, 7),)))
    return Kernel(
        params,
        (a, b),
        (total, masked, Store("Y", (a.index * 2, b.index), Value("v0", F32))),
        "masked sums",
    )


def _attention(
    q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], *, causal: bool = False
) -> Kernel:
    """Attention of such queries, keys and values as one kernel."""
    y = functional.scaled_dot_product_attention(_x(*q), _x(*k), _x(*v), is_causal=causal)
    fusion = Fusion.of(fold_constants((y.node,)))
    return fusion.toggled({*fusion.drafts.attentions()}).schedule().launches[-1].kernel


def _siblings(*outputs: Tensor) -> Kernel:
    """The kernel that stores all outputs."""
    (launch,) = schedule(tuple(t.node for t in outputs)).launches
    return launch.kernel


def _adam() -> Kernel:
    """Parameters and both moments after a step."""
    p, m, v, grad = (Tensor.input(name, (5, 27), "f32") for name in ("p", "m", "v", "g"))
    first, second = m * 0.9 + grad * 0.1, v * 0.99 + grad * grad * 0.01
    return _siblings(p - first / ((second * second + 0.25).sqrt() + 0.5), first, second)


def _row_sums() -> Kernel:
    """Two sums of the rows of one tensor, and their maxima."""
    x, y = _x(9, 37), Tensor.input("y", (9, 37), "f32")
    return _siblings(x.sum(1), (x * y).sum(1), x.max(1))


def _strided_gradient() -> Kernel:
    """The gradient of an image behind a stride of 2: some phases have fewer terms."""

    def product(x: Tensor) -> Tensor:
        return (x.conv2d(_x(5, 6, 3, 3), stride=2, padding=1) * _x(1, 5, 4, 4)).sum()

    return schedule((grad(product)(_x(1, 6, 8, 8)).node,)).launches[-1].kernel


_KERNELS: dict[str, Callable[[], Kernel]] = {
    "winograd_input": lambda: _part("conv3x3", "winograd2", 0),
    "winograd_product": lambda: _part("conv3x3", "winograd2", 1),
    "winograd_output": lambda: _part("conv3x3", "winograd2", 2),
    "winograd_residual_input": lambda: _part("conv_residual", "winograd4", 0),
    "winograd_residual_output": lambda: _part("conv_residual", "winograd4", 2),
    "conv_blocked": _conv_blocked,
    "masked_stores": _masked_stores,
    "masked_sums": _masked_sums,
    "adam": _adam,
    "row_sums": _row_sums,
    "strided_gradient": _strided_gradient,
    "attention": lambda: _attention((2, 9, 6), (2, 13, 6), (2, 13, 5)),
    "attention_causal": lambda: _attention((2, 11, 4), (2, 11, 4), (2, 11, 6), causal=True),
    "attention_one_query": lambda: _attention((2, 1, 8), (2, 21, 8), (2, 21, 3)),
}

GRAPHS = tuple(_MAKERS)
NAMES = (*GRAPHS, *_KERNELS)


def graph_of(name: str) -> tuple[Node, ...]:
    """The graph of a corpus entry, one of ``GRAPHS``."""
    return fold_constants((_MAKERS[name]().node,))


@cache
def kernels_of(name: str) -> tuple[Kernel, ...]:
    """Every kernel of a corpus entry."""
    if name in _KERNELS:
        return (_KERNELS[name](),)
    return tuple(launch.kernel for launch in schedule(graph_of(name)).launches)


def corpus_kernel(name: str) -> Kernel:
    """The last kernel of a corpus entry, the one that makes its output."""
    return kernels_of(name)[-1]
