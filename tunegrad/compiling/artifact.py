"""A schedule of a kernel as code of a device, with all that launching it needs: the one place where
they meet.

    kernel, schedule, target   --KERNEL_PASSES-->   Lowered(text, entry, io, scratch, geometry)
                                           -->   image (once on a machine)   -->   Code

``build`` is a pure function: the search's workers and a loaded model get byte-identical text for
the same action list.
"""

from __future__ import annotations

import os
import pickle
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import replace
from enum import Enum
from functools import cache, lru_cache, partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunegrad.config import cache_dir
from tunegrad.devices import Lowered
from tunegrad.forks import ForkSafeLock
from tunegrad.ir.dtypes import DType
from tunegrad.ir.graph import Bounds, ConstData, GraphOp, Node, topological
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.lazy import dataclass, sha256
from tunegrad.object_cache import writes_left
from tunegrad.runtime import Code, ObjectCache

if TYPE_CHECKING:
    from tunegrad.devices import Code as Loaded
    from tunegrad.devices import Device, Engine
    from tunegrad.ir.fusion import LaunchPlan
    from tunegrad.ir.rewrites import Guard
    from tunegrad.opts import ActionObserver, Observer, Schedule

# ---- programs as files
#
# Programs and plans as files, so that a process need not lower or plan again what this machine has
# lowered or planned before.
#
#     kernel, schedule, device, tunegrad's own code   -->   a key
#     a lowered program without its text              <->   a pickle: the image's key, the hash of
#                                                           the text, and all that a launch needs
#     graph, device, store, tunegrad's own code       -->   a key
#     a plan that was validated, and its programs     <->   a pickle, without elements of constants
#
# Lowering and planning are pure functions of what a key holds. What can not be read is made again.
# A pickle is read as data: it makes tunegrad's values and numpy's arrays, and calls nothing else.
# Images are code, and are read from a directory that this user alone can write to.


SUFFIX = ".plan"
"""End of the names of files of saved models."""

SETTLED_NS = 2_000_000_000
"""Coarser than the times of any file system in use: a file that changes again gets another one."""

_STAGES = ("compiling", "db", "devices", "inference", "ir", "opts", "planning", "render")
_ALONE = ("pipeline.py", "trial.py")
"""Files of no stage: which passes there are, and the measurements that a kept plan holds."""


@dataclass(frozen=True, slots=True)
class ProgramFacts:
    """Facts kept of a lowered program: everything but its text, which its image was made of.

    ``key`` is the image's; ``hash`` tells programs apart in a store.
    """

    lowered: Lowered
    key: str
    hash: str


def program_key(kernel: Kernel, schedule: str, device: Device) -> str | None:
    """Key of all that lowering depends on, as 64 hex digits; None for code that is in no files."""
    if not _own_code():
        return None
    return _digest(device, kernel.name, kernel.text, repr(kernel.fixed), schedule)


def _digest(device: Device, *parts: str) -> str:
    head = _own_code(), device.compiler(), device.name, _words(device.target)
    return sha256("\0".join((*head, *parts)).encode()).hexdigest()


@lru_cache(maxsize=16)
def _words(target: Target) -> str:
    return repr(target)  # once: every kernel of a model asks


def graph_key(outputs: tuple[Node, ...], device: Device, *settings: str) -> str | None:
    """Key of everything that the plan of a graph by these settings depends on, as ``program_key``;
    None for a graph of what has no text, or of arrays that others may write to.
    """
    nodes = topological(outputs)
    if not _own_code() or not all(_plain(n.arg) for n in nodes):
        return None
    at = {id(n): i for i, n in enumerate(nodes)}
    rows = [
        (n.op, (n.arg.digest, n.arg.name) if isinstance(n.arg, ConstData) else n.arg, n.shape,
         n.dtype.name, *(at[id(s)] for s in n.srcs))
        for n in nodes
    ]  # fmt: skip
    ends = [at[id(n)] for n in outputs]
    return _digest(device, "a plan", *settings, repr(rows), repr(ends))


def _plain(arg: object) -> bool:
    """True if equal texts of arguments are equal arguments."""
    if isinstance(arg, tuple):
        return all(map(_plain, arg))
    if isinstance(arg, ConstData):
        return not arg.memory
    return arg is None or isinstance(arg, bool | int | float | str | Bounds | DType)


