"""The steps of a GPU session that ask whether results are right: inline PTX, matrix units, kernels
of every kind by default and random schedules, and kernels that do what they may not.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from tests.gpu_hand import CONV, CONV_BLOCKS, F32_GEMM, GROUPED, gemm, hgemm, image_kernel
from tests.interpreter import interpret, pack_buffers
from tests.kernel_corpus import NAMES, corpus_kernel
from tests.product_kernels import KERNELS, MORE
from tests.programs import Programs
from tests.wrapper_kernels import CASES
from tools.gpu_child import Named, Row
from tools.gpu_measuring import measured, measurer
from tunegrad import devices
from tunegrad.devices import Device
from tunegrad.devices.job import (
    Candidate,
    Geometry,
    Hooks,
    KernelIO,
    Limits,
    Lowered,
    Parameter,
    Reference,
)
from tunegrad.errors import DeviceError, IllegalAction
from tunegrad.ir.expr import Op
from tunegrad.ir.interpret.numeric import compute, to_compute, to_memory
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.variants import parts_of
from tunegrad.opts import Schedule, Space
from tunegrad.search import RandomChooser
from tunegrad.trial import Policy

__all__ = ["ENDLESS", "corpus", "hostile", "hostile_reference", "tiled", "units", "wrappers"]

_N = 1000
_HOSTILE = """
extern "C" __global__ void k(float *x, float *out, float *scratch) {{
  if (threadIdx.x == 0) for (int i = 0; i < {count}; ++i) out[i] = x[i] + 1.0f;
  {tail}
}}
"""
ENDLESS = "while (*(volatile float *)out != -1.0f) ;"
"""A loop over a number that nothing changes. NVRTC leaves out one over a local ``volatile``."""
_BAD = {
    "good": ("", _N, "ok"),
    "past the end": ("", _N + 1, "wrong"),
    "unwritten": ("", _N - 1, "wrong"),
    "writes its input": ("x[0] = 1.0f;", _N, "wrong"),
    "endless": (ENDLESS, _N, "timed_out"),
    "far away": ("((volatile float *)out)[1l << 44] = 1.0f;", _N, "crashed"),
    "too much memory": ("scratch[0] = 1.0f;", _N, "out_of_resources"),
    "good afterwards": ("(void)0;", _N, "ok"),
}
"""Name: what else it does, how many elements it writes, and the status that it must have."""
_TOO_MUCH_BYTES = 1 << 44
"""Of scratch memory: 16 TiB."""
_SMALL = {
    "wrappers": ("tg_to_bf16", "tg_cp_async16", "tg_ldmatrix_x4", "tg_mma_m16n8k16_f16_f32"),
    "units": ("m16n8k16_f16_f32",),
    "corpus": ("gemm", "softmax", "max_pool"),
    "tiled": ("residual 0", "by hand, f16, 2 slots", "split_k2, part 0"),
    "hostile": ("past the end", "far away", "too much memory", "good afterwards"),
}
"""Rows of the steps in a rehearsal: other tests have all of them on cuda-host."""


def wrappers(device: Device, small: bool) -> Iterator[Named]:
    """Every function of inline PTX alone, against numpy and the CPU's twin."""
    for name in _SMALL["wrappers"] if small else CASES:
        yield name, partial(_wrapper, device, name)


def _wrapper(device: Device, name: str) -> Row:
    """One kernel on the device: numpy's answer, and the bits of the twin where one can be built."""
    case = CASES[name]
    given = case.arrays()
    got = _launched(device, case.text, case.items, given)
    want = case.want(given)
    if name.endswith("f16_f16"):
        got = got.view(np.float16)
    with np.errstate(invalid="ignore"):  # infinity is as far from itself as it is
        away = np.abs(got.astype(np.float64) - want.astype(np.float64))
    worst = float(np.nan_to_num(away).max(initial=0.0))
    if worst > case.tolerance * float(np.abs(np.nan_to_num(want)).max(initial=0.0)):
        raise AssertionError(f"{worst} away from what numpy gives")
    row: Row = {"largest_error": worst}
    with suppress(DeviceError):
        twin = _launched(devices.open("cuda-host"), case.text, case.items, given)
        row["bits_like_the_twin"] = bool(twin.tobytes() == got.tobytes())
    return row


