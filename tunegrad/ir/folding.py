"""Constant folding: parts of a graph that no input reaches, computed once.

Its rewrites are exact, so folding changes no bit of any result (sums of constants are folded as
numpy folds them):

    op(CONST, FULL ...)       -> CONST              each constant-only part, at its last computing
                                                    node; movement above it stays
    cast(CONST)               stays                 from floats of 16 bits: half the bytes are read;
                                                    of one byte: it is known to be whole
    tf32(CONST)               stays                 the kernel's text says what it multiplies
    op(expand(a), expand(b))  -> expand(op(a, b))   of constants: no broadcast is ever stored
    op(FULL, FULL)            -> FULL
    cast(FULL)                -> FULL               and so is any movement of it
    pad(FULL 0)               -> FULL 0
    x * 1, x / 1, x - 0       -> x                  and x + -0.0
    x + 0                     -> x                  of integers only (-0.0 + 0.0 is 0.0)
    x * 0, x & 0              -> 0                  of integers and truths only (0 * inf is NaN)
    where(FULL, a, b)         -> a or b
    u8(i32(clamp(x, 0, 255))) -> u8(x)              of floats, whose casts saturate; i8, too
    reduce(FULL)              -> FULL               max, min; sums with exact partial sums
    reduce(expand(x))         -> expand(reduce(x))  along dimensions that stay (``repeats``)
"""

from __future__ import annotations

import hashlib
import weakref
from math import isinf, isnan, prod
from typing import Any
from typing import cast as typed

import numpy as np

from tunegrad.config import machine_bytes
from tunegrad.errors import ModelError

from . import graph as g
from .dtypes import F32, I8, I32, U8, DType
from .expr import Op
from .graph import MOVEMENT, GraphOp, Node, Step, topological
from .interpret.evaluate import evaluate
from .interpret.numeric import Array, compute, convert
from .rewrites.sums import Repeats, is_known, stepped

__all__ = ["fold_constants", "known_outputs", "saturated", "values_of"]

_FOLDED: weakref.WeakKeyDictionary[Node, Node] = weakref.WeakKeyDictionary()
"""Constant-only nodes that were evaluated before."""


def fold_constants(outputs: tuple[Node, ...], steps: list[Step] | None = None) -> tuple[Node, ...]:
    """The same outputs with constant parts computed, and reductions of what repeats itself once; a
    graph without any comes back as the same nodes.
    """
    new: dict[Node, Node] = {}
    constant: dict[Node, bool] = {}
    repeats = Repeats()
    order = topological(outputs)
    for n in order:
        srcs = tuple(new[s] for s in n.srcs)
        made = g.with_sources(n, srcs)
        made = _full_rules(made) or saturated(made) or made
        if is_known(made, constant):
            made = _narrow(made) or made
        new[n] = made = repeats.reduced_once(made)
        repeats.of(made)  # so that no later question goes far down
    return _with_constants(stepped(outputs, new, steps), steps)


def known_outputs(outputs: tuple[Node, ...], steps: list[Step] | None = None) -> tuple[Node, ...]:
    """The same outputs, each that no input reaches as a constant: nothing has to run for it."""
    constant: dict[Node, bool] = {}
    for n in topological(outputs):
        is_known(n, constant)
    new = {o: _evaluated(o) if o.size and constant[o] else o for o in outputs}
    return stepped(outputs, new, steps)


def values_of(n: Node) -> Array:
    """The numbers of a node that no input reaches."""
    return typed(g.ConstData, _evaluated(n).arg).array


