"""What each action does to a loop tree, before and after, as the tree prints."""

from __future__ import annotations

from textwrap import dedent

import pytest

from benchmarks.hand_schedules import (
    AVX512,
    GPU,
    MATRICES,
    conv3x3,
    gemm,
    half_gemm,
    row_sum,
    softmax,
)
from tunegrad.ir.looptree import LoopKind, loop_tree
from tunegrad.opts import apply_actions, parse_actions
from tunegrad.opts.actions import ACTIONS

GEMM, ROWS, SOFTMAX, CONV = gemm(64, 96, 32), row_sum(64, 96), softmax(8, 64), conv3x3(8, 16, 14)

REWRITES = {
    "prefetch": (GEMM, AVX512, "", "prefetch(param=A, distance=512)", """
        prefetch A, 512 bytes ahead
        for m in 64:
            for n in 96:
                v0 = identity
                for k in 32:
                    v0 = add(v0, mul(A[m, k], B[k, n]))
                C[m, n] = v0
    """),
    "keep": (SOFTMAX, AVX512, "", "keep(stage=1)", """
        keep the values of stage 1
        for i in 8:
            top = identity
            for p in 64:
                top = max(top, X[i, p])
            total = identity
            for q in 64:
                total = add(total, exp(sub(X[i, q], top)))
            for t in 64:
                Y[i, t] = div(exp(sub(X[i, t], top)), total)
    """),
    "stream": (GEMM, AVX512, "", "stream(param=C)", """
        stream C
        for m in 64:
            for n in 96:
                v0 = identity
                for k in 32:
                    v0 = add(v0, mul(A[m, k], B[k, n]))
                C[m, n] = v0
    """),
    "tile": (GEMM, AVX512, "", "tile(axis=m, size=12)", """
        for m0 in 6:
            for m1 in 12:
                for n in 96:
                    v0 = identity
                    for k in 32:
                        v0 = add(v0, mul(A[m, k], B[k, n]))
                    C[m, n] = v0
    """),
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
    "reorder": (GEMM, AVX512, "", "reorder(order=(n, m))", """
        for n in 96:
            for m in 64:
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
    "fuse": (GEMM, AVX512, "", "fuse(outer=m, inner=n)", """
        for mnf in 6144:
            v0 = identity
            for k in 32:
                v0 = add(v0, mul(A[m, k], B[k, n]))
            C[m, n] = v0
    """),
    "upcast": (GEMM, AVX512, "tile(axis=m, size=4)", "upcast(axis=m1)", """
        for m0 in 16:
            for n in 96:
                # registers: m1:4
                v0 = identity
                for k in 32:
                    v0 = add(v0, mul(A[m, k], B[k, n]))
                C[m, n] = v0
    """),
    "vectorize": (GEMM, AVX512, "tile(axis=n, size=16)", "vectorize(axis=n1)", """
        for m in 64:
            for n0 in 6:
                # registers: n1:16v
                v0 = identity
                for k in 32:
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
    "unroll": (GEMM, AVX512, "tile(axis=k, size=4)", "unroll(axis=k1)", """
        for m in 64:
            for n in 96:
                v0 = identity
                for k0 in 8:
                    # unroll k1:4
                    v0 = add(v0, mul(A[m, k], B[k, n]))
                C[m, n] = v0
    """),
    "group": (ROWS, AVX512, "tile(axis=k, size=16)", "group(axis=k1)", """
        for i in 64:
            v0 = identity
            for k0 in 6:
                # group k1:16
                v0 = add(v0, X[i, k])
            S[i] = mul(v0, 0.5:f32)
    """),
    "group_items": (ROWS, GPU, "tile(axis=k, size=16)", "group(axis=k1)", """
        for i in 64:
            v0 = identity
            for k0 in 6:
                for k1 in 16 local:
                    v0 = add(v0, X[i, k])
            S[i] = mul(v0, 0.5:f32)
    """),
    "thread": (GEMM, AVX512, "", "thread(axis=m, count=2)", """
        for m in 64 on 2 threads:
            for n in 96:
                v0 = identity
                for k in 32:
                    v0 = add(v0, mul(A[m, k], B[k, n]))
                C[m, n] = v0
    """),
    "local": (GEMM, GPU, "tile(axis=m, size=8) thread(axis=m0)", "local(axis=m1)", """
        for m0 in 8 on 8 threads:
            for m1 in 8 local:
                for n in 96:
                    v0 = identity
                    for k in 32:
                        v0 = add(v0, mul(A[m, k], B[k, n]))
                    C[m, n] = v0
    """),
    "pipeline": (
        GEMM, GPU, (
            "tile(axis=k, size=8) tile(axis=m, size=8) tile(axis=n, size=8) "
            "reorder(order=(m0, n0, m1, n1, k0, k1)) thread(axis=m0, count=0) "
            "thread(axis=n0, count=0) local(axis=m1) local(axis=n1) "
            "stage(param=B, at=k0, layout=(k1, n1))"
        ),
        "pipeline(loop=k0, slots=3)", """
        copies of k0 run ahead, 3 slots
        for m0 in 8 on 8 threads:
            for n0 in 12 on 12 threads:
                for m1 in 8 local:
                    for n1 in 8 local:
                        v0 = identity
                        for k0 in 4:
                            copy B -> B.k0 (k1, n1)
                            for k1 in 8:
                                v0 = add(v0, mul(A[m, k], B[k, n]))
                        C[m, n] = v0
    """),
    "epilogue": (
        half_gemm(32, 16, 32), MATRICES, (
            "tile(axis=m, size=16) tile(axis=n, size=8) tile(axis=k, size=16) "
            "tensorcore(unit=m16n8k16_f16_f32, m=m1, n=n1, k=k1)"
        ),
        "epilogue(param=C)", """
        sums go through shared memory to the items that store neighbours of C
        m16n8k16_f16_f32 on m1, m2 x n1, n2 x k1
        for m0 in 2:
            for n0 in 2:
                for m2 in 8 local:
                    for n1 in 4 local:
                        # registers: m1:2 x n2:2
                        v0 = identity
                        for k0 in 2:
                            # matrix k1:16
                            v0 = add(v0, mul(f32(A[m, k]), f32(B[k, n])))
                        C[m, n] = v0
    """),
    "tensorcore": (
        half_gemm(32, 16, 32), MATRICES,
        "tile(axis=m, size=16) tile(axis=n, size=8) tile(axis=k, size=16)",
        "tensorcore(unit=m16n8k16_f16_f32, m=m1, n=n1, k=k1)", """
        m16n8k16_f16_f32 on m1, m2 x n1, n2 x k1
        for m0 in 2:
            for n0 in 2:
                for m2 in 8 local:
                    for n1 in 4 local:
                        # registers: m1:2 x n2:2
                        v0 = identity
                        for k0 in 2:
                            # matrix k1:16
                            v0 = add(v0, mul(f32(A[m, k]), f32(B[k, n])))
                        C[m, n] = v0
    """),
    "pad": (gemm(7, 16, 8), AVX512, "", "pad(axis=m, multiple=4)", """
        for m in 8:
            for n in 16:
                v0 = identity
                for k in 8:
                    v0 = add(v0, mul(A[m, k], B[k, n]))
                C[m, n] = v0
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
    "stage_region": (CONV, AVX512, "", "stage(param=X, at=(), layout=())", """
        copy X -> X.root (region)
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
    (action,) = parse_actions(text)
    printed, key = str(before), before
    after = action.apply(before)
    assert str(after) == dedent(want).strip("\n")
    assert str(before) == printed, "the tree that it was applied to changed"
    assert before == key
    action.check(before)


def test_actions_all_have_a_rewrite_here():
    assert {parse_actions(text)[0].name for _, _, _, text, _ in REWRITES.values()} == set(ACTIONS)


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
