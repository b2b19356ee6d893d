"""The bench of whole models: a worker process that can be killed, which gets code as bytes and
answers with plain data.

    compile        in the compile workers, all cores
    every model    run on two sets of inputs, and its outputs compared, before a sample of it counts
    a comparison   one call with a deadline; outputs and guard zones once more after it

A worker that dies or hangs costs the comparison: the call raises a CandidateFailure, the next one
gets a new worker.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from tunegrad.compiling import Payload
from tunegrad.devices import (
    Candidate,
    CompiledCandidate,
    Device,
    Died,
    IsolatedWorker,
    Limits,
    TimedOut,
)
from tunegrad.errors import (
    CandidateCrashed,
    CandidateTimeout,
    CompileFailure,
    OutOfResources,
    WrongResult,
)
from tunegrad.ir.fusion import LaunchPlan
from tunegrad.ir.graph import Node
from tunegrad.ir.kernel import Kernel
from tunegrad.runtime import Argument
from tunegrad.trial import Measured, Properties
from tunegrad.tuning.interrupt import Interrupt

from . import work
from .expected import Evaluation, Judge
from .making import Compiled, WholeModel
from .work import LEAST_TURNS, MOST_TURNS, RUNS, SETS, Answer, Order

Turns = tuple[tuple[float, ...], ...]
"""Seconds of every launch of a model, turn by turn."""

_LEAST_S = 10.0
"""Seconds that any runs may take: as much as the first run of a candidate. With two, runs of
microseconds were given up where other processes used all CPUs.
"""

_CHECK_RUNS = SETS + 3

_FACTOR = 50.0
"""Later runs may take so many times what they took before, on top."""

_BYTES_PER_S = 50e6
"""Speed at which constants are sent and packed, at least."""

_KEPT_BYTES = 256 << 20
"""Of code that is kept for models to come."""

_KEPT_PLANS = 32

_MEMORY_BYTES = 3 * work.MOST_BYTES
"""Address space of the worker: models, parts of models to come, and what is on its way."""

_REPLY_BYTES = 16 << 20
"""The most bytes of a reply beside the outputs of its models, above all times."""


class ModelBench(Protocol):
    """Runs whole models. Those methods that run some raise CandidateFailure where one can not run.

    WrongResult: its outputs are not what they must be, or it wrote where it must not; nothing of it
    was timed, or counts. CandidateCrashed, CandidateTimeout: the worker ended. Of several models it
    does not say which one did it.
    """

    def expect(self, models: Sequence[tuple[tuple[Node, ...], tuple[Argument, ...]]]) -> None:
        """Begin to evaluate graphs on their inputs, for models to be compared, meanwhile."""

    def compile(self, pairs: Sequence[tuple[Kernel, str]]) -> list[Compiled]:
        """Compile kernels under action texts, on all cores; what is there is not compiled again."""

    def profiled(self, models: Sequence[WholeModel], rounds: int) -> list[Turns]:
        """Seconds of every launch, by model and turn, of models that run in turns."""

    def paired(
        self, a: WholeModel, b: WholeModel, budget_s: float
    ) -> tuple[list[float], list[float]]:
        """Seconds of runs of two models in turns, for about so long."""

    def latencies(self, model: WholeModel, samples: int) -> list[float]:
        """Seconds of runs of one model with warm caches."""

    def check(self, models: Sequence[WholeModel]) -> None:
        """Raise WrongResult unless every model's outputs are right, on all sets of inputs."""

    def judged(self, model: WholeModel) -> bool:
        """True when an independent evaluation says what the model's outputs must be."""

    def state(self) -> Properties:
        """Clocks, power and temperature of the device as they are now (``Device.state``)."""

    def renew(self) -> None:
        """End the worker; the next call gets a fresh one."""


