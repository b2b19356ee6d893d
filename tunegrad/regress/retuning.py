"""Tuning again of what got slower: the kernels that a sweep found, each model for its part of the
time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from tunegrad.config import TuneSettings, resolve_settings
from tunegrad.errors import UserError
from tunegrad.events import Observer

from .nights import split_series
from .report import Finding
from .settings import SweepSettings

__all__ = ["Display", "retuned"]

Display = Callable[[], AbstractContextManager[Observer | None]]
"""Opens what shows a search while it runs."""


def retuned(
    settings: SweepSettings,
    findings: Sequence[Finding],
    retune_s: float,
    tell: Callable[[str], None],
    display: Display = nullcontext,
) -> tuple[str, ...]:
    """Tune the models that got slower again, each on its device, for an equal part of the time;
    their names, as far as it came.

    Searched are the kernels that got slower; all of them where only the whole model did. With a
    seed of its own: the budget of the last tune's seed may be spent. What the store knows is not
    measured again. Ctrl-C keeps the best so far, and begins no other model.
    """
    from tunegrad.tune import tune_models

    slower: dict[tuple[str, str], set[str]] = {}
    for f in findings:
        if f.kind == "regression":
            model, kernel = split_series(f.series)
            slower.setdefault((f.device, model), set()).update([f.key] if kernel else [])
    if not slower or retune_s <= 0.0:
        return ()
    done: list[str] = []
    for number, ((device, name), kernels) in enumerate(slower.items()):
        each_s = retune_s / len(slower)
        tell(f"tuning {name} on {device} again for {each_s:.0f} s")
        one = _settings(settings, device, name, each_s, int(time.time()) + number)
        try:
            with display() as observer:
                watching = [] if observer is None else [observer]
                report = tune_models(one, watching, only=frozenset(kernels))[0]
        except UserError as error:
            tell(f"{name} on {device}: not tuned again: {error}")
            continue
        except KeyboardInterrupt:
            tell(f"{name} on {device}: interrupted; nothing else is tuned again")
            break
        done.append(name)
        if report.interrupted:
            tell("interrupted; nothing else is tuned again")
            break
    return tuple(done)


def _settings(
    settings: SweepSettings, device: str, name: str, budget_s: float, seed: int
) -> TuneSettings:
    """Of the model that the sweep calls so."""
    asked = {resolve_settings(m, dtype=settings.dtype).model.name: m for m in settings.models}
    model = asked.get(name) or asked.get(name.removesuffix(f" {settings.dtype}"), name)
    return settings.of(device, model, budget_s=budget_s, seed=seed)
