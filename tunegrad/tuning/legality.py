"""Whether action texts of a file are legal, for kernels of models that can be rebuilt here.

model   -->   its kernels by key   -->   parse, apply to the loop tree for this machine   -->   None, or the broken rule
"""

from __future__ import annotations

from dataclasses import dataclass

from tunegrad.config import TuneSettings
from tunegrad.db import actions_fault
from tunegrad.devices import fingerprint, host_target
from tunegrad.errors import IllegalAction
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.ir.variants import variants_of
from tunegrad.opts import Schedule, Space
from tunegrad.trial import Fingerprint, Trial
from tunegrad.variants import stored_variant

from .workload import workload_of_spec

__all__ = ["Legality", "legality_of"]


@dataclass(frozen=True, slots=True)
class Legality:
    """Kernels by key and the machine that they are for; an instance is a rule for ``import_store``."""

    kernels: dict[str, Kernel]
    target: Target
    here: Fingerprint

    def __call__(self, kernel_key: str, machine: Fingerprint, actions: str) -> str | None:
        """What is wrong with an action text; what another machine may do is not known here, so it need only parse."""
        fault = actions_fault(kernel_key, machine, actions)
        kernel = self.kernels.get(kernel_key)
        if fault or kernel is None or machine != self.here:
            return fault
        if (variant := stored_variant(actions)) is not None:
            names = variants_of(kernel)
            return None if variant in names else f"must be a variant of this kernel: {', '.join(names)}"
        try:
            Space(kernel, self.target).tree(Schedule.parse(actions))
        except IllegalAction as error:
            return f"must be legal here: {' '.join(str(error).split())[:300]}"
        return None

    def covers(self, trial: Trial) -> bool:
        """Whether its actions are known to be legal once the rule has passed them."""
        return trial.kernel_key in self.kernels and trial.fingerprint == self.here


def legality_of(settings: TuneSettings) -> Legality:
    """The rule for the kernels of a model as the rules cut it. Raises UserError for a model that can not be built."""
    target = host_target(settings.threads)
    workload = workload_of_spec(settings.model, settings.seed, settings.numerics)
    kernels = {use.key: use.kernel for use in workload.kernels}
    return Legality(kernels, target, fingerprint(target, settings.numerics))
