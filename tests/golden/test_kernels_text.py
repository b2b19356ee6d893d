"""The canonical text of small kernels."""

from __future__ import annotations

from textwrap import dedent

from tests.graph_builders import (
    add,
    conv,
    layer_norm,
    matmul,
    max_pool,
    relu,
    softmax,
    tensor,
    weight,
)
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import BF16, F32
from tunegrad.ir.expr import Op
from tunegrad.ir.fusion import blocked, schedule
from tunegrad.ir.graph import Node
from tunegrad.ir.kernel import Kernel


def only(*outputs: Node) -> Kernel:
    (launch,) = schedule(outputs).launches
    return launch.kernel


def text(*outputs: Node) -> str:
    return "\n".join(launch.kernel.text for launch in schedule(outputs).launches)


def check(got: str, want: str) -> None:
    assert got == dedent(want).strip("\n")


def test_kernels_matmul_and_relu() -> None:
    check(
        text(relu(matmul(tensor("a", 4, 6), tensor("b", 6, 8)))),
        """
        kernel
          param p0 f32[4,8] out row
          param p1 f32[4,6] in row
          param p2 f32[6,8] in row
          axis a:4 b:8
          v0 = add over ra:6 in f32: mul(p1[a, ra], p2[ra, b])
          store p0[a, b] = max(v0, 0.0:f32)
        """,
    )


def test_kernels_padded_convolution_masks_its_loads() -> None:
    check(
        text(conv(tensor("x", 1, 3, 5, 5), weight("w", 4, 3, 3, 3), 1, 1)),
        """
        kernel
          param p0 f32[4,5,5] out row
          param p1 f32[3,5,5] in row
          param p2 f32[4,3,3,3] const row
          axis a:4 b:5 c:5
          v0 = add over ra:3 rb:3 rc:3 in f32: \
mul(p1[ra, b+rb+-1, c+rc+-1 if 1<=b+rb<6&1<=c+rc<6], p2[a, ra, rb, rc])
          store p0[a, b, c] = v0
        """,
    )


def test_kernels_pointwise_convolution_is_a_matmul() -> None:
    check(
        text(conv(tensor("x", 1, 3, 5, 5), weight("w", 4, 3, 1, 1))),
        """
        kernel
          param p0 f32[4,25] out row
          param p1 f32[3,25] in row
          param p2 f32[4,3] const row
          axis a:4 b:25
          v0 = add over ra:3 in f32: mul(p1[ra, b], p2[a, ra])
          store p0[a, b] = v0
        """,
    )


def test_kernels_channels_last_between_convolutions() -> None:
    x = conv(tensor("x", 1, 3, 5, 5), weight("w", 4, 3, 3, 3))
    check(
        text(conv(x, weight("v", 2, 4, 1, 1))),
        """
        kernel
          param p0 f32[3,3,4] out row
          param p1 f32[3,5,5] in row
          param p2 f32[4,3,3,3] const row
          axis a:3 b:3 c:4
          v0 = add over ra:3 rb:3 rc:3 in f32: mul(p1[ra, a+rb, b+rc], p2[c, ra, rb, rc])
          store p0[a, b, c] = v0
        kernel
          param p0 f32[2,9] out row
          param p1 f32[9,4] in row
          param p2 f32[2,4] const row
          axis a:2 b:9
          v0 = add over ra:4 in f32: mul(p1[b, ra], p2[a, ra])
          store p0[a, b] = v0
        """,
    )


def test_kernels_of_blocked_channels_have_an_axis_for_each_digit() -> None:
    x = relu(conv(tensor("x", 1, 3, 5, 5), weight("w", 8, 3, 3, 3)))
    y = add(conv(x, weight("v", 8, 8, 3, 3), 1, 1), x)
    plan = schedule((conv(y, weight("u", 2, 8, 1, 1)),), images=blocked(4))
    check(
        "\n".join(launch.kernel.text for launch in plan.launches),
        """
        kernel
          param p0 f32[2,3,3,4] out row
          param p1 f32[3,5,5] in row
          param p2 f32[8,3,3,3] const row
          axis a:2 b:3 c:3 d:4
          v0 = add over ra:3 rb:3 rc:3 in f32: mul(p1[ra, b+rb, c+rc], p2[4*a+d, ra, rb, rc])
          store p0[a, b, c, d] = max(v0, 0.0:f32)
        kernel
          param p0 f32[2,3,3,4] out row
          param p1 f32[2,3,3,4] in row
          param p2 f32[8,8,3,3] const row
          axis a:2 b:3 c:3 d:4
          v0 = add over ra:2 rb:3 rc:3 rd:4 in f32: \
mul(p1[ra, b+rb+-1, c+rc+-1, rd if 1<=b+rb<4&1<=c+rc<4], p2[4*a+d, 4*ra+rd, rb, rc])
          store p0[a, b, c, d] = add(v0, p1[a, b, c, d])
        kernel
          param p0 f32[2,9] out row
          param p1 f32[2,9,4] in row
          param p2 f32[2,8] const row
          axis a:2 b:9
          v0 = add over ra:2 rb:4 in f32: mul(p1[ra, b, rb], p2[a, 4*ra+rb])
          store p0[a, b] = v0
        """,
    )


