"""A schedule of a kernel as code of a device, with all that launching it needs: the one place where
they meet.

    kernel, schedule, target   --KERNEL_PASSES-->   Lowered(text, entry, io, scratch, geometry)
                                           -->   image (once on a machine)   -->   Code

``build`` is a pure function: the search's workers and a loaded model get byte-identical text for
the same action list.
"""

from __future__ import annotations

import hashlib
import weakref
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tunegrad.forks import ForkSafeLock
from tunegrad.ir.kernel import Kernel
from tunegrad.runtime import Code, ObjectCache

from .written import ProgramFacts, default_key, program_key, read_program, written_program

if TYPE_CHECKING:
    from tunegrad.devices import Code as Loaded
    from tunegrad.devices import Device, Engine, Lowered
    from tunegrad.opts import ActionObserver, Observer, Schedule

__all__ = ["Compiler", "Counts", "build", "code_of", "object_key"]


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
            linked = self._linked.get(program.key)
            if linked is None:
                image = self._image(program, kernel, text, engine.device)
                linked = engine.load(program.lowered, image)
                self._linked[program.key] = linked
                self.counts = replace(self.counts, linked=self.counts.linked + 1)
            self._recent[program.key] = linked
            self._recent.move_to_end(program.key)
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
        if program.key not in self._images:
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
