"""Expected outputs of a model: its graph evaluated by numpy in float64, and how far off a right
model may be.

    graph  -->  numpy, its own dtypes  \\
    graph  -->  numpy, all floats f64   >  a killable process  -->  Expected: values, and
    inputs, both sets                  /                            their tolerance

No fusion, index algebra, lowering, renderer or compiler has a part in it. docs/VERIFYING.md derives
the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, prod, sqrt
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tunegrad.devices import Ending, Finished
from tunegrad.errors import WrongResult
from tunegrad.ir.dtypes import DType
from tunegrad.ir.expr import Op
from tunegrad.ir.graph import GraphOp, Node
from tunegrad.ir.interpret.evaluate import FlatNode, evaluate, flat, graph_in_float64, unflat
from tunegrad.ir.interpret.kernel import one_blas_thread
from tunegrad.ir.interpret.numeric import to_compute
from tunegrad.runtime import Argument

from .work import SETS, drawn

Array = NDArray[Any]

EVALUATE_S = 120.0
"""Seconds that evaluating a model may take: ResNet-50 at batch 1 takes two, a step of ResNet-18 at
batch 32 ten, of processor time.
"""

_SPREAD, _WINOGRAD_SPREAD = 16.0, 64.0
"""Factor by which a right model may be farther off than numpy; the second of a graph with windows,
which may be convolutions.

Measured: mlp 0.9 times as far, the encoder 4.0, single convolutions 5.3, as F(4x4) 35 (512
channels), ResNet-18 0.9, as F(4x4) 1.4. A change of one element of one tile in these is thousands
of times that.
"""

_ROUNDED = 4.0
"""Factor by which a right model may be farther from the graph's values than roundings to 16 bits
put these from what they would be without.

Two models whose roundings have nothing to do with each other are sqrt(2) times as far from each
other as one of them is from the unrounded one; the rest is for the largest of a few.
"""

_SHAKEN, _SHAKES = 512.0, 2
"""Units that each sum of a graph with jumps is moved by, of its root mean square, and how often the
graph is evaluated so.