def _own_files() -> list[os.DirEntry[str]]:
    """The files that make programs and plans, or look up their schedules, sorted."""
    root, found = Path(__file__).parents[1], []
    left = [str(root / stage) for stage in _STAGES]
    while left:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    if entry.name.endswith((".py", ".cpp", ".hpp")):
                        found += [entry] if entry.is_file() else []  # not an editor's lock
                    elif entry.name != "__pycache__" and entry.is_dir():
                        left.append(entry.path)
        except OSError:  # this package is in no files
            return []
    with os.scandir(root) as entries:
        found += [entry for entry in entries if entry.name in _ALONE]
    return sorted(found, key=lambda entry: entry.path)


@cache
def _own_code() -> str:
    """A digest of the files that make programs and plans; '' where they are no files.

    It is remembered by what the file system knows of them, once they have not changed for a while:
    a file that is written to has another time of change, whatever its size and its other times.
    """
    files, kept = _own_files(), ObjectCache(cache_dir() / "objects")
    facts = [(f.path, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino)
             for f in files for s in [f.stat()]]  # fmt: skip
    key = sha256(repr(facts).encode()).hexdigest()
    known = kept.get(key) if files else b""
    if known is not None:
        return known.decode()
    root, whole = Path(__file__).parents[1], sha256(b"")
    for entry in files:
        with open(entry.path, "rb") as file:  # noqa: PTH123
            body = file.read()
        whole.update(f"{entry.path[len(str(root)) :]}\0{len(body)}\0".encode())
        whole.update(body)
    if max(changed for *_, changed, _ in facts) < time.time_ns() - SETTLED_NS:
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
    return sha256((head + text).encode()).hexdigest()


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
    guards. ``decided`` is what else its maker wants back.
    """

    plan: LaunchPlan
    schedules: Mapping[str, str]
    guards: tuple[Guard, ...]
    decided: Any = None


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
        self._turn = ForkSafeLock()
        self._tables = ForkSafeLock()

    @contextmanager
    def first(self) -> Iterator[list[Callable[[], None]]]:
        """The time of a caller who waits: threads that are ``behind`` wait at their next step. What
        it would write to disk is left to the caller, as jobs.
        """
        left = _Left()
        token = _left.set(left)
        try:
            with self._turn, writes_left(left):
                yield left
        finally:
            _left.reset(token)

    def _waited_for(self) -> AbstractContextManager[None]:
        """One thread at a time works for a caller who waits; one behind it does not count."""
        return nullcontext() if _behind.get() else self._turn

    def _give_way(self, *_: object) -> None:
        """Behind others, wait until none of them is at work."""
        if _behind.get():
            with self._turn:
                pass

    def default(self, kernel: Kernel, device: Device) -> str:
        """The kernel's default schedule as text; found once on a machine."""
        key = self._key(kernel, "its default", device)
        body = self._get(key)
        if body is not None:
            return body.decode()
        text = _default(kernel, device)
        self._later(lambda: self._put(key, text.encode()), of_plan=True)
        return text

    def code(
        self, kernel: Kernel, schedule: Schedule | str, engine: Engine, device: Device | None = None
    ) -> Code:
        """The kernel under this schedule, loaded for an engine, ready to launch while the result is
        held. ``device`` compiles it, else the engine's.

        Raises IllegalAction for a schedule that is not legal here, and CandidateFailure where it
        can not be compiled.
        """
        text, device = _text(schedule), device or engine.device
        with self._waited_for():
            program = self._program(kernel, text, device)
            key = f"{program.key} {program.hash}"  # one text may be launched in several geometries
            linked = self._linked.get(key)
            if linked is None:
                from tunegrad.devices import linked_as

                image = self._image(program, kernel, text, device)
                with linked_as(kernel.name):
                    linked = self._linked[key] = engine.load(program.lowered, image)
                self._count("linked")
            self._hold(self._recent, key, linked, _LINKED)
        return code_of(program.lowered, linked)

    def made(
        self, kernel: Kernel, schedule: Schedule | str, device: Device
    ) -> tuple[ProgramFacts, bytes]:
        """The program and its image, which ``code`` loads. Raises as that does."""
        text = _text(schedule)
        with self._waited_for():
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
        with self._waited_for():
            found = self._programs.get(key) or self._read(kernel, text, device)
            if found is not None:
                self._hold(self._found, key, found, _PENDING)
                return found.hash
            from tunegrad.devices import program_hash

            fresh = self._pending.get(key) or self._lowered(kernel, schedule, device)
            self._hold(self._pending, key, fresh, _PENDING)
            return program_hash(fresh)

    def plan(
        self,
        key: str | None,
        outputs: tuple[Node, ...],
        device: Device,
        folded: Callable[[], tuple[Node, ...]] | None = None,
    ) -> KeptPlan | None:
        """The plan of a graph that ``keep`` kept under its key; ``code`` need not lower its
        kernels. None where there is none, or a damaged one. ``folded`` gives the graph with its
        constants computed, for a plan of such ones.
        """
        found = _unpickled(self._get(key))
        if found is None:
            return None
        kept: KeptPlan = found[0]
        programs = found[1]
        constants = _constants(outputs)
        plan = kept.plan.holding(constants)
        if plan is None and folded is not None:
            constants |= _constants(folded())
            plan = kept.plan.holding(constants)
        if plan is None:
            return None
        for (kernel, schedule), program in programs.items():
            self._hold(self._programs, (kernel, schedule, device), program, _PROGRAMS)
        return replace(kept, plan=plan)

    def keep(
        self, key: str | None, kept: KeptPlan, outputs: tuple[Node, ...], device: Device
    ) -> None:
        """Keep the plan of a graph under its ``graph_key``; its constants are those of ``outputs``,
        or made of them.
        """
        if self._cache is not None and key is not None:
            self._later(lambda: self._keep(key, kept, outputs, device))
            if (left := _left.get()) is not None:
                left.keeps = True

    def _keep(self, key: str, kept: KeptPlan, outputs: tuple[Node, ...], device: Device) -> None:
        constants, kernels = _constants(outputs), kept.plan.kernels()
        if any(b.data and not _is_made_of(b.data, constants) for b in kept.plan.buffers):
            return
        with self._waited_for():
            programs = {
                (k, kept.schedules[k]): self._program(kernel, kept.schedules[k], device)
                for k, (kernel, _) in kernels.items()
            }
        whole = replace(kept, plan=kept.plan.forgotten), programs
        with suppress(RecursionError):  # of expressions that are nested deeply
            body = pickle.dumps(whole)
            if _unpickled(body) == whole:
                self._put(key, body)

    def _program(self, kernel: Kernel, schedule: str, device: Device) -> ProgramFacts:
        key = (kernel.key, schedule, device)
        found = self._programs.get(key)
        if found is not None:
            self._hold(self._programs, key, found, _PROGRAMS)
            return found
        fresh = self._pending.pop(key, None)  # of one that was not found on disk
        read = None if fresh else self._found.pop(key, None) or self._read(kernel, schedule, device)
        if read is not None and self._kept(read.key) is not None:
            program = read
        else:
            from tunegrad.devices import program_hash

            fresh = fresh or self._lowered(kernel, schedule, device)
            program = ProgramFacts(
                replace(fresh, text=""), object_key(fresh.text, device), program_hash(fresh)
            )
            self._obtain(program.key, fresh, device)
            if program != read:
                write = partial(self._write, program, kernel, schedule, device)
                self._later(write, of_plan=True)
        self._hold(self._programs, key, program, _PROGRAMS)
        return program

    def _read(self, kernel: Kernel, schedule: str, device: Device) -> ProgramFacts | None:
        """The program that this machine has lowered before; None where it has not."""
        found = _unpickled(self._get(self._key(kernel, schedule, device)))
        return found if isinstance(found, ProgramFacts) else None

    def _write(self, program: ProgramFacts, kernel: Kernel, schedule: str, device: Device) -> None:
        key = self._key(kernel, schedule, device)
        if key is not None:
            with suppress(RecursionError):
                self._put(key, pickle.dumps(program))

    def _image(self, program: ProgramFacts, kernel: Kernel, schedule: str, device: Device) -> bytes:
        found = self._kept(program.key)
        if found is None:
            lowered = self._lowered(kernel, schedule, device)
            found = self._obtain(program.key, lowered, device)
        return found

    def _obtain(self, key: str, lowered: Lowered, device: Device) -> bytes:
        """The image, from disk or from the compiler."""
        image = self._kept(key)
        if image is None:
            self._give_way()
            image = device.compile(lowered)
            self._count("compiled")
            self._put(key, image)
            self._hold(self._images, key, image, _IMAGES)
        return image

    def _kept(self, key: str) -> bytes | None:
        """An image that is here or on disk; then it is here."""
        image = self._images.get(key)
        if image is None:
            image = self._get(key)
            if image is None:
                return None
            self._count("from_disk")
        self._hold(self._images, key, image, _IMAGES)
        return image

    def _lowered(self, kernel: Kernel, schedule: Schedule | str, device: Device) -> Lowered:
        from tunegrad.opts import Schedule

        self._count("lowered")
        given = Schedule.parse(schedule) if isinstance(schedule, str) else schedule
        return build(kernel, given, device, self._give_way if _behind.get() else None)

    def _key(self, kernel: Kernel, what: str, device: Device) -> str | None:
        return None if self._cache is None else program_key(kernel, what, device)

    def _get(self, key: str | None) -> bytes | None:
        return None if self._cache is None or key is None else self._cache.get(key)

    def _put(self, key: str | None, body: bytes) -> None:
        if self._cache is not None and key is not None:
            self._cache.put(key, body)

    def _later(self, job: Callable[[], None], of_plan: bool = False) -> None:
        """Do it, or leave it to the caller who waits; what is ``of_plan`` is not done where a plan
        is kept that has it, too.
        """
        left = _left.get()
        if left is None:
            job()
        else:
            left.append((lambda: None if left.keeps else job()) if of_plan else job)

    def _count(self, what: str) -> None:
        with self._tables:
            self.counts = replace(self.counts, **{what: getattr(self.counts, what) + 1})

    def _hold(self, table: OrderedDict[Any, Any], key: object, value: object, most: int) -> None:
        """Put an entry last; of more than ``most`` the first ones go."""
        with self._tables:
            table[key] = value
            table.move_to_end(key)
            while len(table) > most:
                table.popitem(last=False)


