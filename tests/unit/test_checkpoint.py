"""tg.checkpoint: the same numbers as without, in less memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tests.verifiers.graph import verify_graph
from tunegrad.frontend import Tensor
from tunegrad.ir import graph as g
from tunegrad.ir.fusion import least_memory, live_bytes, schedule

LAYERS, ROWS, WIDTH = 16, 256, 32
RNG = np.random.default_rng(5)
WEIGHTS = [RNG.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 6 for _ in range(LAYERS)]
X = RNG.standard_normal((ROWS, WIDTH)).astype(np.float32)


def layers(x: Any, weights: Any) -> Any:
    for w in weights:
        x = (x @ w).tanh()
    return x


def chain(part: int) -> Callable[..., Any]:
    """The value and gradients of 16 layers, of which so many each are one part that is computed
    again; 0: none is.
    """

    def loss(weights: Any, x: Any) -> Any:
        if not part:
            return (layers(x, weights) ** 2).mean()
        for i in range(0, LAYERS, part):
            x = tg.checkpoint(layers, x, weights[i : i + part])
        return (x**2).mean()

    return tg.value_and_grad(loss)


def nodes(part: int) -> tuple[g.Node, ...]:
    weights = [Tensor.input(f"w{i}", w.shape) for i, w in enumerate(WEIGHTS)]
    value, slopes = chain(part)(weights, Tensor.input("x", X.shape))
    return (value.node, *(s.node for s in slopes))


def test_checkpoint_of_a_chain_needs_the_square_root() -> None:
    """In results of one layer: without, all 16 and the cotangent; in parts of 4, 4 that are kept, 4
    of the part at hand, and the cotangent.
    """
    layer = ROWS * WIDTH * 4
    peaks = {p: live_bytes(least_memory(schedule(nodes(p)))) for p in (0, 4)}
    assert peaks[0] >= 17 * layer
    assert peaks[4] <= 9.5 * layer


def test_checkpoint_needs_one_more_forward_pass_and_no_more() -> None:
    plain, again = (schedule(nodes(p)).launches for p in (0, 4))
    assert 0 < len(again) - len(plain) <= LAYERS


def test_compiled_checkpoint_gives_the_same_bits_in_less_memory() -> None:
    found = []
    for run in (chain(0), chain(4)):

        def step(x: Any, *weights: Any, run: Any = run) -> list[Any]:
            value, slopes = run(list(weights), x)
            return [value, *slopes]

        compiled = tg.compile(step, X, *WEIGHTS)
        found.append((compiled.memory_bytes, compiled(X, *WEIGHTS)))
    (most, plain), (less, again) = found
    assert less < 0.6 * most
    for a, b in zip(plain, again, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_checkpoint_takes_and_gives_structures() -> None:
    def inside(given: dict[str, Any], by: float, *, ints: Any) -> dict[str, Any]:
        y = given["x"].exp() * by
        return {"y": y, "pair": (y.sin(), ints + 1), "text": "as it is"}

    def loss(x: Any, run: Any) -> Any:
        found = run(inside, {"x": x * 2}, 3.0, ints=tg.arange(3))
        assert found["text"] == "as it is"
        return (found["y"] * found["pair"][0] * found["pair"][1].float()).sum()

    x = np.array([0.1, -0.2, 0.3], np.float32)
    plain = tg.grad(lambda x: loss(x, lambda f, *a, **k: f(*a, **k)))(x)
    np.testing.assert_array_equal(tg.grad(lambda x: loss(x, tg.checkpoint))(x), plain)


def test_checkpoint_passes_gradients_to_what_a_function_encloses() -> None:
    model = tg.nn.Sequential(tg.nn.Linear(4, 8), tg.nn.GELU(), tg.nn.Linear(8, 1))
    model.load(seed=2)
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)

    def loss(parameters: Any, again: bool) -> Any:
        def run(x: Any) -> Any:
            return tg.nn.functional_call(model, parameters, x)

        return ((tg.checkpoint(run, x * 1) if again else run(x * 1)) ** 2).sum()

    x = tg.Tensor(x)
    parameters = model.state_dict()
    plain, found = (
        tg.grad(lambda p, again=again: loss(p, again))(parameters) for again in (False, True)
    )
    assert plain.keys() == found.keys()
    for name in plain:  # kernels are others where layers were fused over the boundary
        np.testing.assert_allclose(found[name], plain[name], rtol=1e-4, atol=1e-5)


def test_checkpoint_inside_another_and_second_derivatives() -> None:
    def inner(x: Any) -> Any:
        return x.sin() * x

    def outer(x: Any) -> Any:
        return tg.checkpoint(inner, tg.checkpoint(inner, x).exp())

    def slopes(f: Any, x: Any) -> Any:
        return tg.grad(lambda x: tg.grad(lambda x: f(x).sum())(x).sum())(x)

    x = np.linspace(-1, 1, 5)
    plain = slopes(lambda x: inner(inner(x).exp()), x)
    np.testing.assert_allclose(slopes(lambda x: tg.checkpoint(outer, x), x), plain, rtol=1e-14)


def test_checkpoint_calls_its_function_once() -> None:
    calls = []

    def counted(x: Any) -> Any:
        calls.append(1)
        return x * x

    tg.grad(lambda x: tg.checkpoint(counted, x).sum())(np.ones(2, np.float32))
    assert len(calls) == 1


def test_checkpoint_without_a_gradient_is_the_call() -> None:
    x = Tensor.input("x", (3,))
    assert tg.checkpoint(lambda x: x.exp(), x).node is x.exp().node


@pytest.mark.parametrize("leaf", [g.graph_input("x", (3,), g.F32), g.full(2.0, (3,), g.F32)])
def test_apart_nodes_are_computed_from_the_same_memory(leaf: g.Node) -> None:
    x = g.reshape(leaf, (3, 1))
    node = g.elementwise(g.Op.MUL, g.apart(x), g.apart(g.apart(x)))
    verify_graph((node,))
    (launch,) = schedule((node,)).launches[-1:]
    assert len(launch.args) <= 2
