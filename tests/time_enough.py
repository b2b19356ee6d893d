"""More time on a busy machine, for tests whose subject is not how long something takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["with_time_enough"]

Made = TypeVar("Made")


def with_time_enough(
    attempt: Callable[[float], Made], is_enough: Callable[[Made], bool], tries: int = 3
) -> Made:
    """Return the first attempt that came far enough.

    ``attempt`` gets the factor of its budget or limit: 1, 3, 9 and so on. A session on a machine
    whose cores others use comes a fraction as far in the same seconds. The last attempt is returned
    as it is, so that the test says what it lacks.
    """
    for n in range(tries):
        made = attempt(3.0**n)
        if is_enough(made):
            break
    return made
