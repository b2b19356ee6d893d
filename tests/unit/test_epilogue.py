"""Sums that go through shared memory before they are stored: the same results, in wide accesses
that no two work-items contend for.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.banks import turns
from tests.gpu_hand import CONV, gemm, hgemm, image_kernel
from tests.interpreter import interpret
from tests.product_kernels import KERNELS, MORE, residual
from tests.sketch_checks import agrees
from tests.unit.test_tensorcore import PLAIN, TARGET
from tests.verifiers.looptree import verify_looptree
from tests.verifiers.program import verify_program
from tunegrad.devices.cuda.architectures import typical
from tunegrad.errors import IllegalAction
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import Barrier, If, Load, Program, Store, walk
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule, Space
from tunegrad.render.c_family import Joined, joined
from tunegrad.render.cuda import render_cuda


def with_epilogue(kernel: Kernel, target: Target = TARGET) -> Schedule:
    (schedule,) = Space(kernel, target).defaults()
    plain = schedule.text.split(" epilogue(")[0]
    return Schedule.parse(f"{plain} epilogue(param={kernel.outputs[0].name})")


def lowered(kernel: Kernel, schedule: Schedule) -> Program:
    space = Space(kernel, TARGET)
    verify_looptree(space.tree(schedule))
    program = space.lower(schedule)
    verify_program(program, TARGET)
    return program


@pytest.mark.parametrize("name", [*KERNELS, *MORE])
def test_results_are_what_the_kernel_says(name: str) -> None:
    kernel = (KERNELS | MORE)[name]()
    schedule = with_epilogue(kernel)
    lowered(kernel, schedule)
    agrees(kernel, schedule, TARGET)


def test_rows_of_a_tile_past_the_last_one_are_not_stored() -> None:
    """Of 40 rows in tiles of 16 the last half tile is none: it was stored, past the end."""
    kernel = gemm(40, 32, 96, transposed=True)
    schedule = Schedule.parse(
        "tile(axis=a, size=16) tile(axis=b, size=8) tile(axis=ra, size=16) "
        "reorder(order=(b0, a0, a1, b1, ra0, ra1)) local(axis=b0) upcast(axis=a0) "
        "tensorcore(unit=m16n8k16_f16_f32, m=a1, n=b1, k=ra1) epilogue(param=p0)"
    )
    lowered(kernel, schedule)
    agrees(kernel, schedule, TARGET)


def test_a_schedule_by_hand_of_an_image_has_one_too() -> None:
    kernel = image_kernel(2, 16, 8)
    out = kernel.outputs[0].name
    agrees(kernel, Schedule.parse(f"{CONV} epilogue(param={out})"), TARGET)


def accesses(program: Program) -> dict[tuple[str, str], set[int]]:
    """Bytes of what accesses buffers besides copies, as CUDA C++ has them."""
    found: dict[tuple[str, str], set[int]] = {}

    def widths(i: Load | Store) -> list[int]:
        size = i.vtype.dtype.itemsize
        terms = [c for _, c in i.offset.terms]
        fits = [n for n in (8, 4, 2) if n * size <= 16]
        return [n for n in fits if all(c % n == 0 for c in (i.offset.const, *terms))]

    def visit(body) -> None:
        for i in joined(body, widths):
            parts = i.parts if isinstance(i, Joined) else (i,)
            first = parts[0]
            if isinstance(first, Load | Store):
                kind = "load" if isinstance(first, Load) else "store"
                size = first.vtype.dtype.itemsize * len(parts)
                found.setdefault((kind, first.buffer), set()).add(size)
            for inner in (getattr(first, "body", ()), getattr(first, "orelse", ())):
                visit(inner)

    visit(program.body)
    return found


def test_halves_are_stored_and_residuals_read_sixteen_bytes_at_a_time() -> None:
    kernel = residual(1024, 1024, 256)
    (plain,) = Space(kernel, TARGET).defaults()
    names = {p.shape: p.name for p in kernel.params if p.role != "out"}
    out = kernel.outputs[0].name
    program = lowered(kernel, with_epilogue(kernel))
    found = accesses(program)
    assert found["store", out] == {16}
    assert any(found.get(("load", n)) == {16} for n in names.values())
    before = accesses(lowered(kernel, Schedule.parse(plain.text.split(" epilogue(")[0])))
    assert before["store", out] == {4}


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("size", [256, 1024, 4096])
def test_nobody_waits_for_a_bank(size: int, transposed: bool) -> None:
    for kernel in (
        gemm(size, size, 512, transposed=transposed),
        residual(size, size, 512),
    ):
        found = turns(lowered(kernel, with_epilogue(kernel)))
        assert ("store", "v0.slice") in found
        assert ("load", "v0.slice") in found
        assert set(found.values()) == {1}, (size, found)


def test_a_product_by_hand_has_no_bank_conflict_either() -> None:
    schedule = Schedule.parse(f"{hgemm(4).text} epilogue(param=p0)")
    program = lowered(gemm(256, 256, 128), schedule)
    assert set(turns(program).values()) == {1}
    (alloc,) = [a for a in program.allocs if a.name == "v0.slice"]
    assert alloc.size == 32 * 152, "rows of 128 in runs of 36, as long as 8 modulo 16"
    barriers = [i for i in walk(program.body) if isinstance(i, Barrier)]
    assert len(barriers) == 2 * 4 - 1, "four slices, and none before the first one"


@pytest.mark.parametrize("stride", [1, 2])
def test_pixels_that_are_one_loop_are_stored_once(stride: int) -> None:
    """Rows of 28 pixels, which items share out as they come: their divisions are gone before."""
    kernel, target = image_kernel(32, 128, 28 * stride, stride), typical("sm_90a")
    space = Space(kernel, target)
    (schedule,) = space.defaults()
    assert "epilogue(" in schedule.text
    assert verify_program(space.lower(schedule), target) is not None


def test_rows_past_the_end_are_asked_for_once_a_run() -> None:
    kernel = residual(1000, 1024, 64)
    program = lowered(kernel, with_epilogue(kernel))
    assert any(isinstance(i, If) for i in walk(program.body))
    assert accesses(program)["store", kernel.outputs[0].name] == {16}


def test_the_same_text_again() -> None:
    kernel = residual(64, 128, 64)
    schedule = with_epilogue(kernel)
    texts = {
        render_cuda(Space(kernel, TARGET).lower(Schedule.parse(schedule.text))) for _ in range(2)
    }
    assert len(texts) == 1
    assert "sums go through shared memory to the items that store neighbours" in str(
        Space(kernel, TARGET).tree(schedule)
    )


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("epilogue(param=p0)", "no matrix unit makes the sums"),
        (f"{PLAIN} epilogue(param=p1)", "no output of that name; valid: p0"),
        (f"{PLAIN} epilogue(param=p0) epilogue(param=p0)", "for p0 already"),
    ],
)
def test_what_is_not_legal_says_why(text: str, rule: str) -> None:
    with pytest.raises(IllegalAction, match=rule):
        Space(gemm(32, 16, 32), TARGET).tree(Schedule.parse(text))


def test_more_shared_memory_than_there_is_is_refused_wherever_it_is_asked_for() -> None:
    small = replace(TARGET, shared_bytes=(64 << 10) + 4 * 32 * 152 - 1)
    kernel = gemm(1024, 1024, 1024)
    for text in (
        f"{hgemm(4).text} epilogue(param=p0)",
        hgemm(4).text.replace(" pipeline", " epilogue(param=p0) pipeline"),
    ):
        with pytest.raises(IllegalAction, match="84992 bytes of shared memory: 84991"):
            Space(kernel, small).tree(Schedule.parse(text))
        enough = replace(small, shared_bytes=small.shared_bytes + 1)
        Space(kernel, enough).lower(Schedule.parse(text))


def test_sums_of_doubles_go_the_same_way() -> None:
    kernel = gemm(64, 64, 32, "f64", "f64")
    schedule = with_epilogue(kernel)
    program = lowered(kernel, schedule)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((64, 32)), rng.standard_normal((32, 64))
    out = np.full(64 * 64, np.nan)
    interpret(program, {"p0": out, "p1": a.reshape(-1), "p2": b.reshape(-1)})
    np.testing.assert_allclose(out.reshape(64, 64), a @ b, rtol=1e-12)
