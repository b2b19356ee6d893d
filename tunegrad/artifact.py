"""A schedule of a kernel as LLVM IR for a CPU, with all that launching it needs: the one place where they meet.

    kernel, schedule, target   -->   loop tree   -->   program   -->   Lowered(text, name, io, workspace, threads)
                                                                -->   object (once on a machine)   -->   Code

``build`` is a pure function: the search's workers and a loaded model get byte-identical text for the same action list.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any, Literal

from tunegrad.devices import Executable, KernelIO, Lowered, Parameter, compile_llvm, compiler_version, program_hash
from tunegrad.errors import IllegalAction, OutOfResources
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import Program, size
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule, Space
from tunegrad.render.llvm import render_llvm, workspace_bytes
from tunegrad.runtime import Code, ObjectCache

__all__ = ["MAX_INSTRUCTIONS", "OPT_LEVEL", "Compiler", "Counts", "build", "lowered", "object_key"]

MAX_INSTRUCTIONS = 20_000
"""Instructions of a program, at most: LLVM needs about a second for as many vector ones, and longer for scalar ones."""


def build(kernel: Kernel, schedule: Schedule, target: Target) -> Lowered:
    """The schedule as LLVM IR text. Raises IllegalAction for an illegal one, OutOfResources for one too large."""
    return lowered(Space(kernel, target).lower(schedule), target)


def lowered(program: Program, target: Target | None = None) -> Lowered:
    """A program as LLVM IR text, for any target or for one.

    Raises OutOfResources for one of more than ``MAX_INSTRUCTIONS``.
    """
    count = size(program.body)
    if count > MAX_INSTRUCTIONS:
        raise OutOfResources(f"program of {count} instructions: at most {MAX_INSTRUCTIONS}")
    params = tuple(Parameter(b.name, b.dtype.name, b.size, b.role) for b in program.params)
    io = KernelIO(params, program.packs)
    return Lowered(render_llvm(program, target), program.name, io, workspace_bytes(program), program.threads)


_OptLevel = Literal[0, 1, 2, 3]
OPT_LEVEL: _OptLevel = 1
"""LLVM's pipeline, for candidates and models alike: the loops are scheduled already, and the short one is enough."""

_PROGRAMS, _IMAGES, _LINKED, _PENDING = 4096, 1024, 256, 8


