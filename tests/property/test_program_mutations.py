"""Damaged programs: each is rejected by the verifier, or stopped by the interpreter, or is another
well-formed one.

    rejected  the verifier names the rule
    stopped   at an access that the verifier said it could not prove, or at memory that nobody wrote
              before
    another   it runs alike every time and touches nothing but its outputs; its results differ from
              the original's
    the same  it computes what the original does, on other inputs too

What the verifier accepts never races and never waits for somebody who does not come.
"""

import random
import re
from collections import Counter
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
from hand_programs import arguments_of, group_add, row_sum, tiled_gemm, vector_add

from tests.interpreter import interpret
from tests.schedule_checks import work
from tests.schedule_fuzzer import draw as drawn_schedule
from tests.verifiers.program import verify_program
from tunegrad.errors import IllegalAction, VerifyError
from tunegrad.ir import program as p

PROGRAMS = {
    "vector_add": vector_add(13, 4, 2),
    "group_add": group_add(13, 2, 2, 4),
    "tiled_gemm": tiled_gemm(8, 4, 2),
    "row_sum": row_sum(2, 10, 4),
}


def paths(body, prefix=()):
    """(path, instruction) of everything, a path being indices and block names."""
    for k, i in enumerate(body):
        yield (*prefix, k), i
        for block in ("body", "orelse"):
            if is_dataclass(i) and block in {f.name for f in fields(i)}:
                yield from paths(getattr(i, block), (*prefix, k, block))


def edited(body, path, new):
    """The block with the instruction at ``path`` replaced by ``new``, a tuple of instructions."""
    k, rest = path[0], path[1:]
    middle = (
        new
        if not rest
        else (replace(body[k], **{rest[0]: edited(getattr(body[k], rest[0]), rest[1:], new)}),)
    )
    return (*body[:k], *middle, *body[k + 1 :])


def used(i):
    """Names of the fields that hold a value id this instruction uses."""
    return [
        f.name
        for f in fields(i)
        if f.name in ("arg", "value", "mask", "yes", "no") and isinstance(getattr(i, f.name), int)
    ]


def mutate(program, draw):
    """(kind, mutant) for one random edit."""
    path, i = draw.choice(list(paths(program.body)))
    sizes = {b.name: b.size for b in (*program.params, *program.allocs)}
    ids = [j.id for _, j in paths(program.body) if hasattr(j, "id")]
    kinds = ["drop", "twice"]
    kinds += ["lanes"] * hasattr(i, "vtype") + ["offset"] * hasattr(i, "offset")
    kinds += ["extent", "stop", "count"] * isinstance(i, p.For)
    if not isinstance(i, p.Number | p.For | p.If):
        kinds += ["use"] * bool(used(i)) + ["args"] * isinstance(i, p.Compute)
    kind = draw.choice(kinds)
    if kind == "drop":
        new = ()
    elif kind == "twice":
        new = (i, i)
    elif kind == "lanes":
        new = (replace(i, vtype=p.VType(i.vtype.dtype, i.vtype.lanes * 2)),)
    elif kind == "offset":
        new = (replace(i, offset=i.offset + draw.choice((-1, 1)) * sizes[i.buffer]),)
    elif kind == "extent":
        new = (replace(i, extent=i.extent - 1),)
    elif kind == "stop":
        new = (replace(i, stops=tuple(s + 1 for s in i.stops)),)
    elif kind == "count":
        new = (replace(i, count=i.count + 1),)
    elif kind == "args":
        new = (replace(i, args=tuple(draw.choice(ids) for _ in i.args)),)
    else:
        new = (replace(i, **{draw.choice(used(i)): draw.choice(ids)}),)
    return kind, replace(program, body=edited(program.body, path, new))


def outcome(program, seed):
    """What it wrote, and what the interpreter stopped it for."""
    buffers = arguments_of(program, seed)
    inputs = {b.name: buffers[b.name].copy() for b in program.params if b.role == "in"}
    try:
        done = interpret(program, buffers)
    except VerifyError as error:
        return {}, str(error)
    for name, before in inputs.items():
        np.testing.assert_array_equal(buffers[name], before)
    return {
        b.name: buffers[b.name][done.written[b.name]].tobytes()
        for b in program.params
        if b.role == "out"
    }, ""


