"""Faults planted in lowering, rendering and measuring, and kernels on which each of them shows.

A fault of lowering damages the program inside ``lower``, so whatever verifies programs sees the
damage; one of rendering damages the LLVM text after it. Workers import this module:
``Hooks(lower="tests.faults:lower")``. Which fault a candidate has is written before its actions,
``lost_barrier|tile(...)``; without one it is lowered as it should.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from tunegrad.compiling import candidate
from tunegrad.compiling.candidate import Payload
from tunegrad.devices import Lowered
from tunegrad.ir.expr import Op
from tunegrad.ir.index import Range, Valid, as_index, var
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
    "IN_TEXT",
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
    computes = isinstance(i, For) and i.kind == "thread" and "." not in i.var
    return (replace(i, kind="serial", count=1, inner=1),) if computes else None


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


# Rendering and measuring: each takes the text of the module to a damaged one.


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


IN_TEXT: Mapping[str, Callable[[str], str]] = {
    "lanes_rotated": _lanes_rotated,
    "conversion_truncates": _conversion_truncates,
    "computed_in_bf16": _shorter(-1 << 16),
    "computed_in_tf32": _shorter(-1 << 13),
    "product_of_inputs_in_tf32": _shorter(-1 << 13),
    "shares_overlap": _shares_overlap,
    "share_left_out": _share_left_out,
    "nothing_computed": _nothing_computed,
    "nothing_computed_of_logarithms": _nothing_computed,
    "returns_early_after_the_first_run": _returns_early_after_the_first_run,
    "code_of_another_kernel": _sum_for_difference,
}


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
    with mock.patch.object(sys.modules["tunegrad.opts.lowering.lower"], "Program", damage):
        yield


def damaged(payload: Payload, fault: str) -> Lowered:
    """The candidate with one fault; raises NotPlanted where the fault changes nothing."""
    if fault in IN_LOWERING:
        with planted(fault):
            return candidate.lower(payload)
    lowered = candidate.lower(payload)
    text = IN_TEXT[fault](lowered.text)
    if text == lowered.text:
        raise NotPlanted(f"{fault}: nothing to damage in\n{text}")
    return replace(lowered, text=text)


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