def object_key(text: str, target: Target, opt_level: _OptLevel = OPT_LEVEL) -> str:
    """What object code depends on, as 64 hex digits: the text, the machine it is for, the compiler and its level."""
    head = f"{compiler_version()}\0{opt_level}\0{target.arch}\0{','.join(target.features)}\0"
    return hashlib.sha256((head + text).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Counts:
    """What a compiler did so far."""

    lowered: int = 0
    compiled: int = 0
    from_disk: int = 0
    linked: int = 0


@dataclass(frozen=True, slots=True)
class _Program:
    """What is kept of a lowered program: everything but its text."""

    lowered: Lowered
    key: str
    hash: str


class _Linked:
    """Code in this process, unmapped when nobody holds it any more."""

    __slots__ = ("__weakref__", "address")

    def __init__(self, image: bytes, name: str) -> None:
        executable = Executable.load(image, name)
        self.address = executable.address
        weakref.finalize(self, executable.close).atexit = False


class Compiler:
    """Kernels to code: lowered once in a process, compiled once on a machine, linked once while somebody holds it.

    The last few hundred stay linked: LLVM's linker keeps some 9 KB of every library it ever made, so a model that is
    loaded again and again must not be linked again. Threads may share it. Without a cache nothing outlives the process.
    """

    def __init__(self, cache: ObjectCache | None = None, opt_level: _OptLevel = OPT_LEVEL) -> None:
        self.counts = Counts()
        self._cache = cache
        self._opt_level: _OptLevel = opt_level
        self._programs: OrderedDict[tuple[str, str, Target], _Program] = OrderedDict()
        self._pending: OrderedDict[tuple[str, str, Target], Lowered] = OrderedDict()
        self._images: OrderedDict[str, bytes] = OrderedDict()
        self._linked: weakref.WeakValueDictionary[str, _Linked] = weakref.WeakValueDictionary()
        self._recent: OrderedDict[str, _Linked] = OrderedDict()
        self._lock = threading.RLock()

    def code(self, kernel: Kernel, schedule: Schedule, target: Target) -> Code:
        """The kernel under this schedule, ready to launch while the result is held.

        Raises IllegalAction for a schedule that is not legal here, and CandidateFailure where it can not be compiled.
        """
        with self._lock:
            program = self._program(kernel, schedule, target)
            linked = self._linked.get(program.key)
            if linked is None:
                linked = _Linked(self._image(program, kernel, schedule, target), program.lowered.name)
                self._linked[program.key] = linked
                self.counts = replace(self.counts, linked=self.counts.linked + 1)
            self._recent[program.key] = linked
            self._recent.move_to_end(program.key)
            _trim(self._recent, _LINKED)
        lowered = program.lowered
        names = tuple(p.name for p in lowered.io.params)
        return Code(linked.address, names, lowered.io.packs, lowered.workspace_bytes, lowered.threads, linked)

    def program_hash(self, kernel: Kernel, schedule: Schedule, target: Target) -> str:
        """What this version of tunegrad makes of the schedule, as stored rows name it. Nothing is compiled.

        The text is kept for ``code``, which is asked for next. Raises IllegalAction for a schedule that is not legal
        here, and OutOfResources for a program that is too large.
        """
        key = (kernel.key, schedule.text, target)
        with self._lock:
            if key in self._programs:
                return self._programs[key].hash
            fresh = self._pending[key] = self._pending.get(key) or self._lowered(kernel, schedule, target)
            _trim(self._pending, _PENDING)
            return program_hash(fresh)

    def _program(self, kernel: Kernel, schedule: Schedule, target: Target) -> _Program:
        key = (kernel.key, schedule.text, target)
        found = self._programs.get(key)
        if found is not None:
            self._programs.move_to_end(key)
            return found
        fresh = self._pending.pop(key, None) or self._lowered(kernel, schedule, target)
        program = _Program(
            replace(fresh, text=""), object_key(fresh.text, target, self._opt_level), program_hash(fresh)
        )
        if program.key not in self._images:
            self._obtain(program.key, fresh.text, target)
        self._programs[key] = program
        _trim(self._programs, _PROGRAMS)
        return program

    def _image(self, program: _Program, kernel: Kernel, schedule: Schedule, target: Target) -> bytes:
        if program.key not in self._images:
            self._obtain(program.key, self._lowered(kernel, schedule, target).text, target)
        self._images.move_to_end(program.key)
        return self._images[program.key]

    def _obtain(self, key: str, text: str, target: Target) -> None:
        """The object from disk, or from the compiler."""
        image = None if self._cache is None else self._cache.get(key)
        if image is not None:
            self.counts = replace(self.counts, from_disk=self.counts.from_disk + 1)
        else:
            image = compile_llvm(text, target, self._opt_level)
            self.counts = replace(self.counts, compiled=self.counts.compiled + 1)
            if self._cache is not None:
                self._cache.put(key, image)
        self._images[key] = image
        _trim(self._images, _IMAGES)

    def _lowered(self, kernel: Kernel, schedule: Schedule, target: Target) -> Lowered:
        self.counts = replace(self.counts, lowered=self.counts.lowered + 1)
        result = build(kernel, schedule, target)
        if result.threads > target.threads:
            raise IllegalAction(f"{schedule.text}: {result.threads} threads, the target has {target.threads}")
        return result


def _trim(entries: OrderedDict[Any, Any], limit: int) -> None:
    while len(entries) > limit:
        entries.popitem(last=False)
