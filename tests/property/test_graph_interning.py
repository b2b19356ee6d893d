"""Equal nodes are one node, and rewriting what was rewritten changes nothing."""

from __future__ import annotations

import gc
import random

from tests.graph_fuzzer import random_graph, with_constants
from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import BOOL, F32, F64, I32
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.graph import Node

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


def test_graph_folded_twice_is_the_graph_folded_once() -> None:
    changed = 0
    for seed in range(1_000):
        rng = random.Random(seed)
        outputs = with_constants(rng, random_graph(rng, rng.randint(1, 14), MIXED), 0.5)
        once = fold_constants(outputs)
        twice = fold_constants(once)
        assert len(once) == len(twice)
        assert all(a is b for a, b in zip(once, twice, strict=True)), f"graph {seed}"
        changed += any(a is not b for a, b in zip(outputs, once, strict=True))
    assert changed > 300  # else there was nothing to fold
