"""Which sums become sums of products of four bytes, what their kernels say, and that they are the
same sums.
"""

from dataclasses import replace

import numpy as np
import pytest
from quad_builders import CONVS, MATMULS, VNNI, conv, drawn, matmul

from benchmarks.hand_schedules import GPU
from tests.verifiers.graph import verify_graph
from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import I8X4, U8X4
from tunegrad.ir.expr import Op
from tunegrad.ir.fusion import schedule
from tunegrad.ir.graph import GraphOp, topological
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.parse_kernel import parse_kernel
from tunegrad.ir.rewrites import quad_dots
from tunegrad.ir.verify.kernel import verify_kernel
from tunegrad.planning import prepared

A, B = Tensor.input("a", (8, 8), "u8"), Tensor.input("b", (8, 16), "i8")
WEIGHTS = Tensor.constant(drawn((8, 16), "i8"), name="w")
PRODUCT = A.cast("i32") @ WEIGHTS.cast("i32")


def kernels(*outputs, numerics="strict", target=VNNI):
    nodes = prepared(tuple(t.node for t in outputs), numerics, target)
    return [launch.kernel for launch in schedule(nodes).launches]


def dots(*outputs, target=VNNI):
    found = topological(quad_dots(tuple(t.node for t in outputs), target))
    return sum(n.op is GraphOp.MAP and n.arg is Op.DOT4 for n in found)


def test_rows_of_bytes_are_words_and_constants_are_packed_at_load():
    (product,) = kernels(PRODUCT)
    assert (
        product.text
        == """kernel
  param p0 i32[8,16] out row
  param p1 u8x4[8,2] in row
  param p2 i8x4[2,16] const row
  axis a:8 b:16
  v0 = add over ra:2 in i32: dot4(p1[a, ra], p2[ra, b])
  store p0[a, b] = v0"""
    )
    assert product.name == "matmul 8x16x8 int8-dot"
    assert parse_kernel(product.text).key == product.key


def test_two_factors_with_a_sign_move_one_of_them_by_128():
    first, product = kernels(Tensor.input("a", (8, 8), "i8").cast("i32") @ WEIGHTS.cast("i32"))
    assert "xor(u8(p1[a]), 128:u8)" in first.text
    assert [p.dtype for p in product.params[1:3]] == [U8X4, I8X4]
    assert "sub(v0, p3[b])" in product.text
    assert product.params[3].role == "const"


def test_two_factors_without_a_sign_move_one_of_them_by_128():
    weights = Tensor.constant(drawn((8, 16), "u8")).cast("i32")
    _, product = kernels(A.cast("i32") @ weights)
    assert [p.dtype for p in product.params[1:3]] == [I8X4, U8X4]


def test_zero_points_are_subtracted_from_the_sums():
    zero = Tensor.input("z", (), "u8").cast("i32")
    (product,) = kernels((A.cast("i32") - zero) @ WEIGHTS.cast("i32"))
    assert "dot4(p1[a, ra], p2[ra, b])" in product.text
    assert "store p0[a, b] = sub(v0, mul(i32(p3[]), p4[b]))" in product.text


def test_rows_may_have_zero_points_of_their_own():
    zero = Tensor.input("z", (8, 1), "i32")
    (product,) = kernels((A.cast("i32") - zero) @ WEIGHTS.cast("i32"))
    assert "store p0[a, b] = sub(v0, mul(p3[a], p4[b]))" in product.text


def test_images_are_padded_with_their_zero_points():
    """Padding is zero after the subtraction."""
    x = Tensor.input("x", (1, 4, 6, 6), "u8").cast("i32") - Tensor.input("z", (), "u8").cast("i32")
    weights = Tensor.constant(drawn((8, 4, 3, 3), "i8")).cast("i32")
    words, product = kernels(x.conv2d(weights, padding=1))
    assert words.params[0].dtype == U8X4
    assert words.params[0].size == 8 * 8
    assert "if " not in product.text


def test_padding_that_bytes_do_not_hold_keeps_its_product():
    weights = Tensor.constant(drawn((8, 4, 3, 3), "i8")).cast("i32")
    image = Tensor.input("x", (1, 4, 6, 6), "i8").cast("i32")
    for zero, found in ((-128, 1), (-129, 0), (128, 0), (Tensor.input("z", (), "i32"), 0)):
        assert dots((image - zero).conv2d(weights, padding=1)) == found


