"""Functions at infinities, at NaN and far beyond their domains."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tunegrad as tg

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
@pytest.mark.parametrize(
    ("name", "x", "want"),
    [
        ("erfc", [INF, -INF, NAN, 60.0, -60.0, 0.0], [0.0, 2.0, NAN, 0.0, 2.0, 1.0]),
        (
            "atanh",
            [INF, -INF, NAN, 2.0, -3e4, 6e4, 1.0, -1.0],
            [NAN, NAN, NAN, NAN, NAN, NAN, INF, -INF],
        ),
    ],
)
def test_function_far_out_is_its_limit_or_nan(
    name: str, x: list[float], want: list[float], dtype: str
) -> None:
    got = getattr(tg.tensor(x, dtype), name)()
    np.testing.assert_array_equal(np.asarray(got.numpy(), np.float64), want)


@pytest.mark.parametrize(("dtype", "x"), [("f32", 1e10), ("f32", 3e38), ("f64", 1e40)])
def test_atanh_of_any_number_above_one_is_nan(dtype: str, x: float) -> None:
    assert np.isnan(tg.tensor([x, -x], dtype).atanh().numpy()).all()


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("padding", ["border", "reflection"])
def test_grid_place_that_is_nan_is_the_first_one(padding: str, mode: str, corners: bool) -> None:
    """As PyTorch's on a CPU; infinity reflects to no place, and is one at an edge otherwise."""
    x = tg.tensor(np.arange(1.0, 13.0, dtype=np.float32).reshape(1, 1, 3, 4))
    middle = 0.0  # the second of three rows
    grid = np.array([[[[NAN, middle], [INF, middle], [-INF, middle]]]], np.float32)
    found = x.grid_sample(grid, mode, padding, corners).tolist()
    last = 8.0 if padding == "border" else 5.0
    assert found == [[[[5.0, last, 5.0]]]]
