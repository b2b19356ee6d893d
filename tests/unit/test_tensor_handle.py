"""A tensor is a handle on a node: its data are bound inputs, its kernels do not depend on them."""

import pickle

import numpy as np
import pytest
from tensor_values import nodes, numbers, same, value

from tunegrad.frontend import Tensor, joined
from tunegrad.ir.graph import GraphOp


def test_data_are_copied_and_read_only():
    a = numbers(3)
    t = Tensor(a)
    before = a.copy()
    a[:] = 0
    same(t, before)
    (held,) = t.bindings.values()
    with pytest.raises(ValueError, match="read-only"):
        held[0] = 1


def test_read_only_data_are_not_copied():
    a = numbers(3)
    a.flags.writeable = False
    assert next(iter(Tensor(a).bindings.values())) is a or np.shares_memory(
        next(iter(Tensor(a).bindings.values())), a
    )


@pytest.mark.parametrize(
    ("data", "dtype"),
    [(1.5, "f32"), (3, "i64"), (True, "bool"), ([1, 2.5], "f32"), ([[1], [2]], "i64"), ([], "f32"),
     (np.zeros(2), "f64"), (np.zeros(2, np.float16), "f16"), (np.int32(4), "i32"),
     (np.zeros(2, ">f4"), "f32")],
)  # fmt: skip
def test_data_have_the_usual_dtype(data, dtype):
    t = Tensor(data)
    assert t.dtype.name == dtype
    same(t, np.asarray(data).astype(t.dtype.numpy))


def test_data_are_converted_when_told():
    same(Tensor(np.array([0, 200], np.uint8), "f32"), np.array([0, 200], np.float32))
    assert value(Tensor([1.0, -2.0], "bf16")).tolist() == [0x3F80, 0xC000]
    assert value(Tensor(np.array([0x3F80], np.uint16), "bf16")).tolist() == [0x3F80]


def test_non_contiguous_data_keep_their_values():
    a = numbers(4, 6)
    same(Tensor(a.T[::2, ::-1]), a.T[::2, ::-1])


def test_equal_data_are_two_inputs():
    a = numbers(2)
    y = Tensor(a) + Tensor(a)
    assert len(nodes(y, GraphOp.INPUT)) == 2
    assert len(y.bindings) == 2


def test_one_tensor_used_twice_is_one_input():
    x = Tensor(numbers(2))
    assert (x * x).node is (x * x).node
    assert len(nodes(x * x, GraphOp.INPUT)) == 1


def test_bindings_hold_what_the_value_needs():
    a, b = Tensor(numbers(2)), Tensor(numbers(2, seed=1))
    assert set((a + b).bindings) == set(a.bindings) | set(b.bindings)
    assert set((a + 1).exp().bindings) == set(a.bindings)
    assert set(joined([a, b, a + b])) == set((a + b).bindings)


def test_weights_are_constants_of_the_graph():
    w = Tensor.constant(numbers(2, 2), name="w")
    assert w.node.op is GraphOp.CONST
    assert w.node.arg.name == "w"
    assert not w.bindings


def test_shape_dtype_and_size_are_the_nodes():
    x = Tensor.input("x", (2, 3), "i32")
    assert (x.shape, x.dtype.name, x.ndim, x.size) == ((2, 3), "i32", 2, 6)
    assert repr(x) == "<Tensor i32[2, 3] of input>"


def test_numpy_of_data_is_a_copy_of_them():
    t = Tensor([1.0, 2.0])
    t.numpy()[:] = 0
    assert t.numpy().tolist() == [1.0, 2.0]
    assert np.asarray(t).tolist() == [1.0, 2.0]
    assert Tensor([[5]]).item() == 5


def test_tensor_of_a_tensor_is_the_same():
    x = Tensor([1.0])
    assert Tensor(x).node is x.node
    assert Tensor(x, "f64").dtype.name == "f64"


def test_pickled_tensor_keeps_its_value_under_new_names():
    x = Tensor(numbers(3))
    y = (x * 2 + x).sum()
    again = pickle.loads(pickle.dumps(y))
    same(again, value(y))
    assert not set(again.bindings) & set(y.bindings)
    same(again + y, value(y) * 2)


def test_tensor_is_hashed_by_identity():
    x, y = Tensor([1.0]), Tensor([1.0])
    assert len({x, y, x}) == 2
