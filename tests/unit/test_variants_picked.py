"""Which variant runs: strict allows exact ones, what is stored wins, without either a model of the
machine decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from stored_decisions import decided
from variant_builders import Conv, constant, kernel_of, only

from benchmarks.hand_schedules import AVX512
from tunegrad.db import IMPORTED, Evidence, Store, open_store
from tunegrad.devices.host.facts import declared
from tunegrad.frontend import Tensor
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.variants import parts_of, variants_of
from tunegrad.opts import SPACE_VERSION
from tunegrad.planning import (
    allowed,
    expected,
    pick_variants,
    picked,
    variant_s,
    worth_measuring,
)
from tunegrad.trial import Fingerprint, Measurement, Policy, Status, Trial

SERVER = replace(AVX512, threads=1)
HERE = Fingerprint((("device", "cpu"), ("numerics", "contract")))
PLAN = Conv(channels=64, outputs=64, height=28, width=28).plan()
KERNEL = kernel_of(PLAN)
EVIDENCE = Evidence("test", 0.001, (2e-3,), (1e-3,), cold=False)


def trial(
    actions: str, seconds: float = 1e-3, kernel: Kernel = KERNEL, here: Fingerprint = HERE
) -> Trial:
    return Trial(
        kernel.key, kernel.text, here, actions, "", SPACE_VERSION, Policy(),
        Measurement(Status.OK, (seconds,) * 5), "s1", "variant", 1.0,
    )  # fmt: skip


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(":memory:", "write") as opened, opened.session("tune", 0, {}, "0", "s1"):
        yield opened


def pick(store: Store | None, numerics: str = "contract") -> str | None:
    return picked(PLAN, SERVER, HERE, store, numerics).get(KERNEL.key)  # type: ignore[arg-type]


# ---- the choice


def test_strict_allows_the_exact_ones() -> None:
    assert allowed(KERNEL, "strict", SERVER) == ("direct", "channels_last")
    assert allowed(KERNEL, "contract", SERVER) == (
        "direct", "winograd2", "winograd4", "channels_last", "channels_last_winograd2",
        "channels_last_winograd4",
    )  # fmt: skip


def test_variants_that_are_expected_far_behind_are_not_worth_measuring() -> None:
    names = allowed(KERNEL, "contract", SERVER)
    seconds = {v: variant_s(KERNEL, v, SERVER) for v in names}
    found = worth_measuring(KERNEL, names, SERVER)
    behind = {v for v in names if seconds[v] > 2.56 * min(seconds.values())}
    assert set(found) == set(names) - behind
    assert "direct" in behind
    gpu = replace(SERVER, max_local=1024)
    assert worth_measuring(KERNEL, names, gpu) == names


@pytest.mark.parametrize(
    "name", ["winograd2", "winograd4", "channels_last_winograd2", "channels_last_winograd4"]
)
def test_strict_picks_an_exact_one_whatever_is_stored(store: Store, name: str) -> None:
    store.record_decision(decided("variant", KERNEL.text, name, HERE))
    plan, picks = pick_variants(PLAN, SERVER, HERE, store, "strict")
    assert (
        picks == {KERNEL.key: "channels_last"} == {KERNEL.key: expected(KERNEL, SERVER, "strict")}
    )
    assert [x.name.split(" (")[0] for x in plan.launches] == [
        "to channels last", f"{KERNEL.name} channels last", "to channels first",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["direct", "channels_last"])
def test_strict_keeps_a_stored_exact_choice(store: Store, name: str) -> None:
    store.record_decision(decided("variant", KERNEL.text, name, HERE))
    assert pick(store, "strict") == name


def test_strict_leaves_a_channels_last_plan_alone_whatever_is_stored(store: Store) -> None:
    last = Conv(channels=64, outputs=64, height=28, width=28, last=True).plan()
    store.record_decision(decided("variant", kernel_of(last).text, "winograd4", HERE))
    assert allowed(kernel_of(last), "strict", SERVER) == ("direct",)
    plan, picks = pick_variants(last, SERVER, HERE, store, "strict")
    assert plan is last
    assert picks == {}


def test_without_a_store_the_expected_one_is_picked() -> None:
    assert pick(None) == expected(KERNEL, SERVER) == "winograd4"


def test_an_empty_store_is_as_none(store: Store) -> None:
    assert pick(store) == expected(KERNEL, SERVER)


@pytest.mark.parametrize("name", variants_of(KERNEL))
def test_a_stored_choice_wins(store: Store, name: str) -> None:
    store.record_decision(decided("variant", KERNEL.text, name, HERE))
    assert pick(store) == name


def test_a_stored_schedule_is_a_choice_of_the_direct_kernel(store: Store) -> None:
    store.add(trial("tile(axis=a, size=4)"))
    assert pick(store) == "direct"


@pytest.mark.parametrize(
    ("part_s", "policy", "choice"),
    [(1e-4, Policy(), "winograd2"), (1e-3, Policy(), "direct"),
     (1e-4, Policy(cache="cold"), "direct")],
    ids=["faster", "slower", "timed otherwise"],
)  # fmt: skip
def test_without_a_race_the_kernels_that_took_least_alone_are_a_choice(
    store: Store, part_s: float, policy: Policy, choice: str
) -> None:
    store.promote(store.add(trial("tile(axis=a, size=4)")), EVIDENCE)
    for part in parts_of(KERNEL, "winograd2"):
        store.add(replace(trial("", part_s, part), policy=policy))
    assert pick(store) == choice
    assert pick(store, "strict") == "direct"
    store.record_decision(decided("variant", KERNEL.text, "direct", HERE))
    assert pick(store) == "direct"


@pytest.mark.parametrize("claimed", ["direct", "parts"])
def test_what_a_file_claims_of_times_is_no_choice(store: Store, claimed: str) -> None:
    """Of the direct kernel, or of the parts: figures of another place do not compare."""
    kernels = [KERNEL, *parts_of(KERNEL, "winograd2")]
    for kernel in kernels:
        row = trial("", 1e-3 if kernel is KERNEL else 1e-4, kernel)
        if (kernel is KERNEL) == (claimed == "direct"):
            row = replace(row, origin=IMPORTED)
        store.add(row)
    assert pick(store) == "direct"


def test_the_last_decision_wins(store: Store) -> None:
    for name in ("winograd2", "direct", "winograd4"):
        store.record_decision(decided("variant", KERNEL.text, name, HERE))
    assert pick(store) == "winograd4"


def test_a_decision_wins_over_a_schedule_of_the_direct_kernel(store: Store) -> None:
    store.record_decision(decided("variant", KERNEL.text, "winograd2", HERE))
    store.promote(store.add(trial("tile(axis=a, size=4)")), EVIDENCE)
    assert pick(store) == "winograd2"


def test_a_claimed_choice_wins_until_a_schedule_of_the_direct_kernel_is_promoted_here(
    store: Store,
) -> None:
    store.record_decision(decided("variant", KERNEL.text, "winograd2", HERE, claimed=True))
    row = store.add(trial("tile(axis=a, size=4)"))
    assert pick(store) == "winograd2"
    store.promote(row, EVIDENCE)
    assert pick(store) == "direct"


def test_a_schedule_is_no_decision_whatever_its_text(store: Store) -> None:
    store.promote(store.add(trial("variant(winograd2)")), EVIDENCE)
    assert pick(store) == "direct"


def test_a_choice_of_another_machine_is_none(store: Store) -> None:
    elsewhere = Fingerprint((("device", "cpu"), ("numerics", "strict")))
    store.record_decision(decided("variant", KERNEL.text, "winograd2", elsewhere))
    assert pick(store) == expected(KERNEL, SERVER)


@pytest.mark.parametrize("name", ["winograd6", "im2col", "winograd", "eval", "winograd٤"])
def test_a_stored_name_that_is_no_variant_falls_back(store: Store, name: str) -> None:
    """Also a text that no version of this program wrote: it is looked up, and nothing else."""
    store.record_decision(decided("variant", KERNEL.text, name, HERE))
    assert pick(store) == expected(KERNEL, SERVER)


def test_a_kernel_of_one_variant_is_not_picked(store: Store) -> None:
    plan = only(Tensor.input("x", (4, 5)) @ constant(5, 6))
    store.record_decision(decided("variant", kernel_of(plan).text, "winograd2", HERE))
    assert picked(plan, SERVER, HERE, store, "contract") == {}


def test_picked_variants_are_in_the_plan(store: Store) -> None:
    store.record_decision(decided("variant", KERNEL.text, "winograd2", HERE))
    plan, picks = pick_variants(PLAN, SERVER, HERE, store, "contract")
    assert picks == {KERNEL.key: "winograd2"}
    assert [x.name.split(" ")[0] for x in plan.launches] == ["winograd2", "winograd", "winograd2"]


# ---- what is expected


def test_expectation_is_the_same_every_time() -> None:
    shapes = [(c, n) for c in (2, 16, 64, 256) for n in (4, 7, 28)]
    kernels = [Conv(channels=c, outputs=c, height=n, width=n).kernel() for c, n in shapes]
    first = [expected(k, SERVER) for k in kernels]
    again = [
        expected(Conv(channels=c, outputs=c, height=n, width=n).kernel(), SERVER) for c, n in shapes
    ]
    assert first == again
    assert len(set(first)) > 1


def test_expectation_is_one_of_the_variants() -> None:
    for conv in (Conv(), Conv(channels=64, outputs=64, height=14, width=14)):
        assert expected(conv.kernel(), SERVER) in variants_of(conv.kernel())


def test_few_channels_are_expected_to_be_direct() -> None:
    """The transforms' bytes cost more than the products that they save."""
    assert expected(Conv(channels=2, outputs=2, height=56, width=56).kernel(), SERVER) == "direct"


def test_slow_arithmetic_favours_fewer_products() -> None:
    kernel = Conv(channels=16, outputs=16, height=16, width=16).kernel()
    assert expected(kernel, declared(replace(SERVER, vector_bytes=16))).startswith("winograd")


def test_a_product_is_expected_to_be_direct() -> None:
    assert expected(kernel_of(only(Tensor.input("x", (4, 5)) @ constant(5, 6))), SERVER) == "direct"
