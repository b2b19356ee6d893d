"""LLVM IR text: deterministic, well formed, its addresses computed in the loop that decides them,
its scratch apart.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from kernel_corpus import NAMES, corpus_kernel

from benchmarks.hand_schedules import AVX512, FULL, SMALL, gemm
from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.errors import InternalError
from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import BF16, F32
from tunegrad.ir.fusion import schedule
from tunegrad.ir.index import as_index, var
from tunegrad.ir.parse_kernel import parse_kernel
from tunegrad.ir.program import Alloc, Buffer, For, Number, Program, Store, VType
from tunegrad.opts import Schedule, Space
from tunegrad.render.llvm import render_llvm, workspace_bytes
from tunegrad.render.llvm_values import literal

F = VType(F32)
OUT = (Buffer("y", F32, 64, "out"),)


def rendered(kernel, text="", target=AVX512):
    return render_llvm(Space(kernel, target).lower(Schedule.parse(text)))


@pytest.mark.parametrize("name", NAMES)
def test_llvm_text_is_the_same_each_time(name):
    space = Space(corpus_kernel(name), AVX512)
    schedule = space.defaults()[0]
    assert render_llvm(space.lower(schedule)) == render_llvm(space.lower(schedule))


@pytest.mark.parametrize("name", ["conv3x3s2", "softmax", "halves", "compare", "pad"])
def test_llvm_text_compiles_for_another_machine(name):
    target = replace(AVX512, arch="x86-64", vector_bytes=16, registers=16)
    space = Space(corpus_kernel(name), target)
    assert compile_llvm(render_llvm(space.lower(space.defaults()[0])), target)


def test_llvm_text_names_every_value_once():
    text = rendered(FULL["direct_conv"].kernel, FULL["direct_conv"].actions)
    body = text[: text.index("define void")]
    defined = re.findall(r"^  (%\w+) = ", body, re.MULTILINE)
    assert len(defined) == len(set(defined))


def test_llvm_inner_loop_adds_to_addresses_of_the_outer_ones():
    text = rendered(gemm(64, 64, 64))
    number = re.findall(r"^loop(\d+):", text, re.MULTILINE)[-1]
    inner = text[text.index(f"loop{number}:") : text.index(f"latch{number}:")]
    assert re.findall(r"mul nsw i64 (%v\d+), 64", inner) == [f"%v{number}"], (
        "only the row of B moves with k"
    )


def test_llvm_pointers_do_not_alias():
    text = rendered(gemm(8, 8, 8), "stage(param=B, at=(), layout=(k, n))")
    (signature,) = re.findall(r"define internal void @kernel.body\((.*?)\)", text)
    assert signature.count("ptr noalias") == 4


def test_llvm_thread_buffers_are_apart_and_team_buffers_shared():
    allocs = (Alloc("a", F32, 10, "thread"), Alloc("b", F32, 100, "team"))
    program = Program("p", OUT, allocs, (), (), threads=3)
    text = render_llvm(program)
    strides = [int(x) for x in re.findall(r"mul i64 %tid, (\d+)", text)]
    assert len(strides) == 1
    assert strides[0] >= 40
    (offset,) = re.findall(r"%p2 = getelementptr i8, ptr %workspace, i64 (\d+)", text)
    assert int(offset) == 3 * strides[0]
    assert workspace_bytes(program) >= 3 * strides[0] + 400
    assert workspace_bytes(replace(program, threads=1)) < workspace_bytes(program)


def test_llvm_scratch_starts_on_a_cache_line():
    allocs = tuple(Alloc(f"a{i}", F32, 3 + i, "thread") for i in range(4))
    text = render_llvm(Program("p", OUT, allocs, (), (), threads=2))
    assert all(int(x) % 64 == 0 for x in re.findall(r"(?:mul i64 %tid|add i64 %o\d+), (\d+)", text))


def test_llvm_barriers_are_for_teams():
    entry = "stage(param=B, at=(), layout=(k, n))"
    assert "call void @tg_barrier" not in rendered(gemm(8, 8, 8), entry)
    assert "call void @tg_barrier" in rendered(gemm(8, 8, 8), f"thread(axis=m, count=2) {entry}")


def test_llvm_threads_take_contiguous_shares():
    text = rendered(gemm(10, 8, 8), "thread(axis=m, count=2)")
    assert re.search(r"mul i64 10, %t\d+\n.*sdiv i64 %t\d+, 2", text)


def test_llvm_refuses_work_items():
    body = (
        Number(1, 0.0, F),
        For("i", 64, (as_index(64),), (Store("y", var("i", 64), 1, F),), "local", 64),
    )
    with pytest.raises(InternalError, match="program p: loop i over work-items on a CPU"):
        render_llvm(Program("p", OUT, (), (), body, local=64))


def test_llvm_refuses_a_variable_that_no_loop_makes():
    body = (Number(1, 0.0, F), Store("y", var("i", 64), 1, F))
    with pytest.raises(InternalError, match="program p: variable i is not in scope"):
        render_llvm(Program("p", OUT, (), (), body))


@pytest.mark.parametrize(
    "entry", [e for e in SMALL.values() if e.target is AVX512], ids=lambda e: e.name
)
def test_llvm_text_size_follows_the_program(entry):
    program = Space(entry.kernel, entry.target).lower(entry.schedule)
    assert len(render_llvm(program)) < 400 * len(program.text.splitlines())


@pytest.mark.parametrize(("value", "bits"), [(0.0, 0), (1.0, 0x3F80), (-2.5, 0xC020)])
def test_a_number_in_bf16_is_its_bits(value: float, bits: int) -> None:
    assert literal(value, VType(BF16)) == str(bits)
    assert literal(value, VType(BF16, 8)) == f"splat (i16 {bits})"


def test_a_stage_of_bf16_is_padded_with_zeros_of_bf16() -> None:
    """The zero was a float's: LLVM refused every schedule that pads such a copy."""
    a, b = Tensor.input("a", (8, 20), "bf16"), Tensor.input("b", (20, 24), "bf16")
    (launch,) = schedule(((a.cast("f32") @ b.cast("f32")).node,)).launches
    text = (
        "tile(axis=b, size=16) reorder(order=(b0, a, ra, b1)) vectorize(axis=b1) "
        "stage(param=p2, at=b0, layout=(ra, b1))"
    )
    assert compile_llvm(rendered(launch.kernel, text), AVX512)


