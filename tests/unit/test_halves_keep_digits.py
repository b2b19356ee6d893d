"""Models in f16 on a device that multiplies f16 as f32: what is rounded, and what is stored."""

from dataclasses import replace

import numpy as np
import pytest

from tests.graph_builders import run_schedule
from tunegrad.config import Numerics
from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import F16, F32, DType
from tunegrad.ir.fusion import LaunchPlan, schedule
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.target import MatrixUnit, Rates, Target
from tunegrad.planning import expected, prepared

CPU = Target("cpu", "cpu", "znver4", vector_bytes=64, registers=32)
UNITS = Target("gpu", "gpu", "sm_90a", units=(MatrixUnit((16, 8, 16), ("f16", "f32"), 2),))
RNG = np.random.default_rng(0)


def halves(*shape: int) -> Tensor:
    return Tensor.constant(RNG.normal(0, 0.3, shape).astype(np.float16))


FIRST, SECOND, BIAS = halves(16, 24), halves(24, 8), halves(24)


def layers(dtype: str, rows: int = 4) -> Tensor:
    """Two linear layers with a softmax behind, of an f32 tensor that is rounded to f16."""
    x = Tensor.input("x", (rows, 16)).cast("f16").cast(dtype)
    y = (x @ FIRST.cast(dtype) + BIAS.cast(dtype)).relu()
    return (y @ SECOND.cast(dtype)).softmax(1).cast("f16")


def planned(x: Tensor, target: Target = CPU, numerics: Numerics = "contract") -> LaunchPlan:
    return schedule(prepared((x.node,), numerics, target, model=True))


def stored(plan: LaunchPlan) -> set[DType]:
    return {b.dtype for b in plan.buffers if b.role == "temp"}


def test_results_of_products_and_what_products_read_is_stored_in_f32() -> None:
    assert stored(planned(layers("f16"))) == {F32}


@pytest.mark.parametrize(("target", "numerics"), [(CPU, "strict"), (UNITS, "contract")])
def test_where_f16_is_multiplied_or_numerics_are_strict_it_is_stored(
    target: Target, numerics: Numerics
) -> None:
    assert stored(planned(layers("f16"), target, numerics)) == {F16}


def test_tensors_that_are_computed_one_by_one_are_rounded_each() -> None:
    """What is read in between changes no digit of what is computed of it."""
    assert stored(schedule(prepared((layers("f16").node,), "contract", CPU))) == {F16}


def test_what_caches_do_not_hold_is_stored_in_f16() -> None:
    rows = CPU.cached_bytes // 64 + 1
    assert F16 in stored(planned(layers("f16", rows)))


def test_the_error_is_that_of_one_rounding() -> None:
    values = {"x": RNG.normal(0, 1, (4, 16)).astype(np.float32)}
    plan = planned(layers("f16"))
    (found,), (exact,) = run_schedule(plan, values), evaluate((layers("f64").node,), values)
    (each,) = evaluate((layers("f16").node,), values)
    assert np.array_equal(found, exact)
    assert not np.array_equal(each, exact)


@pytest.mark.parametrize(("dtype", "variant"), [("f16", "channels_last"), ("f32", "direct")])
def test_a_short_convolution_by_weights_in_f16_has_its_channels_last(
    dtype: str, variant: str
) -> None:
    """Along 16 places each weight is widened and spread for one vector."""
    target = replace(CPU, rates=Rates((("f32", 2e11),), 2e11, 3e10, 3e-7))
    array = RNG.normal(0, 1, (192, 192, 1)).astype("f2" if dtype == "f16" else "f4")
    weights = Tensor.constant(array).cast("f32")
    product = Tensor.input("x", (1, 192, 16)).conv1d(weights)
    (kernel,) = (launch.kernel for launch in planned(product, target).launches)
    assert expected(kernel, target) == variant
