"""tensorcore: a tile of a product by a matrix unit, from the action to the text."""

import numpy as np
import pytest

from tests.gpu_hand import gemm
from tests.interpreter import interpret
from tests.verifiers.looptree import verify_looptree
from tests.verifiers.program import verify_program
from tunegrad.devices.cuda.architectures import typical
from tunegrad.errors import IllegalAction
from tunegrad.ir.dtypes import DTYPES
from tunegrad.ir.interpret.numeric import to_compute, to_memory
from tunegrad.ir.looptree import LoopKind
from tunegrad.ir.program import MatMul, walk
from tunegrad.opts import Schedule, Space
from tunegrad.opts.actions import Tensorcore

TARGET = typical("sm_80")
UNIT = "m16n8k16_f16_f32"
PLAIN = (
    f"tile(axis=a, size=16) tile(axis=b, size=8) tile(axis=ra, size=16) "
    f"tensorcore(unit={UNIT}, m=a1, n=b1, k=ra1) thread(axis=a0, count=0) thread(axis=b0, count=0)"
)
STAGED = (
    "tile(axis=a, size=32) tile(axis=a1, size=16) tile(axis=b, size=32) tile(axis=b1, size=16) "
    "tile(axis=b2, size=8) tile(axis=ra, size=32) tile(axis=ra1, size=16) "
    "reorder(order=(a0, b0, a1, b1, ra0, ra1, b2, a2, b3, ra2)) "
    "thread(axis=a0, count=0) thread(axis=b0, count=0) local(axis=a1) local(axis=b1) "
    f"upcast(axis=b2) unroll(axis=ra1) tensorcore(unit={UNIT}, m=a2, n=b3, k=ra2) "
    "stage(param=p1, at=ra0, layout=()) stage(param=p2, at=ra0, layout=())"
)


def lowered(kernel, text):
    space = Space(kernel, TARGET)
    tree = space.tree(Schedule.parse(text))
    verify_looptree(tree)
    program = space.lower(Schedule.parse(text))
    assert verify_program(program, TARGET) == ()
    return tree, program


def test_loops_of_a_unit_become_items_and_registers():
    tree, program = lowered(gemm(32, 16, 32), PLAIN)
    kinds = {x.name: x.kind for x in tree.loops}
    m = tree.matrix
    assert [kinds[x] for x in (m.high, m.row, m.column, m.pair, m.k)] == [
        LoopKind.UPCAST, LoopKind.LOCAL, LoopKind.LOCAL, LoopKind.UPCAST, LoopKind.MATRIX
    ]  # fmt: skip
    assert (program.threads, program.local) == (4, 32)
    products = [i for i in walk(program.body) if isinstance(i, MatMul)]
    assert [(len(i.a), len(i.b), len(i.c)) for i in products] == [(4, 2, 4)]


def test_tiles_of_warps_share_what_is_staged():
    _, program = lowered(gemm(64, 64, 64), STAGED)
    assert (program.threads, program.local) == (4, 4 * 32)
    assert {a.space for a in program.allocs} == {"shared"}
    products = [i for i in walk(program.body) if isinstance(i, MatMul)]
    assert len(products) == 2 * 2, "two tiles along n, two steps of k"


@pytest.mark.parametrize("text", [PLAIN, STAGED])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_products_are_what_numpy_says(text, transposed, dtype):
    kernel = gemm(64, 64, 64, dtype, transposed=transposed)
    _, program = lowered(kernel, text.replace("_f16_", f"_{dtype}_"))
    rng = np.random.default_rng(0)
    a, b = (to_memory(rng.standard_normal((64, 64)), DTYPES[dtype]) for _ in range(2))
    out = np.full(64 * 64, np.nan, np.float32)
    interpret(program, {"p0": out, "p1": a.reshape(-1), "p2": b.reshape(-1)})
    left, right = (to_compute(x, DTYPES[dtype]).astype(np.float64) for x in (a, b))
    want = left @ (right.T if transposed else right)
    np.testing.assert_allclose(out.reshape(64, 64), want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("transposed", [False, True])
def test_bytes_are_multiplied_as_integers_of_32_bits(transposed):
    """Every value that a byte has, in sums that no 16 bits hold."""
    text = (
        "tile(axis=a, size=16) tile(axis=b, size=8) tile(axis=ra, size=32) "
        "tensorcore(unit=m16n8k32_i8_i32, m=a1, n=b1, k=ra1) thread(axis=a0, count=0)"
    )
    _, program = lowered(gemm(32, 16, 64, "i8", "i32", transposed=transposed), text)
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (32, 64)), rng.integers(-128, 128, (64, 16))
    a[:, :2] = b[:2] = -128
    out = np.zeros(32 * 16, np.int32)
    held = (b.T if transposed else b).astype(np.int8)
    interpret(program, {"p0": out, "p1": a.astype(np.int8).reshape(-1), "p2": held.reshape(-1)})
    np.testing.assert_array_equal(out.reshape(32, 16), a @ b)


