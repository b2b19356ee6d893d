"""Equal nodes are one node, and rewriting what was rewritten changes nothing."""

from __future__ import annotations

import gc
import random

import numpy as np

from tests.graph_fuzzer import random_array, random_graph
from tunegrad.frontend import Tensor
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import BOOL, F32, F64, I32
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.graph import GraphOp, Node

MIXED = (F32, F64, I32, BOOL)


def test_graph_of_a_thousand_equal_expressions_has_the_nodes_of_one() -> None:
    x = Tensor.input("interned", (4, 6))
    first = ((x * 2.0).relu().sum(1) + 1.0).node
    gc.collect()
    gc.freeze()  # what lives by now is looked at no more
    again = [((x * 2.0).relu().sum(1) + 1.0).node for _ in range(1_000)]
    assert all(node is first for node in again)
    gc.collect()
    assert not [o for o in gc.get_objects() if isinstance(o, Node)]


def with_constants(seed: int) -> tuple[Node, ...]:
    """A random graph half of whose inputs are constants."""
    rng, arrays = random.Random(seed), np.random.default_rng(seed)
    new: dict[Node, Node] = {}
    outputs = random_graph(rng, rng.randint(1, 14), MIXED)
    for n in g.topological(outputs):
        if n.op is GraphOp.INPUT and rng.random() < 0.5:
            new[n] = g.const(random_array(arrays, n.shape, n.dtype), n.dtype, str(n.arg))
        else:
            new[n] = Node(n.op, tuple(new[s] for s in n.srcs), n.arg, n.shape, n.dtype)
    return tuple(new[o] for o in outputs)


def test_graph_folded_twice_is_the_graph_folded_once() -> None:
    changed = 0
    for seed in range(1_000):
        outputs = with_constants(seed)
        once = fold_constants(outputs)
        twice = fold_constants(once)
        assert len(once) == len(twice)
        assert all(a is b for a, b in zip(once, twice, strict=True)), f"graph {seed}"
        changed += any(a is not b for a, b in zip(outputs, once, strict=True))
    assert changed > 300  # else there was nothing to fold
