"""Graphs of any depth are built, pickled and scheduled, and the work grows with the nodes alone."""

import pickle
import sys
import weakref
from collections.abc import Callable

import numpy as np
import pytest

from tests.graph_builders import entered
from tunegrad.devices import host_device
from tunegrad.frontend import Tensor, cat
from tunegrad.ir.expr import Op
from tunegrad.ir.fusion import schedule
from tunegrad.ir.graph import _INTERNED, elementwise, topological
from tunegrad.planning import prepared


def chain(nodes: int) -> Tensor:
    """Elementwise, one after the other."""
    y = Tensor.input("x", (64,))
    for i in range(nodes // 4):  # two operations, and the number of each
        y = y * 1.0001 + float(i % 7)
    return y


def layers(nodes: int) -> Tensor:
    """Products with activations."""
    weights = [Tensor.input(f"w{i}", (64, 64)) for i in range(4)]
    y = Tensor.input("x", (32, 64))
    for i in range(nodes // 7):
        y = (y @ weights[i % 4]).relu()
    return y


def blocks(nodes: int) -> Tensor:
    """Attention with a residual."""
    weights = [Tensor.input(f"w{i}", (64, 64)) for i in range(4)]
    y = Tensor.input("x", (32, 64))
    for _ in range(nodes // 60):
        h = y.layer_norm()
        q, k, v = (h @ w for w in weights[:3])
        y = y + ((q @ k.T).softmax(-1) @ v) @ weights[3]
    return y


def wide(nodes: int) -> Tensor:
    """Many tensors joined into one."""
    return cat([Tensor.input(f"x{i}", (4,)) * 2 for i in range(nodes // 5)])


def around_one_input(count: int) -> Tensor:
    """Kernels that follow each other and all read one input."""
    x = y = Tensor.input("x", (8, 8))
    for i in range(count // 2):
        y = (y.exp() if i % 2 else y.tanh()) + x
    return y


def planned(tensor: Tensor):
    return schedule(prepared((tensor.node,), "contract", host_device(1).target))


def test_a_node_is_made_in_few_calls() -> None:
    x = Tensor.input("x", (4, 8)).node

    def made() -> None:
        y = x
        for _ in range(1000):
            y = elementwise(Op.EXP, elementwise(Op.ADD, y, x))

    names = entered(made)
    assert names.count("__new__") == 2000
    assert len(names) < 5 * 2000  # one of them for each that is forgotten


def test_a_node_that_is_no_more_is_forgotten() -> None:
    x = Tensor.input("x", (4, 8)).node
    y = elementwise(Op.EXP, elementwise(Op.EXP, x))
    assert elementwise(Op.EXP, elementwise(Op.EXP, x)) is y
    gone = weakref.ref(y)
    del y
    assert gone() is None
    assert all(known() is not None for known in list(_INTERNED.values()))


def test_deep_graph_is_pickled_and_scheduled() -> None:
    deep = chain(40_000)
    assert len(topological((deep.node,))) > 20_000
    again = pickle.loads(pickle.dumps(deep))
    assert again.node is deep.node
    assert planned(deep).launches


@pytest.mark.parametrize(
    ("make", "count"),
    [(chain, 1000), (layers, 1000), (blocks, 1000), (wide, 1000), (around_one_input, 3000)],
)
def test_work_of_scheduling_grows_with_the_nodes(make: Callable[[int], Tensor], count: int) -> None:
    small, large = make(count), make(4 * count)
    nodes = [len(topological((t.node,))) for t in (small, large)]
    planned(small)  # what is done once a process
    work = [len(entered(lambda t=t: planned(t))) for t in (small, large)]
    assert work[1] / work[0] < 1.25 * nodes[1] / nodes[0]


def test_equal_layers_are_made_canonical_once(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["tunegrad.ir.fusion.schedule"]
    done = []
    original = module.normalized
    monkeypatch.setattr(module, "normalized", lambda k, *rest: done.append(k) or original(k, *rest))
    plan = planned(layers(700))
    assert len(plan.launches) > 90
    assert len(done) <= 3


def test_deep_graph_of_known_arrays_is_computed() -> None:
    y = Tensor(np.ones(8, np.float32))
    for _ in range(3000):
        y = y + 1
    assert y.numpy().tolist() == [3001.0] * 8
