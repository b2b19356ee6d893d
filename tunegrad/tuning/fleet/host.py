"""Whole models on a machine of the fleet: made of their parts, and run by a bench of its own.

put                 plans, graphs, constants: what a call said is missing
run, expect         by the names of parts, as ``ModelBench``; or ``Missing``, and nothing was done
compile, renew      as ``ModelBench``
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, assert_never

import numpy as np

from tunegrad.ir.graph import ConstData
from tunegrad.ir.kernel import Kernel
from tunegrad.runtime import Argument
from tunegrad.tuning.models import Compiled, ModelBench, WholeModel
from tunegrad.tuning.models.work import MOST_BYTES

from .parts import Missing, ModelRef, Part, unpacked

__all__ = ["ModelHost", "Run"]

Run = Literal["check", "judged", "latencies", "paired", "profiled"]
"""The methods of a ``ModelBench`` that are about whole models."""

_MOST_PARTS = 256
"""Plans and graphs that are kept: 12 MB of plans like ResNet-18's, of 45 KiB and constants."""


class ModelHost:
    """Models of one session on the machine that ``bench`` runs them on."""

    def __init__(self, bench: ModelBench) -> None:
        self._bench = bench
        self._constants: dict[str, ConstData] = {}
        self._parts: dict[str, Part] = {}
        self._sources: dict[str, Any] = {}

    def put(self, parts: Mapping[str, Part], constants: Iterable[ConstData]) -> None:
        """Keep parts by name, and constants by digest. Where it is too much, all else goes first.

        Constants are copied: what the transport hands over lies in memory that it needs back.
        """
        held_bytes = sum(c.array.nbytes for c in self._constants.values())
        if parts and (len(self._sources) > _MOST_PARTS or held_bytes > MOST_BYTES):
            for kept in (self._constants, self._parts, self._sources):
                kept.clear()
        self._parts.update(parts)
        for c in constants:
            self._constants[c.digest] = replace(c, array=np.array(c.array))

    def expect(self, models: Sequence[tuple[str, tuple[Argument, ...]]]) -> Missing | None:
        """Begin to evaluate graphs; what is measured next waits until that has ended."""
        if missing := self._missing(graph for graph, _ in models):
            return missing
        self._bench.expect([(self._source(graph), inputs) for graph, inputs in models])
        return None

    def compile(self, pairs: Sequence[tuple[Kernel, str]]) -> list[Compiled]:
        """Compile on all cores."""
        return self._bench.compile(pairs)

    def run(self, method: Run, refs: Sequence[ModelRef], arguments: Sequence[Any]) -> Any:
        """Run a method of the bench on models. Raises CandidateFailure."""
        if missing := self._missing(name for ref in refs for name in (ref.plan, ref.graph)):
            return missing
        models = [self._model(ref) for ref in refs]
        match method:
            case "profiled":
                return self._bench.profiled(models, *arguments)
            case "paired":
                return self._bench.paired(models[0], models[1], *arguments)
            case "latencies":
                return self._bench.latencies(models[0], *arguments)
            case "judged":
                return self._bench.judged(models[0])
            case "check":
                return self._bench.check(models)
        assert_never(method)

    def renew(self) -> None:
        """End the worker of models; the next call gets a fresh one."""
        self._bench.renew()

    # ---- parts

    def _missing(self, names: Iterable[str]) -> Missing | None:
        """Parts that are not here; where all are, the constants that they need."""
        wanted = [n for n in dict.fromkeys(names) if n not in self._sources]
        lacking = frozenset(n for n in wanted if n not in self._parts)
        if not lacking:
            needed = (digest for n in wanted for digest in self._parts[n].constants)
            lacking = frozenset(digest for digest in needed if digest not in self._constants)
        return Missing(lacking) if lacking else None

    def _source(self, name: str) -> Any:
        """A plan or a graph; the same object every time, so that the bench knows it."""
        if name not in self._sources:
            self._sources[name] = unpacked(self._parts.pop(name), self._constants)
        return self._sources[name]

    def _model(self, ref: ModelRef) -> WholeModel:
        graph, plan = self._source(ref.graph), self._source(ref.plan)
        return WholeModel(ref.name, graph, plan, ref.inputs, ref.actions)
