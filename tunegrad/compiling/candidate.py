"""Work of the worker processes on a candidate: lower it, draw its kernel's inputs, compute the
expected outputs.

The workers import the functions below by name (``HOOKS``); a payload carries all they are told.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad import devices
from tunegrad.compiling.artifact import build
from tunegrad.devices import Device, Hooks, KernelIO, Lowered, Reference, run_on_host
from tunegrad.devices.verifying import Bar, Kind, applied, drawing, kinds_of, tolerance
from tunegrad.errors import CompileFailure, IllegalAction
from tunegrad.ir import rounding
from tunegrad.ir.dtypes import F32, F64
from tunegrad.ir.expr import Op
from tunegrad.ir.interpret.evaluate import in_float64, unrounded
from tunegrad.ir.interpret.kernel import (
    folds_at,
    interpret,
    interpret_at,
    interpret_steps,
    one_blas_thread,
)
from tunegrad.ir.interpret.numeric import to_compute
from tunegrad.ir.kernel import Kernel, Param
from tunegrad.ir.program import Program
from tunegrad.lazy import dataclass
from tunegrad.opts import Schedule, Space, longest_chain

Array = NDArray[Any]

HOOKS: Hooks = Hooks(
    *(f"{__name__}:{name}" for name in ("lower", "inputs", "reference", "kinds", "changed"))
)

SAMPLED_WORK = 500_000_000
"""Steps of scalar code (about half a second) above which a reference is a sample of the outputs."""

INTERPRETED_STEPS = 8_000_000
"""Steps of the interpreter (some 0.2 s) up to which it is the reference of every element."""

_SAMPLE_STEPS = 4_000_000
"""Steps that the interpreter takes for a sample, about."""

_CHECK_STEPS = 500_000
"""Steps that it takes to check a compiled reference, about."""

_BOUND_STEPS = 400_000
"""Steps up to which the bounds of every element's error are worked out; beyond, of a sample."""

_LARGE = 2.0**32
"""Of inputs: sums and products of few smaller ones do not overflow."""

_FEWEST = 64
"""Points of a sample, at least."""

_AXIS_SAMPLES = 1024
"""Coordinates of one axis that a sample is sure to hold."""


@dataclass(frozen=True, slots=True)
class Payload:
    """One candidate as it travels: the schedule is text, as in the store.

    Its kernel is pickled once by the sender and read once by the receiver: every candidate of it
    brings the same bytes.
    """

    kernel: Kernel
    actions: str
    device: Device

    def __reduce__(self) -> tuple[Callable[..., Payload], tuple[bytes, str, Device]]:
        return _payload, (_packed(self.kernel), self.actions, self.device)


@lru_cache(maxsize=64)
def _packed(kernel: Kernel) -> bytes:
    return pickle.dumps(kernel)


@lru_cache(maxsize=64)
def _unpacked(kernel: bytes) -> Kernel:
    found: Kernel = pickle.loads(kernel)  # noqa: S301  # from the process that started this one
    return found


def _payload(kernel: bytes, actions: str, device: Device) -> Payload:
    return Payload(_unpacked(kernel), actions, device)


def lower(payload: Payload) -> Lowered:
    """The candidate in its device's language.

    Raises CompileFailure for an illegal schedule, OutOfResources for a huge program.
    """
    try:
        return build(payload.kernel, Schedule.parse(payload.actions), payload.device)
    except IllegalAction as error:
        raise CompileFailure(f"illegal: {error}") from error


def kinds(payload: Payload) -> tuple[Kind, ...]:
    """The kinds of a kernel's input sets, the one that is timed first."""
    return kinds_of(payload.kernel)


def inputs(payload: Payload, io: KernelIO, seed: int, kind: Kind = "ordinary") -> dict[str, Array]:
    """Fresh inputs in each buffer's layout; padding is poison, and no integer divisor is zero."""
    return drawing.draw_set(payload.kernel, io, seed, kind)


