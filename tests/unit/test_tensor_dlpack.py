"""Memory from and for other libraries, by DLPack."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import tunegrad as tg
from tunegrad import inference
from tunegrad.frontend import Tensor


class Foreign:
    """An array that only speaks DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_tensor_takes_a_foreign_array() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = Tensor(Foreign(values))
    assert tensor.shape == (2, 3)
    np.testing.assert_array_equal(tensor.numpy(), values)


def test_tensor_does_not_follow_later_writes_to_a_foreign_array() -> None:
    values = np.zeros(4, np.float32)
    tensor = Tensor(Foreign(values))
    values[0] = 7
    assert tensor.numpy()[0] == 0


@pytest.mark.parametrize("take", [tg.from_numpy, tg.as_tensor, Tensor])
def test_read_only_array_goes_in_and_out_without_a_copy(
    take: Callable[[np.ndarray], Tensor],
) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    values.flags.writeable = False
    seen = take(values).__array__(copy=False)
    assert (seen.ctypes.data, seen.shape, seen.strides) == (
        values.ctypes.data, values.shape, values.strides,
    )  # fmt: skip
    assert not seen.flags.writeable
    with pytest.raises(ValueError, match="float32 as float64 needs a copy"):
        take(values).__array__(np.dtype(np.float64), copy=False)


@pytest.mark.parametrize("wrap", [np.asarray, Foreign])
def test_writable_array_is_shared_where_no_copy_is_asked_for(
    wrap: Callable[[np.ndarray], object],
) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = tg.asarray(wrap(values), copy=False)
    seen = tensor.__array__(copy=False)
    assert (seen.ctypes.data, seen.shape, seen.strides) == (
        values.ctypes.data, values.shape, values.strides,
    )  # fmt: skip
    assert not seen.flags.writeable
    assert values.flags.writeable
    twice = tensor * 2
    values[0, 0] = 7
    assert twice.tolist() == [[14, 2, 4], [6, 8, 10]]
    values[0, 0] = 8
    assert (tensor * 2).tolist() == [[16, 2, 4], [6, 8, 10]]


@pytest.mark.parametrize("copy", [True, None])
@pytest.mark.parametrize("wrap", [np.asarray, Foreign])
def test_writable_array_is_copied_otherwise(
    wrap: Callable[[np.ndarray], object], copy: bool | None
) -> None:
    values = np.arange(3, dtype=np.float32)
    tensor = tg.asarray(wrap(values), copy=copy)
    values[:] = 7
    assert tensor.tolist() == [0.0, 1.0, 2.0]
    values.flags.writeable = False
    shares = np.shares_memory(tg.asarray(values, copy=copy).__array__(copy=False), values)
    assert shares == (copy is None)


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (np.zeros((3, 4), np.float32).T, None),
        (np.zeros(3, np.float64), "f32"),
        (np.zeros(3, np.float32), "bf16"),
        ([1.0, 2.0], None),
        (1.0, None),
        (tg.ones(3), "f64"),
    ],
    ids=["strides", "another dtype", "16 bits", "a list", "a number", "a tensor's dtype"],
)
def test_what_can_not_be_shared_is_an_error(data: object, dtype: str | None) -> None:
    with pytest.raises(ValueError, match=r"asarray: .* needs a copy, and copy is False"):
        tg.asarray(data, dtype, copy=False)


@pytest.mark.parametrize("take", [tg.from_numpy, tg.as_tensor, tg.tensor, Tensor])
def test_results_do_not_depend_on_when_they_are_asked_for(
    take: Callable[[np.ndarray], Tensor],
) -> None:
    values = np.arange(3, dtype=np.float32)
    result = take(values) * 2
    values[:] = 7
    assert result.tolist() == [0.0, 2.0, 4.0]


def test_computed_values_go_out_where_the_kernels_stored_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored: list[np.ndarray] = []

    def realize(tensors: Sequence[Tensor]) -> list[np.ndarray]:
        stored.extend(computed(tensors))
        return stored

    computed = inference.realize
    monkeypatch.setattr(inference, "realize", realize)
    seen = np.from_dlpack(Tensor(np.arange(5, dtype=np.float32)) + 1)
    np.testing.assert_array_equal(seen, np.arange(5, dtype=np.float32) + 1)
    assert [a.ctypes.data for a in stored] == [seen.ctypes.data]


def test_held_values_go_out_as_a_copy_that_may_be_written() -> None:
    tensor = Tensor(np.arange(5, dtype=np.float32))
    (held,) = tensor.bindings.values()
    seen = np.from_dlpack(tensor)
    assert not np.shares_memory(seen, held)
    assert np.from_dlpack(tensor).ctypes.data != seen.ctypes.data
    torn = np.lib.stride_tricks.as_strided(seen)  # numpy marks what it takes by DLPack as read-only
    assert torn.tolist() == tensor.numpy().tolist()


@pytest.mark.parametrize("wrap", [np.asarray, Foreign])
def test_memory_comes_in_and_goes_out_without_a_copy_where_none_is_asked_for(
    wrap: Callable[[np.ndarray], object],
) -> None:
    values = np.arange(5, dtype=np.float32)
    tensor = tg.asarray(wrap(values), copy=False)
    seen = np.from_dlpack(tensor, copy=False)
    assert seen.ctypes.data == values.ctypes.data
    assert not seen.flags.writeable
    with pytest.raises(BufferError, match="readonly"):
        tensor.__dlpack__(copy=False)  # a taker that does not know of memory to be read only


def test_a_tensor_exports_its_values() -> None:
    tensor = Tensor(np.arange(5, dtype=np.float32)) * 2
    np.testing.assert_array_equal(np.from_dlpack(tensor), np.arange(5, dtype=np.float32) * 2)


def test_bf16_goes_out_as_bf16() -> None:
    torch = pytest.importorskip("torch")
    values = torch.arange(6).reshape(2, 3).bfloat16() / 4
    tensor = Tensor(values)
    for given, wanted in ((tensor, values), (tensor + 1, values + 1), (tensor.T, values.T)):
        found = torch.from_dlpack(given)
        assert found.dtype == torch.bfloat16
        assert torch.equal(found, wanted)
    torch.from_dlpack(tensor).zero_()
    assert torch.equal(torch.from_dlpack(tensor), values)
    with pytest.raises(BufferError, match="readonly"):
        tensor.__dlpack__(copy=False)
    with pytest.raises((BufferError, RuntimeError)):  # numpy has no such type
        np.from_dlpack(tensor)
