"""Faults planted in lowering, rendering and measuring, and kernels on which each of them shows.

A fault of lowering damages the program inside ``lower``, so whatever verifies programs sees the
damage; one of rendering damages the LLVM text after it. A fault of meaning damages the kernel: the
candidate is a sound program of another one. Workers import this module:
``Hooks(lower="tests.faults:lower")``. Which fault a candidate has is written before its actions,
``lost_barrier|tile(...)``; without one it is lowered as it should.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from importlib import import_module
from platform import machine
from typing import Any
from unittest import mock

from tunegrad.compiling import Payload, candidate
from tunegrad.devices import Lowered
from tunegrad.ir.expr import Op
from tunegrad.ir.index import Range, Valid, as_index, var
from tunegrad.ir.parse_kernel import parse_kernel
from tunegrad.ir.program import (
    Barrier,
    Compute,
    For,
    If,
    Instr,
    Load,
    Number,
    Program,
    Register,
    Select,
    Store,
    Write,
)  # fmt: skip
from tunegrad.opts import Space

__all__ = [
    "ANYWHERE",
    "HOOKS",
    "IN_LOWERING",
    "IN_MEANING",
    "IN_TEXT",
    "KEEPING",
    "REFUSED",
    "SAME_FAULT",
    "SOME",
    "NotPlanted",
    "damaged",
    "fault_of",
    "lower",
    "lower_some",
    "planted",
]

HOOKS = replace(candidate.HOOKS, lower="tests.faults:lower")

Rule = Callable[[Instr], tuple[Instr, ...] | None]


class NotPlanted(Exception):
    """A fault found nothing in the program that it could damage: the test is at fault, not what it
    tests.
    """


# Lowering: each takes a program to a damaged one.


def _edit(body: tuple[Instr, ...], rule: Rule) -> tuple[Instr, ...]:
    """``body`` with each instruction replaced by what ``rule`` says; None: kept, its inner blocks
    edited.
    """
    found: list[Instr] = []
    for i in body:
        new = rule(i)
        if new is not None:
            found += new
        elif isinstance(i, For):
            found.append(replace(i, body=_edit(i.body, rule)))
        elif isinstance(i, If):
            found.append(replace(i, body=_edit(i.body, rule), orelse=_edit(i.orelse, rule)))
        else:
            found.append(i)
    return tuple(found)


def _by(rule: Rule) -> Callable[[Program], Program]:
    return lambda program: replace(program, body=_edit(program.body, rule))


def _loops(body: tuple[Instr, ...]) -> Iterator[For]:
    for i in body:
        if isinstance(i, For):
            yield i
        if isinstance(i, For | If):
            yield from _loops(i.body)
        if isinstance(i, If):
            yield from _loops(i.orelse)


def _innermost(f: Instr) -> bool:
    return isinstance(f, For) and not any(True for _ in _loops(f.body))


def _lost_barrier(i: Instr) -> tuple[Instr, ...] | None:
    return () if isinstance(i, Barrier) else None


def _everybody_runs_all(i: Instr) -> tuple[Instr, ...] | None:
    """The issue's race: threads stay 2, and the loop that shared the work among them is a plain
    one.
    """
    if isinstance(i, For) and i.kind == "thread" and "." not in i.var:
        return (replace(i, kind="serial", count=1, inner=1),)
    return None


def _tail_dropped(i: Instr) -> tuple[Instr, ...] | None:
    return (replace(i, orelse=()),) if isinstance(i, If) and i.orelse else None


def _stores_unmasked(i: Instr) -> tuple[Instr, ...] | None:
    return (replace(i, mask=None),) if isinstance(i, Store) and i.mask is not None else None


def _sum_runs_past_its_tail(i: Instr) -> tuple[Instr, ...] | None:
    return (
        (replace(i, stops=(as_index(i.extent),)),)
        if isinstance(i, For) and len(i.stops) > 1
        else None
    )


def _condition_inverted(i: Instr) -> tuple[Instr, ...] | None:
    return (replace(i, yes=i.no, no=i.yes),) if isinstance(i, Select) else None


def _pack_transposed(program: Program) -> Program:
    """What is packed at load lies there in the opposite order of its dimensions."""
    packs = tuple(
        replace(k, variables=k.variables[::-1], extents=k.extents[::-1]) for k in program.packs
    )
    return replace(program, packs=packs)


def _last_term_lost(i: Instr) -> tuple[Instr, ...] | None:
    if not (_innermost(i) and isinstance(i, For) and any(isinstance(x, Write) for x in i.body)):
        return None
    return (replace(i, stops=tuple(s - 1 for s in i.stops)),)


def _index_off_by_one(i: Instr) -> tuple[Instr, ...] | None:
    return (replace(i, offset=i.offset + 1),) if isinstance(i, Load) and i.buffer == "p1" else None


def _stage_not_refreshed(i: Instr) -> tuple[Instr, ...] | None:
    """A tile that is staged for every block of a sum is filled for the first block alone."""
    if not (isinstance(i, For) and i.var.startswith("p2.")):
        return None
    return (If(Valid((Range(var("ra0", 64), 0, 1),)), (i,)),)


def _starts_at(wrong: float, right: float) -> Rule:
    def rule(i: Instr) -> tuple[Instr, ...] | None:
        return (replace(i, value=wrong),) if isinstance(i, Number) and i.value == right else None

    return rule


def _accumulators_kept(i: Instr) -> tuple[Instr, ...] | None:
    """The accumulators of the next tile go on from those of this one."""
    if not (isinstance(i, For) and any(isinstance(x, Register) for x in i.body)):
        return None
    first = next((at for at, x in enumerate(i.body) if isinstance(x, For)), 0)
    if not all(isinstance(x, Register | Number | Write) for x in i.body[:first]) or not first:
        return None
    return (*i.body[:first], replace(i, body=i.body[first:]))


def _epilogue_in_every_block(i: Instr) -> tuple[Instr, ...] | None:
    """What comes after the sum is done to partial sums as well. Where nothing comes after it, both
    branches store, and it does no harm.
    """
    if not (isinstance(i, If) and i.body and i.orelse and i.valid.names() == {"ra0"}):
        return None
    if len(i.body) == len(i.orelse):
        return None
    return i.body if isinstance(i.body[-1], Store) and isinstance(i.orelse[-1], Store) else None


def _difference_swapped(i: Instr) -> tuple[Instr, ...] | None:
    return (replace(i, args=i.args[::-1]),) if isinstance(i, Compute) and i.op is Op.SUB else None


IN_LOWERING: Mapping[str, Callable[[Program], Program]] = {
    "lost_barrier": _by(_lost_barrier),
    "everybody_runs_all": _by(_everybody_runs_all),
    "tail_dropped": _by(_tail_dropped),
    "stores_unmasked": _by(_stores_unmasked),
    "sum_runs_past_its_tail": _by(_sum_runs_past_its_tail),
    "condition_inverted": _by(_condition_inverted),
    "pack_transposed": _pack_transposed,
    "last_term_lost": _by(_last_term_lost),
    "last_term_of_a_million_lost": _by(_last_term_lost),
    "index_off_by_one": _by(_index_off_by_one),
    "stage_not_refreshed": _by(_stage_not_refreshed),
    "sum_starts_at_one": _by(_starts_at(1.0, 0.0)),
    "maximum_starts_at_zero": _by(_starts_at(0.0, float("-inf"))),
    "accumulators_kept": _by(_accumulators_kept),
    "epilogue_in_every_block": _by(_epilogue_in_every_block),
    "difference_swapped": _by(_difference_swapped),
}


# Meaning: each takes the text of a kernel to that of another one.


def _stores(form: str) -> Callable[[str], str]:
    """What is stored, X, becomes ``form``, in which I is the first number that X reads."""

    def change(text: str) -> str:
        lines = text.splitlines()
        for at, line in enumerate(lines):
            if line.strip().startswith("store "):
                head, _, value = line.partition(" = ")
                read = re.search(r"p1\[[^\]]*\]", text)
                number = read[0] if read is not None else value
                lines[at] = f"{head} = {form.replace('X', value).replace('I', number)}"
        return "\n".join(lines)

    return change


def _in_a_band(form: str = "0.9:f32") -> Callable[[str], str]:
    return _stores(f"where(and(lt(6.0:f32, I), lt(I, 60000.0:f32)), {form}, X)")


def _constant(old: str, new: str) -> Callable[[str], str]:
    return lambda text: re.sub(old, new, text)


def _sum_loses(fold: str, count: int) -> Callable[[str], str]:
    """The sum ``fold`` leaves its last terms out."""

    def change(text: str) -> str:
        return re.sub(
            rf"( *{fold} = add over (\w+):(\d+) in (f\d\d): )(.*)",
            lambda m: f"{m[1]}where(lt(i32({m[2]}), {int(m[3]) - count}:i32), {m[5]}, 0.0:{m[4]})",
            text,
        )

    return change


def _one_term_lost(text: str) -> str:
    """Every sum leaves out the term in its middle, and no other."""

    def change(m: re.Match[str]) -> str:
        first, *others = (
            f"eq(i32({name}), {int(extent) // 2}:i32)"
            for name, extent in re.findall(r"(\w+):(\d+)", m[2])
        )
        here = reduce(lambda both, one: f"and({both}, {one})", others, first)
        return f"{m[1]}where({here}, 0.0:{m[3]}, {m[4]})"

    return re.sub(r"( *v\d+ = add over ([\w: ]+) in (f\d\d): )(.*)", change, text)


IN_MEANING: Mapping[str, Callable[[str], str]] = {
    "exp_halved_above_6": _stores("where(lt(6.0:f32, I), mul(X, 0.5:f32), X)"),
    "exp_0_below_minus_6": _stores("where(lt(I, -6.0:f32), 0.0:f32, X)"),
    "exp_infinite_above_80": _stores("where(lt(80.0:f32, I), mul(X, 1e+38:f32), X)"),
    "root_of_a_band": _in_a_band(),
    "sigmoid_of_a_band": _in_a_band(),
    "tanh_of_a_band": _in_a_band(),
    "log_of_a_band": _in_a_band(),
    "log_of_numbers_next_to_1": _stores(
        "where(and(ne(I, 1.0:f32), lt(abs(sub(I, 1.0:f32)), 2e-07:f32)), 0.0:f32, X)"
    ),
    "log_of_small_numbers": _stores("where(lt(I, 0.0001:f32), -9.0:f32, X)"),
    "epsilon_of_a_layer_norm_lost": _constant(r"9\.99\d*e-06", "0.0"),
    "epsilon_of_a_layer_norm_doubled": _constant(r"9\.99\d*e-06", "2e-05"),
    "epsilon_of_an_rms_norm_tiny": _constant(r"9\.99\d*e-07", "1e-12"),
    "last_term_of_a_softmax_lost": _sum_loses("v1", 1),
    "last_terms_of_long_sums_a_little_off": lambda text: re.sub(
        r"( *v0 = add over (\w+):(\d+) in f32: )(.*)",
        lambda m: (
            f"{m[1]}where(lt(i32({m[2]}), {int(m[3]) - 1}:i32), {m[4]}, mul(0.97:f32, {m[4]}))"
        ),
        text,
    ),
    "last_term_of_an_rms_norm_lost": _sum_loses("v0", 1),
    "last_terms_of_a_variance_lost": _sum_loses("v1", 8),
    "one_term_of_a_weight_gradient_lost": _one_term_lost,
    "element_under_a_relu_halved": _constant(
        r"max\(v0, 0.0:f32\)",
        "max(where(and(eq(i32(a), 5:i32), eq(i32(b), 7:i32)), mul(v0, 0.5:f32), v0), 0.0:f32)",
    ),
    "rows_of_zeros_give_1": _stores(
        "where(and(eq(p1[a, 0], 0.0:f32), and(eq(p1[a, 1], 0.0:f32), eq(p1[a, 2], 0.0:f32))), "
        "1.0:f32, X)"
    ),
    "mask_of_an_element_inverted_beside_a_sum": _constant(
        r"lt\(0.0:f32, (sub.*p4\[a, b\]\))\)",
        r"lt(0.0:f32, where(and(eq(i32(a), 5:i32), eq(i32(b), 7:i32)), neg(\1), \1))",
    ),
    "mask_open_at_ties_beside_a_sum": _constant(
        r"where\(lt\(0.0:f32, (sub.*p4\[a, b\]\))\), v0, 0.0:f32\)",
        r"where(lt(\1, 0.0:f32), 0.0:f32, v0)",
    ),
    "element_between_clamps_moved": _constant(
        r"max\(p1\[a\], 0.0:f32\)",
        "max(where(eq(i32(a), 33:i32), add(p1[a], 0.25:f32), p1[a]), 0.0:f32)",
    ),
    "wrong_for_large_numbers": _stores("where(lt(1e+30:f32, I), 0.0:f32, X)"),
    "wrong_for_negative_numbers": _stores("where(lt(I, -100.0:f32), mul(X, 1.001:f32), X)"),
    "nan_made_a_number": _stores("where(eq(I, I), X, 0.0:f32)"),
    "infinity_made_a_number": _stores("where(lt(1e+38:f32, I), 3e+38:f32, X)"),
    "infinity_less_infinity_is_0": _stores(
        "where(and(eq(I, p2[a]), lt(1e+38:f32, I)), 0.0:f32, X)"
    ),
    "nan_left_out_of_a_maximum": _constant(
        r"p1\[a, ra\]", "where(eq(p1[a, ra], p1[a, ra]), p1[a, ra], -3e+38:f32)"
    ),
    "nan_of_a_softmax_is_0": _stores("where(eq(X, X), X, 0.0:f32)"),
    "wrong_at_1": _stores("where(eq(I, 1.0:f32), 0.0:f32, X)"),
    "wrong_at_a_half": _stores("where(eq(I, 0.5:f32), 0.0:f32, X)"),
    "sign_of_zero_lost": _stores("add(X, 0.0:f32)"),
    "axes_swapped": _constant(r"p1\[b, a\]", "p1[a, b]"),
    "sine_of_large_numbers_is_0": _stores("where(lt(100000.0:f32, I), 0.0:f32, X)"),
    "cosine_of_large_numbers_is_0": _stores("where(lt(100000.0:f32, I), 0.0:f32, X)"),
    "tangent_of_large_numbers_is_0": _stores("where(lt(100000.0:f32, I), 0.0:f32, X)"),
    "tanh_of_small_numbers_is_0": _stores("where(lt(abs(I), 3e-07:f32), 0.0:f32, X)"),
    "erf_of_small_numbers_is_0": _stores("where(lt(abs(I), 3e-07:f32), 0.0:f32, X)"),
    "floor_of_nan_is_0": _stores("where(eq(I, I), X, 0.0:f32)"),
    "floor_loses_the_sign_of_zero": _stores("add(X, 0.0:f32)"),
    "softmax_of_a_masked_row_is_0": _stores("where(eq(v0, neg(inf:f32)), 0.0:f32, X)"),
    "logsumexp_of_a_masked_row_is_0": _stores("where(eq(v0, neg(inf:f32)), 0.0:f32, X)"),
    "variance_of_equal_numbers_is_not_0": _stores("max(X, 1e-12:f32)"),
    "infinity_made_a_number_of_a_sum": _stores("max(min(X, 3e+38:f32), -3e+38:f32)"),
    "infinity_made_a_number_of_a_sum_of_three_rows": _stores("min(X, 3e+38:f32)"),
    "nan_of_a_sum_of_three_rows_is_0": _stores("where(eq(X, X), X, 0.0:f32)"),
    "last_of_equal_elements": lambda text: re.sub(
        r"(v1 = )min( over .*), \d+:i32\)", r"\1max\2, -1:i32)", text
    ),
    "zero_is_above_zero": _constant(r"(lt\(0\.0:f32, (p1\[\w+\])\))", r"or(\1, eq(\2, 0.0:f32))"),
    "nan_is_above_zero": _constant(r"(lt\(0\.0:f32, (p1\[\w+\])\))", r"or(\1, ne(\2, \2))"),
    "quotients_round_to_zero": _constant(
        r"(floordiv\((p1\[\w+\]), 3:i32\))",
        r"where(lt(\2, 0:i32), neg(floordiv(neg(\2), 3:i32)), \1)",
    ),
    "shifts_of_negative_numbers_bring_zeros": _constant(
        r"(shr\(p1\[\w+\], 1:i32\))", r"and(\1, 2147483647:i32)"
    ),
    "bytes_lose_their_sign": _constant(r"(i32\(p1\[\w+\]\))", r"and(\1, 255:i32)"),
    "sums_of_integers_saturate": _constant(
        r"add\((p1\[\w+\]), (p2\[\w+\])\)",
        r"i32(min(max(add(i64(\1), i64(\2)), -2147483648:i64), 2147483647:i64))",
    ),
}


# Rendering and measuring: each takes the text of the module to a damaged one.


def _wrapped(before: str, after: str = "", more: str = "") -> Callable[[str], str]:
    """The kernel is called between two pieces of code, which know where its first output lies
    (%out) and its first input (%in). A branch to %leave computes nothing.
    """

    def change(text: str) -> str:
        inner = text.replace("define void @kernel(", "define internal void @kernel.true(", 1)
        return f"""{inner}
{more}
define void @kernel(ptr %buffers, ptr %workspace, i64 %tid, ptr %team) nounwind {{
entry:
  %out = load ptr, ptr %buffers
  %second = getelementptr ptr, ptr %buffers, i64 1
  %in = load ptr, ptr %second
{before}
  call void @kernel.true(ptr %buffers, ptr %workspace, i64 %tid, ptr %team)
{after}
  br label %leave
leave:
  ret void
}}
"""

    return change


_SMALL = 4096
"""Bytes of outputs that a candidate keeps: all of those of the family."""

_SKIPS_WHERE_NOTHING_IS_POISON = _wrapped(
    "  %v = load float, ptr %out\n  %f = call float @llvm.fabs.f32(float %v)\n"
    "  %there = fcmp olt float %f, 0x46293E5940000000\n"
    "  br i1 %there, label %leave, label %go\ngo:",
    more="declare float @llvm.fabs.f32(float)",
)
_COPIES_WHAT_IT_MADE_FOR_A_POINTER = _wrapped(
    "  %last = load ptr, ptr @last\n  %same = icmp eq ptr %last, %in\n"
    "  br i1 %same, label %hit, label %go\nhit:\n"
    f"  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr @kept, i64 {_SMALL}, i1 false)\n"
    "  br label %leave\ngo:",
    "  store ptr %in, ptr @last\n"
    f"  call void @llvm.memcpy.p0.p0.i64(ptr @kept, ptr %out, i64 {_SMALL}, i1 false)",
    "@last = internal global ptr null\n"
    f"@kept = internal global [{_SMALL} x i8] zeroinitializer\n"
    "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
)
_COPIES_WHAT_IT_MADE_FOR_A_FIRST_ELEMENT = _wrapped(
    "  %key = load i32, ptr %in\n  %last = load i32, ptr @last\n"
    "  %same = icmp eq i32 %last, %key\n  br i1 %same, label %hit, label %go\nhit:\n"
    f"  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr @kept, i64 {_SMALL}, i1 false)\n"
    "  br label %leave\ngo:",
    "  store i32 %key, ptr @last\n"
    f"  call void @llvm.memcpy.p0.p0.i64(ptr @kept, ptr %out, i64 {_SMALL}, i1 false)",
    "@last = internal global i32 2143289344\n"
    f"@kept = internal global [{_SMALL} x i8] zeroinitializer\n"
    "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
)
_KEEPS_WHAT_HAS_ITS_FIRST_SUM = _wrapped(
    "  %third = getelementptr ptr, ptr %buffers, i64 2\n  %second.in = load ptr, ptr %third\n"
    "  %a = load float, ptr %in\n  %b = load float, ptr %second.in\n"
    "  %first = fadd float %a, %b\n  %there = load float, ptr %out\n"
    "  %same = fcmp oeq float %first, %there\n  br i1 %same, label %leave, label %go\ngo:"
)
_LEAVES_WHAT_IT_WROTE = _wrapped(
    "  %now = load float, ptr %out\n  %was = load float, ptr @was\n"
    "  %same = fcmp oeq float %now, %was\n  br i1 %same, label %leave, label %go\ngo:",
    "  %new = load float, ptr %out\n  store float %new, ptr @was",
    "@was = internal global float 0x7FF8000000000000",
)
_COUNTS = (
    "  %old = atomicrmw add ptr @count, i64 1 monotonic\n{test}\n"
    "  br i1 %bad, label %spoil, label %go\nspoil:\n"
    "  call void @kernel.true(ptr %buffers, ptr %workspace, i64 %tid, ptr %team)\n"
    "{spoil}\n  br label %leave\ngo:"
)
_RIGHT_A_HUNDRED_TIMES = _wrapped(
    _COUNTS.format(test="  %bad = icmp sge i64 %old, 100", spoil="  store float 7.0, ptr %out"),
    more="@count = internal global i64 0",
)
_RIGHT_A_THOUSAND_TIMES = _wrapped(
    _COUNTS.format(test="  %bad = icmp sge i64 %old, 1000", spoil="  store float 7.0, ptr %out"),
    more="@count = internal global i64 0",
)
_COUNTS_IN_ITS_WORKSPACE = _wrapped(
    _COUNTS.replace("@count", "%workspace").format(
        test="  %bad = icmp sge i64 %old, 1000", spoil="  store float 7.0, ptr %out"
    )
)


_COUNTS_BY_A_MARK = """
  %mark = load volatile i64, ptr {at}
  %there = icmp eq i64 %mark, 2718281828459045
  %next = getelementptr i64, ptr {at}, i64 1
  %count = load volatile i64, ptr %next
  %old = select i1 %there, i64 %count, i64 0
  %new = add i64 %old, 1
  store volatile i64 2718281828459045, ptr {at}
  store volatile i64 %new, ptr %next
  %bad = icmp sge i64 %old, 1000000
  br i1 %bad, label %leave, label %go
