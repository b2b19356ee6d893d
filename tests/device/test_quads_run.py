"""Sums of products of bytes run: compiled code gives the interpreter's bits at every width, by
VNNI where this processor has it, and models give numpy's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from quad_builders import CONVS, MATMULS, conv, dot_kernel, drawn, in_fours, matmul, memory
from word_checks import runs_alike

import tunegrad as tg
from tests.cuda_host import cuda_host
from tests.interpreter import interpret, pack_buffers
from tests.opencl_batches import platform_of
from tests.opencl_device import opencl_device
from tests.programs import Programs
from tests.schedule_checks import Arrays
from tunegrad.compiling import Payload
from tunegrad.compiling.candidate import reference
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.verifying.tolerance import compare
from tunegrad.frontend import Tensor
from tunegrad.frontend.onnx.elementwise import CASTS
from tunegrad.frontend.onnx.node import NodeView
from tunegrad.frontend.onnx.products import PRODUCTS
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target
from tunegrad.ir.variants import parts_of
from tunegrad.opts import Schedule, Space
from tunegrad.search import RandomChooser

TARGET = host_target(1)
PLAIN = replace(TARGET, features=tuple(f for f in TARGET.features if "vnni" not in f))
KINDS = [("u8", "i8"), ("i8", "u8"), ("i8", "i8"), ("u8", "u8")]

needs_vnni = pytest.mark.skipif(not TARGET.vnni, reason="this processor has no VNNI")


@pytest.mark.parametrize("target", [TARGET, PLAIN], ids=["this CPU", "without VNNI"])
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
@pytest.mark.parametrize(("a", "b"), KINDS[:2])
def test_every_width_gives_what_the_interpreter_does(
    a: str, b: str, lanes: int, target: Target
) -> None:
    kernel = dot_kernel(matmul((3, 36), (36, 32), a, b))
    text = f"tile(axis=b, size={lanes}) reorder(order=(a, b0, b1, ra)) vectorize(axis=b1)"
    program = Space(kernel, target).lower(Schedule.parse(text if lanes > 1 else ""))
    runs_alike(kernel, program, target, memory)


@pytest.mark.skipif(
    not PLAIN.widens_bytes, reason="this processor has no vectors of 16-bit products"
)
@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize(("a", "b"), KINDS)
def test_bytes_of_any_sign_are_multiplied_in_16_bits(a: str, b: str, lanes: int) -> None:
    case = matmul((3, 36), (36, 32), a, b)
    kernel = in_fours(case, PLAIN).launches[-1].kernel
    assert f"{a}x4[3,9]" in kernel.text
    text = f"tile(axis=b, size={lanes}) reorder(order=(a, b0, b1, ra)) vectorize(axis=b1)"
    program = Space(kernel, PLAIN).lower(Schedule.parse(text))
    runs_alike(kernel, program, PLAIN, memory)


def _halves(kind: str) -> tuple[Kernel, ...]:
    """The kernels of a convolution in 16 bits: a transform, products, and the results."""
    case = conv(8, 20, 1, kind, constant=True)
    (kernel,) = (x.kernel for x in in_fours(case).launches if "dot4(" in x.kernel.text)
    return parts_of(kernel, "exact_winograd4")


@pytest.mark.parametrize("target", [TARGET, PLAIN], ids=["this CPU", "without VNNI"])
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
def test_every_width_multiplies_halves_as_the_interpreter_does(lanes: int, target: Target) -> None:
    _, product, _ = _halves("u8")
    text = f"tile(axis=c, size={lanes}) reorder(order=(a, b, c0, c1, ra)) vectorize(axis=c1)"
    program = Space(product, target).lower(Schedule.parse(text if lanes > 1 else ""))
    runs_alike(product, program, target, memory)


@pytest.mark.parametrize("kind", ["u8", "i8"])
def test_random_schedules_of_halves_agree_with_the_interpreter(kind: str) -> None:
    for seed, kernel in enumerate(_halves(kind) * 2):
        space = Space(kernel, TARGET)
        schedule = space.sample(RandomChooser(random.Random(seed)))
        runs_alike(kernel, space.lower(schedule), TARGET, memory, seed)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("seed", range(8))
def test_random_schedules_agree_with_the_interpreter(seed: int, threads: int) -> None:
    target = replace(TARGET, threads=threads)
    for case in (matmul((29, 52), (52, 40), constant=True), conv(8, 20, 1, "i8", constant=True)):
        for launch in in_fours(case).launches:
            space = Space(launch.kernel, target)
            schedule = space.sample(RandomChooser(random.Random(seed)))
            runs_alike(launch.kernel, space.lower(schedule), target, memory, seed)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("a", "b"), KINDS)
def test_models_give_numpys_sums(a: str, b: str, threads: int) -> None:
    for left, right in MATMULS:
        case = matmul(left, right, a, b)
        weights = case.values["b"]
        model = tg.compile(
            lambda x, w=weights: x.cast("i32") @ Tensor.constant(w).cast("i32"),
            Tensor(case.values["a"]), threads=threads, store=False,
        )  # fmt: skip
        wide = [case.values[n].astype(np.int64) for n in "ab"]
        np.testing.assert_array_equal(model(case.values["a"]), wide[0] @ wide[1])


@pytest.mark.parametrize(("a", "b"), KINDS)
def test_convolutions_give_numpys_sums(a: str, b: str) -> None:
    for channels, filters, stride in CONVS:
        case = conv(channels, filters, stride, a, b)
        image, taps = (case.values[n] for n in "ab")
        weights = Tensor.constant(taps).cast("i32")
        model = tg.compile(
            lambda x, w=weights, s=stride: x.cast("i32").conv2d(w, stride=s, padding=1),
            Tensor(image), threads=1, store=False,
        )  # fmt: skip
        padded = np.pad(image.astype(np.int64), ((0, 0), (0, 0), (1, 1), (1, 1)))
        views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        views = views[:, :, ::stride, ::stride]
        np.testing.assert_array_equal(
            model(image), np.einsum("ncyxhw,ochw->noyx", views, taps.astype(np.int64))
        )


@needs_vnni
def test_sums_wrap_around_and_do_not_saturate() -> None:
    """Terms of 255 * 127, and more than 2^31 in all."""
    a, b = np.full((3, 70_000), 255, np.uint8), np.full((70_000, 32), 127, np.int8)
    model = tg.compile(
        lambda x: x.cast("i32") @ Tensor.constant(b).cast("i32"), Tensor(a), threads=1, store=False
    )
    assert "int8-dot" in model.report()[-1].kernel
    want = np.int64(255 * 127 * 70_000).astype(np.int32)
    np.testing.assert_array_equal(model(a), np.full((3, 32), want))


def test_reference_of_verification_accepts_the_sums_and_finds_a_lost_byte() -> None:
    kernel = dot_kernel(matmul((17, 64), (64, 48)))
    device = CpuDevice(TARGET)
    program = Space(kernel, TARGET).lower(Space(kernel, TARGET).defaults()[0])
    arrays = {p.name: memory(p.dtype, p.size, 9) for p in kernel.params}
    name = kernel.outputs[0].name
    expected = reference(Payload(kernel, "", device), arrays)[name]
    with Programs(device) as programs:
        code = programs.compile(program)
        programs.run(code, arrays)
        assert compare(arrays[name], "i32", expected).first == -1
        arrays[kernel.params[1].name].view(np.uint8).reshape(17, 64)[3, 7] ^= 1
        programs.run(code, arrays)
    assert compare(arrays[name], "i32", expected).first // 48 == 3


def _of_words(target: Target) -> Iterator[tuple[Program, Arrays]]:
    """Programs that take words apart, each with a name of its own, and what they are given."""
    for a, b in KINDS[:2]:
        cases = matmul((17, 32), (32, 19), a, b), matmul((5, 7), (7, 3), a, b)
        kernels = [x.kernel for case in cases for x in in_fours(case).launches]
        for at, kernel in enumerate((*kernels, *_halves(a))):
            space = Space(kernel, target)
            program = replace(space.lower(space.defaults()[0]), name=f"{a}_{at}")
            mine = {p.name: memory(p.dtype, p.size, 4) for p in kernel.params}
            yield program, pack_buffers(program, mine)


def _right(program: Program, given: Arrays, found: Arrays) -> None:
    interpret(program, given)
    (out,) = (p.name for p in program.params if p.role == "out")
    np.testing.assert_array_equal(found[out], given[out])


def test_gpu_text_takes_words_apart_as_cuda() -> None:
    device = cuda_host()
    with Programs(device) as programs:
        for program, given in _of_words(device.target):
            found = {name: array.copy() for name, array in given.items()}
            programs.run(programs.compile(program), found)
            _right(program, given, found)


def test_gpu_text_takes_words_apart_as_opencl() -> None:
    device = opencl_device()
    cases, on = list(_of_words(device.target)), platform_of(device)
    kernels = on.build([program for program, _ in cases])
    for program, given in cases:
        _right(program, given, on.run(program, kernels[program.name], given))


X, W = drawn((5, 12), "u8", 1), drawn((12, 7), "i8", 2)


def _onnx(op: str, *operands: np.ndarray | Tensor) -> Callable[[Tensor], Tensor]:
    """A node of ONNX whose first operand is the model's input."""
    made = [o if isinstance(o, Tensor) else Tensor.constant(o) for o in operands]
    return lambda x: PRODUCTS[op](NodeView(op, "n", 21, {}, (x, *made)))