class _Left(list[Callable[[], None]]):
    """Jobs that are left to a caller; ``keeps``: one is to keep a plan."""

    keeps = False


_left: ContextVar[_Left | None] = ContextVar("_left", default=None)
_behind: ContextVar[bool] = ContextVar("_behind", default=False)


@contextmanager
def behind() -> Iterator[None]:
    """In here this thread compiles what no caller waits for: what compiles for one goes first."""
    token = _behind.set(True)
    try:
        yield
    finally:
        _behind.reset(token)


_ARRAYS = frozenset({"_frombuffer", "_reconstruct", "dtype", "ndarray", "scalar"})
"""Names of numpy that an array is made of."""


class _Values(pickle.Unpickler):
    """Makes values of tunegrad and arrays, and calls nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        package = module.partition(".")[0]
        if package == "tunegrad" or (package == "numpy" and name in _ARRAYS):
            found = super().find_class(module, name)
            ours = isinstance(found, type) and found.__module__ == module
            pure = module.startswith("tunegrad.ir.") or hasattr(found, "__dataclass_fields__")
            pure = pure or (ours and issubclass(found, Enum))
            if package == "numpy" or (ours and pure):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is no value")


def _unpickled(body: bytes | None) -> Any:
    """The object that the cache holds a pickle of; None where it can not be made here."""
    if body is None:
        return None
    try:
        return _Values(BytesIO(body)).load()
    except (pickle.UnpicklingError, ImportError, LookupError, AttributeError, TypeError, ValueError,
            EOFError, RecursionError):  # fmt: skip
        return None


def _constants(outputs: tuple[Node, ...]) -> dict[str, ConstData]:
    """The constants of a graph by digest."""
    found = (n.arg for n in topological(outputs) if n.op is GraphOp.CONST)
    return {c.digest: c for c in found if isinstance(c, ConstData)}


def _is_made_of(data: ConstData, constants: Mapping[str, ConstData]) -> bool:
    while data.digest not in constants:
        if data.made is None:
            return False
        data = data.made.source
    return True


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
