"""The table of models in f32 and bf16: who stands for a name, what is said of it, and what its file
holds.
"""

from dataclasses import dataclass

import numpy as np

from benchmarks import ours
from benchmarks.bf16 import lines
from benchmarks.interleave import Timing
from benchmarks.workloads import Workload, arrays


@dataclass
class Fixed:
    peer: str
    variant: str
    result: np.ndarray
    layout: str = ""

    def time(self, calls):
        return [0.0] * calls

    def output(self):
        return self.result


WANT = np.array([1.0, -4.0])


def test_the_fastest_variant_stands_for_its_name():
    found = lines(
        "m",
        [Fixed("ours bf16", "a", WANT), Fixed("ours bf16", "b", WANT * 1.25),
         Fixed("x", "c", WANT)],
        [Timing("ours bf16", "a", 2e-3, 0.0, 3), Timing("ours bf16", "b", 1e-3, 0.0, 3),
         Timing("x", "c", 3e-3, 0.0, 3)],
        WANT,
    )  # fmt: skip
    assert [(x.name, x.variant, x.ms) for x in found] == [("ours bf16", "b", 1.0), ("x", "c", 3.0)]
    assert [x.error for x in found] == [0.25, 0.0]


def test_our_product_in_bf16_has_operands_of_bf16():
    """A product of inputs alone would stay one of f32: what comes and goes is as the model has
    it.
    """
    workload = Workload("product", "linear", ((64, 64),), ((64, 64),))
    (x,), (w,) = arrays(workload)
    want = x.astype(np.float64) @ w
    away = {}
    for dtype in ("f32", "bf16"):
        (made,) = ours.stored_in(workload, 1, dtype, None)
        away[dtype] = np.abs(made.output() - want).max() / np.abs(want).max()
    assert away["f32"] < 1e-5
    assert 1e-4 < away["bf16"] < 1e-2
