"""What to do in the minutes with a GPU: steps that check, time and tune, and keep every row.

    python -m tools.gpu_session all --out results       all steps
    python -m tools.gpu_session gemm --out results      one of them; it goes on where it stopped
    python -m tools.gpu_session tune --model resnet18 --seconds 300
    python -m tools.gpu_session all --device cuda-host --small     a rehearsal without a GPU

A step is a list of named rows. Each is a line of JSON in ``OUT/STEP.jsonl`` as soon as it is there,
and is not made again. A row that fails holds its error, and the step goes on. A command begins no
row that would end after ``--minutes``, but its first one; the exit code is then 2, and the same
command goes on. Nothing needs a network, or pytest; torch is compared with where it sees the GPU.

probe     device, compiler, peaks, clocks and power, what a launch costs
wrappers  every function of inline PTX alone, against numpy and the CPU's twin, bit by bit
units     every matrix unit alone, element by element
corpus    small kernels, default and random schedules, against the interpreter
hostile   kernels that write where they may not, never end, or leave the address space
tensors   torch's tensors in and out of a model, where they lie
gemm      f32 and f16 products by their default schedules, f16 ones by hand, TFLOP/s; cuBLAS
convs     f16 convolutions of channels-last images, TFLOP/s; cuDNN
rows      softmax, layer norm, sums, additions, GB/s; torch and Triton
record    spaces of eight kernels, a file each, a minute each and turn, until all is measured
tune      ResNet-50 at batch 32 and the encoder, in f16
peers     both models beside PyTorch under CUDA graphs, then beside torch.compile
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu import MODELS, GpuRow, measured
from tests.gpu_hand import gemm as typed_gemm
from tests.gpu_hand import image_kernel
from tests.kernel_corpus import NAMES, corpus_kernel
from tests.wrapper_kernels import CASES
from tools.gpu_speed import convolutions, products, rows, tensors
from tunegrad import devices
from tunegrad.devices import Device, DeviceMeasurer
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
from tunegrad.devices.programs import Programs
from tunegrad.errors import DeviceError, UserError
from tunegrad.frontend import Tensor
from tunegrad.ir.expr import Op
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule as fuse
from tunegrad.ir.interpret_program import interpret, pack_buffers
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.numeric import compute, to_compute, to_memory
from tunegrad.opts import Space
from tunegrad.recording.files import read_recording, write_recording
from tunegrad.search import RandomChooser
from tunegrad.trial import Policy
from tunegrad.tuning.points import settle_vary
from tunegrad.tuning.recorder import record

__all__ = ["STEPS", "main"]

Row = dict[str, Any]
Named = tuple[str, Callable[[], Row]]
STEPS = (
    "probe", "wrappers", "units", "corpus", "hostile", "tensors", "gemm", "convs", "rows", "record",
    "tune", "peers",
)  # fmt: skip
_TUNED = {"resnet50": 300.0, "encoder": 120.0}
"""Models and the seconds of their search; of ResNet-50 a batch of 32."""
_TAKES_S = {"record": 90.0, "tune": 360.0, "peers": 120.0}
"""What a row of a step takes, about, where that is more than some seconds."""
_UNFINISHED = "unfinished"
"""What a row says of itself that is to be made again: it goes on."""
_STOPPED = 2
_IMAGES = ((64, 56), (128, 28), (256, 14), (512, 7))
"""Channels and the side of an image, of ResNet-50's convolutions."""
_N = 1000
_RECORD_S, _POINTS = 60.0, 1000
_OPTIONS = 3
_BLOCKS = ("m.tiles", "n.tiles", "m.warps", "n.warps", "k.block", "slots")
"""Decisions of a product by a matrix unit that are recorded; the others stay at their defaults."""
_HOSTILE = """
extern "C" __global__ void k(float *x, float *out) {{
  if (threadIdx.x == 0) for (int i = 0; i < {count}; ++i) out[i] = x[i] + 1.0f;
  {tail}
}}
"""
_BAD = {
    "good": ("", _N, "ok"),
    "past the end": ("", _N + 1, "wrong"),
    "unwritten": ("", _N - 1, "wrong"),
    "writes its input": ("x[0] = 1.0f;", _N, "wrong"),
    "endless": ("for (volatile int more = 1; more;) ;", _N, "timed_out"),
    "far away": ("((volatile float *)out)[1l << 44] = 1.0f;", _N, "crashed"),
    "good afterwards": ("(void)0;", _N, "ok"),
}
"""Name: what else it does, how many elements it writes, and the status that it must have."""


