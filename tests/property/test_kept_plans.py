"""Plans of random graphs that are kept on disk: each is read back as it was, by a key of its own
graph, and one of whose file a bit was changed is not used.
"""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path

import numpy as np

from tests import fuzzing
from tests.graph_fuzzer import random_graph
from tunegrad.compiling import Compiler, artifact, graph_key
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


def test_a_kept_plan_is_read_back_and_a_damaged_one_is_not_used(tmp_path: Path) -> None:
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
        compiler.keep(key, made, nodes, DEVICE)
        body, kept = cache.get(key), compiler.plan(key, nodes, DEVICE)
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
        rng, path = fuzzing.rng("damaged plans", case), cache.directory / f"{key}.o"
        for _ in range(10):
            damaged = bytearray(path.read_bytes())
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            path.write_bytes(damaged)
            assert Compiler(cache).plan(key, nodes, DEVICE) is None, f"case {case}"
            cache.put(key, body)
    assert counts["read back"] > fuzzing.count(12) // 2


def test_a_kept_file_calls_nothing(tmp_path: Path) -> None:
    """Neither a function of Python's, nor one of tunegrad's or what a module of it imported."""
    made = tmp_path / "made"
    module, values = "tunegrad.object_cache", "tunegrad.ir.dtypes"
    for where, name in (("os", "mkdir"), (module, "os.mkdir"), (module, "Path"), (values, "cache")):
        text = f"c{where}\n{name}\n(V{made}\ntR.".encode()
        assert artifact._unpickled(text) is None
        assert not made.exists()
    assert artifact._unpickled(pickle.dumps((F32, np.ones(3), Counter))) is None
    found = artifact._unpickled(pickle.dumps((F32, np.ones(3))))
    assert found[0] == F32
    assert found[1].tolist() == [1, 1, 1]