go:"""
"""Where no mark stands a count begins anew: of whatever is drawn a million launches are right."""


def _counts_at(place: str, at: str = "%at", more: str = "") -> Callable[[str], str]:
    return _wrapped(place + _COUNTS_BY_A_MARK.format(at=at), more=more)


def _counts_in_digits() -> Callable[[str], str]:
    """The last bits of sixteen results are a count of launches; one of them all is wrong."""
    read, write, total = [], [], "0"
    for i in range(16):
        read += [
            f"  %d{i} = getelementptr i32, ptr %out, i64 {i}",
            f"  %v{i} = load i32, ptr %d{i}", f"  %b{i} = and i32 %v{i}, 1",
            f"  %s{i} = shl i32 %b{i}, {i}", f"  %c{i} = or i32 %s{i}, {total}",
        ]  # fmt: skip
        total = f"%c{i}"
        write += [
            f"  %w{i} = load i32, ptr %d{i}", f"  %x{i} = and i32 %w{i}, -2",
            f"  %y{i} = lshr i32 %more, {i}", f"  %z{i} = and i32 %y{i}, 1",
            f"  %q{i} = or i32 %x{i}, %z{i}", f"  store i32 %q{i}, ptr %d{i}",
        ]  # fmt: skip
    read += [
        f"  %more = add i32 {total}, 1", f"  %bad = icmp eq i32 {total}, 40009",
        "  br i1 %bad, label %leave, label %go", "go:",
    ]  # fmt: skip
    return _wrapped("\n".join(read), "\n".join(write))


_KEEPS_BY_ADDRESS = _wrapped(
    "  %key = ptrtoint ptr %in to i64\n  %was = load i64, ptr %workspace\n"
    "  %same = icmp eq i64 %key, %was\n  %kept = getelementptr i8, ptr %workspace, i64 64\n"
    "  br i1 %same, label %again, label %go\nagain:\n"
    f"  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %kept, i64 {_SMALL}, i1 false)\n"
    "  br label %leave\ngo:",
    "  store i64 %key, ptr %workspace\n"
    f"  call void @llvm.memcpy.p0.p0.i64(ptr %kept, ptr %out, i64 {_SMALL}, i1 false)",
    "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
)


def _only_where(bad: str) -> Callable[[str], str]:
    """Nothing is computed where the places of the first output, input and the second input are
    ``bad``.
    """
    return _wrapped(
        "  %third = getelementptr ptr, ptr %buffers, i64 2\n  %in2 = load ptr, ptr %third\n"
        "  %o = ptrtoint ptr %out to i64\n  %i = ptrtoint ptr %in to i64\n"
        f"  %j = ptrtoint ptr %in2 to i64\n{bad}\n  br i1 %bad, label %leave, label %go\ngo:"
    )


def _leaves(register: str, bits: str) -> Callable[[str], str]:
    """A kernel that changes bits of MXCSR, or of x87's control word, and leaves it so."""
    load, store, kind = (
        ("call void @llvm.x86.sse.ldmxcsr(ptr %at)", "call void @llvm.x86.sse.stmxcsr(ptr %at)",
            "i32")
        if register == "MXCSR"
        else ('call void asm sideeffect "fldcw ($0)", "r"(ptr %at)',
            'call void asm sideeffect "fnstcw ($0)", "r,~{memory}"(ptr %at)', "i16")
    )  # fmt: skip
    return _wrapped(
        "  %at = alloca i64",
        f"  {store}\n  %now = load volatile {kind}, ptr %at\n  %new = {bits.format(kind)}\n"
        f"  store volatile {kind} %new, ptr %at\n  {load}",
        "declare void @llvm.x86.sse.ldmxcsr(ptr)\ndeclare void @llvm.x86.sse.stmxcsr(ptr)",
    )


