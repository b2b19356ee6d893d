"""What the operations on words of bytes mean, for the interpreters and for verification."""

import numpy as np
import pytest
from quad_builders import drawn

from tests.interpreter.values import operation
from tunegrad.devices.job import Parameter, Reference
from tunegrad.devices.verifying.inputs import Draw, draw
from tunegrad.devices.verifying.tolerance import compare
from tunegrad.errors import DTypeError
from tunegrad.frontend import Tensor
from tunegrad.ir import graph
from tunegrad.ir.dtypes import (
    BF16X2,
    DTYPES,
    F32,
    I8,
    I8X4,
    I16,
    I32,
    I64,
    U8,
    U8X4,
    buffer_dtype,
)
from tunegrad.ir.expr import Op, result_type
from tunegrad.ir.interpret.numeric import bytes_of, compute, halves_of

WORDS = {"u8": U8X4, "i8": I8X4}


@pytest.mark.parametrize("kind", WORDS)
def test_bytes_of_a_word_are_what_it_was_made_of(kind):
    numbers = [drawn((9,), kind, i) for i in range(4)]
    words = compute(Op.QUAD, *numbers)
    assert words.dtype == WORDS[kind].numpy
    np.testing.assert_array_equal(bytes_of(words), np.stack(numbers, -1))
    np.testing.assert_array_equal(words.view(numbers[0].dtype)[:4], [x[0] for x in numbers])


@pytest.mark.parametrize("a", WORDS)
@pytest.mark.parametrize("b", WORDS)
@pytest.mark.parametrize("lanes", [1, 16])
def test_dot4_add_is_the_exact_sum_that_wraps_around(a, b, lanes):
    x, y = drawn((16, 4), a, 1), drawn((16, 4), b, 2)
    c = np.array([-(1 << 31), (1 << 31) - 1] * 8, np.int32)
    p, q = (compute(Op.QUAD, *v.T) for v in (x, y))
    want = ((x.astype(np.int64) * y).sum(1) + c).astype(np.int32)
    add = operation(Op.DOT4_ADD, I32, lanes)
    with np.errstate(over="ignore"):
        got = add(p, q, c) if lanes > 1 else [add(*v) for v in zip(p, q, c, strict=True)]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", WORDS)
def test_even_and_odd_bytes_of_a_word_are_halves(kind):
    numbers = drawn((9, 4), kind, 1)
    words = compute(Op.QUAD, *numbers.T)
    for first, op in enumerate((Op.EVEN, Op.ODD)):
        np.testing.assert_array_equal(halves_of(compute(op, words)), numbers[:, first::2])


@pytest.mark.parametrize("lanes", [1, 16])
def test_dot2i_add_is_the_sum_that_wraps_around(lanes):
    ends = np.array([-(1 << 15), (1 << 15) - 1, -1, 7], np.int16)
    x, y = (v.reshape(-1, 2) for v in np.meshgrid(ends, ends))
    c = np.array([-(1 << 31), (1 << 31) - 1] * 4, np.int32)
    want = ((x.astype(np.int64) * y).sum(1) + c).astype(np.int32)
    p, q = (np.ascontiguousarray(v).view(np.int32)[:, 0] for v in (x, y))
    add = operation(Op.DOT2I_ADD, I32, lanes)
    with np.errstate(over="ignore"):
        got = add(p, q, c) if lanes > 1 else [add(*v) for v in zip(p, q, c, strict=True)]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("op", "args", "result"),
    [
        (Op.QUAD, (I8,) * 4, I8X4), (Op.QUAD, (U8,) * 4, U8X4), (Op.QUAD, (I16,) * 4, None),
        (Op.QUAD, (I8, I8, I8, U8), None), (Op.QUAD, (I8, I8), None),
        (Op.DOT4, (U8X4, I8X4), I32), (Op.DOT4, (I8X4, U8X4), I32), (Op.DOT4, (I8X4, I8X4), I32),
        (Op.DOT4, (U8X4, BF16X2), None), (Op.DOT4, (I32, I32), None),
        (Op.DOT4_ADD, (U8X4, I8X4, I32), I32), (Op.DOT4_ADD, (U8X4, I8X4, I64), None),
        (Op.DOT2, (U8X4, U8X4), None), (Op.ADD, (I8X4, I8X4), None), (Op.LT, (U8X4, U8X4), None),
        (Op.LOW, (U8X4,), None), (Op.EVEN, (U8X4,), I32), (Op.ODD, (I8X4,), I32),
        (Op.EVEN, (BF16X2,), None), (Op.DOT2I, (I32, I32), I32), (Op.DOT2I, (I64, I64), None),
        (Op.DOT2I_ADD, (I32, I32, I32), I32), (Op.DOT2I, (U8X4, I8X4), None),
    ],
    ids=str,
)  # fmt: skip
def test_operations_on_words_take_words_only(op, args, result):
    assert result_type(op, args) == result


@pytest.mark.parametrize(("op", "dtype"), [(Op.QUAD, F32), (Op.QUAD, I8X4), (Op.DOT4, I8)], ids=str)
def test_graph_refuses_other_operations_on_words(op, dtype):
    x = graph.graph_input("x", (4,), dtype)
    with pytest.raises(DTypeError, match=f"{op}: {dtype} does not fit"):
        graph.elementwise(op, *(x,) * op.arity)


def test_no_tensor_of_a_user_has_words():
    for word in WORDS.values():
        assert word.name not in DTYPES
        assert buffer_dtype(word.name) == word
        with pytest.raises(DTypeError, match=f"dtype '{word}' is not supported"):
            Tensor.input("x", (4,), word.name)


@pytest.mark.parametrize("kind", WORDS)
def test_special_draws_have_the_ends_of_bytes(kind):
    """What saturates on the way shows there."""
    parameter = Parameter("p", f"{kind}x4", 1000, "in")
    found = bytes_of(draw(parameter, np.random.default_rng(0), Draw("special", 0)))
    one = I8 if kind == "i8" else U8
    assert (found.min(), found.max()) == (one.least, one.greatest)


@pytest.mark.parametrize("byte", range(4))
@pytest.mark.parametrize("kind", WORDS)
def test_wrong_byte_of_a_word_is_found(kind, byte):
    words = drawn((400,), kind).view(WORDS[kind].numpy)
    expected = Reference(words.astype(np.int64), 1)
    assert compare(words, f"{kind}x4", expected).first == -1
    wrong = words.copy()
    wrong.view(np.uint8)[4 * 70 + byte] ^= 1
    found = compare(wrong, f"{kind}x4", expected)
    assert (found.first, found.bad) == (70, 1)
