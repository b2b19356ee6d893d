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
    alike    all parts are elementwise and walk memory in one order, and what they store has one
             form of layout
    needed   what it stores is an output, or another launch reads it

Launches stay in one order, so no path between two parts can lead through a third launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field

from ..expr import Load, nodes
from ..graph import Node
from ..kernel import Kernel
from .build import CutError, Draft, draft_kernels
from .drafts import MAX_OPS, Drafts, operation_count

__all__ = ["joined"]

Form = Callable[[Node], object]


def joined(cut: Drafts, form: Form, apart: Set[Node]) -> tuple[Draft, ...]:
    """Drafts as they are launched: in order, siblings as one.

    ``form`` is what layouts of siblings have in common. Joined kernels whose first node is in
    ``apart`` are launched as their parts.
    """
    order = _Order(cut, form)
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


@dataclass(slots=True)
class _Order:
    """Launches so far. Mutable: a group grows at its place, or moves to the end."""

    cut: Drafts
    form: Form
    readers: dict[Node, set[Node]] = field(default_factory=dict)
    """By tensor, the nodes whose drafts read it, those to come as well."""
    groups: list[_Group] = field(default_factory=list)
    place: dict[Node, int] = field(default_factory=dict)
    """The place of the group that writes a node."""
    users: dict[Node, dict[Node, None]] = field(default_factory=dict)
    """By tensor, the nodes of elementwise drafts that load it at each point, or store it."""

    def add(self, d: Draft) -> None:
        """Join a draft to a group, the one with which it shares most, or begin one."""
        if self._may_join(d):
            for place in self._candidates(d):
                if self._join(d, place):
                    break
            else:
                self._begin([d], d)
            for n in (d.node, *_whole(d)):
                self.users.setdefault(n, {})[d.node] = None
        else:
            self._begin([d], d)
        own = self.place[d.node]
        for n in d.reads.values():
            if self.place.get(n, own) != own:
                self.groups[self.place[n]].is_read = True

    def _may_join(self, d: Draft) -> bool:
        """True for an elementwise kernel of more than one point; a fence has one of its own."""
        fenced = d.node in self.cut.fixed and d.node not in self.cut.targets
        return not (fenced or d.kernel.reduces) and bool(_points(d.node))

    def _begin(self, parts: list[Draft], draft: Draft) -> None:
        for n in draft.nodes:
            self.place[n] = len(self.groups)
        self.groups.append(_Group(parts, draft))

    def _candidates(self, d: Draft) -> Iterable[int]:
        """Places of groups of the same points that load or store what ``d`` loads, those first that
        have most of it in common.
        """
        shared: dict[int, int] = {}
        for n in _whole(d):
            for place in {self.place[user] for user in self.users.get(n, ())}:
                shared[place] = shared.get(place, 0) + n.dtype.itemsize
        kind = self._kind(d)
        alike = (place for place in shared if self._kind(self.groups[place].parts[0]) == kind)
        return sorted(alike, key=lambda place: (-shared[place], place))

    def _kind(self, d: Draft) -> object:
        """What siblings have in common."""
        return _points(d.node), self.form(d.node), _turns(d.kernel)

    def _join(self, d: Draft, place: int) -> bool:
        """True if ``d`` has become a part of the group at a place."""
        group = self.groups[place]
        before = all(self.place.get(n, -1) <= place for n in d.reads.values())
        parts = [*group.parts, d]
        if (not before and group.is_read) or not self._all_needed(parts):
            return False
        draft = self._drafted(parts)
        if draft is None or _loads(draft.kernel) >= _loads(group.draft.kernel) + _loads(d.kernel):
            return False
        if before:
            group.parts, group.draft = parts, draft
            self.place[d.node] = place
        else:
            group.parts = []
            self._begin(parts, draft)
        return True

    def _all_needed(self, parts: list[Draft]) -> bool:
        own = {p.node for p in parts}
        outputs = self.cut.targets
        return all(n in outputs or not self.readers.get(n, own) <= own for n in own)

    def _drafted(self, parts: list[Draft]) -> Draft | None:
        """The kernel of all parts; None where one reads another at other points, or it is large."""
        try:
            found = draft_kernels(tuple(p.node for p in parts), self.cut.buffers)
        except CutError:
            return None
        return found if operation_count(found) <= MAX_OPS else None


def _points(n: Node) -> tuple[int, ...]:
    return tuple(s for s in n.shape if s != 1)


def _whole(d: Draft) -> list[Node]:
    """The tensors that a draft reads of which there is an element for each point."""
    return [n for n in dict.fromkeys(d.reads.values()) if n.size >= d.node.size]


def _loads(k: Kernel) -> int:
    """Elements that are loaded at each point, those that depend on all axes."""
    axes = {a.name for a in k.axes}
    return sum(axes <= set(walk) for walk in _walks(k))


def _turns(k: Kernel) -> bool:
    """True if a tensor is read along other axes than the one along which elements are stored."""
    last = k.axes[-1].name
    return any(last in walk and walk[-1] != last for walk in _walks(k))


def _walks(k: Kernel) -> list[tuple[str, ...]]:
    """The axes that each element loaded at a point depends on, in the order of its dimensions."""
    found = {x for s in k.stages for x in nodes(s.expr) if isinstance(x, Load)}
    return [tuple(name for i in x.index for name in sorted(i.names())) for x in found]