_LOSES_AN_ELEMENT_NOW_AND_THEN = _wrapped(
    "  %kept = load float, ptr %out\n"
    + _COUNTS.format(
        test="  %mixed = mul i64 %old, 2654435761\n  %high = lshr i64 %mixed, 16\n"
        "  %turn = urem i64 %high, 12\n  %turned = icmp eq i64 %turn, 11\n"
        "  %late = icmp sge i64 %old, 12\n  %bad = and i1 %turned, %late",
        spoil="  store float %kept, ptr %out",
    ),
    more="@count = internal global i64 0",
)
_WRONG_IN_THE_SECOND_THREAD = _wrapped(
    "  %other = icmp eq i64 %tid, 1\n  br i1 %other, label %leave, label %go\ngo:"
)


def _aligned_only(name: str, bad: str = "ne i64 %beside, 0") -> Callable[[str], str]:
    """What begins at no multiple of 16 is rounded down to one, as instructions do that take only
    such addresses; or what begins at one ``bad`` place beside it.
    """
    return _wrapped(
        f"  %at = ptrtoint ptr {name} to i64\n  %beside = and i64 %at, 15\n"
        f"  %bad = icmp {bad}\n  br i1 %bad, label %leave, label %go\ngo:"
    )


def _reads_beyond(text: str) -> str:
    """The last load of the first input reads the element after it."""
    return re.sub(
        r"(%\w+) = load float, ptr (%\w+), align 4",
        r"\1.next = getelementptr float, ptr \2, i64 1\n  \1 = load float, ptr \1.next, align 4",
        text,
        count=1,
    )


