"""What rewrites make of a graph before it is planned is compared with it: right ones are taken,
and faults that are planted in them are seen.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from quad_builders import VNNI

import tests.rewrite_graph_laws as laws
from tests.graph_fuzzer import random_graph
from tests.rewrite_faults import FAULTS, Fault, planted
from tunegrad.errors import DTypeError, InternalError, ShapeError, WrongPlan
from tunegrad.frontend import Tensor
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import BOOL, F16, F32
from tunegrad.ir.expr import Op
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import Fusion
from tunegrad.ir.graph import GraphOp, Node, Step
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.rewrites import joined_scales, quad_dots, single_scales, whole_biases
from tunegrad.ir.validate import check_rewrite
from tunegrad.ir.validate.rewrites import _common
from tunegrad.opts import run_passes
from tunegrad.pipeline import GRAPH_PASSES, GraphContext, Rewritten

LAWS = (
    "folding of maps", "folding of shapes", "folding of parts", "repeated", "pairs", "quads",
    "dequantised",
    "tf32",
    "scales",
    "biases",
)  # fmt: skip

UNSEEN = {
    "sums that round are folded": "a rounding",
    "an f32 input is rounded unasked": "a rounding",
}
"""Faults of what the field does not tell apart; the laws of the rules see them."""

SEEN = [
    f
    for f in FAULTS
    if f.law in LAWS and not f.function.startswith("fusion.") and f.name not in UNSEEN
]


def _drawn(monkeypatch: pytest.MonkeyPatch, law: str, case: int) -> int:
    """Compare what one run of a law rewrites; return how much that was."""
    compared = 0

    def kept(rule: str, before: Node, after: Node, inputs: object, **_: object) -> None:
        nonlocal compared
        compared += before is not after
        assert not check_rewrite((before,), (after,), (), on_purpose=law in ("pairs", "tf32"))

    def folded(outputs: tuple[Node, ...]) -> tuple[Node, ...]:
        nonlocal compared
        steps: list[Step] = []
        made = fold_constants(outputs, steps)
        compared += made != outputs
        assert not check_rewrite(outputs, made, steps)
        return made

    with monkeypatch.context() as m:
        m.setattr(laws, "fold_constants", folded)
        m.setattr(laws, "kept", kept)
        m.setattr(laws, "same", lambda *_: True)
        laws.GRAPH_LAWS[law](random.Random(f"validated {law} {case}"))
    return compared


@pytest.mark.parametrize("law", LAWS)
def test_right_rewrites_are_taken(monkeypatch: pytest.MonkeyPatch, law: str) -> None:
    assert _drawn(monkeypatch, law, 0)


@pytest.mark.parametrize("fault", SEEN, ids=lambda f: f.name)
def test_faults_in_rewrites_are_seen(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    with planted(fault):
        for case in range(3):
            try:
                _drawn(monkeypatch, fault.law, case)
            except (WrongPlan, ShapeError, DTypeError, InternalError):  # or no graph comes of it
                return
    pytest.fail("none was refused")


@pytest.mark.parametrize("case", ["known scales", "a zero point", "computed scales"])
def test_a_sum_of_bytes_that_wraps_around_is_seen(case: str) -> None:
    """The rule's own bound is the only other thing that keeps it from that."""
    doubled = Fault(
        "sums of twice what 31 bits hold", "rewrites.packed_dots:_dequantised_sum",
        "> I32.greatest", "> 2 * I32.greatest", "",
    )  # fmt: skip

    def product(terms: int) -> tuple[Node, ...]:
        if case == "computed scales":  # these are read first, and are no bytes
            scales = (Tensor.input(name, (), "f32") for name in "st")
            x = Tensor.input("x", (3, terms), "i8").cast("f32")
            y = Tensor.input("y", (terms, 3), "u8").cast("f32")
            return (((x * next(scales)) @ (y * next(scales))).node,)
        x = Tensor.input("x", (3, terms), "u8").cast("f32")
        if case == "a zero point":
            x = x - Tensor.constant(np.array(7, np.uint8)).cast("f32")
        y = Tensor.input("y", (terms, 3), "i8").cast("f32")
        return (((x * 0.5) @ (y * 0.25)).node,)

    def rewritten(before: tuple[Node, ...]) -> tuple[tuple[Node, ...], list[Step]]:
        steps: list[Step] = []
        after = quad_dots(before, VNNI, steps, floats=True)
        assert after != before
        return after, steps

    held, wraps = product(65_000), product(100_000)
    assert not check_rewrite(held, *rewritten(held))
    assert quad_dots(wraps, VNNI, floats=True) == wraps
    with planted(doubled), pytest.raises(WrongPlan, match="is not what it was rewritten to"):
        check_rewrite(wraps, *rewritten(wraps))


def test_a_wrong_bias_of_one_channel_in_many_is_seen() -> None:
    channels, drawn = 900, np.random.default_rng(0)
    scales = drawn.uniform(0.001, 0.003, channels).astype(np.float32)
    biases = Tensor.constant(drawn.integers(-999, 999, channels, np.int32)).cast("f32")
    x = Tensor.input("x", (3, 16), "u8").cast("f32") * 0.02
    w = Tensor.constant(drawn.integers(-99, 99, (16, channels), np.int8)).cast("f32")
    y = x @ (w * Tensor.constant(scales)) + biases * Tensor.constant(scales * np.float32(0.02))
    given = ((y / 0.05).node,)

    def passed() -> tuple[Node, ...]:
        return run_passes(GRAPH_PASSES, Rewritten(given), GraphContext(given, VNNI)).outputs

    joined = joined_scales(quad_dots(given, VNNI, floats=True))
    assert whole_biases(single_scales(joined)) != single_scales(joined)
    assert passed()
    line = "kind = I32 if whole else F32"
    for channel in (0, 137, 450, channels - 1):
        more = f"(np.arange(added.size) == {channel}).reshape(added.shape)"
        wrong = f"{line}\n    added = added + {more}"
        fault = Fault("a wrong bias", "rewrites.scales:_whole_bias", line, wrong, "")
        with planted(fault), pytest.raises(WrongPlan, match="is not what it was rewritten to"):
            passed()


