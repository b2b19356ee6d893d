"""A schedule of a kernel as code of a device, with all that launching it needs: the one place where
they meet.

    kernel, schedule, target   --KERNEL_PASSES-->   Lowered(text, entry, io, scratch, geometry)
                                           -->   image (once on a machine)   -->   Code

``build`` is a pure function: the search's workers and a loaded model get byte-identical text for
the same action list.
"""

from __future__ import annotations

import hashlib
import os
import time
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tunegrad.config import cache_dir
from tunegrad.devices.lowered import Geometry, KernelIO, Lowered, Parameter
from tunegrad.errors import UserError, VerifyError
from tunegrad.forks import ForkSafeLock
from tunegrad.ir.dtypes import DType, buffer_dtype
from tunegrad.ir.graph import Bounds, GraphOp, Node, topological
from tunegrad.ir.index import Atom, Element, FloorDiv, Index, Mod, Range, Valid, Var
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.layout import Pack
from tunegrad.ir.target import Target
from tunegrad.lazy import dataclass
from tunegrad.runtime import Code, ObjectCache

if TYPE_CHECKING:
    from tunegrad.devices import Code as Loaded
    from tunegrad.devices import Device, Engine
    from tunegrad.ir.fusion import LaunchPlan
    from tunegrad.ir.rewrites import Guard
    from tunegrad.opts import ActionObserver, Observer, Schedule

__all__ = [
    "SUFFIX",
    "Compiler",
    "Counts",
    "KeptPlan",
    "ProgramFacts",
    "build",
    "code_of",
    "default_key",
    "graph_key",
    "object_key",
    "program_key",
    "read_program",
    "written_program",
]


# ---- programs as files
#
# Programs as files without their texts, so that a process need not lower again what this machine
# has lowered before.
#
#     kernel, schedule, device, tunegrad's own code   -->   a key
#     what is left of a lowered program               <->   JSON: the image's key, the hash of the
#                                                           text, and all that a launch needs
#
# Lowering is a pure function of what the key holds. A file that can not be read is lowered again.


SUFFIX = ".plan"
"""End of the names of files of saved models."""

_SETTLED_NS = 2_000_000_000
"""Coarser than the times of any file system in use: a file that changes again gets another one."""

_STAGES = ("compiling", "devices", "inference", "ir", "opts", "planning", "render")


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
    if not _own_code():
        return None
    return _digest(device, kernel.name, kernel.text, repr(kernel.fixed), what)


def _digest(device: Device, *parts: str) -> str:
    head = _own_code(), device.compiler(), device.name, _words(device.target)
    return hashlib.sha256("\0".join((*head, *parts)).encode()).hexdigest()


@lru_cache(maxsize=16)
def _words(target: Target) -> str:
    return repr(target)  # once: every kernel of a model asks


def graph_key(outputs: tuple[Node, ...], device: Device) -> str | None:
    """Key of everything that the default plan of a graph depends on, as ``program_key``; None for a
    graph of constants, or of what has no text.
    """
    nodes = topological(outputs)
    if not _own_code() or not all(n.op is not GraphOp.CONST and _plain(n.arg) for n in nodes):
        return None
    at = {id(n): i for i, n in enumerate(nodes)}
    rows = [(n.op, n.arg, n.shape, n.dtype.name, *(at[id(s)] for s in n.srcs)) for n in nodes]
    return _digest(device, "its default plan", repr(rows), repr([at[id(n)] for n in outputs]))


def _plain(arg: object) -> bool:
    """True if equal texts of arguments are equal arguments."""
    if isinstance(arg, tuple):
        return all(map(_plain, arg))
    return arg is None or isinstance(arg, bool | int | float | str | Bounds | DType)


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


def _own_files() -> list[os.DirEntry[str]]:
    """The files that make programs, sorted."""
    root, found = Path(__file__).parents[1], []
    left = [str(root / stage) for stage in _STAGES]
    while left:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    if entry.name.endswith((".py", ".cpp", ".hpp")):
                        found += [entry] if entry.is_file() else []  # not an editor's lock
                    elif entry.is_dir():
                        left.append(entry.path)
        except OSError:  # this package is in no files
            return []
    with os.scandir(root) as entries:
        found += [entry for entry in entries if entry.name == "pipeline.py"]
    return sorted(found, key=lambda entry: entry.path)


@cache
def _own_code() -> str:
    """A digest of the files that make programs; '' where they are no files.

    It is remembered by what the file system knows of them, once they have not changed for a while:
    a file that is written to has another time of change, whatever its size and its other times.
    """
    files, kept = _own_files(), ObjectCache(cache_dir() / "objects")
    facts = [(f.path, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino)
             for f in files for s in [f.stat()]]  # fmt: skip
    key = hashlib.sha256(repr(facts).encode()).hexdigest()
    known = kept.get(key) if files else b""
    if known is not None:
        return known.decode()
    root, whole = Path(__file__).parents[1], hashlib.sha256()
    for entry in files:
        with open(entry.path, "rb") as file:  # noqa: PTH123
            body = file.read()
        whole.update(f"{entry.path[len(str(root)) :]}\0{len(body)}\0".encode())
        whole.update(body)
    if max(changed for *_, changed, _ in facts) < time.time_ns() - _SETTLED_NS:
        kept.put(key, whole.hexdigest().encode())
    return whole.hexdigest()


