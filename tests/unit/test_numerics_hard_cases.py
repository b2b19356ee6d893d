"""Results that one careless rounding would spoil."""

import numpy as np
import pytest

from tests.fuzzing import seed
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


def test_variance_of_equal_numbers_is_zero_and_of_one_is_none():
    x = np.full((3, 7), 16777217.3, np.float32)
    assert not Tensor(x).var(1).numpy().any()
    assert np.isnan(Tensor(x[:, :1]).var(1).numpy()).all()
    assert np.isnan(Tensor(x[:, :0]).var(1, correction=0).numpy()).all()
    assert np.isposinf(Tensor(x + np.arange(7, dtype="f4") * 4).var(1, correction=9).numpy()).all()


@pytest.mark.parametrize("n", [1, 5, 16, 17, 40, 300])
def test_logarithm_of_a_running_sum_keeps_small_ones_before_large_ones(n):
    x = (np.random.default_rng(n).standard_normal((4, n)) * 60).astype(np.float32)
    x[0, n // 2], x[1, 0], x[2] = 200, -np.inf, -np.inf
    with np.errstate(divide="ignore"):
        want = np.logaddexp.accumulate(x.astype(np.float64), axis=1)
    found = Tensor(x).logcumsumexp(1).numpy()
    np.testing.assert_allclose(found, want, rtol=4e-7, atol=4e-7)
    np.testing.assert_array_equal(Tensor(x.T).logcumsumexp(0).numpy().T, found)
