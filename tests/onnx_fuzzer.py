"""Random ONNX graphs, evaluated by ONNX Runtime node by node while they are drawn.

    draw(rng)     -->  a Case: nodes over all operators below, in their modes, with every value
    draw_layers   -->  a network of bytes between its operators, as quantised files have them
    compare       -->  what differs between ONNX Runtime and a loaded model; "" for nothing
    shrunk        -->  the smallest part of a case that still differs

    python -m tests.onnx_fuzzer 600        so many graphs of the run's seed, what differs, and
                                           which operators never read which others' results
    python -m tests.onnx_fuzzer 600 7      of seed 7

A node that ONNX Runtime refuses is drawn anew. Numbers are quarters of small size, and what is
``exact`` of them (moved, added, compared) alone goes where a rounding would be seen: into
comparisons, casts, positions.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tunegrad as tg
from tests import fuzzing
from tests.api_fuzzer import ENDS
from tunegrad.frontend.onnx.importer import model_of_proto
from tunegrad.frontend.onnx.node import codes_of

__all__ = [
    "DRAWS",
    "OPSETS",
    "Case",
    "Layer",
    "Layers",
    "compare",
    "compare_layers",
    "draw",
    "draw_layers",
    "nodes_of_all",
    "ours",
    "ours_of",
    "pairs",
    "shrunk",
]

Array = np.ndarray[Any, Any]
_QUIET = ort.SessionOptions()
_QUIET.log_severity_level = 4
_QUIET.intra_op_num_threads = 1
_QUIET.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
ort.set_default_logger_severity(4)


@dataclass(frozen=True)
class Case:
    """A graph with the values of all its tensors; ``inputs`` names those that a caller gives. The
    results of ``extreme`` ones are equal.
    """

    opset: int
    nodes: tuple[Any, ...]
    values: Mapping[str, Array]
    inputs: tuple[str, ...]
    extreme: bool = False

    @property
    def outputs(self) -> tuple[str, ...]:
        """What no node reads."""
        read = {i for n in self.nodes for i in _reads(n)}
        made = [o for n in self.nodes for o in n.output if o]
        return tuple(o for o in made if o not in read)

    def proto(self) -> Any:
        """The model, with constants as initialisers."""
        read = list(dict.fromkeys(i for n in self.nodes for i in _reads(n)))
        made = {o for n in self.nodes for o in n.output}
        held = [i for i in read if i and i not in made]
        given = [i for i in held if i in self.inputs]
        graph = helper.make_graph(
            list(self.nodes),
            "drawn",
            [_info(i, self.values[i]) for i in given],
            [helper.make_empty_tensor_value_info(o) for o in self.outputs],
            [numpy_helper.from_array(self.values[i], i) for i in held if i not in given],
        )
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def __str__(self) -> str:
        lines = [f"opset {self.opset}"]
        names = dict.fromkeys(i for n in self.nodes for i in _reads(n) if i in self.values)
        made = {o for n in self.nodes for o in n.output}
        for i in names:
            if i not in made:
                a = self.values[i]
                kind = "input" if i in self.inputs else "constant"
                shown = np.array2string(a.reshape(-1)[:24], separator=",").replace("\n", "")
                lines.append(f"{kind} {i}: {a.dtype}{list(a.shape)} = {shown}")
        lines += [onnx.printer.to_text(n).replace("\n", " ") for n in self.nodes]
        return "\n".join(lines)


def _reads(node: Any) -> list[str]:
    """The names that a node reads, and the graphs inside it."""
    found = [i for i in node.input if i]
    for a in node.attribute:
        if a.type == a.GRAPH:
            inner = {o for n in a.g.node for o in n.output} | {i.name for i in a.g.input}
            found += [i for n in a.g.node for i in n.input if i and i not in inner]
            found += [o.name for o in a.g.output if o.name not in inner]
    return found


def _info(name: str, a: Array) -> Any:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)


def _runtime(case: Case) -> list[Array]:
    text = _spelled(case).proto().SerializeToString()
    session = ort.InferenceSession(text, _QUIET, ["CPUExecutionProvider"])
    named = {i.name: case.values[i.name] for i in session.get_inputs()}
    return [np.asarray(a) for a in session.run(None, named)]


# ---- what peers read in a way of their own


def _spelled(case: Case) -> Case:
    """A case with SAME pads as numbers where steps are wider than windows.

    There ONNX Runtime pads by less than nothing: it drops first elements, or refuses, and its
    ConvTranspose is too small. Pads of windows are 0 at least, so that a result has
    ``ceil(extent / step)`` elements. A ConvTranspose has ``extent * step``, and what its windows
    leave is split as pads are: zeros before the window, and ``output_padding``.
    """
    values, nodes = dict(case.values), []
    for node in case.nodes:
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        side, missing = given.pop("auto_pad", b"").decode(), []
        if side.startswith("SAME"):
            missing = _missing(node.op_type, values[node.input[0]].shape[2:], given)
        operands = list(node.input)
        if min(missing, default=0) < 0:
            less, more = [m // 2 for m in missing], [m - m // 2 for m in missing]
            first, last = (less, more) if side == "SAME_UPPER" else (more, less)
            given["pads"] = [max(0, m) for m in (*first, *last)]
            if node.op_type == "ConvTranspose":
                before = [(max(0, -m), 0) for m in first]
                given["output_padding"] = [max(0, -m) for m in last]
                given["kernel_shape"] = [
                    k + b for k, (b, _) in zip(given["kernel_shape"], before, strict=True)
                ]
                operands[1] = f"{node.input[1]} of {node.name}"
                values[operands[1]] = np.pad(values[node.input[1]], [(0, 0), (0, 0), *before])
            node = helper.make_node(node.op_type, operands, node.output, name=node.name, **given)
        nodes.append(node)
    return replace(case, nodes=tuple(nodes), values=values)


def _missing(op: str, extents: Sequence[int], given: Mapping[str, Any]) -> list[int]:
    """What SAME pads along each axis, less than 0 where windows do not reach the last element."""
    steps, wide = (given.get(k, [1] * len(extents)) for k in ("strides", "dilations"))
    windows = [(k - 1) * w + 1 for k, w in zip(given["kernel_shape"], wide, strict=True)]
    if op == "ConvTranspose":
        return [w - s for s, w in zip(steps, windows, strict=True)]
    return [(-(-e // s) - 1) * s + w - e for e, s, w in zip(extents, steps, windows, strict=True)]


def _newer(case: Case) -> Case:
    """A Resize of opset 10, or an Upsample, that keeps its shape, as a Resize of opset 13.

    ONNX Runtime copies what keeps its shape, whatever the scales. The reference knows Resize from
    opset 11 on; where extents stay, scales are 1 at least, and an element is the one at or before
    its place.
    """
    (node,) = case.nodes
    if node.op_type not in ("Resize", "Upsample") or case.opset > 10:
        return case
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    values, (x, *scales) = dict(case.values), node.input
    if "scales" in given:
        scales = [f"scales of {node.name}"]
        values[scales[0]] = np.asarray(given["scales"], np.float32)
    shape = values[x].shape
    if any(int(e * s) != e for e, s in zip(shape, values[scales[0]], strict=True)):
        return case
    kind = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    spelled = helper.make_node("Resize", [x, "", *scales], node.output, mode=given["mode"], **kind)
    return replace(case, opset=13, nodes=(spelled,), values=values)


# ---- comparing


def compare(case: Case) -> str:
    """What differs, in some words; "" where nothing does.

    "drawn: ..." is a graph that ONNX Runtime refuses, "refused: ..." an error of ours, and
    "judged: ..." a graph with a node on which ONNX Runtime differs from ours and from ONNX's
    reference evaluator (the reference is the specification), or from its own nodes one by one, as
    they are or with their results rounded otherwise.
    """
    try:
        wanted = _runtime(case)
    except Exception as error:  # noqa: BLE001  # the whole may be refused where nodes are not
        return f"drawn: {str(error)[:80]}"
    try:
        made = ours_of(case)
    except Exception as error:  # noqa: BLE001  # any error is a finding
        return f"refused: {type(error).__name__}: {error}"
    said = _difference(case, made, wanted)
    if said and _is_rounding(case, made, wanted):
        return f"judged: rounded otherwise: {said}"
    return said and _judged(case, made, said)


_ROUNDINGS = 16


def _is_rounding(case: Case, made: Sequence[Array], wanted: Sequence[Array]) -> bool:
    """Return True where ONNX Runtime's results differ as much when its nodes round otherwise."""
    moved = [np.zeros(w.shape) for w in wanted]
    for seed in range(_ROUNDINGS):
        other = _rounded(case, np.random.default_rng(seed))
        if any(o.shape != w.shape for o, w in zip(other, wanted, strict=True)):
            return False
        for m, o, w in zip(moved, other, wanted, strict=True):
            far = np.abs(o.astype(np.float64) - w.astype(np.float64))
            np.maximum(m, np.nan_to_num(far), out=m)
        if not _difference(case, made, wanted, slack=[2 * m for m in moved]):
            return True
    return False


_UNITS = {"f2": 2.0**-11, "f4": 2.0**-20, "f8": 2.0**-49}
"""How far a result is moved: one rounding of f16, eight of the others, of it and of an eighth.

The eighth stands for what nodes round within: a softmax's logarithm is that of a sum which is
rounded near 1, and ONNX Runtime's sigmoid is off by 2e-8 where it is 2e-6.
"""


