"""Attention as one kernel: where it is recognised, what its kernel says, and that all agree."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from kernel_corpus import corpus_kernel

from benchmarks.hand_schedules import AVX512
from tests.graph_builders import run_schedule
from tests.schedule_checks import assert_agrees
from tunegrad.errors import IllegalAction, VerifyError
from tunegrad.frontend import Tensor, functional
from tunegrad.ir.dtypes import BF16, F16, F32, DType
from tunegrad.ir.expr import Apply, Load, Op, Value
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import ATTENTION, Alternatives, Fusion, is_attention
from tunegrad.ir.index import element
from tunegrad.ir.interpret.kernel import interpret, interpret_at
from tunegrad.ir.kernel import Axis, Kernel, Param, Reduce, Store
from tunegrad.ir.looptree import loop_tree
from tunegrad.ir.parse_kernel import parse_kernel
from tunegrad.ir.rewrites import narrowed
from tunegrad.ir.target import Target
from tunegrad.ir.verify.kernel import verify_kernel
from tunegrad.opts import Schedule, Space, apply_actions, parse_actions
from tunegrad.planning import expected_attentions

CPU = Target("cpu", "cpu", "x86-64", vector_bytes=16, registers=16, threads=2)
GPU = Target("gpu", "gpu", "", vector_bytes=16, registers=64, shared_bytes=32 << 10, max_local=64)

TEXT = """\
kernel
  param p0 f32[2,9,5] out row
  param p1 f32[2,9,6] in row
  param p2 f32[2,13,6] in row
  param p3 f32[2,13,5] in row
  axis a:2 b:9
  v0[ra] = add over ra:13 rb:6 in f32: mul(p1[a, b, rb], p2[a, ra, rb])
  v1 = max over rc:13 in f32: mul(v0[rc], 0.40824830532073975:f32)
  v2 = add over rd:13 in f32: exp(sub(mul(v0[rd], 0.40824830532073975:f32), v1))
  v3[re] = add over re:5 rf:13 in f32: \
mul(exp(sub(mul(v0[rf], 0.40824830532073975:f32), v1)), p3[a, rf, re])
  store p0[a, b, sa] over sa:5 = mul(v3[sa], recip(v2))"""


def tensors(*shapes: tuple[int, ...], dtype: str = "f32") -> list[Tensor]:
    return [Tensor.input(n, s, dtype) for n, s in zip("qkv", shapes, strict=True)]


def heads(q: int = 9, kv: int = 13, d: int = 6, e: int = 5, **more: object) -> Tensor:
    return functional.scaled_dot_product_attention(
        *tensors((2, 3, q, d), (2, 3, kv, d), (2, 3, kv, e)), **more
    )


def masked() -> Tensor:
    """By a mask of bools that is an input, whose last row lets nothing through."""
    mask = Tensor.input("mask", (9, 13), "bool")
    return heads(attn_mask=mask)


def biased() -> Tensor:
    return heads(attn_mask=Tensor.input("bias", (3, 9, 13)))


def grouped() -> Tensor:
    """Two queries' heads for each head of keys and values."""
    return functional.scaled_dot_product_attention(
        *tensors((2, 4, 7, 6), (2, 2, 11, 6), (2, 2, 11, 6)), enable_gqa=True
    )


def fused_projection() -> Tensor:
    """Queries, keys and values from one product, as ViT and GPT have them; heads last in memory."""
    x = Tensor.input("qkv", (1, 10, 3 * 2 * 6))
    q, k, v = (x.reshape(1, 10, 3, 2, 6)[:, :, i].transpose(1, 2) for i in range(3))
    y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.transpose(1, 2).reshape(1, 10, 12)


def divided() -> Tensor:
    """A softmax that divides, written by hand."""
    q, k, v = tensors((2, 9, 6), (2, 13, 6), (2, 13, 5))
    s = q @ k.transpose(1, 2)
    p = (s - s.amax(-1, True)).exp()
    return (p / p.sum(-1, True)) @ v


