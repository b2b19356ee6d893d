"""Damaged loop trees: each is rejected by the verifier, refused by lowering, or still computes what
its kernel says.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from tests.kernel_corpus import NAMES, corpus_kernel
from tests.schedule_checks import assert_agrees
from tests.schedule_fuzzer import KERNELS, TWO, draw
from tunegrad.errors import IllegalAction, VerifyError
from tunegrad.ir.index import Index, var
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree, loop_tree
from tunegrad.ir.verify_looptree import verify_looptree
from tunegrad.opts import Space, lower

MUTANTS = 12


@pytest.mark.parametrize("name", KERNELS)
def test_looptree_verifier_accepts_the_tree_after_every_action(name: str) -> None:
    taken = 0
    for seed in range(10):
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


@pytest.mark.parametrize("name", NAMES)
def test_looptree_mutants_are_rejected_or_compute_the_same(name: str) -> None:
    rng = random.Random(name)
    space = Space(corpus_kernel(name), TWO)
    trees = [space.tree(space.defaults()[0])]
    trees += [
        drawn[0].tree(drawn[1])
        for seed in (0, 2, 3)
        if (drawn := draw(name, seed, Counter())) is not None
    ]
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
    assert found["rejected"] > 0
