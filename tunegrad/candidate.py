"""What the worker processes do with a candidate: lower it, draw its kernel's inputs, compute what it must give.

The workers import the functions below by name (``HOOKS``); a payload carries all they are told.
"""

from __future__ import annotations

import ctypes
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.artifact import build
from tunegrad.devices import Buffer, BufferTable, Executable, Hooks, KernelIO, Lowered, Reference, compile_llvm
from tunegrad.devices.inputs import draw_inputs
from tunegrad.errors import CompileFailure, IllegalAction
from tunegrad.ir.expr import Apply, Cast, Expr, Op
from tunegrad.ir.interpret_kernel import interpret_at
from tunegrad.ir.kernel import Kernel, Param, Reduce
from tunegrad.ir.reference import in_float64
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule

__all__ = ["HOOKS", "SAMPLED_WORK", "Payload", "inputs", "lower", "reference", "sample_points", "work"]

Array = NDArray[Any]

HOOKS = Hooks("tunegrad.candidate:lower", "tunegrad.candidate:inputs", "tunegrad.candidate:reference")

SAMPLED_WORK = 500_000_000
"""Steps of scalar code (about half a second) above which a reference is a sample of the outputs."""

_SAMPLE_STEPS = 4_000_000
"""Steps that the interpreter takes for a sample, about."""

_AXIS_SAMPLES = 1024
"""Coordinates of one axis that a sample is sure to hold."""


@dataclass(frozen=True, slots=True)
class Payload:
    """One candidate as it travels: the schedule is text, as in the store.

    Its kernel is pickled once by who sends and read once by who receives: every candidate of it brings the same bytes.
    """

    kernel: Kernel
    actions: str
    target: Target

    def __reduce__(self) -> tuple[Callable[..., Payload], tuple[bytes, str, Target]]:
        return _payload, (_packed(self.kernel), self.actions, self.target)


@lru_cache(maxsize=64)
def _packed(kernel: Kernel) -> bytes:
    return pickle.dumps(kernel)


@lru_cache(maxsize=64)
def _unpacked(kernel: bytes) -> Kernel:
    found: Kernel = pickle.loads(kernel)  # noqa: S301  # from the process that started this one
    return found


def _payload(kernel: bytes, actions: str, target: Target) -> Payload:
    return Payload(_unpacked(kernel), actions, target)


def lower(payload: Payload) -> Lowered:
    """The candidate as LLVM IR. Raises CompileFailure for an illegal schedule, OutOfResources for a huge program."""
    try:
        return build(payload.kernel, Schedule.parse(payload.actions), payload.target)
    except IllegalAction as error:
        raise CompileFailure(f"illegal: {error}") from error


def inputs(payload: Payload, io: KernelIO, seed: int) -> dict[str, Array]:
    """Fresh inputs in each buffer's layout; padding is zero, and so is no integer that something is divided by."""
    kernel = payload.kernel
    drawn = draw_inputs(io, seed, kernel.key)
    divides = any(_has_integer_division(s.expr) for s in kernel.stages)
    for p in kernel.params:
        if p.role == "out":
            continue
        gaps = _gaps(p)
        if gaps is not None:
            drawn[p.name][gaps] = 0
        if divides and p.dtype.is_int:
            drawn[p.name][drawn[p.name] == 0] = 1
    return drawn


def reference(payload: Payload, arrays: Mapping[str, Array]) -> dict[str, Reference]:
    """What every output must be: the unscheduled kernel in float64, compiled; or a sample, where that takes long."""
    kernel = payload.kernel
    terms = max(1, sum(_roundings(r) * prod(a.extent for a in r.axes) for r in kernel.reduces))
    if work(kernel) > SAMPLED_WORK:
        return _sampled(kernel, arrays, terms)
    values = _compiled(kernel, arrays, payload.target)
    found = {}
    for p in kernel.outputs:
        gaps = _gaps(p)
        indices = None if gaps is None else np.flatnonzero(~gaps)
        found[p.name] = Reference(
            _comparable(values[p.name] if indices is None else values[p.name][indices]), terms, indices
        )
    return found


