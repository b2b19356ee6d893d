"""The order of a plan's launches: one in which few bytes of temporary buffers live at a time.

    launch forward 1, 2, 3              forward 1, 2, 3
    launch recompute 1, 2, 3     -->    recompute 3, backward 3
    launch backward 3, 2, 1             recompute 2, backward 2, ...

List scheduling: of the launches whose sources are there, one that frees at least as many bytes as
it takes is next, since waiting for it gains nothing; where there is none, the one with the longest
way to the end (its results are needed soonest). The order that was there stays unless another one
needs fewer bytes: finding the best is NP-hard (Sethi 1975, "Complete Register Allocation
Problems").
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

from tunegrad.lazy import dataclass

from .plan import LaunchPlan

_Rank = Callable[[int, int], tuple[int, ...]]
"""Of a launch and the bytes that it adds; the least one is next."""


def least_memory(plan: LaunchPlan) -> LaunchPlan:
    """The plan with its launches in the order tried that needs fewest bytes; itself if it is."""
    graph = _Launches.of(plan)
    if len(plan.launches) < 3:
        return plan
    best: Sequence[int] = range(len(plan.launches))
    least = graph.peak(best)
    height = graph.heights()
    ranks: tuple[_Rank, ...] = (
        lambda n, more: (more > 0, -height[n] if more > 0 else more, n),
        lambda n, more: (more > 0, n if more > 0 else more, n),
        lambda n, more: (more, -height[n], n),
    )
    for rank in ranks:
        order = graph.listed(rank)
        needed = graph.peak(order)
        if needed < least:
            best, least = order, needed
    if isinstance(best, range):
        return plan
    return replace(plan, launches=tuple(plan.launches[n] for n in best))


def live_bytes(plan: LaunchPlan) -> int:
    """The most bytes of temporary buffers that live at one launch."""
    return _Launches.of(plan).peak(range(len(plan.launches)))


@dataclass(frozen=True, slots=True)
class _Launches:
    """Launches by their places, and the temporary buffers between them."""

    writes: tuple[tuple[int, ...], ...]
    """Temporary buffers that a launch writes."""
    reads: tuple[tuple[int, ...], ...]
    nbytes: dict[int, int]
    readers: dict[int, int]
    """Launches that read or write a buffer."""
    before: tuple[frozenset[int], ...]
    """Launches that a launch must come after."""

    @staticmethod
    def of(plan: LaunchPlan) -> _Launches:
        """The launches of a plan; in the memory of an input, the reads before the write."""
        pieces = plan.pieces
        sizes = {i: plan.buffers[i] for of in pieces.values() for i in of}
        nbytes = {i: b.nbytes for i, b in sizes.items() if b.role in ("temp", "view") and b.nbytes}
        writer: dict[int, int] = {}
        written, read = [], []
        for n, launch in enumerate(plan.launches):
            written.append({*launch.writes})
            read.append({i for arg in launch.reads for i in pieces[arg]})
            writer.update((i, n) for i in launch.writes)
        before = [{writer[i] for i in r if i in writer} for r in read]
        readers: dict[int, int] = {}
        for touched in (*written, *read):
            for i in touched:
                readers[i] = readers.get(i, 0) + 1

        def temps(each: list[set[int]]) -> tuple[tuple[int, ...], ...]:
            return tuple(tuple(sorted(i for i in x if i in nbytes)) for x in each)

        return _Launches(
            temps(written), temps(read), nbytes, readers, tuple(map(frozenset, before))
        )

    def heights(self) -> list[int]:
        """The longest way from each launch to one that none comes after."""
        found = [0] * len(self.before)
        for n in reversed(range(len(found))):  # plans are in an order of dependency
            for b in self.before[n]:
                found[b] = max(found[b], found[n] + 1)
        return found

    def peak(self, order: Sequence[int]) -> int:
        """The most bytes that live at one launch of an order."""
        left = dict(self.readers)
        live = most = 0
        for n in order:
            live += sum(self.nbytes[i] for i in self.writes[n])
            most = max(most, live)
            for i in (*self.writes[n], *self.reads[n]):
                left[i] -= 1
                if not left[i]:
                    live -= self.nbytes[i]
        return most

    def listed(self, rank: _Rank) -> list[int]:
        """The order in which the launch of the least rank is next."""
        after: list[list[int]] = [[] for _ in self.before]
        for n, earlier in enumerate(self.before):
            for b in earlier:
                after[b].append(n)
        touching: dict[int, list[int]] = {}
        for n, temps in enumerate(zip(self.writes, self.reads, strict=True)):
            for i in chain(*temps):
                touching.setdefault(i, []).append(n)
        waits = [len(b) for b in self.before]
        left = dict(self.readers)
        ready = [(rank(n, self._more(n, left)), n) for n, count in enumerate(waits) if not count]
        heapq.heapify(ready)
        order: dict[int, None] = {}
        while ready:
            _, n = heapq.heappop(ready)
            if n in order:
                continue
            order[n] = None
            for later in after[n]:
                waits[later] -= 1
            ranked = [later for later in after[n] if not waits[later]]
            for i in (*self.writes[n], *self.reads[n]):
                left[i] -= 1
                if left[i] == 1:  # that one frees it now: its rank falls, as no other does
                    ranked += [m for m in touching[i] if m not in order and not waits[m]]
            for m in ranked:
                heapq.heappush(ready, (rank(m, self._more(m, left)), m))
        return [*order]

    def _more(self, n: int, left: dict[int, int]) -> int:
        """Bytes that live after a launch and did not before, less those that it frees."""
        taken = sum(self.nbytes[i] for i in self.writes[n])
        return taken - sum(self.nbytes[i] for i in self.reads[n] if left[i] == 1)
