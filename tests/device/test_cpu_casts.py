"""Lanes of floats become integers as the interpreter says: saturated, NaN as 0."""

from __future__ import annotations

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.frontend import Tensor
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import F32, dtype_of
from tunegrad.ir.interpret.evaluate import evaluate

EDGES = np.array(
    [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 127.4, 127.5, 128.0, -128.0, -129.0, 255.0, 255.9, 256.0,
     32767.0, 32768.0, -32769.0, 65535.0, 65536.0, 2.0**24, -(2.0**24) - 2, 2.0**31 - 128, 2.0**31,
     -(2.0**31), -(2.0**31) - 256, 3e38, -3e38, np.inf, -np.inf, np.nan],
    np.float32,
)  # fmt: skip


@pytest.mark.parametrize("to", ["i8", "u8", "i16", "u16", "i32", "u32", "i64"])
@pytest.mark.parametrize("extent", [1, len(EDGES), 5 * len(EDGES)])
def test_floats_as_integers_are_what_the_interpreter_gives(to: str, extent: int) -> None:
    x = np.resize(EDGES, extent)
    node = g.cast(g.graph_input("x", (extent,), F32), dtype_of(to))
    (want,) = evaluate((node,), {"x": x})
    made = tg.compile(lambda t: Tensor.of(g.cast(t.node, dtype_of(to))), x, threads=1, store=False)
    np.testing.assert_array_equal(made(x), want)


def test_rounding_is_to_even_and_keeps_the_sign() -> None:
    ties = [0.5, 1.5, 2.5, -0.5, -1.5, 8388607.5]
    x = np.array([*ties, -0.3, 0.49999997, 2.0**23 + 1, np.inf, np.nan, -0.0] * 3, np.float32)
    made = tg.compile(lambda t: t.round(), x, threads=1, store=False)(x)
    np.testing.assert_array_equal(made, np.rint(x))
    np.testing.assert_array_equal(np.signbit(made), np.signbit(np.rint(x)))
