"""Random products of bytes, with zero points, movements and padding, are the same sums in fours;
those of dequantised bytes, too.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from quad_builders import VNNI, drawn

import tunegrad as tg
from tests.verifiers.graph import verify_graph
from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import dtype_of
from tunegrad.ir.expr import Op
from tunegrad.ir.fusion import schedule
from tunegrad.ir.graph import GraphOp, topological
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.rewrites import quad_dots
from tunegrad.ir.verify.kernel import verify_kernel
from tunegrad.planning import prepared

EXTENTS = (1, 2, 3, 5, 8, 13, 16)


class _Product:
    """A random sum of products, and the values of its inputs.

    ``dequantised``: bytes less a byte, times powers of two, in f32: sums of them are exact.
    """

    def __init__(self, seed: int, dequantised: bool = False) -> None:
        self.rng, self.seed, self.dequantised = random.Random(seed), seed, dequantised
        self.values: dict[str, np.ndarray] = {}
        self.output = self._made()
        if dequantised and self.rng.random() < 0.7:
            self.output = self._quantised(self.output)

    def _factor(self, name: str, *shape: int) -> Tensor:
        rng = self.rng
        kind = rng.choice(("u8", "i8"))
        values = drawn(shape, kind, self.seed)
        if name == "b" and rng.random() < 0.7:
            x = Tensor.constant(values)
        else:
            self.values[name] = values
            x = Tensor.input(name, shape, kind)
        wide = x.cast("f32" if self.dequantised else "i32")
        draw = rng.random()
        if self.dequantised:
            wide = self._scaled(wide, kind)
        elif draw < 0.2:
            wide = wide - rng.choice((3, 100, 128, -5, 700))
        elif draw < 0.4 and name == "a":
            wide = wide - rng.choice((x.amax(), x.amin(-1, keepdim=True))).cast("i32")
        return wide.flip(rng.randrange(x.ndim)) if rng.random() < 0.2 else wide

    def _scaled(self, x: Tensor, kind: str) -> Tensor:
        """``x`` less a zero point, times one scale, or one for each position of a dimension."""
        rng = self.rng
        zero = np.array(rng.choice((0, 3, 100)), dtype_of(kind).numpy)
        scales = np.full((1,) * x.ndim, 2.0 ** rng.randint(-3, 3), np.float32)
        if rng.random() < 0.3:
            own = rng.randrange(x.ndim)
            twice = [rng.choice((1, 2)) for _ in range(x.shape[own])]
            scales = scales * np.array(twice, np.float32).reshape(-1, *(1,) * (x.ndim - 1 - own))
        return (x - Tensor.constant(zero).cast("f32")) * Tensor.constant(scales)

    def _quantised(self, x: Tensor) -> Tensor:
        """``x`` in steps of a power of two, in bytes; perhaps of what it is with a bias, or as
        floats again, quantised once more.
        """
        rng = self.rng
        kind = dtype_of(rng.choice(("u8", "i8")))
        zero = Tensor.constant(np.array(rng.choice((0, 5)), kind.numpy)).cast("f32")
        scale = Tensor.constant(np.float32(2.0 ** rng.randint(2, 8)))
        if rng.random() < 0.5:
            x = x + Tensor.constant(drawn(x.shape[-1:], "i8", self.seed)).cast("f32")
        for _ in range(rng.randint(1, 2)):
            steps = ((x / scale).round() + zero).clamp(float(kind.least), float(kind.greatest))
            made = steps.cast(kind.name)
            x = (made.cast("f32") - zero) * scale
            if x.ndim == 4 and min(x.shape[2:]) > 1 and rng.random() < 0.5:
                x = x.max_pool2d(2, padding=rng.choice((0, 1)))
        return x if rng.random() < 0.5 else made

    def _made(self) -> Tensor:
        rng = self.rng
        m, n, k = (rng.choice(EXTENTS) for _ in range(3))
        form = rng.choice(("matmul", "batches", "turned", "image", "row", "heads"))
        if form == "matmul":
            return self._factor("a", m, k) @ self._factor("b", k, n)
        if form == "batches":
            lead = rng.choice(((), (1,), (3,)))
            return self._factor("a", 3, m, k) @ self._factor("b", *lead, k, n)
        if form == "turned":
            return self._factor("a", 2, m, k) @ self._factor("b", n, k).transpose()
        if form == "heads":
            subscripts = rng.choice(("bmhk,hkn->bmn", "bmhk,hkn->bhmn", "bmhk,hkn->mn"))
            return tg.einsum(subscripts, self._factor("a", 3, m, 2, k), self._factor("b", 2, k, n))
        groups, channels, filters = rng.choice((1, 1, 2)), rng.choice((1, 3, 4, 8)), 4
        window = rng.choice((1, 2, 3))
        rank = 2 if form == "image" else 1
        image = self._factor("a", 2, channels * groups, *(7, 6)[:rank])
        taps = self._factor("b", filters * groups, channels, *(window,) * rank)
        conv = image.conv2d if rank == 2 else image.conv1d
        sizes = {"padding": rng.choice((0, 1, 2)), "dilation": rng.choice((1, 2))}
        return conv(taps, stride=rng.choice((1, 2)), groups=groups, **sizes)


@pytest.mark.parametrize("chunk", range(8))
def test_random_products_of_bytes_keep_their_sums(chunk: int) -> None:
    found = 0
    for seed in range(40 * chunk, 40 * chunk + 40):
        product = _Product(seed)
        before = (product.output.node,)
        after = quad_dots(before, VNNI)
        verify_graph(after)
        for launch in schedule(prepared(before, "strict", VNNI)).launches:
            verify_kernel(launch.kernel)
        (want,), (got,) = evaluate(before, product.values), evaluate(after, product.values)
        np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}")
        found += any(n.op is GraphOp.MAP and n.arg is Op.DOT4 for n in topological(after))
    assert found >= 10


def test_random_products_compiled_give_their_sums() -> None:
    for seed in range(1000, 1025):
        _compiled(_Product(seed))


def test_random_products_of_dequantised_bytes_compiled_give_their_sums() -> None:
    """All that run on bytes on a CPU that multiplies them, and every sixth."""
    found = 0
    for seed in range(2000, 2120):
        product = _Product(seed, dequantised=True)
        before = (product.output.node,)
        on_bytes = quad_dots(before, VNNI, floats=True) != before
        found += on_bytes
        if on_bytes or seed % 6 == 0:
            _compiled(product)
    assert found >= 10


def _compiled(product: _Product) -> None:
    """Compare kernels of this CPU, on one thread or two, with the interpreter: to the bit."""
    (want,) = evaluate((product.output.node,), product.values)
    names = list(product.values)
    model = tg.compile(
        lambda *xs: _on(product, dict(zip(names, xs, strict=True))),
        *(Tensor(product.values[n]) for n in names), threads=1 + product.seed % 2, store=False,
    )  # fmt: skip
    got = model(*(product.values[n] for n in names))
    np.testing.assert_array_equal(got, want, err_msg=f"seed {product.seed}")


def _on(product: _Product, given: dict[str, Tensor]) -> Tensor:
    """The product of other inputs."""
    from tunegrad.frontend import substitute

    inputs = [n for n in topological((product.output.node,)) if n.op is GraphOp.INPUT]
    known = {n: given[str(n.arg)].node for n in inputs}
    (root,) = substitute((product.output.node,), known)
    return Tensor.of(root)
