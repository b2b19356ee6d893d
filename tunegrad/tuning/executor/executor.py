"""The executor of a session: this machine, or a fleet of machines.

An executor says what is compiled for, what its rows are tagged with, how many machines measure at
once and how many proposals they keep busy. Everything else of a session is the same on all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial

from tunegrad import devices
from tunegrad.config import TuneSettings
from tunegrad.devices import DeviceMeasurer, Hooks, Limits, MachineLimits
from tunegrad.ir.target import Target
from tunegrad.trial import Fingerprint, Policy

from ..budget.costs import Costs
from ..interrupt import Interrupt
from ..models import LocalBench, ModelBench, expected_of
from .local import CandidateMeasurer, SessionMeasurer

__all__ = ["Executor", "open_executor"]


@dataclass(frozen=True, slots=True)
class Executor:
    """The place where candidates are measured.

    ``here`` is the fingerprint of the machines that measure, and of every row.

    ``policy`` is how they time. ``in_flight`` says how many proposals to keep unanswered with
    batches of so many. ``bench`` runs whole models, on one of those machines. ``close`` stops every
    worker; calling it again does nothing.
    """

    target: Target
    here: Fingerprint
    policy: Policy
    measurer: SessionMeasurer
    bench: ModelBench
    machine_limits: Callable[[], MachineLimits]
    close: Callable[[], None]
    in_flight: Callable[[int], int]
    machines: int = 1


@contextmanager
def open_executor(
    settings: TuneSettings,
    policy_of: Callable[[Target], Policy],
    limits: Limits,
    hooks: Hooks,
    interrupt: Interrupt,
    costs: Costs,
    warn: Callable[[str], None],
) -> Iterator[Executor]:
    """The executor that the settings name, closed however this ends.

    Raises UserError where there is none, or it can not be used; ``warn`` is told what is
    left out or lost.
    """
    if settings.ray is None:
        device = devices.running(settings.device, settings.threads)
        here = device.fingerprint(settings.numerics)
        with DeviceMeasurer(device, hooks, limits, settings.seed) as workers:
            policy = policy_of(device.target)
            measurer = CandidateMeasurer(workers, policy, interrupt, costs)
            with _bench_on(workers, measurer, limits, interrupt) as bench:
                yield Executor(
                    device.target,
                    here,
                    policy,
                    measurer,
                    bench,
                    workers.machine_limits,
                    workers.close,
                    _one_ahead,
                )
        return
    from ..fleet import Dispatcher, EngineSpec, FleetBench, FleetMeasurer, in_flight, job_size
    from ..fleet.cluster import RayCluster

    with RayCluster(settings.ray, settings.device, settings.threads, settings.numerics) as cluster:
        crew = cluster.crew(settings.ray_kind)
        for line in crew.left_out:
            warn(f"left out: {line}")
        policy = policy_of(crew.device.target)
        engine = EngineSpec(
            "tunegrad.tuning.fleet:DeviceEngine",
            (crew.device, settings.numerics, policy, limits, settings.seed, hooks),
        )
        dispatcher = Dispatcher(
            cluster.open(crew, engine, warn), crew.fingerprint, time.monotonic, warn
        )
        count = len(crew.measuring)
        fleet = FleetMeasurer(dispatcher, job_size(count), limits, policy, interrupt, costs)
        # With one machine, and the search on it, asking must not disturb what is timed.
        alone = count == 1 and cluster.is_here(crew.measuring[0])
        ahead = 1 if alone else in_flight(count)
        yield Executor(
            crew.device.target,
            crew.fingerprint,
            policy,
            fleet,
            FleetBench(dispatcher, interrupt),
            fleet.machine_limits,
            cluster.close,
            lambda _: ahead,
            count,
        )


def _bench_on(
    workers: DeviceMeasurer, measurer: CandidateMeasurer, limits: Limits, interrupt: Interrupt
) -> closing[LocalBench]:
    """A bench whose code is compiled, and whose expectations are computed, by the compile workers
    of a device.
    """
    return closing(
        LocalBench(workers.device, measurer.code, partial(expected_of, workers), limits, interrupt)
    )


def _one_ahead(batch: int) -> int:
    """Proposals that are unanswered while one batch is under way and the next one has been asked
    for.
    """
    return batch + 1
