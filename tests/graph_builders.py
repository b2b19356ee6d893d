"""Graphs of the operations that models are made of, and a way to run a schedule with the kernel
interpreter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import BOOL, F32
from tunegrad.ir.expr import Op
from tunegrad.ir.fusion import LaunchPlan
from tunegrad.ir.graph import Node
from tunegrad.ir.interpret.kernel import interpret

Array = NDArray[Any]


def tensor(name: str, *shape: int) -> Node:
    return g.graph_input(name, shape, F32)


def weight(name: str, *shape: int) -> Node:
    rng = np.random.default_rng([*name.encode(), *shape])
    return g.const((rng.standard_normal(shape) / 4).astype(np.float32), F32, name)


def add(a: Node, b: Node) -> Node:
    return g.elementwise(Op.ADD, a, b)


def scale(x: Node, by: float) -> Node:
    return g.elementwise(Op.MUL, x, g.full(by, x.shape, x.dtype))


def relu(x: Node) -> Node:
    return g.elementwise(Op.MAX, x, g.full(0, x.shape, x.dtype))


def gelu(x: Node) -> Node:
    inner = g.elementwise(Op.ERF, scale(x, 0.5**0.5))
    return scale(g.elementwise(Op.MUL, x, add(inner, g.full(1, x.shape, x.dtype))), 0.5)


def along(b: Node, shape: tuple[int, ...], dim: int) -> Node:
    """A vector spread over a shape."""
    return g.expand(g.reshape(b, tuple(s if d == dim else 1 for d, s in enumerate(shape))), shape)


def conv(x: Node, w: Node, stride: int = 1, padding: int = 0, groups: int = 1) -> Node:
    n, c, _, _ = x.shape
    o, _, kh, kw = w.shape
    x = g.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    x = g.window(g.window(x, 2, kh, stride), 3, kw, stride)
    ho, wo = x.shape[2:4]
    shape = (n, groups, o // groups, c // groups, ho, wo, kh, kw)
    a = g.expand(g.reshape(x, (n, groups, 1, c // groups, ho, wo, kh, kw)), shape)
    b = g.expand(g.reshape(w, (1, groups, o // groups, c // groups, 1, 1, kh, kw)), shape)
    return g.reshape(g.reduce(Op.ADD, g.elementwise(Op.MUL, a, b), (3, 6, 7)), (n, o, ho, wo))


def conv_bn(x: Node, name: str, out: int, size: int = 3, stride: int = 1) -> Node:
    """A convolution with its folded batch norm."""
    y = conv(x, weight(name, out, x.shape[1], size, size), stride, size // 2)
    return add(y, along(weight(f"{name}.bias", out), y.shape, 1))


def max_pool(x: Node, size: int = 3, stride: int = 2, padding: int = 1) -> Node:
    widths = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    inside = g.pad(g.full(True, x.shape, BOOL), widths)
    padded = g.pad(x, widths)
    x = g.elementwise(Op.WHERE, inside, padded, g.full(float("-inf"), padded.shape, x.dtype))
    x = g.window(g.window(x, 2, size, stride), 3, size, stride)
    return g.reshape(g.reduce(Op.MAX, x, (4, 5)), x.shape[:4])


def matmul(a: Node, b: Node) -> Node:
    """(..., m, k) @ (..., k, n)"""
    *batch, m, k = a.shape
    n = b.shape[-1]
    shape = (*batch, m, n, k)
    order = (*range(len(batch)), len(batch) + 1, len(batch))
    left = g.expand(g.reshape(a, (*batch, m, 1, k)), shape)
    right = g.expand(g.reshape(g.permute(b, order), (*batch, 1, n, k)), shape)
    return g.reshape(
        g.reduce(Op.ADD, g.elementwise(Op.MUL, left, right), (len(shape) - 1,)), shape[:-1]
    )


def linear(x: Node, name: str, out: int) -> Node:
    w = weight(name, out, x.shape[-1])
    y = matmul(x, g.permute(w, (1, 0)))
    return add(y, along(weight(f"{name}.bias", out), y.shape, 1))


def softmax(x: Node) -> Node:
    last = (len(x.shape) - 1,)
    e = g.elementwise(
        Op.EXP, g.elementwise(Op.SUB, x, g.expand(g.reduce(Op.MAX, x, last), x.shape))
    )
    return g.elementwise(Op.DIV, e, g.expand(g.reduce(Op.ADD, e, last), x.shape))


def attention(*shape: int) -> Node:
    """Of queries, keys and values of that shape, (heads, tokens, width): scaled scores, softmax,
    weighted sum.
    """
    q, k, v = (tensor(name, *shape) for name in "qkv")
    return matmul(softmax(scale(matmul(q, g.permute(k, (0, 2, 1))), 0.5)), v)


def residual_block(x: Node) -> Node:
    """A convolution, a folded batch norm, the sum with ``x``, relu."""
    return relu(add(conv_bn(x, "w", x.shape[1]), x))


def layer_norm(x: Node, name: str = "ln") -> Node:
    last = len(x.shape) - 1
    n = x.shape[last]
    mean = scale(g.reduce(Op.ADD, x, (last,)), 1 / n)
    d = g.elementwise(Op.SUB, x, g.expand(mean, x.shape))
    var = scale(g.reduce(Op.ADD, g.elementwise(Op.MUL, d, d), (last,)), 1 / n)
    r = g.elementwise(Op.RECIP, g.elementwise(Op.SQRT, add(var, g.full(1e-5, var.shape, F32))))
    y = g.elementwise(Op.MUL, d, g.expand(r, x.shape))
    y = g.elementwise(Op.MUL, y, along(weight(f"{name}.weight", n), x.shape, last))
    return add(y, along(weight(f"{name}.bias", n), x.shape, last))


def resnet18(x: Node, width: int = 64, classes: int = 1000) -> Node:
    x = max_pool(relu(conv_bn(x, "conv1", width, 7, 2)))
    for stage in range(4):
        for block in range(2):
            out, stride = width << stage, 2 if stage and not block else 1
            name = f"layer{stage + 1}.{block}"
            y = conv_bn(relu(conv_bn(x, f"{name}.conv1", out, 3, stride)), f"{name}.conv2", out)
            skip = conv_bn(x, f"{name}.down", out, 1, stride) if x.shape[1] != out else x
            x = relu(add(y, skip))
    n, c, h, w = x.shape
    x = g.reshape(scale(g.reduce(Op.ADD, x, (2, 3)), 1 / (h * w)), (n, c))
    return linear(x, "fc", classes)


def encoder_layer(x: Node, heads: int, hidden: int) -> Node:
    """x is (tokens, width)."""
    t, width = x.shape
    d = width // heads

    def split(y: Node) -> Node:
        return g.permute(g.reshape(y, (1, t, heads, d)), (0, 2, 1, 3))

    q, k, v = (split(linear(x, name, width)) for name in ("q", "k", "v"))
    p = softmax(scale(matmul(q, g.permute(k, (0, 1, 3, 2))), d**-0.5))
    o = g.reshape(g.permute(matmul(p, v), (0, 2, 1, 3)), (t, width))
    x = layer_norm(add(linear(o, "out", width), x), "ln1")
    return layer_norm(add(linear(gelu(linear(x, "ffn1", hidden)), "ffn2", width), x), "ln2")


def held(s: LaunchPlan, memory: dict[int, Array], buffer: int) -> Array:
    """The elements of a buffer, which may be a view of one that is in memory."""
    b = s.buffers[buffer]
    if b.base is None:
        return memory[buffer]
    whole = memory[b.base].view(np.uint8)
    return whole[b.start : b.start + b.nbytes].view(b.dtype.numpy)


def run_schedule(s: LaunchPlan, inputs: dict[str, Array]) -> list[Array]:
    """The outputs of a schedule, each kernel run by the interpreter."""
    memory: dict[int, Array] = {}
    for b in s.buffers:
        if b.role == "input":
            memory[b.id] = b.layout.pack(inputs[b.name])
        elif b.data is not None:
            memory[b.id] = b.layout.pack(b.data.array)
        elif not b.layout.size:
            memory[b.id] = np.zeros(0, b.dtype.numpy)
    for launch in s.launches:
        params = dict(zip((p.name for p in launch.kernel.params), launch.args, strict=True))
        reads = {
            p.name: held(s, memory, params[p.name]).view(p.dtype.numpy)
            for p in launch.kernel.params
            if p.role != "out"
        }
        for name, flat in interpret(launch.kernel, reads).items():
            b = s.buffers[params[name]]
            if b.base is None:
                memory[b.id] = flat
                continue
            whole = memory.setdefault(b.base, np.zeros(s.buffers[b.base].nbytes, np.uint8))
            whole.view(np.uint8)[b.start : b.start + b.nbytes] = flat.view(np.uint8)
    return [s.buffers[i].layout.unpack(memory[i]) for i in s.outputs]


def entered(function: Callable[[], object]) -> list[str]:
    """Names of the functions of Python that run meanwhile, ``function`` first."""
    names: list[str] = []

    def on_event(frame: Any, event: str, _arg: object) -> None:
        if event == "call":
            names.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        function()
    finally:
        sys.setprofile(before)
    return names


def calls_of(function: Callable[[], object]) -> int:
    """How many functions, Python's and C's, are called while it runs: the same in every run, on a
    busy machine too.
    """
    count = 0

    def on_event(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(on_event)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count
