"""Other ways to cut a graph into kernels, one edge at a time, equal ones together.

    region  the kernels of the rules' plan that a toggle touches, and how they are connected
    edge    a toggle in a region: "inline" takes the memory of its first kernel's output away,
            "store_exp_1f0c53ab" gives memory to the node whose expression has that hash
    places  where the region occurs: eight equal residual blocks are one edge with eight places

"attention" takes the memory of a product's scores and of their softmax away, both at once.

Listing edges looks at the rules' kernels only. The kernels of an alternative are drafted when it is
asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from ..expr import Op
from ..graph import MOVEMENT, GraphOp, Node
from ..kernel import Kernel, key_of
from .build import Draft
from .plan import Launch
from .schedule import Fusion

__all__ = ["ATTENTION", "Alternative", "Alternatives", "Edge"]

ATTENTION = "attention"
"""The edge that makes attention of three kernels."""

_COMPUTES = (GraphOp.MAP, GraphOp.CAST, GraphOp.REDUCE)
_VIEWS = (GraphOp.RESHAPE, GraphOp.PERMUTE)
_COPIES = (GraphOp.PAD, GraphOp.PERMUTE)
"""Views of a buffer that may be worth a copy: a padded image needs no masks, a transposed
matrix no strides.
"""


@dataclass(frozen=True, slots=True)
class Edge:
    """A toggle of a region, and the positions of its node in every place where the region occurs.

    ``stored_bytes`` is the memory that it gives to the node in one place; 0 where it takes memory
    away.
    """

    name: str
    region: str
    stored_bytes: int
    places: tuple[int, ...]

    @property
    def key(self) -> str:
        """The region's key in the store: 32 hex digits of the SHA-256 of its text, as a
        kernel's.
        """
        return key_of(self.region)


@dataclass(frozen=True, slots=True)
class Alternative:
    """The change that an edge makes in its first place: kernels that go, and those that come
    instead.
    """

    edge: Edge
    before: tuple[Kernel, ...]
    after: tuple[Kernel, ...]


@dataclass(slots=True)
class Alternatives:
    """The edges of a graph. Mutable: it keeps what it has looked up."""

    fusion: Fusion
    launches: dict[Node, Launch] = field(init=False)
    users: dict[Node, list[Node]] = field(init=False)
    """The drafts that hold or read a node, by their own nodes, in order."""
    readers: dict[Node, list[Node]] = field(init=False)

    def __post_init__(self) -> None:
        drafts = self.fusion.drafts.sorted()
        made = self.fusion.every_launch().launches
        self.launches = {d.node: launch for d, launch in zip(drafts, made, strict=True)}
        self.users = {}
        for d in drafts:
            for n in dict.fromkeys((*d.inlined, *d.reads.values())):
                self.users.setdefault(n, []).append(d.node)
        self.readers = {n: [] for n in self.fusion.drafts.order}
        for n in self.fusion.drafts.order:
            for s in dict.fromkeys(n.srcs):
                self.readers[s].append(n)

    def edges(self) -> tuple[Edge, ...]:
        """Every edge, in the order of its first place."""
        found: dict[tuple[str, str], Edge] = {}
        for place, name in self._toggles():
            n = self._node(place)
            region = self._region(self._touched(place))
            edge = found.get((region, name))
            places = (place,) if edge is None else (*edge.places, place)
            nbytes = 0 if n is None or n in self.launches else n.size * n.dtype.itemsize
            found[region, name] = Edge(name, region, nbytes, places)
        return tuple(found.values())

    def alternative(self, edge: Edge) -> Alternative | None:
        """The change that the edge makes; None for a void toggle, or one after which the same
        kernels run.
        """
        other = self.fusion.toggled({edge.places[0]})
        if other is self.fusion:
            return None
        before = {n: x.kernel for n, x in self.launches.items()}
        after = {
            d.node: x.kernel
            for d, x in zip(other.drafts.sorted(), other.every_launch().launches, strict=True)
        }
        gone = tuple(k for n, k in before.items() if n not in after or after[n].key != k.key)
        come = tuple(k for n, k in after.items() if n not in before or before[n].key != k.key)
        same = sorted(k.key for k in gone) == sorted(k.key for k in come)
        return None if same else Alternative(edge, gone, come)

    def toggles(self, edges: Iterable[Edge]) -> frozenset[int]:
        """The edges at all their places, without those whose region has been changed by one
        before.
        """
        changed: set[Node] = set()
        chosen: set[int] = set()
        for edge in edges:
            for place in edge.places:
                touched = self._touched(place)
                if changed.isdisjoint(touched):
                    changed.update(touched)
                    chosen.add(place)
        return frozenset(chosen)

    def region(self, edge: Edge) -> tuple[Launch, ...]:
        """The launches of the rules' plan that the edge touches, in its first place."""
        return tuple(self.launches[n] for n in self._touched(edge.places[0]))

    def overlap(self, a: Edge, taken: Set[int]) -> bool:
        """True if a region of the edge holds a kernel that one of the toggles touches."""
        nodes = {n for place in taken for n in self._touched(place)}
        return any(not nodes.isdisjoint(self._touched(p)) for p in a.places)

    # ---- which nodes

    def _toggles(self) -> Iterable[tuple[int, str]]:
        cut = self.fusion.drafts
        for n, name in self._candidates():
            yield cut.place[n], name
        for place in cut.attentions():
            yield place, ATTENTION

    def _node(self, place: int) -> Node | None:
        """The node that a toggle gives or takes memory; None where it makes attention."""
        order = self.fusion.drafts.order
        return order[place] if place < len(order) else None

    def _candidates(self) -> Iterable[tuple[Node, str]]:
        cut = self.fusion.drafts
        for d in cut.sorted():
            if d.node not in cut.fixed and d.node.srcs:
                yield d.node, "inline"
            labels: dict[Node, str] = {}
            for n in d.inlined:
                if n.op in _COMPUTES:
                    n, op = self._above(n, d), str(n.arg) if n.op is GraphOp.MAP else str(n.op)
                elif n.op in _COPIES and self._views_buffer(n):
                    op = str(n.op)
                else:
                    continue
                if (
                    n.size
                    and n is not d.node
                    and n not in cut.drafts
                    and self.users[n][0] is d.node
                ):
                    yield n, f"store_{op}_{_label(n, d, labels)[:8]}"

    def _above(self, n: Node, d: Draft) -> Node:
        """The last of the views that are all there is of ``n``: an image is stored as one, not as a
        row of sums.
        """
        while len(self.readers[n]) == 1 and n is not d.node and self.readers[n][0].op in _VIEWS:
            n = self.readers[n][0]
        return n

    def _views_buffer(self, n: Node) -> bool:
        while n.op in MOVEMENT:
            n = n.srcs[0]
        return n.op is GraphOp.INPUT or n in self.fusion.drafts.drafts

    def _touched(self, place: int) -> tuple[Node, ...]:
        """The drafts that a toggle changes, by their nodes; more change where layouts do."""
        n = self._node(place)
        if n is None:
            product = self.fusion.drafts.order[place - len(self.fusion.drafts.order)]
            return (*self.fusion.drafts.scores_of(product), product)
        own = (n,) if n in self.launches else ()
        return (*own, *(u for u in self.users.get(n, ()) if u is not n))

    # ---- texts

    def _region(self, touched: tuple[Node, ...]) -> str:
        numbers: dict[int, int] = {}
        lines = ["region"]
        for n in touched:
            launch = self.launches[n]
            args = [str(numbers.setdefault(i, len(numbers))) for i in launch.args]
            lines.append(f"launch ({', '.join(args)})")
            lines.extend(launch.kernel.text.splitlines())
        return "\n".join(lines)


def _label(node: Node, d: Draft, known: dict[Node, str]) -> str:
    """A hash of what a node computes from the buffers that its kernel reads; the same in every
    process.
    """
    leaves = {n: name for name, n in d.reads.items()}
    stack = [node]
    while stack:
        n = stack[-1]
        missing = [s for s in n.srcs if s not in known] if n not in leaves else []
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        if n not in known:
            words = (
                [leaves[n]]
                if n in leaves
                else [str(n.op), _words(n.arg), *(known[s] for s in n.srcs)]
            )
            text = " ".join((*words, str(n.shape), str(n.dtype)))
            known[n] = hashlib.sha256(text.encode()).hexdigest()
    return known[node]


def _words(arg: object) -> str:
    if isinstance(arg, Op):
        return str(arg)
    if isinstance(arg, tuple):
        return f"({' '.join(map(_words, arg))})"
    return str(arg)
