"""What actions do to a loop tree, before and after, as the tree prints. An example of each is in
docs/ACTIONS.md, which says what they print (``tests/golden/test_docs_generated.py``); those here are
further ones.
"""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

import pytest

from benchmarks.hand_schedules import AVX512, GPU, conv3x3, gemm, row_sum, softmax
from tools.docs.actions_page import EXAMPLES
from tunegrad.ir.looptree import LoopKind, loop_tree
from tunegrad.opts import apply_actions, parse_actions

GEMM, ROWS, SOFTMAX, CONV = gemm(64, 96, 32), row_sum(64, 96), softmax(8, 64), conv3x3(8, 16, 14)

REWRITES = {
    "tile_again": (GEMM, AVX512, "tile(axis=n, size=32)", "tile(axis=n0, size=3)", """
        for m in 64:
            for n0 in 1:
                for n1 in 3:
                    for n2 in 32:
                        v0 = identity
                        for k in 32:
                            v0 = add(v0, mul(A[m, k], B[k, n]))
                        C[m, n] = v0
    """),
    "reorder_reduce": (GEMM, AVX512, "tile(axis=k, size=8)", "reorder(order=(k0, m, n))", """
        for k0 in 4:
            for m in 64:
                for n in 96:
                    v0 = identity or C
                    for k1 in 8:
                        v0 = add(v0, mul(A[m, k], B[k, n]))
                    C[m, n] = v0
    """),
    "vectorize_own": (SOFTMAX, AVX512, "tile(axis=t, size=16)", "vectorize(axis=t1)", """
        for i in 8:
            top = identity
            for p in 64:
                top = max(top, X[i, p])
            total = identity
            for q in 64:
                total = add(total, exp(sub(X[i, q], top)))
            for t0 in 4:
                # vector t1:16
                Y[i, t] = div(exp(sub(X[i, t], top)), total)
    """),
    "group_items": (ROWS, GPU, "tile(axis=k, size=16)", "group(axis=k1)", """
        for i in 64:
            v0 = identity
            for k0 in 6:
                for k1 in 16 local:
                    v0 = add(v0, X[i, k])
            S[i] = mul(v0, 0.5:f32)
    """),
    "stage_packed": (GEMM, AVX512, "tile(axis=n, size=16)", ("stage(param=B, at=m, layout=(n0, k, "
        "n1))"), """
        for m in 64:
            copy B -> B.m (n0, k, n1)
            for n0 in 6:
                for n1 in 16:
                    v0 = identity
                    for k in 32:
                        v0 = add(v0, mul(A[m, k], B[k, n]))
                    C[m, n] = v0
    """),
    "stage_load": (CONV, AVX512, "", "stage(param=W, at=load, layout=(r, s, c, o))", """
        copy W -> W.load (r, s, c, o) once, at load
        for y in 14:
            for x in 14:
                for o in 16:
                    v0 = identity
                    for r in 3:
                        for s in 3:
                            for c in 8:
                                v0 = add(v0, mul(X[r+y+-1, s+x+-1, c if 1<=r+y<15&1<=s+x<15], W[o, c, r, s]))
                    Y[y, x, o] = v0
    """),
}  # fmt: skip


@pytest.mark.parametrize("case", REWRITES)
def test_actions_rewrite_the_tree_as_they_say(case):
    kernel, target, first, text, want = REWRITES[case]
    before = apply_actions(loop_tree(kernel, target), parse_actions(first))
    assert str(apply_actions(before, parse_actions(text))) == dedent(want).strip("\n")


@pytest.mark.parametrize("name", EXAMPLES)
def test_actions_leave_the_tree_that_they_are_applied_to(name):
    kernel, target, first, text, _ = EXAMPLES[name]
    before = apply_actions(loop_tree(kernel, target), parse_actions(first))
    printed, same = str(before), replace(before)
    (action,) = parse_actions(text)
    action.check(before)
    assert action.apply(before) != before
    assert (str(before), before) == (printed, same)


def test_actions_tile_renumbers_deeper_loops():
    tree = apply_actions(
        loop_tree(GEMM, AVX512),
        parse_actions("tile(axis=m, size=16) tile(axis=m1, size=4) tile(axis=m0, size=2)"),
    )
    assert [(x.name, x.extent) for x in tree.loops[:4]] == [
        ("m0", 2),
        ("m1", 2),
        ("m2", 4),
        ("m3", 4),
    ]
    assert str(tree.axis_index("m")) == "32*m0+16*m1+4*m2+m3"


def test_actions_thread_without_a_count_takes_what_the_target_has():
    tree = apply_actions(loop_tree(GEMM, AVX512), parse_actions("thread(axis=m)"))
    assert tree.loop("m").count == AVX512.threads
    tree = apply_actions(loop_tree(GEMM, GPU), parse_actions("thread(axis=m)"))
    assert (tree.loop("m").count, tree.loop("m").kind) == (64, LoopKind.THREAD)