def test_kernels_softmax_has_three_stages() -> None:
    check(
        text(softmax(tensor("x", 2, 4, 6))),
        """
        kernel
          param p0 f32[8,6] out row
          param p1 f32[8,6] in row
          axis a:8
          v0 = max over ra:6 in f32: p1[a, ra]
          v1 = add over rb:6 in f32: exp(sub(p1[a, rb], v0))
          store p0[a, sa] over sa:6 = div(exp(sub(p1[a, sa], v0)), v1)
        """,
    )


def test_kernels_max_pool_pads_with_minus_infinity() -> None:
    check(
        text(max_pool(tensor("x", 1, 2, 4, 4))),
        """
        kernel
          param p0 f32[2,2,2] out row
          param p1 f32[2,4,4] in row
          axis a:2 b:2 c:2
          v0 = max over ra:3 rb:3 in f32: where((1<=2*b+ra<5&1<=2*c+rb<5), \
p1[a, 2*b+ra+-1, 2*c+rb+-1 if 1<=2*b+ra<5&1<=2*c+rb<5], -inf:f32)
          store p0[a, b, c] = v0
        """,
    )


def test_kernels_elementwise_on_one_shape_is_flat() -> None:
    check(
        text(add(tensor("x", 2, 3, 4), relu(tensor("y", 2, 3, 4)))),
        """
        kernel
          param p0 f32[24] out row
          param p1 f32[24] in row
          param p2 f32[24] in row
          axis a:24
          store p0[a] = add(p1[a], max(p2[a], 0.0:f32))
        """,
    )


def test_kernels_merged_heads_are_split_axes() -> None:
    x = g.reshape(g.permute(tensor("x", 2, 5, 3), (1, 0, 2)), (5, 6))
    check(
        text(matmul(x, tensor("w", 6, 4))),
        """
        kernel
          param p0 f32[5,4] out row
          param p1 f32[2,5,3] in row
          param p2 f32[6,4] in row
          axis a:5 b:4
          v0 = add over ra:2 rb:3 in f32: mul(p1[ra, a, rb], p2[3*ra+rb, b])
          store p0[a, b] = v0
        """,
    )


def test_kernels_padding_of_what_is_not_zero_is_selected() -> None:
    x = g.pad(g.elementwise(Op.EXP, tensor("x", 3)), ((1, 0),))
    check(
        text(x),
        """
        kernel
          param p0 f32[4] out row
          param p1 f32[3] in row
          axis a:4
          store p0[a] = where((1<=a<4), exp(p1[a+-1 if 1<=a<4]), 0.0:f32)
        """,
    )


def test_kernels_half_floats_are_computed_in_f32() -> None:
    x = g.graph_input("x", (4,), BF16)
    check(
        text(add(x, x)),
        """
        kernel
          param p0 bf16[4] out row
          param p1 bf16[4] in row
          axis a:4
          store p0[a] = bf16(add(f32(p1[a]), f32(p1[a])))
        """,
    )


def test_kernels_of_equal_computations_have_one_key() -> None:
    a, b = tensor("a", 4, 6), tensor("b", 4, 6)
    transposed = g.permute(g.elementwise(Op.MUL, a, b), (1, 0))
    separately = g.elementwise(
        Op.MUL, g.permute(tensor("u", 4, 6), (1, 0)), g.permute(tensor("v", 4, 6), (1, 0))
    )
    assert only(transposed).key == only(separately).key
    assert only(matmul(a, tensor("w", 6, 3))).key == only(matmul(b, tensor("other", 6, 3))).key
    flat = conv(tensor("x", 1, 3, 4, 4), weight("w", 2, 3, 1, 1))
    rows = g.graph_input("x", (3, 16), F32)
    assert (
        only(flat).key
        == only(g.permute(matmul(g.permute(rows, (1, 0)), weight_matrix()), (1, 0))).key
    )


def weight_matrix() -> Node:
    return g.permute(weight("w", 2, 3), (1, 0))


def test_kernels_of_other_computations_have_other_keys() -> None:
    x = tensor("x", 8, 16)
    keys = [
        only(y).key for y in (softmax(x), layer_norm(x), relu(x), add(x, x), g.permute(x, (1, 0)))
    ]
    assert len(set(keys)) == len(keys)


def test_kernels_padding_of_a_padding_is_one() -> None:
    x = g.iota((3,), 0, F32)
    for _ in range(200):
        x = g.shrink(g.pad(g.flip(x, (0,)), ((1, 1),)), ((1, 5),))
        x = g.shrink(x, ((0, 3),))
    assert len(text(x)) < 300