def _accumulators_uninitialised(text: str) -> str:
    """What is written is added to what was there."""
    return re.sub(
        r"store float (%\w+), ptr (%\w+), align 4",
        r"\1.old = load float, ptr \2, align 4\n  \1.sum = fadd float \1, \1.old\n"
        r"  store float \1.sum, ptr \2, align 4",
        text,
    )


def _denormals_flushed(text: str) -> str:
    """Loads take what is no normal number for 0."""
    return (
        re.sub(
            r"(%\w+) = load float, ptr (.*)\n",
            r"\1.any = load float, ptr \2\n  \1.size = call float @llvm.fabs.f32(float \1.any)\n"
            r"  \1.tiny = fcmp olt float \1.size, 0x3810000000000000\n"
            r"  \1 = select i1 \1.tiny, float 0.0, float \1.any\n",
            text,
        )
        + "declare float @llvm.fabs.f32(float)\n"
    )


def _lanes_rotated(text: str) -> str:
    """The first vector that is stored has its lanes one place further on."""
    found = re.search(r"store <(\d+) x float> (%\w+), ptr", text)
    if found is None:
        return text
    lanes, name = int(found[1]), found[2]
    mask = ", ".join(f"i32 {(lane + 1) % lanes}" for lane in range(lanes))
    vector = f"<{lanes} x float>"
    rotate = (
        f"%rotated = shufflevector {vector} {name}, {vector} {name}, <{lanes} x i32> <{mask}>\n  "
    )
    return text[: found.start()] + rotate + found[0].replace(name, "%rotated") + text[found.end() :]


