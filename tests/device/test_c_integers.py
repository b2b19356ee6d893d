"""Operations on integers, quotients and remainders, as OpenCL C and as CUDA C++ on this CPU, equal
the interpreter at the ends of every type. Skips where a driver or compiler is missing.
"""

import numpy as np
import pytest
from hand_programs import conversion, elementwise, together

from tests.cuda_host import cuda_host
from tests.interpreter import interpret
from tests.opencl_device import opencl_device
from tests.programs import Programs
from tunegrad.ir.dtypes import DTYPES, F32, F64
from tunegrad.ir.expr import Op, result_type

N = 96
NUMBERS = [t for t in DTYPES.values() if t.is_int]


@pytest.fixture(scope="module", params=[opencl_device, cuda_host], ids=["opencl", "cuda-host"])
def device(request):
    with Programs(request.param()) as device:
        yield device


def compare(device, program, given):
    zeros = {b.name: np.zeros(b.size, b.dtype.numpy) for b in program.params if b.role == "out"}
    want, got = ({**given, **{k: v.copy() for k, v in zeros.items()}} for _ in range(2))
    with np.errstate(all="ignore"):
        interpret(program, want)
    device.run(device.compile(program), got)
    for name in zeros:
        np.testing.assert_array_equal(got[name], want[name], err_msg=name)


def drawn(dtype, seed):
    """Half of them at the ends of the type or near zero."""
    rng = np.random.default_rng(seed)
    wide = rng.integers(dtype.least, dtype.greatest, N, dtype=dtype.numpy.str, endpoint=True)
    edges = np.array([0, 1, 2, 3, 7, dtype.least, dtype.greatest], dtype.numpy)
    edges = np.append(edges, np.asarray(-1).astype(dtype.numpy))
    return np.where(rng.random(N) < 0.5, wide, edges[rng.integers(0, len(edges), N)])


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_operations_on_integers_equal_the_interpreter(device, dtype, lanes):
    takes = (op for op in Op if result_type(op, [dtype] * op.arity) is not None)
    ops = [op for op in takes if op not in (Op.WHERE, Op.QUAD)]
    program = together("operations", {f"y.{op}": elementwise(op, dtype, lanes, N) for op in ops})
    given = [b.name for b in program.params if b.role == "in"]
    compare(device, program, {name: drawn(dtype, k) for k, name in enumerate(given)})


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_conversions_of_integers_equal_the_interpreter(device, dtype):
    program = together(
        "conversions",
        {f"y.{to}": conversion(dtype, to, 1, N) for to in DTYPES.values() if not to.is_half},
    )
    compare(device, program, {"x": drawn(dtype, 3)})


@pytest.mark.parametrize("source", [F32, F64], ids=str)
def test_floats_become_the_nearest_integers(device, source):
    rng = np.random.default_rng(4)
    x = rng.standard_normal(N) * np.exp2(rng.integers(0, 70, N))
    x[:9] = [np.nan, np.inf, -np.inf, -0.9, 127.9, 255.9, 2.0**31, 2.0**63, -(2.0**63)]
    program = together("to_int", {f"y.{to}": conversion(source, to, 1, N) for to in NUMBERS})
    compare(device, program, {"x": x.astype(source.numpy)})


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_quotients_and_remainders_of_floats_equal_the_interpreter(device, dtype):
    special = [5, -5, 1, -1, 7.5, 0.1, np.inf, -np.inf, np.nan, 0.0]
    pairs = np.array([(x, y) for x in special for y in special][:N], dtype.numpy)
    ops = (Op.FLOORDIV, Op.MOD)
    program = together("remainders", {f"y.{op}": elementwise(op, dtype, 1, N) for op in ops})
    compare(device, program, {"a": pairs[:, 0].copy(), "b": pairs[:, 1].copy()})
