"""Inference with a store: load, read the report, save a plan, call it from several threads."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import tunegrad as tg

STORE = "example.db"
MODEL = "mlp[batch=4]"


def main(budget_s):
    """Tune once, then serve as a process without store, weights and compiler would."""
    tg.tune(MODEL, budget_s=budget_s, max_trials=20, store=STORE, threads=1)

    model = tg.load(MODEL, store=STORE, on_miss="default", threads=1)
    for row in model.report():  # per kernel: hit, near or miss, and the fields that differ
        print(row.uses, row.kernel, row.outcome, *row.differs)
    model.save("mlp.plan")  # launches, machine code and packed constants: load your own files only

    served = tg.load("mlp.plan")
    x = np.random.default_rng(0).standard_normal((4, 784)).astype(np.float32)
    with ThreadPoolExecutor(4) as pool:  # any thread may call; each call runs on one core here
        results = list(pool.map(served, [x] * 16))
    for result in results:
        np.testing.assert_array_equal(result, model(x))
    print(len(results), "calls, the same result")


if __name__ == "__main__":  # the processes that measure import this file
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
