"""Model files small enough to tune in seconds, and what tests ask of a store afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from tunegrad.compiling import HOOKS
from tunegrad.config import TuneSettings, resolve_settings
from tunegrad.db import Store
from tunegrad.devices import Device, DeviceMeasurer, Hooks, Limits, host_device
from tunegrad.devices.host.facts import fingerprint, host_target
from tunegrad.events import Event
from tunegrad.ir.fusion import Alternatives
from tunegrad.ir.variants import parts_of, variants_of
from tunegrad.trial import Fingerprint, Trial
from tunegrad.tuning.models import LocalBench, expected_of
from tunegrad.tuning.session import SEARCH_POLICY
from tunegrad.tuning.workload import Workload, workload_of_spec

THREADS = 1
PRODUCTS = 2 * (64 * 64 + 64 * 48)
"""Multiplications and additions that no plan of the model below saves."""

_TEXT = """
[model]
name = "small"
builder = "tunegrad.models.mlp:mlp"
[model.args]
sizes = [64, 64, 48]
"""


@contextmanager
def bench_here(
    hooks: Hooks = HOOKS, threads: int = THREADS, of: Callable[[int], Device] = host_device
) -> Iterator[LocalBench]:
    """A bench as a session on this machine has it, with time to compile on a busy one: sessions
    compile again what was late.
    """
    with DeviceMeasurer(of(threads), hooks, Limits(compile_s=60.0, worker_start_s=110.0)) as device:
        bench = LocalBench(
            device.device, device.compile, partial(expected_of, device), device.limits
        )
        with closing(bench):
            yield bench


class Listener:
    """Keeps every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def observe(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type) -> list[Event]:
        return [e for e in self.events if type(e) is kind]


def model_file(directory: Path) -> Path:
    path = directory / "small.toml"
    path.write_text(_TEXT, encoding="utf-8")
    return path


def settings_of(
    directory: Path, budget: float, store: Path | str, searcher: str = "beam"
) -> TuneSettings:
    return resolve_settings(
        str(model_file(directory)),
        threads=THREADS,
        budget_s=budget,
        searcher=searcher,
        store=store,
        seed=3,
    )


def workload_in(directory: Path) -> Workload:
    return workload_of_spec(settings_of(directory, 1.0, ":memory:").model)


def here() -> Fingerprint:
    return fingerprint(host_target(THREADS))


def trials_of(store: Store, workload: Workload) -> list[Trial]:
    """The rows of a model's kernels, and of those that it would have if it were cut or computed
    otherwise.
    """
    edges = Alternatives(workload.fusion)
    cuts = [a for a in map(edges.alternative, edges.edges()) if a is not None]
    kernels = [use.kernel for use in workload.kernels] + [
        k for a in cuts for k in (*a.before, *a.after)
    ]
    keys = dict.fromkeys(p.key for k in kernels for v in variants_of(k) for p in parts_of(k, v))
    return [t for key in keys for t in store.trials(key, here(), SEARCH_POLICY)]


def undescribed(trials: Iterable[Trial]) -> list[Trial]:
    """Rows without what a later session that they win in may add to them."""
    return [replace(t, measurement=replace(t.measurement, facts=())) for t in trials]
