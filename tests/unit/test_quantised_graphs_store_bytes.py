"""Between two layers of a quantised network lie bytes: residuals and pools read them, too."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from quad_builders import VNNI

from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import F32, U8
from tunegrad.ir.expr import Op
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule
from tunegrad.ir.graph import GraphOp, Node, topological
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.rewrites import Product, Scale, find_products, quantised
from tunegrad.planning import prepared

IMAGE = Tensor.input("x", (1, 4, 12, 12), "f32")
_RNG = np.random.default_rng(0)
FILTERS = [
    (_RNG.standard_normal(s) / 6).astype(np.float32) for s in ((8, 4, 3, 3), *[(8, 8, 3, 3)] * 3)
]
LAST = (_RNG.standard_normal((288, 5)) / 9).astype(np.float32)


def network() -> tuple[Node, ...]:
    """A convolution and a pool, a block with a residual, and a linear layer."""
    first, left, right, third = (Tensor.constant(w) for w in FILTERS)
    y = IMAGE.conv2d(first, padding=1).relu().max_pool2d(2)
    z = y.conv2d(left, padding=1).relu().conv2d(right, padding=1)
    z = (z + y).relu().conv2d(third, padding=1).relu()
    return fold_constants(((z.reshape(1, -1) @ Tensor.constant(LAST)).node,))


def in_bytes(outputs: tuple[Node, ...]) -> tuple[Node, ...]:
    products = find_products(outputs)
    x = np.random.default_rng(1).standard_normal((1, 4, 12, 12)).astype(np.float32)
    values = evaluate(tuple(p.tensor for p in products), {"x": x})
    scales = {
        p.tensor: Scale.of(float(v.min()), float(v.max()))
        for p, v in zip(products, values, strict=True)
    }
    return quantised(outputs, products, scales)


def test_no_float_tensor_lies_between_layers() -> None:
    plan = schedule(prepared(in_bytes(network()), "contract", VNNI, model=True))
    made = [b for launch in plan.launches for b in map(plan.buffers.__getitem__, launch.args)]
    inner = {b for b in made if b.data is None and b.id not in (*plan.inputs, *plan.outputs)}
    assert inner
    assert not [b for b in inner if b.dtype == F32]


def test_between_layers_nothing_is_divided_bounded_or_copied() -> None:
    """A relu is what bytes do that saturate, a residual has one scale with the sum, and a pool is
    stored as the next layer reads it.
    """
    outputs = prepared(in_bytes(network()), "contract", VNNI, model=True)
    maps = [n.arg for n in topological(outputs) if n.op is GraphOp.MAP]
    assert maps.count(Op.DIV) == 1  # of the image
    assert Op.MAX not in maps
    copies = [x.kernel for x in schedule(outputs).launches if not x.kernel.reduces]
    assert len(copies) == 1  # the image's


def test_outputs_are_near_those_in_f32() -> None:
    x = np.random.default_rng(1).standard_normal((1, 4, 12, 12)).astype(np.float32)
    (full,), (narrow,) = (evaluate(g, {"x": x}) for g in (network(), in_bytes(network())))
    assert 0 < np.abs(narrow - full).max() < 0.1 * np.abs(full).max()


def _found(build: Callable[[Tensor], Tensor], *shape: int) -> tuple[Product, ...]:
    return find_products(fold_constants((build(Tensor.input("x", shape, "f32")).node,)))


def test_products_are_convolutions_and_linear_layers() -> None:
    w = Tensor.constant(FILTERS[0])
    assert [p.free for p in _found(lambda x: x.conv2d(w), 1, 4, 6, 6)] == [(0,)]
    assert [p.along for p in _found(lambda x: x.conv2d(w), 1, 4, 6, 6)] == [(1, 1)]
    one = Tensor.constant(FILTERS[1][:4, :1])
    each = _found(lambda x: x.conv2d(one, groups=4), 1, 4, 6, 6)
    assert [(p.free, p.along) for p in each] == [((0,), None)]
    assert not _found(lambda x: x @ x.transpose(), 4, 4)
    assert not _found(lambda x: (x * Tensor.constant(LAST[:4, 0])).sum(), 4)


def test_heads_side_by_side_are_one_dimension() -> None:
    w = Tensor.constant(LAST[:12])

    def projected(x: Tensor) -> Tensor:  # (heads, rows, width) to (rows, heads * width)
        return x.relu().permute(1, 0, 2).reshape(6, 12) @ w

    (p,) = _found(projected, 3, 6, 4)
    assert p.along is not None
    assert p.tensor.shape[p.along[0]] == 12


def test_a_residual_reads_f32_beside_a_wide_linear_layer_alone() -> None:
    """A residual of 1,024 products an element reads the tensor, one of 512 the bytes."""
    for wide, bytes_read in ((1024, 0), (512, 1)):
        x = Tensor.input("x", (4, 8), "f32").exp()
        w = Tensor.constant(
            np.ones((8, wide), np.float32) / np.arange(1, wide + 1, dtype=np.float32)
        )
        outputs = fold_constants(((x @ w).node, (x * 2.0).node))
        (p,) = find_products(outputs)
        _, residual = quantised(outputs, (p,), {p.tensor: Scale.of(0.0, 8.0)})
        casts = [n for n in topological((residual,)) if n.dtype == U8]
        assert bool(casts) == bool(bytes_read), wide
