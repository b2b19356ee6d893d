"""The bench: it loads one candidate at a time, runs it on each input set, and times it on this process's thread team.

    load, run    the candidate on private copies of the inputs --> how long, guard zones, a digest of its outputs
    time         samples, in turns with a sound program        --> guard zones, a digest of its outputs
    hand_in      copies of the outputs, for the referee

What the outputs must be, nobody here knows: the referee judges the copies, where it has not seen them (``examine``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tunegrad.devices.cpu.readonly import ReadOnly
from tunegrad.devices.host.buffers import Buffer
from tunegrad.devices.host.bulk import Bulk
from tunegrad.devices.host.executable import Executable
from tunegrad.devices.host.team import BufferTable, Launch, Team
from tunegrad.devices.job import Array, CompiledCandidate, KernelIO, Limits
from tunegrad.devices.replies import Ran, Timed, digest, identity
from tunegrad.devices.timing import Pairs, inner_repeats, sample_pairs
from tunegrad.devices.verifying.dataset import Dataset, DatasetCache, InputSet
from tunegrad.devices.verifying.handover import Bytes, Places, output_places, outputs_of, take
from tunegrad.errors import CompileFailure, InternalError
from tunegrad.ir.target import Target
from tunegrad.trial import Cache, Policy

__all__ = ["Bench"]

_POISON = 0xFF
_READ = ("in", "const", "pack")


@dataclass(frozen=True, slots=True)
class _Bound:
    """A loaded candidate, and for each input set the buffers it runs on and its launch."""

    kernel_key: str
    program: str
    digest: bytes
    executable: Executable
    workspace: Buffer
    io: KernelIO
    dataset: Dataset
    buffers: tuple[list[Buffer], ...]
    launches: tuple[Launch, ...]
    tables: tuple[BufferTable, ...]

    def evicted(self, cache: Cache) -> tuple[tuple[int, int], ...]:
        """What is evicted before each sample, as (address, bytes). Packed constants are what is read of them."""
        if cache == "warm":
            return ()
        packed = {p.source for p in self.io.packs}
        found = [] if cache == "constants" else [(self.workspace.address, self.workspace.nbytes)]
        for param, buffer in zip(self.io.params, self.buffers[0], strict=True):
            constant = param.role == "pack" or (param.role == "const" and param.name not in packed)
            if constant or cache != "constants":
                found.append((buffer.address, param.nbytes))
        return tuple((address, nbytes) for address, nbytes in found if nbytes)

    def outputs(self, index: int) -> list[Array]:
        """What it writes on input set ``index``, in order."""
        pairs = zip(self.io.params, self.buffers[index], strict=True)
        return [buffer.array(p.dtype) for p, buffer in pairs if p.role not in _READ]

    def damage(self, index: int) -> str:
        """What the last run, on input set ``index``, wrote outside its buffers; '' where it did not.

        What may only be read can not have been written to: see ``readonly``.
        """
        damage = self.workspace.check_guards()
        if damage:
            return f"workspace: {damage}"
        for param, buffer in zip(self.io.params, self.buffers[index], strict=True):
            damage = "" if param.role in _READ else buffer.check_guards()
            if damage:
                return f"{param.name}: {damage}"
        return ""


class Bench:
    """Everything that the process keeps between candidates. One per process; nothing here survives a crash.

    ``memory`` is shared with the referee.
    """

    def __init__(self, target: Target, limits: Limits, memory: Bytes) -> None:
        self._limits, self._memory = limits, memory
        self.team = Team(target.threads, pin_caller=True)
        self._bulk = Bulk(self.team)
        self._datasets = DatasetCache(limits.cache_bytes)
        self._read_only: ReadOnly | None = None
        self._bound: _Bound | None = None
        self._beside: _Bound | None = None

    def tell_writers(self) -> None:
        """From now on who writes to what may only be read ends this process with an exit code of its own."""
        self._read_only = ReadOnly()

    def prepare(self, kernel_key: str, places: Places) -> None:
        """Copy a kernel's inputs from the shared memory."""
        self.release()
        self._datasets.put(kernel_key, Dataset(tuple(InputSet(s, {}) for s in take(places, self._memory))))

    def load(self, kernel_key: str, compiled: CompiledCandidate, beside: CompiledCandidate | None = None) -> Ran:
        """Load a candidate, which takes the place of the one before it, and run it once on the first input set.

        What it is to be timed ``beside`` is loaded as well, and stays.
        """
        self._unload()
        measured = identity(digest(compiled.image), kernel_key, 0)
        dataset = self._datasets.get(kernel_key)
        if dataset is None:
            return Ran(measured, "unprepared")
        try:
            dataset.pack([compiled.io, *([] if beside is None else [beside.io])], self._bulk)
            self._place(kernel_key, beside, dataset)
            self._bound = self._bind(kernel_key, compiled, dataset)
        except CompileFailure as error:
            return Ran(measured, "compile_error", damage=str(error))
        except MemoryError as error:
            return Ran(measured, "out_of_resources", damage=f"buffers: {error}")
        return self.run(0)

    def run(self, index: int) -> Ran:
        """Run what is loaded once on an input set, on poisoned outputs."""
        bound = self._loaded()
        bound.dataset.fill(index, bound.io, self._bulk)
        self._bulk.fill(bound.workspace.bytes, _POISON)
        once_s = self.team.time(bound.launches[index], 1)[0]
        damage, written = bound.damage(index), self._bulk.digest(bound.outputs(index))
        return Ran(identity(bound.digest, bound.kernel_key, index), once_s=once_s, damage=damage, written=written)

    def time(self, policy: Policy, best_s: float, standing_s: float = 0.0) -> Timed:
        """Time what is loaded, on the first input set, in turns with what is beside it.

        ``best_s`` is the time to beat: a clear loser is not timed to the end. ``standing_s`` are the seconds that the
        program beside it stands for.
        """
        bound = self._loaded()
        pairs = self._pairs(bound, policy, best_s, standing_s)
        written = self._bulk.digest(bound.outputs(0))
        measured = identity(bound.digest, bound.kernel_key, 0)
        return Timed(measured, pairs.samples_s, bound.damage(0), written, pairs.reference_s)

    def hand_in(self, index: int) -> Ran:
        """Copy for the referee what was written last, on input set ``index``."""
        bound = self._loaded()
        places = output_places(outputs_of(bound.io), self._memory)
        for (_, to), values in zip(places, bound.outputs(index), strict=True):
            to[:] = values
        return Ran(identity(bound.digest, bound.kernel_key, index))

    def release(self) -> None:
        """Unload what is loaded, if anything is."""
        self._unload()
        beside, self._beside = self._beside, None
        if beside is not None:
            beside.executable.close()

    def _unload(self) -> None:
        """Unload the candidate; what is beside it stays."""
        bound, self._bound = self._bound, None
        if bound is not None:
            bound.executable.close()

    def _place(self, kernel_key: str, beside: CompiledCandidate | None, dataset: Dataset) -> None:
        """Load what a candidate is timed beside, unless it is there."""
        there = self._beside
        held = None if there is None or there.dataset is not dataset else there.program
        if beside is None or held != beside.program_hash:
            self.release()
            self._beside = None if beside is None else self._bind(kernel_key, beside, dataset)

    def compare(
        self, kernel_key: str, pair: tuple[CompiledCandidate, CompiledCandidate], rounds: int, cache: Cache
    ) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """Seconds of two verified candidates of one kernel, sampled in turns (ABBA); None: not prepared."""
        self.release()
        dataset = self._datasets.get(kernel_key)
        if dataset is None:
            return None
        dataset.pack([compiled.io for compiled in pair], self._bulk)
        bound = tuple(self._bind(kernel_key, compiled, dataset) for compiled in pair)
        dropped = [each.evicted(cache) for each in bound]
        try:
            for each in bound:
                dataset.fill(0, each.io, self._bulk)
            first = [min(self.team.time(b.launches[0], 2, 1, d)) for b, d in zip(bound, dropped, strict=True)]
            inner = [inner_repeats(s, alone=bool(d)) for s, d in zip(first, dropped, strict=True)]
            samples: tuple[list[float], list[float]] = ([], [])
            for turn in range(rounds):
                for side in (0, 1) if turn % 2 == 0 else (1, 0):
                    samples[side].extend(self.team.time(bound[side].launches[0], 1, inner[side], dropped[side]))
        finally:
            for each in bound:
                each.executable.close()
        return tuple(samples[0]), tuple(samples[1])

    def _loaded(self) -> _Bound:
        if self._bound is None:
            raise InternalError("bench: nothing is loaded")
        return self._bound

    def _bind(self, kernel_key: str, compiled: CompiledCandidate, dataset: Dataset) -> _Bound:
        if compiled.threads > self.team.threads:
            raise InternalError(f"{compiled.name}: {compiled.threads} threads, the target has {self.team.threads}")
        workspace = Buffer(compiled.workspace_bytes, touched=False)
        buffers = tuple(dataset.buffers(compiled.io, index) for index in range(len(dataset.sets)))
        tables = tuple(BufferTable([b.address for b in each], each) for each in buffers)
        executable = Executable.load(compiled.image, compiled.name)
        launches = tuple(
            Launch(executable.address, table.address, workspace.address, compiled.threads) for table in tables
        )
        if self._read_only is not None:
            roles = [p.role for p in compiled.io.params]
            self._read_only.watch(
                [b.pages if role in _READ else (0, 0) for each in buffers for role, b in zip(roles, each, strict=True)]
            )
        return _Bound(
            kernel_key, compiled.program_hash, digest(compiled.image), executable, workspace, compiled.io, dataset,
            buffers, launches, tables,
        )  # fmt: skip

    def _pairs(self, bound: _Bound, policy: Policy, best_s: float, standing_s: float) -> Pairs:
        """Samples in turns. What is beside the candidate writes where it does, and never last."""
        beside = self._beside

        def sampler(program: _Bound) -> Callable[[int], float]:
            evicted = program.evicted(policy.cache)
            return lambda inner: self.team.time(program.launches[0], 1, inner, evicted)[0]

        return sample_pairs(
            sampler(bound),
            None if beside is None else sampler(beside),
            policy,
            standing_s,
            best_s,
            losing_s=self._limits.losing_factor * best_s,
            alone=bool(bound.evicted(policy.cache)),
        )