ZEROS = {"of all": np.array(131, np.uint8), "of rows": np.arange(100, 105, dtype=np.uint8)}


@pytest.mark.parametrize("zero", ZEROS)
@pytest.mark.parametrize("weights", ["u8", "i8"])
def test_zero_points_are_exact(zero: str, weights: str) -> None:
    w = drawn((12, 7), weights, 2)
    points = ZEROS[zero]
    middle = np.array(128 if weights == "u8" else 0, w.dtype)
    model = tg.compile(_onnx("MatMulInteger", w, points, middle), Tensor(X), threads=1, store=False)
    assert sum("int8-dot" in row.kernel for row in model.report()) == TARGET.multiplies_bytes
    left = X.astype(np.int64) - (points[:, None] if points.ndim else points)
    np.testing.assert_array_equal(model(X), left @ (w.astype(np.int64) - middle))


def test_dynamically_quantised_products_are_exact() -> None:
    """DynamicQuantizeLinear, then MatMulInteger with its zero point."""

    def quantised(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, _, zero = CASTS["DynamicQuantizeLinear"](NodeView("", "n", 21, {}, (x,)))
        operands = (q, Tensor.constant(W), zero)
        product = PRODUCTS["MatMulInteger"](NodeView("MatMulInteger", "n", 21, {}, operands))
        return q, zero, product

    x = np.random.default_rng(0).standard_normal((5, 12)).astype(np.float32) + 0.5
    model = tg.compile(quantised, Tensor(x), threads=1, store=False)
    assert sum("int8-dot" in row.kernel for row in model.report()) == TARGET.multiplies_bytes
    q, zero, product = model(x)
    assert zero > 0
    np.testing.assert_array_equal(product, (q.astype(np.int64) - zero) @ W.astype(np.int64))


@pytest.mark.parametrize("zero", [0, 113])
def test_quantised_convolutions_are_padded_with_their_zero_point(zero: int) -> None:
    image, taps = drawn((1, 8, 6, 5), "u8", 1), drawn((4, 8, 3, 3), "i8", 2)
    made = [Tensor.constant(o) for o in (taps, np.array(zero, np.uint8))]
    model = tg.compile(
        lambda x: PRODUCTS["ConvInteger"](
            NodeView("ConvInteger", "n", 21, {"pads": [1] * 4}, (x, *made))
        ),
        Tensor(image), threads=1, store=False,
    )  # fmt: skip
    (product,) = (row.kernel for row in model.report() if row.kernel.startswith("conv3x3"))
    assert ("int8-dot" in product) == TARGET.multiplies_bytes
    padded = np.pad(image.astype(np.int64) - zero, ((0, 0), (0, 0), (1, 1), (1, 1)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    want = np.einsum("ncyxhw,ochw->noyx", views, taps.astype(np.int64))
    np.testing.assert_array_equal(model(image), want)