def main(words: list[str] | None = None) -> int:
    """Run the steps that the words name; 1 where a row failed."""
    parser = argparse.ArgumentParser(prog="tools.gpu_session", description=__doc__)
    parser.add_argument("step", choices=(*STEPS, "all"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("build/gpu_session"))
    parser.add_argument("--small", action="store_true", help="sizes that a CPU runs in seconds")
    parser.add_argument("--model", help="tune this one alone")
    parser.add_argument("--dtype", default="f16", choices=("f32", "f16", "bf16"))
    parser.add_argument("--seconds", type=float, default=240.0, help="of --model")
    parser.add_argument("--minutes", type=float, default=9.0, help="when the command stops")
    given = parser.parse_args(words)
    given.out.mkdir(parents=True, exist_ok=True)
    try:
        device = devices.running(given.device)
        device.compiler()
    except UserError as error:
        print(f"gpu_session: {error}", file=sys.stderr)
        return 1
    small, out = given.small, given.out
    tuned = {f"{m}[batch=32]" if m == "resnet50" else m: s for m, s in _TUNED.items()}
    models = {given.model: given.seconds} if given.model else {"mlp": 2.0} if small else tuned
    dtype = "f32" if small and not given.model else given.dtype
    made = {
        "probe": partial(_probe, device),
        "wrappers": partial(_wrappers, device),
        "units": partial(_units, device),
        "corpus": partial(_corpus, device, 1 if small else 10),
        "hostile": partial(_hostile, device),
        "tensors": partial(tensors, device),
        "gemm": partial(products, device, (64,) if small else (512, 1024, 2048, 4096, 8192)),
        "convs": partial(
            convolutions, device, 1 if small else 32, ((16, 8),) if small else _IMAGES
        ),
        "rows": partial(rows, device, 64 if small else 8192),
        "record": partial(_record, device, out, small),
        "tune": partial(_tune, given.device, out, models, dtype),
        "peers": partial(_peers, given.device, out, small),
    }
    steps = STEPS if given.step == "all" else (given.step,)
    clock, worst = _Clock(60 * given.minutes), 0
    for step in steps:
        worst = max(worst, _ran(step, made[step](), out, clock))
        if clock.over:
            break
    return worst


class _Clock:
    """The time of one command. ``over``: a row was left for the next one."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s, self.over = limit_s, False
        self._began_s, self._rows = time.monotonic(), 0

    def allows(self, step: str) -> bool:
        """Whether a row of a step may begin; the first one always does."""
        passed_s = time.monotonic() - self._began_s
        self.over = bool(self._rows) and passed_s + _TAKES_S.get(step, 0.0) > self.limit_s
        self._rows += 1
        return not self.over


def _ran(step: str, made: Iterator[Named], out: Path, clock: _Clock) -> int:
    """Make the rows of a step that are not there yet; 1 where one failed, 2 where time is over."""
    path = out / f"{step}.jsonl"
    kept = path.read_text().splitlines() if path.exists() else []
    known = {row["name"]: row for row in map(json.loads, kept)}
    done = {name for name, row in known.items() if not row.get(_UNFINISHED)}
    worst = int(any("error" in row for row in known.values()))
    with path.open("a", encoding="utf-8") as file:
        for name, make in made:
            if name in done:
                continue
            if not clock.allows(step):
                print(f"{step}: stopped, {clock.limit_s / 60:g} minutes; the same again goes on")
                return _STOPPED
            start = time.monotonic()
            try:
                row = make()
            except Exception as error:  # noqa: BLE001  # one bad row never ends a step
                where = traceback.format_exc(limit=-3)
                row, worst = {"error": f"{type(error).__name__}: {error}", "where": where}, 1
            row = {"name": name, "took_s": round(time.monotonic() - start, 3), **row}
            file.write(json.dumps(row, default=str) + "\n")
            file.flush()
            print(f"{step}: {json.dumps(row, default=str)[:300]}", flush=True)
    return worst


# ---- what there is


def _probe(device: Device) -> Iterator[Named]:
    yield (
        "device",
        lambda: {
            "describe": device.describe(),
            "compiler": device.compiler(),
            "fingerprint": dict(device.fingerprint().fields),
            "target": asdict(device.target),
        },
    )
    yield "limits", partial(_peaks, device)
    yield "state", lambda: {"state": dict(device.state())}
    yield "launch", partial(_launch, device)


def _peaks(device: Device) -> Row:
    with device.open() as engine:
        found, units = engine.limits(), device.target.threads
        return {"f32_flops": found.flops(units), "read_bytes_per_s": found.bandwidth(units)}


def _launch(device: Device) -> Row:
    """A kernel that does nothing: what a launch costs alone, and among others in a graph."""
    text = 'extern "C" __global__ void k(float *x) { if (x[0] == 42.0f) x[1] = 0.0f; }'
    lowered = Lowered(text, "k", KernelIO((Parameter("x", "f32", 64, "inout"),)))
    with device.open() as engine:
        memory = engine.allocate(256)
        launch = engine.launch(engine.load(lowered, device.compile(lowered)), [memory], ())
        start = time.perf_counter()
        alone = engine.time(launch, 50)
        python_s = (time.perf_counter() - start) / 50
        return {
            "alone_s": min(alone),
            "of_100_s": min(engine.time(launch, 20, 100)),
            "call_s": python_s,
        }


# ---- right?


def _wrappers(device: Device) -> Iterator[Named]:
    for name in CASES:
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


def _units(device: Device) -> Iterator[Named]:
    for unit in device.target.units:
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
    made = typed_gemm(m, n, k, taken, gives)
    names = {"p0": "C", "p1": "A", "p2": "B"}
    renamed: Kernel = made.renamed({a.name: a for a in made.all_axes()}, names, {"v0": "v0"})
    return renamed


def _corpus(device: Device, drawn: int) -> Iterator[Named]:
    for name in NAMES:
        for seed in range(drawn):
            yield f"{name} {seed}", partial(_agrees, device, name, seed)


def _agrees(device: Device, name: str, seed: int) -> Row:
    """The default schedule (seed 0), or a random one, against the interpreter."""
    import random

    kernel, rng = corpus_kernel(name), np.random.default_rng(seed)
    space = Space(kernel, device.target)
    schedule = (
        space.sample(RandomChooser(random.Random(f"{name} {seed}")))
        if seed
        else space.defaults()[0]
    )
    program = space.lower(schedule)
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
        want, got = (np.nan_to_num(x[p.name].astype(np.float64)) for x in (mine, theirs))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=schedule.text)
        worst = max(worst, float(np.abs(got - want).max(initial=0.0)))
    return {"schedule": schedule.text, "largest_error": worst}


def hostile_reference(_: object, arrays: dict[str, Any]) -> dict[str, Reference]:
    """x + 1, in the referee's process."""
    return {"out": Reference(arrays["x"].astype(np.float64) + 1.0)}


def _hostile(device: Device) -> Iterator[Named]:
    io = KernelIO((Parameter("x", "f32", _N, "in"), Parameter("out", "f32", _N, "out")))
    hooks = Hooks(reference="tools.gpu_session:hostile_reference")
    policy = Policy(min_samples=3, max_samples=5, budget_s=0.02, timeout_s=2.0)

    def measured(name: str) -> Row:
        tail, count, wanted = _BAD[name]
        text = _HOSTILE.format(tail=tail, count=count)
        candidate = Candidate("add", Lowered(text, "k", io, (), Geometry(1, 32)))
        with DeviceMeasurer(device, hooks, Limits(), compile_workers=1) as workers:
            (outcome,) = workers.measure([candidate], policy)
        assert outcome is not None
        row = outcome.measurement
        if row.status.value != wanted:
            raise AssertionError(f"{row.status.value}, not {wanted}: {row.error}")
        return {"status": row.status.value, "told": row.error}

    for name in _BAD:
        yield name, partial(measured, name)


# ---- recorded


def _record(device: Device, out: Path, small: bool) -> Iterator[Named]:
    """A space each, a part of it: every answer to the decisions that matter most."""
    sizes = ((64,) * 3,) if small else ((4096,) * 3, (8192,) * 3, (1024,) * 3, (16, 4096, 4096))
    kernels = {f"gemm {'x'.join(map(str, s))}": typed_gemm(*s, "f16") for s in sizes}
    if not small:
        kernels |= {
            "conv 64 56": image_kernel(32, 64, 56),
            "conv 256 14": image_kernel(32, 256, 14),
        }
        x, w = Tensor.input("x", (8192, 4096), "f32"), Tensor.input("w", (4096,), "f32")
        for name, made in (("softmax", x.softmax(-1)), ("layer norm", x.layer_norm(w, w))):
            kernels[name] = fuse(fold_constants((made.node,))).launches[-1].kernel
    for name, kernel in kernels.items():
        path = out / f"space {name}.jsonl.gz".replace(" ", "_")
        yield name, partial(_recorded, device, kernel, path, _BLOCKS[-2:] if small else _BLOCKS)


def _varied(space: Space, blocks: tuple[str, ...]) -> dict[str, int]:
    """Three options of each decision of blocks that a matrix unit's product asks, which are 729
    points at most; else as many of all as a thousand points have room for.
    """
    asked = {d.name for d in space.defaults()[0].trace}
    named = [name for name in blocks if name in asked]
    return dict.fromkeys(named, _OPTIONS) if named else settle_vary(space, {}, _POINTS)


def _recorded(device: Device, kernel: Kernel, path: Path, blocks: tuple[str, ...]) -> Row:
    """A minute of it, one batch at least; where the file is there, it goes on."""
    begun: list[float] = []

    def go_on(_done: int, _all: int) -> bool:
        begun.append(time.monotonic())
        return begun[-1] - begun[0] < _RECORD_S

    space = Space(kernel, device.target)
    vary = _varied(space, blocks)
    known = read_recording(path).recording if path.exists() else None
    made = record(kernel, device, vary, known=known, go_on=go_on)
    write_recording(path, made)
    row = {"points": made.points, "measured": len(made.trials), "file": path.name}
    return row | ({_UNFINISHED: True} if len(made.trials) < made.points else {})


# ---- whole models


def _tune(device: str, out: Path, models: Mapping[str, float], dtype: str) -> Iterator[Named]:
    """Models and the seconds that each is searched for; the store knows what was measured."""
    for model, seconds in models.items():
        yield f"{model} {dtype} {seconds:g}", partial(_tuned, device, out, model, dtype, seconds)


def _tuned(device: str, out: Path, model: str, dtype: str, seconds: float) -> Row:
    import tunegrad as tg

    report = tg.tune(model, device=device, budget_s=seconds, store=out / "tuned.db", dtype=dtype)
    return {
        "default_ms": report.default_ms,
        "tuned_ms": report.tuned_ms,
        "kernels": [asdict(row) for row in report.rows],
    }


def _peers(device: str, out: Path, small: bool) -> Iterator[Named]:
    """Whole models beside PyTorch; what its compiler makes of them takes minutes, and is last."""
    store = str(out / "tuned.db") if (out / "tuned.db").exists() else None
    made = {"mlp": (1, "f32")} if small else {m: (MODELS[m][0], "f16") for m in _TUNED}
    for compiled in (False,) if small else (False, True):
        for name, (batch, dtype) in made.items():
            words = " and torch.compile" if compiled else ""
            call = partial(measured, name, device, batch, dtype, store, compiled)
            yield f"{name}{words}", partial(_beside, call)


def _beside(call: Callable[[], GpuRow]) -> Row:
    row = call()
    if row.default_ms is None and row.tuned_ms is None:
        raise AssertionError(f"no figure of ours: {dict(row.errors)}")
    return asdict(row)


if __name__ == "__main__":
    sys.exit(main())