def verdict(original, mutant):
    """What becomes of a mutant, one of the four above."""
    try:
        unproved = verify_program(mutant)
    except VerifyError:
        return "rejected"
    first, fault = outcome(mutant, 1)
    assert (first, fault) == outcome(mutant, 1)
    assert "race" not in fault, fault
    assert "barrier" not in fault, fault
    if fault:
        outside = "out of bounds" in fault or "past its extent" in fault
        assert unproved if outside else "never written" in fault, fault
        return "stopped"
    return (
        "the same"
        if all(outcome(mutant, s) == outcome(original, s) for s in (1, 2, 3))
        else "another"
    )


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_mutants_are_rejected_or_told_apart(name, seed):
    draw, original = random.Random(f"{name} {seed}"), PROGRAMS[name]
    mutants = [mutate(original, draw)[1] for _ in range(40)]
    found = Counter(verdict(original, m) for m in mutants)
    assert found.total() == 40
    assert found["rejected"] > sum(m != original for m in mutants) // 2


RULES = (
    "is not defined before it", "is defined twice", "is past its extent", "runs over .*, not",
    "register .* is .*, not", "the argument has .* lanes", "count .* x inner .*: of",
    "always out of bounds", "alone for each element", "lanes need a lane variable",
    "some iterations would never run", "nothing has written the register before",
    "has no meaning on", "is declared twice", "is not declared before it",
)  # fmt: skip


def test_every_rule_of_programs_rejects_some_mutant():
    said = Counter()
    for name, program in PROGRAMS.items():
        draw = random.Random(name)
        for _ in range(400):
            try:
                verify_program(mutate(program, draw)[1])
            except VerifyError as error:
                said.update(rule for rule in RULES if re.search(rule, str(error)))
    assert not set(RULES) - set(said), said


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_mutants_that_lose_their_share_never_race(name):
    """Thread and local loops run by everybody or shared out otherwise, barriers lost; ``verdict``
    holds them to it.
    """
    program = PROGRAMS[name]
    found = Counter()
    for path, i in paths(program.body):
        if isinstance(i, p.For) and i.kind != "serial" and i.extent > 1:
            for new in (replace(i, kind="serial", count=1, inner=1), replace(i, inner=i.inner + 1)):
                found[
                    verdict(program, replace(program, body=edited(program.body, path, (new,))))
                ] += 1
        if isinstance(i, p.Barrier):
            found[verdict(program, replace(program, body=edited(program.body, path, ())))] += 1
    assert found["rejected"] >= found.total() // 2
    assert not found["stopped"]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("kind", ["lanes", "offset", "extent", "stop"])
def test_program_mutants_of_shapes_never_get_past_the_verifier(name, kind):
    draw = random.Random(f"{name} {kind}")
    for _ in range(200):
        made, mutant = mutate(PROGRAMS[name], draw)
        if made != kind:
            continue
        with suppress(VerifyError):
            assert verify_program(mutant), mutant


@pytest.mark.parametrize(
    "name", ["gemm", "conv1x1s2", "softmax_columns", "winograd_output", "masked_sums", "transpose"]
)
def test_program_mutants_of_lowered_schedules_never_race(name):
    """What lowering made for two threads, damaged: copies, barriers, partial sums, tails."""
    draw, found = random.Random(name), Counter()
    programs = []
    for seed in range(30):
        drawn = drawn_schedule(name, seed, Counter())
        if drawn is None:
            continue
        with suppress(IllegalAction):  # a race that is not proved away
            program = drawn[0].lower(drawn[1])
            if program.threads == 2 and work(program.body) < 20_000:
                programs.append(program)
    assert len(programs) >= 5
    for program in programs[:8]:
        for _ in range(8):
            found[verdict(program, mutate(program, draw)[1])] += 1
    assert found["rejected"] >= found.total() // 2