DEPTHWISE = """kernel
  param p0 f32[2,96,32] out row
  param p1 f32[2,98,32] in row
  param p2 f32[32,5,3] const row
  axis a:2 b:96 c:32
  v0 = add over ra:5 rb:3 in f32: mul(p1[a+ra+-2, b+rb, c if 2<=a+ra<4], p2[c, ra, rb])
  store p0[a, b, c] = v0"""


def test_llvm_reads_no_vector_beyond_a_buffer_where_one_condition_is_false() -> None:
    """A masked load of an address that has no page takes hundreds of cycles, lanes or not."""
    text = rendered(
        parse_kernel(DEPTHWISE),
        "tile(axis=c, size=16) reorder(order=(a, b, c0, c1, ra, rb)) vectorize(axis=c1) "
        "stage(param=p2, at=load, layout=(c0, ra, rb, c1))",
    )
    assert re.search(r"select i1 %\w+, ptr %\w+, ptr @tg.zero", text)
    assert "masked.load" not in text


EDGES = """kernel
  param p0 f32[7,7,32] out row
  param p1 f32[4,4,32] in row
  axis a:4 b:4 c:32
  store p0[2*a, 2*b, c] = p1[a, b, c]
  store p0[2*a, 2*b+1, c if 0<=b<3] = add(p1[a, b, c], 1.0:f32)
  store p0[2*a+1, 2*b, c if 0<=a<3] = add(p1[a, b, c], 2.0:f32)
  store p0[2*a+1, 2*b+1, c if 0<=a<3&0<=b<3] = add(p1[a, b, c], 3.0:f32)"""


