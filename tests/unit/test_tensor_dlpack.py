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


def test_a_tensor_exports_its_values() -> None:
    tensor = Tensor(np.arange(5, dtype=np.float32)) * 2
    np.testing.assert_array_equal(np.from_dlpack(tensor), np.arange(5, dtype=np.float32) * 2)
