"""A graph as the text of Graphviz: a box per node, an arrow from every source.

digraph graph_ {
  n0 [label="input a\\nf32[64,256]", shape=ellipse];
  n1 [label="full 0.0\\nf32[64,256]", shape=plain];
  n2 [label="map max\\nf32[64,256]", peripheries=2];
  n0 -> n2;
  n1 -> n2;
}
"""

from __future__ import annotations

from ..graph import GraphOp, Node, topological
from .print_graph import described

__all__ = ["print_dot"]

_SHAPES = {
    GraphOp.INPUT: "ellipse",
    GraphOp.CONST: "cylinder",
    GraphOp.FULL: "plain",
    GraphOp.IOTA: "plain",
    GraphOp.REDUCE: "invtrapezium",
    GraphOp.CONTIGUOUS: "box3d",
}


def print_dot(outputs: tuple[Node, ...]) -> str:
    """The text of a graph for ``dot``; outputs have a double line. Equal graphs print alike."""
    numbers = {n: i for i, n in enumerate(topological(outputs))}
    lines = [
        "digraph graph_ {",
        '  node [shape=box, fontname="monospace", fontsize=10];',
        "  edge [arrowsize=0.6];",
    ]
    for n, i in numbers.items():
        shape = f", shape={_SHAPES[n.op]}" if n.op in _SHAPES else ""
        double = ", peripheries=2" if n in outputs else ""
        extents = ",".join(map(str, n.shape))
        label = f"{_escaped(described(n))}\\n{n.dtype}[{extents}]"
        lines.append(f'  n{i} [label="{label}"{shape}{double}];')
        lines += [f"  n{numbers[s]} -> n{i};" for s in n.srcs]
    return "\n".join([*lines, "}"])


def _escaped(text: str) -> str:
    """Text inside the quotes of a label."""
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return shown.replace("\\", "\\\\").replace('"', '\\"')
