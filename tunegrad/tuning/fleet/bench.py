"""Whole models on a machine of the fleet: the driver's side of it.

    profiled, check ...  -->  Call("models", on=MACHINE)  -->  Station --> ModelHost --> LocalBench
         ^                        |  parts are missing: each is sent once, and the call again
         |____ failures as here __|  the machine is lost: another station there, or another machine

One machine has all the models of a session, as long as it is there. Its jobs and its models come
one after the other, so that nothing else is timed beside them; the other machines go on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from tunegrad.errors import CandidateCrashed, OutOfResources
from tunegrad.ir.graph import ConstData, Node
from tunegrad.ir.kernel import Kernel
from tunegrad.runtime import Argument
from tunegrad.trial import Properties
from tunegrad.tuning.interrupt import Interrupt
from tunegrad.tuning.models import Compiled, Turns, WholeModel

from .dispatch import Dispatcher, Job, JobLost
from .host import Missing, ModelRef, Packed, Part, Run, Source, packed
from .work import Call, Failed

_Pair = tuple[list[float], list[float]]
"""Samples of two models, in seconds."""

_TRIES = 2
"""Times that machines may be lost over one call: the first is put down to the machine."""

_CALL_S = 1800.0
"""A machine that says nothing for so long counts as hung.

What compiling, evaluating and models may take is bounded on the machine, by deadlines of its own;
this bounds the machine itself. Of one that is dead Ray tells, within a minute.
"""

_SUPPLIES = 8
"""Number of times that a call may say that parts are missing.

A plan, the graph that went to make room for it, the constants of both: three times. And once more
on a machine that takes the place of one that was lost.
"""

_PUT_BYTES = 16 << 20
"""Of constants in one call: a cluster of one machine has 100 MB for what is on its way."""

_KEPT = 64
"""Plans and graphs whose packed form is kept: packing one of ResNet-18 takes 1 to 3 ms."""


class FleetBench:
    """``ModelBench`` on one machine of a fleet, by ``dispatcher``."""

    def __init__(self, dispatcher: Dispatcher, interrupt: Interrupt | None = None) -> None:
        self._dispatcher, self._interrupt = dispatcher, interrupt or Interrupt()
        self._machine = ""
        self._compiled: dict[tuple[str, str], Compiled] = {}
        self._packed: OrderedDict[int, tuple[Source, Packed]] = OrderedDict()

    def expect(self, models: Sequence[tuple[tuple[Node, ...], tuple[Argument, ...]]]) -> None:
        parts = [(self._pack(graph), inputs) for graph, inputs in models]
        named = [(part.name, inputs) for part, inputs in parts]
        self._supplied("expect", (named,), [part for part, _ in parts])

    def compile(self, pairs: Sequence[tuple[Kernel, str]]) -> list[Compiled]:
        """See ``ModelBench``. What a machine said once is not asked again."""
        asked = {(k.key, text): (k, text) for k, text in pairs}
        fresh = {at: pair for at, pair in asked.items() if at not in self._compiled}
        if fresh:
            made = self._call("compile", (list(fresh.values()),))
            self._compiled.update(zip(fresh, made, strict=True))
        return [self._compiled[k.key, text] for k, text in pairs]

    def profiled(self, models: Sequence[WholeModel], rounds: int) -> list[Turns]:
        found: list[Turns] = self._run("profiled", models, rounds)
        return found

    def paired(self, a: WholeModel, b: WholeModel, budget_s: float) -> _Pair:
        found: _Pair = self._run("paired", [a, b], budget_s)
        return found

    def latencies(self, model: WholeModel, samples: int) -> list[float]:
        found: list[float] = self._run("latencies", [model], samples)
        return found

    def check(self, models: Sequence[WholeModel]) -> None:
        self._run("check", models)

    def judged(self, model: WholeModel) -> bool:
        found: bool = self._run("judged", [model])
        return found

    def state(self) -> Properties:
        """Nothing: a fleet's devices are not of one state. Rows of trials have each one's own."""
        return ()

    def renew(self) -> None:
        self._call("renew", ())

    # ---- calls

    def _run(self, method: Run, models: Sequence[WholeModel], *arguments: object) -> Any:
        """Run a method of the machine's bench. Raises CandidateFailure of its kind there."""
        parts = [(self._pack(m.graph), self._pack(m.plan)) for m in models]
        refs = [
            ModelRef(m.name, graph.name, plan.name, m.inputs, m.actions)
            for m, (graph, plan) in zip(models, parts, strict=True)
        ]
        return self._supplied("run", (method, refs, arguments), list(chain.from_iterable(parts)))

    def _supplied(self, method: str, arguments: tuple[Any, ...], parts: Sequence[Packed]) -> Any:
        """The answer to a call, after what it lacked was sent."""
        constants = {digest: c for p in parts for digest, c in p.constants.items()}
        for _ in range(_SUPPLIES):
            found = self._call(method, arguments)
            if not isinstance(found, Missing):
                return found
            plans = {p.name: p.part for p in parts if p.name in found.names}
            for some in _shares(plans, [c for d, c in constants.items() if d in found.names]):
                self._call("put", some)
        needed = sum(c.array.nbytes for c in constants.values())
        raise OutOfResources(f"{self._machine}: it can not keep {needed} bytes of constants")

    def _call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """The answer of the models' machine, or of another one where it is gone."""
        losses: list[str] = []
        while (tries := _TRIES - len(losses)) > 0:
            with self._interrupt.breakable():
                self._machine = self._dispatcher.station(self._machine)
                asked = (method, *arguments)
                call = Call("models", asked, limit_s=_CALL_S, on=self._machine, tries=tries)
                job = self._ended(call)
            if job.answer is None:
                losses += job.losses
                continue
            found = job.answer.value
            if isinstance(found, Failed):
                raise found.kind(found.error)
            return found
        raise CandidateCrashed(f"{method}: machines were lost over it: {'; '.join(losses)}")

    def _ended(self, call: Call) -> Job:
        """A call that was answered, or lost. Left by an interrupt, its machine starts anew."""
        job = self._dispatcher.submit(call)
        try:
            with suppress(JobLost):
                self._dispatcher.answer(job)
        except KeyboardInterrupt:
            self._dispatcher.drop(job)
            self._dispatcher.restart(call.on)
            raise
        return job

    def _pack(self, source: Source) -> Packed:
        """The packed form of a plan or a graph; of the last few it is kept."""
        at = id(source)
        if at not in self._packed:
            self._packed[at] = source, packed(source)
            while len(self._packed) > _KEPT:
                self._packed.popitem(last=False)
        self._packed.move_to_end(at)
        return self._packed[at][1]


def _shares(
    parts: Mapping[str, Part], constants: Sequence[ConstData]
) -> Iterator[tuple[Mapping[str, Part], Sequence[ConstData]]]:
    """Arguments of ``put``: parts, then constants, so many bytes at a time or a larger one."""
    if parts:
        yield parts, ()
    share: list[ConstData] = []
    for c in constants:
        if share and sum(s.array.nbytes for s in share) + c.array.nbytes > _PUT_BYTES:
            yield {}, share
            share = []
        share.append(c)
    if share:
        yield {}, share