def _with_constants(outputs: tuple[Node, ...], steps: list[Step] | None) -> tuple[Node, ...]:
    """Computing nodes that hold a CONST and no input, replaced by their values.

    Only the last of each part. Of a widening cast, or a rounding to tf32, that a computation
    reads, only what that reads.
    """
    order = topological(outputs)
    holds: dict[Node, bool] = {}
    free: dict[Node, bool] = {}
    for n in order:
        holds[n] = n.op is GraphOp.CONST or any(holds[s] for s in n.srcs)
        free[n] = n.op is not GraphOp.INPUT and all(free[s] for s in n.srcs)
    needed: set[Node] = set()
    shown = {o for o in outputs if free[o]}
    wanted = shown | {s for n in order if not free[n] for s in n.srcs if free[s]}
    for n in reversed(order):
        if n in wanted and n.op in MOVEMENT | {GraphOp.CONTIGUOUS}:
            wanted.add(n.srcs[0])
            shown.update(n.srcs if n in shown else ())
        elif n in wanted and n not in shown and (g.converts_reads(n) or _is_byte(n)):
            wanted.add(n.srcs[0])
        elif n in wanted and n.srcs and holds[n]:
            needed.add(n)
    new: dict[Node, Node] = {}
    for n in order:
        srcs = tuple(new[s] for s in n.srcs)
        if n in needed:
            new[n] = _evaluated(n)
        else:
            new[n] = g.with_sources(n, srcs)
    return stepped(outputs, new, steps)


def _is_byte(n: Node) -> bool:
    """True for one byte as a float, a zero point: a kernel that reads a byte knows what it is."""
    x = n.srcs[0] if n.op is GraphOp.CAST and n.dtype == F32 else n
    return x is not n and x.op is GraphOp.CONST and x.dtype in (I8, U8) and x.size == 1


def _evaluated(n: Node) -> Node:
    """A node that no input reaches, as a constant.

    Raises ModelError where that takes more memory than the machine has.
    """
    if n.op is GraphOp.CONST:
        return n
    found = _FOLDED.get(n)
    if found is None:
        order = topological((n,))
        largest = max((m for m in order if m.op not in MOVEMENT), key=lambda m: m.size)
        if largest.size * max(8, largest.dtype.bits) > 8 * machine_bytes():
            raise ModelError(
                f"a constant is computed by {largest.op} of shape {largest.shape}, which takes "
                f"more memory than the {machine_bytes():,} bytes of this machine"
            )
        read = [typed(g.ConstData, m.arg) for m in order if m.op is GraphOp.CONST]
        name = next((c.name for c in read if c.name), "")
        data = g.ConstData(
            _made_of(order), name and f"{name} (folded)", np.asarray(evaluate((n,))[0], order="C"),
            min((c.memory for c in read if c.memory < 0), default=0),
        )  # fmt: skip
        found = _FOLDED[n] = Node(GraphOp.CONST, (), data, n.shape, n.dtype)
    return found


def _made_of(order: list[Node]) -> str:
    """A digest of how the last of some nodes, sources first, is computed: what it tells apart needs
    no second pass over the bytes.
    """
    place = {n: i for i, n in enumerate(order)}
    whole = hashlib.sha256(b"folded")
    for n in order:
        what = n.arg.digest if isinstance(n.arg, g.ConstData) else repr(n.arg)
        srcs = [place[s] for s in n.srcs]
        whole.update(f"\n{n.op} {srcs} {what} {n.shape} {n.dtype}".encode())
    return whole.hexdigest()


def _narrow(n: Node) -> Node | None:
    """op(expand(a), expand(b)) -> expand(op(a, b)), along dimensions that every source repeats"""
    if n.op is GraphOp.CAST and n.srcs[0].op is GraphOp.EXPAND:
        return g.expand(g.cast(n.srcs[0].srcs[0], n.dtype), n.shape)
    if n.op is not GraphOp.MAP or all(s.op is GraphOp.FULL for s in n.srcs):
        return None
    below = [
        s.srcs[0].shape if s.op is GraphOp.EXPAND else s.shape
        for s in n.srcs
        if s.op is not GraphOp.FULL
    ]
    small = tuple(max(extents) for extents in zip(*below, strict=True))
    if small == n.shape or 0 in n.shape:
        return None
    srcs = []
    for s in n.srcs:
        if s.op is GraphOp.FULL:
            srcs.append(Node(GraphOp.FULL, (), s.arg, small, s.dtype))
        else:
            srcs.append(g.expand(s.srcs[0] if s.op is GraphOp.EXPAND else s, small))
    return g.expand(Node(GraphOp.MAP, tuple(srcs), n.arg, small, n.dtype), n.shape)


