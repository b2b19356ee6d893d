"""The work of the model worker: whole models bound to memory, their outputs, and their times in
turns.

    put      plans, arrays of constants and code arrive once each, by digest
    check    both input sets into poisoned memory: the outputs; and seconds of a run
    turns, pairs, runs    times; then the outputs once more, and every guard zone

Calls name models by what they are made of. One that lacks something answers with what is
``missing`` and does nothing.
"""

from __future__ import annotations

import hashlib
import pickle
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.devices import Code as Loaded
from tunegrad.devices import CompiledCandidate, Device, Parameter
from tunegrad.devices.verifying import draw
from tunegrad.errors import CompileFailure, InternalError
from tunegrad.ir.dtypes import BF16, DTYPES, DType
from tunegrad.ir.fusion import LaunchPlan
from tunegrad.ir.interpret.numeric import to_compute, to_memory
from tunegrad.runtime import Argument, Code, Constants, Runner


def turn_order(count: int, turn: int) -> list[int]:
    """The order of ``count`` contestants in a turn: the start goes round, then the direction
    changes.

        turn 0:  A  B  C
        turn 1:  B  C  A
        turn 2:  C  A  B
        turn 3:  C  B  A  ...

    Each has every place equally often, and follows itself equally often: one that does finds its
    constants in the caches. In turns that only change their direction the first and the last one
    always do, and seemed two to four per cent faster.
    """
    order = [(i + turn) % count for i in range(count)]
    return order if turn // count % 2 == 0 else order[::-1]


SETS = 2

_OCTAVES = 4


def drawn(inputs: Sequence[Argument], number: int) -> dict[str, NDArray[Any]]:
    """The arrays of set ``number`` by name, in memory form (bf16 as uint16).

    0   as drawn for timing: standard normal floats, small integers, indices in range; integers of
        32 bits and more that nothing is known of are 0 or 1: they are tokens, positions and masks,
        and ``(1 - mask) * least`` overflows for a mask of 2
    1   a quarter zeros, the others from 2^-4 to 2^4 times a normal draw: cancellation
    """
    rng = np.random.default_rng(number)
    found = {
        a.name: draw(Parameter(a.name, a.dtype.name, prod(a.shape), "in", _bound(a)), rng)
        for a in inputs
    }
    if number:
        found = {a.name: _uneven(found[a.name], a.dtype, rng) for a in inputs}
    return {a.name: a.as_drawn(found[a.name]).reshape(a.shape) for a in inputs}


def _bound(a: Argument) -> int:
    """Upper bound of the elements of an input, from 0 on; 0: of either sign."""
    return a.bound or (2 if a.dtype.is_int and a.dtype.bits >= 32 else 0)


def _uneven(values: NDArray[Any], dtype: DType, rng: np.random.Generator) -> NDArray[Any]:
    """Zeros among values of several magnitudes, signs as they were; integers keep their range."""
    zero = rng.random(values.size) < 0.25
    if dtype.is_float:
        scale = np.exp2(rng.integers(-_OCTAVES, _OCTAVES + 1, values.size)).astype(np.float32)
        wide = to_compute(values, dtype) * scale
        values = to_memory(wide, dtype) if dtype == BF16 else wide.astype(values.dtype)
    return np.asarray(np.where(zero, np.zeros((), values.dtype), values))


RUNS = 3
"""Runs of a model in its turn; the first one only warms the caches."""

LEAST_TURNS, MOST_TURNS = 3, 100
"""Of two models that are compared; more do not narrow the interval on a machine that drifts."""

MOST_BYTES = 4 << 30
"""Of the memory of all models that are kept, of constants and packs above all."""