GRAPHS: dict[str, Callable[[], Tensor]] = {
    "plain": heads,
    "causal": lambda: heads(11, 11, is_causal=True),
    "masked": masked,
    "biased": biased,
    "grouped": grouped,
    "fused projection": fused_projection,
    "divided": divided,
    "one query": lambda: heads(1, 17),
    "one head": lambda: functional.scaled_dot_product_attention(*tensors((9, 4), (9, 4), (9, 4))),
    "halves": lambda: functional.scaled_dot_product_attention(
        *tensors((2, 9, 6), (2, 13, 6), (2, 13, 5), dtype="f16")
    ),
}


def inputs_of(fusion: Fusion, seed: int = 3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    made = {}
    for b in fusion.schedule().buffers:
        if b.role == "input":
            x = rng.standard_normal(b.shape)
            made[b.name] = x > -0.5 if b.dtype.is_bool else x.astype(b.dtype.numpy)
    if "mask" in made:
        made["mask"][-1] = False
    return made


def both(y: Tensor) -> tuple[Fusion, Fusion]:
    """A graph as the rules cut it, and with its attention as one kernel."""
    fusion = Fusion.of(fold_constants((y.node,)))
    return fusion, fusion.toggled({*fusion.drafts.attentions()})


def test_attention_is_a_row_of_scores_its_maximum_sum_and_weighted_sums() -> None:
    assert corpus_kernel("attention").text == TEXT
    assert parse_kernel(TEXT).text == TEXT
    assert corpus_kernel("attention").name == "attention 2x9x13x6x5"


@pytest.mark.parametrize("name", GRAPHS)
def test_attention_gives_what_three_kernels_give(name: str) -> None:
    three, one = both(GRAPHS[name]())
    kernels = [x.kernel for x in one.schedule().launches]
    assert sum(map(is_attention, kernels)) == 1
    assert len(kernels) == len(three.schedule().launches) - 2
    for k in kernels:
        verify_kernel(k)
        assert parse_kernel(k.text).text == k.text
    inputs = inputs_of(three)
    want, got = run_schedule(three.schedule(), inputs), run_schedule(one.schedule(), inputs)
    tolerance = 2e-3 if name == "halves" else 1e-5
    np.testing.assert_allclose(got[0], want[0], rtol=tolerance, atol=tolerance)
    if name == "masked":
        assert not got[0][..., -1, :].any(), "a query that sees no key gives zeros"
        assert got[0][..., :-1, :].all()


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_attention_of_a_model_in_16_bits_rounds_what_three_kernels_store(dtype: DType) -> None:
    three = Fusion.of(narrowed(fold_constants((heads().node,)), dtype))
    one = three.toggled({*three.drafts.attentions()})
    (kernel,) = (x.kernel for x in one.schedule().launches)
    assert is_attention(kernel)
    assert kernel.text.count(f"f32({dtype}(") == 4
    inputs = inputs_of(three)
    (want,), (got,) = (run_schedule(f.schedule(), inputs) for f in (three, one))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    for target in (CPU, GPU):
        space = Space(kernel, target)
        assert_agrees(kernel, space.lower(space.defaults()[0]), target.name)


def test_attention_of_infinite_scores_is_nan_where_three_kernels_give_nan() -> None:
    three, one = both(heads())
    inputs = inputs_of(three)
    inputs["q"][0, 0, 2], inputs["k"][1, 1, 4, 0], inputs["v"][0, 2, 5, 1] = np.inf, np.nan, np.inf
    (want,) = run_schedule(three.schedule(), inputs)
    (got,) = run_schedule(one.schedule(), inputs)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert np.isnan(got).any()
    assert np.isinf(got).any()


def test_the_references_of_attention_agree() -> None:
    """All points at once, some points, and both precisions: products are multiplied otherwise."""
    for name in ("attention", "attention_causal", "attention_one_query"):
        k = corpus_kernel(name)
        rng = np.random.default_rng(1)
        given = {p.name: rng.standard_normal(p.size).astype(np.float32) for p in k.params}
        wide, narrow = interpret(k, given, as_float64=True), interpret(k, given)
        np.testing.assert_allclose(narrow["p0"], wide["p0"], rtol=1e-4, atol=1e-5)
        points = {a.name: np.array([0, a.extent - 1]) for a in k.axes}
        offsets, values = interpret_at(k, given, points, as_float64=True)["p0"]
        np.testing.assert_allclose(values, wide["p0"][offsets], rtol=1e-12)


def test_attention_keeps_scores_that_are_needed() -> None:
    q, k, v = tensors((2, 9, 6), (2, 13, 6), (2, 13, 5))
    scores = q @ k.transpose(1, 2)
    p = scores.softmax(-1)
    for outputs in ((p @ v, p), (p @ v, scores), (p @ v, p @ (v * 2.0))):
        fusion = Fusion.of(fold_constants(tuple(t.node for t in outputs)))
        assert not fusion.drafts.attentions()
    fenced = Fusion.of(fold_constants(((p.contiguous() @ v).node,)))
    assert not fenced.drafts.attentions()


def test_a_toggle_that_ends_no_attention_is_void() -> None:
    fusion = Fusion.of(fold_constants((heads().node,)))
    count = len(fusion.drafts.order)  # places from twice that on are of siblings
    places = [*range(count, 2 * count), *range(3 * count, 3 * count + 5)]
    (right,) = fusion.drafts.attentions()
    for place in places:
        assert (fusion.toggled({place}) is fusion) == (place != right)


def test_attention_is_one_edge_for_all_layers() -> None:
    x = Tensor.input("x", (2, 3, 12, 6))
    for _ in range(3):
        x = functional.scaled_dot_product_attention(x, x, x)
    fusion = Fusion.of(fold_constants((x.node,)))
    found = [e for e in Alternatives(fusion).edges() if e.name == ATTENTION]
    assert [len(e.places) for e in found] == [3]
    made = Alternatives(fusion).alternative(found[0])
    assert made is not None
    assert [len(made.before), len(made.after)] == [3, 1]


def test_attention_is_expected_where_its_scores_do_not_fit_the_last_cache() -> None:
    fusion = Fusion.of(fold_constants((heads(64, 64).node,)))
    nbytes = 6 * 64 * 64 * 4
    small = replace(CPU, l2_bytes=1 << 16, l3_bytes=nbytes - 1, l3_share_bytes=nbytes - 1)
    assert expected_attentions(fusion, small) == {*fusion.drafts.attentions()}
    assert not expected_attentions(fusion, replace(small, l3_bytes=nbytes, l3_share_bytes=nbytes))
    assert not expected_attentions(fusion, replace(small, l2_bytes=2048))
    assert not expected_attentions(fusion, replace(small, max_local=64))
    halves = Fusion.of(narrowed(fold_constants((heads(64, 64).node,)), BF16))
    assert halves.drafts.attentions()
    assert not expected_attentions(halves, small)


@pytest.mark.parametrize("target", [CPU, replace(AVX512, threads=3), GPU], ids=lambda t: t.name)
@pytest.mark.parametrize("name", ["attention", "attention_causal", "attention_one_query"])
def test_default_schedules_of_attention_agree(name: str, target: Target) -> None:
    space = Space(corpus_kernel(name), target)
    schedule = space.defaults()[0]
    assert_agrees(space.kernel, space.lower(schedule), schedule.text)
    assert Schedule.parse(schedule.text).text == schedule.text


def test_the_default_has_queries_in_the_lanes_and_exponentials_kept() -> None:
    space = Space(corpus_kernel("attention_causal"), CPU)
    tree = space.tree(space.defaults()[0])
    lanes = [tree.lane_loop(i) for i in range(len(tree.kernel.stages))]
    assert {x.axes for x in lanes if x is not None} == {("b",)}
    assert tree.kept == (2,)
    assert "v0[ra] = identity" in str(tree)


# ---- what is refused


def test_loops_of_a_row_stand_around_what_is_folded() -> None:
    tree = loop_tree(corpus_kernel("attention"), CPU)
    with pytest.raises(IllegalAction, match="loop ra of row v0 stands inside rb, which folds"):
        apply_actions(tree, parse_actions("reorder(order=(rb, ra))"))


def test_work_items_do_not_share_the_sums_of_a_row() -> None:
    tree = loop_tree(corpus_kernel("attention"), GPU)
    with pytest.raises(IllegalAction, match="loop rb of row v0 is folded: work-items share the"):
        apply_actions(tree, parse_actions("group(axis=rb)"))


def test_a_row_has_to_fit_scratch() -> None:
    tree = loop_tree(corpus_kernel("attention"), replace(GPU, shared_bytes=13 * 4 * 9 - 1))
    with pytest.raises(IllegalAction, match=r"row v0 .*468 bytes of scratch exceed 467"):
        apply_actions(tree, parse_actions("local(axis=b)"))


def test_an_axis_of_a_row_is_not_fused_with_one_that_is_folded() -> None:
    tree = loop_tree(corpus_kernel("attention"), CPU)
    with pytest.raises(IllegalAction, match="needs two serial loops of one stage"):
        apply_actions(tree, parse_actions("fuse(outer=ra, inner=rb)"))


def rows(value: Value, rows: int = 1) -> Kernel:
    """A row of sums of X, of which one element is stored."""
    a, j, k, e = Axis("a", 4), Axis("j", 5), Axis("k", 3), Axis("e", 5)
    params = (
        Param.dense("Y", F32, (4, 5), "out"), Param.dense("X", F32, (4, 5, 3), "in"),
    )  # fmt: skip
    row = Reduce("v", Op.ADD, (j, k), Load("X", (a.index, j.index, k.index), F32), F32, rows)
    return Kernel(params, (a,), (row, Store("Y", (a.index, e.index), value, (e,))), "rows")


E = Axis("e", 5).index


def test_a_kernel_with_a_row_is_sound() -> None:
    verify_kernel(rows(Value("v", F32, (E,))))


@pytest.mark.parametrize(
    ("kernel", "rule"),
    [
        (rows(Value("v", F32)), "v: 0 indices of a row of 1 axes"),
        (rows(Value("v", F32, (E, E))), "v[e, e]: 2 indices of a row of 1 axes"),
        (rows(Value("v", F32, (E + 1,))), "v[e+1]: index e+1 leaves [0, 5)"),
        (rows(Value("v", F32, (Axis("z", 5).index,))), "z in [0, 4] is not an axis of this stage"),
        (rows(Value("v", F32, (E,)), 2), "v: a row over 2 of its 2 axes leaves none to fold"),
        (
            rows(Value("v", F32, (element("X", E, 60, 5),))),
            "X is not an input of integers",
        ),
    ],
)  # fmt: skip
def test_kernel_verifier_refuses_a_row(kernel: Kernel, rule: str) -> None:
    with pytest.raises(VerifyError, match=re.escape(rule)):
        verify_kernel(kernel)


def test_sums_that_are_no_products_of_rows_run_as_well() -> None:
    """The form is not about attention: rows of sums, read in another order."""
    k = rows(Value("v", F32, (4 - E,))).canonical()
    x = np.arange(60, dtype=np.float32)
    want = x.reshape(4, 5, 3).sum(2)[:, ::-1]
    np.testing.assert_array_equal(interpret(k, {"p1": x})["p0"].reshape(4, 5), want)
    for target in (CPU, GPU):
        space = Space(k, target)
        assert_agrees(k, space.lower(space.defaults()[0]), target.name)


def test_products_of_a_row_count_as_they_are_folded() -> None:
    k = corpus_kernel("attention")
    rows, products, sums = 2 * 9 * 13, 2 * 9 * 13 * 6, 2 * 9 * 13 * 5
    folds = products + rows + rows + sums
    terms = products + rows + 3 * rows + (3 * rows + sums)
    assert k.flops == folds + terms + 2 * 9 * 5 * 2
    assert math.isclose(k.unique_bytes, 4 * 2 * (9 * 6 + 13 * 6 + 13 * 5 + 9 * 5))
    assert isinstance(k.stages[3].expr, Apply)
