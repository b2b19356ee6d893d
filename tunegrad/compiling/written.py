"""Programs as files without their texts, so that a process need not lower again what this machine
has lowered before.

    kernel, schedule, device, tunegrad's own code   -->   a key
    what is left of a lowered program               <->   JSON: the image's key, the hash of the
                                                          text, and all that a launch needs

Lowering is a pure function of what the key holds. A file that can not be read is lowered again.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tunegrad.devices.lowered import Geometry, KernelIO, Lowered, Parameter
from tunegrad.errors import UserError
from tunegrad.ir.dtypes import buffer_dtype
from tunegrad.ir.index import Atom, Element, FloorDiv, Index, Mod, Range, Valid, Var
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.layout import Pack
from tunegrad.ir.target import Target

if TYPE_CHECKING:
    from tunegrad.devices import Device

__all__ = [
    "SUFFIX",
    "ProgramFacts",
    "default_key",
    "program_key",
    "read_program",
    "written_program",
]

SUFFIX = ".plan"
"""End of the names of files of saved models."""

_STAGES = ("compiling", "devices", "ir", "opts", "render")


@dataclass(frozen=True, slots=True)
class ProgramFacts:
    """Facts kept of a lowered program: everything but its text, which its image was made of.

    ``key`` is the image's; ``hash`` tells programs apart in a store.
    """

    lowered: Lowered
    key: str
    hash: str


class _Pack(msgspec.Struct, frozen=True):
    """A pack with its index and condition as numbers and names.

    An index is ``[constant, atom, coefficient, ...]``, an atom ``[name, lo, hi]``, or ``["//",
    index, divisor]``, or that with "%"; a condition is ``[index, lo, hi, ...]``.
    """

    name: str
    source: str
    dtype: str
    variables: list[str]
    extents: list[int]
    offset: list[Any]
    valid: list[Any]


class _File(msgspec.Struct, frozen=True):
    key: str
    hash: str
    entry: str
    params: list[Parameter]
    packs: list[_Pack]
    unread: list[str]
    scratch_bytes: list[int]
    geometry: Geometry


def program_key(kernel: Kernel, schedule: str, device: Device) -> str | None:
    """Key of everything that lowering depends on, as 64 hex digits; None where this code is in no
    files.
    """
    return _key(kernel, schedule, device)


def default_key(kernel: Kernel, device: Device) -> str | None:
    """Key of everything that the default schedule of a kernel depends on, as ``program_key``."""
    return _key(kernel, "its default", device)


def _key(kernel: Kernel, what: str, device: Device) -> str | None:
    code = _own_code()
    if not code:
        return None
    parts = (code, device.compiler(), device.name, _words(device.target), kernel.name, kernel.text,
             repr(kernel.fixed), what)  # fmt: skip
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@lru_cache(maxsize=16)
def _words(target: Target) -> str:
    return repr(target)  # once: every kernel of a model asks


def written_program(program: ProgramFacts) -> bytes | None:
    """A program as a file; None for one that would not be read back as it is."""
    lowered = program.lowered
    if any(any(index.elements()) for p in lowered.io.packs for index in _indices(p)):
        return None
    packs = [
        _Pack(p.name, p.source, p.dtype.name, [*p.variables], [*p.extents], _of_index(p.offset),
              _of_valid(p.valid))
        for p in lowered.io.packs
    ]  # fmt: skip
    body = msgspec.json.encode(
        _File(program.key, program.hash, lowered.entry, [*lowered.io.params], packs,
              [*lowered.io.unread], [*lowered.scratch_bytes], lowered.geometry)
    )  # fmt: skip
    return body if read_program(body) == program else None


def read_program(body: bytes) -> ProgramFacts | None:
    """The program that a file holds; None for a file that holds none."""
    try:
        file = msgspec.json.decode(body, type=_File)
        packs = tuple(map(_pack, file.packs))
    except (msgspec.DecodeError, UserError, TypeError, ValueError, ArithmeticError, RecursionError):
        return None
    io = KernelIO(tuple(file.params), packs, tuple(file.unread))
    lowered = Lowered("", file.entry, io, tuple(file.scratch_bytes), file.geometry)
    return ProgramFacts(lowered, file.key, file.hash)


def _pack(p: _Pack) -> Pack:
    return Pack(
        p.name, p.source, buffer_dtype(p.dtype), tuple(p.variables), tuple(p.extents),
        _index(p.offset), _valid(p.valid),
    )  # fmt: skip


def _indices(p: Pack) -> list[Index]:
    return [p.offset, *(r.index for r in p.valid)]


def _of_index(index: Index) -> list[Any]:
    return [index.const, *(x for atom, c in index.terms for x in (_of_atom(atom), c))]


def _of_atom(atom: Atom) -> list[Any]:
    if isinstance(atom, Var):
        return [atom.name, atom.lo, atom.hi]
    assert not isinstance(atom, Element), atom
    return ["//" if isinstance(atom, FloorDiv) else "%", _of_index(atom.num), atom.den]


def _of_valid(valid: Valid) -> list[Any]:
    if valid.never:
        return [[0], 1, 1]
    return [x for r in valid for x in (_of_index(r.index), r.lo, r.hi)]


def _index(numbers: list[Any]) -> Index:
    const, *terms = numbers
    pairs = zip(terms[::2], terms[1::2], strict=True)
    return Index(tuple((_atom(atom), int(c)) for atom, c in pairs), int(const))


def _atom(numbers: list[Any]) -> Var | FloorDiv | Mod:
    name, first, second = numbers
    if name in ("//", "%"):
        return (FloorDiv if name == "//" else Mod)(_index(first), int(second))
    return Var(str(name), int(first), int(second))


def _valid(numbers: list[Any]) -> Valid:
    parts = zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
    return Valid(Range(_index(index), int(lo), int(hi)) for index, lo, hi in parts)


def _own_files() -> list[str]:
    """The files that make programs, sorted."""
    root = Path(__file__).parents[1]
    found = [
        os.path.join(folder, name)  # noqa: PTH118 - a path object a file takes as long as reading it
        for stage in _STAGES
        for folder, _, names in os.walk(root / stage)
        for name in names
        if name.endswith((".py", ".cpp", ".hpp"))
    ]
    return sorted([*found, str(root / "pipeline.py")]) if found else []


@cache
def _own_code() -> str:
    """A digest of the files that make programs; '' where they are no files."""
    root, files = Path(__file__).parents[1], _own_files()
    whole = hashlib.sha256()
    for path in files:
        with open(path, "rb") as file:  # noqa: PTH123
            body = file.read()
        whole.update(f"{path[len(str(root)) :]}\0{len(body)}\0".encode())
        whole.update(body)
    return whole.hexdigest() if files else ""
