"""A graph as a schedule of kernels.

realized_nodes   which tensors get memory               (heuristic)
draft_kernel     one kernel per such tensor             (proved legal, or a node is cut off and given memory)
temp_layouts     where the elements of each one live
normalized       canonical axes, dimensions, names
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from tunegrad.errors import ShapeError

from ..graph import ConstData, GraphOp, Node
from ..layout import Layout
from .build import CutError, Draft, draft_kernel
from .layouts import temp_layouts
from .naming import kernel_name, kernel_origin
from .normalize import normalized
from .plan import Buffer, BufferRole, Launch, Schedule
from .realize import realized_nodes, resolve

__all__ = ["schedule"]


def schedule(outputs: tuple[Node, ...], names: tuple[str, ...] = (), *, channels_last: bool = True) -> Schedule:
    """The kernels that compute ``outputs``, and their buffers.

    ``names`` are the outputs' names (default ``out0`` ...). With ``channels_last``, 4-D intermediates around
    convolutions and pooling are stored (N, H, W, C). An output that is an input, a constant or a view is copied.
    Raises ShapeError when two inputs share a name.
    """
    names = names or tuple(f"out{i}" for i in range(len(outputs)))
    if len(names) != len(outputs):
        raise ShapeError(f"schedule: {len(outputs)} outputs need as many names, got {len(names)}")
    order, realized = realized_nodes(outputs)
    targets = tuple(resolve(o) for o in outputs)
    drafts = _drafts(order, realized, targets)
    return _Assembler(order, drafts, targets, names, channels_last).run()


def _drafts(order: list[Node], realized: set[Node], targets: tuple[Node, ...]) -> list[Draft]:
    """One draft per tensor that is needed in memory, sources first."""
    buffers = {n for n in realized if n.srcs}
    position = {n: i for i, n in enumerate(order)}
    done: dict[Node, Draft] = {}
    while True:
        _draft_all(targets, buffers, done)
        twice = _computed_twice(done)
        if not twice:
            break
        buffers |= twice
        done = {n: d for n, d in done.items() if twice.isdisjoint(d.inlined) or n in twice}
        done = {n: d for n, d in done.items() if n not in twice}
    return [done[n] for n in sorted(done, key=position.__getitem__)]


def _draft_all(targets: tuple[Node, ...], buffers: set[Node], done: dict[Node, Draft]) -> None:
    """Fill ``done`` with the drafts of the targets and all they read; drop those nothing reads any more."""
    stack, needed = list(targets), set[Node]()
    while stack:
        n = stack.pop()
        if n in needed or not n.size:
            continue
        needed.add(n)
        while n not in done:
            try:
                done[n] = draft_kernel(n, buffers)
            except CutError as e:
                buffers.add(e.node)
        stack.extend(s for s in done[n].reads.values() if s.srcs)
    for n in [n for n in done if n not in needed]:
        del done[n]


def _computed_twice(done: dict[Node, Draft]) -> set[Node]:
    """Reductions that two kernels compute."""
    seen: set[Node] = set()
    twice: set[Node] = set()
    for d in done.values():
        for n in d.inlined:
            if n.op is GraphOp.REDUCE and n is not d.node:
                (twice if n in seen else seen).add(n)
    return twice


class _Assembler:
    """Gives buffers their numbers and kernels their final form."""

    def __init__(
        self, order: list[Node], drafts: list[Draft], targets: tuple[Node, ...], names: tuple[str, ...], last: bool
    ) -> None:
        self.order, self.drafts, self.targets, self.names = order, drafts, targets, names
        temps = {d.node for d in drafts} - set(targets)
        self.layouts = temp_layouts(drafts, temps, last)
        self.buffers: list[Buffer] = []
        self.read: dict[Node, int] = {}
        """The buffer that holds a node for those who read it."""
        self.written: dict[Node, int] = {}
        """The buffer that the draft of a node writes: another one where an input is copied to an output."""

    def run(self) -> Schedule:
        read = {s for d in self.drafts for s in d.reads.values()}
        for op in (GraphOp.INPUT, GraphOp.CONST):
            for n in self.order:
                if n.op is op and (n in read or (op is GraphOp.INPUT and n.size)):
                    self._leaf(n)
        inputs = tuple(b.id for b in self.buffers if b.role == "input")
        names = dict(zip(reversed(self.targets), reversed(self.names), strict=True))
        for n in dict.fromkeys((*(d.node for d in self.drafts), *self.targets)):
            role: BufferRole = "output" if n in names else "temp"
            name = names.get(n, f"t{len(self.buffers)}")
            self.written[n] = self._buffer(n, role, name)
            if n.srcs:
                self.read[n] = self.written[n]
        launches = tuple(self._launch(d) for d in self.drafts)
        result = Schedule(tuple(self.buffers), launches, inputs, tuple(self.written[t] for t in self.targets))
        result.verify()
        return result

    def _leaf(self, n: Node) -> None:
        if n.op is GraphOp.CONST:
            data = cast(ConstData, n.arg)
            self.read[n] = self._buffer(n, "const", data.name or f"c{len(self.buffers)}", data)
            return
        name = cast(str, n.arg)
        if any(b.role == "input" and b.name == name for b in self.buffers):
            raise ShapeError(f"schedule: two inputs of different shape or dtype share the name {name!r}")
        self.read[n] = self._buffer(n, "input", name)

    def _buffer(self, n: Node, role: BufferRole, name: str, data: ConstData | None = None) -> int:
        layout = self.layouts.get(n, None) or Layout.row_major(n.shape)
        self.buffers.append(Buffer(len(self.buffers), n.dtype, n.shape, layout, role, name, data))
        return self.buffers[-1].id

    def _launch(self, d: Draft) -> Launch:
        nodes = {"out": d.node, **d.reads}
        layouts = {p: self.layouts[n] for p, n in nodes.items() if n in self.layouts}
        kernel, params = normalized(d.kernel, layouts)
        args = tuple(self.written[d.node] if p == "out" else self.read[d.reads[p]] for p in params)
        name, origin = kernel_name(d, kernel), kernel_origin(d)
        return Launch(replace(kernel, name=name, origin=origin), args, name, origin)
