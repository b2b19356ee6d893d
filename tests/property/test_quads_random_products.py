"""Random products of bytes, with zero points, movements and padding, are the same sums in fours."""

from __future__ import annotations

import random

import numpy as np
import pytest
from quad_builders import VNNI, drawn

import tunegrad as tg
from tunegrad.frontend import Tensor
from tunegrad.ir.expr import Op
from tunegrad.ir.fusion import schedule
from tunegrad.ir.graph import GraphOp, topological
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.rewrites import quad_dots
from tunegrad.ir.verify.graph import verify_graph
from tunegrad.ir.verify.kernel import verify_kernel
from tunegrad.planning import prepared

EXTENTS = (1, 2, 3, 5, 8, 13, 16)


class _Product:
    """A random sum of products, and the values of its inputs."""

    def __init__(self, seed: int) -> None:
        self.rng, self.seed = random.Random(seed), seed
        self.values: dict[str, np.ndarray] = {}
        self.output = self._made()

    def _factor(self, name: str, *shape: int) -> Tensor:
        rng = self.rng
        kind = rng.choice(("u8", "i8"))
        values = drawn(shape, kind, self.seed)
        if name == "b" and rng.random() < 0.7:
            x = Tensor.constant(values)
        else:
            self.values[name] = values
            x = Tensor.input(name, shape, kind)
        wide = x.cast("i32")
        draw = rng.random()
        if draw < 0.2:
            wide = wide - rng.choice((3, 100, 128, -5, 700))
        elif draw < 0.4 and name == "a":
            wide = wide - rng.choice((x.amax(), x.amin(-1, keepdim=True))).cast("i32")
        return wide.flip(rng.randrange(x.ndim)) if rng.random() < 0.2 else wide

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
        product = _Product(seed)
        (want,) = evaluate((product.output.node,), product.values)
        names = list(product.values)
        model = tg.compile(
            lambda *xs, p=product, names=names: _on(p, dict(zip(names, xs, strict=True))),
            *(Tensor(product.values[n]) for n in names), threads=1 + seed % 2, store=False,
        )  # fmt: skip
        got = model(*(product.values[n] for n in names))
        np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}")


def _on(product: _Product, given: dict[str, Tensor]) -> Tensor:
    """The product of other inputs."""
    from tunegrad.frontend import substitute

    inputs = [n for n in topological((product.output.node,)) if n.op is GraphOp.INPUT]
    known = {n: given[str(n.arg)].node for n in inputs}
    (root,) = substitute((product.output.node,), known)
    return Tensor.of(root)