def _rounded(case: Case, rng: np.random.Generator) -> list[Array]:
    """ONNX Runtime's results, node by node; those that no rounding touches stay as they are."""
    values, exact = dict(case.values), {i for i in case.values if not _is_made(case, i)}
    for node in case.nodes:
        computed = tuple(i for i in _reads(node) if i not in case.inputs and _is_made(case, i))
        alone = replace(case, nodes=(node,), values=values, inputs=(*case.inputs, *computed))
        found = _runtime(alone)
        if DRAWS[node.op_type][1] and all(i in exact for i in _reads(node)):
            exact.update(alone.outputs)
        else:
            found = [_moved(a, rng) for a in found]
        values.update(zip(alone.outputs, found, strict=True))
    return [values[o] for o in case.outputs]


def _moved(a: Array, rng: np.random.Generator) -> Array:
    unit = _UNITS.get(a.dtype.str[1:])
    if unit is None:
        return a
    far = unit * (np.abs(a.astype(np.float64)) + 1 / 8)
    return np.asarray((a + far * rng.uniform(-1, 1, a.shape)).astype(a.dtype))


def _judged(case: Case, made: Sequence[Array], said: str) -> str:
    """``said``, unless each node by itself is what ONNX Runtime makes of it, or else the reference,
    and one after the other they make what was made.
    """
    values, blamed = dict(case.values), list[str]()
    for node in case.nodes:
        computed = tuple(i for i in _reads(node) if i not in case.inputs and _is_made(case, i))
        alone = replace(case, nodes=(node,), values=values, inputs=(*case.inputs, *computed))
        theirs = _runtime(alone)
        ours = ours_of(alone)
        if _difference(alone, ours, theirs):
            theirs = _like(ours, _reference(alone))
            if not theirs or _difference(alone, ours, theirs, kinds=False):
                return said
            blamed.append(node.op_type)
        values.update(zip(alone.outputs, theirs, strict=True))
    wanted = [values[o] for o in case.outputs]
    if _difference(case, made, wanted, kinds=False):
        return said
    return f"judged: {', '.join(blamed) or 'together'}: {said}"


def _like(ours: Sequence[Array], theirs: Sequence[Array]) -> list[Array]:
    """Integers in our types, wrapped around: the reference's numpy sums i32 in i64."""
    whole = "iu"
    return [
        t.astype(o.dtype) if t.dtype.kind in whole and o.dtype.kind in whole else t
        for o, t in zip(ours, theirs, strict=False)
    ]


def _is_made(case: Case, name: str) -> bool:
    return any(name in n.output for n in case.nodes)


def ours_of(case: Case) -> list[Array]:
    """The outputs of a loaded model."""
    loaded = tg.load(model_of_proto(case.proto(), "drawn"), store=False, threads=1)
    made = loaded(*(codes_of(case.values[i.name]) for i in loaded.inputs))
    return list(made) if isinstance(made, tuple) else [made]


def _reference(case: Case) -> list[Array]:
    """What ONNX's own evaluator makes of a case; nothing where it has not what it takes."""
    try:
        evaluator = ReferenceEvaluator(_newer(_spelled(case)).proto())
        made = evaluator.run(None, {i: case.values[i] for i in evaluator.input_names})
    except Exception:  # noqa: BLE001  # it raises whatever numpy raises
        return []
    return [np.asarray(a) for a in made]


def _difference(
    case: Case,
    made: Sequence[Array],
    wanted: Sequence[Array],
    kinds: bool = True,
    slack: Sequence[Array] | None = None,
) -> str:
    """The first output that differs, by more than ``slack``, and where; in its type only where
    ``kinds`` matter.
    """
    for at, (name, a, b) in enumerate(zip(case.outputs, made, wanted, strict=True)):
        if a.shape != b.shape or (kinds and a.dtype != b.dtype):
            return f"{name} is {a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}"
        wide, other = a.astype(np.float64), b.astype(np.float64)
        allowed = np.zeros(b.shape) if slack is None else slack[at]
        if b.dtype.kind == "f" and not case.extreme:
            finite = np.abs(other[np.isfinite(other)])
            step = 2e-2 if a.dtype == np.float16 else 1e-4
            allowed = allowed + step * (finite.max(initial=0.0) + 1e-3)
        with np.errstate(invalid="ignore"):
            near = (allowed > 0) & (np.abs(wide - other) <= allowed)
        wrong = (a != b) & ~near & ~(np.isnan(wide) & np.isnan(other))
        if wrong.any():
            i = tuple(int(i) for i in np.argwhere(wrong)[0])
            return f"{name}{list(i)} is {a[i]!r}, not {b[i]!r} ({int(wrong.sum())} of {b.size})"
    return ""


def shrunk(case: Case, differs: Callable[[Case], bool]) -> Case:
    """The smallest part of a case that differs: one node, two, or what its end needs; with values
    that were computed as inputs.
    """
    nodes = case.nodes
    parts = [(n,) for n in nodes]
    parts += [(a, b) for i, b in enumerate(nodes) for a in nodes[:i] if set(a.output) & {*b.input}]
    parts += [nodes[:i] for i in range(1, len(nodes) + 1)]
    for part in parts:
        made = {o for n in part for o in n.output}
        read = {i for n in part for i in _reads(n)} - made
        computed = {o for n in nodes for o in n.output} & read
        smaller = replace(case, nodes=part, inputs=(*case.inputs, *sorted(computed)))
        if differs(smaller):
            return smaller
    return case


def pairs(case: Case) -> Counter[tuple[str, str]]:
    """How often the one operator reads what the other made."""
    makers = {o: n.op_type for n in case.nodes for o in n.output}
    return Counter((makers[i], n.op_type) for n in case.nodes for i in _reads(n) if i in makers)


# ---- drawing

_REAL = ("f4", "f4", "f4", "f4", "f8", "f2")
_WHOLE = ("i4", "i8", "i8", "u1", "i1")


@dataclass
class _Draw:
    """A case that is being drawn. ``exact`` names tensors that no rounding touched."""

    rng: random.Random
    opset: int
    nodes: list[Any] = field(default_factory=list)
    values: dict[str, Array] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    exact: set[str] = field(default_factory=set)
    count: int = 0
    extreme: bool = False

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def hold(self, array: Any, known: bool = True) -> str:
        """A constant, or an input."""
        name = self.name("c" if known else "x")
        self.values[name] = np.asarray(array)
        self.exact.add(name)
        if not known:
            self.inputs.append(name)
        return name

    def extent(self) -> int:
        return self.rng.choice((0,) if self.rng.random() < 0.02 else (1, 1, 2, 2, 3, 3, 4, 5, 7))

    def shape(self, rank: int) -> tuple[int, ...]:
        return tuple(self.extent() for _ in range(rank))

    def array(self, shape: Sequence[int], kind: str, low: int = -3, high: int = 3) -> Array:
        seeded = np.random.default_rng(self.rng.getrandbits(32))
        kind = np.dtype(kind).str.lstrip("<|")
        if kind == "b1":
            return seeded.integers(0, 2, shape).astype(bool)
        if self.extreme and (low, high) == (-3, 3):
            with np.errstate(over="ignore", under="ignore"):
                ends = ENDS["float" if kind[0] == "f" else "int"]
                return seeded.choice(ends, shape).astype(kind)
        if kind[0] == "f":
            return (seeded.integers(4 * low, 4 * high + 1, shape) / 4).astype(kind)
        return seeded.integers(max(0, low) if kind[0] == "u" else low, high + 1, shape).astype(kind)

    def new(self, shape: Sequence[int], kind: str, known: bool | None = None, **ends: int) -> str:
        known = self.rng.random() < 0.3 if known is None else known
        return self.hold(self.array(shape, kind, **ends), known)

    def tensor(
        self, kinds: str = "f", ranks: Sequence[int] = (0, 1, 2, 3, 4), exact: bool = False
    ) -> str:
        """A tensor that is there, or a new input."""
        there = [
            n for n, a in self.values.items()
            if a.dtype.kind in kinds and a.ndim in ranks and a.size <= 4096
            and n[0] != "c" and (n in self.exact or not exact)
        ]  # fmt: skip
        if there and self.rng.random() < 0.75:
            return self.rng.choice(there[-4:])
        options = [k for k in (*_REAL, *_WHOLE, "b1") if np.dtype(k).kind in kinds]
        return self.new(self.shape(self.rng.choice(list(ranks))), self.rng.choice(options), False)

    def like(self, name: str, broadcast: bool = True) -> str:
        """Another operand for an operator of two: of the same type, and a shape that fits."""
        a = self.values[name]
        shape = list(a.shape)
        if broadcast and self.rng.random() < 0.5:
            shape = [1 if self.rng.random() < 0.4 else e for e in shape]
            shape = shape[self.rng.randint(0, len(shape)) :]
        there = [n for n, b in self.values.items()
                 if b.dtype == a.dtype and b.shape == a.shape and n[0] != "c"]  # fmt: skip
        if there and self.rng.random() < 0.3:
            return self.rng.choice(there)
        return self.new(shape, a.dtype.str)

    def axis(self, name: str) -> int:
        rank = self.values[name].ndim
        return self.rng.randint(-rank, rank - 1) if rank else 0

    def axes(self, name: str) -> list[int]:
        rank = self.values[name].ndim
        chosen = self.rng.sample(range(rank), self.rng.randint(0, rank))
        return [a - rank if self.rng.random() < 0.3 else a for a in chosen]

    def flag(self) -> int:
        return self.rng.randint(0, 1)

    def images(self, kinds: str = "f", rank: int | None = None, channels: int = 0) -> str:
        """(N, C, *spatial) of sensible size."""
        rank = rank or self.rng.choice((1, 2, 2, 2, 3))
        there = [n for n, a in self.values.items() if a.ndim == rank + 2 and a.dtype.kind in kinds
                 and min(a.shape) > 0 and not channels and n[0] != "c"]  # fmt: skip
        if there and self.rng.random() < 0.6:
            return self.rng.choice(there)
        side = [self.rng.randint(3, 8) for _ in range(rank)]
        shape = (self.rng.choice((1, 2)), channels or self.rng.choice((1, 2, 4)), *side)
        return self.new(shape, "f4" if "f" in kinds else "u1", False)