Sums of Winograd's tiles are up to 64 units off; with 8 times that, a draw meets the jumps that a
right model may meet. Measured, a step of ResNet-18 at batch 32: gradients of a right model were
3e-3 off by relus that it passes and f64 does not, 1.1 times as far as with 256 units.
"""

_FLIPS = 1e-3
"""The part of the integers and truths behind floats that a rounding may tip over."""

_UNIT = {"f64": 2.0**-53, "f32": 2.0**-24, "tf32": 2.0**-11, "f16": 2.0**-11, "bf16": 2.0**-8}
"""The relative error of one rounding."""


@dataclass(frozen=True, slots=True)
class ToleranceTerms:
    """The terms of a tolerance: terms of the longest sum, whether there are windows, and floats at
    all; the unit of the coarsest rounding to 16 bits or tf32, 0 without any; and whether something
    jumps where a sum changes a little.
    """

    terms: int = 1
    windows: bool = False
    floats: bool = True
    rounding: float = 0.0
    jumps: bool = False

    @staticmethod
    def of(nodes: list[FlatNode]) -> ToleranceTerms:
        """Of a graph as ``flat`` makes a list of it."""
        sizes = [
            (prod(nodes[srcs[0]][3]), prod(shape))
            for op, srcs, _, shape, _ in nodes
            if op is GraphOp.REDUCE
        ]
        terms = max((terms // size for terms, size in sizes if size), default=1)
        windows = any(op is GraphOp.WINDOW for op, *_ in nodes)
        casts = [
            dtype.name
            for op, srcs, _, _, dtype in nodes
            if op is GraphOp.CAST and dtype.is_float and nodes[srcs[0]][4].bits > dtype.bits
        ]
        casts += ["tf32" for op, _, arg, *_ in nodes if op is GraphOp.MAP and arg is Op.TF32]
        return ToleranceTerms(
            terms,
            windows,
            any(dtype.is_float or dtype.is_pair for *_, dtype in nodes),
            max((_UNIT[name] for name in casts if name in ("f16", "bf16", "tf32")), default=0.0),
            _jumps(nodes),
        )


def _jumps(nodes: list[FlatNode]) -> bool:
    """True for a graph in which sums of floats are compared or made whole numbers, as a gradient of
    relu compares; sums of products of bytes may be on floats.
    """
    sums: list[bool] = []
    for op, srcs, arg, _, dtype in nodes:
        behind = any(sums[s] for s in srcs)
        of_float = bool(srcs) and nodes[srcs[0]][4].is_float
        compared = isinstance(arg, Op) and (arg.compares or arg in (Op.FLOOR, Op.ROUND))
        if behind and of_float and (compared or (op is GraphOp.CAST and not dtype.is_float)):
            return True
        rounds = dtype.is_float or (bool(srcs) and nodes[srcs[0]][2] is Op.DOT4)
        sums.append(behind or (op is GraphOp.REDUCE and rounds))
    return False


@dataclass(frozen=True, slots=True)
class Expected:
    """One output on one set of inputs: values in float64 (or integers), flat, and by how much each
    may differ; ``typical``: the root mean square of the differences, at most.

    Where ``values`` are not finite the model's have to be the same, or not finite either. Of what
    is no float a part of ``flips`` may differ. ``overflowed``: what is finite in float64 and not in
    the graph's own dtypes may be anything; None where nothing is.
    """

    values: Array
    allowed: float
    flips: float = 0.0
    overflowed: Array | None = None
    typical: float = inf

    @staticmethod
    def of(
        wide: Array,
        native: Array,
        dtype: DType,
        facts: ToleranceTerms,
        smooth: Array | None = None,
        moved: tuple[float, float] | None = None,
    ) -> Expected:
        """From the evaluation in float64, and in the graph's own dtypes; ``terms`` of the longest
        sum in the graph.

        Of few outputs numpy's error is sometimes none by chance: what one sum of so many terms is
        off by is allowed.

        ``smooth`` is the evaluation in float64 without roundings to 16 bits, where there are any: a
        right model may round some of its numbers to the other neighbour, and then others that
        depend on these, until it is as far from ``wide`` as that is from ``smooth``. So may numpy.

        ``moved``: how far evaluations of a graph with jumps are off whose sums were moved, at most
        and in the root mean square. A right model may pass other jumps than f64 does, and is then
        as far from it as these are.
        """
        if not dtype.is_float:
            return Expected(
                native.reshape(-1).astype(np.int64), 0.0, _FLIPS if facts.floats else 0.0
            )
        values, other = wide.reshape(-1).astype(np.float64), native.reshape(-1).astype(np.float64)
        with np.errstate(invalid="ignore"):
            error = np.abs(values - other)
        finite = np.isfinite(values) & np.isfinite(error)
        over = np.isfinite(values) & ~np.isfinite(other)
        made = partial(Expected, values, overflowed=over if over.any() else None)
        if not finite.any():
            return made(0.0)
        scale = float(np.sqrt(np.mean(values[finite] ** 2)))
        own = _UNIT[dtype.name] * scale * sqrt(facts.terms)
        spread = _WINOGRAD_SPREAD if facts.windows else _SPREAD
        largest = float(error[finite].max())
        if smooth is None:
            allowed = max(spread * largest, own)
            if moved is None:
                return made(allowed)
            most, typical = (max(allowed, _ROUNDED * off) for off in moved)
            return made(most, typical=typical)
        rounded = np.abs(values - smooth.reshape(-1))[finite]
        least = max(largest, facts.rounding * scale)
        largest = float(rounded[np.isfinite(rounded)].max(initial=least))
        return made(max(_ROUNDED * largest, own))

    def fault(self, got: Array) -> str:
        """Text of the fault of an output; empty where there is none."""
        if got.size != self.values.size:
            return f"{got.size} elements where there must be {self.values.size}"
        if self.values.dtype.kind == "i":
            bad = got.astype(np.int64) != self.values
            if np.count_nonzero(bad) <= self.flips * got.size:
                return ""
        else:
            with np.errstate(invalid="ignore"):
                near = np.abs(got - self.values) <= self.allowed
            bad = ~np.where(np.isfinite(self.values), near, ~np.isfinite(got))
            if self.overflowed is not None:
                bad &= ~self.overflowed
            if not bad.any():
                return self._typical_fault(got)
        at = int(np.argmax(bad))
        return (
            f"[{at}]: got {got[at]:.9g}, expected {self.values[at]:.9g}, tolerance "
            f"{self.allowed:.3g} "
            f"({int(bad.sum())} bad of {got.size})"
        )

    def _typical_fault(self, got: Array) -> str:
        """Text of the fault of an output whose elements are each near enough, but not together."""
        if self.typical == inf:
            return ""
        off = (got - self.values)[np.isfinite(self.values) & np.isfinite(got)]
        found = float(np.sqrt(np.mean(off**2))) if off.size else 0.0
        if found <= self.typical:
            return ""
        return f": root mean square of the differences {found:.3g}, tolerance {self.typical:.3g}"


@dataclass(frozen=True, slots=True)
class Judge:
    """Holds a graph's outputs to what they must be.

    ``sets`` has an ``Expected`` for every output of each set.
    """

    dtypes: tuple[DType, ...]
    sets: tuple[tuple[Expected, ...], ...]

    def check(self, outputs: Sequence[bytes], number: int) -> None:
        """Raise WrongResult unless these are the outputs on input set ``number``, as memory."""
        if len(outputs) != len(self.dtypes):
            raise WrongResult(f"{len(outputs)} outputs where there must be {len(self.dtypes)}")
        for i, (raw, dtype, expected) in enumerate(
            zip(outputs, self.dtypes, self.sets[number], strict=True)
        ):
            if len(raw) % dtype.itemsize:
                raise WrongResult(f"output {i}: {len(raw)} bytes are not {dtype} values")
            if found := expected.fault(_numbers(raw, dtype)):
                raise WrongResult(f"output {i} on input set {number}{found}")


def _numbers(raw: bytes, dtype: DType) -> Array:
    values = np.frombuffer(raw, np.uint8).view(dtype.numpy)
    if dtype.is_bool:
        return values.view(np.uint8).astype(np.int64)
    return to_compute(values, dtype).astype(np.float64 if dtype.is_float else np.int64)


class Begun(Protocol):
    """Calls under way."""

    @property
    def lost(self) -> bool:
        """True once the calls were given up."""

    def wait(self) -> list[Ending]:
        """Their endings, in the order of the calls."""


class Workers(Protocol):
    """Processes that can be killed, and run no candidate."""

    def begin(
        self, function: Callable[..., Any], calls: Sequence[Sequence[object]], limit_s: float
    ) -> Begun:
        """Begin to run a function once per argument list, in parallel."""


Graph = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Graphs that are being evaluated in workers, all sets of inputs of each."""

    graphs: tuple[Graph, ...]
    calls: Begun

    def judges(self) -> dict[Graph, Judge | None]:
        """Judges of each graph's outputs; None where evaluating it takes too long, or too much
        memory, or where most of them overflow.

        Waits.
        """
        endings = self.calls.wait()
        rows = [endings[i : i + SETS] for i in range(0, len(endings), SETS)]
        return {graph: _judge(graph, row) for graph, row in zip(self.graphs, rows, strict=True)}


