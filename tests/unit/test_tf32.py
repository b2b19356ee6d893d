"""tf32: what it rounds to, which products a graph has it in, and the unit that multiplies it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu_hand import gemm
from tests.interpreter import interpret
from tests.verifiers.program import verify_program
from tunegrad.config import check_numerics
from tunegrad.devices.cuda.architectures import typical
from tunegrad.devices.host.facts import host_target
from tunegrad.errors import DTypeError, IllegalAction
from tunegrad.frontend import Tensor
from tunegrad.ir import graph as g
from tunegrad.ir.expr import Op
from tunegrad.ir.fusion import schedule as fuse
from tunegrad.ir.graph import GraphOp, topological
from tunegrad.ir.interpret.evaluate import evaluate, in_float64
from tunegrad.ir.interpret.numeric import compute
from tunegrad.ir.program import Compute, MatLoad, MatMul, walk
from tunegrad.opts import Schedule, Space
from tunegrad.planning import prepared

TARGET = typical("sm_80")
UNIT = "m16n8k8_tf32_f32"
PLAIN = (
    "tile(axis=a, size=16) tile(axis=b, size=8) tile(axis=ra, size=8) "
    f"tensorcore(unit={UNIT}, m=a1, n=b1, k=ra1) thread(axis=a0, count=0) thread(axis=b0, count=0)"
)
STAGED = (
    "tile(axis=a, size=32) tile(axis=a1, size=16) tile(axis=b, size=32) tile(axis=b1, size=16) "
    "tile(axis=b2, size=8) tile(axis=ra, size=32) tile(axis=ra1, size=8) "
    "reorder(order=(a0, b0, a1, b1, ra0, ra1, b2, a2, b3, ra2)) "
    "thread(axis=a0, count=0) thread(axis=b0, count=0) local(axis=a1) local(axis=b1) "
    f"upcast(axis=b2) unroll(axis=ra1) tensorcore(unit={UNIT}, m=a2, n=b3, k=ra2) "
    "stage(param=p1, at=ra0, layout=(a1, a2, a3, ra1, ra2)) "
    "stage(param=p2, at=ra0, layout=(b1, b2, b3, b4, ra1, ra2))"
)


# ---- the number


def nearest(x: np.ndarray) -> np.ndarray:
    """To 11 significant digits, ties away from zero, written in float64; f32's least exponent."""
    wide = x.astype(np.float64)
    _, exponent = np.frexp(wide)
    step = np.exp2(np.maximum(exponent, -125) - 11.0)
    return np.copysign(np.floor(np.abs(wide) / step + 0.5) * step, wide)


def test_the_nearest_of_eleven_digits_away_from_zero_on_ties():
    bits = np.arange(0, 1 << 32, 104_729, dtype=np.uint64).astype(np.uint32)
    ties = ((bits & np.uint32(0xFFFFE000)) | np.uint32(0x1000)).view(np.float32)
    for x in (bits.view(np.float32), ties):
        finite = x[np.isfinite(x)]
        got, want = compute(Op.TF32, finite), nearest(finite)
        largest = np.abs(want) >= 2.0**128
        assert np.isinf(got[largest]).all()
        np.testing.assert_array_equal(got[~largest].astype(np.float64), want[~largest])


def test_infinities_and_nan_stay_and_so_does_what_is_rounded():
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, 2047.0], np.float32)
    np.testing.assert_array_equal(compute(Op.TF32, x), x)
    once = compute(Op.TF32, np.float32([1 / 3, 1e-40, 3e38]))
    np.testing.assert_array_equal(compute(Op.TF32, once), once)


def test_only_f32_is_rounded_to_it():
    with pytest.raises(DTypeError, match="tf32: f64 does not fit"):
        g.elementwise(Op.TF32, Tensor.input("x", (4,), "f64").node)


# ---- the graph


def weights(*shape):
    values = np.random.default_rng(sum(shape)).standard_normal(shape)
    return Tensor.constant(values.astype(np.float32))


def rounded(tensor, numerics="tf32", target=TARGET, dtype="f32"):
    """How many factors of a graph are rounded, as it is planned."""
    found = topological(prepared((tensor.node,), numerics, target, dtype))
    return sum(n.op is GraphOp.MAP and n.arg is Op.TF32 for n in found)


def product():
    return Tensor.input("x", (32, 64), "f32") @ weights(64, 16)


def test_it_is_declared_and_for_units_that_multiply_it():
    assert check_numerics("tf32") == "tf32"
    assert rounded(product()) == 2
    for numerics in ("contract", "strict", "bf16-dot"):
        assert rounded(product(), numerics) == 0
    assert rounded(product(), target=host_target(1)) == 0
    assert rounded(product(), target=typical("sm_90a")) == 2


