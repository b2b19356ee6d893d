"""Items: schedules for a GPU, work-groups over blocks of the output and work-items inside them.

tile                                            group                             item
for row0, lane0 on work-groups:                 for rows on work-groups:          for rows on work-groups:
  for row1, lane1 on work-items:                  for k0:                           for row1 on work-items:
    for k0:                                         for k1 on work-items:             every stage in turn
      copy operands to shared memory                  v0 = v0 + ...
      for k1:                                       combined in shared memory
        row2 x lane2 accumulators

``tile`` and ``group`` are for one reduction or none, ``item`` for kernels of several stages (softmax, layer norm).
"""

from __future__ import annotations

from math import prod

from tunegrad.ir.kernel import Axis, Kernel
from tunegrad.ir.target import Target

from ..actions import Action, Group, Local, Reorder, Stage, Thread, Upcast, Vectorize
from ..choosing import Recorder
from .analysis import Access, accesses, output_stride
from .tiling import Levels

__all__ = ["sketch_items"]

_EACH = (1, 2, 4, 8)
"""Outputs of one work-item along an axis."""

_FEW = 4
"""Outputs for each step of the reduction, below which the reduction is shared over work-items."""


def sketch_items(kernel: Kernel, target: Target, ask: Recorder) -> tuple[Action, ...]:
    """Asks for the decisions of the GPU sketches and returns their actions."""
    shared = [a for a in kernel.axes if a.extent > 1]
    if len(kernel.reduces) > 1 or any(s.axes for s in kernel.stores):
        return _item(kernel, target, shared, ask)
    reduces = [a for s in kernel.reduces for a in s.axes if a.extent > 1]
    work = prod(a.extent for a in reduces)
    if reduces and (not shared or ask.pick("form", ["tile", "group"], int(kernel.points < _FEW * work))) != "tile":
        return _group(kernel, target, shared, reduces, ask)
    return _tile(kernel, target, shared, reduces, ask) if shared else ()


def _powers(most: int) -> list[int]:
    return [1 << i for i in range(most.bit_length()) if 1 << i <= most]


def _item(kernel: Kernel, target: Target, shared: list[Axis], ask: Recorder) -> tuple[Action, ...]:
    """A work-item for each point of the shared axes."""
    if not shared:
        return ()
    levels = Levels(kernel)
    sizes = [n for n in _powers(target.max_local)[::-1] if n < 2 * shared[-1].extent]
    items = ask.pick("items", sizes, sizes.index(64) if 64 in sizes else 0)
    outer, inner = levels.split(shared[-1].name, (items,))
    groups = [*(a.name for a in shared[:-1]), *([outer] if outer else [])]
    return (*levels.actions, *(Thread(x) for x in groups), *([Local(inner)] if levels.extent(inner) > 1 else []))


def _group(
    kernel: Kernel, target: Target, shared: list[Axis], reduces: list[Axis], ask: Recorder
) -> tuple[Action, ...]:
    """A work-group for each output: its work-items share the reduction."""
    found = accesses(kernel, kernel.reduces[0])

    def strided(a: Axis) -> tuple[int, int]:
        return sum(x.stride(a.name) not in (0, 1) for x in found), -a.extent

    axis = ask.pick("group.axis", sorted(reduces, key=strided))
    sizes = [n for n in _powers(target.max_local)[::-1] if 1 < n < 2 * axis.extent]
    levels = Levels(kernel)
    inner = levels.split(axis.name, (ask.pick("group.size", sizes),))[1]
    return (*levels.actions, *(Thread(a.name) for a in shared), Group(inner))