_Made = tuple[str, list[str], int, dict[str, Any]]
"""Operator, operands, outputs, attributes."""
_Rule = Callable[[_Draw], _Made]
DRAWS: dict[str, tuple[_Rule, bool]] = {}
"""By operator, how a node is drawn, and whether its result is exact of what is."""


def _draws(*ops: str, exact: bool = False) -> Callable[[Callable[[_Draw, str], Any]], Any]:
    def register(rule: Callable[[_Draw, str], Any]) -> Any:
        for op in ops:
            DRAWS[op] = (lambda d, op=op: _whole(op, rule(d, op))), exact  # type: ignore[misc]
        return rule

    return register


def _whole(op: str, made: Any) -> _Made:
    operands, *rest = made
    outputs = next((r for r in rest if isinstance(r, int)), 1)
    attributes = next((r for r in rest if isinstance(r, dict)), {})
    return op, operands, outputs, {k: v for k, v in attributes.items() if v is not None}


@_draws("Abs", "Neg", "Relu", "Identity", exact=True)
def _plain(d: _Draw, op: str) -> Any:
    return ([d.tensor("fi" if op != "Relu" else "f")],)


@_draws("Sigmoid", "Tanh", "Erf", "Softplus", "Softsign", "HardSwish", "Sin", "Cos", "Atan",
        "Sinh", "Cosh", "Asinh", "Mish", "Exp")  # fmt: skip
def _smooth(d: _Draw, _: str) -> Any:
    return ([d.tensor("f")],)


@_draws("Sqrt", "Log", "Reciprocal", "Acos", "Asin", "Atanh", "Acosh", "Tan")
def _bounded(d: _Draw, op: str) -> Any:
    ends = {"Sqrt": (0, 4), "Log": (1, 4), "Reciprocal": (1, 4), "Acosh": (1, 4)}.get(op, (0, 1))
    low, high = ends
    shape = d.shape(d.rng.randint(0, 3))
    return ([d.new(shape, "f4", False, low=low, high=high)],)


@_draws("Elu", "Selu", "Celu", "LeakyRelu", "HardSigmoid", "Swish", "Gelu", "ThresholdedRelu",
        "Shrink")  # fmt: skip
def _curved(d: _Draw, op: str) -> Any:
    given = {
        "Gelu": {"approximate": d.rng.choice(("none", "tanh"))},
        "HardSigmoid": {"alpha": 0.3, "beta": 0.25},
        "Shrink": {"bias": d.rng.choice((0.0, 0.5)), "lambd": 0.75},
        "Selu": {"alpha": 1.5, "gamma": 1.25},
    }.get(op, {"alpha": d.rng.choice((0.25, 0.5, 1.5))})
    return [d.tensor("f", exact=op in ("ThresholdedRelu", "Shrink"))], given if d.flag() else {}


@_draws("Ceil", "Floor", "Round", "Sign", "IsNaN", "Not", exact=True)
def _stepped(d: _Draw, op: str) -> Any:
    return ([d.tensor("b" if op == "Not" else "f", exact=True)],)


@_draws("IsInf", exact=True)
def _isinf(d: _Draw, _: str) -> Any:
    return [d.tensor("f")], {"detect_positive": d.flag(), "detect_negative": d.flag()}


@_draws("Cast", exact=True)
def _cast(d: _Draw, _: str) -> Any:
    name = d.tensor("fiub", exact=True)
    to = d.rng.choice(("f4", "f8", "i4", "i8", "b1", "f2", "u1", "i1"))
    if to == "u1" and d.values[name].dtype.kind in "fi" and d.values[name].min(initial=0) < 0:
        to = "i4"
    return [name], {"to": helper.np_dtype_to_tensor_dtype(np.dtype(to))}


@_draws("Add", "Sub", "Mul", exact=True)
def _pair(d: _Draw, _: str) -> Any:
    name = d.tensor("fi")
    return (d.rng.sample([name, d.like(name)], 2),)


@_draws("Div")
def _div(d: _Draw, _: str) -> Any:
    name = d.tensor("fiu", exact=True)
    kind = d.values[name].dtype.str
    return ([name, d.new(d.values[name].shape[-1:], kind, low=1, high=4)],)


@_draws("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", exact=True)
def _compared(d: _Draw, _: str) -> Any:
    name = d.tensor("fi", exact=True)
    other = d.like(name)
    return ([name, other if other in d.exact else name],)


@_draws("And", "Or", "Xor", exact=True)
def _logical(d: _Draw, _: str) -> Any:
    name = d.tensor("b")
    return ([name, d.like(name)],)


@_draws("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", exact=True)
def _bits(d: _Draw, op: str) -> Any:
    name = d.tensor("iu")
    return (([name] if op == "BitwiseNot" else [name, d.like(name)]),)


@_draws("BitShift", exact=True)
def _shift(d: _Draw, _: str) -> Any:
    shape = d.shape(2)
    return ([d.new(shape, "u1", False, low=0, high=200), d.new(shape, "u1", low=0, high=7)],
            {"direction": d.rng.choice(("LEFT", "RIGHT"))})  # fmt: skip


@_draws("Mod", exact=True)
def _mod(d: _Draw, _: str) -> Any:
    name = d.tensor("fi", exact=True)
    whole = d.values[name].dtype.kind == "i"
    divisor = d.new(d.values[name].shape, d.values[name].dtype.str, low=1, high=4)
    return [name, divisor], {"fmod": d.flag() if whole else 1}


@_draws("Pow")
def _pow(d: _Draw, _: str) -> Any:
    name = d.tensor("fi", exact=True)
    return ([name, d.hold(np.asarray(d.rng.choice((0, 1, 2, 3)), d.rng.choice(("f4", "i8"))))],)


@_draws("Min", "Max", "Sum", "Mean")
def _many(d: _Draw, op: str) -> Any:
    name = d.tensor("f" if op in ("Sum", "Mean") else "fi")
    return ([name, *(d.like(name) for _ in range(d.rng.randint(0, 2)))],)


@_draws("Clip", exact=True)
def _clip(d: _Draw, _: str) -> Any:
    name = d.tensor("fi", exact=True)
    kind = d.values[name].dtype
    if d.opset < 11:
        return [name], {"min": -1.0, "max": 1.5}
    ends = [d.hold(np.asarray(v, kind)) if d.flag() else "" for v in (-1, 2)]
    return ([name, *ends],)


@_draws("PRelu", exact=True)
def _prelu(d: _Draw, _: str) -> Any:
    name = d.tensor("f", exact=True)
    return ([name, d.new(d.values[name].shape[-1:], d.values[name].dtype.str, True)],)


@_draws("Where", exact=True)
def _where(d: _Draw, _: str) -> Any:
    name = d.tensor("fi")
    there = [n for n, a in d.values.items()
             if a.dtype == bool and a.shape == d.values[name].shape]  # fmt: skip
    condition = d.rng.choice(there) if there else d.new(d.values[name].shape, "b1", False)
    return ([condition, *d.rng.sample([name, d.like(name)], 2)],)


# ---- movement


@_draws("Reshape", exact=True)
def _reshape(d: _Draw, _: str) -> Any:
    name = d.tensor("fib")
    shape = list(d.values[name].shape)
    d.rng.shuffle(shape)
    if len(shape) > 1 and d.flag():
        a = shape.pop()
        shape[-1] *= a
    if shape and d.flag() and 0 not in shape:
        shape[d.rng.randrange(len(shape))] = -1
    zero = {"allowzero": 1} if 0 in shape and d.opset >= 14 else {}
    return [name, d.hold(np.asarray(shape, "i8"))], zero


@_draws("Transpose", exact=True)
def _transpose(d: _Draw, _: str) -> Any:
    name = d.tensor("fib")
    order = d.rng.sample(range(d.values[name].ndim), d.values[name].ndim)
    return [name], {"perm": order if d.flag() and order else None}


@_draws("Squeeze", "Unsqueeze", exact=True)
def _squeeze(d: _Draw, op: str) -> Any:
    name = d.tensor("fib", (0, 1, 2, 3))
    shape = d.values[name].shape
    if op == "Squeeze":
        axes = [i - len(shape) * d.flag() for i, e in enumerate(shape) if e == 1 and d.flag()]
        if not axes:
            return ([name],)
    else:
        axes = d.rng.sample(range(len(shape) + 2), 2)
        axes = [a - (len(shape) + 2) * d.flag() for a in axes]
    if d.opset < 13:
        return [name], {"axes": [a % (len(shape) + 2 * (op == "Unsqueeze")) for a in axes]}
    return ([name, d.hold(np.asarray(axes, "i8"))],)


@_draws("Flatten", exact=True)
def _flatten(d: _Draw, _: str) -> Any:
    name = d.tensor("fi", (1, 2, 3, 4))
    return [name], {"axis": d.rng.randint(0, d.values[name].ndim)}


