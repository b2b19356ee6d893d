"""Which sums become sums of pairs, what their kernels say, and that nothing else changes."""

from dataclasses import replace

import numpy as np
import pytest
from pair_builders import CONVS, DOT, MATMULS, conv, matmul

from benchmarks.hand_schedules import GPU
from tests.verifiers.graph import verify_graph
from tunegrad.frontend import Tensor, bf16_bits
from tunegrad.ir.dtypes import BF16, BF16X2
from tunegrad.ir.expr import Op
from tunegrad.ir.fusion import schedule
from tunegrad.ir.graph import GraphOp, topological
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.rewrites import pair_dots
from tunegrad.ir.target import Target
from tunegrad.ir.verify.kernel import verify_kernel
from tunegrad.planning import prepared

A, B = Tensor.input("a", (8, 6), "bf16"), Tensor.input("b", (6, 16), "bf16")


def kernels(*outputs: Tensor, numerics: str = "bf16-dot", target: Target = DOT) -> list[Kernel]:
    nodes = prepared(tuple(t.node for t in outputs), numerics, target)  # type: ignore[arg-type]
    return [launch.kernel for launch in schedule(nodes).launches]


def dots(*outputs: Tensor) -> int:
    found = topological(pair_dots(tuple(t.node for t in outputs)))
    return sum(n.op is GraphOp.MAP and n.arg is Op.DOT2 for n in found)


PACK_B = """kernel
  param p0 bf16x2[3,16] out row
  param p1 bf16[6,16] in row
  axis a:3 b:16
  store p0[a, b] = pair(f32(p1[2*a, b]), f32(p1[2*a+1, b]))"""
PRODUCT = """kernel
  param p0 bf16[8,16] out row
  param p1 bf16x2[8,3] in row
  param p2 bf16x2[3,16] in row
  axis a:8 b:16
  v0 = add over ra:3 in f32: dot2(p1[a, ra], p2[ra, b])
  store p0[a, b] = bf16(v0)"""


def test_matmul_of_bf16_packs_columns_and_reads_rows_as_pairs():
    plan = schedule(prepared(((A @ B).node,), "bf16-dot", DOT))
    pack, product = plan.launches
    assert [pack.kernel.text, product.kernel.text] == [PACK_B, PRODUCT]
    assert product.name == "matmul 8x16x6 bf16-dot"
    a = plan.buffers[product.args[1]]
    assert (a.name, a.dtype, a.shape) == ("a", BF16, (8, 6))


def test_rows_are_copied_where_they_are_also_read_one_by_one():
    square = Tensor.input("s", (8, 8), "bf16")
    made = kernels((square @ Tensor.input("t", (8, 8), "bf16")).cast("f32") + square.cast("f32"))
    assert sum("pair(" in k.text for k in made) == 2


def test_rows_of_an_odd_length_are_copied():
    made = kernels(Tensor.input("a", (4, 5), "bf16") @ Tensor.input("b", (5, 8), "bf16"))
    assert sum("pair(" in k.text for k in made) == 2


