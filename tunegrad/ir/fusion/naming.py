"""Names for people: ``conv3x3s2 64->128 28x28 +relu``, ``matmul 128x768x768 +gelu``, ``softmax
1024x1024``.

Read off the nodes that a kernel computes; they mean nothing to the rest of the system.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from math import prod
from typing import Any, cast

from ..expr import Op
from ..graph import ConstData, GraphOp, Node, converts_reads
from ..kernel import Kernel
from .attention import is_attention
from .build import Draft
from .plan import Launch, LaunchPlan

__all__ = [
    "INPUT",
    "kernel_name",
    "kernel_origin",
    "layers_of",
]

INPUT = " (input)"
"""The mark in an origin after the name of a model's input."""

_MOVES = {
    GraphOp.PERMUTE: "transpose", GraphOp.RESHAPE: "copy", GraphOp.EXPAND: "expand",
    GraphOp.PAD: "pad",
    GraphOp.GATHER: "gather",
    GraphOp.SHRINK: "slice", GraphOp.FLIP: "flip", GraphOp.WINDOW: "window",
}  # fmt: skip


def kernel_origin(d: Draft) -> tuple[str, ...]:
    """The graph operations that a kernel holds, then the names of the constants and inputs it
    reads: ``("mul", "reduce", ..., "layer1.0.conv1.weight (folded)", "image (input)")``.
    """
    ops = [str(n.arg) if n.op is GraphOp.MAP else str(n.op) for n in d.inlined]
    names = [cast(ConstData, n.arg).name for n in d.reads.values() if n.op is GraphOp.CONST]
    inputs = [f"{n.arg}{INPUT}" for n in d.reads.values() if n.op is GraphOp.INPUT]
    return (*dict.fromkeys(ops), *(n for n in names if n), *inputs)


def kernel_name(d: Draft, k: Kernel) -> str:
    """A short description of what ``k``, drafted as ``d``, computes."""
    reduces = [n for n in d.inlined if n.op is GraphOp.REDUCE]
    if not reduces or not k.reduces:
        return f"{_elementwise(d)} {_shape(d.node.shape)}"
    main = max(reduces, key=lambda n: n.srcs[0].size)
    op = cast(Any, main.arg)[0]
    windows = [n for n in d.inlined if n.op is GraphOp.WINDOW]
    inside = _below(main, d)
    after = _epilogue([n for n in d.inlined if n not in inside and n.op is GraphOp.MAP], d)
    if is_attention(k):
        return f"attention {_attended(k)}"
    if len(k.reduces) > 1:
        return f"{_row_kernel(d)} {_shape(d.node.shape)}"
    if windows and any(n in inside for n in windows):
        return _windowed(d, main, windows) + after
    count, words = _words({n.arg for n in inside if n.op is GraphOp.MAP})
    product = op is Op.ADD and (words or _is_product(main.srcs[0]))
    if product and len({p.name for p in k.params if p.role != "out"}) > 1 and k.axes:
        shared = "x".join(str(a.extent) for a in k.axes)
        terms = prod(a.extent for a in k.reduces[0].axes)
        return f"matmul {shared}x{count * terms}{words}{after}"
    kind = {Op.ADD: "sum", Op.MUL: "prod", Op.MAX: "max", Op.MIN: "min"}[op]
    return f"{kind} {_shape(main.srcs[0].shape)}->{_shape(main.shape)}{after}"


def _words(maps: Collection[object]) -> tuple[int, str]:
    """Numbers in one factor of a sum of products, and the part of a kernel's name that says so."""
    dots = {Op.DOT2: (2, " bf16-dot"), Op.DOT4: (4, " int8-dot")}
    return next((found for op, found in dots.items() if op in maps), (1, ""))


def _is_product(terms: Node) -> bool:
    """True if the terms of a sum are products, whatever they are cast to."""
    while terms.op is GraphOp.CAST:
        terms = terms.srcs[0]
    return terms.op is GraphOp.MAP and terms.arg is Op.MUL


def _windowed(d: Draft, main: Node, windows: list[Node]) -> str:
    by_dim = {cast(Any, w.arg)[0]: cast(Any, w.arg) for w in windows}
    spec = [by_dim[dim] for dim in sorted(by_dim)]
    size = "x".join(str(a[1]) for a in spec)
    stride = f"s{spec[0][2]}" if spec[0][2] > 1 else ""
    op = cast(Any, main.arg)[0]
    maps = {n.arg for n in _below(main, d) if n.op is GraphOp.MAP}
    count, words = _words(maps)
    product = words or Op.MUL in maps
    image = d.node.shape[-2:]
    if product:
        weights = next(
            (n for n in d.reads.values() if n.op is GraphOp.CONST and len(n.shape) > 2), None
        )
        channels = f" {weights.shape[1] * count}->{weights.shape[0]}" if weights is not None else ""
        return f"conv{size}{stride}{channels} {_shape(image)}{words}"
    kind = "maxpool" if op is Op.MAX else "minpool" if op is Op.MIN else "avgpool"
    return f"{kind} {size}{stride} {_shape(image)}"


def _attended(k: Kernel) -> str:
    """Queries (of all heads), keys, and the numbers of a key and of a value, if they differ."""
    scores, _, _, values = k.reduces
    axes = (*k.axes, *scores.row, *scores.folds)
    wide = prod(a.extent for a in values.row), prod(a.extent for a in scores.folds)
    more = "" if wide[0] == wide[1] else f"x{wide[0]}"
    return "x".join(str(a.extent) for a in axes) + more


