"""Model files small enough to tune in seconds, and what tests ask of a store afterwards."""

from __future__ import annotations

from pathlib import Path

from tunegrad.config import TuneSettings, resolve_settings
from tunegrad.db import Store
from tunegrad.devices import fingerprint, host_target
from tunegrad.events import Event
from tunegrad.trial import Fingerprint, Trial
from tunegrad.tuning.session import SEARCH_POLICY
from tunegrad.tuning.workload import Workload, workload_of_spec

THREADS = 1

_TEXT = """
[model]
name = "small"
builder = "tunegrad.models.mlp:mlp"
[model.args]
sizes = [64, 64, 48]
"""


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


def settings_of(directory: Path, budget: float, store: Path | str, searcher: str = "beam") -> TuneSettings:
    return resolve_settings(
        str(model_file(directory)), threads=THREADS, budget=budget, searcher=searcher, store=store, seed=3
    )


def workload_in(directory: Path) -> Workload:
    return workload_of_spec(settings_of(directory, 1.0, ":memory:").model)


def here() -> Fingerprint:
    return fingerprint(host_target(THREADS))


def trials_of(store: Store, workload: Workload) -> list[Trial]:
    return [t for use in workload.kernels for t in store.trials(use.key, here(), SEARCH_POLICY)]