class LocalBench:
    """A bench on this machine.

    ``compiler`` compiles a batch on all cores; ``close`` ends the worker.

    ``evaluate`` begins to compute what graphs' outputs must be. Calls wait for what compiles first.
    """

    def __init__(
        self,
        device: Device,
        compiler: Callable[[Sequence[Candidate]], Sequence[CompiledCandidate | Measured]],
        evaluate: Callable[[Sequence[tuple[tuple[Node, ...], tuple[Argument, ...]]]], Evaluation],
        limits: Limits,
        interrupt: Interrupt | None = None,
    ) -> None:
        self._device, self._compiler, self._interrupt = device, compiler, interrupt or Interrupt()
        confinement = replace(device.confinement, threads=True, memory_bytes=_MEMORY_BYTES)
        self._worker = IsolatedWorker(
            work.start_models, (device,), limits.worker_start_s, confinement
        )
        self._code: OrderedDict[tuple[str, str], CompiledCandidate | str] = OrderedDict()
        self._plans: OrderedDict[int, tuple[LaunchPlan, str, bytes]] = OrderedDict()
        self._took_s: dict[Order, float] = {}
        self._graph_s: dict[tuple[Node, ...], float] = {}
        self._evaluate, self._judges = evaluate, dict[tuple[Node, ...], Judge | None]()
        self._begun: Evaluation | None = None

    def expect(self, models: Sequence[tuple[tuple[Node, ...], tuple[Argument, ...]]]) -> None:
        fresh = [(graph, inputs) for graph, inputs in models if graph not in self._judges]
        if fresh:
            with self._interrupt.breakable():
                self._begun = self._evaluate(fresh)

    # ---- code

    def compile(self, pairs: Sequence[tuple[Kernel, str]]) -> list[Compiled]:
        fresh = {(k.key, text): (k, text) for k, text in pairs if (k.key, text) not in self._code}
        if fresh:
            candidates = [
                Candidate(k.key, Payload(k, text, self._device)) for k, text in fresh.values()
            ]
            with self._interrupt.breakable():
                made = self._compiler(candidates)
            for at, found in zip(fresh, made, strict=True):
                self._code[at] = found.measurement.error if isinstance(found, Measured) else found
        answers = [self._compiled(k.key, text) for k, text in pairs]
        while (
            len(self._code) > len(pairs)
            and sum(_bytes(c) for c in self._code.values()) > _KEPT_BYTES
        ):
            self._code.popitem(last=False)
        return answers

    def _compiled(self, key: str, text: str) -> Compiled:
        found = self._code[key, text]
        self._code.move_to_end((key, text))
        return (
            Compiled(error=found or "it does not compile")
            if isinstance(found, str)
            else Compiled(found.program_hash)
        )

    # ---- models

    def profiled(self, models: Sequence[WholeModel], rounds: int) -> list[Turns]:
        return list(self._timed(models, work.turns, rounds, runs=rounds * RUNS))

    def paired(
        self, a: WholeModel, b: WholeModel, budget_s: float
    ) -> tuple[list[float], list[float]]:
        self.check([a, b])
        once_s = self._took_s[self._order(a)] + self._took_s[self._order(b)]
        rounds = max(LEAST_TURNS, min(MOST_TURNS, int(budget_s / max(4 * once_s, 1e-6))))
        first, second = self._timed([a, b], work.pairs, rounds, budget_s, runs=rounds * RUNS)
        return [s for turn in first for s in turn], [s for turn in second for s in turn]

    def latencies(self, model: WholeModel, samples: int) -> list[float]:
        ((seconds,),) = self._timed([model], work.runs, samples, runs=samples + 1)
        return list(seconds)

    def check(self, models: Sequence[WholeModel]) -> None:
        for model in models:
            order = self._order(model)
            if order in self._took_s:
                continue
            judge = self._judge(model)
            known_s = self._graph_s.get(model.graph)
            limit_s = _LEAST_S + _FACTOR * _CHECK_RUNS * (known_s or 0.0)
            answer = self._call(
                [model], work.check, limit_s=limit_s + model.constant_bytes / _BYTES_PER_S
            )
            for number in range(SETS):
                self._compare(judge, answer.outputs[0], number, len(model.plan.outputs))
            self._took_s[order] = min(answer.turns[0][0])
            if model.graph:
                self._graph_s[model.graph] = self._took_s[order]

    def state(self) -> Properties:
        return self._device.state()

    def renew(self) -> None:
        self._worker.close()
        self._took_s.clear()

    def close(self) -> None:
        """End the worker, and wait until it is gone."""
        self._worker.close()

    def judged(self, model: WholeModel) -> bool:
        return self._judge(model) is not None

    def _timed(
        self, models: Sequence[WholeModel], function: Any, *arguments: object, runs: int
    ) -> tuple[Turns, ...]:
        """Times of models that were checked before, and once more after it."""
        self.check(models)
        took_s = sum(self._took_s[self._order(m)] for m in models)
        packing_s = sum(m.constant_bytes for m in models) / _BYTES_PER_S
        answer = self._call(
            models, function, *arguments, limit_s=_LEAST_S + packing_s + _FACTOR * runs * took_s
        )
        for model, outputs in zip(models, answer.outputs, strict=True):
            self._compare(self._judge(model), outputs, 0, len(model.plan.outputs))
        return answer.turns

    def _judge(self, model: WholeModel) -> Judge | None:
        if model.graph and model.graph not in self._judges:
            begun = self._begun
            with self._interrupt.breakable():
                if begun is None or begun.calls.lost or model.graph not in begun.graphs:
                    begun = self._evaluate([(model.graph, model.inputs)])
                found = begun.judges()
            self._judges.update(found)
        return self._judges.get(model.graph)

    def _compare(
        self, judge: Judge | None, outputs: Sequence[bytes], number: int, count: int
    ) -> None:
        if judge is not None:
            judge.check(outputs[number * count : (number + 1) * count], number)

    # ---- the worker

    def _call(
        self, models: Sequence[WholeModel], function: Any, *arguments: object, limit_s: float
    ) -> Answer:
        orders = [self._order(m) for m in models]
        for _ in range(4):
            answer = self._answer(
                function,
                orders,
                *arguments,
                limit_s=limit_s,
                reply_bytes=_REPLY_BYTES + SETS * sum(m.output_bytes for m in models),
            )
            if not answer.missing:
                if answer.fault:
                    self.renew()
                    raise (
                        OutOfResources(answer.fault) if answer.memory else WrongResult(answer.fault)
                    )
                return answer
            self._supply(models, frozenset(answer.missing))
        raise OutOfResources(f"{models[0].name}: the worker can not keep its parts, constants of "
                             f"{models[0].constant_bytes} bytes among them")  # fmt: skip

    def _supply(self, models: Sequence[WholeModel], missing: frozenset[str]) -> None:
        plans = {
            name: blob for m in models for name, blob in [self._plan(m.plan)] if name in missing
        }
        arrays = {
            b.data.digest: b.data.array
            for m in models
            for b in m.plan.buffers
            if b.data and b.data.digest in missing
        }
        code = {
            c.program_hash: c
            for m in models
            for _, c in self._codes(m)
            if c.program_hash in missing
        }
        limit_s = _LEAST_S + sum(a.nbytes for a in arrays.values()) / _BYTES_PER_S
        sent = self._answer(
            work.put, plans, arrays, code, limit_s=limit_s, reply_bytes=_REPLY_BYTES
        )
        if sent.fault:
            raise CompileFailure(sent.fault)

    def _answer(
        self, function: Callable[..., Answer], *arguments: object, limit_s: float, reply_bytes: int
    ) -> Answer:
        try:
            with self._interrupt.breakable():
                ending = self._worker.call(
                    function,
                    *arguments,
                    limit_s=limit_s,
                    reply_type=Answer,
                    reply_bytes=reply_bytes,
                )
        except BaseException:
            self.renew()
            raise
        if isinstance(ending, TimedOut):
            self._took_s.clear()
            raise CandidateTimeout(f"over {limit_s:.3g} s")
        if isinstance(ending, Died):
            self._took_s.clear()
            raise CandidateCrashed(f"the worker ended with {ending.text}")
        answer: Answer = ending.value
        if answer.turns and not all(
            s >= 0.0 for turns in answer.turns for turn in turns for s in turn
        ):
            raise CandidateCrashed("the worker answers with times that are none")
        return answer

    def _order(self, model: WholeModel) -> Order:
        programs = tuple((key, compiled.program_hash) for key, compiled in self._codes(model))
        return Order(self._plan(model.plan)[0], programs, model.inputs)

    def _codes(self, model: WholeModel) -> list[tuple[str, CompiledCandidate]]:
        """The code of every kernel; what was dropped since the model was made is compiled again."""
        kernels = model.plan.kernels()
        pairs = [(kernels[key][0], text) for key, text in model.actions.items() if key in kernels]
        if any((k.key, text) not in self._code for k, text in pairs):
            self.compile(pairs)
        found = []
        for kernel, text in pairs:
            compiled = self._code[kernel.key, text]
            if isinstance(compiled, str):
                raise CompileFailure(f"kernel {kernel.name}: {text!r}: {compiled}")
            found.append((kernel.key, compiled))
        return found

    def _plan(self, plan: LaunchPlan) -> tuple[str, bytes]:
        """The digest of a plan, and its bytes; of the last few it is known."""
        if id(plan) not in self._plans:
            self._plans[id(plan)] = plan, *work.plan_blob(plan)
            while len(self._plans) > _KEPT_PLANS:
                self._plans.popitem(last=False)
        _, digest, blob = self._plans[id(plan)]
        return digest, blob


def per_launch(plan: LaunchPlan, turns: Turns) -> dict[str, list[float]]:
    """Seconds of the mean launch of each kernel, by key, turn by turn."""
    places: dict[str, list[int]] = {}
    for i, launch in enumerate(plan.launches):
        places.setdefault(launch.kernel.key, []).append(i)
    return {key: [sum(t[i] for i in at) / len(at) for t in turns] for key, at in places.items()}


def _bytes(code: CompiledCandidate | str) -> int:
    return len(code) if isinstance(code, str) else len(code.image)
