"""Instructions in any order that their data dependences allow: the program computes the same, bit
for bit.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest

from tests.interpreter import interpret
from tests.kernel_corpus import corpus_kernel
from tests.schedule_checks import Arrays, buffers_of, is_small
from tests.schedule_fuzzer import TWO
from tests.verifiers.program import verify_program
from tunegrad.errors import VerifyError
from tunegrad.ir import program as p
from tunegrad.ir.program import Instr, Program
from tunegrad.opts import Space

ORDERS = 25
SAMPLE = (
    "gemm", "conv1x1s2", "softmax", "layer_norm", "max_pool", "gelu", "masked_stores",
    "winograd_output", "row_sum",
    "compare",
)  # fmt: skip


@dataclass(slots=True)
class Touched:
    """What an instruction, with all that is inside it, reads and writes: value ids, registers,
    buffers.
    """

    reads: set[object] = field(default_factory=set)
    writes: set[object] = field(default_factory=set)

    def before(self, later: Touched) -> bool:
        """Whether it must stay before ``later``."""
        return bool(self.writes & (later.reads | later.writes) or self.reads & later.writes)


def touched(i: Instr, buffers: set[object], registers: bool) -> Touched:
    found = Touched()
    for j in p.walk((i,)):
        found.reads |= {getattr(j, n) for n in ("arg", "value", "mask", "yes",
            "no") if not isinstance(j, p.Number)
                        and isinstance(getattr(j, n, None), int)}  # fmt: skip
        found.reads |= set(j.args) if isinstance(j, p.Compute) else set()
        found.writes |= {j.id} if hasattr(j, "id") else set()
        if isinstance(j, p.Load | p.Store):
            (found.reads if isinstance(j, p.Load) else found.writes).add(j.buffer)
        if registers and isinstance(j, p.Read | p.Write | p.Register):
            (found.reads if isinstance(j, p.Read) else found.writes).add(f"register {j.name}")
        if isinstance(j, p.Barrier):
            found.writes |= buffers
    return found


def another_order(
    body: tuple[Instr, ...], draw: random.Random, buffers: set[object], registers: bool = True
) -> tuple[Instr, ...]:
    """A random topological order of a block, and of the blocks in it."""
    left = [(i, touched(i, buffers, registers)) for i in body]
    waiting = [{m for m in range(n) if left[m][1].before(left[n][1])} for n in range(len(left))]
    ready, done = [n for n, w in enumerate(waiting) if not w], []
    while ready:
        n = ready.pop(draw.randrange(len(ready)))
        done.append(_inside(left[n][0], draw, buffers, registers))
        for m, w in enumerate(waiting):
            if n in w:
                w.remove(n)
                if not w:
                    ready.append(m)
    assert len(done) == len(body)
    return tuple(done)


def _inside(i: Instr, draw: random.Random, buffers: set[object], registers: bool) -> Instr:
    if isinstance(i, p.For):
        return replace(i, body=another_order(i.body, draw, buffers, registers))
    if isinstance(i, p.If):
        return replace(
            i,
            body=another_order(i.body, draw, buffers, registers),
            orelse=another_order(i.orelse, draw, buffers, registers),
        )
    return i


def outputs(program: Program, given: Arrays) -> dict[str, bytes]:
    ran = {name: values.copy() for name, values in given.items()}
    interpret(program, ran)
    return {b.name: ran[b.name].tobytes() for b in program.params if b.role == "out"}


@pytest.mark.parametrize("name", SAMPLE)
def test_program_computes_the_same_in_any_topological_order(name: str) -> None:
    space = Space(corpus_kernel(name), TWO)
    program = space.lower(space.defaults()[0])
    assert is_small(program)
    given = buffers_of(space.kernel, program, 1)
    want, draw = outputs(program, given), random.Random(name)
    buffers: set[object] = {b.name for b in (*program.params, *program.allocs)}
    seen = set()
    for _ in range(ORDERS):
        other = replace(program, body=another_order(program.body, draw, buffers))
        verify_program(other)
        assert outputs(other, given) == want
        seen.add(other.hash)
    assert len(seen) > ORDERS // 2, "the orders are mostly one and the same"


def test_program_orders_that_break_a_dependence_are_noticed() -> None:
    """The test above can fail: where registers may move freely, most orders are refused or compute
    something else.
    """
    space = Space(corpus_kernel("gemm"), TWO)
    program = space.lower(space.defaults()[0])
    given = buffers_of(space.kernel, program, 1)
    want, draw, noticed = outputs(program, given), random.Random(1), 0
    for _ in range(10):
        other = replace(program, body=another_order(program.body, draw, set(), registers=False))
        try:
            verify_program(other)
            noticed += outputs(other, given) != want
        except VerifyError:
            noticed += 1
    assert noticed >= 9