@pytest.mark.parametrize(("size", "masked"), [(16, 0), (10, 3)])
def test_llvm_stores_no_vector_beyond_a_buffer_where_one_condition_is_false(
    size: int, masked: int
) -> None:
    """Beside a page that may not be written a masked store without lanes takes 600 cycles: alone,
    with nothing behind its buffer, a kernel of 7 us took 71 (Zen 5). A tail keeps its own mask.
    """
    text = rendered(
        parse_kernel(EDGES.replace(",32]", f",{size}]").replace("c:32", f"c:{size}")),
        "tile(axis=c, size=16) reorder(order=(a, b, c0, c1)) vectorize(axis=c1)",
    )
    assert compile_llvm(text, AVX512)
    chosen = set(re.findall(r"(%sunk\d+) = select i1 %\w+, ptr %\w+, ptr %sink", text))
    assert len(chosen) == 3
    stores = re.findall(r"masked\.store\S*\(<16 x float> \S+, ptr (%sunk\d+), i32 4", text)
    plain = re.findall(r"  store <16 x float> \S+, ptr (%sunk\d+), align 4", text)
    assert (len(stores), len(plain)) == (masked, 3 - masked)
    assert {*stores, *plain} == chosen


def test_llvm_masks_a_tail_of_lanes_and_chooses_the_address_by_what_they_share() -> None:
    """The tail's own mask is a constant; rows of padding are read at the fixed address."""
    text = rendered(
        parse_kernel(
            DEPTHWISE.replace(",32]", ",40]").replace("[32", "[40").replace("c:32", "c:40")
        ),
        "tile(axis=c, size=32) tile(axis=c1, size=16) reorder(order=(a, b, c0, c1, c2, ra, rb)) "
        "upcast(axis=c1) vectorize(axis=c2) stage(param=p2, at=load, layout=(c0, ra, rb, c1, c2))",
    )
    masked = re.findall(r"masked\.load\S*\(ptr (%\w+), i32 4, <16 x i1> (<[^>]*>|%\w+)", text)
    assert masked
    tail = "<" + ", ".join(["i1 true"] * 8 + ["i1 false"] * 8) + ">"
    for address, mask in masked:
        assert mask == tail
        (chosen,) = re.findall(rf"{address} = getelementptr i8, ptr (%\w+), i64 \d+\n", text)
        moved = re.search(rf"{chosen} = getelementptr float, ptr (%\w+), i64 %", text)
        chosen = moved[1] if moved else chosen
        assert re.search(rf"{chosen} = select i1 %\w+, ptr %\w+, ptr @tg.zero", text)


def test_llvm_chooses_once_for_the_accesses_under_one_condition() -> None:
    """Five neighbours of a row of padding, not one choice for each of them."""
    text = rendered(
        parse_kernel(
            DEPTHWISE.replace("rb:3", "rb:5").replace("5,3]", "5,5]").replace("98", "100")
        ),
        "tile(axis=c, size=16) reorder(order=(a, b, c0, c1, ra, rb)) vectorize(axis=c1) "
        "unroll(axis=rb) stage(param=p2, at=load, layout=(c0, ra, rb, c1))",
    )
    assert text.count("ptr @tg.zero") == 1


def test_llvm_reads_strided_lanes_of_padding_at_the_fixed_address() -> None:
    text = rendered(
        parse_kernel("""kernel
  param p0 f32[3,32] out row
  param p1 f32[3,80] in row
  axis a:3 b:32
  v0 = add over ra:3 rb:3 in f32: p1[a+ra+-1, 2*b+rb if 1<=a+ra<4]
  store p0[a, b] = v0"""),
        "tile(axis=b, size=16) reorder(order=(a, b0, b1, ra, rb)) vectorize(axis=b1)",
    )
    assert re.search(r"select i1 %\w+, ptr %\w+, ptr @tg.zero", text)
    assert "masked.load" not in text


def test_llvm_chooses_before_a_loop_that_does_not_move_the_address() -> None:
    """Each channel times one number, which is padding or not whatever the channel is."""
    text = rendered(
        parse_kernel("""kernel
  param p0 f32[8,16] out row
  param p1 f32[8] in row
  param p2 f32[64,16] in row
  axis a:8 b:16
  v0 = add over ra:3 rb:64 in f32: mul(p1[a+ra+-1 if 1<=a+ra<9], p2[rb, b])
  store p0[a, b] = v0"""),
        "reorder(order=(a, b, ra, rb)) vectorize(axis=b)",
    )
    assert compile_llvm(text, AVX512)
    blocks = re.split(r"(?m)^\w+:$", text)
    assert not [x for x in blocks if "ptr @tg.zero" in x and "call <16 x float>" in x]
    assert sum(x.count("ptr @tg.zero") for x in blocks) == 1
