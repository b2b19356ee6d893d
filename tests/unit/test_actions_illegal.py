"""Every rule of every action: breaking it is an IllegalAction that names the action, its values and
the rule.
"""

from __future__ import annotations

import re
from dataclasses import replace

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
from tunegrad.errors import IllegalAction
from tunegrad.ir.dtypes import F32
from tunegrad.ir.expr import Apply, Load, Op, Value
from tunegrad.ir.index import Range, Valid
from tunegrad.ir.kernel import Axis, Kernel, Param, Reduce, Store
from tunegrad.ir.layout import Layout, Part
from tunegrad.ir.looptree import loop_tree
from tunegrad.opts import apply_actions, parse_actions
from tunegrad.opts.actions import ACTIONS

GEMM, ROWS, SOFTMAX, CONV = gemm(64, 96, 32), row_sum(64, 96), softmax(8, 64), conv3x3(8, 16, 14)
STAGED = "tile(axis=k, size=8) stage(param=B, at=m, layout=(n, k0, k1))"


def odd_loads() -> Kernel:
    """``S[i] = sum over k of X[4*i + k] * X[k]``, and Y diagonally from a blocked layout, a strange
    condition.
    """
    i, k = Axis("i", 4), Axis("k", 4)
    blocked = Layout((16,), (Part(0, 4, 4), Part(0, 1, 4)))
    params = (
        Param.dense("S", F32, (4,), "out"), Param.dense("X", F32, (16,), "in"),
        Param("Y", F32, (16,), "in", blocked),
        Param.dense("Z", F32, (16,), "in"), Param.dense("V", F32, (4, 4), "in"),
    )  # fmt: skip
    terms = [
        Load("X", (i.index * 4 + k.index,), F32),
        Load("X", (k.index,), F32),
        Load("Y", (i.index + k.index,), F32),
        Load("Z", ((i.index * 3 + k.index) // 2,), F32),
        Load("V", (i.index, k.index), F32, Valid((Range(i.index + k.index, 0, 5),))),
    ]
    product = terms[0]
    for t in terms[1:]:
        product = Apply(Op.MUL, (product, t), F32)
    return Kernel(
        params,
        (i,),
        (Reduce("v0", Op.ADD, (k,), product, F32), Store("S", (i.index,), Value("v0", F32))),
        "odd",
    )


ODD = odd_loads()

HALVES = half_gemm(32, 16, 32)
UNIT = "tile(axis=m, size=16) tile(axis=n, size=8) tile(axis=k, size=16)"
USED = f"{UNIT} tensorcore(unit=m16n8k16_f16_f32, m=m1, n=n1, k=k1)"

SHARED = (
    "tile(axis=k, size=8) tile(axis=m, size=8) tile(axis=n, size=8) "
    "reorder(order=(m0, n0, m1, n1, k0, k1)) thread(axis=m0, count=0) thread(axis=n0, count=0) "
    "local(axis=m1) local(axis=n1)"
)
AHEAD_OF = f"{SHARED} stage(param=B, at=k0, layout=(k1, n1))"

RULES = [
    # epilogue
    (HALVES, MATRICES, UNIT, "epilogue(param=C)", "no matrix unit makes the sums"),
    (HALVES, MATRICES, USED, "epilogue(param=A)", "no output of that name; valid: C"),
    (HALVES, MATRICES, f"{USED} epilogue(param=C)", "epilogue(param=C)", "for C already"),
    (half_gemm(32, 48, 32), MATRICES, f"{USED} local(axis=n0)", "epilogue(param=C)",
        "extent 6 of loop n0: no power of two"),
    (HALVES, replace(MATRICES, shared_bytes=255), USED, "epilogue(param=C)",
        "256 bytes of shared memory: 255"),
    # pipeline
    (GEMM, GPU, AHEAD_OF, "pipeline(loop=k1, slots=2)", "nothing is staged at loop k1"),
    (GEMM, GPU, AHEAD_OF, "pipeline(loop=k0, slots=1)", "1 slots: 2 to 8"),
    (GEMM, GPU, AHEAD_OF, "pipeline(loop=k0, slots=5)", "pipelined loop k0 of 4 iterations"),
    (GEMM, GPU, AHEAD_OF, "pipeline(loop=z, slots=2)", "no loop 'z'"),
    (GEMM, GPU, f"{AHEAD_OF} pipeline(loop=k0, slots=2)", "pipeline(loop=k0, slots=2)",
        "loop k0 is pipelined already"),
    (GEMM, GPU, f"{AHEAD_OF} pipeline(loop=k0, slots=2)", "unroll(axis=k0)",
        "not a serial reduce loop of a stage alone"),
    (GEMM, AVX512, "tile(axis=k, size=8) stage(param=B, at=k0, layout=(k1))",
        "pipeline(loop=k0, slots=2)", "no shared memory to copy ahead to"),
    (gemm(64, 96, 30), GPU, AHEAD_OF, "pipeline(loop=k0, slots=2)", "axis k has a tail; pad it"),
    (gemm(64, 96, 4096), GPU, AHEAD_OF.replace("axis=k, size=8", "axis=k, size=512"),
        "pipeline(loop=k0, slots=4)", "65536 bytes exceed 32768"),
    (gemm(64, 96, 4096), GPU, f"{AHEAD_OF} stage(param=A, at=k0, layout=(k1, m1))".replace(
        "axis=k, size=8", "axis=k, size=256"), "pipeline(loop=k0, slots=3)",
        "bytes of shared memory: 32768"),
    # tensorcore
    (HALVES, MATRICES, UNIT, "tensorcore(unit=m16n8k16_f16_f32, m=m0, n=n1, k=k1)",
        "m is loop m0 of extent 2, not 16"),
    (HALVES, MATRICES, UNIT, "tensorcore(unit=m16n8k16_f16_f32, m=k1, n=n1, k=m1)",
        "loop k1 can not be m"),
    (HALVES, GPU, UNIT, "tensorcore(unit=m16n8k16_f16_f32, m=m1, n=n1, k=k1)",
        "no unit 'm16n8k16_f16_f32' on target gpu: none"),
    (GEMM, MATRICES, UNIT, "tensorcore(unit=m16n8k16_f16_f32, m=m1, n=n1, k=k1)",
        "a sum of f32 x f32 in f32, the unit's is of f16 in f32"),
    (HALVES, MATRICES, USED, "tensorcore(unit=m16n8k16_f16_f32, m=m0, n=n0, k=k0)",
        "m16n8k16_f16_f32 is used already"),
    (SOFTMAX, MATRICES, "", "tensorcore(unit=m16n8k16_f16_f32, m=i, n=p, k=q)", "is not one sum"),
    (HALVES, MATRICES, USED, "tile(axis=m0, size=2)", "can not be tiled beside a matrix unit"),
    (HALVES, MATRICES, USED, "vectorize(axis=n0)", "can not be vector lanes beside a matrix unit"),
    # keep
    (SOFTMAX, AVX512, "", "keep(stage=0)", "no later stage of kernel"),
    (SOFTMAX, AVX512, "", "keep(stage=7)", "has no reduction at that place"),
    (SOFTMAX, AVX512, "keep(stage=1)", "keep(stage=1)", "stage 1 is kept already"),
    (SOFTMAX, GPU, "", "keep(stage=1)", "needs a thread with scratch"),
    # stream
    (GEMM, AVX512, "", "stream(param=A)", "A must be an output that is not streamed yet"),
    (GEMM, GPU, "", "stream(param=C)", "has no such stores"),
    # prefetch
    (GEMM, AVX512, "", "prefetch(param=C, distance=512)", "C is not an input"),
    (GEMM, AVX512, "", "prefetch(param=A, distance=1)", ("the distance must be from 64 to 65536 "
                                                        "bytes")),
    (GEMM, AVX512, "prefetch(param=A, distance=64)", "prefetch(param=A, distance=64)",
        ("A is prefetched "
        "already")),
    (GEMM, GPU, "", "prefetch(param=A, distance=512)", "has no such hint"),
    # every action that names a loop
    (GEMM, AVX512, "", "tile(axis=z, size=4)", ("no loop 'z' in kernel gemm 64x96x32; its loops "
                                               "are m, n, k")),
    (GEMM, AVX512, "", "upcast(axis=z)", "no loop 'z'"),
    (GEMM, AVX512, "", "reorder(order=(m, z))", "no loop 'z'"),
    # tile
    (GEMM, AVX512, "thread(axis=m, count=2)", "tile(axis=m, size=4)",
        ("m is thread, only a serial loop can be "
        "tiled")),
    (GEMM, AVX512, STAGED, "tile(axis=m, size=4)", ("loops can not be tiled once something is "
                                                   "staged")),
    (GEMM, AVX512, "", "tile(axis=m, size=0)", "the size must be at least 1"),
    (GEMM, AVX512, "", "tile(axis=k, size=65)", "extent 32 of loop k would more than double to 65"),
    (gemm(3, 8, 8), AVX512, "", "tile(axis=m, size=17)", ("extent 3 of loop m would more than "
                                                         "double to 17")),
    (gemm(1, 8, 8), AVX512, "", "tile(axis=m, size=4)", ("loop m has one iteration: nothing "
                                                        "depends on it")),
    (GEMM, AVX512, "tile(axis=m, size=12)", "tile(axis=m1, size=5)",
     "5 does not divide extent 12, which is not the axis's outermost loop"),
    # reorder
    (GEMM, AVX512, STAGED, "reorder(order=(n, m))", ("loops can not be reordered once something "
                                                    "is staged")),
    (GEMM, AVX512, "", "reorder(order=(n, n))", "needs two or more different loops"),
    (GEMM, AVX512, "", "reorder(order=(n))", "needs two or more different loops"),
    (GEMM, AVX512, "tile(axis=m, size=4)", "reorder(order=(m1, m0))",
        ("stands inside a finer loop of its own axis "
        "m")),
    (SOFTMAX, AVX512, "", "reorder(order=(p, i))", ("only a kernel of one reduction and its "
                                                   "epilogue may")),
    (gemm(8, 8, 10), AVX512, "tile(axis=k, size=4) unroll(axis=k0)", "reorder(order=(k1, m, n))",
     "its axis has a tail and coarser loops inside"),
    (ROWS, GPU, "tile(axis=k, size=8) group(axis=k1)", "reorder(order=(k0, i))",
        ("no reduce loop can be around "
        "it")),
    # fuse
    (GEMM, AVX512, STAGED, "fuse(outer=m, inner=n)", ("loops can not be fused once something is "
                                                     "staged")),
    (GEMM, AVX512, "", "fuse(outer=n, inner=m)", "loop m does not directly follow loop n"),
    (GEMM, AVX512, "", "fuse(outer=n, inner=k)", "needs two serial loops of one stage"),
    (GEMM, AVX512, "thread(axis=m, count=2)", "fuse(outer=m, inner=n)",
        ("needs two serial loops of one "
        "stage")),
    (GEMM, AVX512, "tile(axis=m, size=12)", "fuse(outer=m1, inner=n)", ("axis m of extent 64 has a "
        "tail")),
    # upcast, unroll, vectorize, group: register loops
    (GEMM, AVX512, "", "upcast(axis=n)", "extent 96 of loop n is more than 64"),
    (GEMM, AVX512, "unroll(axis=k)", "upcast(axis=k)", "loop k is already unroll"),
    (GEMM, AVX512, "upcast(axis=m)", "upcast(axis=k)", ("stage 0 would have 2048 copies of its "
                                                       "statement")),
    (GEMM, AVX512, "tile(axis=m, size=16) tile(axis=n, size=32) vectorize(axis=n1) upcast(axis=m1)",
     "upcast(axis=k)", "1024 accumulators need over twice the registers"),
    (GEMM, AVX512, "tile(axis=m, size=32) tile(axis=n, size=64) vectorize(axis=n1)",
        "upcast(axis=m1)",
     "128 accumulators need over twice the registers"),
    (GEMM, AVX512, "", "unroll(axis=m)", ("loop m is shared by every stage; upcast() puts it in "
                                         "registers")),
    (ROWS, AVX512, "", "unroll(axis=k)", "extent 96 of loop k is more than 64"),
    (GEMM, AVX512, "", "vectorize(axis=k)", ("loop k is a reduce loop; group() splits a "
                                            "reduction over lanes")),
    (GEMM, AVX512, "", "vectorize(axis=n)", ("extent 96 of loop n must be 2, 4, 8, 16, 32 or "
                                            "64, of one axis")),
    (gemm(8, 8, 4), AVX512, "fuse(outer=m, inner=n)", "vectorize(axis=mnf)",
        ("16, 32 or 64, of one "
        "axis")),
    (GEMM, AVX512, "vectorize(axis=m) tile(axis=n, size=4)", "vectorize(axis=n1)",
     "loops m and n1 would both be vector lanes of stage 0"),
    (GEMM, AVX512, "", "group(axis=m)", "loop m is not a reduce loop"),
    (ROWS, AVX512, "", "group(axis=k)", "extent 96 of loop k must be 2, 4, 8, 16, 32 or 64"),
    (CONV, AVX512, "fuse(outer=r, inner=s)", "group(axis=rsf)", ("loop rsf is fused from several "
        "axes")),
    (row_sum(4, 512), GPU, "", "group(axis=k)", "512 work-items are more than the target's 256"),
    (ROWS, GPU, "tile(axis=k, size=8) local(axis=i)", "group(axis=k1)",
     "512 work-items are more than the target's 256"),
    (CONV, GPU, "group(axis=r)", "group(axis=s)",
     "loop r shares its stage over work-items, so no other loop of the stage can be local"),
    (SOFTMAX, GPU, "local(axis=i) tile(axis=p, size=8) tile(axis=q, size=12) group(axis=p1)",
     "group(axis=q1)", "loop p1 shares its stage over work-items: its extent 8 does not divide 12"),
    (GEMM, GPU, "tile(axis=k, size=8) reorder(order=(k0, m, n))", "group(axis=k1)",
     "loop k1 shares its stage over work-items, so no reduce loop can be around it"),
    # thread and local
    (GEMM, AVX512, "", "thread(axis=k, count=2)", ("loop k belongs to one stage; only a shared "
                                                  "loop can be threaded")),
    (GEMM, AVX512, "", "thread(axis=m, count=64)", "more threads than the target's 2"),
    (GEMM, AVX512, "tile(axis=m, size=64)", "thread(axis=m0, count=2)",
     "count 2: loop m0 has 1 iterations to share out"),
    (gemm(3, 8, 8), replace(AVX512, threads=8), "", "thread(axis=m, count=4)",
     "count 4: loop m has 3 iterations to share out"),
    (GEMM, AVX512, "thread(axis=m, count=2)", "thread(axis=n, count=2)",
        ("more threads than the target's "
        "2")),
    (CONV, replace(AVX512, threads=8), "thread(axis=y, count=2) thread(axis=x, count=2)",
        ("thread(axis=o, "
        "count=2)"),
     "two loops are threaded already"),
    (GEMM, GPU, "", "thread(axis=m, count=2)", ("a work-group runs one iteration, so count must "
                                               "be the extent 64")),
    (GEMM, AVX512, "", "local(axis=m)", "target cpu has no work-items"),
    (GEMM, GPU, "", "local(axis=k)",
     "loop k is a reduce loop; group() shares a reduction over work-items"),
    (SOFTMAX, GPU, "tile(axis=p, size=8) group(axis=p0) reorder(order=(p0, i, t)) local(axis=i)",
     "local(axis=t)", "p0: some local loops of stages stand inside shared ones, and some around"),
    (GEMM, GPU, "local(axis=m)", "local(axis=n)", "6144 work-items are more than the target's 256"),
    (row_sum(64, 64), GPU, "tile(axis=k, size=8) group(axis=k1)", "local(axis=i)",
     "512 work-items are more than the target's 256"),
    # pad
    (GEMM, AVX512, "tile(axis=m, size=12)", "pad(axis=m0, multiple=4)",
        ("m0 is not an untiled, unpadded "
        "axis")),
    (gemm(7, 16, 8), AVX512, "pad(axis=m, multiple=4)", "pad(axis=m, multiple=16)",
        ("m is not an untiled, "
        "unpadded")),
    (gemm(1, 8, 8), AVX512, "", "pad(axis=m, multiple=4)", ("axis m has one point: nothing "
                                                           "depends on it")),
    (GEMM, AVX512, "", "pad(axis=m, multiple=16)", "extent 64 is a multiple of 16 already"),
    (GEMM, AVX512, "", "pad(axis=m, multiple=1)", "extent 64 is a multiple of 1 already"),
    (gemm(7, 8, 8), AVX512, "", "pad(axis=m, multiple=64)", ("extent 7 would more than double to "
        "64")),
    # stage
    (GEMM, AVX512, "", "stage(param=D, at=m, layout=())", "no such parameter; valid: C, A, B"),
    (GEMM, AVX512, "", "stage(param=C, at=m, layout=())", "loads it in 0 places; needs one"),
    (GEMM, AVX512, STAGED, "stage(param=B, at=m, layout=())", "parameter B is staged already"),
    (GEMM, AVX512, "", "stage(param=A, at=load, layout=())", ("the parameter is 'in', not a "
        "constant")),
    (GEMM, AVX512, "", "stage(param=A, at=z, layout=())", "no loop 'z'"),
    (GEMM, replace(AVX512, threads=4), "thread(axis=m, count=2) thread(axis=n, count=2)",
     "stage(param=B, at=m, layout=(n, k))", "between thread loops m and n"),
    (GEMM, replace(AVX512, threads=4), ("thread(axis=m, count=2) stage(param=B, at=m, "
                                       "layout=(n, k))"),
     "thread(axis=n, count=2)", "between thread loops m and n"),
    (GEMM, AVX512, "unroll(axis=k)", "stage(param=A, at=k, layout=(m))",
        ("not a serial loop around its "
        "use")),
    (SOFTMAX, AVX512, "", "stage(param=X, at=q, layout=())", "not a serial loop around its use"),
    (GEMM, AVX512, "", "stage(param=B, at=m, layout=(n))", ("layout (n) must name the loops (n, "
                                                           "k), each once")),
    (GEMM, AVX512, "", "stage(param=B, at=m, layout=(n, k, k))",
        ("must name the loops (n, k), each "
        "once")),
    (GEMM, GPU, "local(axis=m)", "stage(param=B, at=(), layout=())", "outside local loop m"),
    (ROWS, GPU, "tile(axis=k, size=8) group(axis=k1)", "stage(param=X, at=k0, layout=())",
     "work-items part ways inside that loop"),
    (gemm(256, 256, 256), GPU, "", "stage(param=B, at=(), layout=())", "262144 bytes exceed 32768"),
    (ODD, AVX512, "", "stage(param=X, at=i, layout=())", "loads it in 2 places; needs one"),
    (ODD, AVX512, "", "stage(param=Y, at=i, layout=())", ("its layout is blocked; name the "
                                                         "loops of the copy")),
    (ODD, AVX512, "", "stage(param=Z, at=i, layout=())", "mixes loops inside and outside the copy"),
    (ODD, AVX512, "", "stage(param=V, at=i, layout=())", ("is not about one dimension of the "
                                                         "parameter")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "target", "first", "text", "rule"),
    RULES,
    ids=[f"{r[3]}-{i}" for i, r in enumerate(RULES)],
)
def test_actions_illegal_is_named_and_leaves_the_tree(kernel, target, first, text, rule):
    tree = apply_actions(loop_tree(kernel, target), parse_actions(first))
    printed, copy = str(tree), replace(tree)
    (action,) = parse_actions(text)
    with pytest.raises(IllegalAction, match=re.escape(rule)):
        action.apply(tree)
    with pytest.raises(IllegalAction, match=re.escape(rule)):
        action.check(tree)
    with pytest.raises(IllegalAction, match=re.escape(rule)) as caught:
        apply_actions(tree, (action,))
    message = str(caught.value)
    assert message.startswith(f"{action.name}(")
    assert message.count(f"{action.name}(") == 1, "the action is named twice"
    assert "\n" not in message
    assert (str(tree), tree) == (printed, copy)


def test_actions_all_have_a_rule_here():
    assert {parse_actions(text)[0].name for _, _, _, text, _ in RULES} == set(ACTIONS)


def test_actions_fifth_of_a_list_is_named():
    text = (
        "tile(axis=m, size=4) tile(axis=n, size=16) upcast(axis=m1) vectorize(axis=n1) "
        "upcast(axis=n9)"
    )
    with pytest.raises(IllegalAction, match=r"^upcast\(axis=n9\): no loop 'n9'"):
        apply_actions(loop_tree(GEMM, AVX512), parse_actions(text))
