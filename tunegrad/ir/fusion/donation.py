"""Outputs that are new values of inputs: each is written in the memory of its input.

    launch step (new w, w, g)              launch loss (loss, w, x)
    launch loss (loss, w, x)        -->    launch step (new w over w, w, g)

Outputs behind all of these are numbers that guards are held to. Their launches go before any input
is replaced, where they do not depend on new values: an index out of range is known before.

A launch may replace an input where nothing is read of it afterwards, and where the kernel reads it
nowhere but at the place that the same point stores to (``ir.kernel.overwriting_fault``). Launches
are put in such an order, if there is one. Otherwise the new value goes to a temporary buffer, which
a launch at the end copies:

    launch turn (new w, w)          -->    launch turn (t, w)
                                           launch copy (new w over w, t)
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import field, replace

from tunegrad.errors import InternalError
from tunegrad.lazy import dataclass

from ..expr import Load
from ..graph import GraphOp, Node
from ..kernel import Axis, Kernel, Param, Reduce, Role, Stage, Store, overwriting_fault
from ..layout import Layout
from .parts import joined
from .plan import Buffer, Launch, LaunchPlan

New = tuple[int, str]
"""An output, by its place among the outputs, that is the new value of the input of that name."""


def in_place(plan: LaunchPlan, news: Sequence[New], view_bytes: int) -> LaunchPlan:
    """The plan whose outputs ``news`` are written in the memory of their inputs. What only lies one
    after another, as gradients do, is written so (``parts``); parts begin at multiples of
    ``view_bytes``.

    Raises InternalError for an output that has another shape or dtype than its input, and for an
    input that has two new values.
    """
    return joined(_Donation.of(plan).run(news), view_bytes)


def overwriting(kernel: Kernel, out: str, source: str) -> Kernel | None:
    """The kernel that may write ``out`` over the input ``source``; None where it must not.

    Its stores are put in an order in which each input is read before it is replaced.
    """
    if kernel.fixed or source in kernel.overwritten or kernel.param(out).over:
        return None
    params = tuple(replace(p, over=source if p.name == out else p.over) for p in kernel.params)
    stages = ordered_stores(kernel, {**kernel.overwritten, source: out})
    if stages is None:
        return None
    made = replace(kernel, params=params, stages=stages)
    faults = (overwriting_fault(made, o, s) for s, o in made.overwritten.items())
    return None if any(faults) else made.canonical()


def ordered_stores(kernel: Kernel, over: dict[str, str]) -> tuple[Stage, ...] | None:
    """The stages with each store that reads an input before that which replaces it; None where two
    read what the other one replaces.
    """
    stores = kernel.stores
    read = [{x.param for s, x in kernel.loads if s is store} for store in stores]
    after = {
        (n, m)
        for n, names in enumerate(read)
        for m, store in enumerate(stores)
        if n != m and any(over.get(name) == store.param for name in names)
        and stores[n].param != store.param
    }  # fmt: skip
    order = _sorted(len(stores), after)
    if order is None:
        return None
    if order == [*range(len(stores))]:
        return kernel.stages
    reduces = tuple(s for s in kernel.stages if isinstance(s, Reduce))
    return (*reduces, *(stores[n] for n in order))


def _sorted(count: int, edges: Iterable[tuple[int, int]]) -> list[int] | None:
    """Numbers below ``count`` in the least order that the edges (first, then) allow, or None."""
    then: list[list[int]] = [[] for _ in range(count)]
    waits = [0] * count
    for a, b in set(edges):
        then[a].append(b)
        waits[b] += 1
    ready = [n for n in range(count) if not waits[n]]
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready))
        for n in then[order[-1]]:
            waits[n] -= 1
            if not waits[n]:
                heapq.heappush(ready, n)
    return order if len(order) == count else None


@dataclass(slots=True)
class _Donation:
    """A plan whose outputs go to the memory of inputs, one after the other. Mutable.

    ``edges`` are pairs of launches, first and then; ``turned`` says that one is against the order
    of the plan. ``copies`` are launches at the end.
    """

    plan: LaunchPlan
    buffers: list[Buffer]
    launches: list[Launch]
    inputs: list[int]
    outputs: list[int]
    edges: set[tuple[int, int]]
    readers: dict[int, list[int]]
    writer: dict[int, int]
    copies: list[Launch] = field(default_factory=list)
    over: list[tuple[int, int]] = field(default_factory=list)
    turned: bool = False

    @staticmethod
    def of(plan: LaunchPlan) -> _Donation:
        """A plan before the first output is looked at."""
        writer: dict[int, int] = {}
        readers: dict[int, list[int]] = {}
        edges: set[tuple[int, int]] = set()
        pieces = plan.pieces
        for n, launch in enumerate(plan.launches):
            writer.update((i, n) for i in launch.writes)
            for at in (i for arg in launch.reads for i in pieces[arg]):
                readers.setdefault(at, []).append(n)
                if at in writer:
                    edges.add((writer[at], n))
        parts = [*plan.buffers], [*plan.launches], [*plan.inputs], [*plan.outputs]
        return _Donation(plan, *parts, edges, readers, writer)

    def run(self, news: Sequence[New]) -> LaunchPlan:
        for place, name in news:
            if self.buffers[self.outputs[place]].layout.size:
                self._replace(place, self._input(place, name))
        self._check_first(self.outputs[1 + max(place for place, _ in news) :])
        order = _sorted(len(self.launches), self.edges)
        if order is None:
            raise InternalError("plan: launches of donated inputs wait for each other")
        made = LaunchPlan(
            tuple(self.buffers),
            (*(self.launches[n] for n in order), *self.copies),
            tuple(self.inputs),
            tuple(self.outputs),
            tuple(self.over),
        )
        made.verify()
        return made

    def _input(self, place: int, name: str) -> int:
        """The input of that name, which may be one that nothing reads."""
        new = self.buffers[self.outputs[place]]
        found = next((i for i in self.inputs if self.buffers[i].name == name), None)
        if found is None:
            found = self._add(replace(new, role="input", name=name, data=None, node=None))
            self.inputs.append(found)
        old = self.buffers[found]
        if (old.shape, old.dtype) != (new.shape, new.dtype) or found in dict(self.over).values():
            raise InternalError(f"plan: {new} is no new value of {old}")
        return found

    def _add(self, b: Buffer) -> int:
        at = len(self.buffers)
        self.buffers.append(replace(b, id=at, layout=Layout.row_major(b.shape)))
        return at

    def _replace(self, place: int, old: int) -> None:
        """Write an output over an input, by its own launch or by a copy."""
        new = self.outputs[place]
        if self.outputs.count(new) == 1 and new in self.writer and self._directly(new, old):
            self.over.append((new, old))
            return
        source = self.buffers[new]
        fence = source.node
        if isinstance(fence, Node):  # the copy is a node of its own, which is equal
            fence = Node(GraphOp.CONTIGUOUS, (fence,), None, fence.shape, fence.dtype)
        made = self._add(replace(source, role="output", data=None, node=fence))
        if self.outputs.count(new) == 1 and new in self.writer:
            self.buffers[new] = replace(self.buffers[new], role="temp")
        self.outputs[place] = made
        self.copies.append(_copy(self.buffers[made], self.buffers[new]))
        self.over.append((made, old))

    def _directly(self, new: int, old: int) -> bool:
        """Let the launch that writes ``new`` do it over ``old``, after all others that read that;
        False where it must not.
        """
        n = self.writer[new]
        launch = self.launches[n]
        before = {r for r in self.readers.get(old, ()) if r != n}
        back = bool(before) and max(before) > n
        if (back or (before and self.turned)) and before & _reached(n, self.edges):
            return False
        at = [p for p, i in zip(launch.kernel.params, launch.args, strict=True)
              if self.plan.memory(i) == old]  # fmt: skip
        if at:
            out = next(
                p for p, i in zip(launch.kernel.params, launch.args, strict=True) if i == new
            )
            whole = len(at) == 1 and old in launch.args
            kernel = overwriting(launch.kernel, out.name, at[0].name) if whole else None
            if kernel is None:
                return False
            named = kernel.named(launch.kernel.name, launch.kernel.origin, launch.kernel.fixed)
            self.launches[n] = replace(launch, kernel=named)
        self.edges.update((r, n) for r in before)
        self.turned = self.turned or back
        return True

    def _check_first(self, guards: Sequence[int]) -> None:
        """Launches that write the numbers of guards before those that replace inputs."""
        replacing = {self.writer[new] for new, _ in self.over if new in self.writer}
        for n in {self.writer[i] for i in guards if i in self.writer} - replacing:
            sources = _reached(n, ((b, a) for a, b in self.edges))
            self.edges.update((n, later) for later in replacing - sources)


def _reached(start: int, edges: Iterable[tuple[int, int]]) -> set[int]:
    """The numbers to which edges (first, then) lead from one."""
    then: dict[int, list[int]] = {}
    for a, b in edges:
        then.setdefault(a, []).append(b)
    seen, stack = set[int](), [start]
    while stack:
        for n in then.get(stack.pop(), ()):
            if n not in seen:
                seen.add(n)
                stack.append(n)
    return seen


def _copy(to: Buffer, source: Buffer) -> Launch:
    """The launch that copies a buffer to another one, element by element."""
    axis = Axis("a", to.layout.size)
    shape = (axis.extent,)
    role: Role = "const" if source.role == "const" else "in"
    out = Param.dense("p0", to.dtype, shape, "out")
    read = Param.dense("p1", source.dtype, shape, role)
    store = Store("p0", (axis.index,), Load("p1", (axis.index,), source.dtype))
    name = f"copy {'x'.join(map(str, to.shape)) or '1'}"
    kernel = Kernel((out, read), (axis,), (store,), name).canonical()
    return Launch(kernel, (to.id, source.id), name, ())
