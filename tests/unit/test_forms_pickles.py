"""Pickles of the four forms survive into another process, with another hash seed, however deep a
graph is.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import tunegrad
from tests.kernel_corpus import NAMES, corpus_kernel
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import F32
from tunegrad.ir.expr import Op
from tunegrad.ir.fusion import schedule
from tunegrad.ir.graph import Node
from tunegrad.ir.target import Target
from tunegrad.opts import Space

CPU = Target(
    name="cpu", kind="cpu", arch="generic", features=(), vector_bytes=16, registers=16, threads=1,
    l1_bytes=1 << 15,
    l2_bytes=1 << 19, l3_bytes=1 << 23,
)  # fmt: skip

LOADS = """
import pickle, sys
from tunegrad.ir import graph as g
from tunegrad.ir.fusion import schedule

nodes, forms = pickle.load(sys.stdin.buffer)
print(len(g.topological(nodes)), flush=True)
print(schedule(nodes) if len(g.topological(nodes)) < 100 else "", flush=True)
for form in forms:
    print(form.text if hasattr(form, "text") else form)
"""


def elsewhere(nodes: tuple[Node, ...], forms: tuple[object, ...] = ()) -> str:
    """What a process with another hash seed prints of unpickled forms."""
    root = Path(tunegrad.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", LOADS], input=pickle.dumps((nodes, forms)), check=True,
        capture_output=True,
        env=os.environ | {"PYTHONHASHSEED": "4711", "PYTHONPATH": str(root)},
    )  # fmt: skip
    return done.stdout.decode()


def deep(count: int) -> Node:
    """A chain of so many additions."""
    x = g.graph_input("x", (4,), F32)
    for _ in range(count):
        x = g.elementwise(Op.ADD, x, g.full(1.0, (4,), F32))
    return x


@pytest.mark.parametrize("depth", [1, 300, 1000, 20_000])
def test_pickle_of_a_deep_graph_is_the_same_graph(depth):
    node = deep(depth)
    assert pickle.loads(pickle.dumps(node)) is node


def test_pickle_of_a_deep_graph_survives_into_another_process():
    node = deep(20_000)
    assert elsewhere((node,)).split() == [str(len(g.topological((node,))))]


def test_pickle_of_a_shared_graph_is_not_unfolded():
    x = g.graph_input("x", (4,), F32)
    for _ in range(60):  # 2 to the 60th paths
        x = g.elementwise(Op.ADD, x, x)
    assert len(pickle.dumps(x)) < 20_000
    assert pickle.loads(pickle.dumps(x)) is x


def test_pickle_of_every_form_prints_the_same_in_another_process():
    x = deep(3)
    forms: list[object] = []
    for name in NAMES[:6]:
        kernel = corpus_kernel(name)
        space = Space(kernel, CPU)
        default = space.defaults()[0]
        forms += [kernel, space.tree(default), space.lower(default)]
    texts = [str(getattr(form, "text", form)) for form in forms]
    expected = [str(len(g.topological((x,)))), str(schedule((x,))), *texts]
    assert elsewhere((x,), tuple(forms)) == "".join(f"{text}\n" for text in expected)
