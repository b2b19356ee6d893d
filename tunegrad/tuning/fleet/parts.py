"""Plans and graphs on their way to a machine: bytes without their arrays, each once, by digest.

    plan, graph  -- packed -->  Part: bytes, digests of constants  -- unpacked -->  plan, graph
                                constants: plans of one model share them

A call names the plan and the graph of a model; only what the machine does not have yet follows.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from tunegrad.ir.fusion import LaunchPlan
from tunegrad.ir.graph import ConstData, Node
from tunegrad.ir.interpret.evaluate import flat, unflat
from tunegrad.runtime import Argument

__all__ = ["Missing", "ModelRef", "Packed", "Part", "packed", "unpacked"]

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
    """A plan or a graph without its constants, whose digests are named."""

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
