"""PyTorch's and numpy's names of arguments, values as Python and numpy see them."""

import inspect
import math
import pickle

import numpy as np
import pytest

import tunegrad as tg
from tunegrad import frontend
from tunegrad.errors import DTypeError
from tunegrad.frontend import Tensor, functional
from tunegrad.frontend.spelling import spelled

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "amax", "std", "logsumexp", "any", "all"])
def test_axis_and_keepdims_are_dim_and_keepdim(name):
    method = getattr(Tensor(X), name)
    assert method(axis=1, keepdims=True).node is method(dim=1, keepdim=True).node


def test_operation_is_one_object_as_method_and_as_function():
    names = ["softmax", "conv_transpose2d", "cumsum", "logaddexp", "gather"]
    assert [getattr(tg, n) is getattr(Tensor, n) for n in names] == [True] * len(names)
    for module in (frontend.functions, functional):
        both = [n for n in module.__all__ if n not in ("fold", "unfold") and hasattr(Tensor, n)]
        found = [getattr(module, n).__name__ for n in both]
        assert found == [getattr(Tensor, n).__name__ for n in both]
    assert functional.softmax is tg.softmax
    assert functional.pad is Tensor.pad


def test_functions_are_pickled_by_name():
    functions = [getattr(tg, n) for n in frontend.functions.__all__]
    names = [f"{f.__module__}.{f.__qualname__}" for f in functions]
    assert [n for n, f in zip(names, functions, strict=True) if pickled(f) is not f] == []


def test_first_operand_of_a_function_is_input():
    for function in (tg.relu, tg.sum, tg.permute, tg.max, functional.tanh):
        assert next(iter(inspect.signature(function).parameters)) == "input"
    assert str(inspect.signature(tg.narrow)).startswith("(input, dim: 'int', start: 'int',")


def pickled(function):
    try:
        return pickle.loads(pickle.dumps(function))
    except pickle.PicklingError:
        return None


def test_class_of_tensors_is_two_deep():
    assert [c.__name__ for c in Tensor.__mro__] == ["Tensor", "Handle", "object"]


def test_functions_take_both_spellings():
    x = Tensor(X)
    assert tg.sum(x, axis=0).node is x.sum(0).node
    assert tg.sum(input=x, dim=0).node is x.sum(0).node
    assert tg.cat([x, x], axis=1).node is tg.cat([x, x], dim=1).node
    assert x.permute(dims=(1, 0)).node is x.permute(1, 0).node
    assert x.reshape(shape=(3, 2)).node is x.view(3, 2).node
    assert x.var(ddof=0, axis=1).node is x.var(1, correction=0).node
    assert x.clip(a_min=0, a_max=1).node is x.clamp(0, 1).node


def test_axis1_and_axis2_are_two_arguments():
    x = Tensor(np.arange(24.0).reshape(2, 3, 4))
    want = np.diagonal(x.numpy(), axis1=1, axis2=2)
    np.testing.assert_array_equal(x.diagonal(axis1=1, axis2=2).numpy(), want)
    assert x.swapaxes(axis1=0, axis2=2).shape == (4, 3, 2)


def test_both_spellings_of_one_argument_are_refused():
    with pytest.raises(TypeError, match="sum: axis and dim are one argument"):
        Tensor(X).sum(dim=0, axis=1)


def test_unknown_argument_is_refused():
    with pytest.raises(TypeError, match="dimension"):
        Tensor(X).sum(dimension=0)


def test_function_without_other_spellings_is_left_alone():
    def plain(alpha, beta):
        return alpha + beta

    assert spelled(plain) is plain


def test_maximum_unpacks_as_in_torch_and_is_a_tensor_as_in_numpy():
    x = Tensor(X[:, ::-1].copy())
    values, indices = x.max(1)
    assert (values.tolist(), indices.tolist()) == ([2.0, 5.0], [0, 0])
    assert x.max(dim=1).indices.tolist() == x.max(1)[1].tolist() == [0, 0]
    assert (x.max(1) * 2).tolist() == [4.0, 10.0]
    assert [row.tolist() for row in x.max(axis=0)] == [5.0, 4.0, 3.0]
    assert x.max((0, 1)).item() == x.max().item() == 5.0


def test_size_is_a_number_and_a_method():
    x = Tensor(X)
    assert (x.size, x.size(), x.size(0), x.size(-1), x.numel()) == (6, (2, 3), 2, 3, 6)


def test_numbers_of_python():
    x = Tensor([2.5])
    assert (float(x), int(x), bool(x), math.floor(float(x))) == (2.5, 2, True, 2)
    assert list(range(5))[Tensor(3)] == 3
    with pytest.raises(DTypeError, match="is not an integer"):
        range(Tensor(3.0))


def test_truth_of_several_elements_is_refused():
    with pytest.raises(DTypeError, match="has no truth value"):
        bool(Tensor(X))


def test_repr_shows_values():
    assert repr(Tensor([1.0, 2.5])) == "Tensor([1. , 2.5], f32)"
    assert repr(Tensor([1.0, 2.5]) * 2) == "Tensor([2., 5.], f32)"
    assert repr(Tensor([1.0], "bf16")) == "Tensor([1.], bf16)"
    assert repr(Tensor.input("x", (2,)) + 1) == "<Tensor f32[2] of map>"
    assert repr(tg.zeros(2000) + 1) == "<Tensor f32[2000] of map>"
    assert "..." in repr(Tensor(np.zeros(5000)))


def test_lists_and_arrays_come_back():
    x = Tensor(X)
    assert x.tolist() == X.tolist()
    assert np.asarray(x * 2).tolist() == (X * 2).tolist()
    assert [row.tolist() for row in x] == X.tolist()


def test_functions_of_numpy_take_tensors():
    x = Tensor(X + 1)
    np.testing.assert_allclose(np.asarray(np.exp(x)), np.exp(X + 1), 1e-5)
    np.testing.assert_allclose(np.asarray(np.add(X, x)), 2 * X + 1)
    np.testing.assert_allclose(np.asarray(np.float32(2) - x), 1 - X)
    np.testing.assert_allclose(np.asarray(np.maximum(3, x)), np.maximum(3, X + 1))
    assert isinstance(X * x, Tensor)


def test_types_have_names():
    assert (tg.f32, tg.float32, tg.float) == (tg.f32,) * 3
    assert (tg.long, tg.uint8, tg.half) == (tg.i64, tg.u8, tg.f16)
    assert tg.zeros(2, dtype=tg.int64).dtype is tg.i64


def test_import_paths_are_torchs():
    from tunegrad import nn
    from tunegrad.nn import functional

    assert nn.functional.relu is functional.relu
    assert nn.Linear is tg.nn.Linear
    assert tg.errors.DTypeError is DTypeError


def test_mask_that_is_computed_is_refused():
    x = Tensor(X)
    with pytest.raises(DTypeError, match="depends on its values; use where or masked_fill"):
        x[x > 1]
