"""Indices and conditions as Python functions of an environment, a list that holds each variable's
value in its slot.

A lane variable has a slot of its own that holds ``arange(lanes)``, so the same functions give
arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from ..index import Element, FloorDiv, Index, Valid, Var

__all__ = ["Env", "IndexCompiler", "Number"]

Env = list[Any]
Number = Callable[[Env], Any]


class Readable(Protocol):
    """A buffer: all its elements, flat."""

    data: Any


class IndexCompiler:
    """Gives variables their slots (from ``first`` on) and makes functions of indices, each distinct
    one once.
    """

    __slots__ = ("_first", "_lanes", "_made", "_memory", "slots")

    def __init__(self, first: int, memory: Mapping[str, Readable]) -> None:
        """``memory``: the buffers by name, for indices that are elements of one."""
        self._memory = memory
        self.slots: dict[str, int] = {}
        self._first = first
        self._lanes: list[tuple[int, int]] = []
        self._made: dict[tuple[str, str, int], Number] = {}

    def env(self, head: list[int]) -> Env:
        """A fresh environment: ``head`` fills the slots before the variables'."""
        env: Env = head + [None] * len(self.slots)
        for slot, lanes in self._lanes:
            env[slot] = np.arange(lanes, dtype=np.int64)
        return env

    def slot(self, name: str) -> int:
        """The slot of a loop variable."""
        return self.slots.setdefault(name, self._first + len(self.slots))

    def index(self, index: Index, lane: str = "", lanes: int = 1) -> Number:
        """``index`` as a function of env; an array of ``lanes`` numbers when it depends on
        ``lane``.
        """
        key = (index.key, lane, lanes)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = self._index(index, lane, lanes)
        return made

    def valid(self, valid: Valid, lane: str = "", lanes: int = 1) -> Number:
        """``valid`` as a function of env, giving a bool, or an array of them when it depends on
        ``lane``.
        """
        if valid.never:
            return lambda _: False
        ranges = [(self.index(r.index, lane, lanes), r.lo, r.hi) for r in valid]
        if lane and lane in valid.names():

            def many(e: Env) -> Any:
                keep: Any = True
                for at, lo, hi in ranges:
                    x = at(e)
                    keep = keep & (x >= lo) & (x < hi)
                return keep

            return many

        def one(e: Env) -> bool:
            for at, lo, hi in ranges:  # noqa: SIM110  # all() over a generator takes twice as long
                if not lo <= at(e) < hi:
                    return False
            return True

        return one

    def _lane_slot(self, lane: str, lanes: int) -> int:
        name = f"{lane}:{lanes}"
        if name not in self.slots:
            self._lanes.append((self.slot(name), lanes))
        return self.slots[name]

    def _index(self, index: Index, lane: str, lanes: int) -> Number:
        pairs: list[tuple[int, int]] = []
        hard: list[tuple[Number, int]] = []
        for atom, c in index.terms:
            if isinstance(atom, Var):
                pairs.append(
                    (self._lane_slot(lane, lanes) if atom.name == lane else self.slot(atom.name), c)
                )
            else:
                num = self.index(atom.num, lane, lanes)
                if isinstance(atom, Element):
                    hard.append((_element(num, atom, self._memory[atom.buffer].data), c))
                    continue
                hard.append(
                    (
                        _floordiv(num, atom.den)
                        if isinstance(atom, FloorDiv)
                        else _mod(num, atom.den),
                        c,
                    )
                )
        if hard:
            return _general(_linear(index.const, pairs), tuple(hard))
        return _linear(index.const, pairs)


def _linear(const: int, pairs: list[tuple[int, int]]) -> Number:
    if not pairs:
        return lambda _: const
    (s0, c0), rest = pairs[0], pairs[1:]
    if not rest:
        return (lambda e: e[s0]) if (c0, const) == (1, 0) else (lambda e: c0 * e[s0] + const)
    if len(rest) == 1:
        s1, c1 = rest[0]
        return lambda e: c0 * e[s0] + c1 * e[s1] + const
    if len(rest) == 2:
        (s1, c1), (s2, c2) = rest
        return lambda e: c0 * e[s0] + c1 * e[s1] + c2 * e[s2] + const
    if len(rest) == 3:
        (s1, c1), (s2, c2), (s3, c3) = rest
        return lambda e: c0 * e[s0] + c1 * e[s1] + c2 * e[s2] + c3 * e[s3] + const

    head, tail = _linear(const, pairs[:4]), _linear(0, pairs[4:])
    return lambda e: head(e) + tail(e)


def _general(head: Number, hard: tuple[tuple[Number, int], ...]) -> Number:
    def total(e: Env) -> Any:
        sum_ = head(e)
        for at, c in hard:
            sum_ = sum_ + c * at(e)
        return sum_

    return total


def _element(num: Number, e: Element, memory: Any) -> Number:
    return lambda env: e.value(memory, num(env))


def _floordiv(num: Number, den: int) -> Number:
    return lambda e: num(e) // den


def _mod(num: Number, den: int) -> Number:
    return lambda e: num(e) % den
