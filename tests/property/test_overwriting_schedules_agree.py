"""Random schedules of kernels that write over their inputs, for CPUs and GPUs: in the interpreter
they give the same bits with both in one memory.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.overwriting_kernels import OVERWRITING, overwriting_kernel
from tests.property.test_schedules_agree import (
    CPU,
    GPU,
    TWO,
    WARPS,
    RandomChooser,
    random_actions,
)
from tests.schedule_checks import TOO_LARGE, check
from tunegrad.errors import IllegalAction
from tunegrad.opts import Schedule, Space

TARGETS = {"cpu": CPU, "two": TWO, "gpu": GPU, "warps": WARPS}


def draws(name: str, target: str, seeds: range) -> Counter[str]:
    """Draw decisions of the space, and lists of actions, and compare; what became of them."""
    found: Counter[str] = Counter()
    space = Space(overwriting_kernel(name), TARGETS[target])
    for seed in seeds:
        try:
            if seed % 2:
                schedule = Schedule.parse(random_actions(space.kernel, space.target, seed))
            else:
                schedule = space.sample(RandomChooser(seed))
            program = space.lower(schedule)
        except IllegalAction as error:
            found["a race" if "a race" in str(error) else "illegal"] += 1
            continue
        assert program.overwritten, schedule.text
        done = check(space.kernel, program, f"{target} {seed}: {schedule.text}", seed)
        found["large" if TOO_LARGE in done else "compared"] += 1
    return found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", OVERWRITING)
def test_schedules_give_the_same_bits_over_an_input_as_beside_it(name: str, target: str):
    found = draws(name, target, range(4))
    assert found["compared"] >= 1, found