def changed(
    payload: Payload, arrays: Mapping[str, Array], seed: int
) -> tuple[dict[str, Array], Callable[[], dict[str, Reference]]]:
    """A set like the first one's ``arrays``, in which half of the elements that a kernel reads
    stand at other places, and a function that gives its references.

    Those by which code may know inputs again stay: the first and the last ones, and others that
    are drawn. What keeps results for inputs that it knows again is wrong here.
    """
    found = drawing.changed_inputs(payload.kernel, arrays, seed)
    return found, lambda: reference(payload, found, few=True)


def reference(
    payload: Payload, arrays: Mapping[str, Array], few: bool = False
) -> dict[str, Reference]:
    """Expected values of every output, in float64: one for each element, or a sample, where that
    takes long, or where a ``few`` are enough.

    The interpreter works it out with numpy, where nothing of lowering, rendering or LLVM takes
    part; what is stored in 16 bits is not rounded to them. Where that takes long and the
    unscheduled kernel, compiled, does not, its results are taken, and the interpreter checks a
    sample of them: where they differ the reference has a fault, and no candidate is right.
    """
    one_blas_thread()
    chain = longest_chain(payload.device.target)
    rounded = rounding.roundings(
        payload.kernel, drawing.drawn_values(payload.kernel, arrays), chain
    )
    within = rounding.rounded_within(payload.kernel)
    kernel = unrounded(payload.kernel)
    found = _values(kernel, arrays, rounded, few)
    tipped = _tipped(kernel, arrays, rounded, few, found)
    bounds, slack = _bounds(kernel, arrays, rounded), _slack(kernel, arrays, rounded, found)
    signed = _keeps_signs(kernel)
    found = {
        name: replace(
            r,
            within=within,
            bounds=_of_each(r, bounds.get(name)),
            signed=signed,
            slack=slack.get(name, 0.0),
        )
        for name, r in found.items()
    }
    found = {name: _left_out(r, tipped.get(name)) for name, r in found.items()}
    decided = _without_overflows(payload.kernel, arrays, found)
    return {name: drawing.judgeable(r) for name, r in decided.items()}


def _values(
    kernel: Kernel, arrays: Mapping[str, Array], rounded: Mapping[str, rounding.Rounded], few: bool
) -> dict[str, Reference]:
    """Values of every output, of a sample where that takes long."""
    if interpret_steps(kernel) <= (_CHECK_STEPS if few else INTERPRETED_STEPS):
        return _whole(kernel, interpret(kernel, arrays, as_float64=True), rounded)
    if work(kernel) <= SAMPLED_WORK and not few:
        found = _whole(kernel, _compiled(kernel, arrays), rounded)
        sample = _sampled(kernel, arrays, sample_points(kernel, steps=_CHECK_STEPS))
        return {name: _checked(r, *sample[name]) for name, r in found.items()}
    steps = _CHECK_STEPS if few else _SAMPLE_STEPS
    sample = _sampled(kernel, arrays, sample_points(kernel, steps=steps))
    return {name: _reference(values, rounded[name], at) for name, (at, values) in sample.items()}