# ---- artifact


def build(
    kernel: Kernel,
    schedule: Schedule,
    device: Device,
    observe: Observer | None = None,
    acted: ActionObserver | None = None,
) -> Lowered:
    """The schedule as text for a device; ``observe`` is told of every pass on the way, ``acted``
    of every action.

    Raises IllegalAction for one that is not legal there, OutOfResources for one that is too large.
    """
    from tunegrad.opts import Context, run_passes
    from tunegrad.pipeline import KERNEL_PASSES

    context = Context(kernel, device.target, schedule.actions, device.lower, acted)
    made: Lowered = run_passes(KERNEL_PASSES, kernel, context, observe)
    return made


_PROGRAMS, _IMAGES, _LINKED, _PENDING = 4096, 1024, 256, 8
"""Entries that a compiler keeps: facts of programs (a kilobyte each), images (some ten), code that
is linked, and programs whose hash was asked for, whose code is asked for next.
"""


def object_key(text: str, device: Device) -> str:
    """Key of everything that an image depends on, as 64 hex digits: the text, the machine it is
    for, the compiler and its settings.
    """
    target = device.target
    head = f"{device.compiler()}\0{target.arch}\0{','.join(target.features)}\0"
    return hashlib.sha256((head + text).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of a compiler's work so far."""

    lowered: int = 0
    compiled: int = 0
    from_disk: int = 0
    linked: int = 0


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """The plan of a graph that was validated, the schedules of its kernels by key, and its
    guards.
    """

    plan: LaunchPlan
    schedules: Mapping[str, str]
    guards: tuple[Guard, ...]


class Compiler:
    """Kernels to code: lowered and compiled once on a machine, linked once while it is held.

    The last few hundred stay linked: a model that is loaded again and again is not linked again.
    Threads may share it. Without a cache nothing outlives the process. A schedule may be given as
    the text that it prints as: it is parsed where it is lowered.
    """

    def __init__(self, cache: ObjectCache | None = None) -> None:
        self.counts = Counts()
        self._cache = cache
        self._programs: OrderedDict[tuple[str, str, Device], ProgramFacts] = OrderedDict()
        self._pending: OrderedDict[tuple[str, str, Device], Lowered] = OrderedDict()
        self._found: OrderedDict[tuple[str, str, Device], ProgramFacts] = OrderedDict()
        self._images: OrderedDict[str, bytes] = OrderedDict()
        self._linked: weakref.WeakValueDictionary[str, Loaded] = weakref.WeakValueDictionary()
        self._recent: OrderedDict[str, Loaded] = OrderedDict()
        self._lock = ForkSafeLock()

    def default(self, kernel: Kernel, device: Device) -> str:
        """The kernel's default schedule as text; found once on a machine."""
        key = None if self._cache is None else default_key(kernel, device)
        if self._cache is None or key is None:
            return _default(kernel, device)
        body = self._cache.get(key)
        if body is not None:
            return body.decode()
        text = _default(kernel, device)
        self._cache.put(key, text.encode())
        return text

    def code(self, kernel: Kernel, schedule: Schedule | str, engine: Engine) -> Code:
        """The kernel under this schedule, loaded for an engine, ready to launch while the result is
        held.

        Raises IllegalAction for a schedule that is not legal here, and CandidateFailure where it
        can not be compiled.
        """
        text = _text(schedule)
        with self._lock:
            program = self._program(kernel, text, engine.device)
            key = f"{program.key} {program.hash}"  # one text may be launched in several geometries
            linked = self._linked.get(key)
            if linked is None:
                image = self._image(program, kernel, text, engine.device)
                linked = engine.load(program.lowered, image)
                self._linked[key] = linked
                self.counts = replace(self.counts, linked=self.counts.linked + 1)
            self._recent[key] = linked
            self._recent.move_to_end(key)
            _trim(self._recent, _LINKED)
        return code_of(program.lowered, linked)

    def made(
        self, kernel: Kernel, schedule: Schedule | str, device: Device
    ) -> tuple[ProgramFacts, bytes]:
        """The program and its image, which ``code`` loads. Raises as that does."""
        text = _text(schedule)
        with self._lock:
            program = self._program(kernel, text, device)
            return program, self._image(program, kernel, text, device)

    def program_hash(self, kernel: Kernel, schedule: Schedule | str, device: Device) -> str:
        """Hash of the program that this version of tunegrad makes of the schedule, as stored rows
        name it.

        Nothing is compiled.

        The program is kept for ``code``, which is asked for next. Raises IllegalAction for a
        schedule that is not legal here, and OutOfResources for a program that is too large.
        """
        text = _text(schedule)
        key = (kernel.key, text, device)
        with self._lock:
            found = self._programs.get(key) or self._read(kernel, text, device)
            if found is not None:
                self._found[key] = found
                _trim(self._found, _PENDING)
                return found.hash
            from tunegrad.devices import program_hash

            fresh = self._pending[key] = self._pending.get(key) or self._lowered(
                kernel, text, device
            )
            _trim(self._pending, _PENDING)
            return program_hash(fresh)

    def plan(self, key: str | None, device: Device) -> KeptPlan | None:
        """The plan that ``keep`` kept under a key; ``code`` need not lower its kernels. None where
        there is none, or a damaged one.
        """
        body = None if self._cache is None or key is None else self._cache.get(key)
        if body is None:
            return None
        from .saved import read_plan

        try:
            kept, programs = read_plan(body)
        except (msgspec.DecodeError, UserError, VerifyError, LookupError, ValueError, TypeError):
            return None
        with self._lock:
            for (kernel, schedule), program in programs.items():
                self._programs[kernel, schedule, device] = program
            _trim(self._programs, _PROGRAMS)
        return kept

    def keep(self, key: str | None, kept: KeptPlan, device: Device) -> None:
        """Keep a plan without constants under its ``graph_key``."""
        if self._cache is None or key is None:
            return
        from .saved import written_plan

        kernels = kept.plan.kernels()
        with self._lock:
            programs = {
                k: self._program(kernel, kept.schedules[k], device)
                for k, (kernel, _) in kernels.items()
            }
        body = written_plan(kept, programs)
        if body is not None:
            self._cache.put(key, body)

    def _program(self, kernel: Kernel, schedule: str, device: Device) -> ProgramFacts:
        key = (kernel.key, schedule, device)
        found = self._programs.get(key)
        if found is not None:
            self._programs.move_to_end(key)
            return found
        read = self._found.pop(key, None) or self._read(kernel, schedule, device)
        if read is not None and self._kept(read.key):
            program = read
        else:
            from tunegrad.devices import program_hash

            fresh = self._pending.pop(key, None) or self._lowered(kernel, schedule, device)
            program = ProgramFacts(
                replace(fresh, text=""), object_key(fresh.text, device), program_hash(fresh)
            )
            self._obtain(program.key, fresh, device)
            if program != read:
                self._write(program, kernel, schedule, device)
        self._programs[key] = program
        _trim(self._programs, _PROGRAMS)
        return program

    def _read(self, kernel: Kernel, schedule: str, device: Device) -> ProgramFacts | None:
        """The program that this machine has lowered before; None where it has not."""
        key = None if self._cache is None else program_key(kernel, schedule, device)
        if self._cache is None or key is None:
            return None
        body = self._cache.get(key)
        return None if body is None else read_program(body)

    def _write(self, program: ProgramFacts, kernel: Kernel, schedule: str, device: Device) -> None:
        key = None if self._cache is None else program_key(kernel, schedule, device)
        body = None if key is None else written_program(program)
        if self._cache is not None and key is not None and body is not None:
            self._cache.put(key, body)

    def _image(self, program: ProgramFacts, kernel: Kernel, schedule: str, device: Device) -> bytes:
        if not self._kept(program.key):
            self._obtain(program.key, self._lowered(kernel, schedule, device), device)
        self._images.move_to_end(program.key)
        return self._images[program.key]

    def _obtain(self, key: str, lowered: Lowered, device: Device) -> None:
        """Have the image, from disk or from the compiler."""
        if self._kept(key):
            return
        image = device.compile(lowered)
        self.counts = replace(self.counts, compiled=self.counts.compiled + 1)
        if self._cache is not None:
            self._cache.put(key, image)
        self._images[key] = image
        _trim(self._images, _IMAGES)

    def _kept(self, key: str) -> bool:
        """True if there is an image, here or on disk; then it is here."""
        if key in self._images:
            return True
        image = None if self._cache is None else self._cache.get(key)
        if image is None:
            return False
        self.counts = replace(self.counts, from_disk=self.counts.from_disk + 1)
        self._images[key] = image
        _trim(self._images, _IMAGES)
        return True

    def _lowered(self, kernel: Kernel, schedule: str, device: Device) -> Lowered:
        from tunegrad.opts import Schedule

        self.counts = replace(self.counts, lowered=self.counts.lowered + 1)
        return build(kernel, Schedule.parse(schedule), device)


def _text(schedule: Schedule | str) -> str:
    return schedule if isinstance(schedule, str) else schedule.text


def _default(kernel: Kernel, device: Device) -> str:
    from tunegrad.opts import Space

    return Space(kernel, device.target).defaults()[0].text


def code_of(lowered: Lowered, loaded: Loaded) -> Code:
    """Parts of a loaded program that a launch needs."""
    io = lowered.io
    return Code(
        loaded, tuple(p.name for p in io.params), io.packs, lowered.scratch_bytes, io.unread
    )


def _trim(entries: OrderedDict[Any, Any], limit: int) -> None:
    while len(entries) > limit:
        entries.popitem(last=False)