def test_constants_that_are_no_bytes_may_be_some_less_a_number():
    """By a sum of the other factor, once a row."""
    weights = Tensor.constant(drawn((8, 16), "u8")).cast("i32") - 77
    sums, product = kernels(A.cast("i32") @ weights)
    assert "v0 = add over ra:8 in i32: i32(p1[a, ra])" in sums.text
    assert [p.dtype for p in product.params[1:3]] == [U8X4, I8X4]


def test_a_padded_constant_is_not_bytes_less_a_number():
    """What pads it is 0."""
    weights = (Tensor.constant(drawn((6, 16), "i8")).cast("i32") - 200).pad((0, 0, 1, 1))
    product = A.cast("i32") @ weights
    a = drawn((8, 8), "u8")
    (want,), (got,) = (
        evaluate(nodes, {"a": a}) for nodes in ((product.node,), quad_dots((product.node,), VNNI))
    )
    np.testing.assert_array_equal(got, want)


def test_zero_points_of_constants_are_in_them():
    weights = Tensor.constant(drawn((8, 16), "u8")).cast("i32") - 128
    (product,) = kernels(A.cast("i32") @ weights)
    assert [p.dtype for p in product.params] == [product.params[0].dtype, U8X4, I8X4]


def test_epilogue_stays_in_the_kernel_of_the_sum():
    (product,) = kernels((PRODUCT.cast("f32") * 0.25).relu())
    assert "dot4(" in product.text
    assert "max(" in product.text


def test_computed_bytes_are_stored_and_read_as_words():
    x = (Tensor.input("x", (8, 8)) * 4.0).round().clamp(0.0, 255.0).cast("u8")
    made, product = kernels(x.cast("i32") @ WEIGHTS.cast("i32"))
    assert made.params[0].dtype.name == "u8"
    assert product.params[1].dtype == U8X4


def test_convolution_takes_four_channels_at_a_time():
    made = kernels(conv(8, 5, 1, constant=True).output)
    assert "over ra:3 rb:3 rc:2 in i32: dot4(" in made[-1].text
    assert made[-1].name == "conv3x3 8->5 6x5 int8-dot"


@pytest.mark.parametrize("numerics", ["contract", "strict", "bf16-dot"])
def test_every_setting_has_them(numerics):
    assert "dot4(" in kernels(PRODUCT, numerics=numerics)[-1].text


@pytest.mark.parametrize("target", [replace(VNNI, features=("+avx512f", "+avx512vl")), GPU])
def test_targets_without_the_instruction_keep_their_products(target):
    assert "mul(i32(p1[a, ra]), " in kernels(PRODUCT, target=target)[-1].text


def test_avx_vnni_is_enough():
    assert replace(VNNI, features=("+avx2", "+avxvnni")).vnni
    assert not replace(VNNI, features=("+avx512vnni",)).vnni


I8, U8 = (Tensor.input(n, (8, 8), t) for n, t in (("s", "i8"), ("u", "u8")))
UNTOUCHED = {
    "zero points of the rows of two inputs": (U8.cast("i32") - 3)
    @ (I8.cast("i32") - I8.amax(0, keepdim=True).cast("i32")),
    "16 bits": Tensor.input("h", (8, 8), "i16").cast("i32") @ WEIGHTS.cast("i32"),
    "i64 sums": A.cast("i64") @ WEIGHTS.cast("i64"),
    "wide constants": A.cast("i32") @ Tensor.constant(np.array([[0, 256]] * 8, np.int32)),
    "nothing": Tensor.input("e", (0, 8), "u8").cast("i32") @ (WEIGHTS.cast("i32") - 3),
    "read once": U8.cast("i32") @ Tensor.constant(np.ones(8, np.int8)).cast("i32"),
    "zero point of each term": (A.cast("i32") - Tensor.input("z", (8,), "i32"))
    @ WEIGHTS.cast("i32"),
    "depthwise convolution": Tensor.input("x", (1, 4, 6, 6), "u8")
    .cast("i32")
    .conv2d(Tensor.constant(drawn((4, 1, 3, 3), "i8")).cast("i32"), groups=4),
}


