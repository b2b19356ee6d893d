"""Damaged loop trees: each is rejected by the verifier, refused by lowering, or still computes what
its kernel says.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace

import pytest

from tests.kernel_corpus import NAMES, corpus_kernel
from tests.schedule_checks import assert_agrees
from tests.schedule_fuzzer import KERNELS, TWO, draw
from tests.verifiers.looptree import verify_looptree
from tunegrad.errors import IllegalAction, VerifyError
from tunegrad.ir.index import Index, var
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree, loop_tree
from tunegrad.opts import Space, lower

MUTANTS = 12


@pytest.mark.parametrize("name", KERNELS)
def test_looptree_verifier_accepts_the_tree_after_every_action(name: str) -> None:
    taken = 0
    for seed in range(5):
        drawn = draw(name, seed, Counter())
        if drawn is None:
            continue
        space, schedule = drawn
        tree = loop_tree(space.kernel, space.target)
        verify_looptree(tree)
        for action in schedule.actions:
            tree = action.apply(tree)
            verify_looptree(tree)
            taken += 1
    assert taken


def mutated(tree: LoopTree, rng: random.Random) -> LoopTree:
    """One random edit: of a loop, of the list of them, of an axis, of a copy."""
    at = rng.randrange(len(tree.loops))
    loops, old = list(tree.loops), tree.loops[at]
    kind = rng.choice(("loop", "drop", "twice", "swap", "index", "rest"))
    if kind == "loop":
        loops[at] = _another(old, tree, rng)
    elif kind == "drop":
        del loops[at]
    elif kind == "twice":
        loops.insert(rng.randrange(len(loops)), old)
    elif kind == "swap":
        to = rng.randrange(len(loops))
        loops[at], loops[to] = loops[to], loops[at]
    elif kind == "index":
        return replace(tree, index=_other_index(tree, rng))
    elif tree.staged:
        copy = replace(tree.staged[0], at=rng.choice(("", "load", old.name, "z")))
        return replace(tree, staged=(copy, *tree.staged[1:]))
    else:
        return replace(
            tree, streamed=(rng.choice(tree.kernel.params).name,), kept=(rng.randrange(3),)
        )
    return replace(tree, loops=tuple(loops))


def _another(x: Loop, tree: LoopTree, rng: random.Random) -> Loop:
    return rng.choice(
        (
            replace(x, extent=max(0, x.extent + rng.choice((-1, 1)))),
            replace(x, kind=rng.choice(list(LoopKind))),
            replace(x, count=rng.choice((0, 2, 3))),
            replace(x, kind=LoopKind.THREAD, count=2),
            replace(x, stage=x.stage + rng.choice((-1, 1))),
            replace(x, reduce=not x.reduce),
            replace(x, axes=rng.choice(tree.loops).axes),
            replace(x, name=rng.choice(tree.loops).name),
        )
    )


def _other_index(tree: LoopTree, rng: random.Random) -> tuple[tuple[str, Index], ...]:
    at, x = rng.randrange(len(tree.index)), rng.choice(tree.loops)
    axis, index = tree.index[at]
    v = var(x.name, x.extent)
    new = rng.choice((index + 1, index + v, index - v, index * 2, v, rng.choice(tree.index)[1]))
    return (*tree.index[:at], (axis, new), *tree.index[at + 1 :])


def some_trees(name: str) -> list[LoopTree]:
    """The trees of the first default schedule and of up to three drawn ones."""
    space = Space(corpus_kernel(name), TWO)
    drawn = [draw(name, seed, Counter()) for seed in (0, 2, 3)]
    return [space.tree(space.defaults()[0]), *(d[0].tree(d[1]) for d in drawn if d is not None)]


RULES = (
    "a name is there twice", "or of another range", "not there, or twice", "does not run from 0 to",
    "iterations of their loops", "are not all of stage", "reduce=", "and no thread loop",
    "order: ", "iterations of stage .* on .* threads", "threads: target .* has", "points run twice",
    "work-items are a GPU's", "a group is of a reduction", "lanes of a reduction are a group",
    "upcast, not unrolled", "iterations: at least 1",
)  # fmt: skip


def test_looptree_mutants_are_mostly_rejected_and_by_every_rule() -> None:
    said: Counter[str] = Counter()
    for name in NAMES:
        rng, trees, changed, rejected = random.Random(name), some_trees(name), 0, 0
        for _ in range(100):
            original = rng.choice(trees)
            tree = mutated(original, rng)
            changed += tree != original
            try:
                verify_looptree(tree)
            except VerifyError as error:
                rejected += 1
                said.update(rule for rule in RULES if re.search(rule, str(error)))
        assert rejected > changed // 2, name
    assert not set(RULES) - set(said), said


@pytest.mark.parametrize("name", NAMES)
def test_looptree_mutants_are_rejected_or_compute_the_same(name: str) -> None:
    rng, trees = random.Random(name), some_trees(name)
    found: Counter[str] = Counter()
    for _ in range(MUTANTS):
        original = rng.choice(trees)
        tree = mutated(original, rng)
        try:
            verify_looptree(tree)
        except VerifyError:
            found["rejected"] += 1
            continue
        try:
            program = lower(tree)
        except IllegalAction:
            found["refused when lowered"] += 1
            continue
        assert_agrees(tree.kernel, program, f"{tree}\nmade of\n{original}")
        found["the same"] += 1
    assert found.total() == MUTANTS
