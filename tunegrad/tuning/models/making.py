"""From a workload to a whole model as a value: a schedule for every kernel that compiles, and is
the verified program.

    actions given for a kernel  that schedule, or CandidateFailure
    none                        its stored winner; its default schedule where that one
                                does not compile any more, or compiles to another
                                program than the one that was measured
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tunegrad.db import Hit, Store
from tunegrad.errors import CandidateFailure, IllegalAction
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.opts import SPACE_VERSION, Space
from tunegrad.trial import Fingerprint, Trial

from .model import Compiled, WholeModel

if TYPE_CHECKING:
    from tunegrad.tuning.workload import Workload

    from .bench import ModelBench

__all__ = ["Models"]


@dataclass(frozen=True, slots=True)
class _Option:
    """A schedule; ``program`` is the hash of the program that was measured, empty where that is not
    asked.
    """

    actions: str
    program: str = ""

    def stands_for(self, compiled: Compiled) -> bool:
        return not compiled.error and self.program in ("", compiled.program)


@dataclass(frozen=True, slots=True)
class Models:
    """Makes the whole models of a session; ``bench`` compiles, and runs them."""

    store: Store
    target: Target
    here: Fingerprint
    bench: ModelBench

    def of(
        self, work: Workload, actions: Mapping[str, str] | None = None, stored: bool = True
    ) -> WholeModel:
        """The model with these actions by kernel key; kernels without any as the store (``stored``)
        or default says.

        Raises CandidateFailure where a kernel has no schedule that compiles.
        """
        return self._made(work, actions or {}, self.store if stored else None)

    def of_trials(self, work: Workload, chosen: Mapping[str, Trial]) -> WholeModel:
        """The model whose kernels run as these trials, by kernel key; the others as in ``of``.

        Raises CandidateFailure as well where a schedule lowers to another program than the one that
        was measured: such a program was never verified.
        """
        kernels = {u.key: u.kernel for u in work.kernels}
        pairs = [(kernels[key], t.actions) for key, t in chosen.items()]
        for (key, trial), found in zip(chosen.items(), self.bench.compile(pairs), strict=True):
            if not found.error and found.program != trial.program_hash:
                raise CandidateFailure(
                    f"kernel {kernels[key].name}: {trial.actions!r} lowers to program "
                    f"{found.program}, "
                    f"and {trial.program_hash} was verified"
                )
        return self.of(work, {key: t.actions for key, t in chosen.items()})

    def prepare(self, pairs: Sequence[tuple[Kernel, str]]) -> None:
        """Compile, in one batch on all cores, what models will be made of."""
        self.bench.compile(pairs)

    def _made(self, work: Workload, actions: Mapping[str, str], store: Store | None) -> WholeModel:
        kernels = {u.key: u.kernel for u in work.kernels}
        left = {
            key: [_Option(actions[key])] if key in actions else self._options(kernel, store)
            for key, kernel in kernels.items()
        }
        found: dict[str, str] = {}
        while left:
            tried = self.bench.compile(
                [(kernels[key], options[0].actions) for key, options in left.items()]
            )
            for (key, options), compiled in zip(list(left.items()), tried, strict=True):
                if options[0].stands_for(compiled):
                    found[key] = left.pop(key)[0].actions
                elif len(options) == 1:
                    raise CandidateFailure(
                        f"kernel {kernels[key].name}: no schedule compiles: "
                        f"{options[0].actions!r}: {compiled.error}"
                    )
                else:
                    left[key] = options[1:]
        return WholeModel(work.name, work.graph, work.plan, work.inputs, found)

    def _options(self, kernel: Kernel, store: Store | None) -> list[_Option]:
        """Schedules that a kernel may run as, best first.

        Raises CandidateFailure for a fence's schedule that is not legal.
        """
        space = Space(kernel, self.target)
        if kernel.fixed:
            try:
                return [_Option(space.fixed().text)]
            except IllegalAction as error:
                raise CandidateFailure(f"kernel {kernel.name}: {error}") from error
        default = _Option(space.defaults()[0].text)
        hit = None if store is None else store.lookup(kernel.key, self.here, SPACE_VERSION)
        return (
            [_Option(hit.trial.actions, hit.trial.program_hash), default]
            if isinstance(hit, Hit)
            else [default]
        )
