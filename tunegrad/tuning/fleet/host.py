"""Whole models on a machine of the fleet: made of their parts, and run by a bench of its own.

put                 plans, graphs, constants: what a call said is missing
run, expect         by the names of parts, as ``ModelBench``; or ``Missing``, and nothing was done
compile, renew      as ``ModelBench``
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any, Literal, assert_never

import numpy as np

from tunegrad.ir.fusion import LaunchPlan
from tunegrad.ir.graph import ConstData, Node
from tunegrad.ir.interpret.evaluate import flat, unflat
from tunegrad.ir.kernel import Kernel
from tunegrad.runtime import Argument
from tunegrad.tuning.models import Compiled, ModelBench, WholeModel
from tunegrad.tuning.models.work import MOST_BYTES

Source = LaunchPlan | tuple[Node, ...]
"""A plan, or the outputs of a graph."""


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A ``WholeModel`` by the names of its parts."""

    name: str
    graph: str
    plan: str
    inputs: tuple[Argument, ...]
    actions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Missing:
    """The answer to a call that lacks parts: their names, or digests of constants of them."""

    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Part:
    """A plan or a graph without its constants, whose digests are named.

        plan, graph  -- packed -->  Part: bytes, digests of constants  -- unpacked -->  plan, graph
                                    constants: plans of one model share them

    A call names the plan and the graph of a model; only what the machine does not have yet follows.
    """

    blob: bytes
    constants: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Packed:
    """A part, its name, and its constants by digest."""

    name: str
    part: Part
    constants: Mapping[str, ConstData]


def packed(source: Source) -> Packed:
    """A plan or a graph, ready to be sent."""
    file = BytesIO()
    packer = _Packer(file, protocol=pickle.HIGHEST_PROTOCOL)
    packer.constants = {}
    packer.dump(source if isinstance(source, LaunchPlan) else flat(source))
    blob = file.getvalue()
    name = hashlib.blake2b(blob, digest_size=16).hexdigest()
    return Packed(name, Part(blob, tuple(packer.constants)), packer.constants)


def unpacked(part: Part, constants: Mapping[str, ConstData]) -> Any:
    """The plan or the graph that was packed, with its constants."""
    unpacker = _Unpacker(BytesIO(part.blob))
    unpacker.constants = constants
    found = unpacker.load()
    return found if isinstance(found, LaunchPlan) else unflat(*found)


class _Packer(pickle.Pickler):
    """Writes the digests of constants, and keeps the constants."""

    constants: dict[str, ConstData]

    def persistent_id(self, obj: Any) -> str | None:
        if not isinstance(obj, ConstData):
            return None
        self.constants[obj.digest] = obj
        return obj.digest


class _Unpacker(pickle.Unpickler):
    """Reads what the session's own driver wrote; the transport pickles, too (decision 0017)."""

    constants: Mapping[str, ConstData]

    def persistent_load(self, pid: Any) -> ConstData:
        return self.constants[pid]


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
