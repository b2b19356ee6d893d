"""Integer division in compiled code is numpy's everywhere: negative numbers, zero, and the least
integer over -1.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from benchmarks.single_kernel import SingleKernel
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.team import Team
from tunegrad.ir.dtypes import DTYPES
from tunegrad.ir.expr import Apply, Load, Op
from tunegrad.ir.kernel import Axis, Kernel, Param, Store
from tunegrad.opts import Schedule, Space


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("op", [Op.FLOORDIV, Op.MOD])
@pytest.mark.parametrize("name", ["i32", "i64"])
def test_llvm_integer_division_is_numpys(name, op, lanes):
    dtype = DTYPES[name]
    limits = np.iinfo(dtype.numpy)
    edges = [limits.min, limits.min + 1, -7, -2, -1, 0, 1, 2, 3, 7, limits.max]
    pairs = np.array(list(itertools.product(edges, edges)), dtype.numpy)
    x, y = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
    axis = Axis("i", len(pairs))
    index = (axis.index,)
    made = Apply(op, (Load("x", index, dtype), Load("y", index, dtype)), dtype)
    params = tuple(
        Param.dense(n, dtype, (len(pairs),), role)
        for n, role in (("z", "out"), ("x", "in"), ("y", "in"))
    )
    kernel = Kernel(params, (axis,), (Store("z", index, made),), "division")
    text = f"tile(axis=i, size={lanes}) vectorize(axis=i1)" if lanes > 1 else ""
    target, team = host_target(1), Team(1)
    with SingleKernel(
        Space(kernel, target).lower(Schedule.parse(text)), target, team, {"x": x, "y": y}
    ) as loaded:
        got = loaded.run()["z"]
    team.close()
    with np.errstate(all="ignore"):
        want = np.floor_divide(x, y) if op is Op.FLOORDIV else np.remainder(x, y)
    np.testing.assert_array_equal(got, want)
