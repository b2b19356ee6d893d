"""Indices that are read from memory: what they mean, what kernels make of them, what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.graph_builders import run_schedule
from tests.schedule_fuzzer import TWO
from tunegrad.devices.cuda.device import absent
from tunegrad.devices.job import io_of
from tunegrad.errors import DTypeError, IllegalAction, ShapeError, VerifyError
from tunegrad.frontend.nodes import indexing
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import F32, I32, I64
from tunegrad.ir.expr import Load
from tunegrad.ir.fusion import schedule
from tunegrad.ir.fusion.axes import all_indices
from tunegrad.ir.index import ALWAYS, Element, element, var
from tunegrad.ir.interpret.evaluate import evaluate, unrounded
from tunegrad.ir.interpret.kernel import interpret
from tunegrad.ir.kernel import Axis, Kernel, Param, Store
from tunegrad.ir.parse_kernel import parse_kernel
from tunegrad.ir.verify.kernel import verify_kernel
from tunegrad.opts import Schedule, Space
from tunegrad.runtime import Argument
from tunegrad.tuning.models.work import drawn

X = g.graph_input("x", (9, 6), F32)
I = g.graph_input("i", (4, 6), I64)  # noqa: E741
IDS = g.graph_input("ids", (2, 3), I32)


def kernels(node):
    return [launch.kernel for launch in schedule((node,)).launches]


def numpy_index(values, extent):
    return np.clip(np.where(values < 0, values + extent, values), 0, extent - 1)


def test_element_counts_from_the_end_and_is_clamped():
    e = Element("i", var("a", 7), 7, 5)
    memory = np.array([0, 4, 5, 99, -1, -5, -6])
    assert [e.value(memory, k) for k in range(7)] == [0, 4, 4, 4, 4, 0, 0]
    np.testing.assert_array_equal(e.value(memory, np.arange(7)), [0, 4, 4, 4, 4, 0, 0])


def test_element_outside_its_buffer_is_the_first_one():
    e = Element("i", var("a", 9) - 1, 3, 5)
    memory = np.array([2, 3, 4])
    assert e.value(memory, np.arange(-1, 8)).tolist() == [2, 2, 3, 4, 2, 2, 2, 2, 2]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.int8])
def test_element_of_any_integer_type_is_an_index(dtype):
    limits = np.iinfo(dtype)
    memory = np.array([limits.min, 3, limits.max], dtype)
    found = Element("i", var("a", 3), 3, 300).value(memory, np.arange(3)).astype(np.int64)
    assert found.tolist() == numpy_index(memory.astype(object), 300).tolist()


def test_element_follows_substitution_and_has_bounds():
    i = element("p", var("a", 4) * 3 + 1, 12, 10) * 6 + var("b", 6)
    assert (i.lo, i.hi) == (0, 59)
    assert i.names() == {"a", "b"}
    assert i.coefficient("b") == 1
    assert i.coefficient("a") is None
    assert i.substitute({"a": var("c", 2) * 2}).key == "b+6*p[6*c+1]@10"
    assert i.at({"a": 2}).key == "b+6*p[7]@10"
    assert i.reading({"p": "a0"}).key == "6*a0[3*a+1]@10+b"
    assert (i // 6).key == "p[3*a+1]@10"
    assert (i % 6).key == "b"
    assert element("p", var("a", 4), 4, 1).is_const


def test_embedding_is_one_kernel_that_reads_rows():
    (kernel,) = kernels(indexing.embedding(X, IDS))
    assert [line.strip() for line in kernel.text.splitlines()[1:]] == [
        "param p0 f32[6,6] out row", "param p1 f32[9,6] in row", "param p2 i32[6] in row",
        "axis a:6 b:6", "store p0[a, b] = p1[p2[a]@9, b]",
    ]  # fmt: skip
    assert parse_kernel(kernel.text) == kernel


def test_bytes_of_an_embedding_are_those_of_its_rows():
    table = g.graph_input("t", (32000, 512), F32)
    (kernel,) = kernels(indexing.embedding(table, IDS))
    assert kernel.unique_bytes == 2 * (6 * 512 * 4) + 6 * 4


def test_indices_of_several_dimensions_are_one_load():
    cube = g.graph_input("c", (4, 5, 6), F32)
    rows, columns = g.graph_input("r", (3, 1), I64), g.graph_input("k", (1, 2), I64)
    (kernel,) = kernels(indexing.index(cube, (rows, None, columns)))
    assert kernel.text.endswith("store p0[a, b, c] = p1[p2[a]@4, c, p3[b]@6]")


def test_computed_indices_are_written_first():
    one = g.full(1, I.shape, I64)
    before, after = kernels(g.gather(X, g.elementwise(g.Op.ADD, I, one), 0))
    assert "add(p1[a], 1:i64)" in before.text
    assert "p1[p2[6*a+b]@9, b]" in after.text


@pytest.mark.parametrize(
    "index",
    [
        g.iota((4, 6), 0),
        g.elementwise(g.Op.ADD, g.iota((4, 6), 0, I64), g.full(2, (4, 6), I64)),
        g.elementwise(g.Op.SUB, g.iota((4, 6), 0, I64), g.full(4, (4, 6), I64)),
        g.elementwise(g.Op.MUL, g.iota((4, 6), 0, I64), g.full(2, (4, 6), I64)),
        g.flip(g.cast(g.iota((4, 6), 0, I64), I32), (0,)),
        g.full(-2, (4, 6), I64),
    ],
    ids=["positions", "from two on", "the last four", "every second", "backwards", "one row"],
)
def test_positions_are_an_index_of_one_kernel(index):
    node = g.gather(X, index, 0)
    (kernel,) = kernels(node)
    assert not any(True for i in all_indices(kernel) for _ in i.elements())
    x = np.arange(54, dtype=np.float32).reshape(9, 6)
    (found,) = run_schedule(schedule((node,)), {"x": x})
    np.testing.assert_array_equal(found, evaluate((node,), {"x": x})[0])


@pytest.mark.parametrize("first", [0, -12, 3], ids=["above", "below", "from three on"])
def test_positions_beyond_an_extent_are_its_ends(first):
    index = g.elementwise(g.Op.ADD, g.iota((12, 6), 0, I64), g.full(first, (12, 6), I64))
    node = g.gather(X, index, 0)
    x = np.arange(54, dtype=np.float32).reshape(9, 6)
    (found,) = run_schedule(schedule((node,)), {"x": x})
    np.testing.assert_array_equal(found, evaluate((node,), {"x": x})[0])


def test_an_index_that_decides_nothing_is_not_computed():
    row, y = g.graph_input("row", (1, 8), F32), g.graph_input("y", (4, 8), F32)
    places = g.cast(g.elementwise(g.Op.LT, g.full(0, (4, 8), F32), y), I64)
    plan = schedule((g.gather(row, places, 0),))
    (launch,) = plan.launches
    assert [plan.buffers[i].name for i in launch.args] == ["out0", "row"]


def test_gathered_sums_are_not_computed_again():
    total = g.expand(g.reduce(g.Op.ADD, X, (0,)), (9, 6))
    assert len(kernels(g.gather(total, I, 0))) == 2


def test_reference_in_double_precision_reads_the_same_places():
    (kernel,) = kernels(g.gather(X, I, 0))
    rng = np.random.default_rng(1)
    arrays = {"p1": rng.standard_normal(54).astype(np.float32), "p2": rng.integers(-12, 12, 24)}
    (narrow,) = interpret(kernel, arrays).values()
    (wide,) = interpret(unrounded(kernel), arrays, as_float64=True).values()
    np.testing.assert_array_equal(narrow, wide)


def test_inputs_that_are_indices_are_drawn_in_bounds():
    (kernel,) = kernels(g.gather(X, I, 0))
    program = Space(kernel, TWO).lower(Schedule(()))
    assert {p.name: p.bound for p in io_of(program).params} == {"p0": 0, "p1": 0, "p2": 9}


def test_inputs_of_gpus_that_are_indices_are_drawn_in_bounds():
    (kernel,) = kernels(g.gather(X, I, 0))
    gpu = absent("sm_80")
    lowered = gpu.lower(Space(kernel, gpu.target).lower(Schedule(())))
    assert {p.name: p.bound for p in lowered.io.params} == {"p0": 0, "p1": 0, "p2": 9}


def test_inputs_of_models_that_are_indices_are_known_and_drawn_in_bounds():
    table = g.const(np.zeros((3000, 4), np.float32), F32)
    plan = schedule((indexing.embedding(table, IDS),))
    (at,) = plan.inputs
    assert plan.indexed() == {at: 3000}
    arrays = drawn((Argument("ids", (500,), I32, 3000),), 0)
    assert 0 <= arrays["ids"].min() < 100
    assert 2900 < arrays["ids"].max() < 3000


def test_no_copy_is_made_of_what_is_read_by_data():
    (kernel,) = kernels(g.reduce(g.Op.ADD, g.gather(X, I, 0), (0,)))
    with pytest.raises(IllegalAction, match=r"stage\(param=p1.*where it is read depends on data"):
        Space(kernel, TWO).lower(Schedule.parse("stage(param=p1, at=a)"))


def small(index, **changed):
    params = (
        Param.dense("y", F32, (4,), "out"), Param.dense("x", F32, (9,), "in"),
        Param.dense("i", I64, (4,), "in"),
    )  # fmt: skip
    params = tuple(changed.get(p.name, p) for p in params)
    a = Axis("a", 4)
    return Kernel(params, (a,), (Store("y", (a.index,), Load("x", (index,), F32, ALWAYS)),))


A = var("a", 4)


def test_kernel_with_an_index_from_memory_is_well_formed():
    verify_kernel(small(element("i", A, 4, 9)))


@pytest.mark.parametrize(
    ("index", "changed", "message"),
    [
        (element("i", A, 4, 10), {}, "can not be proved to be in [0, 9)"),
        (element("x", A, 9, 9), {}, "x is not an input of integers"),
        (element("k", A, 4, 9), {}, "k is not an input of integers"),
        (element("y", A, 4, 9), {}, "y is not an input of integers"),
        (element("i", A, 5, 9), {}, "has to be row-major"),
        (
            element("i", A, 4, 9),
            {"i": Param.dense("i", F32, (4,), "in")},
            "not an input of integers",
        ),
        (element("i", var("q", 4), 4, 9), {}, "q in [0, 3] is not an axis of this stage"),
    ],
)
def test_kernel_with_a_wrong_index_from_memory_is_refused(index, changed, message):
    with pytest.raises(VerifyError) as caught:
        verify_kernel(small(index, **changed))
    assert message in str(caught.value)


def test_store_to_a_place_that_depends_on_data_is_refused():
    kernel = small(element("i", A, 4, 9))
    (store,) = kernel.stores
    moved = replace(kernel, stages=(replace(store, index=(element("i", A, 4, 4),)),))
    with pytest.raises(VerifyError, match="its place depends on data"):
        verify_kernel(moved)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: indexing.gather(X, g.cast(I, F32), 0), DTypeError, "indices are integers"),
        (lambda: indexing.gather(IDS, I, 1), ShapeError, "shapes (2, 3) and (4, 6) do not fit"),
        (lambda: indexing.take(X, I, 2), ShapeError, "axis 2"),
        (
            lambda: indexing.take(X, g.const(np.array([0, 9]), I64), 0),
            ShapeError,
            "take: index 9 is out of range for an extent of 9",
        ),
        (
            lambda: indexing.take(X, g.full(-10, (2,), I64), 0),
            ShapeError,
            "take: index -10 is out of range for an extent of 9",
        ),
        (lambda: indexing.index(X, (I, I, I)), ShapeError, "3 indices for shape (9, 6)"),
        (lambda: indexing.embedding(g.reshape(I, (24,)), IDS), ShapeError, "has shape (24,)"),
        (lambda: indexing.scatter(X, I, I, 0), DTypeError, "source of i64 into f32"),
        (lambda: indexing.scatter(X, I, X, 0), ShapeError, "do not fit along 0"),
        (lambda: indexing.put(X, g.reshape(IDS, (6,)), X, 0), ShapeError, "put: shapes (9, 6)"),
        (lambda: g.gather(g.graph_input("e", (0, 6), F32), I, 0), ShapeError, "no elements"),
    ],
)  # fmt: skip
def test_wrong_indexing_is_refused_with_a_reason(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)