_MOST_CODE = 1024

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Order:
    """A model by its parts: its plan's digest, each kernel's program by key, its inputs."""

    plan: str
    programs: tuple[tuple[str, str], ...]
    inputs: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a call; plain data. ``missing`` are names of parts that have to be ``put``
    first.

    ``turns``: seconds by model, turn and launch (or run). ``outputs``: bytes by model, of every
    output, of one input set after the other. ``fault`` says what went wrong with model ``at``, and
    ``memory`` whether it was too little.
    """

    missing: tuple[str, ...] = ()
    turns: tuple[tuple[tuple[float, ...], ...], ...] = ()
    outputs: tuple[tuple[bytes, ...], ...] = ()
    fault: str = ""
    at: int = 0
    memory: bool = False


def plan_blob(plan: LaunchPlan) -> tuple[str, bytes]:
    """A plan without the arrays of its constants, as bytes for a worker, and their digest."""
    empty = np.zeros(0, np.uint8)
    buffers = tuple(
        b if b.data is None else replace(b, data=replace(b.data, array=empty)) for b in plan.buffers
    )
    blob = pickle.dumps(replace(plan, buffers=buffers))
    return hashlib.blake2b(blob, digest_size=16).hexdigest(), blob


@dataclass(frozen=True, slots=True)
class _Held:
    """A model that is bound to memory."""

    runner: Runner
    sets: tuple[dict[str, Array], ...]

    def seconds(self, samples: int) -> tuple[float, ...]:
        return self.runner.time(self.sets[0], samples)[0]

    def launches_s(self, samples: int) -> tuple[float, ...]:
        return self.runner.time(self.sets[0], samples, each=True)[1]

    def outputs(self, sets: Iterable[int]) -> tuple[bytes, ...]:
        """The outputs' bytes; every byte of them, and of what is between, was poison before."""
        return tuple(a.tobytes() for i in sets for a in self.runner.run_poisoned(self.sets[i]))

    def over_fault(self, outputs: Sequence[bytes]) -> str:
        """The fault of a run on the first set whose new values replace inputs; '' where it gives
        the bytes that the model has given beside them.
        """
        if not self.runner.schedule.over:
            return ""
        found = self.runner.run({name: a.copy() for name, a in self.sets[0].items()})
        same = all(a.tobytes() == b for a, b in zip(found, outputs, strict=False))
        return "" if same else "in the memory of its inputs: its outputs are other bits"


class _Shelf:
    """All that the worker keeps: parts by name, and models, the least recently used go first.

    Mutable.
    """

    def __init__(self, device: Device) -> None:
        self._engine = device.open(pin=True)
        self._models: OrderedDict[Order, _Held] = OrderedDict()
        self._code: dict[str, tuple[CompiledCandidate, Loaded]] = {}
        self._plans: dict[str, LaunchPlan] = {}
        self._arrays: dict[str, Array] = {}

    def _clear(self) -> None:
        self._models.clear()
        for _, code in self._code.values():
            code.close()
        for parts in (self._code, self._plans, self._arrays):
            parts.clear()

    def put(
        self,
        plans: Mapping[str, bytes],
        arrays: Mapping[str, Array],
        code: Mapping[str, CompiledCandidate],
    ) -> str:
        """Keep parts; what has grown too large is dropped first.

        Says which code can not be linked, or nothing.
        """
        if (
            len(self._code) > _MOST_CODE
            or sum(a.nbytes for a in self._arrays.values()) > MOST_BYTES
        ):
            self._clear()
        self._arrays.update(arrays)
        self._plans.update((name, pickle.loads(blob)) for name, blob in plans.items())  # noqa: S301  # the session's
        for name, compiled in code.items():
            try:
                self._code[name] = compiled, self._engine.load(compiled, compiled.image)
            except CompileFailure as error:
                return str(error)
        return ""

    def missing(self, orders: Sequence[Order]) -> tuple[str, ...]:
        """Names of parts that these models need and that are not here."""
        plans = [o.plan for o in orders if o not in self._models]
        code = [program for o in orders if o not in self._models for _, program in o.programs]
        arrays = [
            b.data.digest
            for p in plans
            if p in self._plans
            for b in self._plans[p].buffers
            if b.data
        ]
        wanted = dict.fromkeys([*plans, *code, *arrays])
        return tuple(
            w
            for w in wanted
            if w not in self._plans and w not in self._code and w not in self._arrays
        )

    def held(self, orders: Sequence[Order]) -> list[_Held]:
        """The models, bound; others give way where all of them need too much memory.

        Raises MemoryError.
        """
        for order in orders:
            if order not in self._models:
                self._models[order] = self._bound(order)
            self._models.move_to_end(order)
            for old in [o for o in self._models if o not in orders]:
                if sum(h.runner.memory_bytes for h in self._models.values()) <= MOST_BYTES:
                    break
                del self._models[old]
        return [self._models[o] for o in orders]

    def _bound(self, order: Order) -> _Held:
        plan = self._plans[order.plan]
        buffers = tuple(
            b
            if b.data is None
            else replace(b, data=replace(b.data, array=self._arrays[b.data.digest]))
            for b in plan.buffers
        )
        constants = Constants(self._engine, untouched=True)
        codes = {key: self._linked(program) for key, program in order.programs}
        runner = Runner(replace(plan, buffers=buffers), codes, self._engine, constants)
        return _Held(runner, _sets(order.inputs))

    def _linked(self, program: str) -> Code:
        compiled, loaded = self._code[program]
        names = tuple(p.name for p in compiled.io.params)
        return Code(loaded, names, compiled.io.packs, compiled.scratch_bytes, compiled.io.unread)