def test_doubles_are_multiplied_in_tiles_of_eight():
    text = (
        "tile(axis=a, size=8) tile(axis=b, size=8) tile(axis=ra, size=4) "
        "tensorcore(unit=m8n8k4_f64_f64, m=a1, n=b1, k=ra1) thread(axis=a0, count=0)"
    )
    _, program = lowered(gemm(16, 8, 12, "f64", "f64"), text)
    rng = np.random.default_rng(0)
    a, b, out = rng.standard_normal((16, 12)), rng.standard_normal((12, 8)), np.zeros(128)
    interpret(program, {"p0": out, "p1": a.reshape(-1), "p2": b.reshape(-1)})
    np.testing.assert_allclose(out.reshape(16, 8), a @ b, rtol=1e-12)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (f"tensorcore(unit={UNIT}, m=a, n=b, k=ra)", "m is loop a of extent 32, not 16"),
        ("tensorcore(unit=m1n1k1, m=a, n=b, k=ra)", "no unit 'm1n1k1'.*m16n8k16_f16_f32"),
        (
            (
                "tile(axis=a, size=16) tile(axis=b, size=8) tile(axis=ra, size=16) "
                "tensorcore(unit=m16n8k16_bf16_f32, m=a1, n=b1, k=ra1)"
            ),
            "a sum of f16 x f16 in f32, the unit's is of bf16 in f32",
        ),
        (PLAIN + " local(axis=ra0)", "group"),
        (PLAIN + " vectorize(axis=ra0)", "."),
        (PLAIN + " tile(axis=ra0, size=2)", "beside a matrix unit"),
        (
            (
                "tile(axis=a, size=16) tile(axis=b, size=8) tile(axis=ra, size=16) local(axis=b0) "
                f"tensorcore(unit={UNIT}, m=b1, n=a1, k=ra1)"
            ),
            "m is loop b1 of extent 8",
        ),
    ],
)
def test_what_a_unit_can_not_do_is_refused(text, rule):
    with pytest.raises(IllegalAction, match=rule):
        Space(gemm(32, 16, 32), TARGET).tree(Schedule.parse(text))


def test_a_tail_of_k_is_refused():
    with pytest.raises(IllegalAction, match="axis ra of 40 has a tail"):
        Space(gemm(32, 16, 40), TARGET).tree(Schedule.parse(PLAIN))


def multiplied(kernel, text, sizes):
    """The product of a schedule, by the interpreter, and by numpy."""
    m, n, k = sizes
    _, program = lowered(kernel, text)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((m, k), (k, n)))
    out = np.full(m * n, np.nan, np.float32)
    interpret(program, {"p0": out, "p1": a.reshape(-1), "p2": b.reshape(-1)})
    return out.reshape(m, n), a.astype(np.float64) @ b.astype(np.float64)


def test_tails_of_m_and_n_and_a_padded_k_are_masked():
    sizes = 40, 21, 27
    text = f"pad(axis=ra, multiple=16) {PLAIN}"
    np.testing.assert_allclose(*multiplied(gemm(*sizes), text, sizes), rtol=1e-5, atol=1e-4)


def test_a_space_offers_what_fits():
    space = Space(gemm(32, 16, 32), TARGET)
    text = "tile(axis=a, size=16) tile(axis=b, size=8) tile(axis=ra, size=16)"
    offered = list(Tensorcore.options(space.tree(Schedule.parse(text))))
    assert [str(x) for x in offered] == [f"tensorcore(unit={UNIT}, m=a1, n=b1, k=ra1)"]
