"""What the operations on pairs mean, for the interpreters and for verification."""

import numpy as np
import pytest
from pair_builders import dot_kernel, matmul, memory

from tests.interpreter.values import operation
from tunegrad.devices.job import Parameter, Reference
from tunegrad.devices.verifying.inputs import draw
from tunegrad.devices.verifying.tolerance import compare
from tunegrad.errors import DTypeError
from tunegrad.frontend import Tensor, bf16_bits, bf16_values
from tunegrad.ir import graph
from tunegrad.ir.dtypes import BF16, BF16X2, DTYPES, F32, F64, I32, buffer_dtype, dtype_of
from tunegrad.ir.expr import Op, result_type
from tunegrad.ir.interpret.evaluate import in_float64
from tunegrad.ir.interpret.kernel import interpret
from tunegrad.ir.interpret.numeric import compute
from tunegrad.ir.verify.kernel import verify_kernel

X, Y = (
    bf16_values(bf16_bits(np.random.default_rng(i).standard_normal(64) * 2.0**i)) for i in (1, 2)
)


def test_halves_of_a_pair_are_what_it_was_made_of():
    pairs = compute(Op.PAIR, X, Y)
    assert pairs.dtype == BF16X2.numpy
    np.testing.assert_array_equal(compute(Op.LOW, pairs), X)
    np.testing.assert_array_equal(compute(Op.HIGH, pairs), Y)


def test_first_of_a_pair_comes_first_in_memory():
    pairs = compute(Op.PAIR, X, Y)
    np.testing.assert_array_equal(pairs.view(np.uint16)[0::2], bf16_bits(X))


def test_dot2_rounds_exact_products_once():
    pairs = compute(Op.PAIR, X, Y)
    want = (X.astype(np.float64) * X + Y.astype(np.float64) * Y).astype(np.float32)
    np.testing.assert_array_equal(compute(Op.DOT2, pairs, pairs).astype(np.float32), want)


@pytest.mark.parametrize("lanes", [1, 64])
def test_dot2_add_rounds_after_the_second_product_and_after_the_first(lanes):
    p, q = compute(Op.PAIR, X, Y), compute(Op.PAIR, Y, X)
    c = np.float32(3.1) * X
    first = (Y.astype(np.float64) * X + c).astype(np.float32)
    want = (X.astype(np.float64) * Y + first).astype(np.float32)
    add = operation(Op.DOT2_ADD, F32, lanes)
    got = add(p, q, c) if lanes > 1 else np.array([add(*v) for v in zip(p, q, c, strict=True)])
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("op", "args", "result"),
    [
        (Op.PAIR, (BF16, BF16), BF16X2), (Op.PAIR, (F32, F32), BF16X2),
        (Op.PAIR, (F32, BF16), None),
        (Op.PAIR, (I32, I32), None), (Op.LOW, (BF16X2,), F32), (Op.HIGH, (F32,), None),
        (Op.DOT2, (BF16X2, BF16X2), F32), (Op.DOT2, (F32, F32), None),
        (Op.DOT2_ADD, (BF16X2, BF16X2, F32), F32), (Op.DOT2_ADD, (BF16X2, BF16X2, F64), None),
        (Op.ADD, (BF16X2, BF16X2), None), (Op.MUL, (BF16X2, BF16X2), None),
        (Op.LT, (BF16X2, BF16X2), None),
    ],
    ids=str,
)  # fmt: skip
def test_operations_on_pairs_take_pairs_only(op, args, result):
    assert result_type(op, args) == result


@pytest.mark.parametrize(
    ("op", "dtype"), [(Op.PAIR, F32), (Op.PAIR, BF16X2), (Op.ADD, BF16X2)], ids=str
)
def test_graph_refuses_other_operations_on_pairs(op, dtype):
    x = graph.graph_input("x", (4,), dtype)
    with pytest.raises(DTypeError, match=f"{op}: {dtype} does not fit"):
        graph.elementwise(op, x, x)


def test_no_tensor_of_a_user_has_pairs():
    assert BF16X2.name not in DTYPES
    assert buffer_dtype("bf16x2") == BF16X2
    with pytest.raises(DTypeError, match="dtype 'bf16x2' is not supported"):
        Tensor.input("x", (4,), "bf16x2")
    assert dtype_of(np.dtype(np.uint32)).name == "u32"


def test_float64_reference_of_a_sum_of_pairs_adds_exact_products():
    kernel = dot_kernel(matmul((5, 7), (7, 3)))
    wide = in_float64(kernel)
    verify_kernel(wide)
    arrays = {p.name: memory(p.dtype, p.size, 1) for p in kernel.params if p.role != "out"}
    a, b = (
        bf16_values(arrays[p.name].view(np.uint16)).reshape(*p.shape, 2) for p in kernel.params[1:]
    )
    want = np.einsum("ikp,kjp->ij", a.astype(np.float64), b)
    (got,) = interpret(wide, arrays).values()
    np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-14)


def test_drawn_pairs_are_normal_numbers():
    drawn = draw(Parameter("p", "bf16x2", 1000, "in"), np.random.default_rng(0))
    values = bf16_values(drawn.view(np.uint16))
    assert values.shape == (2000,)
    assert np.isfinite(values).all()
    assert np.abs(values).min() > 9e-4
    assert 0.8 < values.std() < 1.2


@pytest.mark.parametrize("half", [0, 1])
def test_wrong_half_of_a_pair_is_found(half):
    words = memory(BF16X2, 100, 3)
    expected = Reference(words.astype(np.int64), 1)
    assert compare(words, "bf16x2", expected).first == -1
    words[70] ^= np.uint32(1 << (16 * half + 3))
    found = compare(words, "bf16x2", expected)
    assert (found.first, found.bad) == (70, 1)


def test_last_bit_of_a_half_may_differ():
    words = memory(BF16X2, 100, 3)
    expected = Reference(words.astype(np.int64), 1)
    words[3] ^= np.uint32(1 << 16)
    assert compare(words, "bf16x2", expected).first == -1
