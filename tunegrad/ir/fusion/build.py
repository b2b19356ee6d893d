"""One realised tensor as a kernel: index expressions pushed from its elements down to buffers.

    out = relu(sum(window(pad(x)) * w, c kh kw) + b)            out axes o h w
      store out[o, h, w] = max(add(v0, b[o]), 0)
      v0 = sum over c kh kw: mul(x[c, h+kh-1, w+kw-1 if 0<=h+kh-1<H & 0<=w+kw-1<W], w[o, c, kh, kw])

``Draft`` is such a kernel before its parameters have layouts. ``CutError`` names a node that must
have memory before the kernel is legal: a reduction nested in another one, or one that would be
computed again for every point of an axis that it does not depend on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

from ..expr import PRODUCTS, Apply, Const, Expr, IndexValue, Inside, Load, Op, Value, rebuild
from ..graph import MOVEMENT, GraphOp, Node
from ..index import ALWAYS, Index, Valid, as_index, element
from ..kernel import Axis, Kernel, Param, Reduce, Stage, Store, identity
from .attention import is_attention, rows_divided, sums_divided_last
from .axes import all_indices, distinct_leaves, split_axes, uses
from .movement import Place, source_index
from .simplify import apply_op, as_compute, cast_to, index_value, literal, masked

__all__ = ["CutError", "Draft", "draft_kernel"]

ZERO = as_index(0)

MAX_NESTED = 80
"""Computing nodes inside one another in one expression, at most; the rules stay far below it."""


class CutError(Exception):
    """The kernel is not legal while ``node`` has no memory."""

    def __init__(self, node: Node) -> None:
        super().__init__(f"{node} needs memory")
        self.node = node


@dataclass(frozen=True, slots=True)
class Draft:
    """A kernel before layouts: ``reads`` maps parameter names to nodes; ``inlined`` are the nodes
    it computes, and elements of the parameters in ``looked_up`` are indices.
    """

    node: Node
    kernel: Kernel
    reads: dict[str, Node]
    inlined: tuple[Node, ...]
    looked_up: frozenset[str]


def draft_kernel(root: Node, buffers: set[Node], *, rows: bool = False) -> Draft:
    """The kernel that computes ``root``, reading inputs, constants and the nodes in ``buffers``.

    ``rows``: a reduction nested in another one is a row of the kernel, and the kernel has to be
    attention. Raises CutError.
    """
    b = _Builder(root, buffers, rows)
    axes = tuple(Axis(f"o{d}", s) for d, s in enumerate(root.shape) if s != 1)
    index = tuple(ZERO if s == 1 else Axis(f"o{d}", s).index for d, s in enumerate(root.shape))
    expr = cast_to(b.emit(root, Place(index, root.shape), ALWAYS), root.dtype)
    store = Store("out", index, expr)
    params = (Param.dense("out", root.dtype, root.shape, "out"), *b.params.values())
    whole, reads = _factors_apart(Kernel(params, axes, (*b.reduces, store)), b.reads)
    kernel = split_axes(whole)
    if rows:
        divided = _with_rows(kernel)
        if not is_attention(divided):
            raise CutError(b.stage_nodes[kernel.reduces[0].name])
    else:
        divided = _divide_axes(kernel, b.stage_nodes)
    looked_up = frozenset(e.buffer for i in all_indices(divided) for e in i.elements())
    used = looked_up.union(name for name, _ in uses(divided))
    params = tuple(p for p in divided.params if p.name in used)
    reads = {name: node for name, node in reads.items() if name in used}
    inlined = tuple(b.inlined.values())
    return Draft(root, replace(divided, params=params), reads, inlined, looked_up)


class _Builder:
    def __init__(self, root: Node, buffers: set[Node], rows: bool) -> None:
        self.root, self.buffers, self.rows = root, buffers, rows
        self.made: dict[tuple[int, tuple[Index, ...]], Reduce] = {}
        """The rows by what they are of."""
        self.params: dict[Node, Param] = {}
        self.reads: dict[str, Node] = {}
        self.reduces: list[Reduce] = []
        self.stage_nodes: dict[str, Node] = {}
        self.inlined: dict[int, Node] = {}
        self.memo: dict[tuple[int, tuple[Index, ...], Valid], Expr] = {}
        self.depth = 0

    def emit(self, node: Node, place: Place, valid: Valid) -> Expr:
        """The element of ``node`` at a place, in its compute type (or as loaded); zero where a
        PAD says so.
        """
        pads: list[Valid] = []
        while True:
            if self._is_buffer(node):
                break
            if node.op is GraphOp.CONTIGUOUS:
                node = node.srcs[0]
                continue
            if node.op is GraphOp.GATHER:
                self.inlined.setdefault(id(node), node)
                index = self._gathered(node, place.index)
                node = node.srcs[0]
                place = Place(index, node.shape)
                continue
            if node.op not in MOVEMENT:
                break
            self.inlined.setdefault(id(node), node)
            place, condition = place.below(node)
            node = node.srcs[0]
            if condition.never:
                return literal(0, node.dtype)
            if not condition.always:
                valid = valid & condition
                pads.append(condition)
        expr = literal(0, node.dtype) if valid.never else self._element(node, place, valid)
        for condition in reversed(pads):
            expr = masked(condition, expr)
        return expr

    def _is_buffer(self, node: Node) -> bool:
        if node.op in (GraphOp.INPUT, GraphOp.CONST):
            return True
        return node in self.buffers and node is not self.root

    def _element(self, node: Node, place: Place, valid: Valid) -> Expr:
        key = (id(node), place.index, valid)
        found = self.memo.get(key)
        if found is None:
            if self.depth >= MAX_NESTED and node.srcs and not self._is_buffer(node):
                raise CutError(node)
            self.depth += 1
            found = self.memo[key] = self._compute(node, place, valid)
            self.depth -= 1
        return found

    def _compute(self, node: Node, place: Place, valid: Valid) -> Expr:
        index = place.index
        if self._is_buffer(node):
            return self._load(node, index, valid)
        self.inlined.setdefault(id(node), node)
        op, arg = node.op, cast(Any, node.arg)
        if op is GraphOp.FULL:
            return literal(arg[2], node.dtype)
        if op is GraphOp.IOTA:
            return as_compute(cast_to(index_value(index[arg], node.dtype.compute), node.dtype))
        if op is GraphOp.CAST:
            return as_compute(cast_to(as_compute(self.emit(node.srcs[0], place, valid)), arg))
        if op is GraphOp.MAP:
            args = tuple(as_compute(self.emit(s, place, valid)) for s in node.srcs)
            return apply_op(arg, args, node.dtype.compute)
        return self._reduce(node, place, valid)

    def _gathered(self, node: Node, index: tuple[Index, ...]) -> tuple[Index, ...]:
        """Index at which a GATHER reads its first source: along its dimension, at positions that
        are an index themselves, or at an element of a buffer.

        Raises CutError where its index is in no buffer yet.
        """
        x, base = node.srcs
        dim, at = cast(int, node.arg), index
        if x.shape[dim] == 1:
            return (*index[:dim], ZERO, *index[dim + 1 :])
        passed: list[Node] = []
        position = _position(base, index, passed)
        if position is not None and -x.shape[dim] <= position.lo and position.hi < 0:
            position = position + x.shape[dim]
        if position is not None and position.lo >= 0 and position.hi < x.shape[dim]:
            self.inlined.update((id(n), n) for n in passed)
            return (*index[:dim], position, *index[dim + 1 :])
        while not self._is_buffer(base):
            if base.op is GraphOp.CONTIGUOUS:
                base = base.srcs[0]
            elif base.op in MOVEMENT and base.op is not GraphOp.PAD:
                self.inlined.setdefault(id(base), base)
                at, _ = source_index(base, at)
                base = base.srcs[0]
            else:
                raise CutError(base)
        offset = ZERO
        for i, extent in zip(at, base.shape, strict=True):
            offset = offset * extent + i
        found = element(self._param(base).name, offset, base.size, x.shape[dim])
        return (*index[:dim], found, *index[dim + 1 :])

    def _load(self, node: Node, index: tuple[Index, ...], valid: Valid) -> Expr:
        return Load(self._param(node).name, index, node.dtype, valid)

    def _param(self, node: Node) -> Param:
        """The parameter that reads a buffer."""
        param = self.params.get(node)
        if param is None:
            role = "const" if node.op is GraphOp.CONST else "in"
            param = self.params[node] = Param.dense(
                f"n{len(self.params)}", node.dtype, node.shape, cast(Any, role)
            )
            self.reads[param.name] = node
        return param

    def _reduce(self, node: Node, place: Place, valid: Valid) -> Expr:
        index = place.index
        op, dims = cast(tuple[Op, tuple[int, ...]], node.arg)
        src, acc = node.srcs[0], node.dtype.compute
        wide = [d for d in dims if src.shape[d] != 1]
        if any(src.shape[d] == 0 for d in wide):
            return Const(identity(op, acc), acc)
        if not wide:
            return as_compute(self.emit(src, place, valid))
        inner = [d for d, i in enumerate(index) if any(not n.startswith("o") for n in i.names())]
        if not valid.always or (inner and not self.rows):
            raise CutError(node)
        if inner:
            return self._row(node, index, inner, wide)
        number = len(self.stage_nodes)
        self.stage_nodes[f"v{number}"] = node
        axes = tuple(Axis(f"r{number}_{d}", src.shape[d]) for d in wide)
        at = list(index)
        for axis, d in zip(axes, wide, strict=True):
            at[d] = axis.index
        expr = as_compute(self.emit(src, Place(tuple(at), src.shape), ALWAYS))
        self.reduces.append(Reduce(f"v{number}", op, axes, cast_to(expr, acc), acc))
        return Value(f"v{number}", acc)

    def _row(self, node: Node, index: tuple[Index, ...], inner: list[int], wide: list[int]) -> Expr:
        """An element of a row: a reduction along the dimensions in which its place depends on
        another one's axes. All its readers read the same row.
        """
        op, acc = cast(tuple[Op, tuple[int, ...]], node.arg)[0], node.dtype.compute
        key = id(node), tuple(ZERO if d in inner else i for d, i in enumerate(index))
        row = self.made.get(key)
        if row is None:
            src, number = node.srcs[0], len(self.stage_nodes)
            name = f"v{number}"
            self.stage_nodes[name] = node
            axes = {d: Axis(f"r{number}_{d}", src.shape[d]) for d in (*inner, *wide)}
            at = tuple(axes[d].index if d in axes else i for d, i in enumerate(index))
            expr = cast_to(as_compute(self.emit(src, Place(at, src.shape), ALWAYS)), acc)
            row = Reduce(name, op, tuple(axes.values()), expr, acc, len(inner))
            self.made[key] = row
            self.reduces.append(row)
        return Value(row.name, acc, tuple(index[d] for d in inner))


def _position(n: Node, at: tuple[Index, ...], passed: list[Node]) -> Index | None:
    """The integer that ``n`` is at an index, as an index; None where it depends on memory.

    ``passed`` is given the nodes that it is computed by. No value leaves the range of its type.
    """
    if not n.dtype.is_int:
        return None
    op, arg = n.op, cast(Any, n.arg)
    found: Index | None = None
    if op is GraphOp.FULL:
        found = as_index(arg[2])
    elif op is GraphOp.IOTA:
        found = at[arg]
    elif op is GraphOp.CONTIGUOUS or op is GraphOp.CAST:
        found = _position(n.srcs[0], at, passed)
    elif op in MOVEMENT and op is not GraphOp.PAD:
        found = _position(n.srcs[0], source_index(n, at)[0], passed)
    elif op is GraphOp.MAP and arg in (Op.ADD, Op.SUB, Op.MUL):
        a, b = (_position(s, at, passed) for s in n.srcs)
        if a is not None and b is not None:
            if arg is not Op.MUL:
                found = a + b if arg is Op.ADD else a - b
            elif a.is_const or b.is_const:
                found = a * b.const if b.is_const else b * a.const
    if found is None or found.lo < n.dtype.least or found.hi > n.dtype.greatest:
        return None
    passed.append(n)
    return found


def _factors_apart(kernel: Kernel, reads: dict[str, Node]) -> tuple[Kernel, dict[str, Node]]:
    """A tensor whose elements meet others of its own in a sum of products, as two parameters.

        v0 = add over k: mul(x[i, k], x[j, k])    -->    v0 = add over k: mul(x[i, k], y[j, k])

    Both are the same memory. A copy in registers or a cache holds one parameter, and each factor
    needs its own: scores of attention from one fused projection are a product like any other.
    """
    params, reads = list(kernel.params), dict(reads)
    stages: list[Stage] = []
    for s in kernel.stages:
        if isinstance(s, Reduce) and s.op is Op.ADD and isinstance(s.expr, Apply):
            for name in _met_by_itself(s.expr):
                old = kernel.param(name)
                new = replace(old, name=f"n{len(params) - 1}")
                params.append(new)
                reads[new.name] = reads[name]
                s = replace(s, expr=_renamed(s.expr, name, new.name))
        stages.append(s)
    return replace(kernel, params=tuple(params), stages=tuple(stages)), reads


def _met_by_itself(x: Apply) -> list[str]:
    """The parameters that both factors of a product read, each at its own indices."""
    if x.op not in PRODUCTS:
        return []
    left, right = ({leaf for leaf in distinct_leaves(a) if isinstance(leaf, Load)} for a in x.args)
    if left & right:
        return []
    return sorted({load.param for load in left} & {load.param for load in right})


def _renamed(x: Apply, old: str, new: str) -> Apply:
    """A product whose second factor reads parameter ``new`` in the place of ``old``."""

    def leaf(y: Expr) -> Expr:
        return replace(y, param=new) if isinstance(y, Load) and y.param == old else y

    return Apply(x.op, (x.args[0], rebuild(x.args[1], leaf)), x.dtype)


def _with_rows(kernel: Kernel) -> Kernel:
    """The axes that all reductions depend on are shared; what depends on more has a row."""
    needs: dict[str, set[str]] = {}
    outputs = {a.name for a in kernel.axes}
    for r in kernel.reduces:
        needs[r.name] = expr_names(r.expr, needs) & outputs
    shared = set.intersection(outputs, *needs.values())
    return sums_divided_last(rows_divided(kernel, needs, shared))


def _divide_axes(kernel: Kernel, nodes: dict[str, Node]) -> Kernel:
    """Output axes that no reduction depends on become the store's own.

    Raises CutError for a reduction that depends on fewer axes than another.
    """
    (store,) = kernel.stores
    if not kernel.reduces:
        return kernel
    needs: dict[str, set[str]] = {}
    outputs = {a.name for a in kernel.axes}
    for r in kernel.reduces:
        used = expr_names(r.expr, needs)
        needs[r.name] = used & outputs
    shared = set().union(*needs.values())
    for r in kernel.reduces:
        if needs[r.name] != shared:
            raise CutError(nodes[r.name])
    own = tuple(a for a in kernel.axes if a.name not in shared)
    stages: tuple[Stage, ...] = (*kernel.reduces, Store(store.param, store.index, store.expr, own))
    return Kernel(kernel.params, tuple(a for a in kernel.axes if a.name in shared), stages)


def expr_names(x: Expr, values: dict[str, set[str]]) -> set[str]:
    """Axes an expression depends on, also through the reductions in ``values``."""
    found: set[str] = set()
    for leaf in distinct_leaves(x):
        if isinstance(leaf, Load):
            found |= leaf.valid.names()
            for i in leaf.index:
                found |= i.names()
        elif isinstance(leaf, Value):
            found |= values[leaf.stage].union(*(i.names() for i in leaf.index))
        elif isinstance(leaf, IndexValue):
            found |= leaf.index.names()
        elif isinstance(leaf, Inside):
            found |= leaf.valid.names()
    return found
