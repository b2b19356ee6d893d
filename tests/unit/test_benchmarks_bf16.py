"""The table of models in f32 and bf16: who stands for a name, and what is said of it."""

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.bf16 import Line, lines, table
from benchmarks.interleave import Timing


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


def test_who_fails_says_why():
    (line,) = lines("m", [Fixed("x", "a", WANT)], [Timing("x", "a", math.inf, 0, 0, "no")], WANT)
    assert (line.failed, math.isnan(line.error)) == ("no", True)
    assert "| no |" in table([line])


def test_ratios_are_to_ours_in_bf16():
    text = table([Line("m", "ours bf16", "a", 2.0, 0.0, 0.0), Line("m", "x", "b", 3.0, 0.0, 0.0)])
    assert "| m | x (b) | 3.00 | 0.0e+00 | 1.50x as fast |" in text