def expected_of(
    workers: Workers, models: Sequence[tuple[Graph, tuple[Argument, ...]]]
) -> Evaluation:
    """Begin to evaluate graphs on their inputs."""
    calls = [(*flat(graph), inputs, i) for graph, inputs in models for i in range(SETS)]
    return Evaluation(
        tuple(graph for graph, _ in models), workers.begin(evaluated, calls, EVALUATE_S)
    )


def _judge(graph: Graph, endings: Sequence[Ending]) -> Judge | None:
    sets = [e.value for e in endings if isinstance(e, Finished) and e.value is not None]
    return Judge(tuple(n.dtype for n in graph), tuple(sets)) if len(sets) == SETS else None


def evaluated(
    nodes: list[FlatNode], outputs: tuple[int, ...], inputs: tuple[Argument, ...], number: int
) -> tuple[Expected, ...] | None:
    """Expected values of every output on one set of inputs; None where there is too little memory,
    or where the graph overflows on them in its own dtypes, so that there is nothing to compare.
    """
    one_blas_thread()
    graph, facts = unflat(nodes, outputs), ToleranceTerms.of(nodes)
    arrays = drawn(inputs, number)
    try:
        native = [
            to_compute(a, n.dtype) for a, n in zip(evaluate(graph, arrays), graph, strict=True)
        ]
        wide_graph = graph_in_float64(graph)
        wide_inputs = arrays
        if wide_graph is not graph:
            dtypes = {a.name: a.dtype for a in inputs}
            wide_inputs = {
                name: to_compute(x, dtypes[name]).astype(np.float64) if dtypes[name].is_float else x
                for name, x in arrays.items()
            }
        wide = evaluate(wide_graph, wide_inputs)
        smooth: Sequence[Array | None] = [None] * len(graph)
        if facts.rounding:
            smooth = evaluate(graph_in_float64(graph, rounded=False), wide_inputs)
        moved: list[tuple[float, float] | None] = [None] * len(graph)
        for shake in range(_SHAKES if facts.jumps and not facts.rounding else 0):
            rng = np.random.default_rng((number, shake))
            found = evaluate(graph, arrays, partial(_moved, rng))
            for i, (n, x, w) in enumerate(zip(graph, found, wide, strict=True)):
                if n.dtype.is_float:
                    moved[i] = _farther(moved[i], to_compute(x, n.dtype), w)
    except MemoryError:
        return None
    if any(_overflows(x, w) for x, w in zip(native, wide, strict=True)):
        return None
    return tuple(
        Expected.of(to_compute(w, wn.dtype), x, n.dtype, facts, s, off)
        for w, wn, x, n, s, off in zip(wide, wide_graph, native, graph, smooth, moved, strict=True)
    )


