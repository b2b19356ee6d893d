"""Results that one careless rounding would spoil."""

import numpy as np
import pytest

from tests.fuzzing import seed
from tools.measure_functions import worst
from tunegrad.frontend import Tensor


@pytest.mark.parametrize(("name", "ulps"), [("sin", 2), ("cos", 2), ("tan", 4)])
def test_angles_of_any_size_are_reduced_exactly(name, ulps):
    rng = np.random.default_rng(seed())
    near = (np.arange(1, 3000) * (np.pi / 2)).astype(np.float32)
    sizes = np.float32(2) ** rng.uniform(-20, 127.9, 20_000).astype(np.float32)
    x = np.concatenate([near, sizes, np.array([1e7, 1e8, 2**25, 2**27, 16367173.0 * 2**72])])
    x = np.concatenate([x, -x]).astype(np.float32)
    want = getattr(np, name)(x.astype(np.float64))
    found = getattr(Tensor(x), name)().numpy()
    error = np.abs(found - want) / np.spacing(np.abs(want).astype(np.float32))
    assert error.max() < ulps, x[error.argmax()]
    assert np.isnan(getattr(Tensor(np.array([np.inf], np.float32)), name)().numpy()).all()


@pytest.mark.parametrize("centre", [0, 1e2, 1e4, 1e5, 1e6, 1e7])
def test_variance_does_not_depend_on_where_numbers_lie(centre):
    x = (np.random.default_rng(3).standard_normal((20, 1000)) + centre).astype(np.float32)
    want = x.astype(np.float64).var(1, ddof=1)
    np.testing.assert_allclose(Tensor(x).var(1).numpy(), want, rtol=2e-5)
    np.testing.assert_allclose(Tensor(x).std(1).numpy(), np.sqrt(want), rtol=1e-5)
    np.testing.assert_allclose(Tensor(x[0]).var_mean()[0].numpy(), want[0], rtol=2e-5)


@pytest.mark.parametrize(("shape", "axis"), [((512, 64), 0), ((65537, 3), 0), ((3, 65537), 1)])
@pytest.mark.parametrize("centre", [0, 1e5, 1e7])
def test_variance_along_columns_and_long_rows_is_as_exact(shape, axis, centre):
    """Sums of 512 numbers around 1e7 are off by 76 in one chain, and so would the mean be."""
    x = (np.random.default_rng(3).standard_normal(shape) + centre).astype(np.float32)
    want = x.astype(np.float64).var(axis, ddof=1)
    np.testing.assert_allclose(Tensor(x).var(axis).numpy(), want, rtol=4e-6)


def test_variance_of_equal_numbers_is_zero_and_of_one_is_none():
    x = np.full((3, 7), 16777217.3, np.float32)
    assert not Tensor(x).var(1).numpy().any()
    assert np.isnan(Tensor(x[:, :1]).var(1).numpy()).all()
    assert np.isnan(Tensor(x[:, :0]).var(1, correction=0).numpy()).all()
    assert np.isposinf(Tensor(x + np.arange(7, dtype="f4") * 4).var(1, correction=9).numpy()).all()


def test_length_of_two_is_rounded_once():
    rng = np.random.default_rng(11)
    x, y = (
        (np.exp2(rng.uniform(-100, 126, 20_000)) * rng.choice([-1, 1], 20_000)).astype(np.float32)
        for _ in range(2)
    )
    y[::2] = x[::2] * np.exp2(rng.uniform(-12, 0, 10_000)).astype(np.float32)
    want = np.hypot(x.astype(np.float64), y.astype(np.float64))
    assert worst(Tensor(x).hypot(Tensor(y)).numpy(), want) < 0.51


@pytest.mark.parametrize("n", [1, 7, 8, 9, 65, 1000, 20_000])
def test_running_sums_and_products_are_rounded_once(n):
    x = np.random.default_rng(n).standard_normal((3, n)).astype(np.float32) + 1
    wide = x.astype(np.float64)
    size = np.abs(wide).cumsum(1)
    assert worst(Tensor(x).cumsum(1).numpy(), wide.cumsum(1), size) < 0.51
    near = (1 + x * 1e-4).astype(np.float32)
    want = near.astype(np.float64).cumprod(1)
    assert worst(Tensor(near.T).cumprod(0).numpy().T, want) < 0.51


def test_running_sums_and_products_keep_what_is_no_number():
    x = np.array([[1, np.inf, 2, -np.inf, 1], [np.nan, 1, 2, 3, 4], [3e38, 3e38, 1, 2, 3],
                  [1e-30, 1e-30, 5, 0, np.inf]], np.float32)  # fmt: skip
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(Tensor(x).cumsum(1).numpy(), x.cumsum(1))
        np.testing.assert_array_equal(Tensor(x).cumprod(1).numpy(), x.cumprod(1))


@pytest.mark.parametrize("n", [1, 8, 9, 65, 1000])
def test_logarithm_of_a_running_sum_has_the_digits_of_its_rounding(n):
    x = np.random.default_rng(n).standard_normal((8, n)).astype(np.float32)
    want = np.logaddexp.accumulate(x.astype(np.float64), 1)
    assert worst(Tensor(x).logcumsumexp(1).numpy(), want, np.maximum(np.abs(want), 1)) < 1.05


@pytest.mark.parametrize("centre", [0, 10, 1e3, 1e5, 1e7])
def test_norms_of_channels_do_not_depend_on_where_numbers_lie(centre):
    rng = np.random.default_rng(5)
    x = (rng.standard_normal((1, 8, 1000)) + centre).astype(np.float32)
    wide = x.astype(np.float64)
    about = wide - wide.mean(2, keepdims=True)
    want = about / np.sqrt((about * about).mean(2, keepdims=True) + 1e-5)
    size = np.maximum(np.abs(want), 1)
    assert worst(Tensor(x).instance_norm().numpy(), want, size) < 2.5
    mean, var, scale, shift = ((rng.random(8) + 0.5).astype(np.float32) for _ in range(4))
    mean += np.float32(centre)
    given = [v.astype(np.float64)[:, None] for v in (scale, shift, mean, var)]
    scaled = (wide - given[2]) / np.sqrt(given[3] + 1e-5) * given[0]
    found = Tensor(x).batch_norm(*map(Tensor, (scale, shift, mean, var))).numpy()
    assert worst(found, scaled + given[1], np.abs(scaled) + given[1]) < 2.5


def test_half_a_power_beyond_the_largest_power_keeps_its_digits():
    x = np.linspace(60, 89.4, 20_000).astype(np.float32)
    for name, function in (("cosh", np.cosh), ("sinh", np.sinh)):
        want = function(x.astype(np.float64))
        assert worst(getattr(Tensor(x), name)().numpy(), want) < 1.62, name


@pytest.mark.parametrize("n", [1, 5, 16, 17, 40, 300])
def test_logarithm_of_a_running_sum_keeps_small_ones_before_large_ones(n):
    x = (np.random.default_rng(n).standard_normal((4, n)) * 60).astype(np.float32)
    x[0, n // 2], x[1, 0], x[2] = 200, -np.inf, -np.inf
    with np.errstate(divide="ignore"):
        want = np.logaddexp.accumulate(x.astype(np.float64), axis=1)
    found = Tensor(x).logcumsumexp(1).numpy()
    np.testing.assert_allclose(found, want, rtol=4e-7, atol=4e-7)
    np.testing.assert_array_equal(Tensor(x.T).logcumsumexp(0).numpy().T, found)
