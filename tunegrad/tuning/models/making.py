"""From a workload to a whole model as a value: a schedule for every kernel that compiles, and is the verified program.

actions given for a kernel    that schedule, or CandidateFailure
none                          its stored winner; where that does not compile any more, its default schedule
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tunegrad.db import Store
from tunegrad.errors import CandidateFailure
from tunegrad.inference import Choice, choices
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.trial import Fingerprint, Trial

from .model import WholeModel

if TYPE_CHECKING:
    from tunegrad.tuning.workload import Workload

    from .bench import ModelBench

__all__ = ["Models"]


@dataclass(frozen=True, slots=True)
class Models:
    """Makes the whole models of a session; ``bench`` compiles, and runs them."""

    store: Store
    target: Target
    here: Fingerprint
    bench: ModelBench

    def of(self, work: Workload, actions: Mapping[str, str] | None = None, stored: bool = True) -> WholeModel:
        """The model with these actions by kernel key; kernels without any as the store (``stored``) or default says.

        Raises CandidateFailure where a kernel has no schedule that compiles.
        """
        return self._made(work, actions or {}, self.store if stored else None)

    def of_trials(self, work: Workload, chosen: Mapping[str, Trial]) -> WholeModel:
        """The model whose kernels run as these trials, by kernel key; the others as in ``of``.

        Raises CandidateFailure as well where a schedule lowers to another program than the one that was measured:
        nobody has verified that.
        """
        kernels = {u.key: u.kernel for u in work.kernels}
        pairs = [(kernels[key], t.actions) for key, t in chosen.items()]
        for (key, trial), found in zip(chosen.items(), self.bench.compile(pairs), strict=True):
            if not found.error and found.program != trial.program_hash:
                raise CandidateFailure(
                    f"kernel {kernels[key].name}: {trial.actions!r} lowers to program {found.program}, "
                    f"and {trial.program_hash} was verified"
                )
        return self.of(work, {key: t.actions for key, t in chosen.items()})

    def prepare(self, pairs: Sequence[tuple[Kernel, str]]) -> None:
        """Compile, in one batch on all cores, what models will be made of."""
        self.bench.compile(pairs)

    def _made(self, work: Workload, actions: Mapping[str, str], store: Store | None) -> WholeModel:
        left = {
            u.key: [Choice(u.kernel, "hit", actions[u.key])]
            if u.key in actions
            else list(choices(u.kernel, self.target, self.here, store, "default"))
            for u in work.kernels
        }
        found: dict[str, str] = {}
        while left:
            tried = self.bench.compile([(options[0].kernel, options[0].actions) for options in left.values()])
            for (key, options), compiled in zip(list(left.items()), tried, strict=True):
                if not compiled.error:
                    found[key] = left.pop(key)[0].actions
                elif len(options) == 1:
                    name, text = options[0].kernel.name, options[0].actions
                    raise CandidateFailure(f"kernel {name}: no schedule compiles: {text!r}: {compiled.error}")
                else:
                    left[key] = options[1:]
        return WholeModel(work.name, work.fusion.drafts.targets, work.plan, work.inputs, found)
