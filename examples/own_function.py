"""A function of arrays as one kernel: tune it, run it, compare it with numpy."""

import sys

import numpy as np

import tunegrad as tg

STORE = "example.db"


def normalise(x):
    """Return x (256, 512) with zero mean and unit variance in each row, clamped at zero."""
    centred = x - x.mean(dim=1, keepdim=True)
    return (centred * (centred * centred).mean(dim=1, keepdim=True).add(1e-5).rsqrt()).relu()


def main(budget_s):
    """Tune the function, then call it with the winner of the store."""
    x = np.random.default_rng(0).standard_normal((256, 512)).astype(np.float32)
    report = tg.tune_callable(normalise, x, budget_s=budget_s, max_trials=40, store=STORE)
    print([row.kernel for row in report.rows])  # all four operations in one kernel

    f = tg.compile(normalise, x, store=STORE)
    centred = x - x.mean(1, keepdims=True)
    expected = np.maximum(centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5), 0)
    np.testing.assert_allclose(f(x), expected, atol=1e-5)
    print(f(x).shape, "as numpy computes it")


if __name__ == "__main__":  # the processes that measure import this file
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
