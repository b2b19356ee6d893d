"""Whole models as values that a session holds, compares and sends; processes hold their code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tunegrad.db import Hit, Store
from tunegrad.errors import CandidateFailure, IllegalAction
from tunegrad.ir.fusion import LaunchPlan
from tunegrad.ir.graph import Node
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.opts import SPACE_VERSION, Space
from tunegrad.runtime import Argument
from tunegrad.trial import Fingerprint, Trial

if TYPE_CHECKING:
    from tunegrad.tuning.workload import Workload

    from .bench import ModelBench


@dataclass(frozen=True, slots=True)
class Compiled:
    """The result of compiling a schedule: the hash of its program, or the error."""

    program: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class WholeModel:
    """A plan with the action text of every kernel by key; ``graph`` are the nodes that it computes,
    none where nothing but its kernels' own verification says what that is.

    Two plans of one graph (other forms of images, edges, variants) have the same ``graph``, and the
    same outputs.
    """

    name: str
    graph: tuple[Node, ...]
    plan: LaunchPlan
    inputs: tuple[Argument, ...]
    actions: Mapping[str, str]

    @property
    def constant_bytes(self) -> int:
        """Bytes of the constants of its plan."""
        return sum(b.nbytes for b in self.plan.buffers if b.role == "const")

    @property
    def output_bytes(self) -> int:
        """Bytes of the outputs of its plan."""
        return sum(self.plan.buffers[i].nbytes for i in self.plan.outputs)


@dataclass(frozen=True, slots=True)
class _Option:
    """A schedule; ``program``: the hash of the measured program, "" where not asked for."""

    actions: str
    program: str = ""

    def stands_for(self, compiled: Compiled) -> bool:
        return not compiled.error and self.program in ("", compiled.program)


@dataclass(frozen=True, slots=True)
class Models:
    """Makes the whole models of a session; ``bench`` compiles, and runs them.

    actions given for a kernel  that schedule, or CandidateFailure
    none                        its stored winner; its default schedule where that one
                                does not compile any more, or compiles to another
                                program than the one that was measured
    """

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


_S = TypeVar("_S")


def culprit(
    suspects: Sequence[_S], fails: Callable[[Sequence[_S]], CandidateFailure | None]
) -> tuple[_S, CandidateFailure] | None:
    """The suspect that fails alone, twice, with its failure; None where none does.

    ``fails`` runs the race, in a fresh process, with the incumbents and those suspects. About
    log2(n) + 2 races.

        a b c d e f g h  the race failed
        a b c d          runs through  -->  e f g h    (not tried together: the last word
                                                        is a try of one alone)
                e f      fails         -->  e f
                e        runs through  -->  f
                  f      fails, and fails again  -->  f
    """
    left = list(suspects)
    while len(left) > 1:
        half = left[: len(left) // 2]
        left = half if fails(half) is not None else left[len(half) :]
    if not left or fails(left) is None:
        return None
    failure = fails(left)
    return None if failure is None else (left[0], failure)
