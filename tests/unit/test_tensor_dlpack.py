"""Memory from and for other libraries, by DLPack."""

from __future__ import annotations

import numpy as np

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


def test_results_go_out_without_a_copy() -> None:
    result = (Tensor(np.arange(5, dtype=np.float32)) + 1).numpy()
    seen = np.from_dlpack(Foreign(result))
    assert seen.ctypes.data == result.ctypes.data


def test_a_tensor_exports_its_values() -> None:
    tensor = Tensor(np.arange(5, dtype=np.float32)) * 2
    np.testing.assert_array_equal(np.from_dlpack(tensor), np.arange(5, dtype=np.float32) * 2)
