"""A graph for Graphviz: a box per node with every argument, an arrow per source."""

from __future__ import annotations

import re
import shutil
import subprocess
from textwrap import dedent

import pytest
from test_graph_text import every_operation

import tunegrad as tg
from tunegrad.errors import ConfigError
from tunegrad.ir.graph import topological
from tunegrad.ir.text import print_dot

WANT = r"""
    digraph graph_ {
      node [shape=box, fontname="monospace", fontsize=10];
      edge [arrowsize=0.6];
      n0 [label="input a\nf32[2,3]", shape=ellipse];
      n1 [label="input b \"x\\y\"\nf32[1,3]", shape=ellipse];
      n2 [label="expand\nf32[2,3]"];
      n1 -> n2;
      n3 [label="map mul\nf32[2,3]"];
      n0 -> n3;
      n2 -> n3;
      n4 [label="reduce add axes=(1)\nf32[2,1]", shape=invtrapezium];
      n3 -> n4;
      n5 [label="reshape\nf32[2]"];
      n4 -> n5;
      n6 [label="full 0.0\nf32[2]", shape=plain];
      n7 [label="map max\nf32[2]", peripheries=2];
      n5 -> n7;
      n6 -> n7;
    }
"""


def sums() -> tg.Tensor:
    a, b = tg.Tensor.input("a", (2, 3)), tg.Tensor.input('b "x\\y"', (1, 3))
    return (a * b).sum(1).relu()


def test_dot_of_a_sum_of_products() -> None:
    assert tg.dump(sums(), "dot") == dedent(WANT).strip("\n")


def test_dot_has_every_node_and_every_source() -> None:
    outputs = every_operation()
    text, nodes = print_dot(outputs), topological(outputs)
    assert len(re.findall(r"^  n\d+ \[", text, re.MULTILINE)) == len(nodes)
    assert text.count(" -> ") == sum(len(n.srcs) for n in nodes)
    assert text.count("peripheries=2") == len(outputs)


def test_dump_of_several_tensors_is_one_graph() -> None:
    x = tg.Tensor.input("x", (4,))
    assert tg.dump([x.exp(), x.relu()]).splitlines()[-1] == "  out %1 %3"


def test_dump_in_another_form_is_an_error() -> None:
    with pytest.raises(ConfigError, match="dump: form 'png' is not one of text, dot"):
        tg.dump(sums(), "png")  # type: ignore[arg-type]


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not on this machine")
def test_graphviz_reads_it() -> None:
    text = print_dot(every_operation())
    subprocess.run(["dot", "-Tsvg"], input=text, text=True, check=True, capture_output=True)