@lru_cache(maxsize=2)  # a step's are its state: each model would draw and hold it
def _sets(inputs: tuple[Argument, ...]) -> tuple[dict[str, Array], ...]:
    return tuple(drawn(inputs, i) for i in range(SETS))


_shelf: _Shelf | None = None


def start_models(device: Device) -> None:
    """Initialise the model worker: it opens the device, imports, and is confined."""
    global _shelf  # noqa: PLW0603  # the one thing this process keeps
    _shelf = _Shelf(device)
    for number in range(SETS):
        drawn([Argument(name, (2,), dtype) for name, dtype in DTYPES.items()], number)


def put(
    plans: Mapping[str, bytes], arrays: Mapping[str, Array], code: Mapping[str, CompiledCandidate]
) -> Answer:
    """Keep parts of models by name."""
    return Answer(fault=_kept().put(plans, arrays, code))


def check(orders: Sequence[Order]) -> Answer:
    """The outputs of every model on every input set, and the seconds of two runs each."""

    def checked(models: Sequence[_Held]) -> Answer:
        outputs = tuple(m.outputs(range(SETS)) for m in models)
        return Answer(turns=tuple((m.seconds(2),) for m in models), outputs=outputs)

    return _asked(orders, checked)


def turns(orders: Sequence[Order], rounds: int) -> Answer:
    """Seconds of every launch of models that run in turns, the faster of two runs."""

    def timed(models: Sequence[_Held]) -> Answer:
        found: list[list[tuple[float, ...]]] = [[] for _ in models]
        for turn in range(rounds):
            for i in turn_order(len(models), turn):
                models[i].seconds(1)
                took_s = [models[i].launches_s(1) for _ in range(RUNS - 1)]
                found[i].append(tuple(map(min, *took_s)))
        return Answer(turns=tuple(map(tuple, found)))

    return _asked(orders, timed)


def pairs(orders: Sequence[Order], rounds: int, budget_s: float) -> Answer:
    """Seconds of two runs of each model a round, in turns; a turn's first run only warms the
    caches. Rounds end, after ``LEAST_TURNS``, with the budget: on a busy machine they take long.
    """

    def timed(models: Sequence[_Held]) -> Answer:
        found: list[list[tuple[float, ...]]] = [[] for _ in models]
        end_s = time.perf_counter() + budget_s
        for turn in range(rounds):
            if turn >= LEAST_TURNS and time.perf_counter() > end_s:
                break
            for i in range(len(models)) if turn % 2 == 0 else reversed(range(len(models))):
                found[i].append(models[i].seconds(RUNS)[1:])
        return Answer(turns=tuple(map(tuple, found)))

    return _asked(orders, timed)


def runs(orders: Sequence[Order], samples: int) -> Answer:
    """Seconds of runs of each model, one after the other; the first one only warms the caches."""
    return _asked(
        orders, lambda models: Answer(turns=tuple((m.seconds(samples + 1)[1:],) for m in models))
    )


def _asked(orders: Sequence[Order], work: Callable[[Sequence[_Held]], Answer]) -> Answer:
    """The answer to a call; after it outputs on the first set (unless given), and damage."""
    shelf = _kept()
    if missing := shelf.missing(orders):
        return Answer(missing=missing)
    try:
        models = shelf.held(orders)
        answer = work(models)
        if not answer.outputs:
            answer = replace(answer, outputs=tuple(m.outputs([0]) for m in models))
    except MemoryError as error:
        return Answer(fault=f"memory: {error}", memory=True)
    for at, model in enumerate(models):
        if damage := model.over_fault(answer.outputs[at]) or model.runner.damage():
            return Answer(fault=damage, at=at)
    return answer


def _kept() -> _Shelf:
    if _shelf is None:
        raise InternalError("model worker: called before it was started")
    return _shelf
