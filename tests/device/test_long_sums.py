"""Compiled f32 sums of 2^24 to 2^31 terms are right to 1e-6 under every form of schedule; sums of
ones are exact.

What is summed is either memory, or numbers made from positions, which need none: i * ODD mod 2^23
runs through all 23-bit numbers in a scattered order, so 2^23 terms are uniform and their sum is
known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pair_builders import Case, dot_kernel

import tunegrad as tg
from benchmarks.single_kernel import SingleKernel
from tests.cover import each_once
from tests.verifiers.program import verify_program
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.team import Team
from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import BF16, F32
from tunegrad.ir.expr import Apply, Const, Expr, IndexValue, Op, Value
from tunegrad.ir.fusion import schedule
from tunegrad.ir.kernel import Axis, Kernel, Param, Reduce, Store
from tunegrad.ir.variants import split
from tunegrad.opts import Schedule, Space

Arrays = Mapping[str, NDArray[Any]]
BOUND = 1e-6
TERMS = 1 << 24
TARGET = host_target(2)
UNIFORM = np.random.default_rng(14).random(TERMS + 64, np.float32)

ROW = {
    "scalar": "",
    "unrolled": "tile(axis=ra, size=8) unroll(axis=ra1)",
    "lanes": "tile(axis=ra, size=16) group(axis=ra1)",
    "copies": "tile(axis=ra, size=4) upcast(axis=ra1)",
    "copies of lanes": "tile(axis=ra, size=64) tile(axis=ra1, size=16) upcast(axis=ra1) "
    "group(axis=ra2)",
    "nested": "tile(axis=ra, size=4096) tile(axis=ra1, size=64)",
    "short inside": "tile(axis=ra, size=6)",
    "long inside": "tile(axis=ra, size=65536)",
    "padded": (
        "pad(axis=ra, multiple=48) tile(axis=ra, size=48) tile(axis=ra1, size=16) "
        "unroll(axis=ra1) group(axis=ra2)"
    ),
}
COLUMNS = {
    "scalar": "",
    "a lane for each": "vectorize(axis=a)",
    "partial sums in memory": "reorder(order=(ra, a))",
    "partial sums in memory, lanes": "tile(axis=a, size=2) reorder(order=(ra, a0, a1)) "
    "vectorize(axis=a1)",
    "blocks of partial sums": "tile(axis=ra, size=64) reorder(order=(ra0, a, ra1))",
    "long blocks of partial sums": "tile(axis=ra, size=65536) reorder(order=(ra0, a, ra1))",
    "threads": "thread(axis=a, count=2)",
    "threads inside partial sums": "tile(axis=ra, size=4096) reorder(order=(ra0, a, ra1)) "
    "thread(axis=a, count=2)",
}
_BLOCKED = (
    "tile(axis=ra, size={}) tile(axis=b, size=16) reorder(order=(ra0, a, b0, ra1, b1)) "
    "vectorize(axis=b1) "
)
PRODUCT = {
    "scalar": "",
    "register tile": "tile(axis=b, size=16) upcast(axis=a) vectorize(axis=b1)",
    "many blocks of k": _BLOCKED.format(256) + "upcast(axis=a)",
    "long blocks of k, threads": _BLOCKED.format(16384) + "thread(axis=a, count=2)",
}


def kernel_of(tensor: Tensor) -> Kernel:
    (launch,) = schedule((tensor.node,)).launches
    return launch.kernel


def run(kernel: Kernel, text: str, arrays: Arrays) -> NDArray[Any]:
    """The first output of a kernel under a schedule, by its inputs in the order of parameters."""
    program = Space(kernel, TARGET).lower(Schedule.parse(text))
    assert verify_program(program, TARGET) == (), "every access is proved in bounds"
    team = Team(program.threads)
    try:
        with SingleKernel(program, TARGET, team, arrays) as single:
            out = next(p.name for p in kernel.params if p.role == "out")
            found = single.run()[out]
            assert single.damage() == ""
            return found
    finally:
        team.close()


def inputs(kernel: Kernel, *arrays: NDArray[Any]) -> dict[str, NDArray[Any]]:
    names = [p.name for p in kernel.params if p.role != "out"]
    return {n: a.reshape(-1) for n, a in zip(names, arrays, strict=True)}


def assert_close(found: NDArray[Any], wanted: NDArray[Any] | float) -> None:
    error = np.max(np.abs(found.astype(np.float64) - wanted) / np.abs(wanted))
    assert error <= BOUND, f"relative error {error:.1e}"


def positions(terms: int, *, ones: bool = False, squares: bool = False) -> tuple[Kernel, int]:
    """A kernel that sums numbers made from positions, and what their sum is; ``terms`` is a power
    of two.
    """
    r = Axis("ra", terms)
    x: Expr = Const(1.0, F32) if ones else IndexValue(r.index * 5_495_933 % (1 << 23), F32)
    if squares:
        x = Apply(Op.MUL, (x, Const(1.0, F32)), F32)
    stages = (Reduce("v0", Op.ADD, (r,), x, F32), Store("p0", (), Value("v0", F32)))
    period = 1 << 23
    total = terms if ones else terms // period * (period * (period - 1) // 2)
    return Kernel((Param.dense("p0", F32, (), "out"),), (), stages), total


@pytest.mark.parametrize("form", ROW)
@pytest.mark.parametrize("more", [0, 43])
def test_a_long_row_of_uniform_numbers_is_right(form: str, more: int) -> None:
    x = UNIFORM[: TERMS + more]
    kernel = kernel_of(Tensor.input("x", x.shape).sum())
    assert_close(run(kernel, ROW[form], inputs(kernel, x)), x.sum(dtype=np.float64))


@pytest.mark.parametrize("form", ROW)
def test_a_long_row_of_ones_is_exact(form: str) -> None:
    kernel, total = positions(1 << 26, ones=True)
    assert run(kernel, ROW[form], {}).item() == total


@pytest.mark.parametrize("form", ROW)
def test_a_long_dot_product_is_right(form: str) -> None:
    x, y = UNIFORM[:TERMS], UNIFORM[64:]
    kernel = kernel_of((Tensor.input("x", x.shape) * Tensor.input("y", y.shape)).sum())
    wanted = np.dot(x.astype(np.float64), y.astype(np.float64))
    assert_close(run(kernel, ROW[form], inputs(kernel, x, y)), wanted)


@pytest.mark.parametrize(("form", "ones"), each_once([*COLUMNS], [True, False]))
def test_long_columns_are_right(form: str, ones: bool) -> None:
    x = (
        np.ones((TERMS, 2), np.float32)
        if ones
        else UNIFORM[:TERMS].reshape(-1, 2).repeat(2, axis=0)
    )
    if ones:
        x = np.concatenate([x, x[:2]])  # an f32 accumulator stands still two below the sum
    kernel = kernel_of(Tensor.input("x", x.shape).sum(axis=0))
    found, wanted = run(kernel, COLUMNS[form], inputs(kernel, x)), x.sum(axis=0, dtype=np.float64)
    if ones:
        assert found.tolist() == wanted.tolist()
    assert_close(found, wanted)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("form", ["scalar", "copies of lanes", "padded"])
def test_a_long_row_of_narrow_numbers_is_right(form: str, dtype: str) -> None:
    x = UNIFORM[:TERMS].astype(np.float16)
    values = x.astype(np.float64)
    if dtype == "bf16":
        x = (UNIFORM[:TERMS].view(np.uint32) >> 16).astype(np.uint16)
        values = (x.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        x = x.view(BF16.numpy)
    kernel = kernel_of(Tensor.input("x", x.shape, dtype).sum(accumulate="f32").cast("f32"))
    (reduce,) = kernel.reduces
    assert reduce.dtype == F32
    store = Store(kernel.stores[0].param, kernel.stores[0].index, Value(reduce.name, F32))
    out = Param.dense(store.param, F32, (), "out")
    kernel = Kernel(
        (out, *(p for p in kernel.params if p.role != "out")), kernel.axes, (reduce, store)
    )
    assert_close(run(kernel, ROW[form], inputs(kernel, x)), values.sum())


@pytest.mark.parametrize("form", PRODUCT)
def test_a_matrix_product_of_long_rows_is_right(form: str) -> None:
    depth = 1 << 18
    a, b = UNIFORM[: 4 * depth].reshape(4, depth), UNIFORM[: 32 * depth].reshape(depth, 32)
    kernel = kernel_of(Tensor.input("a", a.shape) @ Tensor.input("b", b.shape))
    assert_close(
        run(kernel, PRODUCT[form], inputs(kernel, a, b)),
        (a.astype(np.float64) @ b.astype(np.float64)).reshape(-1),
    )


MODELS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "variance": lambda x: ((x - x.mean()) * (x - x.mean())).mean(),
    "softmax": lambda x: (
        x.exp() / x.exp().sum() if isinstance(x, Tensor) else np.exp(x) / np.exp(x).sum()
    ),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_models_with_long_sums_are_right(name: str, threads: int) -> None:
    """Default schedules and expected variants: splits in 64 and 512 chunks among them."""
    x, function = UNIFORM[:TERMS], MODELS[name]
    found = tg.compile(function, x, store=False, threads=threads)(x)
    assert_close(found, function(x.astype(np.float64)))


def test_layer_norm_of_a_long_row_is_right() -> None:
    """Its results pass through zero, so their errors are held to one unit: the standard
    deviation.
    """
    x = UNIFORM[:TERMS] + np.float32(0.5)
    found = tg.compile(lambda x: x.layer_norm(eps=0.0), x, store=False, threads=2)(x)
    wide = x.astype(np.float64)
    assert np.max(np.abs(found - (wide - wide.mean()) / wide.std())) <= BOUND


def test_a_long_product_of_bf16_pairs_is_right() -> None:
    depth = TERMS >> 3
    a, b = ((UNIFORM[at : 2 * depth + at].view(np.uint32) >> 16).astype(np.uint32) for at in (0, 7))
    a, b = a.reshape(2, depth), b.reshape(depth, 2)
    x, y = Tensor.input("a", a.shape, "bf16"), Tensor.input("b", b.shape, "bf16")
    kernel = dot_kernel(Case(x.cast("f32") @ y.cast("f32"), {}))
    assert isinstance(kernel.reduces[0].expr, Apply)
    assert kernel.reduces[0].expr.op is Op.DOT2
    pairs = inputs(kernel, a[:, ::2] | a[:, 1::2] << 16, b[::2] | b[1::2] << 16)
    left, right = ((v << 16).view(np.float32).astype(np.float64) for v in (a, b))
    assert_close(run(kernel, "", pairs), (left @ right).reshape(-1))


@pytest.mark.parametrize(("chunks", "lanes"), [(64, 1), (512, 1), (512, 8)])
def test_both_kernels_of_a_split_are_right_unscheduled(chunks: int, lanes: int) -> None:
    x = UNIFORM[:TERMS].reshape(-1, 2).repeat(2, axis=0)
    made = split(kernel_of(Tensor.input("x", x.shape).sum(axis=0)), chunks, lanes)
    assert made is not None
    partial = run(made.partial, "", inputs(made.partial, x))
    shared = [x.reshape(-1), partial] if len(made.finish.params) == 3 else [partial]
    assert_close(
        run(made.finish, "", inputs(made.finish, *shared)), x.sum(axis=0, dtype=np.float64)
    )


def test_a_sum_with_an_infinity_is_infinite_and_with_both_not_a_number() -> None:
    x = UNIFORM[:TERMS].copy()
    kernel = kernel_of(Tensor.input("x", x.shape).sum())
    x[TERMS // 3] = np.inf
    assert run(kernel, ROW["lanes"], inputs(kernel, x)).item() == np.inf
    x[TERMS // 2] = -np.inf
    assert np.isnan(run(kernel, ROW["lanes"], inputs(kernel, x)).item())


@pytest.mark.slow
@pytest.mark.parametrize("form", ROW)
@pytest.mark.parametrize("power", [28, 31])
@pytest.mark.parametrize("ones", [True, False], ids=["ones", "uniform"])
def test_the_longest_rows_are_right(form: str, power: int, ones: bool) -> None:
    kernel, total = positions(1 << power, ones=ones)
    found = run(kernel, ROW[form], {})
    if ones:
        assert found.item() == total
    assert_close(found, float(total))


@pytest.mark.slow
def test_two_to_the_31_ones_are_counted() -> None:
    assert tg.ones((1 << 31,)).sum().numpy() == 1 << 31