def _value(n: Node) -> Any:
    """The number of a FULL node, or None."""
    return typed(tuple[str, str, Any], n.arg)[2] if n.op is GraphOp.FULL else None


def _full_rules(n: Node) -> Node | None:
    if n.op is GraphOp.MAP:
        return _map_rules(n)
    if not n.srcs or (value := _value(n.srcs[0])) is None:
        return None
    if n.op is GraphOp.CAST:
        array = convert(np.asarray(value, n.srcs[0].dtype.compute.numpy), typed(DType, n.arg))
        return g.full(array.item(), n.shape, n.dtype)
    if n.op is GraphOp.REDUCE:
        return _reduced_full(n, value)
    if n.op is GraphOp.PAD and (value != 0 or str(value) == "-0.0"):
        return None
    return g.full(value, n.shape, n.dtype) if n.op in MOVEMENT else None


def saturated(n: Node) -> Node | None:
    """A cast of floats to bytes that saturates, for one that clamps them first; a NaN is 0."""
    if n.op is not GraphOp.CAST or n.dtype not in (I8, U8):
        return None
    x = n.srcs[0].srcs[0] if n.srcs[0].op is GraphOp.CAST else n.srcs[0]
    if n.srcs[0].dtype not in (x.dtype, I32) or not x.dtype.is_float:
        return None
    for op, bound in ((Op.MIN, n.dtype.greatest), (Op.MAX, n.dtype.least)):
        if x.op is not GraphOp.MAP or x.arg is not op or _value(x.srcs[1]) != bound:
            return None
        x = x.srcs[0]
    return g.cast(x, n.dtype)


def _map_rules(n: Node) -> Node | None:
    op = typed(Op, n.arg)
    values = [_value(s) for s in n.srcs]
    if all(v is not None for v in values):
        arrays = [np.asarray(v, s.dtype.compute.numpy) for v, s in zip(values, n.srcs, strict=True)]
        if op in (Op.FLOORDIV, Op.MOD) and values[1] == 0:
            return None
        return g.full(convert(compute(op, *arrays), n.dtype).item(), n.shape, n.dtype)
    if op is Op.WHERE and values[0] is not None:
        return n.srcs[1] if values[0] else n.srcs[2]
    if op in (Op.MUL, Op.AND) and 0 in values and not n.dtype.is_float:
        return g.full(False if n.dtype.is_bool else 0, n.shape, n.dtype)
    if op is Op.MUL and 1 in values and not n.dtype.is_half:
        return n.srcs[1 - values.index(1)]
    if op is Op.DIV and values[1] == 1:
        return n.srcs[0]
    if op is Op.SUB and values[1] == 0 and str(values[1]) != "-0.0":
        return n.srcs[0]
    if op is Op.ADD:
        for i in (0, 1):
            if values[i] == 0 and (n.dtype.is_int or str(values[i]) == "-0.0"):
                return n.srcs[1 - i]
    return None


def _reduced_full(n: Node, value: Any) -> Node | None:
    op, axes = typed(tuple[Op, tuple[int, ...]], n.arg)
    count = prod(n.srcs[0].shape[a] for a in axes)
    if not count:
        return None
    if op in (Op.MAX, Op.MIN):
        return g.full(value, n.shape, n.dtype)
    if op is Op.ADD and not n.dtype.is_bool:
        total = value * count
        if n.dtype.is_int:
            inside = n.dtype.least <= total <= n.dtype.greatest
            return g.full(total, n.shape, n.dtype) if inside else None
        exact = (
            not (isnan(value) or isinf(value))
            and float(value).is_integer()
            and abs(total) <= 1 << 11
        )
        return g.full(total, n.shape, n.dtype) if exact and str(value) != "-0.0" else None
    return None
