"""A graph cut into kernels, and the same graph cut otherwise.

    realized_nodes  which tensors get memory    (rules about speed)
    draft_kernel    one kernel per such tensor  (proved legal, or a node is cut off and given
                                                memory)

A toggle flips one edge: a node with memory loses it and is computed again by each of its readers, a
node without gets some. Where no legal kernel is left without that memory, it stays, and the toggle
is void. Only the drafts that a toggle touches are made again.

A toggle past the last node, at ``place + len(order)``, makes attention of the product at ``place``:
the scores and their softmax lose their memory, and are rows of its kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

from ..expr import Apply, Op, nodes, tree_size
from ..graph import GraphOp, Node, Step
from ..kernel import Kernel
from ..rewrites.sums import stored_once
from .attention import sums_products
from .build import CutError, Draft, draft_kernel
from .realize import MAX_OPS, MAX_TREE, realized_nodes, target_of

__all__ = [
    "Drafts",
    "scores_of",
]


def scores_of(product: Node, drafts: Mapping[Node, Draft]) -> tuple[Node, ...]:
    """The nodes whose memory attention does without, scores first, then their softmax; none where
    ``product`` ends no attention.

    Only what a single draft reads can go.
    """

    def alone(n: Node) -> bool:
        return sum(n in d.reads.values() for d in drafts.values()) == 1

    if not _is_product(drafts[product].kernel):
        return ()
    for softmax in drafts[product].reads.values():
        if softmax in drafts and _is_softmax(drafts[softmax].kernel) and alone(softmax):
            for scores in drafts[softmax].reads.values():
                if scores in drafts and _is_product(drafts[scores].kernel) and alone(scores):
                    return scores, softmax
    return ()


def _is_product(k: Kernel) -> bool:
    """True if a kernel is one sum of products of its inputs, and its epilogue."""
    return len(k.reduces) == 1 and sums_products(k.reduces[0])


def _is_softmax(k: Kernel) -> bool:
    """True if a kernel folds the maximum of each row, and then a sum of exponentials."""
    return (
        [r.op for r in k.reduces] == [Op.MAX, Op.ADD]
        and all(len(s.axes) == 1 for s in k.stores)
        and any(isinstance(x, Apply) and x.op is Op.EXP for x in nodes(k.reduces[1].expr))
    )


_ROUNDS = 4
"""Most times that a graph is cut: where repeats are stored once, it may be cut otherwise."""

_MAX_OPS = 4 * MAX_OPS
"""Operations of a kernel, above which a toggle is left out, for the compiler's sake."""


