"""Kernels of equal points as one kernel that stores several tensors.

    launch m  (M, m, g)       M[i] = b1 * m[i] + (1 - b1) * g[i]
    launch v  (V, v, g)       V[i] = b2 * v[i] + (1 - b2) * g[i] * g[i]
    launch p  (P, p, M, V)    P[i] = p[i] - lr * M[i] / (sqrt(V[i]) + eps)
        -->
    launch    (M, V, P, m, g, v, p)    each element of g, M and V is in registers when it is needed

A draft joins a kernel before it, or draws it to its own place, where four things hold:

    legal    all reads of the joined kernel are written before its place, and what it writes is read
             behind it; a tensor that it writes is read by its own stores at their very points alone
    cheaper  it reads fewer elements a point than its parts: an element that one loads or stores,
             and another loads, is loaded once, or not at all
    alike    all parts are elementwise, or fold rows of one length, walk memory in one order, and
             store in one form of layout; new values of inputs may end a product of matrices
    needed   what it stores is an output, or another launch reads it

Launches stay in one order, so no path between two parts can lead through a third launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import field
from math import prod

from tunegrad.lazy import dataclass

from ..expr import Load, Value, nodes
from ..graph import GraphOp, Node
from ..index import var
from ..kernel import Kernel
from .build import CutError, Draft, draft_kernels
from .donation import ordered_stores
from .drafts import (
    MAX_OPS,
    MAX_PENDING,
    MAX_ROW_OPS,
    SERIAL_LIMIT,
    SERIAL_ROWS,
    Drafts,
    is_product,
    operation_count,
)

Form = Callable[[Node], object]


def joined(
    cut: Drafts, form: Form, apart: Set[Node], news: Mapping[Node, str]
) -> tuple[Draft, ...]:
    """Drafts as they are launched: in order, siblings as one.

    ``form`` is what layouts of siblings have in common. Joined kernels whose first node is in
    ``apart`` are launched as their parts. ``news`` are written over the inputs of these names.
    """
    order = _Order(cut, form, news)
    drafts = cut.sorted()
    for d in drafts:
        for n in d.reads.values():
            order.readers.setdefault(n, set()).add(d.node)
    for d in drafts:
        order.add(d)
    found: list[Draft] = []
    for group in order.groups:
        if group.draft.node in apart:
            found += group.parts
        elif group.parts:
            found.append(group.draft)
    return tuple(found)


@dataclass(slots=True)
class _Group:
    """Parts that one launch computes, as one draft; none once it has moved to another place."""

    parts: list[Draft]
    draft: Draft
    is_read: bool = False
    """True if a launch behind it reads what it writes."""
    refused: int | None = None
    """Operations of the smallest draft that made it too large: one of as many is not tried."""


@dataclass(slots=True)
class _Order:
    """Launches so far. Mutable: a group grows at its place, or moves to the end."""

    cut: Drafts
    form: Form
    news: Mapping[Node, str]
    readers: dict[Node, set[Node]] = field(default_factory=dict)
    """By tensor, the nodes whose drafts read it, those to come as well."""
    groups: list[_Group] = field(default_factory=list)
    place: dict[Node, int] = field(default_factory=dict)
    """The place of the group that writes a node."""
    users: dict[Node, dict[Node, None]] = field(default_factory=dict)
    """By tensor, the nodes whose drafts load it at each point or step, or store it."""
    kinds: dict[Node, object] = field(default_factory=dict)
    """What ``_kind`` found, by the node of a draft: each draft is compared with many."""

    def add(self, d: Draft) -> None:
        """Join a draft to a group, the one with which it shares most, or begin one."""
        whole = _whole(d)
        if not any(self._join(d, place) for place in self._candidates(d, whole)):
            self._begin([d], d)
        for n in (d.node, *whole):
            self.users.setdefault(n, {})[d.node] = None
        own = self.place[d.node]
        for n in (*d.reads.values(), *self.groups[own].draft.reads.values()):
            if self.place.get(n, own) != own:
                self.groups[self.place[n]].is_read = True

    def _begin(self, parts: list[Draft], draft: Draft) -> None:
        for n in draft.nodes:
            self.place[n] = len(self.groups)
        self.groups.append(_Group(parts, draft))

    def _candidates(self, d: Draft, whole: list[Node]) -> Iterable[int]:
        """Places of groups of the same points that load or store what ``d`` loads, those first that
        have most of it in common. A fence has a kernel of its own, and so has a single point.
        """
        shared: dict[int, int] = {}
        for n in whole:
            for place in {self.place[user] for user in self.users.get(n, ())}:
                shared[place] = shared.get(place, 0) + n.dtype.itemsize
        if not shared or self._is_fenced(d.node) or not _points(d.node):
            return ()
        if not _loads(d.kernel):  # as products, which share no loads of each point and step
            return ()
        kind = self._kind(d)
        alike = (
            place
            for place in shared
            if self._kind(self.groups[place].parts[0]) == kind or self._ends(place, d)
        )
        return sorted(alike, key=lambda place: (-shared[place], place))

    def _ends(self, place: int, d: Draft) -> bool:
        """True if a product of matrices ends in one new value of an input, of which a draft makes
        another, as a parameter is made of its momentum.
        """
        first = self.groups[place].parts[0]
        if d.kernel.reduces or _turns(d.kernel) or not is_product(first.kernel):
            return False
        same = _points(d.node) == _points(first.node) and self.form(d.node) == self.form(first.node)
        return same and len(_points(d.node)) == 2 and {d.node, first.node} <= self.news.keys()

    def _is_fenced(self, n: Node) -> bool:
        return n in self.cut.fixed and n not in self.cut.targets

    def _kind(self, d: Draft) -> object:
        """Properties that siblings share: points, form, folds, turned reads and fences."""
        found = self.kinds.get(d.node)
        if found is None:
            turns = not d.kernel.reduces and _turns(d.kernel)
            fenced = self._is_fenced(d.node)
            found = _points(d.node), self.form(d.node), _folded(d.kernel), turns, fenced
            self.kinds[d.node] = found
        return found

    def _join(self, d: Draft, place: int) -> bool:
        """True if ``d`` has become a part of the group at a place."""
        group = self.groups[place]
        parts = [*group.parts, d]
        if not self._may_read(place, d.reads.values()) or not self._all_needed(parts):
            return False
        count = operation_count(d)
        if group.refused is not None and count >= group.refused:
            return False
        draft = self._drafted(parts)
        if draft is not None and _is_large(draft, self.cut.most):
            group.refused = count
            return False
        if draft is None or _loads(draft.kernel) >= _loads(group.draft.kernel) + _loads(d.kernel):
            return False
        # A part alone may read less: where nothing else needs a node, it is simplified with others.
        reads = {*d.reads.values(), *draft.reads.values()}
        if any(n in self.cut.drafts and n not in self.place for n in reads):
            return False
        if not self._may_read(place, reads):
            return False
        if self._are_before(place, reads):
            group.parts, group.draft = parts, draft
            self.place[d.node] = place
        else:
            group.parts = []
            self._begin(parts, draft)
        return True

    def _may_read(self, place: int, reads: Iterable[Node]) -> bool:
        """True if the group at a place may read these: where it is, or behind them, if no other
        group reads it.
        """
        return not self.groups[place].is_read or self._are_before(place, reads)

    def _are_before(self, place: int, reads: Iterable[Node]) -> bool:
        """True if groups up to a place write all of these."""
        return all(self.place.get(n, -1) <= place for n in reads)

    def _all_needed(self, parts: list[Draft]) -> bool:
        own = {p.node for p in parts}
        outputs = self.cut.targets
        return all(n in outputs or not self.readers.get(n, own) <= own for n in own)

    def _drafted(self, parts: list[Draft]) -> Draft | None:
        """The kernel of all parts; None where one reads another at other points, or where two read
        inputs that the other one replaces: such a new value would be copied to its place.
        """
        try:
            found = draft_kernels(tuple(p.node for p in parts), self.cut.buffers)
        except CutError:
            return None
        inputs = {n.arg: name for name, n in found.reads.items() if n.op is GraphOp.INPUT}
        over = {inputs.get(self.news.get(n, "")): out for out, n in found.writes.items()}
        if ordered_stores(found.kernel, {name: out for name, out in over.items() if name}) is None:
            return None
        if not found.kernel.reduces or is_product(found.kernel):
            return found
        tensors = (*found.nodes, *(n for p in parts for n in _whole(p)))
        in_order = all(self.form(n) == () for n in tensors)
        return found if in_order and _folds_rows(found.kernel) else None


def _is_large(d: Draft, most: int) -> bool:
    k = d.kernel
    return (
        operation_count(d) > (MAX_ROW_OPS if k.reduces else MAX_OPS)
        or len(k.reduces) > MAX_PENDING
        or 0 < most < len(k.params)
    )


def _points(n: Node) -> tuple[int, ...]:
    return tuple(s for s in n.shape if s != 1)


def _folded(k: Kernel) -> tuple[int, ...]:
    """Extents of what a kernel folds at each point."""
    return tuple(a.extent for a in k.reduces[0].axes) if k.reduces else ()


def _whole(d: Draft) -> list[Node]:
    """The tensors of which a draft reads an element for each point and step of its folds."""
    steps = d.node.size
    for a in d.kernel.reduces[0].axes if d.kernel.reduces else ():
        steps *= a.extent
    return [n for n in dict.fromkeys(d.reads.values()) if n.size >= steps]


def _loads(k: Kernel) -> int:
    """Elements that are loaded at each point and step, those that depend on all axes."""
    every = len(k.axes) + len(_folded(k))
    return sum(len(set(walk)) == every for _, _, walk in _walks(k))


def _turns(k: Kernel) -> bool:
    """True if a tensor is read along other axes than the one along which elements are stored."""
    if not k.axes:
        return False
    last = k.axes[-1].name
    return any(last in walk and walk[-1] != last for _, _, walk in _walks(k))


def _folds_rows(k: Kernel) -> bool:
    """True if all reductions fold rows of one length, which lie one after the other in all that is
    loaded at each step, and none waits for another: their loops run as one.

    Few long rows stay apart: cores share each of them.
    """
    folded, rows = _folded(k), [a.name for a in k.axes]
    long = prod(folded) > SERIAL_LIMIT or k.points < SERIAL_ROWS
    if long or any(s.axes for s in k.stores):
        return False
    alike = all(r.rows == 0 and tuple(a.extent for a in r.axes) == folded for r in k.reduces)
    waits = any(isinstance(x, Value) for r in k.reduces for x in nodes(r.expr))
    every = [*rows, *(_step(i) for i in range(len(folded)))]
    walks = (walk for _, _, walk in _walks(k) if len(set(walk)) == len(every))
    return alike and not waits and all([*walk] == every for walk in walks)


def _step(i: int) -> str:
    return f"step {i}"


_Walk = tuple[str, tuple[str, ...], tuple[str, ...]]


def _walks(k: Kernel) -> set[_Walk]:
    """Elements that are loaded: of which parameter, at which indices, and the axes that those
    depend on, in the order of dimensions. What stages fold has the same names in all of them.
    """
    found: set[_Walk] = set()
    for s in k.stages:
        own = {a.name: var(_step(i), a.extent) for i, a in enumerate(s.axes)}
        for x in {x for x in nodes(s.expr) if isinstance(x, Load)}:
            at = [i.substitute(own) for i in x.index]
            walk = tuple(name for i in at for name in sorted(i.names()))
            found.add((x.param, (*(i.key for i in at), str(x.valid)), walk))
    return found
