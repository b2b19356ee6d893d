"""What the referee drew is kept until it is wanted again, within a bound."""

from __future__ import annotations

import numpy as np

from tunegrad.devices.verifying.inputs import KeptInputs


def sets(kilobytes: int) -> list[dict[str, np.ndarray]]:
    return [{"x": np.zeros(kilobytes * 1024, np.uint8)}]


def test_inputs_are_kept_until_there_is_no_room():
    kept = KeptInputs(3 * 1024)
    first, second, third = sets(1), sets(1), sets(2)
    kept.put("first", first)
    kept.put("second", second)
    assert kept.get("first") is first
    kept.put("third", third)  # the second was wanted longest ago
    assert kept.get("second") is None
    assert kept.get("first") is first
    assert kept.get("third") is third


def test_inputs_that_are_too_large_are_not_kept():
    kept = KeptInputs(1024)
    small = sets(1)
    kept.put("small", small)
    kept.put("large", sets(2))
    assert kept.get("large") is None
    assert kept.get("small") is small


def test_constants_that_sets_share_are_counted_once():
    kept = KeptInputs(1024)
    w = np.zeros(1024, np.uint8)
    kept.put("k", [{"w": w}, {"w": w}])
    assert kept.get("k") is not None
