"""The schedules that a model would run with here: each kernel's stored winner, or its default and
why it has no winner.
"""

from __future__ import annotations

from dataclasses import replace

from tunegrad import devices
from tunegrad.config import TuneSettings
from tunegrad.db import Hit, Near, Store, open_store
from tunegrad.devices import Device
from tunegrad.inference import process_compiler, stale
from tunegrad.ir.fusion import layers_of
from tunegrad.opts import SPACE_VERSION, Space
from tunegrad.planning import picked
from tunegrad.reports import Outcome, ShowRow
from tunegrad.trial import Fingerprint
from tunegrad.tuning import KernelUse, Workload, cut_as_stored, with_variants, workload_of_spec

__all__ = ["show"]


def show(settings: TuneSettings, made: Workload | None = None) -> list[ShowRow]:
    """One row per distinct kernel of the model, in launch order; ``made`` is the model where its
    name is none. Reads the store, measures nothing.

    Raises UserError for an unknown device or an unusable store.
    """
    device = devices.open(settings.device, settings.threads)
    target, here = device.target, device.fingerprint(settings.numerics)
    workload = made or workload_of_spec(
        settings.model, settings.seed, settings.numerics, target, settings.dtype
    )
    with open_store(settings.store) as store:
        workload = cut_as_stored(workload, here, store, target)
        picks = picked(workload.plan, target, here, store, settings.numerics)
        workload = with_variants(workload, picks)
        layers = layers_of(workload.plan)
        return [
            replace(
                _row(use, store, here, device),
                operations=use.kernel.origin,
                layers=layers[use.key],
            )
            for use in workload.kernels
        ]


def _row(use: KernelUse, store: Store, here: Fingerprint, device: Device) -> ShowRow:
    if use.kernel.fixed:
        return ShowRow(
            use.name,
            use.key,
            use.uses,
            "fixed",
            Space(use.kernel, device.target).fixed().text,
            "fixed",
        )
    found = store.lookup(use.key, here, SPACE_VERSION)
    if isinstance(found, Hit):
        trial = found.trial
        fault = stale(use.kernel, trial, device, process_compiler())
        if not fault:
            tuned_ms = 1e3 * trial.measurement.seconds
            return ShowRow(
                use.name,
                use.key,
                use.uses,
                "hit",
                trial.actions,
                trial.origin,
                trial.session,
                tuned_ms,
                facts=dict(trial.measurement.facts),
            )
        differs: tuple[str, ...] = (fault,)
    else:
        differs = tuple(d.brief for d in found.differences)
    default = Space(use.kernel, device.target).defaults()[0].text
    outcome: Outcome = "near" if isinstance(found, Near) else "miss"
    return ShowRow(use.name, use.key, use.uses, outcome, default, "default", differs=differs)
