"""A graph as text: one line per node, sources before users, numbered in that order.

graph
  %0 = input a f32[64,256]
  %1 = reshape %0 f32[64,1,256]
  %2 = full 0.0 f32[64,32]
  %3 = map max %1 %2 f32[64,32]
  out %3
"""

from __future__ import annotations

from typing import Any, cast

from ..graph import ConstData, GraphOp, Node, topological


def print_graph(outputs: tuple[Node, ...]) -> str:
    """The text of a graph; equal graphs print alike, in any process."""
    numbers: dict[Node, int] = {}
    lines = ["graph"]
    for n in topological(outputs):
        numbers[n] = len(numbers)
        words = [str(n.op), *_before(n), *(f"%{numbers[s]}" for s in n.srcs), *_after(n)]
        shape = ",".join(map(str, n.shape))
        lines.append(f"  %{numbers[n]} = {' '.join(words)} {n.dtype}[{shape}]")
    lines.append("  out " + " ".join(f"%{numbers[n]}" for n in outputs))
    return "\n".join(lines)


def described(n: Node) -> str:
    """A node without its sources: its operation, names, values and arguments."""
    return " ".join((str(n.op), *_before(n), *_after(n)))


def _before(n: Node) -> tuple[str, ...]:
    """Texts between the operation and its sources: names, values, a map's or fold's operation."""
    arg = cast(Any, n.arg)
    if n.op is GraphOp.CONST:
        data = cast(ConstData, arg)
        return (*((data.name,) if data.name else ()), f"#{data.digest[:8]}")
    if n.op is GraphOp.FULL:
        return (repr(arg[2]),)
    if n.op is GraphOp.REDUCE:
        return (str(arg[0]),)
    if n.op in (GraphOp.INPUT, GraphOp.MAP):
        return (str(arg),)
    return ()


def _after(n: Node) -> tuple[str, ...]:
    """The argument of operations on dimensions."""
    arg = cast(Any, n.arg)
    if n.op in (GraphOp.IOTA, GraphOp.GATHER):
        return (f"dim={arg}",)
    if n.op is GraphOp.REDUCE:
        return (f"axes={_tuple(arg[1])}",)
    if n.op is GraphOp.PERMUTE:
        return (f"order={_tuple(arg)}",)
    if n.op is GraphOp.WITHIN:
        return (str(arg),)
    if n.op is GraphOp.CONTIGUOUS:
        return () if arg is None else (str(arg),)
    if n.op is GraphOp.FLIP:
        return (f"dims={_tuple(arg)}",)
    if n.op is GraphOp.PAD:
        return ("widths=" + _tuple(f"{a}:{b}" for a, b in arg),)
    if n.op is GraphOp.SHRINK:
        return ("limits=" + _tuple(f"{a}:{b}" for a, b in arg),)
    if n.op is GraphOp.WINDOW:
        return tuple(
            f"{k}={v}" for k, v in zip(("dim", "size", "stride", "dilation"), arg, strict=True)
        )
    return ()


def _tuple(items: Any) -> str:
    return f"({','.join(map(str, items))})"


_SHAPES = {
    GraphOp.INPUT: "ellipse",
    GraphOp.CONST: "cylinder",
    GraphOp.FULL: "plain",
    GraphOp.IOTA: "plain",
    GraphOp.REDUCE: "invtrapezium",
    GraphOp.CONTIGUOUS: "box3d",
}


def print_dot(outputs: tuple[Node, ...]) -> str:
    """The text of a graph for ``dot``; outputs have a double line. Equal graphs print alike.

    digraph graph_ {
      n0 [label="input a\\nf32[64,256]", shape=ellipse];
      n1 [label="full 0.0\\nf32[64,256]", shape=plain];
      n2 [label="map max\\nf32[64,256]", peripheries=2];
      n0 -> n2;
      n1 -> n2;
    }
    """
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