def heads(name: str, features: int) -> Tensor:
    """Two heads' parts of as many features of five tokens."""
    wide = Tensor.input(name, (5, features), "bf16").cast("f32")
    return wide.reshape(5, 2, features // 2).permute(1, 0, 2)


def test_heads_are_read_as_pairs_of_all_features():
    """The inner extent of 4 is a part of 8 features, whose pairs are pairs of the whole."""
    (kernel,) = kernels(heads("q", 8) @ heads("k", 8).permute(0, 2, 1))
    assert "over ra:2 in f32: dot2(p1[b, 2*a+ra], p2[c, 2*a+ra])" in kernel.text


def test_heads_of_odd_parts_are_no_pairs():
    assert dots(heads("q", 6) @ heads("k", 6).permute(0, 2, 1)) == 0


@pytest.mark.parametrize("numerics", ["contract", "strict"])
def test_other_settings_never_make_pairs(numerics):
    (kernel,) = kernels(A @ B, numerics=numerics)
    assert "add over ra:6 in f32: mul(f32(p1[a, ra]), f32(p2[ra, b]))" in kernel.text


def test_targets_without_the_instruction_never_get_pairs():
    """Widened and multiplied by FMA, pairs would only be made and taken apart again."""
    plain = kernels(A @ B, numerics="contract")
    for target in (replace(DOT, features=("+avx512f", "+avx512vl")), GPU):
        assert [k.text for k in kernels(A @ B, target=target)] == [k.text for k in plain]


def test_flops_of_pairs_are_those_of_their_products():
    assert kernels(A @ B)[-1].flops == kernels(A @ B, numerics="contract")[0].flops


def test_odd_inner_extent_is_padded_with_zero():
    a, b = Tensor.input("a", (4, 5), "bf16"), Tensor.input("b", (5, 8), "bf16")
    packs = kernels(a @ b)
    assert "pair(f32(p1[a, 2*b]), f32(p1[a, 2*b+1 if 0<=b<2]))" in packs[0].text
    assert "over ra:3 in f32: dot2(" in packs[-1].text


def test_constant_operand_is_packed_when_it_is_folded():
    weights = Tensor.constant(bf16_bits(np.arange(96.0).reshape(6, 16)), "bf16", name="w")
    (product,) = kernels(A @ weights)
    assert [p.role for p in product.params] == ["out", "in", "const"]
    assert product.params[2].dtype == BF16X2


def test_operand_of_several_products_is_packed_once():
    weights = [Tensor.constant(bf16_bits(np.full((8, 6), float(i))), "bf16") for i in range(3)]
    made = kernels(*(w @ B for w in weights))
    assert sum("pair(" in k.text for k in made) == 1
    assert sum("dot2(" in k.text for k in made) == 3


def test_epilogue_stays_in_the_kernel_of_the_sum():
    made = kernels((A.cast("f32") @ B.cast("f32") + 1.0).relu())
    assert len(made) == 2
    assert "dot2(" in made[-1].text
    assert "max(" in made[-1].text


def test_convolution_pairs_its_channels():
    image, taps = Tensor.input("x", (1, 4, 6, 6), "bf16"), Tensor.input("w", (8, 4, 3, 3), "bf16")
    made = kernels(image.conv2d(taps, padding=1))
    assert [k.params[0].dtype == BF16X2 for k in made] == [True, True, False]
    assert "over ra:3 rb:3 rc:2 in f32: dot2(" in made[-1].text


def test_convolution_of_pairs_is_named_by_all_its_channels():
    weights = Tensor.constant(bf16_bits(np.ones((8, 4, 3, 3))), "bf16", name="w")
    made = kernels(Tensor.input("x", (1, 4, 6, 6), "bf16").conv2d(weights, padding=1))
    assert made[-1].name == "conv3x3 4->8 6x6 bf16-dot"


F32_A, F32_B = (Tensor.input(n, s) for n, s in (("a", (8, 6)), ("b", (6, 16))))
F16_A, F16_B = (Tensor.input(n, s, "f16") for n, s in (("a", (8, 6)), ("b", (6, 16))))
VECTOR, SQUARE = Tensor.input("v", (6,), "bf16"), Tensor.input("q", (6, 6), "bf16")
UNPAIRED = {
    "f32": F32_A @ F32_B,
    "f16": F16_A @ F16_B,
    "mixed": A.cast("f32") @ F32_B,
    "f64 accumulator": A.matmul(B, accumulate="f64"),
    "sum of squares": (A.cast("f32") * A.cast("f32")).sum(1),
    "plain sum": A.sum(1),
    "inner product": VECTOR @ VECTOR,
    "matrix that is read once": SQUARE @ VECTOR,
    "one product for each sum": A[:, :1] @ B[:1],
    "scaled before the sum": (A.cast("f32") * 2.0) @ B.cast("f32"),
    "depthwise convolution": Tensor.input("x", (1, 4, 6, 6), "bf16").conv2d(
        Tensor.input("w", (4, 1, 3, 3), "bf16"), groups=4
    ),
}


@pytest.mark.parametrize("name", UNPAIRED)
def test_other_sums_keep_their_nodes(name):
    node = UNPAIRED[name].node
    assert pair_dots((node,)) == (node,)


def test_matrix_that_is_read_once_is_paired_where_it_is_constant():
    weights = Tensor.constant(bf16_bits(np.eye(6)), "bf16")
    assert dots(VECTOR @ weights) == 1


@pytest.mark.parametrize(
    "case", [matmul(*s) for s in MATMULS] + [conv(*s) for s in CONVS], ids=lambda c: str(c.output)
)
def test_pairs_compute_what_the_products_do(case):
    before, after = (case.output.node,), pair_dots((case.output.node,))
    verify_graph(after)
    for launch in schedule(after).launches:
        verify_kernel(launch.kernel)
    assert dots(case.output) == 1
    (want,), (got,) = evaluate(before, case.values), evaluate(after, case.values)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_what_a_sum_gives_is_stored_before_its_pairs_are_made():
    """Else the kernel of the first product would have two sums, of even and of odd columns."""
    weights = [
        Tensor.constant(bf16_bits(np.full(shape, 0.5)), "bf16") for shape in ((6, 8), (8, 4))
    ]
    made = kernels((A @ weights[0]).relu() @ weights[1])
    assert [k.name for k in made] == ["matmul 8x8x6 bf16-dot +relu", "matmul 8x4x8 bf16-dot"]


def test_an_f32_input_is_paired_with_a_bf16_tensor_where_it_may_be_rounded():
    x = Tensor.input("x", (8, 6))
    product = (x @ B.cast("f32")).node
    assert pair_dots((product,)) == (product,)
    (paired,) = pair_dots((product,), inputs=True)
    texts = [launch.kernel.text for launch in schedule((paired,)).launches]
    assert "pair(f32(bf16(p1[a, 2*b])), f32(bf16(p1[a, 2*b+1])))" in texts[0]
    assert "dot2(" in texts[-1]


def test_two_f32_inputs_are_never_rounded():
    x, y = Tensor.input("x", (8, 6)), Tensor.input("y", (6, 16))
    product = ((x @ y).node,)
    assert pair_dots(product, inputs=True) == product
