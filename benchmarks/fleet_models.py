"""Costs of models on a machine of a fleet: ``python -m benchmarks.fleet_models resnet18``.

The same calls go to a bench in this process and to one behind Ray on this machine, in turns; with
default schedules, on one thread. ``first_s`` is the first check of a model: code, parts, an
evaluation of the graph. ``again_s`` is the check of a model that is known: what a call costs by
itself. ``run_ms`` is the median of runs, which must not depend on where they are asked for. Prints
a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from statistics import median

from tunegrad.compiling import HOOKS
from tunegrad.config import resolve_settings
from tunegrad.db import open_store
from tunegrad.devices import DeviceMeasurer, Limits, host_device
from tunegrad.trial import Policy
from tunegrad.tuning.fleet import Dispatcher, EngineSpec, FleetBench
from tunegrad.tuning.fleet.cluster import RayCluster
from tunegrad.tuning.models import LocalBench, ModelBench, Models, expected_of
from tunegrad.tuning.workload import workload_of_spec

__all__: list[str] = []

_CALLS, _RUNS = 50, 30


@contextmanager
def here() -> Iterator[ModelBench]:
    """A bench as a session without a fleet has it."""
    with DeviceMeasurer(host_device(1), HOOKS, Limits()) as device:
        bench = LocalBench(device.device, device.compile, partial(expected_of, device), Limits())
        with closing(bench):
            yield bench


@contextmanager
def on_ray() -> Iterator[ModelBench]:
    """A bench on a cluster of this machine alone."""
    with RayCluster("local", "cpu", 1, "contract") as cluster:
        crew = cluster.crew(None)
        arguments = crew.device, "contract", Policy(), Limits(), 0
        stations = cluster.open(crew, EngineSpec("tunegrad.tuning.fleet:DeviceEngine", arguments))
        yield FleetBench(Dispatcher(stations, crew.fingerprint, time.monotonic))


def seconds(act: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    began_s = time.perf_counter()
    act()
    return time.perf_counter() - began_s


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model")
    spec = resolve_settings(parser.parse_args().model).model
    work, device = workload_of_spec(spec), host_device(1)
    found: dict[str, dict[str, float]] = {}
    with ExitStack() as stack:
        store = stack.enter_context(open_store(":memory:", "write"))
        places = {"here": stack.enter_context(here()), "ray": stack.enter_context(on_ray())}
        models = {}
        for place, bench in places.items():
            models[place] = Models(store, device.target, device.fingerprint(), bench).of(work)
            found[place] = {"first_s": seconds(partial(bench.check, [models[place]]))}
        again: dict[str, list[float]] = {place: [] for place in places}
        runs: dict[str, list[float]] = {place: [] for place in places}
        for _ in range(_CALLS):
            for place, bench in places.items():
                again[place].append(seconds(partial(bench.check, [models[place]])))
        for _ in range(3):
            for place, bench in places.items():
                runs[place] += bench.latencies(models[place], _RUNS)
        for place, row in found.items():
            row |= {"again_s": median(again[place]), "run_ms": 1e3 * median(runs[place])}
    print(json.dumps({"model": work.name, "mb": models["ray"].constant_bytes >> 20, **found}))


if __name__ == "__main__":
    main()