IMAGE = Tensor.input("x", (2, 16, 8, 8), "f32")
PRODUCTS = {
    "convolution": (lambda: IMAGE.conv2d(weights(24, 16, 3, 3), padding=1), 2),
    "first convolution": (
        lambda: Tensor.input("x", (1, 3, 8, 8), "f32").conv2d(weights(8, 3, 3, 3)), 0,
    ),
    "depthwise": (lambda: IMAGE.conv2d(weights(16, 1, 3, 3), groups=16), 0),
    "matrix times vector": (
        lambda: Tensor.input("w", (64, 64), "f32") @ Tensor.input("x", (64,), "f32"), 0,
    ),
    "scores": (
        lambda: Tensor.input("q", (2, 16, 8), "f32") @ Tensor.input("k", (2, 8, 16), "f32"), 2,
    ),
    "of halves": (
        lambda: Tensor.input("q", (16, 8), "f16").cast("f32")
        @ Tensor.input("k", (8, 16), "f16").cast("f32"), 0,
    ),
    "in f64": (lambda: Tensor.input("q", (16, 8), "f64") @ Tensor.input("k", (8, 16), "f64"), 0),
    "a sum": (lambda: IMAGE.sum(1), 0),
    "squares": (lambda: (IMAGE * IMAGE).sum(1), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_that_a_unit_can_do_are_rounded(name):
    made, count = PRODUCTS[name]
    assert rounded(made()) == count


def test_a_model_in_halves_keeps_its_units():
    assert rounded(product(), dtype="f16") == 0


def test_a_graph_without_products_keeps_its_nodes():
    outputs = ((IMAGE + 1.0).node,)
    assert prepared(outputs, "tf32", TARGET) == prepared(outputs, "contract", TARGET)


def test_kernels_read_f32_and_say_that_they_round():
    """Nothing rounded is stored: another reader of the tensor, as a residual, has all of it."""
    x = Tensor.input("x", (32, 64), "f32")
    y = (x @ weights(64, 32)).relu()
    z = y @ weights(32, 32) + y
    kernels = [x.kernel for x in fuse(prepared((z.node,), "tf32", TARGET)).launches]
    assert len(kernels) == 2
    for k in kernels:
        assert "mul(tf32(" in k.text
        assert {p.dtype.name for p in k.params} == {"f32"}
    assert kernels[0].key != fuse(prepared((z.node,), "contract", TARGET)).launches[0].kernel.key


def test_float64_reference_rounds_as_the_kernel_does():
    kernel = gemm(16, 8, 8, "tf32")
    assert "f64(tf32(p1[a, ra]))" in in_float64(kernel).text


def test_graph_evaluates_to_the_product_of_rounded_factors():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((16, 8), (8, 4)))
    y = Tensor.input("a", a.shape, "f32") @ Tensor.input("b", b.shape, "f32")
    (found,) = evaluate(prepared((y.node,), "tf32", TARGET), {"a": a, "b": b})
    np.testing.assert_allclose(found, nearest(a) @ nearest(b), rtol=1e-5, atol=1e-6)


# ---- the unit


def lowered(kernel, text, target=TARGET):
    program = Space(kernel, target).lower(Schedule.parse(text))
    assert verify_program(program, target) == ()
    return program


def run(program, a, b, out):
    interpret(program, {"p0": out, "p1": a.reshape(-1), "p2": b.reshape(-1)})
    return out


@pytest.mark.parametrize("text", [PLAIN, STAGED], ids=["plain", "staged"])
@pytest.mark.parametrize("transposed", [False, True])
def test_products_are_those_of_rounded_factors(text, transposed):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    program = lowered(gemm(64, 64, 64, "tf32", transposed=transposed), text)
    got = run(program, a, b, np.full(64 * 64, np.nan, np.float32)).reshape(64, 64)
    want = nearest(a) @ (nearest(b).T if transposed else nearest(b))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)
    exact = a.astype(np.float64) @ (b.T if transposed else b)
    assert np.abs(got - exact).max() > 10 * np.abs(got - want).max()


def test_every_element_is_in_its_place():
    """One-hot rows of A: each element of B shows in one place, all of its 11 digits."""
    program, rng = lowered(gemm(16, 8, 8, "tf32"), PLAIN), np.random.default_rng(0)
    b = rng.standard_normal((8, 8)).astype(np.float32)
    for i in range(16):
        for k in range(8):
            a = np.zeros((16, 8), np.float32)
            a[i, k] = 1.0
            want = np.zeros((16, 8))
            want[i] = nearest(b)[k]
            got = run(program, a, b, np.full(128, np.nan, np.float32))
            np.testing.assert_array_equal(got.reshape(16, 8), want)


def test_each_register_is_rounded_once_where_it_is_loaded():
    program = lowered(gemm(64, 64, 64, "tf32", transposed=True), STAGED)
    products = [i for i in walk(program.body) if isinstance(i, MatMul)]
    loads = [i for i in walk(program.body) if isinstance(i, MatLoad)]
    rounds = [i for i in walk(program.body) if isinstance(i, Compute) and i.op is Op.TF32]
    assert len(products) == 2 * 4
    assert sum(len(i.ids) for i in loads) == len(rounds) == 4 * (4 + 2 * 2)


@pytest.mark.parametrize(
    ("kernel", "text", "rule"),
    [
        (gemm(32, 16, 32, "f32"), PLAIN,
         "a sum of f32 x f32 in f32, the unit's is of tf32 in f32"),
        (gemm(32, 16, 32, "tf32"), PLAIN.replace(UNIT, "m16n8k16_f16_f32").replace(
            "axis=ra, size=8", "axis=ra, size=16"),
         "a sum of tf32 x tf32 in f32, the unit's is of f16 in f32"),
        (gemm(32, 16, 32, "tf32"), PLAIN.replace("axis=ra, size=8", "axis=ra, size=4"),
         "k is loop ra1 of extent 4, not 8"),
    ],
)  # fmt: skip
def test_what_is_not_declared_is_refused(kernel, text, rule):
    with pytest.raises(IllegalAction, match=rule):
        Space(kernel, TARGET).tree(Schedule.parse(text))


def test_an_older_gpu_has_no_such_unit():
    with pytest.raises(IllegalAction, match=f"no unit '{UNIT}' on target"):
        Space(gemm(32, 16, 32, "tf32"), host_target(1)).tree(Schedule.parse(PLAIN))


def test_default_schedules_use_it():
    for arch in ("sm_80", "sm_89", "sm_90a"):
        space = Space(gemm(256, 256, 256, "tf32"), typical(arch))
        assert f"tensorcore(unit={UNIT}" in space.defaults()[0].text
        plain = Space(gemm(256, 256, 256, "f32"), typical(arch))
        assert "tensorcore" not in plain.defaults()[0].text
