"""Damaged graphs and kernels: each is rejected by its verifier, or is another well-formed one.

A well-formed graph is one whose kernels are well-formed and compute what the graph says; a
well-formed kernel one whose program does. Whether it then computes what the original did is what
comparing their results says: both are counted.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tests.graph_fuzzer import random_graph, random_inputs
from tests.kernel_corpus import NAMES, kernels_of
from tests.schedule_checks import Arrays, assert_agrees, buffers_of, expected
from tests.schedule_fuzzer import TWO
from tests.verifiers.graph import verify_graph
from tests.verifiers.looptree import verify_looptree
from tests.verifiers.program import verify_program
from tunegrad.errors import VerifyError
from tunegrad.ir.dtypes import BOOL, F32, F64, I32
from tunegrad.ir.expr import Apply, Const, Expr, Load, Op, leaves, rebuild
from tunegrad.ir.fusion import schedule
from tunegrad.ir.graph import Node, topological
from tunegrad.ir.index import Index, Range, Valid
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.kernel import Kernel, Reduce, Stage, Store
from tunegrad.ir.verify.kernel import verify_kernel
from tunegrad.opts import Space

GRAPHS, MUTANTS = 40, 5


@pytest.mark.parametrize("name", NAMES)
def test_every_form_of_the_corpus_is_verified(name: str) -> None:
    for kernel in kernels_of(name):
        verify_kernel(kernel)
        space = Space(kernel, TWO)
        for made in space.defaults():
            verify_looptree(space.tree(made))
            verify_program(space.lower(made), TWO)


def other_node(n: Node, nodes: list[Node], rng: random.Random) -> Node:
    """The node with another source, argument, shape, dtype or operation."""
    kind = rng.choice(("srcs", "srcs", "arg", "shape", "dtype", "op"))
    donor = rng.choice(nodes)
    if kind == "srcs" and n.srcs:
        at = rng.randrange(len(n.srcs))
        return Node(n.op, (*n.srcs[:at], donor, *n.srcs[at + 1 :]), n.arg, n.shape, n.dtype)
    if kind == "arg":
        return Node(n.op, n.srcs, donor.arg, n.shape, n.dtype)
    if kind == "shape":
        return Node(n.op, n.srcs, n.arg, donor.shape, n.dtype)
    if kind == "dtype":
        return Node(n.op, n.srcs, n.arg, n.shape, rng.choice((F32, F64, I32, BOOL)))
    return Node(donor.op, n.srcs, n.arg, n.shape, n.dtype)


def rewired(outputs: tuple[Node, ...], rng: random.Random) -> tuple[Node, ...]:
    """The graph with one node replaced; what uses it is made again, as if nothing had happened."""
    order = topological(outputs)
    old = rng.choice(order)
    before = order[: order.index(old)]
    made: dict[int, Node] = {id(old): other_node(old, before or order, rng)}
    for n in order:
        if id(n) not in made:
            srcs = tuple(made.get(id(s), s) for s in n.srcs)
            made[id(n)] = Node(n.op, srcs, n.arg, n.shape, n.dtype)
    return tuple(made[id(n)] for n in outputs)


def values(outputs: tuple[Node, ...], seed: int) -> tuple[bytes, ...]:
    with np.errstate(all="ignore"):
        found = evaluate(outputs, random_inputs(seed, outputs))
    assert [(a.shape, a.dtype) for a in found] == [(n.shape, n.dtype.numpy) for n in outputs]
    return tuple(a.tobytes() for a in found)


@pytest.mark.parametrize("seed", range(GRAPHS))
def test_graph_mutants_are_rejected_or_other_graphs(seed: int) -> None:
    rng = random.Random(seed)
    outputs = random_graph(rng, 10, (F32, I32, BOOL))
    verify_graph(outputs)
    found: Counter[str] = Counter()
    for _ in range(MUTANTS):
        mutant = rewired(outputs, rng)
        try:
            verify_graph(mutant)
        except VerifyError:
            found["rejected"] += 1
            continue
        for launch in schedule(mutant).launches:
            verify_kernel(launch.kernel)
        same = all(values(mutant, s) == values(outputs, s) for s in (1, 2))
        found["the same" if same else "another"] += 1
    assert found.total() == MUTANTS


def test_graph_mutants_are_mostly_rejected() -> None:
    rng, rejected, made = random.Random(1), 0, 0
    for seed in range(40):
        outputs = random_graph(random.Random(seed), 10)
        for _ in range(5):
            mutant = rewired(outputs, rng)
            made += mutant != outputs
            try:
                verify_graph(mutant)
            except VerifyError:
                rejected += 1
    assert made > 100
    assert rejected > made // 2


def other_index(i: Index, names: list[Index], rng: random.Random) -> Index:
    return rng.choice((i + 1, i - 1, i * 2, i + rng.choice(names), rng.choice(names)))


def other_expr(x: Expr, names: list[Index], params: list[str], rng: random.Random) -> Expr:
    """The expression with one of its leaves, or its operation, changed."""
    wanted = rng.choice(list(leaves(x)))

    def leaf(y: Expr) -> Expr:
        if y is not wanted or not isinstance(y, Load):
            return Const(2.0, F32) if y is wanted and isinstance(y, Const) else y
        kind = rng.randrange(3)
        if kind == 0 and y.index:
            at = rng.randrange(len(y.index))
            new = other_index(y.index[at], names, rng)
            return Load(y.param, (*y.index[:at], new, *y.index[at + 1 :]), y.dtype, y.valid)
        if kind == 1:
            return Load(y.param, y.index, y.dtype, Valid((Range(rng.choice(names), 0, 1),)))
        return Load(rng.choice(params), y.index, y.dtype, y.valid)

    if isinstance(x, Apply) and rng.random() < 0.3:
        return Apply(rng.choice((Op.ADD, Op.LT, Op.NEG, Op.MAX)), x.args, x.dtype)
    return rebuild(x, leaf)


def other_kernel(k: Kernel, rng: random.Random) -> Kernel:
    """One random edit: an axis, a parameter, a stage, an index, a condition."""
    names = [a.index for a in k.all_axes()]
    params = [p.name for p in k.params]
    at = rng.randrange(len(k.stages))
    s: Stage = k.stages[at]
    kind = rng.choice(("axis", "drop", "twice", "expr", "expr", "store", "valid", "dtype"))
    if kind == "axis" and k.axes:
        a = rng.randrange(len(k.axes))
        extent = max(1, k.axes[a].extent + rng.choice((-1, 1)))
        return replace(k, axes=(*k.axes[:a], replace(k.axes[a], extent=extent), *k.axes[a + 1 :]))
    if kind == "drop":
        return replace(k, stages=(*k.stages[:at], *k.stages[at + 1 :]))
    if kind == "twice":
        return replace(k, stages=(*k.stages[: at + 1], *k.stages[at:]))
    if kind == "dtype":
        p = rng.randrange(len(k.params))
        return replace(
            k, params=(*k.params[:p], replace(k.params[p], dtype=F64), *k.params[p + 1 :])
        )
    if isinstance(s, Store) and kind == "store" and s.index:
        d = rng.randrange(len(s.index))
        s = replace(s, index=(*s.index[:d], other_index(s.index[d], names, rng), *s.index[d + 1 :]))
    elif isinstance(s, Store) and kind == "valid":
        s = replace(s, valid=Valid((Range(rng.choice(names), 0, 1),)))
    elif isinstance(s, Reduce) and kind in ("store", "valid"):
        s = replace(s, op=rng.choice((Op.MAX, Op.SUB, Op.MUL)))
    else:
        s = replace(s, expr=other_expr(s.expr, names, params, rng))
    return replace(k, stages=(*k.stages[:at], s, *k.stages[at + 1 :]))


def outputs_of(k: Kernel, given: Arrays) -> dict[str, bytes]:
    with np.errstate(all="ignore"):
        return {n: v.tobytes() for n, v in expected(k, given).items()}


@pytest.mark.parametrize("name", NAMES)
def test_kernel_mutants_are_rejected_or_other_kernels(name: str) -> None:
    rng, kernel = random.Random(name), kernels_of(name)[-1]
    found: Counter[str] = Counter()
    changed = 0
    for _ in range(MUTANTS * 2):
        mutant = other_kernel(kernel, rng)
        changed += mutant != kernel
        try:
            verify_kernel(mutant)
        except VerifyError:
            found["rejected"] += 1
            continue
        program = Space(mutant, TWO).lower(Space(mutant, TWO).defaults()[0])
        assert_agrees(mutant, program, str(mutant))
        same = all(
            outputs_of(mutant, buffers_of(kernel, program, s))
            == outputs_of(kernel, buffers_of(kernel, program, s))
            for s in (1, 2)
        )
        found["the same" if same else "another"] += 1
    assert found.total() == MUTANTS * 2
    assert found["rejected"] > changed // 2


KERNEL_RULES = (
    "is used twice among", "write some elements twice", "writes some elements twice",
    "points for", "is not an axis of this stage", r" leaves \[0, ", "load of .* as",
    "does not give", "store of .* to .*, which is", "is read as .*; earlier reductions",
    "can not fold", " indices, ", "must be stored and never loaded", "is never loaded",
    "is not an input of integers",
)  # fmt: skip


def test_every_rule_of_kernels_rejects_some_mutant() -> None:
    said: Counter[str] = Counter()
    for name in NAMES:
        rng, kernel = random.Random(name), kernels_of(name)[-1]
        for _ in range(100):
            try:
                verify_kernel(other_kernel(kernel, rng))
            except VerifyError as error:
                said.update(rule for rule in KERNEL_RULES if re.search(rule, str(error)))
    assert not set(KERNEL_RULES) - set(said), said