def _launched(device: Device, text: str, items: int, arrays: Mapping[str, Any]) -> Any:
    """The first array after one launch of kernel ``k`` over all of them."""
    words = {name: -(-a.nbytes // 4) for name, a in arrays.items()}
    first = next(iter(arrays))
    roles = tuple(
        Parameter(name, "i32", n, "out" if name == first else "in") for name, n in words.items()
    )
    lowered = Lowered(text, "k", KernelIO(roles), (), Geometry(1, items))
    with device.open() as engine:
        code = engine.load(lowered, device.compile(lowered))
        memories = [engine.allocate(4 * n) for n in words.values()]
        for memory, array in zip(memories, arrays.values(), strict=True):
            whole = np.zeros(memory.nbytes, np.uint8)
            whole[: array.nbytes] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
            engine.write(memory, whole.view(np.int32))
        engine.time(engine.launch(code, memories, ()), 1)
        out = memories[0].read("i32").copy()
    return out.view(np.uint8)[: arrays[first].nbytes].view(arrays[first].dtype)


def units(device: Device, small: bool) -> Iterator[Named]:
    """Every matrix unit alone, element by element."""
    for unit in device.target.units:
        if not small or unit.name in _SMALL["units"]:
            yield unit.name, partial(_unit, device, unit.name)


def _unit(device: Device, name: str) -> Row:
    """A random product, and every one-hot row of A: each element of B shows in one place."""
    unit = device.target.matrix_units[name]
    m, n, k = unit.shape
    kernel = _product(m, n, k, *unit.dtypes)
    space, (left, right) = Space(kernel, device.target), ("A", "B")
    taken = kernel.param(left).dtype
    with Programs(device) as on:
        compiled = on.compile(space.lower(space.defaults()[0]))
        worst = 0.0
        for seed in range(1 + m * k):
            rng = np.random.default_rng(seed)
            a = np.zeros((m, k)) if seed else rng.standard_normal((m, k))
            if seed:
                a[(seed - 1) // k, (seed - 1) % k] = 1.0
            b = rng.standard_normal((k, n))
            a16, b16 = to_memory(a, taken).reshape(-1), to_memory(b, taken).reshape(-1)
            out = np.full(m * n, np.nan, kernel.param("C").dtype.numpy)
            on.run(compiled, {"C": out, left: a16, right: b16})
            wide = [to_compute(x, taken) for x in (a16, b16)]
            if unit.dtypes[0] == "tf32":
                wide = [compute(Op.TF32, x) for x in wide]
            wide = [x.astype(np.float64) for x in wide]
            want = np.matmul(*(x.reshape(s) for x, s in zip(wide, ((m, k), (k, n)), strict=True)))
            worst = max(worst, float(np.abs(out.reshape(m, n) - want).max()))
            if seed and worst > 1e-2:
                raise AssertionError(f"row {seed}: {worst} away")
    return {"products": 1 + m * k, "largest_error": worst}


def _product(m: int, n: int, k: int, taken: str, gives: str) -> Kernel:
    made = gemm(m, n, k, taken, gives)
    names = {"p0": "C", "p1": "A", "p2": "B"}
    renamed: Kernel = made.renamed({a.name: a for a in made.all_axes()}, names, {"v0": "v0"})
    return renamed


# ---- kernels


def corpus(device: Device, small: bool) -> Iterator[Named]:
    """Small kernels of every kind, by default and nine draws, against the interpreter: first the
    defaults of all.
    """
    for seed in range(1 if small else 10):
        for name in _SMALL["corpus"] if small else NAMES:
            yield f"{name} {seed}", partial(_agrees, device, name, seed)


def _agrees(device: Device, name: str, seed: int) -> Row:
    """The default schedule (seed 0), or a random one, against the interpreter."""
    kernel, rng = corpus_kernel(name), np.random.default_rng(seed)
    schedule = _drawn(device, kernel, name, seed)
    program = Space(kernel, device.target).lower(schedule)
    made = {}
    for p in kernel.params:
        values = rng.standard_normal(p.size) if p.dtype.is_float else rng.integers(-5, 6, p.size)
        zero = np.zeros(p.size, p.dtype.numpy)
        made[p.name] = zero if p.role == "out" else to_memory(values, p.dtype).astype(zero.dtype)
    mine = pack_buffers(program, made)
    theirs = {key: array.copy() for key, array in mine.items()}
    interpret(program, mine)
    with Programs(device) as on:
        on.run(on.compile(program), theirs)
    worst = 0.0
    for p in kernel.outputs:
        want, got = (
            np.nan_to_num(to_compute(x[p.name], p.dtype).astype(np.float64)) for x in (mine, theirs)
        )
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=schedule.text)
        worst = max(worst, float(np.abs(got - want).max(initial=0.0)))
    return {"schedule": schedule.text, "largest_error": worst}


def _drawn(device: Device, kernel: Kernel, name: str, seed: int) -> Schedule:
    """The default schedule (seed 0), or one that is drawn by the name and the seed, and legal."""
    space = Space(kernel, device.target)
    if not seed:
        return space.defaults()[0]
    chooser = RandomChooser(random.Random(f"{name} {seed}"))
    while True:
        found = space.sample(chooser)
        try:
            space.lower(found)
        except IllegalAction:
            continue
        return found


def tiled(device: Device, small: bool) -> Iterator[Named]:
    """Products by a matrix unit as they are timed later: rings of copies, swizzled tiles, staged
    epilogues, split sums, and the schedules by hand. Against float64.
    """
    made: dict[str, Any] = {
        f"{name} {seed}": partial(_drawn_product, device, kernel, name, seed)
        for seed in range(10)
        for name, kernel in {**KERNELS, **MORE}.items()
    }
    for name, (kernel, schedule) in _by_hand().items():
        made[f"by hand, {name}"] = partial(_by, device, kernel, schedule)
    for parts in (2, 4):
        for part in range(2):
            made[f"split_k{parts}, part {part}"] = partial(_part, device, parts, part)
    for name in _SMALL["tiled"] if small else made:
        yield name, made[name]


def _by_hand() -> dict[str, tuple[Any, Schedule]]:
    ahead = {
        f"{dtype}, {slots} slots": (partial(gemm, 256, 256, 160, dtype), hgemm(slots, dtype))
        for dtype in ("f16", "bf16")
        for slots in (2, 3, 4)
    }
    image = partial(image_kernel, 2, 64, 16)
    return ahead | {
        "f16, grouped": (partial(gemm, 1500, 512, 256), Schedule.parse(GROUPED)),
        "f32": (partial(gemm, 300, 256, 160, "f32"), Schedule.parse(F32_GEMM)),
        "convolution": (image, Schedule.parse(CONV)),
        "convolution in blocks": (image, Schedule.parse(CONV_BLOCKS)),
        "convolution, epilogue": (image, Schedule.parse(f"{CONV} epilogue(param=p0)")),
    }


def _drawn_product(device: Device, kernel: Any, name: str, seed: int) -> Row:
    made = kernel()
    return measured(device, made, _drawn(device, made, name, seed))


def _by(device: Device, kernel: Any, schedule: Schedule) -> Row:
    return measured(device, kernel(), schedule)


def _part(device: Device, parts: int, part: int) -> Row:
    return measured(device, parts_of(gemm(64, 64, 1024), f"split_k{parts}")[part])


# ---- kernels that do what they may not


def hostile_reference(_: object, arrays: dict[str, Any]) -> dict[str, Reference]:
    """x + 1, in the referee's process."""
    return {"out": Reference(arrays["x"].astype(np.float64) + 1.0)}


def hostile(device: Device, small: bool) -> Iterator[Named]:
    """Kernels that write where they may not, never end, leave the address space, or ask for more
    memory than there is; and a good one after them.
    """
    for name in _SMALL["hostile"] if small else _BAD:
        yield name, partial(_contained, device, name)


def _contained(device: Device, name: str) -> Row:
    tail, count, wanted = _BAD[name]
    io = KernelIO((Parameter("x", "f32", _N, "in"), Parameter("out", "f32", _N, "out")))
    scratch = (_TOO_MUCH_BYTES if wanted == "out_of_resources" else 4,)
    lowered = Lowered(_HOSTILE.format(tail=tail, count=count), "k", io, scratch, Geometry(1, 32))
    hooks = Hooks(reference="tools.gpu_checks:hostile_reference")
    policy = Policy(min_samples=3, max_samples=5, budget_s=0.02, timeout_s=2.0)
    workers = measurer(device, hooks, Limits())
    (outcome,) = workers.measure([Candidate("add", lowered)], policy)
    assert outcome is not None
    row = outcome.measurement
    if row.status.value != wanted:
        raise AssertionError(f"{row.status.value}, not {wanted}: {row.error}")
    return {"status": row.status.value, "told": row.error}
