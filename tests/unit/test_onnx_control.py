"""Control flow of ONNX: branches, loops that are unrolled, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed")

from onnx import ModelProto, parser  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import tunegrad as tg  # noqa: E402
from tunegrad.errors import IndexOutOfRange, ModelError  # noqa: E402
from tunegrad.frontend.onnx import building  # noqa: E402
from tunegrad.frontend.onnx.backend import TunegradBackend  # noqa: E402
from tunegrad.frontend.onnx.importer import model_of_proto  # noqa: E402

RNG = np.random.default_rng(0)


def parsed(text: str, opset: int = 18) -> ModelProto:
    """A model of ONNX's text: ``graph`` and what follows."""
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}')


def run(proto: ModelProto, *arrays: Any) -> list[Any]:
    found = tg.load(model_of_proto(proto, "m"), store=False, threads=1)(*arrays)
    return list(found) if isinstance(found, tuple) else [found]


def check(proto: ModelProto, *arrays: Any) -> None:
    """The model gives what ONNX's reference gives."""
    names = [i.name for i in proto.graph.input]
    wanted = ReferenceEvaluator(proto).run(None, dict(zip(names, arrays, strict=True)))
    for a, b in zip(run(proto, *arrays), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        assert a.dtype == b.dtype


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


BRANCHES = """
    m (float[3] x{condition}) => (float[{out}] y) {{
        {constant}
        y = If (c) <
            then_branch = first () => (float[{out}] a) {{ a = Add (x, x) }},
            else_branch = other () => (float[3] b) {{ b = Neg (x) }}
        >
    }}
"""


def branches(constant: str = "", then: str = "a = Add (x, x)", out: str = "3") -> ModelProto:
    text = BRANCHES.format(
        condition="" if constant else ", bool c", constant=constant, out=out
    ).replace("a = Add (x, x)", then)
    return parsed(text)


@pytest.mark.parametrize("value", [0, 1])
def test_if_takes_the_branch_that_is_known(value: int) -> None:
    proto = branches(f"k = Constant <value = int64 {{{value}}}> ()\n c = Cast <to = 9> (k)")
    check(proto, floats(3))
    plan = tg.load(model_of_proto(proto, "m"), store=False, threads=1)
    assert len(plan.report()) == 1


@pytest.mark.parametrize("value", [False, True])
def test_if_of_an_input_chooses_when_it_runs(value: bool) -> None:
    check(branches(), floats(3), np.asarray(value))


UNFIT = """
    m (float[2, 4] x, bool c) => (float[2, 3] y)
        <float[4, 3] w = {1,2,3,4,5,6,7,8,9,10,11,12}, float[5, 3] v = {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1}> {
        y = If (c) <
            then_branch = first () => (float[2, 3] a) { a = MatMul (x, w) },
            else_branch = other () => (float[2, 3] b) { b = MatMul (x, v) }
        >
    }
"""  # noqa: E501


def test_if_of_an_input_whose_other_branch_does_not_fit_is_an_error_where_that_is_taken() -> None:
    x = floats(2, 4)
    loaded = tg.load(model_of_proto(parsed(UNFIT), "m"), store=False, threads=1)
    w = np.arange(1, 13, dtype=np.float32).reshape(4, 3)
    np.testing.assert_allclose(loaded(x, np.asarray(True)), x @ w, rtol=1e-5, atol=1e-5)
    with pytest.raises(
        IndexOutOfRange, match=r"node y \(If\): its else_branch is taken, which does"
    ):
        loaded(x, np.asarray(False))
    np.testing.assert_allclose(loaded(x, np.asarray(True)), x @ w, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("value", "fits"), [(True, True), (False, False)])
def test_if_of_an_input_that_has_a_value_has_one_branch(value: bool, fits: bool) -> None:
    proto = parsed(UNFIT)
    if not fits:
        with pytest.raises(ModelError, match=r"node y \(If\): else_branch: node b \(MatMul\)"):
            tg.load(model_of_proto(proto, "m", {"c": value}), store=False, threads=1)
        return
    loaded = tg.load(model_of_proto(proto, "m", {"c": value}), store=False, threads=1)
    assert [i.name for i in loaded.inputs] == ["x"]
    assert len(loaded.report()) == 1


def test_if_of_an_input_with_two_shapes_is_an_error_that_names_both() -> None:
    proto = branches(then="a = Concat <axis = 0> (x, x)", out="6")
    with pytest.raises(
        ModelError,
        match=r"node y \(If\): output 0 is f32\[6\] or f32\[3\]: its condition depends on the "
        r"model's inputs \(c\)",
    ):
        model_of_proto(proto, "m").build({})


LOOP = """
    m (float[2] x) => (float[2] last, float[steps, 2] all)
    <int64 count = {{{count}}}> {{
        yes = Constant <value = bool {{1}}> ()
        last, all = Loop (count, yes, x) <
            body = step (int64 i, bool go, float[2] v) => (bool on, float[2] w, float[2] row) {{
                on = Identity (go)
                f = Cast <to = 1> (i)
                twice = Add (v, x)
                w = Add (twice, f)
                row = Mul (w, w)
            }}
        >
    }}
"""


def test_loop_is_unrolled_and_its_scanned_outputs_are_stacked() -> None:
    check(parsed(LOOP.format(count=4)), floats(2))


def test_loop_without_a_step_has_empty_scanned_outputs() -> None:
    last, everything = run(parsed(LOOP.format(count=0)), x := floats(2))
    np.testing.assert_array_equal(last, x)
    assert everything.shape == (0, 2)


def test_loop_ends_where_a_known_condition_says_so() -> None:
    proto = parsed("""
    m (float[2] x) => (float[2] y) {
        yes = Constant <value = bool {1}> ()
        y = Loop ("", yes, x) <
            body = step (int64 i, bool go, float[2] v) => (bool on, float[2] w) {
                three = Constant <value = int64 {3}> ()
                on = Less (i, three)
                w = Add (v, x)
            }
        >
    }
    """)
    (y,) = run(proto, x := floats(2))
    np.testing.assert_allclose(y, 5 * x, rtol=1e-5)


WHILE = """
    m (float[2] x) => (float[2] y)
    <int64 count = {4}> {
        yes = Constant <value = bool {1}> ()
        y = Loop (count, yes, x) <
            body = step (int64 i, bool go, float[2] v) => (bool on, float[2] w) {
                w = Add (v, x)
                most = ReduceMax <keepdims = 0> (w)
                ten = Constant <value = float {10.0}> ()
                on = Less (most, ten)
            }
        >
    }
"""


def test_loop_whose_condition_depends_on_inputs_is_an_error_that_names_the_node() -> None:
    with pytest.raises(
        ModelError,
        match=r"model m: node y \(Loop\): whether it goes on to step 1 depends on the model's "
        r"inputs \(x\); it must be known",
    ):
        model_of_proto(parsed(WHILE), "m").build({})


def test_loop_that_never_ends_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "UNROLLED_NODES", 200)
    proto = parsed("""
    m (float[2] x) => (float[2] y) {
        yes = Constant <value = bool {1}> ()
        y = Loop ("", yes, x) <
            body = step (int64 i, bool go, float[2] v) => (bool on, float[2] w) {
                on = Identity (go)
                w = Neg (v)
            }
        >
    }
    """)
    with pytest.raises(
        ModelError, match=r"node y \(Loop\): body, step 100: loops are unrolled, and those of"
    ):
        model_of_proto(proto, "m").build({})