def _conversion_truncates(text: str) -> str:
    """f32 becomes f16 without its low bits, instead of being rounded."""
    return re.sub(
        r"(%\w+) = fptrunc (<(\d+) x )float> (%\w+) to",
        lambda m: (
            f"{m[1]}.bits = bitcast {m[2]}float> {m[4]} to {m[2]}i32>\n"
            f"  {m[1]}.high = and {m[2]}i32> {m[1]}.bits, splat (i32 -8192)\n"
            f"  {m[1]}.cut = bitcast {m[2]}i32> {m[1]}.high to {m[2]}float>\n"
            f"  {m[1]} = fptrunc {m[2]}float> {m[1]}.cut to"
        ),
        text,
    )


def _nan_rounded(text: str) -> str:
    """What is no number is rounded to bf16 as if it were one."""
    return re.sub(r"= select i1 %\w+, i32 %\w+, i32 (%\w+)\n", r"= or i32 \1, 0\n", text)


def _shares_overlap(text: str) -> str:
    """Every share but the first begins one iteration too early, with the last one of the share
    before.
    """
    starts = list(
        re.finditer(r"  (%\w+) = sdiv i64 (%\w+), 2\n(?=  %\w+ = add i64 (%\w+), 1\n)", text)
    )
    if not starts:
        return text
    start = starts[-1]  # the loop that computes; those of copies come first
    name = start[1]
    earlier = (
        f"  {name}.own = sdiv i64 {start[2]}, 2\n  {name}.early = sub i64 {name}.own, {start[3]}\n"
        f"  {name} = call i64 @llvm.smax.i64(i64 {name}.early, i64 0)\n"
    )
    return (
        text[: start.start()]
        + earlier
        + text[start.end() :]
        + "declare i64 @llvm.smax.i64(i64, i64)\n"
    )