def _farther(before: tuple[float, float] | None, x: Array, wide: Array) -> tuple[float, float]:
    """The largest difference and the root mean square of all, or those of before where larger."""
    with np.errstate(invalid="ignore"):
        off = np.abs(x - wide)
    off = off[np.isfinite(off)]
    if not off.size:
        return before or (0.0, 0.0)
    found = float(off.max()), float(np.sqrt(np.mean(off**2)))
    return found if before is None else (max(before[0], found[0]), max(before[1], found[1]))


def _moved(rng: np.random.Generator, x: Array) -> Array:
    """Sums of floats, each off by up to ``_SHAKEN`` units of their root mean square."""
    own = x[tuple(slice(None) if step else slice(1) for step in x.strides)]  # what repeats, once
    finite = own[np.isfinite(own)].astype(np.float64)
    if not finite.size:
        return x
    unit = _UNIT["f64" if x.dtype == np.float64 else "f32"]
    most = _SHAKEN * unit * float(np.sqrt(np.mean(finite**2)))
    return np.broadcast_to((own + most * rng.uniform(-1, 1, own.shape)).astype(x.dtype), x.shape)


def _overflows(native: Array, wide: Array) -> bool:
    """True when most of what is finite in float64 is not in the graph's own dtypes."""
    if wide.dtype.kind != "f":
        return False
    finite = np.isfinite(wide.reshape(-1))
    kept = np.isfinite(native.reshape(-1)[finite])
    return bool(kept.size and kept.mean() < 0.5)
