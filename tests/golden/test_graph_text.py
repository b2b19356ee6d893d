"""A graph prints one line per node, with every operation's argument; equal graphs print alike in
any process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import numpy as np

from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import F16, F32, I32
from tunegrad.ir.expr import Op
from tunegrad.ir.graph import GraphOp, Node, topological
from tunegrad.ir.text import print_graph

ROOT = Path(__file__).parents[2]


def every_operation() -> tuple[Node, Node]:
    x = g.graph_input("x", (2, 3), F32)
    w = g.const(np.zeros((3, 2), np.float32), F32, "weight")
    nameless = g.const(np.ones((3, 2), np.float32), F32)
    a = g.permute(g.elementwise(Op.MUL, w, nameless), (1, 0))
    b = g.elementwise(Op.WHERE, g.elementwise(Op.LT, x, a), x, g.full(-0.5, (2, 3), F32))
    c = g.flip(g.shrink(g.pad(b, ((0, 1), (2, 0))), ((0, 2), (1, 5))), (1,))
    d = g.window(g.contiguous(c), 1, 2, stride=2, dilation=1)
    e = g.reduce(Op.MAX, g.expand(g.reshape(d, (2, 2, 2, 1)), (2, 2, 2, 3)), (1, 3))
    positions = g.within(g.iota((2, 3), 1, I32), g.Bounds("take", -3, 3))
    return g.cast(e, F16), g.gather(x, positions, 1)


WANT = """
    graph
      %0 = input x f32[2,3]
      %1 = const weight #DIGEST f32[3,2]
      %2 = const #DIGEST f32[3,2]
      %3 = map mul %1 %2 f32[3,2]
      %4 = permute %3 order=(1,0) f32[2,3]
      %5 = map lt %0 %4 bool[2,3]
      %6 = full -0.5 f32[2,3]
      %7 = map where %5 %0 %6 f32[2,3]
      %8 = pad %7 widths=(0:1,2:0) f32[3,5]
      %9 = shrink %8 limits=(0:2,1:5) f32[2,4]
      %10 = flip %9 dims=(1) f32[2,4]
      %11 = contiguous %10 f32[2,4]
      %12 = window %11 dim=1 size=2 stride=2 dilation=1 f32[2,2,2]
      %13 = reshape %12 f32[2,2,2,1]
      %14 = expand %13 f32[2,2,2,3]
      %15 = reduce max %14 axes=(1,3) f32[2,1,2,1]
      %16 = cast %15 f16[2,1,2,1]
      %17 = iota dim=1 i32[2,3]
      %18 = within %17 take -3:3 i32[2,3]
      %19 = gather %0 %18 dim=1 f32[2,3]
      out %16 %19
"""


def test_graph_prints_every_operation():
    outputs = every_operation()
    text = print_graph(outputs)
    for n in topological(outputs):
        if n.op is GraphOp.CONST:
            text = text.replace(n.arg.digest[:8], "DIGEST")
    assert text == dedent(WANT).strip("\n")
    assert {n.op for n in topological(outputs)} == set(GraphOp) - {GraphOp.IDENTITY}


def test_graph_prints_the_same_in_another_process():
    code = (
        "import sys; sys.path[:0] = [sys.argv[1], sys.argv[1] + '/tests/golden']\n"
        "from test_graph_text import every_operation; from tunegrad.ir.text.print_graph import "
        "print_graph\n"
        "print(print_graph(every_operation()))"
    )
    env = {**os.environ, "PYTHONHASHSEED": "99"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT)], env=env, check=True, capture_output=True, text=True
    )
    assert done.stdout.rstrip("\n") == print_graph(every_operation())


def test_graph_shared_node_is_printed_once():
    x = g.graph_input("x", (4,), F32)
    y = g.elementwise(Op.EXP, x)
    text = print_graph((g.elementwise(Op.ADD, y, y), y))
    assert text.count("exp") == 1
    assert text.endswith("out %2 %1")
