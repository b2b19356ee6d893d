"""Copies that run ahead: what a pipeline becomes, that it computes the same, and that a damaged one
is found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from textwrap import dedent

import numpy as np
import pytest

from benchmarks.hand_schedules import AHEAD, GPU, gemm
from tests.banks import turns
from tests.gpu_hand import gemm as half_gemm
from tests.interpreter import interpret
from tests.verifiers.program import verify_program
from tunegrad.errors import IllegalAction, VerifyError
from tunegrad.ir.dtypes import F32
from tunegrad.ir.index import Range, Valid, as_index, var
from tunegrad.ir.interpret.numeric import to_compute, to_memory
from tunegrad.ir.pipelines import expand_pipelines
from tunegrad.ir.program import (
    Alloc,
    Await,
    Barrier,
    Buffer,
    Commit,
    CopyAsync,
    For,
    If,
    Instr,
    Load,
    MatLoad,
    Pipeline,
    Program,
    Store,
    VType,
    walk,
)
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule, Space
from tunegrad.render.cuda import render_cuda

PLAIN = (
    "tile(axis=k, size=8) tile(axis=m, size=8) tile(axis=n, size=8) "
    "reorder(order=(m0, n0, m1, n1, k0, k1)) thread(axis=m0, count=0) thread(axis=n0, count=0) "
    "local(axis=m1) local(axis=n1) stage(param=A, at=k0, layout=(m1, k1)) "
    "stage(param=B, at=k0, layout=(k1, n1))"
)
UNIT = "m16n8k16_f16_f32"
HALVES = (
    "tile(axis=a, size=32) tile(axis=a1, size=16) tile(axis=b, size=32) tile(axis=b1, size=16) "
    "tile(axis=b2, size=8) tile(axis=ra, size=32) tile(axis=ra1, size=16) "
    "reorder(order=(a0, b0, a1, b1, ra0, ra1, b2, a2, b3, ra2)) "
    "thread(axis=a0, count=0) thread(axis=b0, count=0) local(axis=a1) local(axis=b1) "
    f"upcast(axis=b2) unroll(axis=ra1) tensorcore(unit={UNIT}, m=a2, n=b3, k=ra2) "
    "stage(param=p1, at=ra0, layout=(a1, a2, a3, ra1, ra2)) "
    "stage(param=p2, at=ra0, layout=(ra1, ra2, b1, b2, b3, b4))"
)


def lowered(kernel, target: Target, text: str) -> Program:
    program = Space(kernel, target).lower(Schedule.parse(text))
    assert verify_program(program, target) == ()
    return program


def product(program: Program, m: int, n: int, k: int, dtype: str = "f32"):
    """What the program gives, and what numpy does."""
    rng = np.random.default_rng(0)
    out, a, b = program.params[:3]
    left, right = (to_memory(rng.standard_normal(s), a.dtype) for s in (m * k, k * n))
    made = {out.name: np.zeros(m * n, np.float32), a.name: left, b.name: right}
    interpret(program, made)
    x, y = (to_compute(v, a.dtype).astype(np.float64) for v in (left, right))
    return made[out.name].reshape(m, n), x.reshape(m, k) @ y.reshape(k, n)


# ---- what it becomes


def small() -> Program:
    """``y[i] = sum over k of x[4*k + i]``, four items, which copy what they read."""
    k, i, v = var("k", 3), var("i", 4), var("v", 4)
    one = VType(F32)
    copies = (CopyAsync("s", v, "x", k * 4 + v, VType(F32, 4), "v"),)
    body = (Load(1, "s", i, one), Store("y", k * 4 + i, 1, one))
    inner = Pipeline("k", 3, 2, copies, body)
    local = For("i", 4, (as_index(4),), (inner,), "local", 4)
    params = (Buffer("x", F32, 12, "in"), Buffer("y", F32, 12, "out"))
    return Program("small", params, (Alloc("s", F32, 4, "shared"),), (), (local,), 1, 4)


def test_pipeline_becomes_a_loop_whose_copies_are_ahead():
    want = """
        program threads=1 local=4
          in x f32[12]
          out y f32[12]
          alloc s f32[8] shared
          for i in 4 local(4,1):
            async s[v] = x[v] f32x4 lane v
            commit
            for k in 3:
              await 0
              barrier
              if 0<=k<2:
                async s[4*(k+1)%2+v] = x[4*k+v+4] f32x4 lane v
              commit
              %1 = s[4*(k)%2+i] f32
              y[i+4*k] = %1 f32
    """
    assert expand_pipelines(small()).text == dedent(want).strip("\n")


def test_pipeline_is_in_the_text_and_in_the_hash_of_a_program():
    more = replace(small().body[0].body[0], slots=3)
    other = replace(small(), body=(replace(small().body[0], body=(more,)),))
    assert "pipeline k in 3 slots 2:" in small().text
    assert other.hash != small().hash


def test_program_without_a_pipeline_is_what_it_was():
    program = lowered(gemm(16, 16, 16), GPU, PLAIN)
    assert expand_pipelines(program) is program


# ---- that it computes the same


@pytest.mark.parametrize("slots", [2, 3, 4, 8])
@pytest.mark.parametrize("target", [GPU, AHEAD], ids=["GPU", "AHEAD"])
def test_pipelined_product_is_that_of_numpy(target, slots):
    program = lowered(gemm(16, 24, 64), target, f"{PLAIN} pipeline(loop=k0, slots={slots})")
    awaits = [i for i in walk(expand_pipelines(program).body) if isinstance(i, Await)]
    assert len(awaits) == (target is AHEAD), "copies are asynchronous where the target has them"
    got, want = product(program, 16, 24, 64)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("slots", [2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_pipelined_product_by_a_matrix_unit_is_that_of_numpy(transposed, slots):
    kernel = half_gemm(64, 32, 128)
    program = lowered(kernel, AHEAD, f"{HALVES} pipeline(loop=ra0, slots={slots})")
    got, want = product(program, 64, 32, 128)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_long_sum_in_a_pipeline_is_cut_into_blocks():
    text = PLAIN.replace("axis=k, size=8", "axis=k, size=16")
    program = lowered(gemm(8, 8, 16384), GPU, f"{text} pipeline(loop=k0, slots=2)")
    assert any(isinstance(i, If) and "k0" in str(i.valid) for i in walk(program.body))
    assert ".wide" in program.text
    got, want = product(program, 8, 8, 16384)
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-3)


def test_constant_that_was_packed_is_staged_again():
    """From the pack, in its order: one row of 16 bytes after the other."""
    kernel = half_gemm(64, 32, 128)
    a, b = kernel.params[1:]
    kernel = replace(kernel, params=(kernel.params[0], a, replace(b, role="const")))
    packed = "stage(param=p2, at=load, layout=(ra0, b0, b1, b2, b3, b4, ra1, ra2)) stage(param=p1"
    text = HALVES.replace("stage(param=p1", packed, 1).replace(
        "layout=(ra1, ra2, b1, b2, b3, b4)", "layout=(b1, b2, b3, b4, ra1, ra2)"
    )
    program = lowered(kernel, AHEAD, f"{text} pipeline(loop=ra0, slots=3)")
    copies = [i for i in walk(program.body) if isinstance(i, CopyAsync)]
    assert {(i.source, i.vtype.lanes) for i in copies} == {("p1", 8), ("p2.load", 8)}
    got, want = product(program, 64, 32, 128)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    with pytest.raises(IllegalAction, match="it is packed at load; name the loops"):
        Space(kernel, AHEAD).tree(
            Schedule.parse(text.replace("layout=(b1, b2, b3, b4, ra1, ra2)", "layout=()"))
        )


@pytest.mark.parametrize("slots", [1, 4])
def test_staged_rows_of_halves_have_no_bank_conflict(slots):
    more = f" pipeline(loop=ra0, slots={slots})" if slots > 1 else ""
    found = turns(lowered(half_gemm(64, 64, 128), AHEAD, HALVES + more))
    kinds = {"matrices", "copy" if slots > 1 else "store"}
    assert {kind for kind, _ in found} == kinds
    assert set(found.values()) == {1}, found


def test_rows_without_their_swizzle_have_conflicts():
    program = lowered(half_gemm(64, 64, 128), AHEAD, f"{HALVES} pipeline(loop=ra0, slots=4)")
    plain = replace(program, allocs=tuple(replace(a, swizzled=0) for a in program.allocs))
    assert max(turns(plain).values()) > 1


# ---- that a damaged one is found


def edited(program: Program, change: Callable[[Instr], tuple[Instr, ...]]) -> Program:
    """The expanded program with every instruction replaced by those that ``change`` gives."""

    def block(body: tuple[Instr, ...]) -> tuple[Instr, ...]:
        made: list[Instr] = []
        for i in body:
            if isinstance(i, For):
                i = replace(i, body=block(i.body))
            elif isinstance(i, If):
                i = replace(i, body=block(i.body), orelse=block(i.orelse))
            made += change(i)
        return tuple(made)

    whole = expand_pipelines(program)
    return replace(whole, body=block(whole.body))


def dropped(kind: type) -> Callable[[Instr], tuple[Instr, ...]]:
    return lambda i: () if isinstance(i, kind) else (i,)


def one_slot_on(i: Instr) -> tuple[Instr, ...]:
    """Copies to the place that is read meanwhile."""
    if isinstance(i, CopyAsync) and "k0" in i.into.names():
        return (replace(i, into=(i.into + 64) % 192),)
    return (i,)


DAMAGES: dict[str, tuple[Callable[[Instr], tuple[Instr, ...]], str]] = {
    "waits for one copy too few": (
        lambda i: (Await(i.left + 1),) if isinstance(i, Await) else (i,),
        "a copy is in flight|never written",
    ),
    "waits for nothing": (dropped(Await), "a copy is in flight"),
    "no barrier": (dropped(Barrier), "race: reads what work-item"),
    "batches that are not told apart": (dropped(Commit), "a copy is in flight"),
    "the ring is overwritten early": (one_slot_on, "in flight|race"),
    "a place is read one too far": (
        lambda i: (
            (replace(i, offset=(i.offset + 64) % 192),)
            if isinstance(i, Load) and i.buffer.startswith("A")
            else (i,)
        ),
        "in flight|never written",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_pipeline_is_found_by_the_interpreter(damage):
    change, told = DAMAGES[damage]
    program = lowered(gemm(8, 8, 64), AHEAD, f"{PLAIN} pipeline(loop=k0, slots=3)")
    product(edited(program, lambda i: (i,)), 8, 8, 64)
    with pytest.raises(VerifyError, match=told):
        product(edited(program, change), 8, 8, 64)


def test_copy_that_nobody_waits_for_is_found():
    whole = expand_pipelines(small())
    local = whole.body[0]
    started = replace(whole, body=(replace(local, body=local.body[:2]),))
    with pytest.raises(VerifyError, match="still in flight where the program ends"):
        interpret(started, {"x": np.ones(12, np.float32), "y": np.zeros(12, np.float32)})


def test_copy_in_flight_may_not_be_written_nor_copied_to():
    whole = expand_pipelines(small())
    start = whole.body[0].body[0]
    for again in (start, Store("s", as_index(0), 1, VType(F32))):
        read = Load(1, "x", as_index(0), VType(F32))
        body = (start, read, again, Commit(), Await(0))
        local = replace(whole.body[0], body=body)
        with pytest.raises(VerifyError, match=r"touches s\[0\], to which a copy is in flight"):
            interpret(
                replace(whole, body=(local,)),
                {"x": np.ones(12, np.float32), "y": np.zeros(12, np.float32)},
            )


# ---- the rules of its form


def broken(change: Callable[[Pipeline], Pipeline | Instr], target: Target = AHEAD) -> str:
    program = small()
    local = program.body[0]
    made = replace(program, body=(replace(local, body=(change(local.body[0]),)),))
    with pytest.raises(VerifyError) as error:
        verify_program(made, target)
    return str(error.value)


def of_copy(**fields: object) -> Callable[[Pipeline], Pipeline]:
    return lambda p: replace(p, copies=(replace(p.copies[0], **fields),))


RULES = {
    "0 iterations, 2 slots": lambda p: replace(p, extent=0),
    "3 iterations, 1 slots": lambda p: replace(p, slots=1),
    "i is the variable of a loop around it": lambda p: replace(p, var="i"),
    "s is written outside its copies, too": lambda p: replace(
        p, body=(*p.body, Store("s", as_index(0), 1, VType(F32)))
    ),
    "copies to y, which is not shared memory": of_copy(buffer="y", into=var("v", 4)),
    "copies from y, which the program writes": of_copy(source="y"),
    "in the copies of a pipeline": lambda p: replace(p, copies=(Barrier(), *p.copies)),
    "stands outside the copies of a pipeline": lambda p: p.copies[0],
    "whose batches and waits follow from them": lambda p: replace(p, body=(Commit(), *p.body)),
    "12 bytes: 4, 8 or 16": of_copy(
        vtype=VType(F32, 3), into=var("v", 3), offset=var("k", 3) * 3 + var("v", 3)
    ),
    "is not a multiple of 4 elements": of_copy(offset=var("k", 3) * 3 + var("v", 4)),
    "is not a row of neighbours": of_copy(offset=var("v", 4) * 2),
    "always out of bounds|is not a multiple": of_copy(into=var("v", 4) + 2),
}


@pytest.mark.parametrize("rule", RULES)
def test_rule_of_pipelines_is_named(rule):
    assert any(words in broken(RULES[rule]) for words in rule.split("|"))


def test_target_without_asynchronous_copies_refuses_them():
    assert "target gpu has no such copy" in broken(lambda p: p, GPU)


def test_copies_may_not_read_what_the_program_writes():
    def reads(p: Pipeline) -> Pipeline:
        load = Load(7, "y", as_index(0), VType(F32))
        return replace(p, copies=(load, Store("s", as_index(0), 7, VType(F32))))

    assert "its copies read y, which the program writes" in broken(reads)


def test_pipeline_that_some_skip_is_refused():
    program = small()
    inner = If(Valid((Range(var("i", 4), 0, 2),)), program.body[0].body)
    made = replace(program, body=(replace(program.body[0], body=(inner,)),))
    with pytest.raises(VerifyError, match="where not all threads arrive"):
        verify_program(made, AHEAD)


def fragment(**fields: object) -> Program:
    row = var("r", 32)
    load = MatLoad((1, 2), "s", row * 8, VType(F32), False)
    store = Store("s", row * 8, 9, VType(F32))
    first = Load(9, "x", row, VType(F32))
    use = Store("y", row, 1, VType(F32))
    body = (first, store, Barrier(), replace(load, **fields), use)
    local = For("r", 32, (as_index(32),), body, "local", 32)
    params = (Buffer("x", F32, 32, "in"), Buffer("y", F32, 32, "out"))
    return Program("rows", params, (Alloc("s", F32, 256, "shared"),), (), (local,), 1, 32)


FRAGMENTS = {
    "3 matrices: 1, 2 or 4": {"ids": (1, 2, 3)},
    "4 bytes, of 2 each where it is transposed": {"transposed": True},
    "is not a multiple of 4 elements": {"offset": var("r", 32) * 7},
    "y is not shared memory": {"buffer": "y"},
}


@pytest.mark.parametrize("rule", FRAGMENTS)
def test_rule_of_fragments_is_named(rule):
    verify_program(fragment(), AHEAD)
    with pytest.raises(VerifyError, match=rule):
        verify_program(fragment(**FRAGMENTS[rule]), AHEAD)


def test_fragment_is_read_after_a_barrier():
    program = fragment()
    (local,) = program.body
    bare = tuple(i for i in local.body if not isinstance(i, Barrier))
    with pytest.raises(VerifyError, match="can not be proved to be run by one"):
        verify_program(replace(program, body=(replace(local, body=bare),)), AHEAD)


# ---- the text


def test_text_has_the_functions_that_it_calls_and_no_others():
    program = lowered(half_gemm(64, 64, 128), AHEAD, f"{HALVES} pipeline(loop=ra0, slots=3)")
    text = render_cuda(program)
    for name in ("tg_cp_async16", "tg_cp_commit", "tg_cp_wait", "tg_ldmatrix_x4"):
        assert text.count(f"__forceinline__ void {name}(") == 1, name
    assert "tg_cp_wait<1>();" in text
    assert "tg_cp_async4" not in text
