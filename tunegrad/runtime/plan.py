"""A schedule bound to memory and code: arrays in, arrays out, one native call a run.

    temps             one arena, at the planner's offsets
    constants         ``Constants``, packs filled at load
    inputs            the caller's memory where it is fit, else a copy
    outputs           fresh memory for every run
    new values        outputs over inputs (``LaunchPlan.over``): the caller's array, which a run
                      changes, where it is fit, else memory of the plan's own that is copied back
    constant outputs  known when it is bound; a run copies them to fresh memory
    guards            the last outputs, in memory of the plan's own: a run reads them and gives none
                      of them
    launches          bound once; a run points them at its inputs and outputs

The device comes in as an ``Engine``: it gives memory and runs a list of launches; nothing else is
known of it. Where kernels can not use memory of this process, inputs and outputs are copied to and
from memory of the plan's own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import InternalError
from tunegrad.forks import ForkSafeLock, in_child
from tunegrad.ir.fusion import Buffer, Launch, LaunchPlan
from tunegrad.lazy import dataclass

from .memory import Constants, Lifetime, plan_memory

if TYPE_CHECKING:
    from tunegrad.devices import BoundPlan, DirectPlan, Engine, dlpack
    from tunegrad.ir.layout import Pack
    from tunegrad.ir.rewrites import Guard

Array = NDArray[Any]

_POISON = 0xFF
"""The byte of memory before a poisoned run: NaN of every float type, -1 of integers."""


@dataclass(frozen=True, slots=True)
class Code:
    """A loaded kernel. ``params`` name its buffers in order, packs included.

    ``scratch_bytes`` are sizes of memory that it takes after them. ``unread`` names constants of
    which it reads nothing but packs.
    """

    loaded: Any
    params: tuple[str, ...]
    packs: tuple[Pack, ...] = ()
    scratch_bytes: tuple[int, ...] = ()
    unread: tuple[str, ...] = ()


def lifetimes(schedule: LaunchPlan) -> dict[int, Lifetime]:
    """Lifetime of each temporary buffer that takes memory, by buffer id."""
    touched, pieces = schedule.touched, schedule.pieces
    found: dict[int, Lifetime] = {}
    for b in schedule.buffers:
        if b.role != "temp" or not b.nbytes or not touched.keys() & pieces[b.id]:
            continue
        times = [(schedule.buffers[i], touched[i]) for i in pieces[b.id]]
        parts = tuple((p.start, Lifetime(p.nbytes, at[0], at[-1])) for p, at in times)
        first = min(x.first for _, x in parts)
        last = max(x.last for _, x in parts)
        found[b.id] = Lifetime(b.nbytes, first, last, parts if len(parts) > 1 else ())
    return found


def needed_bytes(schedule: LaunchPlan) -> tuple[int, int]:
    """Bytes of constants and of temporary buffers that live at one time: the least it takes."""
    constants = sum(b.nbytes for b in schedule.buffers if b.role == "const")
    return constants, plan_memory(tuple(lifetimes(schedule).values())).nbytes


class Runner:
    """Runs a schedule.

    Calls from several threads wait for each other. ``codes`` are by kernel key. The last outputs
    are what ``guards`` are held to: ``run`` and ``run_on_device`` raise IndexOutOfRange by them.
    """

    def __init__(
        self,
        schedule: LaunchPlan,
        codes: Mapping[str, Code],
        engine: Engine,
        constants: Constants | None = None,
        guards: Sequence[Guard] = (),
    ) -> None:
        self.schedule = schedule
        self.own_bytes = 0
        """Bytes of all but the constants, which runners of one plan share."""
        self._engine = engine
        self._codes = tuple(codes[launch.kernel.key] for launch in schedule.launches)
        self._constants = constants or Constants(engine)
        self._lock = ForkSafeLock()
        self._inputs = tuple(schedule.buffers[i] for i in schedule.inputs)
        outputs = tuple(schedule.buffers[i] for i in schedule.outputs)
        for b in (*self._inputs, *outputs):
            if not b.layout.is_row_major:
                raise InternalError(f"plan: {b}: inputs and outputs are row-major")
        self._own: dict[int, Any] = {}
        self._holds: object = None  # names the timer whose inputs are in the plan's own memory
        self._places: dict[int, list[tuple[int, int, Buffer]]] = {}
        self._bind()
        self._known = {b.id: self._constant(b) for b in outputs if b.role == "const"}
        self.schedule = schedule.forgotten
        every = tuple(self.schedule.buffers[i] for i in schedule.outputs)
        self._outputs = every[: len(every) - len(guards)]
        self._guards = [*zip(guards, every[len(self._outputs) :], strict=True)]
        self._over = {out: schedule.buffers[source] for out, source in schedule.over}
        self._halves = self._halved()
        self._numbers = self._guarded()
        self._written = tuple(b for b in self._outputs if b.role != "const")
        self._distinct = tuple({b.id: b for b in self._outputs}.values())
        self._fresh = tuple(
            (b.id, b.shape, b.dtype.numpy) for b in self._distinct if b.id not in self._over
        )

    def direct(self, names: Sequence[str], addressed: bool = False) -> Callable[[Any], Any] | None:
        """``run`` as one function of its inputs in the order of ``names``, which gives None, and
        runs nothing, where it is not as it must be or would be copied; None where there is more to
        a run than its launches and guards. ``addressed``: of a list of the addresses of such as
        must be; None where inputs have new values.
        """
        from tunegrad.devices import Place

        by_name = {b.name: b for b in self._inputs}
        plain = by_name.keys() == set(names) and self._distinct == self._written
        outside = {b.id for b in self._outputs} & {b.id for _, b in self._guards}
        if not plain or (addressed and self._over) or outside or not _is_direct(self._plan):
            return None
        inputs = [by_name[name] for name in names]
        at = {b.id: n for n, b in enumerate(inputs)}

        def place(b: Buffer) -> Place:
            over = None if b.id not in self._over else at[self._over[b.id].id]
            return Place(b.shape, b.dtype.numpy, self._arguments(b.id), over)

        made = [place(b) for b in inputs], [place(b) for b in self._outputs]
        halves = None if self._halves is None else self._run_halves
        run = self._plan.direct(self._lock, *made, addressed, halves)
        return self._guarding(run) if self._guards and halves is None else run

    def _run_halves(self) -> None:
        """Run the launches up to the guards' numbers, and the others where no guard raises."""
        assert self._halves is not None
        check, rest, _ = self._halves
        check.run()
        self._check(lambda b: self._numbers[b.id]())
        rest.run()

    def _guarding(self, run: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A direct run that holds its guards before another one writes their numbers anew."""

        def checked(given: Any) -> Any:
            with self._lock.inner:
                found = run(given)
                if found is not None:
                    self._check(lambda b: self._numbers[b.id]())
                return found

        return checked

    def at_addresses(self, names: Sequence[str]) -> Callable[[Sequence[int]], None] | None:
        """``run`` as a function of addresses: of the inputs in the order of ``names``, which may be
        more than are read, then of the outputs but new values of inputs; None where kernels do not
        use such memory, or there is more to a run than its launches, guards after them, and copies
        of outputs that are another one as well.
        """
        by_name = {b.name: b for b in self._inputs}
        plain = by_name.keys() <= set(names) and len(self._written) == len(self._outputs)
        outside = {b.id for b in self._outputs} & {b.id for _, b in self._guards}
        if not plain or outside or not _is_direct(self._plan):
            return None
        several = len(self._distinct) != len(self._outputs)
        if self._over and (self._guards or several):
            return None
        over = {source.id: out for out, source in self._over.items()}
        given = [by_name.get(name) for name in names]
        made = [b for b in self._outputs if b.id not in self._over]
        first, copies, places = dict[int, int](), [], list[list[tuple[int, int, int]]]()
        for i, b in enumerate((*given, *made)):
            places.append([])
            if b is None:
                continue
            if first.setdefault(b.id, i) != i:
                copies.append((i, first[b.id], b.nbytes))
                continue
            places[i] = [*self._arguments(b.id), *self._arguments(over.get(b.id, -1))]
        run = self._plan.at_addresses(self._lock, places, copies)
        if not self._guards:
            return run

        def ran(addresses: Sequence[int]) -> bool:
            run(addresses)
            return True

        return self._guarding(ran)

    def _arguments(self, buffer: int) -> tuple[tuple[int, int, int], ...]:
        """Arguments of launches that lie in a buffer: (launch, argument, bytes from its start)."""
        touched = self._places.get(buffer, ())
        return tuple((step, at, 0 if b.base is None else b.start) for step, at, b in touched)

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        """Buffers that a run gives back, in order."""
        return self._outputs

    @property
    def arena_bytes(self) -> int:
        """Bytes that all temporary buffers take together."""
        return int(self._arena.nbytes)

    @property
    def memory_bytes(self) -> int:
        """Bytes of temporaries, scratch, constants, packs, and copies of inputs and outputs."""
        return self.own_bytes + self._constants.nbytes

    def damage(self) -> str:
        """Describe a write outside of the plan's memory; '' where there was none."""
        memories = (self._arena, self._nowhere, *self._scratch, *self._own.values())
        found = (m.damage() for m in memories)
        return next(filter(None, found), "") or self._constants.damage()

    def run(self, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
        """The outputs, in memory that nothing else refers to; a new value of an input is the array
        that was given for it, changed.

        ``arrays``: the inputs by name, of the right shape and dtype, here or Imported; those with
        new values share no memory with others, and are writable. Raises IndexOutOfRange where a
        guard says so: such inputs are as they were then if ``checks_first``, else undefined.
        """
        engine = self._engine
        fresh = {i: engine.fresh(shape, dtype) for i, shape, dtype in self._fresh}
        with self._lock:
            held = {b.id: self._lend_input(b, arrays[b.name]) for b in self._inputs}
            # ``arrays`` keeps the borrowed memory until it has run
            own = [b for b in self._distinct if b.id in fresh and not self._lend(b, fresh[b.id])]
            for out, source in self._over.items():
                self._point(out, held[source.id])
            if self._halves is not None:
                self._run_halves()
            elif self._codes:
                self._plan.run()
            for b in own:
                fresh[b.id][...] = self._content(b)
            for out, source in self._over.items():
                fresh[out] = arrays[source.name]
                if held[source.id] is self._own.get(source.id):
                    fresh[out][...] = self._content(source)
            if self._halves is None:
                self._check(lambda b: fresh[b.id])
        if len(self._distinct) == len(self._outputs):
            return tuple(fresh[b.id] for b in self._outputs)
        return tuple(
            fresh[b.id] if i == self._first(b) else fresh[b.id].copy()
            for i, b in enumerate(self._outputs)
        )

    def run_on_device(
        self, given: Mapping[str, Array | dlpack.Imported], engine: dlpack.Sharing
    ) -> tuple[Any, ...]:
        """The outputs as memory of the device that nothing else refers to; inputs that lie there
        are used where they lie, others are copied to it. New values of inputs are outputs as all
        others: the inputs stay. Raises IndexOutOfRange where a guard says so.
        """
        fresh = {b.id: self._engine.allocate(b.nbytes, touched=False) for b in self._outputs}
        for i, values in self._known.items():
            self._engine.write(fresh[i], values)
        with self._lock:
            held = [
                self._copied(b, x) if isinstance(x := given[b.name], np.ndarray) else x.memory
                for b in self._inputs
            ]
            places = [*zip(self._inputs, held, strict=True)]
            for b, memory in (*places, *((b, fresh[b.id]) for b in self._written)):
                # the plan keeps none of it: what is let go comes back, where it was
                self._point(b.id, engine.alias(memory))
            if self._codes:
                self._plan.run()
            self._check(lambda b: fresh[b.id].read(b.dtype.name))
        return tuple(fresh[b.id] for b in self._outputs)

    def run_poisoned(self, arrays: Mapping[str, Array]) -> tuple[Array, ...]:
        """The outputs of a run before which every byte of temporary and output memory was 0xFF:
        NaN, or -1.

        Memory that a kernel does not write, or reads before it is written, shows; ``run`` may find
        what the last run left.
        """
        with self._lock:
            self._point_at_own(arrays)
            for memory in (self._arena, *self._scratch, *(self._own[b.id] for b in self._written)):
                self._engine.fill(memory, _POISON)
            if self._codes:
                self._plan.run()
            return tuple(self._content(b).copy() for b in self._outputs)

    def time(
        self, arrays: Mapping[str, Array], samples: int, each: bool = False
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """(seconds of each run, mean seconds of each launch or ()), in the plan's own memory, timed
        natively. Inputs that have new values go on from run to run.
        """
        if not self._codes:
            return (0.0,) * samples, ()
        with self._lock:
            self._point_at_own(arrays)
            self._point_over()
            return self._plan.time(samples, each)

    def timer(self, arrays: Mapping[str, Array]) -> Callable[[int], tuple[float, ...]]:
        """Seconds of each of so many runs on these inputs, as ``time``, for many turns.

        The inputs are copied when the plan's own memory holds others, not for each turn; an untimed
        run follows a copy.
        """

        mine = object()  # not the function itself: the plan must not keep what keeps the plan

        def seconds(samples: int) -> tuple[float, ...]:
            if not self._codes:
                return (0.0,) * samples
            with self._lock:
                if self._holds is mine:
                    self._point_at_own(None)
                else:
                    self._point_at_own(arrays)
                    self._plan.time(1)
                    self._holds = mine
                self._point_over()
                return self._plan.time(samples)[0]

        return seconds

    def _check(self, output: Callable[[Buffer], Array]) -> None:
        """Raise IndexOutOfRange where the run that ended met an index out of range.

        ``output`` reads an output of that run: a guard's number may be one as well.
        """
        for guard, b in self._guards:
            read = self._numbers.get(b.id)
            guard.check((output(b) if read is None else read()).flat[0])

    def _guarded(self) -> dict[int, Callable[[], Array]]:
        """Readers of the numbers of guards, by buffer: constants, or memory of this process that a
        kernel writes to, where one can. Two guards may have one number.
        """
        found: dict[int, Callable[[], Array]] = {}
        outputs = {b.id for b in self._outputs}
        for b in dict.fromkeys(b for _, b in self._guards):
            if b.id in self._known:
                found[b.id] = partial(self._known.__getitem__, b.id)
            elif b.id not in outputs:
                number = self._engine.fresh(b.shape, b.dtype.numpy)
                lent = self._engine.borrow(number)
                memory = self._memory(b) if lent is None else lent
                self._point(b.id, memory)
                read = partial(memory.read, b.dtype.name)
                found[b.id] = read if lent is None else number.view
        return found

    @property
    def checks_first(self) -> bool:
        """True if guards are read before inputs are replaced; False as well where none is."""
        return self._halves is not None

    def _halved(self) -> tuple[Any, Any, int] | None:
        """The launches up to the last that writes the number of a guard, the others, each as a
        plan of its own, and how many the first are; None where no input is replaced, or one is
        before that.
        """
        wanted = {b.id for _, b in self._guards if b.id not in self._known}
        launches = self.schedule.launches
        at = [n for n, x in enumerate(launches) if not wanted.isdisjoint(x.args)]
        over = [n for n, x in enumerate(launches) if not self._over.keys().isdisjoint(x.args)]
        given = {b.id for b in self._outputs}
        if not at or not over or max(at) >= min(over) or not wanted.isdisjoint(given):
            return None
        cut = max(at) + 1
        return self._engine.bind(self._bound[:cut]), self._engine.bind(self._bound[cut:]), cut

    def _first(self, b: Buffer) -> int:
        return next(i for i, x in enumerate(self._outputs) if x is b)

    # ---- binding

    def _bind(self) -> None:
        engine, alive = self._engine, lifetimes(self.schedule)
        arena = plan_memory(tuple(alive.values()), engine.align)
        self._arena = engine.allocate(arena.nbytes)
        self._nowhere = engine.allocate(0) if arena.nbytes else self._arena
        self._scratch = tuple(
            engine.allocate(n) for n in _most(c.scratch_bytes for c in self._codes)
        )
        self.own_bytes = self.arena_bytes + sum(int(m.nbytes) for m in self._scratch)
        offsets = dict(zip(alive, arena.offsets, strict=True))
        temps = {
            b.id: engine.part(self._arena, offsets[at] + b.start, b.nbytes)
            for b in self.schedule.buffers
            if (at := self.schedule.memory(b.id)) in offsets
        }
        launches = []
        for step, (launch, code) in enumerate(
            zip(self.schedule.launches, self._codes, strict=True)
        ):
            memories = self._memories(step, launch, code, temps)
            scratch = self._scratch[: len(code.scratch_bytes)]
            launches.append(engine.launch(code.loaded, memories, scratch))
        self._bound, self._plan = launches, engine.bind(launches)

    def _memories(
        self, step: int, launch: Launch, code: Code, temps: Mapping[int, Any]
    ) -> list[Any]:
        """The buffers of a launch; places of inputs and outputs are noted for each run."""
        args = {
            p.name: self.schedule.buffers[i]
            for p, i in zip(launch.kernel.params, launch.args, strict=True)
        }
        packs = {pack.name: pack for pack in code.packs}
        memories = []
        for place, name in enumerate(code.params):
            if name in packs:
                memories.append(self._constants.packed(args[packs[name].source], packs[name]))
                continue
            b = args[name]
            if name in code.unread:
                memories.append(self._nowhere)
            elif b.role == "const":
                memories.append(self._constants.flat(b))
            elif b.id in temps:
                memories.append(temps[b.id])
            else:
                whole = self.schedule.memory(b.id)
                self._places.setdefault(whole, []).append((step, place, b))
                memories.append(self._nowhere)
        return memories

    def _constant(self, b: Buffer) -> Array:
        """The values of an output that depends on no input."""
        values: Array = self._constants.flat(b).read(b.dtype.name)[: b.layout.size]
        return values.reshape(b.shape)

    # ---- memory of a run

    def _point(self, buffer: int, memory: Any) -> None:
        for step, place, b in self._places.get(buffer, ()):
            part = memory if b.base is None else self._engine.part(memory, b.start, b.nbytes)
            self._plan.point(step, place, part)
            if self._halves is not None:
                check, rest, cut = self._halves
                if step < cut:
                    check.point(step, place, part)
                else:
                    rest.point(step - cut, place, part)

    def _lend_input(self, b: Buffer, array: Array | dlpack.Imported) -> Any:
        """Let kernels read the caller's memory where they can, else a copy; what they read."""
        if not isinstance(array, np.ndarray):
            memory = array.memory
        else:
            lent = self._engine.borrow(array)
            memory = self._copied(b, array) if lent is None else lent
        self._point(b.id, memory)
        return memory

    def _lend(self, b: Buffer, array: Array) -> bool:
        """Let kernels write to an array where they can, else to memory of the plan; no constant."""
        if b.id in self._known:
            return False
        lent = self._engine.borrow(array)
        self._point(b.id, self._memory(b) if lent is None else lent)
        return lent is not None

    def _point_at_own(self, arrays: Mapping[str, Array] | None) -> None:
        """Inputs and outputs in the plan's own memory; inputs as it is without ``arrays``."""
        for b in self._inputs:
            self._point(
                b.id, self._memory(b) if arrays is None else self._copied(b, arrays[b.name])
            )
        for b in self._written:
            self._point(b.id, self._memory(b))

    def _point_over(self) -> None:
        """New values in the plan's own memory of their inputs."""
        for out, source in self._over.items():
            self._point(out, self._memory(source))

    def _copied(self, b: Buffer, array: Array) -> Any:
        self._holds = None
        memory = self._memory(b)
        self._engine.write(memory, np.ascontiguousarray(array, b.dtype.numpy))
        return memory

    def _content(self, b: Buffer) -> Array:
        """Contents of the plan's own memory of an input or output; the values of a constant."""
        if b.id in self._known:
            return self._known[b.id]
        values: Array = self._memory(b).read(b.dtype.name)
        return values.reshape(b.shape)

    def _memory(self, b: Buffer) -> Any:
        """Memory of the plan's own for an input or output."""
        memory = self._own.get(b.id)
        if memory is None:
            memory = self._own[b.id] = self._engine.allocate(b.nbytes)
            self.own_bytes += int(memory.nbytes)
        return memory


def _is_direct(plan: BoundPlan) -> TypeGuard[DirectPlan]:
    """True for a DirectPlan; ``isinstance`` asks that of every name of it, a millisecond."""
    return hasattr(plan, "direct") and hasattr(plan, "at_addresses")


def _most(sizes: Iterable[tuple[int, ...]]) -> list[int]:
    """The largest at each place."""
    return [max(at) for at in zip_longest(*sizes, fillvalue=0)]


# ---- runners
#
# Runners of one model for callers in several threads.


class Runners:
    """As many runners of one plan as callers are at it at a time, ``most`` at most; more wait.

    Each has temporary memory of its own. ``make`` makes those beside the first. ``names`` are the
    inputs, in the order of ``direct``.
    """

    def __init__(
        self, first: Runner, make: Callable[[], Runner], most: int, names: Sequence[str] = ()
    ) -> None:
        self.first = first
        self._make, self._most, self._names = make, most, names
        self._all = [self.first]
        self._direct = {first: first.direct(names)}
        self._at = {first: first.at_addresses(names)}
        self.forked()
        in_child(self)

    def forked(self) -> None:
        """In a child no model runs yet; see ``forks.in_child``."""
        self._changed = threading.Condition()
        self._idle, self._waiting = list(self._all), 0

    @property
    def memory_bytes(self) -> int:
        """As ``Runner.memory_bytes``, of all; what they share is counted once."""
        return self.first.memory_bytes + sum(r.own_bytes for r in self._all[1:])

    def direct(self, given: Sequence[object]) -> tuple[Array, ...] | None:
        """The outputs of a call whose inputs are used as they lie; None, and nothing has run, where
        it is another, or all runners are busy.
        """
        try:
            runner = self._idle.pop()  # see ``run``
        except IndexError:
            return None
        try:
            run = self._direct[runner]
            return None if run is None else run(given)
        finally:
            self._back(runner)

    def at_addresses(self, addresses: Sequence[int]) -> bool:
        """Run on memory at these addresses, as ``Runner.at_addresses`` says; False, and nothing has
        run, where that is not possible, or all runners are busy.
        """
        try:
            runner = self._idle.pop()  # see ``run``
        except IndexError:
            return False
        try:
            run = self._at[runner]
            if run is not None:
                run(addresses)
            return run is not None
        finally:
            self._back(runner)

    def run(self, arrays: Mapping[str, Array]) -> tuple[Array, ...]:
        # A list gives and takes one thing at a time, without a lock. A thread that gives one
        # back looks for waiting threads after that; one that waits has said so before it looks for
        # an idle one.
        try:
            runner = self._idle.pop()
        except IndexError:
            runner = self._waited_for()
        try:
            return runner.run(arrays)
        finally:
            self._back(runner)

    def _back(self, runner: Runner) -> None:
        self._idle.append(runner)
        if self._waiting:
            with self._changed:
                self._changed.notify()

    def _waited_for(self) -> Runner:
        with self._changed:
            self._waiting += 1
            try:
                while True:
                    with suppress(IndexError):
                        return self._idle.pop()
                    if len(self._all) < self._most:
                        made = self._make()
                        self._direct[made] = made.direct(self._names)
                        self._at[made] = made.at_addresses(self._names)
                        self._all.append(made)
                        return made
                    self._changed.wait()
            except BaseException:  # Ctrl-C, no memory: another may wait for what it was told of
                self._changed.notify()
                raise
            finally:
                self._waiting -= 1

    def counting(self) -> Counts:
        """Calls since this was first asked for: until then a call pays nothing for it."""
        if not isinstance(self, _Counted):
            self._counts = Counts()
            self._counts_lock = ForkSafeLock()
            self.__class__ = _Counted
        with self._counts_lock:
            counts = self._counts
            return Counts(counts.calls, counts.seconds, counts.errors)


_Result = TypeVar("_Result")


class Counts:
    """Calls that ended well, their seconds with waits for a runner, and calls that raised."""

    def __init__(self, calls: int = 0, seconds: float = 0.0, errors: int = 0) -> None:
        self.calls, self.seconds, self.errors = calls, seconds, errors


class _Counted(Runners):
    """Runners that count; an object becomes one, so that no call of others asks."""

    def direct(self, given: Sequence[object]) -> tuple[Array, ...] | None:
        return self._counted(super().direct, given)

    def run(self, arrays: Mapping[str, Array]) -> tuple[Array, ...]:
        return self._counted(super().run, arrays)

    def at_addresses(self, addresses: Sequence[int]) -> bool:
        return self._counted(super().at_addresses, addresses)

    def _counted(self, run: Callable[[Any], _Result], given: Any) -> _Result:
        """The result of a run, which None and False say that there was none of."""
        began_s = perf_counter()
        try:
            found = run(given)
        except BaseException:
            with self._counts_lock:
                self._counts.errors += 1
            raise
        if found is not None and found is not False:
            took_s = perf_counter() - began_s
            with self._counts_lock:
                self._counts.calls += 1
                self._counts.seconds += took_s
        return found