def _roundings(r: Reduce) -> int:
    """How often one fold step rounds: a product of pairs is added in two steps."""
    return 2 if isinstance(r.expr, Apply) and r.expr.op is Op.DOT2 else 1


def work(kernel: Kernel) -> int:
    """Steps of scalar code that one run of the unscheduled kernel takes."""
    return kernel.points * sum(prod(a.extent for a in s.axes) for s in kernel.stages)


def sample_points(kernel: Kernel, seed: int = 0) -> dict[str, Array]:
    """Points of the shared axes to compare: every corner, every coordinate of every axis, and random ones.

    Every tile's border is among them, whatever the tiles; of a very long axis, the ends and a spread.
    """
    rng = np.random.default_rng(seed)
    axes = kernel.axes
    corners = list(product(*((0, a.extent - 1) for a in axes[:8])))
    rows = [np.array([[*c, *(0 for _ in axes[8:])] for c in corners], np.int64).reshape(len(corners), len(axes))]
    for i, a in enumerate(axes):
        line = np.unique(np.linspace(0, a.extent - 1, min(a.extent, _AXIS_SAMPLES)).astype(np.int64))
        rows.append(_random_rows(rng, kernel, len(line)))
        rows[-1][:, i] = line
    steps = max(1, work(kernel) // max(1, kernel.points))
    extra = min(kernel.points, _SAMPLE_STEPS // steps) - sum(len(r) for r in rows)
    rows.append(_random_rows(rng, kernel, max(64, extra)))
    points = np.unique(np.concatenate(rows), axis=0)
    return {a.name: points[:, i] for i, a in enumerate(axes)}


def _random_rows(rng: np.random.Generator, kernel: Kernel, count: int) -> Array:
    columns = [rng.integers(0, a.extent, count) for a in kernel.axes]
    return np.stack(columns, axis=1) if columns else np.zeros((count, 0), np.int64)


def _sampled(kernel: Kernel, arrays: Mapping[str, Array], terms: int) -> dict[str, Reference]:
    read = {p.name: arrays[p.name] for p in kernel.params if p.role != "out"}
    found = interpret_at(kernel, read, sample_points(kernel), as_float64=True)
    return {name: Reference(_comparable(values), terms, offsets) for name, (offsets, values) in found.items()}


def _compiled(kernel: Kernel, arrays: Mapping[str, Array], target: Target) -> dict[str, Array]:
    """Every output of the float64 kernel, run here and now on one thread."""
    wide = in_float64(kernel)
    program, image = _oracle(wide, target)
    buffers = {p.name: Buffer(p.nbytes) for p in wide.params}
    for p in wide.params:
        if p.role != "out":
            buffers[p.name].array(p.dtype.name)[:] = arrays[p.name]
    table = BufferTable([buffers[p.name].address for p in program.io.params])
    workspace = Buffer(program.workspace_bytes)
    with Executable.load(image, program.name) as executable:
        entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
        entry(executable.address)(table.address, workspace.address, 0, None)
    return {p.name: buffers[p.name].array(p.dtype.name).copy() for p in wide.outputs}


@lru_cache(maxsize=1)
def _oracle(wide: Kernel, target: Target) -> tuple[Lowered, bytes]:
    """The unscheduled kernel as code: a kernel's input sets come one after the other."""
    program = build(wide, Schedule(()), target)
    return program, compile_llvm(program.text, target)


def _comparable(values: Array) -> Array:
    return values.astype(np.float64 if values.dtype.kind == "f" else np.int64, copy=False)


def _gaps(p: Param) -> NDArray[np.bool_] | None:
    """Which elements of a parameter's memory are padding; None where none is."""
    if p.size == prod(p.shape):
        return None
    empty: NDArray[np.bool_] = p.layout.pack(np.ones(p.shape, np.uint8)) == 0
    return empty


def _has_integer_division(x: Expr) -> bool:
    stack: list[Expr] = [x]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Apply):
            if node.op in (Op.FLOORDIV, Op.MOD) and node.dtype.is_int:
                return True
            stack.extend(node.args)
        elif isinstance(node, Cast):
            stack.append(node.x)
    return False