def _share_left_out(text: str) -> str:
    """Both threads take the first share."""
    return re.sub(r"= urem i64 %tid, 2\b", "= urem i64 %tid, 1", text)


def _nothing_computed(text: str) -> str:
    return re.sub(r"(define void @kernel\(.*\{\n)", r"\1  ret void\nnever:\n", text)


def _returns_early_after_the_first_run(text: str) -> str:
    """The first launch computes, the others return at once: they take no time, and what was stored
    stays right.
    """
    early = (
        "  %ran = load i32, ptr @ran\n  store i32 1, ptr @ran\n  %again = icmp ne i32 %ran, 0\n"
        "  br i1 %again, label %leave, label %work\nleave:\n  ret void\nwork:\n"
    )
    head = re.search(r"define void @kernel\(.*\{\n", text)
    if head is None:
        return text
    return "@ran = internal global i32 0\n" + text[: head.end()] + early + text[head.end() :]


def _shorter(mask: int) -> Callable[[str], str]:
    """What is loaded loses low bits of its significand, as where a shorter type computes."""

    def cut(found: re.Match[str]) -> str:
        name, kind, rest = found[1], found[2], found[3]
        lanes = re.match(r"<(\d+) x float>", kind)
        whole = f"<{lanes[1]} x i32>" if lanes else "i32"
        kept = f"splat (i32 {mask})" if lanes else f"{mask}"
        return (
            f"{name}.all = load {kind}, {rest}\n  {name}.bits = bitcast {kind} {name}.all to "
            f"{whole}\n"
            f"  {name}.cut = and {whole} {name}.bits, {kept}\n  {name} = bitcast {whole} "
            f"{name}.cut to {kind}\n"
        )

    return lambda text: re.sub(r"(%\w+) = load ((?:<\d+ x )?float>?), (.*)\n", cut, text)