def _slack(
    kernel: Kernel,
    arrays: Mapping[str, Array],
    rounded: Mapping[str, rounding.Rounded],
    found: Mapping[str, Reference],
) -> dict[str, float]:
    """How far few results are off by roundings of sums whose terms cancel.

    Such a sum has roundings of partial sums, which are as large as a walk of its terms: the root of
    the sum of their squares. Of many results the root mean square says it, of few they may all be
    small. So sums are moved by what a walk of that size may be off.
    """
    few = [
        n
        for n, r in rounded.items()
        if kernel.param(n).dtype.is_float and r.count is None
        if found[n].values.size < drawing.MANY_SUMS
    ]
    both, squares = rounding.with_squares(kernel)
    if not few or not squares:
        return {}
    read, points = _read(kernel, arrays), sample_points(kernel, steps=_CHECK_STEPS)
    known = folds_at(both, read, points, as_float64=True)
    slack, chain = dict.fromkeys(few, 0.0), max(rounded[n].chain for n in few)
    right = interpret_at(kernel, read, points, as_float64=True, known=known)
    with np.errstate(invalid="ignore", over="ignore"):
        for way in (0.5, -0.5):
            moved = {
                r.name: known[r.name]
                + way * tolerance(r.dtype, chain, np.ones(1)) * np.sqrt(known[squares[r.name]])
                for r in kernel.reduces
                if r.name in squares
            }
            off = interpret_at(kernel, read, points, as_float64=True, known=known | moved)
            for n in few:
                apart = np.abs(off[n][1] - right[n][1])
                slack[n] = float(apart.max(initial=slack[n], where=np.isfinite(apart)))
    return slack


def _tipped(
    kernel: Kernel,
    arrays: Mapping[str, Array],
    rounded: Mapping[str, rounding.Rounded],
    few: bool,
    found: Mapping[str, Reference],
) -> dict[str, NDArray[np.bool_]]:
    """Masks of the floats behind a rounding to whole numbers that are others once sums are as far
    off as they may be, of results that are not exact.
    """
    tips = {n for n, r in rounded.items() if r.count != 0 and kernel.param(n).dtype.is_float}
    if not tips or not rounding.steps_after_sums(kernel):
        return {}
    points = sample_points(kernel, steps=_CHECK_STEPS)
    sums = folds_at(kernel, _read(kernel, arrays), points, as_float64=True)
    unit = tolerance(F32, max(1, *(r.chain for r in rounded.values())), np.ones(1))[0] / 2
    masks: dict[str, NDArray[np.bool_]] = {}
    for way in (unit, -unit):
        by = {n: way * float(np.sqrt(np.mean(np.square(v)))) for n, v in sums.items() if v.size}
        moved = _values(rounding.with_moved_sums(kernel, way, by), arrays, rounded, few)
        for name in tips:
            r = found[name]
            smooth = _SMOOTH * tolerance(kernel.param(name).dtype, r.terms, r.values)
            other = np.abs(r.values - moved[name].values) > smooth
            masks[name] = masks.get(name, False) | other
    return masks


def _left_out(r: Reference, mask: NDArray[np.bool_] | None) -> Reference:
    """The reference with infinite bounds where a mask is."""
    if mask is None or not mask.any():
        return r
    bounds = np.full(r.values.shape, np.nan, np.float32) if r.bounds is None else r.bounds
    return replace(r, bounds=np.where(mask, np.float32(np.inf), bounds))


_SMOOTH = 4.0
"""Times the tolerance that a result moves, at most, by a sum that is off and rounds to the same."""

_SIGNED = frozenset((
    Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.FMA, Op.NEG, Op.ABS, Op.SQRT, Op.RECIP, Op.WHERE, Op.AND,
    Op.OR, Op.XOR, Op.NOT, Op.FLOOR, Op.ROUND,
))  # fmt: skip
"""Operations whose zeros have a sign that follows from their arguments' in every order. Of a
maximum of 0 and -0 processors give the second argument, and sums may begin at 0 or at a term.
"""


def _keeps_signs(kernel: Kernel) -> bool:
    """True where a zero that a kernel computes has one sign."""
    found = (x.op for s in kernel.stages for x in applied(s.expr))
    return not kernel.reduces and all(op in _SIGNED or op.compares for op in found)