def _row_kernel(d: Draft) -> str:
    maps = {n.arg for n in d.inlined if n.op is GraphOp.MAP}
    folds = {cast(Any, n.arg)[0] for n in d.inlined if n.op is GraphOp.REDUCE}
    if Op.EXP in maps and Op.MAX in folds:
        return "softmax"
    if folds == {Op.ADD} and (Op.SQRT in maps or Op.RECIP in maps):
        return "layernorm"
    return "rows"


def _below(n: Node, d: Draft) -> set[Node]:
    """Nodes of the kernel that ``n`` is computed from, ``n`` included."""
    inlined = set(d.inlined)
    found: set[Node] = set()
    stack = [n]
    while stack:
        m = stack.pop()
        if m in inlined and m not in found:
            found.add(m)
            stack.extend(m.srcs)
    return found


def _epilogue(maps: list[Node], d: Draft) -> str:
    ops = {n.arg for n in maps}
    parts = []
    if any(n.arg is Op.ADD and any(_reads(s, d) for s in n.srcs) for n in maps):
        parts.append("+add")
    if Op.ERF in ops or Op.TANH in ops:
        products = sum(n.arg is Op.MUL for n in maps)
        parts.append("+gelu" if products > 1 else "+tanh" if Op.TANH in ops else "+erf")
    elif Op.MAX in ops:
        parts.append("+relu")
    elif Op.EXP in ops:
        parts.append("+exp")
    return "".join(" " + p for p in parts)


def _reads(n: Node, d: Draft) -> bool:
    """True if ``n`` is a tensor in memory of the output's size, widened or not."""
    n = n.srcs[0] if converts_reads(n) else n
    return n in d.reads.values() and n.size == d.node.size


def _elementwise(d: Draft) -> str:
    maps = list(dict.fromkeys(str(n.arg) for n in d.inlined if n.op is GraphOp.MAP))
    if maps:
        return "elementwise " + "-".join(reversed(maps[:4]))
    moves = [n.op for n in d.inlined if n.op in _MOVES]
    if any(n.op is GraphOp.GATHER for n in d.inlined):
        return "gather"
    if any(n.op is GraphOp.CAST for n in d.inlined):
        return "cast"
    if not d.reads:
        return "fill"
    return _MOVES[moves[0]] if moves else "copy"


def _shape(shape: tuple[int, ...] | list[int]) -> str:
    return "x".join(str(s) for s in shape if s != 1) or "1"


_OPERATIONS = frozenset((*map(str, GraphOp), *map(str, Op)))

_FOLDED = " (folded)"

_AFTER = "after "

_PART = re.compile(r"[^./]*[./]?")


def layers_of(plan: LaunchPlan) -> dict[str, tuple[str, ...]]:
    """By kernel key: where its launches come from, in their order, each once.

    A launch without parameters comes ``after`` those that wrote what it reads, or is named by the
    model's inputs that it reads; of what has neither there is nothing.

    launch reads layer2.0.conv1.weight (folded), layer2.0.bn1.bias (folded)  -->  layer2.0.conv1+bn1
    launch reads no parameter, but what query and key wrote                  -->  after query, key

    Parameters carry their names from modules to kernels (``kernel_origin``); parts of a name end
    with a dot, or with a slash as in ONNX files. A kernel that is launched several times comes from
    several layers.
    """
    wrote: dict[int, str] = {}
    found: dict[str, dict[str, None]] = {}
    for launch in plan.launches:
        args = [plan.memory(i) for i in launch.args]
        said = _module(launch) or _after(args, wrote) or _inputs(launch)
        for p, buffer in zip(launch.kernel.params, args, strict=True):
            if p.role == "out":
                wrote[buffer] = said
        found.setdefault(launch.kernel.key, {}).update({said: None} if said else {})
    return {key: tuple(layers) for key, layers in found.items()}


def _module(launch: Launch) -> str:
    """The modules whose parameters it reads, as ``layer2.0.conv1+bn1``; "" where it reads none."""
    names = [n for n in launch.origin if n not in _OPERATIONS and not n.endswith(INPUT)]
    owners = dict.fromkeys(_owner(n.removesuffix(_FOLDED)) for n in names)
    paths = [_PART.findall(owner)[:-1] for owner in owners]
    if not paths:
        return ""
    shared = 0
    while all(len(p) > shared + 1 and p[: shared + 1] == paths[0][: shared + 1] for p in paths):
        shared += 1
    return "".join(paths[0][:shared]) + "+".join("".join(p[shared:]) for p in paths)


def _owner(parameter: str) -> str:
    """The module of a parameter; a parameter that no module holds stands for itself."""
    return parameter.rpartition(".")[0] or parameter


def _after(args: list[int], wrote: dict[int, str]) -> str:
    """Origin of a launch without parameters: the layers that wrote what it reads, through kernels
    that have no parameters either.
    """
    before = dict.fromkeys(
        layer for i in args for layer in wrote.get(i, "").removeprefix(_AFTER).split(", ") if layer
    )
    return f"{_AFTER}{', '.join(before)}" if before else ""


def _inputs(launch: Launch) -> str:
    names = (n.removesuffix(INPUT) for n in launch.origin if n.endswith(INPUT))
    return "+".join(dict.fromkeys(names))