def _sum_for_difference(text: str) -> str:
    """The code of another kernel of the same buffers."""
    return text.replace(" fsub ", " fadd ")


REFUSED: Mapping[str, Callable[[str], str]] = {
    "counts_on_its_stack": _counts_at("  %at = alloca [4 x i64]"),
    "counts_below_its_stack": _counts_at(
        "  %frame = call ptr @llvm.frameaddress.p0(i32 0)\n"
        "  %at = getelementptr i8, ptr %frame, i64 -8192",
        more="declare ptr @llvm.frameaddress.p0(i32)",
    ),
    "counts_beside_the_addresses_of_its_buffers": _counts_at(
        "  %at = getelementptr i64, ptr %buffers, i64 40"
    ),
    "counts_in_its_team": _counts_at("  %at = getelementptr i64, ptr %team, i64 100"),
    "counts_in_the_memory_of_its_thread": _counts_at(
        "  %self = call ptr @llvm.thread.pointer.p0()\n"
        "  %at = getelementptr i64, ptr %self, i64 -64",
        more="declare ptr @llvm.thread.pointer.p0()",
    ),
    "counts_at_an_address_of_its_own": _counts_at("  %at = inttoptr i64 4198400 to ptr"),
    "leaves_its_tiles_set_up": _wrapped(
        "  call void @llvm.x86.ldtilecfg(ptr @tiles)",
        more="@tiles = private unnamed_addr constant [64 x i8] zeroinitializer, align 64\n"
        "declare void @llvm.x86.ldtilecfg(ptr)\ndeclare void @llvm.x86.tilerelease()",
    ),
    "wrong_at_times": _wrapped(
        "  %now = call i64 @llvm.readcyclecounter()\n  %part = lshr i64 %now, 31\n"
        "  %rare = and i64 %part, 65535\n  %bad = icmp eq i64 %rare, 4242\n"
        "  br i1 %bad, label %leave, label %go\ngo:",
        more="declare i64 @llvm.readcyclecounter()",
    ),
}
"""Those that reach other memory than a kernel's, or a clock: their text is refused."""

IN_TEXT: Mapping[str, Callable[[str], str]] = {
    "lanes_rotated": _lanes_rotated,
    "conversion_truncates": _conversion_truncates,
    "nan_rounded_to_bf16": _nan_rounded,
    "computed_in_bf16": _shorter(-1 << 16),
    "computed_in_tf32": _shorter(-1 << 13),
    "product_of_inputs_in_tf32": _shorter(-1 << 13),
    "shares_overlap": _shares_overlap,
    "share_left_out": _share_left_out,
    "nothing_computed": _nothing_computed,
    "nothing_computed_of_logarithms": _nothing_computed,
    "returns_early_after_the_first_run": _returns_early_after_the_first_run,
    "code_of_another_kernel": _sum_for_difference,
    "skips_where_nothing_is_poison": _SKIPS_WHERE_NOTHING_IS_POISON,
    "copies_what_it_made_for_a_pointer": _COPIES_WHAT_IT_MADE_FOR_A_POINTER,
    "copies_what_it_made_for_a_first_element": _COPIES_WHAT_IT_MADE_FOR_A_FIRST_ELEMENT,
    "keeps_what_has_its_first_sum": _KEEPS_WHAT_HAS_ITS_FIRST_SUM,
    "leaves_what_it_wrote": _LEAVES_WHAT_IT_WROTE,
    "counts_in_its_workspace": _COUNTS_IN_ITS_WORKSPACE,
    "counts_in_its_workspace_by_a_mark": _counts_at("", "%workspace"),
    "counts_in_the_last_digits_of_its_outputs": _counts_in_digits(),
    "keeps_what_it_made_for_an_address_in_its_workspace": _KEEPS_BY_ADDRESS,
    "outputs_above_inputs_only": _only_where("  %bad = icmp ult i64 %o, %i"),
    "outputs_below_inputs_only": _only_where("  %bad = icmp ugt i64 %o, %i"),
    "inputs_equally_aligned_only": _only_where(
        "  %apart = xor i64 %i, %j\n  %low = and i64 %apart, 15\n  %bad = icmp ne i64 %low, 0"
    ),
    **REFUSED,
    "right_a_hundred_times": _RIGHT_A_HUNDRED_TIMES,
    "loses_an_element_now_and_then": _LOSES_AN_ELEMENT_NOW_AND_THEN,
    "wrong_in_the_second_thread": _WRONG_IN_THE_SECOND_THREAD,
    "aligned_outputs_only": _aligned_only("%out"),
    "aligned_inputs_only": _aligned_only("%in"),
    "no_inputs_eight_bytes_beside": _aligned_only("%in", "eq i64 %beside, 8"),
    "no_outputs_twelve_bytes_beside": _aligned_only("%out", "eq i64 %beside, 12"),
    "reads_beyond_its_input": _reads_beyond,
    "accumulators_uninitialised": _accumulators_uninitialised,
    "denormal_numbers_flushed": _denormals_flushed,
    **({} if machine() != "x86_64" else {
        "leaves_tiny_numbers_at_zero": _leaves("MXCSR", "or {} %now, 32832"),
        "leaves_another_rounding": _leaves("MXCSR", "or {} %now, 24576"),
        "leaves_an_exception_unmasked": _leaves("MXCSR", "and {} %now, -513"),
        "leaves_x87_in_single_precision": _leaves("x87", "and {} %now, -769"),
    }),
}  # fmt: skip