@_draws("Slice", exact=True)
def _slice(d: _Draw, _: str) -> Any:
    name = d.tensor("fib", (1, 2, 3))
    axes = sorted({a % d.values[name].ndim for a in d.axes(name)}) or [0]
    far = [-(1 << 62), -9, -2, -1, 0, 1, 2, 3, 9, 1 << 62]
    starts, ends = ([d.rng.choice(far) for _ in axes] for _ in range(2))
    steps = [d.rng.choice((1, 1, 2, 3, -1, -2)) for _ in axes]
    if d.opset < 10:
        return [name], {"starts": starts, "ends": ends, "axes": axes}
    return ([name, *(d.hold(np.asarray(v, "i8")) for v in (starts, ends, axes, steps))],)


@_draws("Pad", exact=True)
def _pad(d: _Draw, _: str) -> Any:
    name = d.tensor("fi", (1, 2, 3, 4))
    shape, mode = d.values[name].shape, d.rng.choice(("constant", "reflect", "edge", "wrap"))
    if d.opset < 19 and mode == "wrap":
        mode = "constant"
    cuts = mode == "constant" and min(shape) > 1
    most = [max(0, e - 1) if mode == "reflect" else 3 for e in shape]
    pads = [d.rng.randint(-int(cuts), m) if m else 0 for m in (*most, *most)]
    if d.opset < 11:
        return [name], {"mode": mode, "pads": pads, "value": 1.5}
    value = d.hold(np.asarray(2, d.values[name].dtype)) if mode == "constant" and d.flag() else ""
    if d.opset >= 18 and d.flag():
        axis = d.rng.randrange(len(shape))
        ends = [pads[axis], pads[len(shape) + axis]]
        return [name, d.hold(np.asarray(ends, "i8")), value, d.hold(np.asarray([axis], "i8"))], {
            "mode": mode
        }
    return [name, d.hold(np.asarray(pads, "i8")), value], {"mode": mode}


@_draws("Concat", exact=True)
def _concat(d: _Draw, _: str) -> Any:
    name = d.tensor("fib", (1, 2, 3, 4))
    axis, shape = d.axis(name), list(d.values[name].shape)
    parts = [name]
    for _i in range(d.rng.randint(0, 2)):
        shape[axis] = d.extent()
        parts.append(d.new(shape, d.values[name].dtype.str))
    d.rng.shuffle(parts)
    return parts, {"axis": axis}


@_draws("Split", exact=True)
def _split(d: _Draw, _: str) -> Any:
    name = d.tensor("fi", (1, 2, 3))
    axis, extent = d.axis(name), 0
    extent = d.values[name].shape[axis]
    first = d.rng.randint(0, extent)
    parts = [first, extent - first]
    if d.opset < 13:
        return [name], 2, {"axis": axis, "split": parts}
    if d.opset >= 18 and d.flag():
        return [name], 2, {"axis": axis, "num_outputs": 2}
    return [name, d.hold(np.asarray(parts, "i8"))], 2, {"axis": axis}


@_draws("Tile", "Expand", exact=True)
def _repeat(d: _Draw, op: str) -> Any:
    name = d.tensor("fib", (0, 1, 2, 3))
    shape = d.values[name].shape
    if op == "Tile":
        return ([name, d.hold(np.asarray([d.rng.randint(0, 3) for _ in shape], "i8"))],)
    wider = [d.rng.choice((1, 3)) if e == 1 else e for e in shape]
    return ([name, d.hold(np.asarray([*d.shape(d.flag()), *wider], "i8"))],)


@_draws("Gather", exact=True)
def _gather(d: _Draw, _: str) -> Any:
    name = d.tensor("fib", (1, 2, 3))
    axis = d.axis(name)
    extent = d.values[name].shape[axis]
    index = d.array(d.shape(d.rng.randint(0, 2)), d.rng.choice(("i4", "i8")), -extent, extent - 1)
    return [name, d.hold(index, bool(d.flag()))], {"axis": axis}


@_draws("GatherElements", exact=True)
def _gather_elements(d: _Draw, _: str) -> Any:
    name = d.tensor("fi", (1, 2, 3))
    axis, shape = d.axis(name), list(d.values[name].shape)
    extent, shape[axis] = shape[axis], d.extent()
    return [name, d.hold(d.array(shape, "i8", -extent, extent - 1), bool(d.flag()))], {"axis": axis}


@_draws("GatherND", exact=True)
def _gather_nd(d: _Draw, _: str) -> Any:
    name = d.tensor("fi", (2, 3, 4))
    shape = d.values[name].shape
    batch = d.rng.randint(0, 1) if d.opset >= 12 else 0
    depth = d.rng.randint(1, len(shape) - batch)
    least = min(shape[batch : batch + depth])
    index = d.array((*shape[:batch], d.extent(), depth), "i8", -least, least - 1)
    return [name, d.hold(index, bool(d.flag()))], {"batch_dims": batch if d.opset >= 12 else None}


@_draws("ScatterElements", exact=True)
def _scatter_elements(d: _Draw, _: str) -> Any:
    name = d.tensor("f", (1, 2, 3), exact=True)
    axis, shape = d.axis(name), list(d.values[name].shape)
    extent, shape[axis] = shape[axis], d.rng.randint(0, shape[axis])
    how = d.rng.choice(("none", "add", "mul", "max", "min")) if d.opset >= 18 else None
    index = d.array(shape, "i8", -extent, extent - 1)
    if how in (None, "none"):  # the order of writes to one place is no one's
        line = np.random.default_rng(d.count).permutation(extent)[: shape[axis]]
        index = np.broadcast_to(
            line.reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))]), shape
        ).copy()
    source = d.new(shape, d.values[name].dtype.str)
    return [name, d.hold(index, bool(d.flag())), source], {"axis": axis, "reduction": how}


@_draws("ScatterND", exact=True)
def _scatter_nd(d: _Draw, _: str) -> Any:
    name = d.tensor("f", (1, 2, 3), exact=True)
    shape = d.values[name].shape
    count = d.rng.randint(0, shape[0])
    how = d.rng.choice(("none", "add", "mul", "max", "min")) if d.opset >= 18 else None
    index = np.random.default_rng(d.count).permutation(shape[0])[:count].reshape(count, 1)
    source = d.new((count, *shape[1:]), d.values[name].dtype.str)
    return [name, d.hold(index, bool(d.flag())), source], {"reduction": how}


@_draws("DepthToSpace", "SpaceToDepth", exact=True)
def _blocks(d: _Draw, op: str) -> Any:
    if op == "DepthToSpace":
        mode = d.rng.choice(("DCR", "CRD")) if d.opset >= 11 else None
        return [d.new((2, 8, 2, 3), "f4", False)], {"blocksize": 2, "mode": mode}
    return [d.new((2, 3, 4, 6), "f4", False)], {"blocksize": 2}


@_draws("Trilu", exact=True)
def _trilu(d: _Draw, _: str) -> Any:
    name = d.tensor("fi", (2, 3))
    given = [d.hold(np.asarray(d.rng.randint(-3, 3), "i8"))] if d.flag() else []
    return [name, *given], {"upper": d.flag()}


@_draws("ReverseSequence", exact=True)
def _reverse(d: _Draw, _: str) -> Any:
    name = d.tensor("f", (2, 3))
    time = d.flag()
    shape = d.values[name].shape
    lengths = d.array((shape[1 - time],), "i8", min(1, shape[time]), shape[time])
    return [name, d.hold(lengths, bool(d.flag()))], {"time_axis": time, "batch_axis": 1 - time}


@_draws("Compress", exact=True)
def _compress(d: _Draw, _: str) -> Any:
    name = d.tensor("f", (1, 2, 3))
    axis = d.axis(name) if d.flag() else None
    a = d.values[name]
    return [name, d.new((a.size if axis is None else a.shape[axis],), "b1", True)], {"axis": axis}


@_draws("CumSum", exact=True)
def _cumsum(d: _Draw, _: str) -> Any:
    name = d.tensor("fi", (1, 2, 3))
    axis = d.hold(np.asarray(d.axis(name), d.rng.choice(("i4", "i8"))))
    return [name, axis], {"exclusive": d.flag(), "reverse": d.flag()}


@_draws("EyeLike", exact=True)
def _eye(d: _Draw, _: str) -> Any:
    return [d.tensor("f", (2,))], {"k": d.rng.randint(-2, 2), "dtype": d.rng.choice((None, 1, 7))}


@_draws("OneHot", exact=True)
def _one_hot(d: _Draw, _: str) -> Any:
    index = d.new(d.shape(d.rng.randint(0, 2)), "i8", False, low=-4, high=3)
    rank = d.values[index].ndim
    values = d.hold(np.asarray([0.5, 2], "f4"))
    return [index, d.hold(np.asarray(4, "i8")), values], {"axis": d.rng.randint(-rank - 1, rank)}


@_draws("TopK", exact=True)
def _topk(d: _Draw, _: str) -> Any:
    shape = d.shape(d.rng.randint(1, 3))
    count = int(np.prod(shape))
    line = np.random.default_rng(d.count).permutation(count).reshape(shape)
    name = d.hold(line.astype("f4") / 4, False)  # no ties
    axis = d.axis(name)
    k = d.rng.randint(0, shape[axis])
    if d.opset < 10:
        return [name], 2, {"axis": axis, "k": max(1, k)}
    largest = {"largest": d.flag()} if d.opset >= 11 else {}
    return [name, d.hold(np.asarray([k], "i8"))], 2, {"axis": axis, **largest}


