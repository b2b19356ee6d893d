"""Damaged programs: each is rejected by the verifier, stopped by the interpreter, or does no harm at all.

Harm is what no check would see: a value that depends on memory nobody wrote, on a race, or on another buffer.
A mutant that both accept must be deterministic and touch nothing but its outputs.
"""

import random
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
from hand_programs import arguments_of, group_add, row_sum, tiled_gemm, vector_add

from tunegrad.errors import VerifyError
from tunegrad.ir import program as p
from tunegrad.ir.interpret_program import interpret
from tunegrad.ir.verify_program import verify_program

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
    middle = new if not rest else (replace(body[k], **{rest[0]: edited(getattr(body[k], rest[0]), rest[1:], new)}),)
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
    return {b.name: buffers[b.name][done.written[b.name]].tobytes() for b in program.params if b.role == "out"}, ""


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_mutants_are_rejected_or_harmless(name, seed):
    draw = random.Random(f"{name} {seed}")
    rejected = 0
    for _ in range(40):
        _, mutant = mutate(PROGRAMS[name], draw)
        try:
            unproved = verify_program(mutant)
        except VerifyError:
            rejected += 1
            continue
        first, fault = outcome(mutant, 1)
        rejected += bool(fault)
        proved_wrong = "out of bounds" in fault or "past its extent" in fault
        assert unproved or not proved_wrong, fault
        assert (first, fault) == outcome(mutant, 1)
    assert rejected >= 20


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