@dataclass(frozen=True, slots=True)
class Drafts:
    """One draft per tensor that is needed in memory and is no constant, by node.

    ``order`` is topological; ``targets`` are the outputs'.

    ``buffers`` may have memory (the nodes of ``drafts`` do), ``fixed`` always do: outputs and
    fences.
    """

    order: tuple[Node, ...]
    targets: tuple[Node, ...]
    fixed: frozenset[Node]
    buffers: frozenset[Node]
    drafts: dict[Node, Draft]
    place: dict[Node, int] = field(repr=False)
    """The position of each node in ``order``: its name in every process."""
    steps: tuple[Step, ...] = field(default=(), repr=False)
    """Rewrites that made ``targets`` of the outputs' own."""

    @staticmethod
    def of(outputs: tuple[Node, ...]) -> Drafts:
        """The graph as the rules cut it; no intermediate stores copies of what repeats itself."""
        targets = tuple(target_of(o) for o in outputs)
        steps: list[Step] = []
        for left in reversed(range(_ROUNDS)):
            order, realized = realized_nodes(targets)
            fences = {
                n if n.arg is not None else n.srcs[0] for n in order if n.op is GraphOp.CONTIGUOUS
            }
            made = _Cutting(targets, {n for n in realized if n.srcs}, {}, frozenset())
            made.run()
            fixed = frozenset((*targets, *fences))
            found = list[Step]()
            once = stored_once(targets, order, made.done.keys() - fixed, found)
            if once == targets or not left:
                break
            targets = once
            steps += found
        place = {n: i for i, n in enumerate(order)}
        return Drafts(
            tuple(order), targets, fixed, frozenset(made.buffers), made.done, place, tuple(steps)
        )

    def sorted(self) -> list[Draft]:
        """The drafts, sources first."""
        return [self.drafts[n] for n in sorted(self.drafts, key=self.place.__getitem__)]

    def toggled(self, toggles: Set[int]) -> Drafts:
        """The graph cut otherwise at the nodes of these positions.

        Leaves, outputs and fences stay as they are.
        """
        nodes = {self.order[i] for i in toggles if 0 <= i < len(self.order)} - self.fixed
        off = frozenset(n for n in nodes if n in self.drafts)
        on = {n for n in nodes if n.srcs and n.size and n.op is not GraphOp.CONTIGUOUS} - off
        rows = self._attentions(toggles, off, on)
        off = off.union(*(gone for _, gone in rows))
        if not off and not on:
            return self
        kept = {
            n: d
            for n, d in self.drafts.items()
            if n not in off and off.isdisjoint(d.reads.values()) and on.isdisjoint(d.inlined)
        }
        kept.update({d.node: d for d, _ in rows})
        made = _Cutting(self.targets, (set(self.buffers) - off) | on, kept, off)
        made.run()
        return replace(self, buffers=frozenset(made.buffers), drafts=made.done)

    def attentions(self) -> dict[int, tuple[Node, ...]]:
        """By toggle, the nodes that lose their memory: scores, then their softmax."""
        found = {self.place[n] + len(self.order): self.scores_of(n) for n in self.drafts}
        return {i: found[i] for i in sorted(found) if found[i]}

    def scores_of(self, product: Node) -> tuple[Node, ...]:
        """The nodes whose memory attention that ends in ``product`` does without: scores, then
        their softmax; none where there is none, or an output or a fence needs one of them.
        """
        if product not in self.drafts:
            return ()
        found = scores_of(product, self.drafts)
        return () if self.fixed.intersection(found) else found

    def _attentions(
        self, toggles: Set[int], off: frozenset[Node], on: Set[Node]
    ) -> list[tuple[Draft, tuple[Node, ...]]]:
        """The kernels of attention that toggles ask for, with the nodes that lose their memory."""
        made = []
        for i in sorted(i - len(self.order) for i in toggles if i >= len(self.order)):
            product = self.order[i] if i < len(self.order) else None
            gone = () if product is None or product in off else self.scores_of(product)
            if product is None or not gone or off.intersection(gone):
                continue
            try:
                draft = draft_kernel(product, {*(self.buffers - off), *on} - {*gone}, rows=True)
            except CutError:
                continue
            made.append((draft, gone))
        return made


@dataclass(slots=True)
class _Cutting:
    """Drafting in progress.

    Mutable: ``buffers`` grows until every kernel is legal. ``off`` lost its memory.
    """

    targets: tuple[Node, ...]
    buffers: set[Node]
    done: dict[Node, Draft]
    off: frozenset[Node]

    def run(self) -> None:
        """Draft all that the targets need; no reduction twice."""
        while True:
            self._draft_all()
            twice = self._computed_twice()
            if not twice:
                return
            self.buffers |= twice
            self.done = {
                n: d for n, d in self.done.items() if n not in twice and twice.isdisjoint(d.inlined)
            }

    def _draft_all(self) -> None:
        """Fill ``done`` with the drafts of the targets and all they read; drop those nothing reads
        any more.
        """
        stack, needed = list(self.targets), set[Node]()
        while stack:
            n = stack.pop()
            if n in needed or not n.size or n.op is GraphOp.CONST:
                continue
            needed.add(n)
            while n not in self.done:
                self._draft(n)
            stack.extend(s for s in self.done[n].reads.values() if s.op is not GraphOp.INPUT)
        for n in [n for n in self.done if n not in needed]:
            del self.done[n]

    def _draft(self, n: Node) -> None:
        try:
            draft = draft_kernel(n, self.buffers)
        except CutError as e:
            self.buffers.add(e.node)
            return
        inlined = self.off.intersection(draft.inlined) - {n}
        if inlined and _ops(draft) > _MAX_OPS:
            self.buffers |= inlined
        else:
            self.done[n] = draft

    def _computed_twice(self) -> set[Node]:
        """Reductions that two kernels compute."""
        seen: set[Node] = set()
        twice: set[Node] = set()
        for d in self.done.values():
            for n in d.inlined:
                if n.op is GraphOp.REDUCE and n is not d.node:
                    (twice if n in seen else seen).add(n)
        return twice


def _ops(draft: Draft) -> int:
    """Operations of a kernel; very many where they are too many as trees."""
    exprs = [s.expr for s in draft.kernel.stages]
    if tree_size(*exprs) > MAX_TREE:
        return MAX_TREE
    return sum(isinstance(x, Apply) for e in exprs for x in nodes(e))