@_draws("CenterCropPad", exact=True)
def _center(d: _Draw, _: str) -> Any:
    name = d.tensor("f", (2, 3))
    axes = sorted({a % d.values[name].ndim for a in d.axes(name)}) or [0]
    extents = np.asarray([d.rng.randint(1, 9) for _ in axes], "i8")
    return [name, d.hold(extents)], {"axes": axes}


@_draws("Shape", "Size", exact=True)
def _extents(d: _Draw, op: str) -> Any:
    name = d.tensor("fi")
    ends = {"start": d.axis(name), "end": d.axis(name)} if op == "Shape" and d.opset >= 15 else {}
    return [name], ends if d.flag() else {}


# ---- reductions, norms


@_draws("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
        "ReduceLogSumExp", "ReduceSumSquare", "ReduceLogSum")  # fmt: skip
def _reduced(d: _Draw, op: str) -> Any:
    kinds = "f" if op in ("ReduceL2", "ReduceLogSumExp", "ReduceMean", "ReduceProd") else "fi"
    name = d.tensor(kinds)
    if op == "ReduceLogSum":
        name = d.new(d.shape(3), "f4", False, low=1, high=3)
    if op == "ReduceMean" and not d.values[name].size:
        name = d.new((2, 3), "f4", False)  # of nothing, ONNX Runtime's mean is 0 and numpy's NaN
    axes, keep = d.axes(name), {"keepdims": d.flag()}
    if d.opset >= (13 if op == "ReduceSum" else 18):
        more = {"noop_with_empty_axes": d.flag()} if d.flag() else {}
        return [name, *([d.hold(np.asarray(axes, "i8"))] if axes or d.flag() else [])], {
            **keep, **more
        }  # fmt: skip
    return [name], {**keep, "axes": [a % max(1, d.values[name].ndim) for a in axes] or None}


@_draws("ArgMax", "ArgMin", exact=True)
def _arg(d: _Draw, _: str) -> Any:
    name = d.tensor("fi", (1, 2, 3), exact=True)
    last = d.flag() if d.opset >= 12 else None
    return [name], {"axis": d.axis(name), "keepdims": d.flag(), "select_last_index": last}


@_draws("Softmax", "LogSoftmax")
def _softmax(d: _Draw, _: str) -> Any:
    name = d.tensor("f", (1, 2, 3, 4))
    return [name], {"axis": d.axis(name) if d.flag() else None}


@_draws("Hardmax", exact=True)
def _hardmax(d: _Draw, _: str) -> Any:
    name = d.tensor("f", (1, 2, 3), exact=True)
    return [name], {"axis": d.axis(name)}


@_draws("LayerNormalization", "RMSNormalization")
def _layer_norm(d: _Draw, op: str) -> Any:
    name = d.tensor("f", (2, 3))
    axis = d.axis(name)
    shape = d.values[name].shape[axis % d.values[name].ndim :]
    kind = d.values[name].dtype.str
    bias = [d.new(shape, kind, True)] if d.flag() and op[0] == "L" else []
    return [name, d.new(shape, kind, True), *bias], {"axis": axis, "epsilon": 1e-3}


@_draws("InstanceNormalization", "BatchNormalization", "GroupNormalization", "LRN",
        "MeanVarianceNormalization")  # fmt: skip
def _image_norm(d: _Draw, op: str) -> Any:
    name = d.images(rank=2)
    channels = d.values[name].shape[1]
    line = [d.hold(d.array((channels,), "f4", 1, 3)) for _ in range(4)]
    if d.values[name].dtype != np.float32:
        name = d.new((2, channels, 4, 3), "f4", False)
    if op == "LRN":
        return [name], {"size": d.rng.choice((1, 3, 5)), "alpha": 0.01, "bias": 1.5}
    if op == "MeanVarianceNormalization":
        return [name], {"axes": d.rng.choice(([0, 2, 3], [1, 2, 3], [2, 3]))}
    if op == "BatchNormalization":
        return [name, *line], {"epsilon": 1e-2}
    groups = {"num_groups": d.rng.choice([g for g in (1, 2, 4) if channels % g == 0])}
    return [name, *line[:2]], groups if op[0] == "G" else {"epsilon": 1e-2}


@_draws("LpNormalization")
def _lp(d: _Draw, _: str) -> Any:
    name = d.tensor("f", (1, 2, 3))
    return [name], {"axis": d.axis(name), "p": d.rng.choice((1, 2))}


# ---- products, windows


@_draws("MatMul")
def _matmul(d: _Draw, _: str) -> Any:
    name = d.tensor("f", (1, 2, 3))
    a = d.values[name]
    rest = (d.extent(),) if d.flag() else ()
    batch = a.shape[:1] if a.ndim == 3 and rest and d.flag() else ()
    return ([name, d.new((*batch, a.shape[-1], *rest), a.dtype.str)],)


@_draws("Gemm")
def _gemm(d: _Draw, _: str) -> Any:
    name = d.tensor("f", (2,))
    a, ta, tb, columns = d.values[name], d.flag(), d.flag(), d.rng.randint(1, 9)
    rows, depth = a.shape[::-1] if ta else a.shape
    b = d.new((columns, depth) if tb else (depth, columns), a.dtype.str)
    shape = d.rng.choice([(), (1,), (columns,), (rows, 1), (rows, columns)])
    c = [d.new(shape, a.dtype.str)] if d.flag() or d.opset < 11 else []
    return [name, b, *c], {"transA": ta, "transB": tb, "alpha": d.rng.choice((1.0, 0.5)),
                           "beta": d.rng.choice((1.0, 2.0))}  # fmt: skip


@_draws("Einsum")
def _einsum(d: _Draw, _: str) -> Any:
    text, a, b = d.rng.choice(
        [("ij,jk->ik", (2, 3), (3, 4)), ("bij,bkj->bik", (2, 3, 4), (2, 5, 4)),
         ("ij,ij->i", (3, 4), (3, 4)), ("i,j->ji", (3,), (4,)),
         ("...ij,jk->...ik", (2, 3, 4), (4, 2))]
    )  # fmt: skip
    return [d.new(a, "f4", False), d.new(b, "f4")], {"equation": text}


def _window(d: _Draw, rank: int, extents: Sequence[int]) -> dict[str, Any]:
    """Extents, steps and pads of windows."""
    size = [d.rng.randint(1, min(3, e)) for e in extents]
    given: dict[str, Any] = {"kernel_shape": size}
    if d.flag():
        given["strides"] = [d.rng.randint(1, 3) for _ in range(rank)]
    kind = d.rng.choice(("NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"))
    if kind != "NOTSET":
        given["auto_pad"] = kind
    elif d.flag():
        given["pads"] = [d.rng.randint(0, k - 1) for k in (*size, *size)]
    return given


