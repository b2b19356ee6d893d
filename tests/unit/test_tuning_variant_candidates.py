"""Variants of a model's kernels that may still win: their kernels, their sums, who falls behind;
rounds in a search.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any, cast

import numpy as np
import pytest

from tunegrad.frontend import Tensor
from tunegrad.ir.variants import DIRECT, parts_of
from tunegrad.tuning.questions.variant import (
    Group,
    VariantCandidates,
    leave_but,
    narrowed_in_rounds,
)
from tunegrad.tuning.workload import KernelUse, with_variants, workload_of_function

RNG = np.random.default_rng(0)
X = RNG.standard_normal((1, 8, 8, 16), dtype=np.float32)
W = [RNG.standard_normal((16, 16, 3, 3), dtype=np.float32) for _ in range(3)]
W2, W4 = "winograd2", "winograd4"


def three(x: Tensor) -> Tensor:
    """Two convolutions that are one kernel, and one with another epilogue; then something else."""
    a, b, c = (Tensor.constant(w) for w in W)
    y = x.permute(0, 3, 1, 2).conv2d(a, padding=1).relu().conv2d(b, padding=1).relu()
    return (y.conv2d(c, padding=1) + y).permute(0, 2, 3, 1).sum(3)


WORK = workload_of_function(three, (X,))
TWICE, ONCE, SUM = WORK.kernels
GROUP = Group((TWICE.key, ONCE.key), (DIRECT, W2, W4))
RIVALS = VariantCandidates(WORK, {}, (GROUP,))


def parts(*variants: str) -> set[str]:
    return {p.key for u in (TWICE, ONCE) for v in variants for p in parts_of(u.kernel, v)}


def times(**by_variant: float) -> dict[str, float]:
    """Seconds of parts that add up to these, for all three launches."""
    return {
        p.key: s / 3 / len(parts_of(u.kernel, v))
        for u in (TWICE, ONCE)
        for v, s in by_variant.items()
        for p in parts_of(u.kernel, v)
    }


def test_the_model_of_this_test_is_what_it_says() -> None:
    assert (TWICE.uses, ONCE.uses, SUM.uses) == (2, 1, 1)
    assert parts(W2).isdisjoint(parts(W4))


@pytest.mark.parametrize("variant", [DIRECT, W2, W4])
def test_one_variant_each_has_the_kernels_and_uses_of_the_rewritten_model(variant: str) -> None:
    alone = VariantCandidates(
        WORK, {TWICE.key: variant}, (Group((ONCE.key,), (variant,), variant),)
    )
    assert alone.kernels == alone.favourite.kernels
    assert (
        alone.favourite.kernels == with_variants(WORK, dict.fromkeys(GROUP.keys, variant)).kernels
    )
    assert not alone.competing


def test_rivals_have_the_kernels_of_all_their_variants_each_once() -> None:
    found = [u.key for u in RIVALS.kernels]
    assert len(set(found)) == len(found)
    assert set(found) == parts(DIRECT, W2, W4) | {SUM.key}
    assert len({u.name for u in RIVALS.kernels}) == len(found)
    assert RIVALS.competing == parts(DIRECT, W2, W4)
    uses = {u.key: u.uses for u in RIVALS.kernels}
    for variant in (DIRECT, W2, W4):
        rewritten = with_variants(WORK, dict.fromkeys(GROUP.keys, variant))
        assert {u.key: u.uses for u in rewritten.kernels}.items() <= uses.items()


def test_a_direct_kernel_that_is_behind_stays_to_be_beaten() -> None:
    found = RIVALS.narrowed(times(direct=9.0, winograd2=1.0, winograd4=9.0), 1.6)
    assert {u.key for u in found.kernels} == parts(DIRECT, W2) | {SUM.key}
    assert not found.competing
    assert (found.groups[0].stands, found.groups[0].others) == (DIRECT, (W2,))


def test_sums_are_of_all_launches_and_the_near_ones_are_kept_fastest_first() -> None:
    found = RIVALS.narrowed(times(direct=1.5, winograd2=1.0, winograd4=0.9), 1.6)
    assert found.seconds(GROUP) == pytest.approx({DIRECT: 1.5, W2: 1.0, W4: 0.9})
    assert found.groups[0].variants == (W4, W2)
    assert (found.groups[0].stands, found.groups[0].others) == (DIRECT, (W4, W2))
    assert found.favourites == dict.fromkeys(GROUP.keys, W4)


def test_times_are_only_replaced_by_better_ones() -> None:
    first = RIVALS.narrowed(times(direct=1.0, winograd2=1.1, winograd4=1.2), 1.6)
    again = first.narrowed(times(direct=2.0, winograd2=0.5, winograd4=inf), 3.0)
    assert again.seconds(GROUP) == pytest.approx({DIRECT: 1.0, W2: 0.5, W4: 1.2})
    assert again.groups[0].variants == (W2, DIRECT, W4)


def test_a_variant_that_does_not_run_is_out_and_direct_is_left_where_none_does() -> None:
    found = RIVALS.narrowed(times(direct=inf, winograd2=1.0, winograd4=inf), 1.6)
    assert found.groups[0].variants == (W2,)
    assert (found.groups[0].stands, found.groups[0].others) == (W2, ())
    nothing = RIVALS.narrowed({}, 1.6)
    assert nothing.groups[0].variants == (DIRECT,)
    assert (nothing.groups[0].stands, nothing.groups[0].others) == (DIRECT, ())


def test_among_equals_the_direct_one_is_first() -> None:
    found = RIVALS.narrowed(times(winograd2=1.0, winograd4=1.0, direct=1.0), 1.6)
    assert found.groups[0].variants[0] == DIRECT


# ---- rounds of a search


@dataclass
class Task:
    key: str


@dataclass
class Winner:
    actions: str


@dataclass
class Found:
    task: Task
    best_s: float
    winner: Winner


@dataclass
class Search:
    """Stands for a search whose rounds bring scripted times; ``rounds`` are the kernels that were
    asked for.
    """

    uses: tuple[KernelUse, ...]
    script: list[dict[str, float]]
    rounds: list[set[str]] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    best_s: dict[str, float] = field(default_factory=dict)

    @property
    def searches(self) -> list[Found]:
        keys = [u.key for u in self.uses if u.key not in self.gone]
        return [Found(Task(k), self.best_s.get(k, inf), Winner(f"best of {k}")) for k in keys]

    def round(self, keys: frozenset[str], within_s: float) -> bool:
        if not keys or not self.script or within_s <= 0.0:
            return False
        self.rounds.append(set(keys))
        self.best_s |= self.script.pop(0)
        return True

    def leave(self, keys: list[str]) -> None:
        assert not self.gone & set(keys)
        self.gone |= set(keys)


def test_a_variant_that_is_slower_by_default_is_left_when_it_is_searched() -> None:
    candidates = RIVALS.narrowed(times(direct=1.5, winograd2=1.0, winograd4=1.2), 1.6)
    search = Search(
        candidates.kernels, [times(direct=1.4, winograd2=0.9, winograd4=0.8), times(winograd4=0.6)]
    )
    (left,) = narrowed_in_rounds(cast(Any, search), [candidates], inf)
    assert search.rounds == [parts(DIRECT, W2, W4), parts(W2, W4)], (
        "direct fell behind in the first round"
    )
    assert left.groups[0].variants == (W4,)
    assert (left.groups[0].stands, left.groups[0].others) == (DIRECT, (W4,)), "it has to be beaten"
    assert search.gone == parts(W2)


def test_without_time_there_are_no_rounds_and_everything_stays() -> None:
    candidates = RIVALS.narrowed(times(direct=1.5, winograd2=1.0, winograd4=1.2), 1.6)
    search = Search(candidates.kernels, [times(winograd4=0.1)])
    assert narrowed_in_rounds(cast(Any, search), [candidates], 0.0) == [candidates]
    assert (search.rounds, search.gone) == ([], set())


def test_what_the_decided_models_do_not_run_leaves_the_search() -> None:
    search = Search(RIVALS.kernels, [])
    leave_but(cast(Any, search), [with_variants(WORK, dict.fromkeys(GROUP.keys, W2))])
    assert search.gone == parts(DIRECT, W4)