@pytest.mark.parametrize("name", UNTOUCHED)
def test_other_sums_keep_their_nodes(name):
    node = UNTOUCHED[name].node
    assert quad_dots((node,), VNNI) == (node,)


KINDS = [("u8", "i8"), ("i8", "u8"), ("i8", "i8"), ("u8", "u8")]


@pytest.mark.parametrize(("a", "b"), KINDS)
@pytest.mark.parametrize("of", [matmul, conv])
@pytest.mark.parametrize("constant", [False, True])
def test_fours_compute_what_the_products_do(of, a, b, constant):
    for shape in MATMULS if of is matmul else CONVS:
        case = of(*shape, a, b, constant=constant)
        before, after = (case.output.node,), quad_dots((case.output.node,), VNNI)
        verify_graph(after)
        for launch in schedule(after).launches:
            verify_kernel(launch.kernel)
        assert dots(case.output)
        (want,), (got,) = evaluate(before, case.values), evaluate(after, case.values)
        np.testing.assert_array_equal(got, want)


MANY, FEW = (16, 32, 24), (2, 3, 5)


@pytest.mark.parametrize("zeros", [(None, None), (3, None), (None, 77), (3, 77)])
@pytest.mark.parametrize(("a", "b"), KINDS)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_two_inputs_are_moved_and_zeroed(batch, a, b, zeros):
    """As in attention: by sums of a factor."""
    for m, n, k in (MANY, FEW):
        values = {"a": drawn((*batch, m, k), a, 1), "b": drawn((*batch, k, n), b, 2)}
        x, y = (
            Tensor.input(
                name, v.shape, str(v.dtype.name).replace("uint", "u").replace("int", "i")
            ).cast("i32")
            for name, v in values.items()
        )
        left = x if zeros[0] is None else x - zeros[0]
        right = y if zeros[1] is None else y - zeros[1]
        product = left @ right
        after = quad_dots((product.node,), VNNI)
        verify_graph(after)
        assert dots(product) == 1
        (want,), (got,) = evaluate((product.node,), values), evaluate(after, values)
        np.testing.assert_array_equal(got, want)


ZEROED = {
    "numbers": lambda a, b: (a.cast("i32") - 3) @ (b - 77),
    "rows": lambda a, b: (a.cast("i32") - a.amax(1, keepdim=True).cast("i32")) @ (b - 77),
}
IMAGES = {
    "padded": lambda a, b: (a.cast("i32") - 101).conv2d(b - 5, padding=1),
    "padded, computed": lambda a, b: (a.cast("i32") - a.amin().cast("i32")).conv2d(b, padding=1),
    "padded before": lambda a, b: (a.cast("i32").pad((1, 1, 1, 1)) - 900).conv2d(b),
}


@pytest.mark.parametrize(("a", "b"), KINDS)
@pytest.mark.parametrize("name", [*ZEROED, *IMAGES])
def test_zero_points_change_no_sum(name, a, b):
    image = name in IMAGES
    x = drawn((2, 8, 3, 4) if image else (8, 8), a)
    weights = Tensor.constant(drawn((4, 8, 2, 2) if image else (8, 16), b)).cast("i32")
    product = (IMAGES | ZEROED)[name](Tensor.input("a", x.shape, a), weights)
    before, after = (product.node,), quad_dots((product.node,), VNNI)
    verify_graph(after)
    assert dots(product) == 1
    (want,), (got,) = evaluate(before, {"a": x}), evaluate(after, {"a": x})
    np.testing.assert_array_equal(got, want)


def test_sums_wrap_around():
    """255 * 127 * 70,000 terms are more than 2^31."""
    a = Tensor.input("a", (2, 70_000), "u8")
    product = a.cast("i32") @ Tensor.constant(np.full((70_000, 2), 127, np.int8)).cast("i32")
    ones = {"a": np.full((2, 70_000), 255, np.uint8)}
    (want,), (got,) = (
        evaluate(x, ones) for x in ((product.node,), quad_dots((product.node,), VNNI))
    )
    assert want[0, 0] < 0
    np.testing.assert_array_equal(got, want)
