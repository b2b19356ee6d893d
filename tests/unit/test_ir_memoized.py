"""What functions of a kernel remember: one entry for each text, fixed schedule and further
argument, the latest few.
"""

from dataclasses import replace

import pytest

from tunegrad.ir.kernel import Kernel, memoized
from tunegrad.ir.parse_kernel import parse_kernel


def copy_of(rows: int, name: str = "kernel") -> Kernel:
    text = (
        f"kernel\n  param p0 f32[{rows}] out row\n  param p1 f32[{rows}] in row\n  axis "
        f"a:{rows}\n  store p0[a] = p1[a]"
    )
    return replace(parse_kernel(text), name=name)


def counted(most: int = 8):
    calls = []

    @memoized(most)
    def points(kernel: Kernel, times: int = 1) -> int:
        """Of a kernel."""
        calls.append(kernel.points)
        return kernel.points * times

    return points, calls


def test_same_text_is_computed_once_whatever_its_name():
    points, calls = counted()
    assert [points(copy_of(3)), points(copy_of(3, "other")), points(copy_of(4))] == [3, 3, 4]
    assert calls == [3, 4]


def test_other_argument_or_fixed_schedule_is_computed_anew():
    points, calls = counted()
    assert [points(copy_of(3)), points(copy_of(3), 2), points(copy_of(3), times=5)] == [3, 6, 15]
    points(replace(copy_of(3), fixed="unroll(axis=a)"))
    assert len(calls) == 4


def test_the_oldest_is_forgotten_first():
    points, calls = counted(most=2)
    for rows in (2, 3, 4, 3, 4, 2):
        points(copy_of(rows))
    assert calls == [2, 3, 4, 2]


def test_error_is_not_remembered():
    fails = iter((True, False))

    @memoized(4)
    def once(kernel: Kernel) -> int:
        if next(fails):
            raise ValueError("first")
        return kernel.points

    with pytest.raises(ValueError, match="first"):
        once(copy_of(3))
    assert once(copy_of(3)) == 3


def test_docstring_stays():
    points, _ = counted()
    assert points.__doc__ == "Of a kernel."
