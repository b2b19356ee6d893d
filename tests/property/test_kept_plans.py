"""Plans of random graphs that are kept on disk: each is read back as it was, by a key of its own
graph, and one of which a number or a word was changed is refused or read, never an error.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from tests import fuzzing
from tests.graph_fuzzer import random_graph
from tunegrad.compiling import Compiler, graph_key
from tunegrad.devices import host_device
from tunegrad.errors import IndexOutOfRange
from tunegrad.inference import realizing
from tunegrad.ir.dtypes import BOOL, F32, I32, I64
from tunegrad.ir.graph import Node
from tunegrad.runtime import ObjectCache

DEVICE = host_device(1)
ENGINE = DEVICE.open()


def drawn(case: int) -> tuple[Node, ...]:
    rng = fuzzing.rng("kept plans", case)
    return random_graph(rng, rng.randint(2, 8), (F32, I32, BOOL, I64), held=True)


def leaves(of: Any) -> list[tuple[Any, Any]]:
    """The places of all numbers and words of a JSON value: each as what holds it, and where."""
    places = list(of) if isinstance(of, dict) else range(len(of))
    found = []
    for at in places:
        found += leaves(of[at]) if isinstance(of[at], dict | list) else [(of, at)]
    return found


def changed(rng: random.Random, body: bytes) -> bytes:
    """The body of a plan with one number or word that is another."""
    plan = msgspec.json.decode(body)
    holder, at = rng.choice(leaves(plan))
    was = holder[at]
    if isinstance(was, bool) or was is None:
        holder[at] = not was
    elif isinstance(was, int):
        holder[at] = rng.choice([was + 1, was - 1, -was - 1, 1 << 40])
    else:
        cut = rng.randint(0, len(was))
        holder[at] = was[:cut] + rng.choice("09-(x") + was[cut + 1 :]
    return msgspec.json.encode(plan)


def test_a_kept_plan_is_read_back_and_a_changed_one_raises_nothing(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    compiler, graphs, counts = Compiler(cache), dict[str, tuple[Node, ...]](), Counter[str]()
    for case in range(fuzzing.count(12)):
        nodes = drawn(case)
        key = graph_key(nodes, DEVICE)
        if key is None:
            continue
        assert graphs.setdefault(key, nodes) == nodes, f"case {case}"
        try:
            made = realizing._planned(nodes, ENGINE)
        except IndexOutOfRange:
            continue
        compiler.keep(key, made, DEVICE)
        body, kept = cache.get(key), compiler.plan(key, DEVICE)
        if body is None or kept is None:
            assert body is None, f"case {case}"
            assert any(b.role == "const" for b in made.plan.buffers), f"case {case}"
            continue
        assert (kept.plan, kept.schedules, kept.guards) == (
            made.plan,
            made.schedules,
            made.guards,
        ), f"case {case}"
        counts["read back"] += 1
        rng = fuzzing.rng("changed plans", case)
        for _ in range(10):
            cache.put(key, changed(rng, body))
            counts["refused"] += Compiler(cache).plan(key, DEVICE) is None
    assert counts["read back"] > fuzzing.count(12) // 2
    assert counts["refused"] > 3 * counts["read back"]  # of ten about six: names mean nothing
