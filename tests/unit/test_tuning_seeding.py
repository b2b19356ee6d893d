"""Which rows of a store lend seeds: this machine before others, near kernels before far ones, never
its own session.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tunegrad.db import Evidence, Hit, Store, open_store
from tunegrad.devices.host.facts import fingerprint, host_target
from tunegrad.ir.kernel import Kernel
from tunegrad.opts import SPACE_VERSION, Space
from tunegrad.trial import Fingerprint, Measurement, Policy, Status, Trial
from tunegrad.tuning.seeding import Seeding
from tunegrad.tuning.workload import workload_of_function

TARGET = host_target(1)
HERE = fingerprint(TARGET)
ELSEWHERE = Fingerprint(tuple((k, "pdp11" if k == "arch" else v) for k, v in HERE.fields))
POLICY = Policy()


def product(n: int) -> Kernel:
    a = np.ones((n, n), np.float32)
    (use,) = workload_of_function(lambda a, b: a @ b, (a, a)).kernels
    return use.kernel


def schedules(kernel: Kernel, rows: int) -> str:
    """A schedule of the kernel that says whose it is: its register tile has so many rows."""
    return (
        f"tile(axis=b, size=16) tile(axis=a, size={rows}) reorder(order=(a0, b0, ra, a1, "
        "b1)) vectorize(axis=b1)"
    )


@pytest.fixture
def store() -> Store:
    return open_store(":memory:", "write")


def keep(
    store: Store,
    kernel: Kernel,
    rows: int,
    ms: float | None = 1.0,
    where: Fingerprint = HERE,
    **more: object,
) -> None:
    found = Measurement(Status.CRASHED) if ms is None else Measurement(Status.OK, (1e-3 * ms,))
    trial = Trial(
        kernel.key,
        kernel.text,
        where,
        schedules(kernel, rows),
        f"p{rows}",
        SPACE_VERSION,
        POLICY,
        found,
        "old",
        "beam",
    )
    store.add(replace(trial, **more))  # type: ignore[arg-type]


def lent(
    store: Store, kernel: Kernel, leave_out: frozenset[str] = frozenset({"mine"})
) -> list[int]:
    """The rows of the register tiles that the seeds take over as they stand."""
    found = Seeding(store, HERE, POLICY, leave_out).seeds(kernel, Space(kernel, TARGET))
    return [rows for s in found for rows in range(1, 64) if s.text == schedules(kernel, rows)]


def test_empty_store_lends_nothing(store: Store) -> None:
    assert lent(store, product(64)) == []


def test_nearest_kernel_lends_its_fastest_first(store: Store) -> None:
    keep(store, product(48), 3, ms=2.0)
    keep(store, product(48), 4, ms=1.0)
    keep(store, product(48), 5, ms=None)
    keep(store, product(256), 7, ms=0.5)
    assert lent(store, product(64)) == [4, 7]


def test_other_machine_lends_after_this_one_even_the_same_kernel(store: Store) -> None:
    keep(store, product(64), 8, where=ELSEWHERE)
    assert lent(store, product(64)) == [8]
    keep(store, product(48), 3)
    assert lent(store, product(64)) == [3, 8]


def test_kernel_that_was_searched_here_is_not_new(store: Store) -> None:
    keep(store, product(48), 3)
    keep(store, product(64), 4)
    assert lent(store, product(64)) == []


def test_kernel_of_which_only_the_default_was_measured_is_new_and_lends_nothing(
    store: Store,
) -> None:
    keep(store, product(48), 3, origin="default")
    keep(store, product(96), 4)
    keep(store, product(64), 5, origin="default")
    assert lent(store, product(64)) == [4]


def test_rows_of_this_session_and_those_it_goes_on_from_lend_nothing(store: Store) -> None:
    keep(store, product(48), 3, session="mine")
    keep(store, product(64), 4, session="cut short")
    assert lent(store, product(64), frozenset({"mine", "cut short"})) == []
    assert lent(store, product(64), frozenset({"cut short"})) == [3]


def test_rows_of_another_space_version_lend_nothing(store: Store) -> None:
    keep(store, product(48), 3, space_version=SPACE_VERSION + 1)
    assert lent(store, product(64)) == []


def test_winner_of_an_older_space_or_description_of_this_machine_is_the_first_seed(
    store: Store,
) -> None:
    before = Fingerprint(tuple((k, v) for k, v in HERE.fields if k not in ("microcode", "smt")))
    keep(store, product(48), 3)
    keep(store, product(64), 8, where=before, space_version=SPACE_VERSION - 1)
    keep(store, product(64), 9, where=ELSEWHERE, space_version=SPACE_VERSION - 1)
    keep(store, product(64), 7, where=HERE, space_version=SPACE_VERSION - 1)
    assert lent(store, product(64)) == [7, 3]
    answer = store.lookup(product(64).key, HERE, SPACE_VERSION)
    assert not isinstance(answer, Hit)
    assert [(d.field, d.stored) for d in answer.nearest[2].differences] == [
        ("microcode", ""), ("smt", ""), ("space_version", str(SPACE_VERSION - 1)),
    ]  # fmt: skip


def test_text_of_a_stranger_that_is_no_schedule_lends_nothing(store: Store) -> None:
    keep(store, product(48), 3, actions="__import__('os').system('true')", origin="imported:beam")
    assert lent(store, product(64)) == []


def test_winner_that_was_timed_otherwise_is_the_first_seed(store: Store) -> None:
    otherwise = Policy(cache="constants")
    keep(store, product(48), 3)
    keep(store, product(64), 8, policy=otherwise)
    keep(store, product(64), 9, policy=otherwise)
    assert lent(store, product(64)) == [3]
    winner = store.trials(product(64).key)[0]
    found = store.id_of(winner)
    assert found is not None
    store.promote(found, Evidence("mannwhitneyu", 0.001, (2e-3,), (1e-3,), cold=True))
    assert lent(store, product(64)) == [8, 3]