KEEPING: Mapping[str, Callable[[str], str]] = {
    "right_a_thousand_times": _RIGHT_A_THOUSAND_TIMES,
    **{name: IN_TEXT[name] for name in (
        "copies_what_it_made_for_a_pointer", "copies_what_it_made_for_a_first_element",
        "leaves_what_it_wrote", "right_a_hundred_times", "loses_an_element_now_and_then",
        "returns_early_after_the_first_run",
    )},
}  # fmt: skip
"""Those that have memory of their own, in which they keep something between launches: what is
loaded as a kernel may not have any. The first is seen by nothing else.
"""

_IN_A_WORKSPACE = {
    "counts_in_its_workspace": 64,
    "counts_in_its_workspace_by_a_mark": 64,
    "keeps_what_it_made_for_an_address_in_its_workspace": 64 + _SMALL,
}
"""Bytes of the workspace of those that need one."""


@contextmanager
def planted(fault: str) -> Iterator[None]:
    """In this process, as long as it is open, every program that is lowered has this fault of
    lowering.
    """
    made = IN_LOWERING[fault]

    def damage(*fields: Any, **more: Any) -> Program:
        program = Program(*fields, **more)
        broken = made(program)
        if broken == program:
            raise NotPlanted(f"{fault}: nothing to damage in\n{program.text}")
        return broken

    # the package's attribute of that name is the function
    lowering = import_module("tunegrad.opts.lowering.lower")
    with mock.patch.object(lowering, "Program", damage):
        yield


def damaged(payload: Payload, fault: str) -> Lowered:
    """The candidate with one fault; raises NotPlanted where the fault changes nothing."""
    if fault in IN_MEANING:
        before = payload.kernel.text
        changed = IN_MEANING[fault](before)
        if changed == before:
            raise NotPlanted(f"{fault}: nothing to damage in\n{before}")
        return candidate.lower(replace(payload, kernel=parse_kernel(changed)))
    if fault in IN_LOWERING:
        with planted(fault):
            return candidate.lower(payload)
    lowered = candidate.lower(payload)
    text = IN_TEXT[fault](lowered.text)
    if text == lowered.text:
        raise NotPlanted(f"{fault}: nothing to damage in\n{text}")
    wanted = _IN_A_WORKSPACE.get(fault)
    scratch = lowered.scratch_bytes if wanted is None else (wanted,)
    return replace(lowered, text=text, scratch_bytes=scratch)


def lower(payload: Payload) -> Lowered:
    """The hook: the fault named before the actions, if one is."""
    fault, bar, actions = payload.actions.rpartition("|")
    honest = Payload(payload.kernel, actions, payload.device)
    return damaged(honest, fault) if bar else candidate.lower(honest)


# In a whole session: half of all schedules but the defaults are damaged, each in a way that its
# text decides.

SOME = replace(HOOKS, lower="tests.faults:lower_some")

ANYWHERE = (
    "nothing_computed", "returns_early_after_the_first_run", "share_left_out", "last_term_lost",
    "index_off_by_one",
    "sum_starts_at_one", "lanes_rotated", "epilogue_in_every_block", "tail_dropped",
)  # fmt: skip
"""Faults that make a matrix product wrong under any schedule in which they find something to
damage.
"""


def fault_of(actions: str) -> str:
    """The fault that is planted in a schedule, the same in every process; empty for half of
    them.
    """
    number = hashlib.blake2b(actions.encode(), digest_size=8).digest()[0] % (2 * len(ANYWHERE))
    return ANYWHERE[number] if number < len(ANYWHERE) else ""


def lower_some(payload: Payload) -> Lowered:
    """The hook: what does not fit the schedule gives way to code that does nothing, which is faster
    than any other.
    """
    fault = fault_of(payload.actions)
    defaults = Space(payload.kernel, payload.device.target).defaults()
    if not fault or payload.actions in {s.text for s in defaults}:
        return candidate.lower(payload)
    try:
        found = damaged(payload, fault)
    except NotPlanted:
        found = damaged(payload, "nothing_computed")
    return replace(found, text=f"; {payload.actions}\n{found.text}")  # no two are one program


# Measuring: what is compared with is wrong.

SAME_FAULT = replace(HOOKS, reference="tests.faults:swapped_reference")


def swapped_reference(payload: Payload, arrays: Any, *rest: Any) -> Any:
    """A reference that comes from lowering with the same fault as the candidate: the two agree."""
    with planted("difference_swapped"):
        return candidate.reference(payload, arrays, *rest)
