"""When an output may lie over an input: rules of kernels, of plans, of actions and of renderers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.overwriting_kernels import OVERWRITING, overwriting_kernel
from tests.schedule_fuzzer import TWO, WIDE
from tunegrad.errors import IllegalAction, KernelTextError, VerifyError
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import LaunchPlan, in_place, overwriting, schedule
from tunegrad.ir.kernel import Kernel, Store
from tunegrad.ir.parse_kernel import parse_kernel
from tunegrad.ir.target import Target
from tunegrad.ir.validate import validated
from tunegrad.ir.variants import parts_of, rewrite, variants_of
from tunegrad.ir.verify.kernel import verify_kernel
from tunegrad.opts import Schedule, Space
from tunegrad.render.cuda import render_cuda
from tunegrad.render.llvm import render_llvm
from tunegrad.render.opencl import render_opencl


def _x(name: str, *shape: int) -> Tensor:
    return Tensor.input(name, shape)


def _kernel(y: Tensor) -> Kernel:
    return schedule((y.node,)).launches[-1].kernel


def _plan(*outputs: Tensor, over: dict[int, str]) -> LaunchPlan:
    return in_place(schedule(tuple(t.node for t in outputs)), [*over.items()], 1)


A, B = _x("a", 4, 4), _x("b", 4, 4)


@pytest.mark.parametrize("name", OVERWRITING)
def test_a_kernel_over_its_input_prints_parses_and_is_another_one(name: str):
    k = overwriting_kernel(name)
    verify_kernel(k)
    apart = replace(k, params=tuple(replace(p, over="") for p in k.params))
    assert parse_kernel(k.text) == k
    assert " out over p" in k.text
    assert apart.key != k.key


@pytest.mark.parametrize(
    "y",
    [A + A.T, A.flip(0) + B, (A + B).sum(1), A @ B, A - A.sum(1, keepdim=True), B.T + A[:1]],
    ids=str,
)
def test_a_kernel_that_reads_other_points_must_not_replace_them(y: Tensor):
    kernel = _kernel(y)
    assert overwriting(kernel, "p0", "p1") is None
    marked = tuple(replace(p, over="p1" if p.name == "p0" else "") for p in kernel.params)
    with pytest.raises(VerifyError, match="p0 over p1: "):
        verify_kernel(replace(kernel, params=marked))


def test_a_store_that_replaces_what_a_later_one_reads_is_an_error():
    k = overwriting_kernel("over: adam")
    turned = replace(k, stages=k.stages[::-1])
    with pytest.raises(VerifyError, match=r"reads p. at points or times of its own"):
        verify_kernel(turned)
    free = replace(turned, params=tuple(replace(p, over="") for p in k.params))
    for store in (s for s in k.stages if isinstance(s, Store)):
        over = next(p.over for p in k.params if p.name == store.param)
        made = overwriting(free, store.param, over)
        assert made is not None
        free = made
    verify_kernel(free)
    assert free.stores[0] == k.stores[0], "the store that reads all three inputs goes first"


@pytest.mark.parametrize("text", ["out over p9", "out over p0", "in over p1", "out over"])
def test_a_damaged_text_is_no_kernel(text: str):
    right = overwriting_kernel("over: add").text
    assert right.count("out over p1") == 1
    with pytest.raises(KernelTextError):
        parse_kernel(right.replace("out over p1", text))


def test_readers_of_an_input_run_before_it_is_replaced():
    plan = _plan((A + B).contiguous(), (A @ B).contiguous(), over={0: "a"})
    assert [x.name.split()[0] for x in plan.launches] == ["matmul", "elementwise"]
    assert plan.over == ((plan.outputs[0], plan.inputs[0]),)
    with pytest.raises(VerifyError, match="reads the input after it was replaced"):
        replace(plan, launches=plan.launches[::-1]).verify()
    with pytest.raises(VerifyError, match="reads the input after it was replaced"):
        validated(replace(plan, launches=plan.launches[::-1]))


@pytest.mark.parametrize("pair", [(0, 0), (0, 1), (9, 0), (1, 1)])
def test_a_pair_that_is_no_output_and_input_is_an_error(pair: tuple[int, int]):
    plan = schedule(((A + B).node,))
    with pytest.raises(VerifyError, match="over input"):
        replace(plan, over=(pair,)).verify()


def test_a_kernel_that_is_not_marked_must_not_replace_what_it_reads():
    plan = schedule(((A + B).node,))
    out, a = plan.outputs[0], plan.inputs[0]
    with pytest.raises(VerifyError, match="its kernel must not replace it"):
        replace(plan, over=((out, a),)).verify()


def test_a_new_value_that_can_not_be_written_in_place_is_copied_at_the_end():
    plan = _plan(A + A.T, A @ B, over={0: "a"})
    assert [x.name.split()[0] for x in plan.launches][-1] == "copy"
    assert plan.buffers[plan.launches[-1].args[1]].role == "temp"


@pytest.mark.parametrize(
    ("rows", "columns", "terms", "variant"),
    [(2, 2, 1 << 15, "split64"), (48, 48, 4096, "split_k4")],
)
def test_halves_of_a_sum_write_its_end_over_the_input(
    rows: int, columns: int, terms: int, variant: str
):
    w, x, g = _x("w", rows, columns), _x("x", terms, rows), _x("g", terms, columns)
    plan = _plan(w - x.T @ g * 0.5, over={0: "w"})
    (kernel,) = (k for k, _ in plan.kernels().values())
    found = next(v for v in variants_of(kernel) if v.startswith(variant))
    made = rewrite(plan, {kernel.key: found})
    assert len(made.over) == 1
    assert made.launches[-1].kernel.overwritten
    assert [x.kernel.key for x in made.launches] == [k.key for k in parts_of(kernel, found)]
    assert set(variants_of(kernel)) == set(variants_of(kernel.apart))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stage(param=p3, at=(), layout=())", "p0 may lie over it"),
        ("reorder(order=(ra, a, b))", "would replace p3, over which it may lie"),
    ],
)
def test_an_action_that_breaks_a_write_in_place_is_illegal(text: str, words: str):
    space = Space(overwriting_kernel("over: gemm square"), TWO)
    assert space.kernel.overwritten == {"p3": "p0"}
    with pytest.raises(IllegalAction, match=words):
        space.tree(Schedule.parse(text))
    free = replace(space.kernel, params=tuple(replace(p, over="") for p in space.kernel.params))
    Space(free, TWO).tree(Schedule.parse(text))


def test_pointers_of_a_pair_may_be_one_in_the_text():
    kernel = overwriting_kernel("over: gemm square")
    assert kernel.overwritten == {"p3": "p0"}
    program = Space(kernel, TWO).lower(Schedule(()))
    alone = [False, True, True, False]
    for text, word in (
        (render_llvm(program), "noalias"),
        (render_opencl(program), "restrict"),
        (render_cuda(program), "__restrict__"),
    ):
        head = next(x for x in text.splitlines() if x.count(word) == sum(alone))
        assert [word in p for p in head.split("(", 1)[1].split(",")[:4]] == alone


def test_a_large_output_over_its_input_is_not_stored_past_the_caches_by_default():
    a, b = _x("a", 1 << 22), _x("b", 1 << 22)
    (apart,) = schedule(((a + b).node,)).launches
    over = overwriting(apart.kernel, "p0", "p1")
    assert over is not None
    target = TWO
    assert "stream" in Space(apart.kernel, target).defaults()[0].text
    assert "stream" not in Space(over, target).defaults()[0].text


@pytest.mark.parametrize("target", [WIDE, replace(WIDE, threads=1)], ids=["two", "one"])
@pytest.mark.parametrize("rows", [512, 1024, 4096])
@pytest.mark.parametrize("what", ["columns", "product", "scaled product"])
def test_default_of_a_long_sum_over_its_input_keeps_no_partial_sums(
    what: str, rows: int, target: Target
):
    """They would replace the input, which is read at the end."""
    x, y = _x("x", rows, 256), _x("y", rows, 96)
    long = x.sum(0) if what == "columns" else (x * 2 * x if "scaled" in what else x).T @ y
    old = _x("old", *long.shape)
    (launch,) = _plan(0.9 * old + long, over={0: "old"}).launches[-1:]
    space = Space(launch.kernel, target)
    assert launch.kernel.overwritten
    space.tree(space.defaults()[0])


def test_new_values_of_many_inputs_are_verified_in_time_of_their_number(
    monkeypatch: pytest.MonkeyPatch,
):
    plans = []
    for count in (8, 64):
        given = [Tensor.input(f"w{i}", (3,)) for i in range(count)]
        made = schedule(tuple((w * w.sum()).node for w in given))
        plans.append(in_place(made, [(i, f"w{i}") for i in range(count)], 64))
    asked: list[int] = []
    memory = LaunchPlan.memory
    monkeypatch.setattr(LaunchPlan, "memory", lambda p, i: (asked.append(i), memory(p, i))[1])
    counts = []
    for plan in plans:
        asked.clear()
        plan.verify()
        counts.append(len(asked))
    assert counts[1] <= 8 * counts[0]