def test_a_sum_of_integers_that_stays_excuses_no_wrong_rounding() -> None:
    """Sums of floats are compared without roundings if they became sums of integers, not if they
    only read one.
    """
    x, n = Tensor.input("x", (8, 16)).node, Tensor.input("n", (8, 16), "i32").node
    total = g.expand(g.cast(g.reduce(Op.ADD, n, (1,)), F32), x.shape)

    def summed(y: Node) -> Node:
        return g.reduce(Op.ADD, g.elementwise(Op.MUL, y, total), (1,))

    before, after = summed(g.cast(g.cast(x, F16), F32)), summed(x)
    with pytest.raises(WrongPlan, match="is not what it was rewritten to"):
        check_rewrite((before,), (after,), ())


def _first_of(n: Node) -> Node:
    """The first row in place of all."""
    return g.expand(g.shrink(n, ((0, 1), *((0, s) for s in n.shape[1:]))), n.shape)


def _less_greatest(x: Node) -> Node:
    greatest = g.expand(g.reduce(Op.MAX, x, (1,)), x.shape)
    return g.elementwise(Op.SUB, x, greatest)


def test_a_reduction_of_rows_that_repeat_repeats() -> None:
    for op in (Op.MAX, Op.MIN, Op.ADD):
        row = g.elementwise(Op.TANH, g.graph_input("x", (1, 5), F32))
        total = g.reduce(op, _less_greatest(g.expand(row, (3, 5))), (1,))
        outer = g.elementwise(Op.EXP, total)
        assert not check_rewrite((outer,), (_first_of(outer),), ())


@pytest.mark.parametrize("op", [Op.MAX, Op.MIN, Op.ADD])
def test_a_reduction_of_rows_that_differ_does_not_repeat(op: Op) -> None:
    """Rows of which one term in many is another, which seldom is the greatest."""
    x, row = g.graph_input("x", (3, 1), F32), g.graph_input("row", (1, 999), F32)
    rows = g.elementwise(
        Op.ADD, g.pad(x, ((0, 0), (500, 499))), g.pad(g.expand(row, (3, 999)), ((0, 0), (1, 0)))
    )
    total = g.reduce(op, _less_greatest(rows), (1,))
    for n in (total, g.reduce(op, rows, (1,))):
        outer = g.elementwise(Op.EXP, n)
        with pytest.raises(WrongPlan, match="is not what it was rewritten to"):
            check_rewrite((outer,), (_first_of(outer),), ())


def test_what_is_stored_once_below_a_greatest_is_validated() -> None:
    """A drawn graph whose plan was refused."""
    outputs = random_graph(random.Random("more 314"), 40)
    drafts = Fusion.of(outputs).drafts
    assert not check_rewrite(outputs, drafts.targets, drafts.steps)


def test_a_choice_of_a_literal_of_f16_is_that_literal() -> None:
    """An operation rounds what it gives, and a literal has all its digits until it is stored."""
    x, literal = g.graph_input("x", (3,), F16), g.full(0.37, (3,), F16)
    for which in (True, False):
        some = (literal, x) if which else (x, literal)
        chosen = g.elementwise(Op.WHERE, g.full(which, (3,), BOOL), *some)
        assert not check_rewrite((chosen,), (literal,), ())
        with pytest.raises(WrongPlan, match="is not what it was rewritten to"):
            check_rewrite((chosen,), (g.full(0.371, (3,), F16),), ())


def test_every_element_of_a_folded_constant_is_compared_and_some_of_a_large_one() -> None:
    """As the scales of a batch norm, and the weights that are multiplied by them."""
    rng = np.random.default_rng(0)
    variance, gamma = (g.const(rng.random(400).astype(np.float32) + 1, F32) for _ in range(2))
    root = g.elementwise(Op.SQRT, g.elementwise(Op.ADD, variance, g.full(1e-5, (400,), F32)))
    scale = g.elementwise(Op.DIV, gamma, root)
    weights = g.const(rng.random((400, 27)).astype(np.float32), F32)
    rows = g.expand(g.reshape(scale, (400, 1)), (400, 27))
    product = g.elementwise(Op.MUL, weights, rows)
    for made, wrong in ((scale, [(n,) for n in range(400)]), (product, [slice(None, None, 9)])):
        (folded,) = fold_constants((made,))
        assert not check_rewrite((made,), (folded,), ())
        (value,) = evaluate((made,))
        for at in wrong:
            other = value.copy()
            other[at] = np.nextafter(value[at], np.float32(9))
            with pytest.raises(WrongPlan, match="is not what it was rewritten to"):
                check_rewrite((made,), (g.const(other, F32),), ())


def test_a_sum_below_another_one_is_not_worked_out() -> None:
    """Both were opened where one side alone has the upper one, and so all below: one rewritten node
    of an unrolled recurrent network in bytes took minutes.
    """
    lower = Tensor.input("x", (4, 2, 8)).sum(-1)
    terms = lower * 2.0
    made, image = terms.sum(1).sin(), (terms[:, 0] + terms[:, 1]).sin()
    opaque, cone = _common(made.node, image.node, {}, set())
    assert [n.op for n in opaque] == [GraphOp.REDUCE]
    assert all(n.op is not GraphOp.INPUT for n in cone)
