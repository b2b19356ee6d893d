"""Finds the node where the uses of a tensor meet again.

A tensor with several consumers can stay inside one kernel only if every path from it runs into one
later node: its immediate post-dominator. The post-dominator tree is built sources-last, with jump
pointers, so that a common ancestor is found in logarithmic time.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..graph import Node

__all__ = ["Regions"]

_SINK = -1


class Regions:
    """Consumers, positions and post-dominators of the nodes of one graph, by position in
    topological order.
    """

    def __init__(self, order: Sequence[Node], outputs: Sequence[Node]) -> None:
        self.order = order
        self.position = {id(n): i for i, n in enumerate(order)}
        self.consumers: list[list[int]] = [[] for _ in order]
        for i, n in enumerate(order):
            for s in {self.position[id(s)] for s in n.srcs}:
                self.consumers[s].append(i)
        self.outputs = {self.position[id(o)] for o in outputs}
        self._parent: dict[int, int] = {_SINK: _SINK}
        self._jump: dict[int, int] = {_SINK: _SINK}
        self._depth: dict[int, int] = {_SINK: 0}
        for i in range(len(order) - 1, -1, -1):
            self._insert(i)

    def meeting(self, i: int) -> int | None:
        """The position of the immediate post-dominator of node ``i``; None when its uses never meet
        again.
        """
        parent = self._parent[i]
        return None if parent == _SINK else parent

    def between(self, i: int, limit: int) -> list[int] | None:
        """Nodes on the paths from ``i`` to its meeting point, that one included, in order; None
        past ``limit``.
        """
        end = self.meeting(i)
        if end is None:
            return None
        found: set[int] = set()
        stack = list(self.consumers[i])
        while stack:
            n = stack.pop()
            if n in found:
                continue
            found.add(n)
            if len(found) > limit:
                return None
            if n != end:
                stack.extend(self.consumers[n])
        return sorted(found)

    def _insert(self, i: int) -> None:
        parent = _SINK if i in self.outputs or not self.consumers[i] else self.consumers[i][0]
        for c in self.consumers[i][1:]:
            if parent == _SINK:
                break
            parent = self._common(parent, c)
        jump = self._jump[parent]
        far = self._jump[jump]
        even = self._depth[parent] - self._depth[jump] == self._depth[jump] - self._depth[far]
        self._parent[i], self._jump[i] = parent, (far if even else parent)
        self._depth[i] = self._depth[parent] + 1

    def _common(self, a: int, b: int) -> int:
        if self._depth[a] < self._depth[b]:
            a, b = b, a
        while self._depth[a] > self._depth[b]:
            a = self._jump[a] if self._depth[self._jump[a]] >= self._depth[b] else self._parent[a]
        while a != b:
            if self._jump[a] != self._jump[b]:
                a, b = self._jump[a], self._jump[b]
            else:
                a, b = self._parent[a], self._parent[b]
        return a
