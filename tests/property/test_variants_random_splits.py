"""Random reductions: both halves of a split are verified kernels and compute the direct one's
result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from variant_builders import kernel_of, only

from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import F32, F64, I32, DType
from tunegrad.ir.fusion import LaunchPlan
from tunegrad.ir.interpret.kernel import interpret
from tunegrad.ir.variants import Split, split
from tunegrad.ir.verify.kernel import verify_kernel

Array = NDArray[Any]
OPS = ("sum", "max", "min", "prod")
EPILOGUES = ("none", "scale", "bias", "sqrt")
TERMS = ("x", "square", "shifted", "flipped", "padded", "product", "position")


@dataclass(frozen=True, slots=True)
class Fold:
    """``op`` of ``term`` of x over the dimensions ``axes``, with an epilogue."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    op: str
    term: str
    epilogue: str
    dtype: DType

    @property
    def inputs(self) -> dict[str, Array]:
        rng = np.random.default_rng([*self.shape, *self.axes])
        kept = tuple(n for d, n in enumerate(self.shape) if d not in self.axes)
        if self.dtype == I32:
            draw = {"x": rng.integers(-3, 4, self.shape), "y": rng.integers(-3, 4, self.shape)}
            return {n: a.astype(np.int32) for n, a in draw.items()}
        draw = {n: rng.uniform(0.9, 1.1, self.shape) for n in ("x", "y")} | {
            "b": rng.uniform(0.9, 1.1, kept)
        }
        return {
            n: a.astype(np.float32 if self.dtype == F32 else np.float64) for n, a in draw.items()
        }

    def plan(self) -> LaunchPlan:
        given = {n: Tensor.input(n, a.shape, self.dtype) for n, a in self.inputs.items()}
        x = given["x"]
        if self.term == "square":
            x = x * x
        elif self.term == "shifted":
            x = x + 1
        elif self.term == "flipped":
            x = x.flip(self.axes[0])
        elif self.term == "padded":
            x = (
                x.pad(
                    tuple((1, 2) if d == self.axes[0] else (0, 0) for d in range(len(self.shape)))
                )
                + 1
            )
        elif self.term == "product":
            x = x * given["y"]
        elif self.term == "position":
            x = (
                x
                + Tensor.constant(np.arange(self.shape[-1], dtype=np.int32)).cast(self.dtype) * 1e-3
            )
        y = getattr(x, self.op)(axis=self.axes)
        if self.epilogue == "scale":
            y = y * 3
        elif self.epilogue == "bias" and "b" in given:
            y = y + given["b"]
        elif self.epilogue == "sqrt" and self.dtype != I32:
            y = y.sqrt()
        return only(y)


@st.composite
def folds(draw: st.DrawFn) -> Fold:
    """Up to three dimensions of extents with and without divisors, any of them reduced."""
    shape = tuple(draw(st.lists(st.integers(2, 37), min_size=1, max_size=3)))
    axes = draw(
        st.lists(st.sampled_from(range(len(shape))), min_size=1, max_size=len(shape), unique=True)
    )
    dtype = draw(st.sampled_from([F32, F64, I32]))
    terms = TERMS if dtype != I32 else TERMS[:-1]
    return Fold(
        shape, tuple(sorted(axes)), draw(st.sampled_from(OPS)), draw(st.sampled_from(terms)),
        draw(st.sampled_from(EPILOGUES)), dtype,
    )  # fmt: skip


def flat(plan: LaunchPlan, inputs: dict[str, Array]) -> list[Array]:
    """The memory of the parameters of a schedule's only launch; the output's is left empty."""
    (launch,) = plan.launches
    made = []
    for i in launch.args:
        b = plan.buffers[i]
        source = inputs.get(b.name) if b.data is None else b.data.array
        made.append(
            np.empty(0) if source is None else b.layout.pack(np.asarray(source).reshape(b.shape))
        )
    return made


def ran_split(made: Split, memory: list[Array]) -> Array:
    partial, finish = made.partial, made.finish
    reads = {p.name: memory[i] for p, i in zip(partial.params[1:], made.reads, strict=True)}
    (t,) = interpret(partial, reads).values()
    pairs = zip(finish.params, made.finish_args, strict=True)
    (y,) = interpret(
        finish, {p.name: t if i is None else memory[i] for p, i in pairs if p.role != "out"}
    ).values()
    return y


@settings(max_examples=150)
@given(folds(), st.integers(1, 9), st.sampled_from([1, 1, 2, 4]))
def test_halves_compute_what_the_direct_kernel_does(fold: Fold, chunks: int, lanes: int) -> None:
    plan = fold.plan()
    kernel = kernel_of(plan)
    made = split(kernel, chunks, lanes)
    if not kernel.reduces:
        assert made is None
        return
    assert made is not None
    verify_kernel(made.partial)
    verify_kernel(made.finish)
    memory = flat(plan, fold.inputs)
    names = [p.name for p in kernel.params]
    read = {n: a for n, a in zip(names, memory, strict=True) if kernel.param(n).role != "out"}
    (wanted,) = interpret(kernel, read, as_float64=True).values()
    found = ran_split(made, memory)
    if fold.dtype == I32:
        np.testing.assert_array_equal(found, wanted)
    else:
        tolerance = 1e-4 if fold.dtype == F32 else 1e-11
        with np.errstate(over="ignore"):  # a product of two thousand numbers near 2
            wanted = wanted.astype(found.dtype)
            (own,) = interpret(kernel, read).values()
        wanted = np.where(np.isinf(own), own, wanted)  # and a root of one that no f32 holds
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=1e-30)


@pytest.mark.parametrize("op", ["max", "min", "sum", "prod"])
def test_a_nan_in_any_part_reaches_the_result(op: str) -> None:
    fold = Fold((101,), (0,), op, "x", "none", F32)
    plan = fold.plan()
    made = split(kernel_of(plan), 4)
    assert made is not None
    for place in (0, 50, 100):
        x = fold.inputs["x"]
        x[place] = np.nan
        assert np.isnan(ran_split(made, flat(plan, {"x": x}))).all()