def test_error_inside_a_body_names_both_nodes_and_the_step() -> None:
    proto = parsed("""
    m (float[2] x, float[3] z) => (float[2] y)
    <int64 count = {2}> {
        y = Loop (count, "", x) <
            body = step (int64 i, bool go, float[2] v) => (bool on, float[2] w) {
                on = Identity (go)
                w = Add (v, z)
            }
        >
    }
    """)
    with pytest.raises(
        ModelError,
        match=r"model m: node y \(Loop\): body, step 0: node w \(Add\): .*\(2,\).*\(3,\)",
    ):
        model_of_proto(proto, "m").build({})


SCAN = """
    m (float[2] start, float[{shape}] x) => (float[2] last, float[{out}] all) {{
        last, all = Scan (start, x) <
            num_scan_inputs = 1{more},
            body = step (float[2] v, float[2] e) => (float[2] w, float[2] row) {{
                t = Tanh (v)
                w = Add (t, e)
                row = Mul (w, start)
            }}
        >
    }}
"""


@pytest.mark.parametrize(
    ("shape", "out", "more"),
    [
        ("5,2", "5,2", ""),
        ("2,5", "5,2", ", scan_input_axes = [1]"),
        ("2,5", "2,5", ", scan_input_axes = [-1], scan_output_axes = [1]"),
        ("5,2", "5,2", ", scan_input_directions = [1], scan_output_directions = [1]"),
    ],
)
def test_scan_steps_over_its_axis(shape: str, out: str, more: str) -> None:
    proto = parsed(SCAN.format(shape=shape, out=out, more=more))
    start, x = floats(2), floats(*map(int, shape.split(",")))
    v, rows = start, []
    steps = x if shape.startswith("5") else x.T
    for e in steps[::-1] if "directions" in more else steps:
        v = np.tanh(v) + e
        rows.append(v * start)
    rows = rows[::-1] if "directions" in more else rows
    last, everything = run(proto, start, x)
    np.testing.assert_allclose(last, v, rtol=1e-5, atol=1e-6)
    axis = 1 if "output_axes" in more else 0
    np.testing.assert_allclose(everything, np.stack(rows, axis), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("directions", ["", ", directions = [1]"])
@pytest.mark.parametrize("lengths", [[3, 1], [0, 3], None], ids=str)
def test_scan_of_opset_8_takes_as_many_steps_as_each_sequence_has(
    lengths: list[int] | None, directions: str
) -> None:
    proto = parsed(
        f"""
    m (int64[2] lengths, float[2, 2] start, float[2, 3, 2] x)
        => (float[2, 2] last, float[2, 3, 2] all) {{
        last, all = Scan ({"lengths" if lengths else ""}, start, x) <
            num_scan_inputs = 1{directions},
            body = step (float[2] v, float[2] e) => (float[2] w, float[2] row) {{
                t = Tanh (v)
                w = Add (t, e)
                row = Mul (w, e)
            }}
        >
    }}
    """,
        opset=8,
    )
    start, x = floats(2, 2), floats(2, 3, 2)
    rows, ends = np.zeros((2, 3, 2), np.float32), start.copy()
    for i, length in enumerate(lengths or (3, 3)):
        for step, e in enumerate(x[i, :length][:: -1 if directions else 1]):
            ends[i] = np.tanh(ends[i]) + e
            rows[i, step] = ends[i] * e
    given = np.asarray(lengths or (3, 3))
    last, every = TunegradBackend.prepare(proto).run([given, start, x])
    np.testing.assert_allclose(last, ends, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(every, rows, rtol=1e-5, atol=1e-6)
    if lengths:
        with pytest.raises(ModelError, match="a sequence of 4 steps, and operands of 3"):
            TunegradBackend.prepare(proto).run([np.asarray([4, 1]), start, x])


def test_branches_nest_in_loops_and_see_all_names() -> None:
    check(
        parsed("""
    m (float[3] x) => (float[3] y)
    <int64 count = {5}> {
        two = Constant <value = int64 {2}> ()
        yes = Constant <value = bool {1}> ()
        y = Loop (count, yes, x) <
            body = step (int64 i, bool go, float[3] v) => (bool on, float[3] w) {
                on = Identity (go)
                even = Mod (i, two)
                zero = Constant <value = int64 {0}> ()
                c = Equal (even, zero)
                w = If (c) <
                    then_branch = a () => (float[3] p) { p = Add (v, x) },
                    else_branch = b () => (float[3] q) { q = Mul (v, x) }
                >
            }
        >
    }
    """),
        floats(3),
    )


def test_operators_inside_bodies_are_missed_before_anything_runs() -> None:
    proto = branches(then="a = ImageDecoder (x)")
    with pytest.raises(ModelError, match="1 operators are not supported: ImageDecoder"):
        model_of_proto(proto, "m")


def test_a_file_with_a_loop_loads(tmp_path: Path) -> None:
    onnx.save(parsed(LOOP.format(count=2)), tmp_path / "loop.onnx")
    loaded = tg.load(str(tmp_path / "loop.onnx"), store=False, threads=1)
    assert [o.shape for o in loaded(floats(2))] == [(2,), (2, 2)]


def test_what_depends_on_an_inputs_type_alone_is_known() -> None:
    proto = parsed("""
    m (float[2] x) => (float[2] y) {
        k = Constant <value = int64 {1}> ()
        like = CastLike (k, x)
        c = Cast <to = 9> (like)
        y = If (c) <
            then_branch = first () => (float[2] a) { a = Add (x, x) },
            else_branch = other () => (float[1] b) { zero = Constant <value = int64[1] {0}> ()
                                                     b = Gather (x, zero) }
        >
    }
    """)
    (y,) = run(proto, x := floats(2))
    np.testing.assert_array_equal(y, x + x)
