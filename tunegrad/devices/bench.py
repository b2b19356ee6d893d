"""The bench: it loads one candidate at a time, runs it on each input set, and times it on an open
device.

    pack       the constants as the candidate reads them
    load, run  the candidate on private copies of the inputs     --> how long, guard zones,
                                                                     a digest of its outputs
    in_place   outputs over the inputs that they may replace     --> as load, run
    time       samples, in turns with a sound program            --> guard zones, a digest
    moved      other inputs at the same places, outputs as left  --> as load, run
    soak       many launches, some of them on poisoned outputs   --> guard zones, a digest
    hand_in    copies of the outputs, for the referee

The bench does not know what the outputs must be: the referee judges the copies, where it has not
seen them (``examine``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import default_rng  # not later: a process that runs candidates reads no files

from tunegrad.devices.device import Code, Device, Launch, MachineLimits, Memory
from tunegrad.devices.job import CompiledCandidate, KernelIO, Limits, Ran, Timed, digest, identity
from tunegrad.devices.timing import Pairs, sample_pairs
from tunegrad.devices.verifying.dataset import Dataset, DatasetCache, InputSet
from tunegrad.devices.verifying.handover import Bytes, Places, output_places, outputs_of, take
from tunegrad.errors import CompileFailure, InternalError, OutOfResources
from tunegrad.trial import Cache, Policy

_POISON = 0xFF
"""Of scratch before each run: NaN of every float type, -1 of integers."""

_READ = ("in", "const", "pack")

_COUNTS = "a launch leaves other bits in its outputs or its workspace than the one before it"


@dataclass(frozen=True, slots=True)
class _Bound:
    """A loaded candidate, and for each input set the buffers it runs on and its launch."""

    kernel_key: str
    program: str
    digest: bytes
    code: Code
    scratch: tuple[Memory, ...]
    io: KernelIO
    dataset: Dataset
    buffers: tuple[list[Memory], ...]
    launches: tuple[Launch, ...]

    def evicted(self, cache: Cache) -> tuple[Memory, ...]:
        """Memory that is evicted before each sample. Packed constants are what is read of them."""
        if cache == "warm":
            return ()
        packed = {p.source for p in self.io.packs}
        found: list[Memory] = [] if cache == "constants" else list(self.scratch)
        for param, buffer in zip(self.io.params, self.buffers[0], strict=True):
            constant = param.role == "pack" or (param.role == "const" and param.name not in packed)
            if constant or cache != "constants":
                found.append(buffer)
        return tuple(found)

    def near(self, cache: Cache) -> tuple[Memory, ...]:
        """Memory that kernels before it leave to the cores of their threads: its inputs nearest,
        before them the memory of its outputs, which an earlier kernel has read.
        """
        if cache != "constants":
            return ()
        pairs = [(p.role, b) for p, b in zip(self.io.params, self.buffers[0], strict=True)]
        outputs = [b for role, b in pairs if role == "out"]
        return (*outputs, *(b for role, b in pairs if role in ("in", "inout")))

    def written(self, index: int) -> list[Memory]:
        """Memory that it writes on input set ``index``, in order."""
        pairs = zip(self.io.params, self.buffers[index], strict=True)
        return [buffer for p, buffer in pairs if p.role not in _READ]

    def damage(self, index: int) -> str:
        """Damage of the last run, on input set ``index``, outside its buffers; '' without any."""
        for memory in self.scratch:
            if damage := memory.damage():
                return f"workspace: {damage}"
        for param, buffer in zip(self.io.params, self.buffers[index], strict=True):
            if damage := buffer.damage():
                return f"{param.name}: {damage}"
        return ""


class Bench:
    """Everything that the process keeps between candidates.

    One per process; nothing here survives a crash.

    ``memory`` is shared with the referee.
    """

    def __init__(
        self, device: Device, limits: Limits, memory: Bytes, watching: bool = False
    ) -> None:
        self._limits, self._memory, self._watching = limits, memory, watching
        self.engine = device.open(pin=True)
        self._datasets = DatasetCache(limits.cache_bytes)
        self._bound: _Bound | None = None
        self._wrote: list[Memory] = []
        self._beside: _Bound | None = None
        self._once_s = 0.0
        self.engine.disorder()  # what is there before any launch
        if watching:
            self.engine.watch(())

    def prepare(self, kernel_key: str, places: Places) -> None:
        """Copy a kernel's inputs from the shared memory."""
        self.release()
        self._datasets.put(
            kernel_key, Dataset(tuple(InputSet(s, {}) for s in take(places, self._memory)))
        )

    def pack(self, kernel_key: str, code: bytes, ios: Sequence[KernelIO]) -> Ran:
        """Pack the constants of what is to be loaded next, whose digest is ``code``: large ones
        take longer than a candidate may run. Nothing of it runs.
        """
        self._unload()
        measured = identity(code, kernel_key, 0)
        dataset = self._datasets.get(kernel_key)
        if dataset is None:
            return Ran(measured, "unprepared")
        try:
            dataset.pack(ios, self.engine)
        except MemoryError as error:
            return Ran(measured, "out_of_resources", damage=f"buffers: {error}")
        return Ran(measured)

    def load(
        self, kernel_key: str, compiled: CompiledCandidate, beside: CompiledCandidate | None = None
    ) -> Ran:
        """Load a candidate, which takes the place of the one before it, and run it once on the
        first input set.

        What it is to be timed ``beside`` is loaded as well, and stays.
        """
        self._unload()
        measured = identity(digest(compiled.image), kernel_key, 0)
        dataset = self._datasets.get(kernel_key)
        if dataset is None:
            return Ran(measured, "unprepared")
        try:
            dataset.pack([compiled.io, *([] if beside is None else [beside.io])], self.engine)
            self._place(kernel_key, beside, dataset)
            self._bound = self._bind(kernel_key, compiled, dataset)
        except CompileFailure as error:
            return Ran(measured, "compile_error", damage=str(error))
        except MemoryError as error:
            return Ran(measured, "out_of_resources", damage=f"buffers: {error}")
        except OutOfResources as error:
            return Ran(measured, "out_of_resources", damage=str(error))
        try:
            ran = self.run(0)
        except OutOfResources as error:
            return Ran(measured, "out_of_resources", damage=str(error))
        self._once_s = ran.once_s
        return ran

    def run(self, index: int) -> Ran:
        """Run what is loaded once on an input set, on poisoned outputs."""
        bound = self._loaded()
        bound.dataset.fill(index, bound.io, self.engine)
        for memory in bound.scratch:
            self.engine.fill(memory, _POISON)
        once_s = self.engine.time(bound.launches[index], 1)[0]
        return self._ran(bound, index, index, once_s)

    def moved(self, index: int) -> Ran:
        """Run what is loaded once more on the memory of the first input set, in which the inputs of
        another set lie meanwhile; what it wrote last stays in its outputs.

        What keeps results for the addresses that it had before, or computes only where its outputs
        are poison, is wrong then.
        """
        bound = self._loaded()
        with bound.dataset.moved(index, bound.io, self.engine):
            once_s = self.engine.time(bound.launches[0], 1)[0]
            return self._ran(bound, index, 0, once_s)

    def in_place(self, index: int) -> Ran:
        """Run what is loaded once on an input set, its outputs over the inputs that they may
        replace: in their memory the inputs lie before.
        """
        bound = self._loaded()
        over, names = bound.io.overwritten, [p.name for p in bound.io.params]
        at = dict(zip(names, bound.buffers[index], strict=True))
        bound.dataset.fill(index, bound.io, self.engine)
        for source, out in over.items():
            bound.dataset.copy(index, source, bound.io, at[out], self.engine)
        for memory in bound.scratch:
            self.engine.fill(memory, _POISON)
        buffers = [at[over.get(name, name)] for name in names]
        launch = self.engine.launch(bound.code, buffers, bound.scratch)
        return self._ran(bound, index, index, self.engine.time(launch, 1)[0])

    def soak(self, launches: int, budget_s: float) -> Ran:
        """Launch what is loaded so many times on the first input set, and then as often on poisoned
        outputs and a workspace of drawn bytes, in which any count and any mark may stand, up to the
        first launch whose outputs are not those of the launch before it.

        Each launch leaves what the one before it left, in its outputs and in its workspace: else it
        counts there. Either part takes half of ``budget_s`` seconds, or little more.
        """
        bound = self._loaded()
        launch, each_s, kept = bound.launches[0], 0.0, set[tuple[str, str]]()
        for count in (1, 1, None):
            few = count or max(1, min(launches, int(budget_s / 2 / max(each_s, 1e-9))))
            each_s = self.engine.time(launch, 1, few)[0]
            wanted = self.engine.digest(bound.written(0))
            kept.add((wanted, self.engine.digest(bound.scratch)))
        end_s = time.monotonic() + budget_s / 2
        drawn = default_rng(time.monotonic_ns())
        for _ in range(launches if len(kept) == 1 else 0):
            bound.dataset.fill(0, bound.io, self.engine)
            for memory in bound.scratch:
                self.engine.write(memory, drawn.integers(0, 256, memory.nbytes, np.uint8))
            self.engine.time(launch, 1)
            if self.engine.digest(bound.written(0)) != wanted or time.monotonic() > end_s:
                break
        ran = self._ran(bound, 0, 0, each_s)
        return ran if len(kept) == 1 else replace(ran, damage=ran.damage or _COUNTS)

    def _ran(self, bound: _Bound, index: int, place: int, once_s: float) -> Ran:
        """The result of a launch in the memory of set ``place``, on the inputs of set ``index``."""
        self._wrote = bound.written(place)
        return Ran(
            identity(bound.digest, bound.kernel_key, index),
            once_s=once_s,
            damage=self.engine.disorder() or bound.damage(place),
            written=self.engine.digest(self._wrote),
        )

    def time(self, policy: Policy, best_s: float, standing_s: float = 0.0) -> Timed:
        """Time what is loaded, on the first input set, in turns with what is beside it.

        ``best_s`` is the time to beat: a clear loser is not timed to the end. ``standing_s`` are
        the seconds that the program beside it stands for. Alone it is timed once more where the
        clock has moved meanwhile by more than times may scatter.
        """
        bound = self._loaded()
        restless = bound.dataset.restless(bound.io, self.engine)
        flip = _nothing if restless is None else restless.flip
        before = self._state() if self._beside is None else {}
        pairs = self._pairs(bound, policy, best_s, standing_s, flip)
        state = self._state()
        if _moved(before, state) > policy.tolerance:
            pairs, state = self._pairs(bound, policy, best_s, standing_s, flip), self._state()
        wrote = ""
        if restless is not None:
            last = restless.away
            wrote = restless.end()
            if last:  # its outputs are compared
                self.engine.time(bound.launches[0], 1)
        written = self.engine.digest(bound.written(0))
        measured = identity(bound.digest, bound.kernel_key, 0)
        damage = wrote or self.engine.disorder() or bound.damage(0)
        self._wrote = bound.written(0)
        told = tuple(sorted(state.items()))
        return Timed(measured, pairs.samples_s, damage, written, pairs.reference_s, told)

    def _state(self) -> dict[str, float]:
        """Clocks, power and temperature of the device."""
        return {n: v for n, v in self.engine.state() if isinstance(v, float)}

    def hand_in(self, index: int) -> Ran:
        """Copy for the referee what was written last, on the inputs of set ``index``."""
        bound = self._loaded()
        places = output_places(outputs_of(bound.io), self._memory)
        for (param, to), memory in zip(places, self._wrote, strict=True):
            to[:] = memory.read(param.dtype)
        return Ran(identity(bound.digest, bound.kernel_key, index))

    def limits(self) -> MachineLimits:
        """``Engine.limits``."""
        return self.engine.limits()

    def release(self) -> None:
        """Unload what is loaded, if anything is."""
        self._unload()
        beside, self._beside = self._beside, None
        if beside is not None:
            beside.code.close()

    def _unload(self) -> None:
        """Unload the candidate; what is beside it stays."""
        bound, self._bound, self._wrote = self._bound, None, []
        if bound is not None:
            bound.code.close()

    def _place(self, kernel_key: str, beside: CompiledCandidate | None, dataset: Dataset) -> None:
        """Load what a candidate is timed beside, unless it is there."""
        there = self._beside
        held = None if there is None or there.dataset is not dataset else there.program
        if beside is None or held != beside.program_hash:
            self.release()
            self._beside = None if beside is None else self._bind(kernel_key, beside, dataset)

    def _loaded(self) -> _Bound:
        if self._bound is None:
            raise InternalError("bench: nothing is loaded")
        return self._bound

    def _bind(self, kernel_key: str, compiled: CompiledCandidate, dataset: Dataset) -> _Bound:
        scratch = tuple(self.engine.allocate(n, touched=False) for n in compiled.scratch_bytes)
        buffers = tuple(
            dataset.buffers(compiled.io, index, self.engine) for index in range(len(dataset.sets))
        )
        code = self.engine.load(compiled, compiled.image)
        launches = tuple(self.engine.launch(code, each, scratch) for each in buffers)
        if self._watching:
            roles = [p.role for p in compiled.io.params]
            self.engine.watch(
                [
                    b if role in _READ else None
                    for each in buffers
                    for role, b in zip(roles, each, strict=True)
                ]
            )
        return _Bound(
            kernel_key, compiled.program_hash, digest(compiled.image), code, scratch, compiled.io,
            dataset, buffers,
            launches,
        )  # fmt: skip

    def _pairs(
        self,
        bound: _Bound,
        policy: Policy,
        best_s: float,
        standing_s: float,
        flip: Callable[[], None],
    ) -> Pairs:
        """Samples in turns, each after a ``flip``. What is beside the candidate writes where it
        does, and never last.
        """
        beside, apart = self._beside, not self.engine.device.target.has_work_items

        def placed(program: _Bound) -> tuple[Sequence[Memory], Sequence[Memory]]:
            near = program.near(policy.cache) if apart else ()
            return program.evicted(policy.cache), near

        def sampler(program: _Bound) -> Callable[[int], float]:
            evicted, near = placed(program)

            def sample(inner: int) -> float:
                flip()
                return self.engine.time(program.launches[0], 1, inner, evicted, near)[0]

            return sample

        return sample_pairs(
            sampler(bound),
            None if beside is None else (sampler(beside), standing_s),
            policy,
            best_s,
            losing_s=self._limits.losing_factor * best_s,
            alone=any(placed(bound)),
            once_s=self._once_s,
        )


def _nothing() -> None:
    """Changes nothing."""


def _moved(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """The share by which the clock of what computes has moved; 0 where it is not known."""
    clocks = (n for n in ("clock_mhz", "sm_mhz") if before.get(n, 0.0) and after.get(n, 0.0))
    return max((abs(after[n] / before[n] - 1.0) for n in clocks), default=0.0)
