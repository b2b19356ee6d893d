"""A model as a sweep times it: the stored winners and the default schedules in turns, and between
every four turns the yardsticks, in a process that can be killed.

    store    the plan and the winners of this machine; after its software was renewed, which makes
             a lookup miss, those of before
    check    outputs against an independent evaluation; a kernel that crashes, hangs or is wrong is
             found by halves, runs as its default from then on, and is a row of what failed
    turns    winners, defaults x 4    stream, product x 4    peers    winners, defaults x 4 ...

The yardsticks are two kernels that no tune touches, on the same threads in the same second: one
reads and writes memory, one multiplies. What moves them is the machine. In a turn with the models
they would empty the caches for what comes next, and winners and defaults of one program differed
by a third.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from tunegrad.compiling import HOOKS
from tunegrad.config import TuneSettings
from tunegrad.db import Store
from tunegrad.devices import Hooks, Limits
from tunegrad.errors import CandidateFailure, ConfigError
from tunegrad.opts import SPACE_VERSION
from tunegrad.planning import picked
from tunegrad.trial import Fingerprint, Properties, Trial
from tunegrad.tuning import (
    FAULTS,
    Costs,
    Executor,
    Interrupt,
    Models,
    Turns,
    WholeModel,
    Workload,
    cpu_use,
    culprit,
    cut_as_stored,
    lacking_cpus,
    open_executor,
    others_cpus,
    per_launch,
    search_policy,
    with_variants,
    workload_of_function,
    workload_of_spec,
)

from .nights import PEER, place_of
from .settings import Peer

_LIMITS = Limits(compile_s=3.0)
_TURNS_AT_ONCE = 4
"""So that a hang is noticed, and Ctrl-C heard."""

_PAIRED_S = 2.0
"""Of whole runs of the winners and the defaults in turns."""

_STREAM, _PRODUCT = 1 << 22, 256

YARDSTICKS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "stream": (lambda a: a * 2.0 + 1.0, ((_STREAM,),)),
    "product": (lambda a, b: a @ b, ((_PRODUCT, _PRODUCT), (_PRODUCT, _PRODUCT))),
}
"""By name: what is computed, and shapes of its f32 arrays. 16 MiB moved; 34 MFLOP."""


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """A kernel of the model, which launches it ``uses`` times: seconds of one launch, turn by turn,
    with its winner and its default.

    ``stored``: the winner ran. ``program`` is the hash of what did.
    """

    name: str
    key: str
    uses: int
    program: str
    stored: bool
    tuned_s: tuple[float, ...]
    default_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ModelTimes:
    """Times that a sweep measured of a model on a device; ``whole`` are runs with winners and
    defaults in turns, ``yardsticks`` seconds by name and turn. ``failed`` are (kernel, why),
    ``state`` what the device said of itself at the end, ``others_cpus`` how many CPUs other
    processes used meanwhile, ``lacking_cpus`` how many of them the model lacked.
    """

    model: str
    key: str
    here: Fingerprint
    whole: tuple[tuple[float, ...], tuple[float, ...]]
    kernels: tuple[KernelTimes, ...]
    yardsticks: Mapping[str, tuple[tuple[float, ...], str]]
    failed: tuple[tuple[str, str], ...]
    peers: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    state: Properties = ()
    others_cpus: float = 0.0
    lacking_cpus: float = 0.0


def measure_model(
    settings: TuneSettings,
    store: Store,
    turns: int,
    interrupt: Interrupt,
    hooks: Hooks = HOOKS,
    warn: Callable[[str], None] = lambda _: None,
    peers: Sequence[str] = (),
) -> ModelTimes:
    """Time one model. Raises CandidateFailure where its default schedules do not run, UserError for
    a device or a model that is not there.
    """
    if settings.ray is not None:
        raise ConfigError("a sweep runs on this machine: ray has no place in it")
    policy = partial(search_policy, [])
    with open_executor(settings, policy, _LIMITS, hooks, interrupt, Costs(), warn) as executor:
        direct = workload_of_spec(
            settings.model, settings.seed, settings.numerics, executor.target, settings.dtype
        )
        return _Timing(settings, store, executor, direct, turns, peers).run()


@dataclass(frozen=True)
class _Timing:
    """A model on its site, while it is being timed."""

    settings: TuneSettings
    store: Store
    executor: Executor
    direct: Workload
    turns: int
    peers: Sequence[str] = ()

    def run(self) -> ModelTimes:
        wanted, failed = self._compiling()
        names = {u.key: u.name for u in self.work.kernels}
        again = False
        while True:
            tuned = self._models.of(self.work, {**self._defaults, **wanted})
            try:
                return self._timed(tuned, wanted, tuple(failed))
            except FAULTS as error:
                suspects = [(k, a) for k, a in wanted.items() if a != self._defaults.get(k)]
                found = culprit(suspects, lambda few: self._fails(dict(few)))
                if found is None and (again or self._fails({}) is not None):
                    raise
                if not suspects:  # a machine that stood still is no fault of the defaults
                    again = True
                    continue
                # None fails alone: all of them run as their defaults.
                blamed = [found] if found else [(s, error) for s in suspects]
                for (key, _), why in blamed:
                    del wanted[key]
                    failed.append((names[key], f"{type(why).__name__}: {why}"))

    # ---- what runs

    @cached_property
    def _from(self) -> Fingerprint:
        """The machine whose decisions and winners are timed: this one; where it has none, what it
        was before its software was renewed.
        """
        here = self.executor.here
        known = [x.fingerprint for x in self.store.latencies(self.direct.name)][::-1]
        same = [f for f in dict.fromkeys([here, *known]) if place_of(f) == place_of(here)]
        return next((f for f in same if self.store.kernels(f)), here)

    @cached_property
    def work(self) -> Workload:
        """The model as the store has decided to cut it and to run its kernels."""
        cut = cut_as_stored(self.direct, self._from, self.store, self.executor.target)
        picks = picked(
            cut.plan, self.executor.target, self._from, self.store, self.settings.numerics
        )
        return with_variants(cut, picks)

    @property
    def _models(self) -> Models:
        return Models(self.store, self.executor.target, self.executor.here, self.executor.bench)

    @cached_property
    def _defaults(self) -> dict[str, str]:
        return dict(self._models.of(self.work, stored=False).actions)

    def _compiling(self) -> tuple[dict[str, str], list[tuple[str, str]]]:
        """The winners that compile, by kernel key, and why others do not."""
        stored: dict[str, Trial] = {}
        for use in self.work.kernels:
            found = self.store.winner(use.key, self._from, SPACE_VERSION)
            if found is not None and not use.kernel.fixed:
                stored[use.key] = found
        kernels = {u.key: u for u in self.work.kernels}
        made = self.executor.bench.compile(
            [(kernels[k].kernel, t.actions) for k, t in stored.items()]
        )
        failed = [
            (kernels[key].name, f"its winner does not compile: {compiled.error}")
            for key, compiled in zip(stored, made, strict=True)
            if compiled.error
        ]
        sound = zip(stored.items(), made, strict=True)
        return {key: t.actions for (key, t), compiled in sound if not compiled.error}, failed

    def _fails(self, few: Mapping[str, str]) -> CandidateFailure | None:
        """Failure of the model in a fresh process with these winners over its defaults."""
        made = self._models.of(self.work, {**self._defaults, **few})
        self.executor.bench.renew()
        try:
            self.executor.bench.profiled([made], 1)
        except FAULTS as error:
            return error
        return None

    # ---- turns

    @cached_property
    def _yardsticks(self) -> dict[str, WholeModel]:
        found = {}
        for name, (function, shapes) in YARDSTICKS.items():
            arrays = tuple(np.zeros(shape, np.float32) for shape in shapes)
            work = workload_of_function(
                function, arrays, self.settings.numerics, self.executor.target
            )
            found[name] = self._models.of(replace(work, name=name), stored=False)
        return found

    def _timed(
        self, tuned: WholeModel, wanted: Mapping[str, str], failed: tuple[tuple[str, str], ...]
    ) -> ModelTimes:
        default = self._models.of(self.work, self._defaults)
        used = cpu_use()
        lineups = [[tuned, default], list(self._yardsticks.values())]
        taken: list[list[list[tuple[float, ...]]]] = [[[] for _ in sides] for sides in lineups]
        with ExitStack() as stack:
            peers, lost = self._peers(stack)
            for at in range(0, self.turns, _TURNS_AT_ONCE):
                count = min(_TURNS_AT_ONCE, self.turns - at)
                for sides, known in zip(lineups, taken, strict=True):
                    for side, more in zip(
                        known, self.executor.bench.profiled(sides, count), strict=True
                    ):
                        side.extend(more)
                lost |= _beside(peers, count)
        whole = self.executor.bench.paired(tuned, default, _PAIRED_S)
        others = others_cpus(used, cpu_use())
        yardsticks = {
            name: (tuple(map(sum, seconds)), self._programs(model)[0])
            for (name, model), seconds in zip(self._yardsticks.items(), taken[1], strict=True)
        }
        return ModelTimes(
            self.work.name,
            self.direct.key,
            self.executor.here,
            (tuple(whole[0]), tuple(whole[1])),
            self._kernels(tuned, wanted, tuple(taken[0][0]), tuple(taken[0][1])),
            yardsticks,
            (*failed, *((PEER + name, why) for name, why in lost.items())),
            {peer.name: tuple(peer.samples_s) for peer in peers},
            self.executor.bench.state(),
            others,
            lacking_cpus(others, self.executor.target.host_threads),
        )

    def _peers(self, stack: ExitStack) -> tuple[list[Peer], dict[str, str]]:
        """The peers, started, and why others are not."""
        started, lost = [], {}
        for name in self.peers:
            try:
                peer = Peer(name, self.settings.model.name, self.executor.target.threads)
                started.append(stack.enter_context(peer))
            except CandidateFailure as error:
                lost[name] = str(error)
        return started, lost

    def _kernels(
        self, tuned: WholeModel, wanted: Mapping[str, str], mine: Turns, default: Turns
    ) -> tuple[KernelTimes, ...]:
        programs = dict(zip(tuned.actions, self._programs(tuned), strict=True))
        tuned_s, default_s = (per_launch(self.work.plan, turns) for turns in (mine, default))
        return tuple(
            KernelTimes(
                use.name,
                use.key,
                use.uses,
                programs[use.key],
                use.key in wanted,
                tuple(tuned_s[use.key]),
                tuple(default_s[use.key]),
            )
            for use in self.work.kernels
        )

    def _programs(self, model: WholeModel) -> list[str]:
        """Hashes of the programs of a model's kernels, in the order of its actions."""
        kernels = model.plan.kernels()
        pairs = [(kernels[key][0], text) for key, text in model.actions.items()]
        return [compiled.program for compiled in self.executor.bench.compile(pairs)]


def _beside(peers: list[Peer], calls: int) -> dict[str, str]:
    """Time the peers; those that ended are taken out, and why."""
    lost = {}
    for peer in list(peers):
        try:
            peer.take(calls)
        except CandidateFailure as error:
            lost[peer.name] = str(error)
            peers.remove(peer)
    return lost