@_draws("Conv", "ConvTranspose")
def _conv(d: _Draw, op: str) -> Any:
    name = d.images()
    a = d.values[name]
    if a.dtype != np.float32 or a.ndim > 5:
        name = d.new((1, 4, 6, 5), "f4", False)
        a = d.values[name]
    rank, channels = a.ndim - 2, a.shape[1]
    given = _window(d, rank, a.shape[2:])
    groups = d.rng.choice([g for g in (1, 2, 4) if channels % g == 0])
    out = groups * d.rng.choice((1, 2, 3))
    shape = (out, channels // groups) if op == "Conv" else (channels, out // groups)
    if "auto_pad" not in given and d.flag():
        given["dilations"] = [d.rng.randint(1, 2) for _ in range(rank)]
    if op == "ConvTranspose" and given.get("strides") and "auto_pad" not in given and d.flag():
        given["output_padding"] = [s - 1 for s in given["strides"]]
    bias = [d.new((out,), "f4", True)] if d.flag() else []
    w = d.new((*shape, *given["kernel_shape"]), "f4", d.rng.random() < 0.8)
    return [name, w, *bias], {**given, "group": groups}


@_draws("MaxPool", "AveragePool", "LpPool")
def _pool(d: _Draw, op: str) -> Any:
    name = d.images()
    a = d.values[name]
    given = _window(d, a.ndim - 2, a.shape[2:])
    if d.opset >= (18 if op == "LpPool" else 10) and "auto_pad" not in given:
        given["ceil_mode"] = d.flag()
    if op == "AveragePool":
        given["count_include_pad"] = d.flag()
    dilated = {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[op]
    fits = all(2 * k - 1 <= e for k, e in zip(given["kernel_shape"], a.shape[2:], strict=True))
    if d.opset >= dilated and "auto_pad" not in given and fits and d.flag():
        given["dilations"] = [d.rng.randint(1, 2) for _ in a.shape[2:]]
    if op == "LpPool":
        given["p"] = d.rng.choice((1, 2, 3))
    return [name], d.rng.choice((1, 1, 2)) if op == "MaxPool" else 1, given


@_draws("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global(d: _Draw, op: str) -> Any:
    return [d.images()], {"p": d.rng.choice((1, 2, 3, None))} if op == "GlobalLpPool" else {}


@_draws("MaxUnpool", exact=True)
def _unpool(d: _Draw, _: str) -> Any:
    size, pads = d.rng.choice((2, 3)), [d.flag() for _ in range(4)]
    extents = [(3 - 1) * 2 - pads[i] - pads[2 + i] + size for i in range(2)]
    count, seeded = int(np.prod(extents)), np.random.default_rng(d.count)
    drawn = [i * count + seeded.permutation(count)[:9] for i in range(2)]  # each in its own image
    places = np.stack(drawn).reshape(1, 2, 3, 3)
    given = {"kernel_shape": [size, size], "strides": [2, 2], "pads": pads}
    return [d.new((1, 2, 3, 3), "f4", False), d.hold(places, False)], given


@_draws("Upsample")
def _upsample(d: _Draw, _: str) -> Any:
    name, mode = d.images(rank=2), d.rng.choice(("nearest", "linear"))
    scales = [1.0, 1.0, d.rng.choice((1.0, 1.5, 2.0)), d.rng.choice((1.0, 1.3, 3.0))]
    if d.opset < 9:
        return [name], {"mode": mode, "scales": scales}
    return [name, d.hold(np.asarray(scales, "f4"))], {"mode": mode}


@_draws("DFT")
def _dft(d: _Draw, _: str) -> Any:
    x = d.new((2, d.rng.randint(2, 12), 3, d.rng.choice((1, 2))), "f4", False)
    given: dict[str, Any] = {"inverse": d.flag(), "onesided": d.flag()}
    length = d.hold(np.asarray(d.rng.randint(1, 12), "i8")) if d.flag() else ""
    axis = d.rng.choice((1, -2, 2))
    if d.opset < 20:
        return [x, length], {**given, "axis": axis % 4}
    return [x, length, d.hold(np.asarray(axis, "i8"))], given


@_draws("STFT")
def _stft(d: _Draw, _: str) -> Any:
    x, step = d.new((2, 16, 1), "f4", False), d.hold(np.asarray(d.rng.choice((2, 4)), "i8"))
    window = [d.hold(np.hanning(8).astype("f4"))] if d.flag() else ["", d.hold(np.asarray(8, "i8"))]
    return [x, step, *window], {"onesided": d.flag()}


@_draws("Resize")
def _resize(d: _Draw, _: str) -> Any:
    name = d.images(rank=2)
    a = d.values[name]
    mode = d.rng.choice(("nearest", "linear", "cubic") if d.opset >= 11 else ("nearest", "linear"))
    scales = [1.0, 1.0, d.rng.choice((0.5, 0.6, 1.3, 2.0)), d.rng.choice((0.4, 1.0, 1.5, 3.0))]
    sizes = [*a.shape[:2], *(d.rng.randint(1, 9) for _ in a.shape[2:])]
    if d.opset < 11:
        return [name, d.hold(np.asarray(scales, "f4"))], {"mode": mode}
    how = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"]
    how += ["tf_half_pixel_for_nn"] if d.opset < 13 else []
    how += ["half_pixel_symmetric"] if d.opset >= 19 else []
    given: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": d.rng.choice(how)}
    region = ""
    if mode == "nearest":
        given["nearest_mode"] = d.rng.choice(
            ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        )
    if mode == "cubic":
        given |= {"cubic_coeff_a": d.rng.choice((-0.75, -0.5)), "exclude_outside": d.flag()}
    if given["coordinate_transformation_mode"] == "tf_crop_and_resize":
        region = d.hold(np.asarray([0, 0, 0.25, -0.5, 1, 1, 0.75, 1.25], "f4"))
        given["extrapolation_value"] = 1.5
    elif d.opset >= 18:
        if mode != "nearest":
            given["antialias"] = d.flag()
        if d.flag():
            given["axes"], scales, sizes = [2, 3], scales[2:], sizes[2:]
            kept = ["stretch", "stretch", "not_larger", "not_smaller"]
            if given["coordinate_transformation_mode"] == "align_corners" and given.get(
                "antialias"
            ):
                # where a length is no whole number, the reference's filter lies beyond the image,
                # at a pixel or beside it, as its floats round; ONNX Runtime has other numbers yet
                kept.remove("not_larger")
            given["keep_aspect_ratio_policy"] = d.rng.choice(kept)
    if d.flag():
        return [name, region, "", d.hold(np.asarray(sizes, "i8"))], given
    given.pop("keep_aspect_ratio_policy", None)
    return [name, region, d.hold(np.asarray(scales, "f4"))], given


@_draws("GridSample")
def _grid(d: _Draw, _: str) -> Any:
    name = d.new((2, 2, 4, 5), "f4", False)
    grid = d.hold(d.array((2, 3, 4, 2), "f4", -1, 1) * np.float32(0.93), bool(d.flag()))
    modes = ("linear", "nearest", "cubic") if d.opset >= 20 else ("bilinear", "nearest", "bicubic")
    edge = d.rng.choice(("zeros", "border", "reflection"))
    mode = d.rng.choice(modes)
    return [name, grid], {"mode": mode, "align_corners": d.flag(), "padding_mode": edge}


@_draws("RoiAlign")
def _roi(d: _Draw, _: str) -> Any:
    regions = np.asarray([[0.3, 0.2, 4.1, 3.3], [1, 0, 3, 5]], "f4")
    how = d.rng.choice(("half_pixel", "output_half_pixel")) if d.opset >= 16 else None
    return [d.new((2, 2, 6, 6), "f4", False), d.hold(regions), d.hold(np.asarray([1, 0], "i8"))], {
        "output_height": 2, "output_width": 3, "sampling_ratio": d.rng.choice((0, 2)),
        "coordinate_transformation_mode": how,
    }  # fmt: skip


# ---- quantised


@_draws("QuantizeLinear", exact=True)
def _quantize(d: _Draw, _: str) -> Any:
    name = d.new(d.shape(3), "f4", False)
    kind = d.rng.choice(("u1", "i1"))
    zero = np.asarray(d.rng.choice((0, 3, 100)), kind)
    if d.flag() and d.opset >= 13:
        axis = d.axis(name)
        count = d.values[name].shape[axis]
        scale = d.hold(np.resize(np.asarray([0.25, 0.5, 1], "f4"), count))
        return [name, scale, d.hold(np.resize(zero, count))], {"axis": axis}
    return ([name, d.hold(np.asarray(0.25, "f4")), d.hold(zero)],)


@_draws("DequantizeLinear", exact=True)
def _dequantize(d: _Draw, _: str) -> Any:
    there = [n for n, a in d.values.items() if a.dtype in (np.uint8, np.int8) and n[0] != "c"]
    name = d.rng.choice(there) if there else d.new(d.shape(2), "u1", False, low=0, high=200)
    return ([name, d.hold(np.asarray(0.5, "f4")), d.hold(np.asarray(3, d.values[name].dtype))],)


def _bytes(d: _Draw, shape: Sequence[int], kind: str, known: bool) -> str:
    ends = (0, 200) if kind == "u1" else (-120, 120)
    return d.new(shape, kind, known, low=ends[0], high=ends[1])


def _byte_steps(d: _Draw, a: str, b: str) -> list[str]:
    """Scales and zero points of two operands and their product, which halves of a step are of."""
    zero = d.rng.choice((0, 9)) if a == "u1" else d.rng.choice((-9, 0, 9))
    end = 100 if a == "u1" else d.rng.choice((-100, -7, 0, 28))
    steps = ((0.5, zero, a), (0.25, 3, b), (d.rng.choice((64.0, 512.0)), end, a))
    return [d.hold(np.asarray(v, k)) for s, z, kind in steps for v, k in ((s, "f4"), (z, kind))]


def _byte_kinds(d: _Draw) -> tuple[str, str]:
    """Types of two operands; ONNX Runtime refuses some pairs, by operator."""
    return d.rng.choice((("u1", "u1"), ("u1", "i1"), ("i1", "i1"), ("i1", "u1")))


@_draws("MatMulInteger", exact=True)
def _matmul_integer(d: _Draw, _: str) -> Any:
    a, b = _byte_kinds(d)
    zeros = [d.hold(np.asarray(9, a)), d.hold(np.asarray(2, b))] if d.flag() else []
    return ([_bytes(d, (3, 8), a, False), _bytes(d, (8, 5), b, bool(d.flag())), *zeros],)


@_draws("ConvInteger", "QLinearConv", exact=True)
def _conv_integer(d: _Draw, op: str) -> Any:
    kind, other = _byte_kinds(d)
    a = _bytes(d, (1, 2, 5, 6), kind, False)
    given = _window(d, 2, (5, 6))
    if "auto_pad" not in given and d.flag():
        given["dilations"] = [d.rng.randint(1, 2) for _ in range(2)]
    given["group"] = d.rng.randint(1, 2)
    w = _bytes(d, (4, 2 // given["group"], *given["kernel_shape"]), other, True)
    if op == "ConvInteger":
        return [a, w, *([d.hold(np.asarray(9, kind))] if d.flag() else [])], given
    held = _byte_steps(d, kind, other)
    bias = [d.new((4,), "i4", True, low=-999, high=999)] if d.flag() else []
    return [a, *held[:2], w, *held[2:], *bias], given


@_draws("QLinearMatMul", exact=True)
def _matmul_bytes(d: _Draw, _: str) -> Any:
    a, b = _byte_kinds(d)
    held = _byte_steps(d, a, b)
    return ([_bytes(d, (3, 8), a, False), *held[:2], _bytes(d, (8, 5), b, True), *held[2:]],)


@_draws("DynamicQuantizeLinear", exact=False)
def _dynamic(d: _Draw, _: str) -> Any:
    return [d.hold(np.asarray([[-1.0, 0.5, 2.0], [0.25, 1.0, 4.1]], "f4"), False)], 3


# ---- recurrence, control flow


@_draws("LSTM", "GRU", "RNN")
def _recurrent(d: _Draw, op: str) -> Any:
    steps, batch, size, hidden = d.rng.randint(1, 4), d.rng.randint(1, 3), 3, d.rng.randint(1, 4)
    way = d.rng.choice(("forward", "reverse", "bidirectional"))
    ways, gates = 1 + (way == "bidirectional"), {"RNN": 1, "GRU": 3, "LSTM": 4}[op] * hidden
    operands = [d.new((steps, batch, size), "f4", False), d.new((ways, gates, size), "f4", True),
                d.new((ways, gates, hidden), "f4", True)]  # fmt: skip
    operands.append(d.new((ways, 2 * gates), "f4", True) if d.flag() else "")
    lengths = np.asarray([d.rng.randint(1, steps) for _ in range(batch)], "i4")
    operands.append(d.hold(lengths, bool(d.flag())) if d.flag() else "")
    operands.append(d.new((ways, batch, hidden), "f4") if d.flag() else "")
    if op == "LSTM":
        operands.append(d.new((ways, batch, hidden), "f4") if d.flag() else "")
        operands.append(d.new((ways, 3 * hidden), "f4", True) if d.flag() else "")
    given: dict[str, Any] = {"hidden_size": hidden, "direction": way}
    if op == "GRU":
        given["linear_before_reset"] = d.flag()
    if d.flag():
        given["clip"] = 0.75
    if d.flag():
        given |= _activations(d, ways * {"RNN": 1, "GRU": 2, "LSTM": 3}[op])
    return operands, 3 if op == "LSTM" else 2, given


def _activations(d: _Draw, count: int) -> dict[str, Any]:
    """Of each gate; those that have an alpha, or a beta, have one."""
    kinds = {"Relu": "", "Tanh": "", "Sigmoid": "", "Softsign": "", "Softplus": "", "Elu": "a",
             "LeakyRelu": "a", "ThresholdedRelu": "a", "HardSigmoid": "ab", "ScaledTanh": "ab",
             "Affine": "ab"}  # fmt: skip
    names = [d.rng.choice(sorted(kinds)) for _ in range(count)]
    alphas = [d.rng.choice((0.25, 0.5)) for n in names if "a" in kinds[n]]
    betas = [d.rng.choice((0.25, 0.5)) for n in names if "b" in kinds[n]]
    return {
        "activations": names,
        "activation_alpha": alphas or None,
        "activation_beta": betas or None,
    }


@_draws("Scan", exact=True)
def _scan(d: _Draw, _: str) -> Any:
    """Sums along an axis of one operand, over another one; opset 8 has batches besides."""
    shape, axes = (3, 4), (d.rng.randint(-2, 1), d.rng.randint(-2, 1))
    line = shape[1 - axes[0] % 2]
    steps = shape[axes[0] % 2]
    other = [2, 2]
    other[axes[1] % 2] = steps
    back = {"scan_input_directions": [d.flag(), d.flag()], "scan_output_directions": [d.flag()]}
    given: dict[str, Any] = {"num_scan_inputs": 2}
    batch: tuple[int, ...] = ()
    if d.opset < 9:
        batch, shape, line, other = (2,), (3, 4), 4, [3, 2]
        given["directions"] = [d.flag(), d.flag()]
    else:
        given |= {**back, "scan_input_axes": list(axes), "scan_output_axes": [d.rng.randint(-2, 1)]}
    info = helper.make_tensor_value_info
    given["body"] = helper.make_graph(
        [helper.make_node("Add", ["state", "a"], ["next"]),
         helper.make_node("ReduceSum", ["b"], ["sum"], keepdims=1),
         helper.make_node("Add", ["next", "sum"], ["seen"])],
        "body",
        [info("state", TensorProto.FLOAT, [line]), info("a", TensorProto.FLOAT, [line]),
         info("b", TensorProto.FLOAT, [2])],
        [info("next", TensorProto.FLOAT, [line]), info("seen", TensorProto.FLOAT, [line])],
    )  # fmt: skip
    operands = [d.new((*batch, *s), "f4", False) for s in ((line,), shape, other)]
    return [*([""] if batch else []), *operands], 2, given


def _body(d: _Draw, name: str, made: str) -> tuple[Any, str]:
    op = d.rng.choice(("Neg", "Abs", "Relu", "Identity"))
    out = d.name("b")
    node = helper.make_node(op, [name], [out])
    return helper.make_graph([node], made, [], [helper.make_empty_tensor_value_info(out)]), out


@_draws("If", exact=True)
def _if(d: _Draw, _: str) -> Any:
    name = d.tensor("f")
    condition = d.hold(np.asarray(bool(d.flag())), bool(d.flag()))
    kind = helper.np_dtype_to_tensor_dtype(d.values[name].dtype)
    branches = {}
    for key in ("then_branch", "else_branch"):
        graph, out = _body(d, name, key)
        del graph.output[:]
        graph.output.append(helper.make_tensor_value_info(out, kind, d.values[name].shape))
        branches[key] = graph
    return [condition], branches


@_draws("Loop", exact=True)
def _loop(d: _Draw, _: str) -> Any:
    name = d.new(d.shape(2), "f4", False)
    info = helper.make_tensor_value_info
    shape = d.values[name].shape
    body = helper.make_graph(
        [helper.make_node("Add", ["state", name], ["next"]),
         helper.make_node("Identity", ["next"], ["seen"]),
         helper.make_node("Identity", ["on"], ["still"])],
        "body",
        [info("i", TensorProto.INT64, []), info("on", TensorProto.BOOL, []),
         info("state", TensorProto.FLOAT, shape)],
        [info("still", TensorProto.BOOL, []), info("next", TensorProto.FLOAT, shape),
         info("seen", TensorProto.FLOAT, shape)],
    )  # fmt: skip
    count = d.hold(np.asarray(d.rng.randint(0, 3), "i8"))
    return [count, d.hold(np.asarray(True)), d.new(shape, "f4")], 2, {"body": body}


EXTREME = [
    "Abs", "Neg", "Relu", "Identity", "Ceil", "Floor", "Round", "Sign", "IsNaN", "IsInf",
    "Not", "Add", "Sub", "Mul", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual",
    "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "Min", "Max",
    "Clip", "Where", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice",
    "Concat", "Split", "Tile", "Expand", "Trilu", "ReverseSequence", "Compress",
    "ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "ThresholdedRelu", "Shrink", "LeakyRelu", "PRelu",
]  # fmt: skip
"""Operators that are exact of NaN, infinities and the ends of types. Left out is what ONNX does not
define: floats as integers, integers divided, and the greatest of windows with NaN.
"""
EXTREMES = 0.25
"""Share of graphs that are extreme."""
OPSETS = (7, 8, 9, 10, 11, 12, 13, 15, 17, 18, 20, 21, 22, 23)


def draw(rng: random.Random, steps: int = 6, extremes: float = 0.0) -> Case:
    """A case of up to ``steps`` nodes; operators are drawn alike, and so are opsets. A share of
    ``extremes`` has exact operators alone, of the ends of types.
    """
    extreme = extremes > 0 and rng.random() < extremes
    d = _Draw(rng, rng.choice(OPSETS), extreme=extreme)
    wanted, tries = rng.randint(1, steps), 0
    while len(d.nodes) < wanted and tries < 8 * steps:
        tries += 1
        _draw_node(d, rng.choice(EXTREME) if extreme else "")
    return Case(d.opset, tuple(d.nodes), d.values, tuple(d.inputs), extreme)


def _draw_node(d: _Draw, op: str = "") -> None:
    op = op or d.rng.choice(sorted(DRAWS))
    rule, exact = DRAWS[op]
    if d.opset < 10 and op == "ThresholdedRelu":  # which ONNX Runtime has, and ONNX has not
        return
    try:
        _, operands, outputs, attributes = rule(d)
        names = [d.name("t") for _ in range(outputs)]
        node = helper.make_node(op, operands, names, name=d.name("n"), **attributes)
        read = _reads(node)
        case = Case(
            d.opset, (node,), d.values, tuple(i for i in read if i in d.inputs or i[0] == "t")
        )
        made = _runtime(case)
    except Exception:  # noqa: BLE001  # what makes no sense is drawn anew
        return
    if any(a.size > 20_000 for a in made) or not (d.extreme or all(map(_is_tame, made))):
        return
    d.nodes.append(node)
    d.values.update(zip(case.outputs, made, strict=True))
    if exact and all(i in d.exact for i in read):
        d.exact.update(names)


def nodes_of_all() -> Iterator[Case]:
    """Two nodes of each operator in each opset, where ONNX Runtime takes them."""
    for op, opset, seed in itertools.product(sorted(DRAWS), OPSETS, range(2)):
        d = _Draw(random.Random(f"{op} {opset} {seed}"), opset)
        _draw_node(d, op)
        if d.nodes:
            yield Case(opset, tuple(d.nodes), d.values, tuple(d.inputs))


def _is_tame(a: Array) -> bool:
    """Whether numbers are of a size at which roundings stay small."""
    if a.dtype.kind != "f":
        return True
    return bool(np.isfinite(a).all() and np.abs(a).max(initial=0) < 1e4)


# ---- quantised layers


@dataclass(frozen=True)
class Layer:
    """The nodes from bytes to bytes ``made``; ``exact`` where these round only once, at the end."""

    nodes: tuple[Any, ...]
    made: str
    exact: bool = False


@dataclass(frozen=True)
class Layers:
    """A network of bytes between operators on floats, all of whose bytes are outputs."""

    case: Case
    layers: tuple[Layer, ...]


@dataclass
class _Bytes:
    """Layers that are drawn; ``steps`` are the names of scale and zero point of each bytes.

    ``exact``: scales are powers of two, and so sums of products have no rounding before the last,
    which often is of a half.
    """

    d: _Draw
    exact: bool = False
    layers: list[Layer] = field(default_factory=list)
    steps: dict[str, tuple[str, str]] = field(default_factory=dict)

    def floats(self, nodes: list[Any], name: str) -> str:
        out = self.d.name("f")
        nodes.append(helper.make_node("DequantizeLinear", [name, *self.steps[name]], [out]))
        return out

    def add(self, nodes: list[Any], float_name: str, like: str = "", exact: bool = False) -> None:
        """Quantise a float, in the steps of ``like`` or in ones that its values need."""
        d, made = self.d, self.d.name("t")
        y = self.run(nodes) if nodes else d.values[float_name]
        if like:
            steps = self.steps[like]
        else:
            kind = np.dtype(d.rng.choice(("u1", "i1")))
            zero = d.hold(np.asarray(d.rng.randint(0, 255) - 128 * (kind == np.int8), kind))
            scale = max(float(np.abs(y).max(initial=0)), 0.1) / d.rng.uniform(90, 260)
            scale = 2.0 ** round(math.log2(scale)) if self.exact else scale
            steps = d.hold(np.asarray(scale, "f4")), zero
        self.steps[made] = steps
        nodes.append(helper.make_node("QuantizeLinear", [float_name, *steps], [made]))
        d.values[made] = self.run(nodes)
        self.layers.append(Layer(tuple(nodes), made, exact))

    def run(self, nodes: list[Any]) -> Array:
        """What ONNX Runtime makes of nodes with one result."""
        given = tuple(i for i in self.d.values if i[0] != "c")
        (made,) = _runtime(Case(self.d.opset, tuple(nodes), self.d.values, given))
        return made

    def weight(self, nodes: list[Any], shape: tuple[int, ...], axis: int) -> str:
        """A constant of bytes with a scale for each filter, or one for all."""
        d, out = self.d, self.d.name("f")
        by = shape[axis] if d.flag() else 1
        found = np.asarray([d.rng.uniform(0.002, 0.02) for _ in range(by)], "f4")
        found = 2.0 ** np.round(np.log2(found)) if self.exact else found
        w = d.hold(d.array(shape, "i1", -127, 127))
        zero = np.zeros(by, "i1")
        if by == 1:
            found, zero = found[0], zero[0]
        operands = [w, d.hold(found), d.hold(zero)]
        given: dict[str, Any] = {"axis": axis} if by > 1 else {}
        nodes.append(helper.make_node("DequantizeLinear", operands, [out], **given))
        return out


def draw_layers(rng: random.Random) -> Layers:
    """A network of two to five layers, each from bytes to bytes."""
    d = _Draw(rng, rng.choice((13, 17, 21)))
    net = _Bytes(d, bool(d.flag()))
    shape = 1, rng.choice((3, 4, 8, 16)), rng.randint(4, 9), rng.randint(4, 9)
    drawn = np.random.default_rng(rng.getrandbits(32))
    net.add([], d.hold(drawn.standard_normal(shape).astype("f4"), False))
    for _ in range(rng.randint(2, 5)):
        _draw_layer(net)
    made = [x.made for x in net.layers]
    ends = [helper.make_node("Identity", [i], [f"{i} out"]) for i in made]
    nodes = (*(n for x in net.layers for n in x.nodes), *ends)
    values = {**d.values, **{f"{i} out": d.values[i] for i in made}}
    return Layers(Case(d.opset, nodes, values, tuple(d.inputs)), tuple(net.layers))


def _draw_layer(net: _Bytes) -> None:
    d, rng, nodes = net.d, net.d.rng, list[Any]()
    images = [x.made for x in net.layers if d.values[x.made].ndim == 4]
    name = rng.choice(images[-2:])
    channels, *sides = d.values[name].shape[1:]
    x, out = net.floats(nodes, name), d.name("f")
    given: dict[str, Any] = {}
    op = rng.choice(("Conv", "Conv", "Conv", "Add", "MaxPool", "Concat", "Gemm", "Mean"))
    if op == "MaxPool":
        if min(sides) < 3:
            return
        given = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [rng.choice((1, 2))] * 2}
        nodes.append(helper.make_node("MaxPool", [x], [out], **given))
        same = rng.random() < 0.7
        net.add(nodes, out, name if same else "", exact=same)
        return
    if op in ("Add", "Concat"):
        fits = [i for i in images if d.values[i].shape == d.values[name].shape]
        other = net.floats(nodes, rng.choice(fits))
        given |= {"axis": 1} if op == "Concat" else {}
        nodes.append(helper.make_node(op, [x, other], [out], **given))
    elif op == "Mean":
        nodes.append(helper.make_node("GlobalAveragePool", [x], [out]))
    elif op == "Gemm":
        flat = d.name("f")
        nodes.append(helper.make_node("Flatten", [x], [flat]))
        w = net.weight(nodes, (channels * sides[0] * sides[1], 6), 1)
        nodes.append(helper.make_node("MatMul", [flat, w], [out]))
    else:
        filters, size = rng.choice((4, 8, 16)), rng.choice((1, 3))
        groups = rng.choice((1, 1, channels))
        filters = channels if groups > 1 else filters
        w = net.weight(nodes, (filters, channels // groups, size, size), 0)
        bias = [d.new((filters,), "f4", True)] if d.flag() else []
        pads, step = [size // 2] * 4, rng.choice((1, 1, 2))
        nodes.append(
            helper.make_node(
                "Conv", [x, w, *bias], [out], group=groups, pads=pads, strides=[step] * 2,
                kernel_shape=[size, size],
            )
        )  # fmt: skip
    if d.flag():
        relu = d.name("f")
        nodes.append(helper.make_node("Relu", [out], [relu]))
        out = relu
    net.add(nodes, out, exact=net.exact and op != "Mean")


def compare_layers(drawn: Layers) -> str:
    """What differs in a layer from what ONNX Runtime makes of the same bytes, but by one step where
    roundings of floats decide between two bytes; "" where nothing does.
    """
    case = drawn.case
    try:
        made = dict(zip(case.outputs, ours_of(case), strict=True))
    except Exception as error:  # noqa: BLE001  # any error is a finding
        return f"refused: {type(error).__name__}: {error}"
    made_of = {x.made: made[f"{x.made} out"] for x in drawn.layers}
    values = {**case.values, **made_of}
    for layer in drawn.layers:
        given = (*case.inputs, *(i for i in made_of if i != layer.made))
        (want,) = _runtime(Case(case.opset, layer.nodes, values, given))
        got = made_of[layer.made]
        if (got.dtype, got.shape) != (want.dtype, want.shape):
            return f"{layer.made} is {got.dtype}{list(got.shape)}, not {want.dtype}{want.shape}"
        apart = np.abs(got.astype(int) - want)
        wrong = apart > _undecided(layer, replace(case, values=values, inputs=given))
        if wrong.any():
            ops = " ".join(n.op_type for n in layer.nodes)
            return f"{layer.made} ({ops}): {wrong.sum()} of {want.size}, by {apart[wrong].max()}"
    return ""


def _undecided(layer: Layer, case: Case) -> Array:
    """1 where the float of a byte lies as near to the middle of two as roundings move it, else 0.

    Sums of products of bytes have some hundred terms, a few times as large as the sums.
    """
    *nodes, last = layer.nodes
    name, scale, _ = last.input
    y = _runtime(replace(case, nodes=tuple(nodes)))[0] if nodes else case.values[name]
    steps = np.abs(y.astype(np.float64)) / case.values[scale]
    off = 2.0**-18 * (steps + steps.max(initial=0.0))
    return np.asarray((np.abs(steps % 1 - 0.5) <= off) & (not layer.exact), int)


# ---- at length


def ours(said: str) -> bool:
    """Return True where ``compare`` says that it is the loaded model that is wrong."""
    return said != "" and not said.startswith(("drawn", "judged"))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _unread(counted: Counter[tuple[str, str]]) -> Iterator[str]:
    """Operators whose results an operator never read."""
    for reader in sorted(DRAWS):
        never = sorted(m for m in DRAWS if (m, reader) not in counted)
        yield f"{reader} never read {len(never)}: {' '.join(never)}"
    yield f"{len(counted)} of {len(DRAWS) ** 2} pairs"


def main(arguments: Sequence[str]) -> None:
    """Draw many graphs, report every one that differs, and what was drawn together."""
    count = int(arguments[0]) if arguments else 200
    seed = int(arguments[1]) if len(arguments) > 1 else fuzzing.fix_seed()
    counted, found = Counter[tuple[str, str]](), Counter[str]()
    nodes = 0
    for i in range(count):
        layers = draw_layers(random.Random(f"{seed} layers {i}"))
        if said := compare_layers(layers):
            found["layers"] += 1
            _say(f"--- layers {i}: {said}\n{layers.case}")
        case = draw(random.Random(f"{seed} onnx {i}"), extremes=EXTREMES)
        counted += pairs(case)
        nodes += len(case.nodes)
        said = compare(case) if case.nodes else ""
        if not said:
            continue
        key = _key(said)
        small = shrunk(case, lambda c, key=key: _key(compare(c)) == key)  # type: ignore[misc]
        found[f"{key} {' '.join(n.op_type for n in small.nodes)}"] += 1
        _say(f"--- graph {i}: {said}\n{small}\n{compare(small)}")
    for line in _unread(counted):
        _say(line)
    _say(f"seed {seed}: {count} graphs, {nodes} nodes; {dict(found)}")


def _key(said: str) -> str:
    return "wrong" if ours(said) else said.split(": ", maxsplit=1)[0]


if __name__ == "__main__":
    main(sys.argv[1:])