def _without_overflows(
    kernel: Kernel, arrays: Mapping[str, Array], found: Mapping[str, Reference]
) -> dict[str, Reference]:
    """The references, undecided where the kernel's own dtypes overflow on the way to a finite
    result: of a few elements among many, which a sample of them need not show.
    """
    read = _read(kernel, arrays)
    if not any(_is_large(memory, kernel.param(name)) for name, memory in read.items()):
        return dict(found)
    if interpret_steps(kernel) <= INTERPRETED_STEPS:
        narrow = interpret(kernel, arrays)
    elif work(kernel) <= SAMPLED_WORK:
        narrow = run_on_host(_oracle(kernel), read)
    else:
        narrow = {}
        for name, (at, values) in interpret_at(kernel, read, sample_points(kernel)).items():
            narrow[name] = np.zeros(kernel.param(name).size, values.dtype)
            narrow[name][at] = values
    return {
        name: _undecided(r, to_compute(narrow[name], kernel.param(name).dtype))
        if kernel.param(name).dtype in (F32, F64)
        else r
        for name, r in found.items()
    }


def _read(kernel: Kernel, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays that a kernel reads, by parameter."""
    return {p.name: arrays[p.name] for p in kernel.params if p.role != "out"}


def _is_large(memory: Array, p: Param) -> bool:
    """True where a parameter has finite numbers that may overflow on the way."""
    if not p.dtype.is_float or p.dtype.is_pair:
        return False
    values = np.abs(to_compute(memory, p.dtype))
    return bool(values[np.isfinite(values)].max(initial=0.0) >= _LARGE)


def _undecided(r: Reference, narrow: Array) -> Reference:
    """The reference with infinite bounds where it is finite and ``narrow`` is not."""
    here = narrow if r.indices is None else narrow[r.indices]
    return _left_out(r, np.isfinite(r.values) & ~np.isfinite(here))


def _bounds(
    kernel: Kernel, arrays: Mapping[str, Array], rounded: Mapping[str, rounding.Rounded]
) -> dict[str, Array]:
    """Distance that each element of an output may have from its reference, NaN where it is not
    known; outputs of which nothing is known are left out.

    Of kernels that compute functions, and of those without sums: of sums of products the walk of
    roundings is the better bound. Where there are many steps, of some elements alone. A comparison
    that may go either way is looked for at every element, whatever it stands beside: a relu's
    gradient in a convolution compares what it computes again.
    """
    if all(r.count == 0 for r in rounded.values()):
        return {}
    read = _read(kernel, arrays)
    found: dict[str, Array] = {}
    if not kernel.reduces or drawing.float_operations(kernel) & rounding.IN_STEPS:
        few = work(kernel) > _BOUND_STEPS
        points = sample_points(kernel, steps=_BOUND_STEPS) if few else None
        for name, (offsets, bounds) in (
            rounding.error_bounds_at(kernel, read, points) or {}
        ).items():
            found[name] = np.full(kernel.param(name).size, np.nan, np.float32)
            with np.errstate(over="ignore"):
                found[name][offsets] = bounds * (1 + 2.0**-20)
    decisions = rounding.decisions_of(kernel)
    if decisions is not None and (decisions is not kernel or work(kernel) > _BOUND_STEPS):
        for name, (offsets, bounds) in (
            rounding.error_bounds_at(decisions, read, None) or {}
        ).items():
            every = found.setdefault(name, np.full(kernel.param(name).size, np.nan, np.float32))
            every[offsets[np.isposinf(bounds)]] = np.inf
    return found


def _of_each(r: Reference, bounds: Array | None) -> Array | None:
    """The bounds of the elements of a reference."""
    return bounds if bounds is None or r.indices is None else bounds[r.indices]


def _whole(
    kernel: Kernel, values: Mapping[str, Array], rounded: Mapping[str, rounding.Rounded]
) -> dict[str, Reference]:
    """References of every element that is no padding."""
    found = {}
    for p in kernel.outputs:
        gaps = drawing.gaps_of(p)
        indices = None if gaps is None else np.flatnonzero(~gaps)
        each = values[p.name] if indices is None else values[p.name][indices]
        found[p.name] = _reference(each, rounded[p.name], indices)
    return found


def _reference(values: Array, rounded: rounding.Rounded, indices: Array | None) -> Reference:
    return Reference(_comparable(values), max(1, rounded.chain), indices, rounded.count)


def _checked(r: Reference, offsets: Array, expected: Array) -> Reference:
    """The reference, with a fault where the interpreter differs at elements ``offsets``."""
    at = offsets if r.indices is None else np.searchsorted(r.indices, offsets)
    dtype, count = ("f64", None) if r.values.dtype.kind == "f" else ("i64", 0)
    verdict = Bar.of(dtype, Reference(expected, r.terms, roundings=count)).judge(r.values[at])
    if verdict.first < 0:
        return r
    place = int(offsets[verdict.first])
    return replace(r, fault=(
        f"the reference is not to be trusted: element {place} is {verdict.got:.17g} compiled "
        "without a schedule and "
        f"{verdict.expected:.17g} as numpy has it ({verdict.bad} of {len(offsets)} elements "
        "differ); this is a mistake "
        "of tunegrad's lowering, renderer or compiler, and no candidate of this kernel can win"
    ))  # fmt: skip


def work(kernel: Kernel) -> int:
    """Steps of scalar code that one run of the unscheduled kernel takes."""
    return kernel.points * sum(prod(a.extent for a in s.axes) for s in kernel.stages)


def sample_points(kernel: Kernel, steps: int = _SAMPLE_STEPS) -> dict[str, Array]:
    """Points of the shared axes to compare: every corner, every coordinate of every axis, and
    random ones.

    Every tile's border is among them, whatever the tiles; of a very long axis, the ends and a
    spread. Where that many take more than ``steps`` steps of the interpreter, corners and random
    points alone.
    """
    rng = np.random.default_rng(0)
    axes = kernel.axes
    fewest = _FEWEST if steps >= _SAMPLE_STEPS else 2
    most = max(fewest, steps // max(1, work(kernel) // max(1, kernel.points)))
    corners = list(product(*((0, a.extent - 1) for a in axes[:8])))[:most]
    rows = [
        np.array([[*c, *(0 for _ in axes[8:])] for c in corners], np.int64).reshape(
            len(corners), len(axes)
        )
    ]
    if steps >= _SAMPLE_STEPS:
        for i, a in enumerate(axes):
            line = np.unique(
                np.linspace(0, a.extent - 1, min(a.extent, _AXIS_SAMPLES)).astype(np.int64)
            )
            rows.append(drawing.random_rows(rng, kernel, len(line)))
            rows[-1][:, i] = line
    extra = min(kernel.points, most) - sum(len(r) for r in rows)
    rows.append(drawing.random_rows(rng, kernel, max(fewest, extra)))
    if not axes:
        return {}
    shape = tuple(a.extent for a in axes)
    places = np.sort(np.ravel_multi_index(tuple(np.concatenate(rows).T), shape))
    places = places[np.diff(places, prepend=-1) > 0]
    return {a.name: at for a, at in zip(axes, np.unravel_index(places, shape), strict=True)}


def _sampled(
    kernel: Kernel, arrays: Mapping[str, Array], points: Mapping[str, Array]
) -> dict[str, tuple[Array, Array]]:
    """Elements and their values by output, as numpy has them at these points."""
    read = _read(kernel, arrays)
    return interpret_at(kernel, read, points, as_float64=True)


def _compiled(kernel: Kernel, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Every output of the float64 kernel, run here and now on one thread."""
    wide = in_float64(kernel)
    return run_on_host(_oracle(wide), _read(wide, arrays))


@lru_cache(maxsize=2)
def _oracle(wide: Kernel) -> Program:
    """The unscheduled kernel for this machine: a kernel's input sets come one after the other."""
    return Space(wide, devices.host_device().target).lower(Schedule(()))


def _comparable(values: Array) -> Array:
    """Floats in f64, integers in i64, but for u64, whose upper half that does not hold."""
    if values.dtype == np.uint64:
        return values
    return values.astype(np.float64 if values.dtype.kind == "f" else np.int64, copy=False)
