"""A wrong call fails when it is made, with one line that names the operation and the shapes or
dtypes.
"""

import re

import numpy as np
import pytest

from tunegrad.errors import DTypeError, ModelError, ShapeError
from tunegrad.frontend import Tensor, arange, cat, full, maximum, stack, where, zeros


def t(*shape, dtype="f32"):
    return zeros(shape, dtype)


X = t(1, 4, 8, 8)

BAD_SHAPES = {
    "add": (lambda: t(2, 3) + t(4), "add: shapes (2, 3) and (4,) do not broadcast"),
    "mul array": (
        lambda: t(2, 3) * np.ones((2, 2)),
        "mul: shapes (2, 3) and (2, 2) do not broadcast",
    ),
    "div": (lambda: t(0, 3) / t(2, 3), "div: shapes (0, 3) and (2, 3) do not broadcast"),
    "less": (lambda: t(5) < t(6), "lt: shapes (5,) and (6,) do not broadcast"),
    "pow": (lambda: t(5) ** t(6), "pow: shapes (5,) and (6,) do not broadcast"),
    "maximum": (lambda: maximum(t(5), t(2, 6)), "max: shapes (5,) and (2, 6) do not broadcast"),
    "where": (
        lambda: where(t(3, dtype="bool"), t(2), 0),
        "where: shapes (3,) and (2,) do not broadcast",
    ),
    "matmul inner": (
        lambda: t(2, 3) @ t(4, 5),
        "matmul: shapes (2, 3) and (4, 5): inner extents 3 and 4 differ",
    ),
    "matmul vector": (
        lambda: t(3) @ t(4),
        "matmul: shapes (3,) and (4,): inner extents 3 and 4 differ",
    ),
    "matmul scalar": (lambda: t(2, 3) @ 2.0, "matmul: shapes (2, 3) and (): a scalar has no axis"),
    "matmul batch": (
        lambda: t(2, 3, 4) @ t(5, 4, 6),
        "matmul of (2, 3, 4) and (5, 4, 6): shapes (2,) and (5,)",
    ),
    "sum axis": (lambda: t(2, 3).sum(2), "sum: axis 2 is not in shape (2, 3) (valid: -2 to 1)"),
    "sum twice": (
        lambda: t(2, 3).sum((1, -1)),
        "sum: axes (1, -1) name one dimension of shape (2, 3) twice",
    ),
    "mean of scalar": (lambda: t().mean(1), "mean: axis 1 is not in shape (1,) (valid: -1 to 0)"),
    "cumsum of scalar": (lambda: t().cumsum(1), "cumsum: axis 1 is not in shape (1,)"),
    "divide by zero": (lambda: t(2, dtype="i32") // 0, "floordiv: i32 divided by zero"),
    "rest by zero": (lambda: t(2, dtype="u8") % 0, "mod: u8 divided by zero"),
    "clamp": (lambda: t(8).clamp(), "clamp: (8,) has neither a least nor a greatest value"),
    "max of nothing": (lambda: t(2, 0).max(1), "max: shape (2, 0) has no elements along axes (1,)"),
    "var axis": (lambda: t(2).var(-2), "var: axis -2 is not in shape (2,)"),
    "axis type": (lambda: t(2, 3).sum("rows"), "sum: axis is 'rows', it must be an integer"),
    "softmax axis": (lambda: t(2, 3).softmax(5), "softmax: axis 5 is not in shape (2, 3)"),
    "layer norm": (
        lambda: t(2, 3).layer_norm(t(2)),
        "layer_norm: weight (2,) for input (2, 3) over axes (1,), must be (3,)",
    ),
    "batch norm": (
        lambda: X.batch_norm(t(4), t(4), t(3), t(4)),
        "batch_norm: mean (3,) for input (1, 4, 8, 8), must be (4,)",
    ),
    "batch norm rank": (
        lambda: t(4).batch_norm(None, None, t(4), t(4)),
        "batch_norm: input (4,) has no channel axis",
    ),
    "linear": (
        lambda: t(2, 3).linear(t(5, 4)),
        "linear: input (2, 3) and weight (5, 4) must be (.., in) and (out, in)",
    ),
    "linear bias": (
        lambda: t(2, 3).linear(t(5, 3), t(3)),
        "linear: bias (3,) for weight (5, 3), must be (5,)",
    ),
    "conv rank": (
        lambda: t(8, 8).conv2d(t(2, 4, 3, 3)),
        "conv2d: input (8, 8) and weight (2, 4, 3, 3) must be",
    ),
    "conv channels": (
        lambda: X.conv2d(t(2, 3, 3, 3)),
        "conv2d: input (1, 4, 8, 8) and weight (2, 3, 3, 3) with groups=1: 4 channels, 3 taken",
    ),
    "conv groups": (
        lambda: X.conv2d(t(4, 1, 3, 3), groups=3),
        "conv2d: groups=3 does not divide the channels of input",
    ),
    "conv bias": (
        lambda: X.conv2d(t(2, 4, 3, 3), t(4)),
        "conv2d: bias (4,) for weight (2, 4, 3, 3), must be (2,)",
    ),
    "conv window": (
        lambda: X.conv2d(t(2, 4, 9, 9)),
        "conv2d: window (9, 9) with dilation (1, 1) spans 9 elements of axis 2",
    ),
    "conv stride": (
        lambda: X.conv2d(t(2, 4, 3, 3), stride=0),
        "conv2d: stride is 0, it must be at least 1",
    ),
    "conv padding": (
        lambda: X.conv2d(t(2, 4, 3, 3), padding=-1),
        "conv2d: padding is -1, it must be at least 0",
    ),
    "conv word": (
        lambda: X.conv2d(t(2, 4, 3, 3), padding="full"),
        "conv2d: padding='full' is not a number, a pair",
    ),
    "conv same": (
        lambda: X.conv2d(t(2, 4, 3, 3), stride=2, padding="same"),
        "conv2d: padding='same' needs stride 1",
    ),
    "pool rank": (lambda: t(8, 8).max_pool2d(2), "max_pool2d: input (8, 8) must be (N, C, H, W)"),
    "pool padding": (
        lambda: X.max_pool2d(2, padding=2),
        "max_pool2d: padding (2, 2) is more than half of window (2, 2)",
    ),
    "pool pairs": (
        lambda: X.max_pool2d(2, padding=((9, 9), (9, 9))),
        "max_pool2d: padding is (9, 9), it must be an integer",
    ),
    "pool window": (
        lambda: X.avg_pool2d(9),
        "avg_pool2d: window (9, 9) with dilation (1, 1) spans 9",
    ),
    "pool pair": (
        lambda: X.max_pool2d((1, 2, 3)),
        "max_pool2d: size (1, 2, 3) must be one integer or a pair",
    ),
    "adaptive": (
        lambda: t(1, 2, 0, 3).adaptive_avg_pool2d(2),
        "adaptive_avg_pool2d: input (1, 2, 0, 3) has no elements to pool",
    ),
    "reshape": (lambda: t(2, 3).reshape(4, 2), "reshape: (2, 3) has 6 elements, (4, 2) has 8"),
    "reshape unknown": (
        lambda: t(2, 3).reshape(-1, 4),
        "reshape: (2, 3) has 6 elements, (-1, 4) takes multiples of 4",
    ),
    "reshape empty": (
        lambda: t(0, 3).reshape(-1, 0),
        "reshape: (0, 3) has 0 elements, (-1, 0) takes multiples of 0",
    ),
    "reshape two": (
        lambda: t(2, 3).reshape(-1, -1),
        "reshape: (2, 3) to (-1, -1) has more than one extent of -1",
    ),
    "reshape float": (
        lambda: t(2, 3).reshape(6.0),
        "reshape: an extent is 6.0, it must be an integer",
    ),
    "permute": (
        lambda: t(2, 3).permute(0, 0),
        "permute: (0, 0) is not an order of the 2 dimensions of (2, 3)",
    ),
    "permute short": (
        lambda: t(2, 3).permute(0),
        "permute: (0,) is not an order of the 2 dimensions of (2, 3)",
    ),
    "transpose": (lambda: t(3).transpose(), "transpose: axis -2 is not in shape (3,)"),
    "broadcast": (
        lambda: t(2, 3).broadcast_to((2, 4)),
        "broadcast_to: (2, 3) does not broadcast to (2, 4)",
    ),
    "expand rank": (lambda: t(2, 3).expand(3), "expand: (2, 3) has more dimensions than (3,)"),
    "pad rank": (
        lambda: t(2, 3).pad(((1, 1),)),
        "pad: 1 pairs of widths for the 2 dimensions of (2, 3)",
    ),
    "pad negative": (
        lambda: t(3).pad(((1, -4),)),
        "pad: widths [(1, -4)] cut more away than (3,) has",
    ),
    "pad pair": (
        lambda: t(3).pad((1,)),
        "pad: width 1 of shape (3,) must be a pair (before, after)",
    ),
    "shrink": (
        lambda: t(3).shrink(((1, 4),)),
        "shrink: ((1, 4),) needs one 0 <= begin <= end <= extent",
    ),
    "rot90": (
        lambda: t(2, 3).rot90(2, (0, -2)),
        "rot90: dims (0, -2) of shape (2, 3) must be two",
    ),
    "flip": (lambda: t(3).flip(1), "flip: axis 1 is not in shape (3,)"),
    "squeeze": (lambda: t(2, 1).squeeze(2), "squeeze: axis 2 is not in shape (2, 1)"),
    "unsqueeze": (
        lambda: t(2).unsqueeze(3),
        "unsqueeze: axis 3 is not in shape (2,) (valid: -2 to 1)",
    ),
    "window": (
        lambda: t(2, 3).window(1, 4),
        "window: 4 elements do not fit extent 3 of dimension 1 of (2, 3)",
    ),
    "index range": (
        lambda: t(2, 3)[0, 3],
        "getitem: index 3 is out of range for extent 3 of dimension 1 of (2, 3)",
    ),
    "index count": (
        lambda: t(2, 3)[0, 0, 0],
        "getitem: 3 indices for the 2 dimensions of shape (2, 3)",
    ),
    "index dots": (
        lambda: t(2, 3)[..., ...],
        "getitem: more than one ... in an index of shape (2, 3)",
    ),
    "index step": (
        lambda: t(2, 3)[::0],
        "getitem: slice slice(None, None, 0): slice step cannot be zero",
    ),
    "cat": (lambda: cat([t(2, 3), t(2, 4)]), "cat: shapes (2, 3) and (2, 4) differ outside axis 0"),
    "cat rank": (lambda: cat([t(2, 3), t(2)]), "cat: shapes (2, 3) and (2,) differ outside axis 0"),
    "cat nothing": (lambda: cat([]), "cat: at least one tensor is needed"),
    "stack": (lambda: stack([t(2), t(3)]), "stack: shapes (2,) and (3,) differ"),
    "full": (lambda: full((2, -1), 0), "full: an extent is -1, it must be at least 0"),
    "arange": (lambda: arange(0, 5, 0), "arange: from 0 to 5 with a step of 0 never ends"),
    "item": (lambda: t(2).item(), "item: shape (2,) has 2 elements, not one"),
    "ragged": (lambda: Tensor([[1, 2], [3]]), "tensor: the nested lists are ragged"),
}

BAD_DTYPES = {
    "data": (lambda: Tensor(["a", "b"]), "tensor: data of type <U1 are not numbers"),
    "complex": (
        lambda: Tensor(np.zeros(2, complex)),
        "tensor: data of type complex128 are not numbers",
    ),
    "time": (
        lambda: t(2).cast(np.dtype("m8[s]")),
        "dtype dtype('<m8[s]') is not supported; valid: bool, i8, i16",
    ),
    "unsigned": (
        lambda: t(2, dtype="u64") + t(2, dtype="i64"),
        "no integer type holds both u64 and i64; cast one to the other",
    ),
    "shift": (lambda: t(2) << 1, "shl: not defined for f32; integers only"),
    "negative": (lambda: t(2, dtype="u8") + -1, "add: -1 is not a value of u8"),
    "cast": (lambda: t(2).cast("fp8"), "dtype 'fp8' is not supported"),
    "operand": (lambda: t(2) + "3", "add: '3' of type str is not a tensor, array or number"),
    "none": (lambda: t(2) * None, "mul: None of type NoneType is not a tensor, array or number"),
    "where": (lambda: where(t(2), 1, 0), "where: the condition is f32, it must be bool"),
    "subtract bools": (
        lambda: t(2, dtype="bool") - t(2, dtype="bool"),
        "sub: not defined for bool and bool",
    ),
    "negate bools": (lambda: -t(2, dtype="bool"), "neg: not defined for bool"),
    "divide bools": (lambda: t(2, dtype="bool") // True, "floordiv: not defined for bool and bool"),
    "and": (lambda: t(2) & t(2), "and: not defined for f32"),
    "xor": (lambda: t(2, dtype="i32") ^ 1.5, "xor: not defined for f32"),
    "invert": (lambda: ~t(2), "invert: not defined for f32"),
    "negative power": (
        lambda: t(2, dtype="i32") ** -1,
        "pow: i32 to the negative power -1 is not an integer",
    ),
    "pad": (lambda: t(2, dtype="i32").pad(((1, 1),), 0.5), "pad: 0.5 is not a value of i32"),
    "full": (lambda: full((2,), np.inf, "i64"), "full: inf is not a value of i64"),
    "conv": (
        lambda: t(1, 1, 3, 3, dtype="bool").conv2d(t(1, 1, 1, 1, dtype="bool")),
        "conv2d: not defined for bool",
    ),
    "one hot": (
        lambda: t(3).one_hot(2),
        "one_hot: positions of shape (3,) are f32, they must be integers",
    ),
    "index": (
        lambda: t(2, 3)[t(1)],
        "getitem: index <Tensor f32[1] of full> on shape (2, 3) is not an integer",
    ),
    "index array": (
        lambda: t(2, 3)[np.array([0.0, 1.0])],
        "getitem: index of float64 on shape (2, 3); positions are integers or bools",
    ),
    "truth": (lambda: bool(t(2) == t(2)), "bool: <Tensor bool[2] of map> has no truth value"),
}


def refused(kind, call, message):
    with pytest.raises(kind, match=re.escape(message)) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", BAD_SHAPES)
def test_wrong_shape_is_refused_at_the_call(name):
    refused(ShapeError, *BAD_SHAPES[name])
    refused(ValueError, *BAD_SHAPES[name])


@pytest.mark.parametrize("name", BAD_DTYPES)
def test_wrong_dtype_is_refused_at_the_call(name):
    refused(DTypeError, *BAD_DTYPES[name])
    refused(TypeError, *BAD_DTYPES[name])


def test_gelu_names_its_valid_forms():
    refused(
        ShapeError, lambda: t(2).gelu("erf"), "gelu: approximate='erf' is not one of 'none', 'tanh'"
    )


def test_value_of_an_open_input_is_refused():
    x = Tensor.input("image", (2, 3))
    refused(
        ModelError, (x + 1).numpy, "numpy: input 'image' of <Tensor f32[2, 3] of map> has no value"
    )


@pytest.mark.parametrize("name", ["", "#1"])
def test_reserved_input_name_is_refused(name):
    refused(
        ModelError,
        lambda: Tensor.input(name, (2,)),
        f"input name {name!r} must not be empty or start with '#'",
    )