def _tile(kernel: Kernel, target: Target, shared: list[Axis], reduces: list[Axis], ask: Recorder) -> tuple[Action, ...]:
    """A block of the output for each work-group, a register tile of it for each work-item."""
    found = accesses(kernel, kernel.reduces[0] if reduces else kernel.stores[0])
    lane = ask.pick("lane", sorted(shared, key=lambda a: output_stride(kernel, a.name) or 1 << 40)[:3])
    rest = [a for a in shared if a is not lane]
    reuse = [a for a in rest if any(x.depends(lane.name) and not x.depends(a.name) for x in found)]
    rows = [*reuse[::-1], *(a for a in rest[::-1] if a not in reuse)]
    row = ask.pick("row", rows) if rows else None
    levels = Levels(kernel)
    wide = row is not None and bool(reuse) and bool(reduces)
    most = target.max_local
    lanes = _split(levels, lane, "lane", (most, 16 if wide else 64, 4 if wide or not reduces else 1), ask)
    most //= max(1, levels.extent(lanes[1]))
    across = _split(levels, row, "row", (most, 16 if wide else 1, 4 if wide else 1), ask) if row else ["", "", ""]
    k, inner = _steps(levels, reduces, ask)
    groups = [*(a.name for a in rest if a is not row), *(x for x in (across[0], lanes[0]) if x)]
    items = [x for x in (across[1], lanes[1]) if x]
    registers = [x for x in (across[2], lanes[2]) if x]
    # Registers run innermost wherever they stand; before the reductions, no step on the way makes partial sums.
    order = [*groups, *items, *registers, *([k] if k else []), *inner]
    actions: list[Action] = list(levels.actions)
    actions += [Reorder(tuple(order))] if len(order) > 1 else []
    actions += [Thread(x) for x in groups if levels.extent(x) > 1]
    actions += [Local(x) for x in items if levels.extent(x) > 1]
    actions += [Upcast(across[2])] if levels.extent(across[2]) > 1 else []
    if levels.extent(lanes[2]) > 1:
        fits = levels.extent(lanes[2]) <= target.lanes(kernel.outputs[0].dtype.itemsize)
        vector = fits and ask.pick("lane.vector", [False, True], int(not reduces))
        actions.append(Vectorize(lanes[2]) if vector else Upcast(lanes[2]))
    return tuple(actions + _shared(kernel, target, found, k, [*inner, *items, *registers], levels, ask))


def _split(levels: Levels, axis: Axis, name: str, want: tuple[int, int, int], ask: Recorder) -> list[str]:
    """Loops over work-groups, work-items and registers; ``want`` is (most items, default items, default each)."""
    most, items, each = want
    every = [n for n in _EACH if n <= axis.extent]
    own = ask.pick(f"{name}.each", every, every.index(min(each, every[-1])))
    sizes = [n for n in _powers(most)[::-1] if n < 2 * -(-axis.extent // own)] or [1]
    count = ask.pick(f"{name}.items", sizes, sizes.index(min(items, sizes[0])))
    return levels.split(axis.name, (count * own, own))


def _steps(levels: Levels, reduces: list[Axis], ask: Recorder) -> tuple[str, list[str]]:
    """The loop over blocks of the longest reduce axis, and the loops inside; operands are staged for a block."""
    if not reduces:
        return "", []
    longest = max(reduces, key=lambda a: a.extent)
    sizes = [0, *(n for n in (16, 32, 8, 4) if n < longest.extent)]
    outer, inner = levels.split(longest.name, (ask.pick("k.block", sizes, min(1, len(sizes) - 1)),))
    rest = [a.name for a in reduces if a is not longest]
    return (outer, [*rest, inner]) if inner else ("", [*rest, outer])


def _shared(
    kernel: Kernel,
    target: Target,
    found: tuple[Access, ...],
    k: str,
    loops: list[str],
    levels: Levels,
    ask: Recorder,
) -> list[Action]:
    """Operands that several work-items of a group read, copied to shared memory for each block of the reduction."""
    actions: list[Action] = []
    left = target.shared_bytes
    counts = {x.param: sum(y.param == x.param for y in found) for x in found}
    for x in found:
        layout = [n for n in loops if x.depends(_axis(n)) and levels.extent(n) > 1]
        nbytes = kernel.param(x.param).dtype.itemsize * prod(levels.extent(n) for n in layout)
        if not k or counts[x.param] > 1 or not layout or nbytes > left:
            continue
        reused = any(not x.depends(_axis(n)) for n in loops)
        if ask.pick(f"stage.{x.param}", [False, True], int(reused)):
            actions.append(Stage(x.param, k, () if x.masked else tuple(layout)))
            left -= nbytes
    return actions


def _axis(loop: str) -> str:
    return loop.rstrip("0123456789")
