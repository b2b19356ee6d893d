"""The steps of a GPU session that ask how fast kernels are: products, convolutions and rows beside
cuBLAS, cuDNN and Triton, all of them through torch, where torch sees the GPU. A wrong result is not
timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np

from tests.gpu_hand import CONV_BLOCKS, F32_GEMM, GROUPED, hgemm, image_kernel
from tests.gpu_hand import gemm as typed_gemm
from tools.gpu_child import Named, Row
from tools.gpu_measuring import measured
from tunegrad.devices import Device
from tunegrad.devices.job import Geometry, KernelIO, Lowered
from tunegrad.frontend import Tensor
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule as fuse
from tunegrad.opts import Schedule
from tunegrad.planning import expected_parts

__all__ = ["convolutions", "copied_bytes_per_s", "products", "rows", "tensors"]

_SIZES = (4096, 8192, 2048, 1024, 512)
_IMAGES = ((64, 56), (128, 28), (256, 14), (512, 7))
"""Channels and the side of an image, of ResNet-50's convolutions."""


# ---- torch


def _peer(device: Device) -> bool:
    """True if torch sees the GPU that is timed."""
    if not device.name.startswith("cuda:"):
        return False
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def _timed(call: Callable[[], Any]) -> float:
    """Seconds of the fastest of twenty calls, by events."""
    import torch

    times = []
    for _ in range(23):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e-3)
    return min(times[3:])


def _torch_dtype(name: str) -> Any:
    import torch

    rounds = name == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = rounds
    return {"f16": torch.float16, "bf16": torch.bfloat16}.get(name, torch.float32)


# ---- products


def products(device: Device, small: bool) -> Iterator[Named]:
    """Square ones by their default schedules and by hand, beside cuBLAS."""
    for size in (64,) if small else _SIZES:
        for dtype in ("f32", "f16") if small else ("f16", "bf16", "f32", "tf32"):
            yield f"{dtype} {size}", partial(_product, device, dtype, size, None)
        for name, schedule in () if small else _by_hand(size):
            dtype = name.partition(",")[0]
            yield f"{size} by hand, {name}", partial(_product, device, dtype, size, schedule)


def _by_hand(size: int) -> Iterator[tuple[str, Schedule]]:
    for slots in (2, 3, 4):
        yield f"f16, {slots} slots", hgemm(slots)
    yield "bf16, 4 slots", hgemm(4, "bf16")
    yield "f32", Schedule.parse(F32_GEMM)
    if size % 1024 == 0:
        yield "f16, grouped", Schedule.parse(GROUPED)


def _product(device: Device, dtype: str, size: int, schedule: Schedule | None) -> Row:
    row = measured(device, typed_gemm(size, size, size, dtype), schedule)
    flops = 2.0 * size**3
    row["tflops"] = flops / row["seconds"] / 1e12
    if _peer(device):
        import torch

        kind = _torch_dtype(dtype)
        a, b = (torch.randn(size, size, device="cuda", dtype=kind) for _ in range(2))
        theirs_s = _timed(lambda: torch.mm(a, b))
        row |= {"cublas_tflops": flops / theirs_s / 1e12, "ratio": theirs_s / row["seconds"]}
        row["cublas_state"] = dict(device.state())
    return row


# ---- convolutions


def convolutions(device: Device, small: bool) -> Iterator[Named]:
    """3x3 of halves in channels-last images, as many channels out as in, beside cuDNN."""
    batch = 1 if small else 32
    for channels, size in ((16, 8),) if small else _IMAGES:
        call = partial(_convolution, device, batch, channels, size)
        yield f"conv {channels} {size}", partial(call, None)
        if batch * size**2 % 128 == 0 and not small:
            yield f"conv {channels} {size} by hand", partial(call, Schedule.parse(CONV_BLOCKS))


def _convolution(
    device: Device, batch: int, channels: int, size: int, schedule: Schedule | None
) -> Row:
    row = measured(device, image_kernel(batch, channels, size), schedule)
    flops = 2.0 * 9 * batch * channels**2 * size**2
    row["tflops"] = flops / row["seconds"] / 1e12
    if _peer(device):
        import torch

        torch.backends.cudnn.benchmark = True
        kind, last = _torch_dtype("f16"), torch.channels_last
        x = torch.randn(batch, channels, size, size, device="cuda", dtype=kind)
        w = torch.randn(channels, channels, 3, 3, device="cuda", dtype=kind)
        x, w = x.contiguous(memory_format=last), w.contiguous(memory_format=last)
        theirs_s = _timed(lambda: torch.nn.functional.conv2d(x, w, padding=1))
        row |= {"cudnn_tflops": flops / theirs_s / 1e12, "ratio": theirs_s / row["seconds"]}
        row["cudnn_state"] = dict(device.state())
    return row


# ---- rows

_COPY = """
struct __align__(16) tg_four {{ float x, y, z, w; }};
extern "C" __global__ void __launch_bounds__(256) copy(tg_four *to, const tg_four *from) {{
  const long long n = gridDim.x * 256LL;
  for (long long i = blockIdx.x * 256LL + threadIdx.x; i < {count}; i += n) to[i] = from[i];
}}
"""
_GROUPS = 16
"""Groups of a copy, a unit of the device."""


@cache
def copied_bytes_per_s(device: Device, nbytes: int) -> float:
    """Bytes a second that a copy of so many bytes moves, both ways together: the yardstick of
    rows.
    """
    geometry = Geometry(_GROUPS * device.target.threads, 256)
    lowered = Lowered(_COPY.format(count=nbytes // 16), "copy", KernelIO(()), (), geometry)
    with device.open() as engine:
        memories = [engine.allocate(nbytes) for _ in range(2)]
        code = engine.load(lowered, device.compile(lowered))
        launch = engine.launch(code, memories, ())
        engine.time(launch, 3)
        return 2.0 * nbytes / min(engine.time(launch, 20))


def rows(device: Device, small: bool) -> Iterator[Named]:
    """Operations that move more than they compute, GB/s, as a share of what a copy moves, beside
    torch and what its compiler writes in Triton.
    """
    count, long = (64, 1 << 12) if small else (8192, 1 << 24)
    wide = 4096
    nbytes = 4 * count * wide
    shape, weight = (count, wide), (wide,)
    x, y, w = (Tensor.input(n, s, "f32") for n, s in (("x", shape), ("y", shape), ("w", weight)))
    made: dict[str, tuple[Tensor, tuple[Any, ...], Callable[..., Any]]] = {
        "add": (x + y, (shape, shape), lambda x, y: x + y),
        "softmax": (x.softmax(-1), (shape,), lambda x: x.softmax(-1)),
        "layer norm": (x.layer_norm(w, w), (shape, weight), _layer_norm),
        "sum of rows": (x.sum(1), (shape,), lambda x: x.sum(1)),
        "sum of columns": (x.sum(0), (shape,), lambda x: x.sum(0)),
        "gelu": (x.gelu(), (shape,), lambda x: _functional().gelu(x)),
    }
    for sides in ((1, long), (wide, wide), (long, 4)):
        summed = Tensor.input("x", sides, "f32").sum(1)
        made[f"sum of {sides[0]} x {sides[1]}"] = (summed, (sides,), lambda x: x.sum(1))
    yield "copy", partial(_copied, device, nbytes)
    for name in ("add", "softmax", f"sum of {long} x 4") if small else made:
        tensor, shapes, theirs = made[name]
        yield name, partial(_moved, device, tensor, shapes, theirs, nbytes)


def _copied(device: Device, nbytes: int) -> Row:
    row: Row = {"gb_per_s": copied_bytes_per_s(device, nbytes) / 1e9}
    row["state"] = dict(device.state())
    if _peer(device):
        import torch

        a, b = (torch.zeros(nbytes // 4, device="cuda") for _ in range(2))
        row["torch_gb_per_s"] = 2.0 * nbytes / _timed(lambda: b.copy_(a)) / 1e9
    return row


def _functional() -> Any:
    import torch

    return torch.nn.functional


def _layer_norm(x: Any, w: Any) -> Any:
    return _functional().layer_norm(x, (4096,), w, w)


def _moved(
    device: Device,
    tensor: Tensor,
    shapes: tuple[Any, ...],
    theirs: Callable[..., Any],
    nbytes: int,
) -> Row:
    launches = fuse(fold_constants((tensor.node,))).launches
    kernels = [k for x in launches for k in expected_parts(x.kernel, device.target, "contract")]
    parts = [measured(device, k) for k in kernels]
    seconds = sum(part["seconds"] for part in parts)
    moved = sum(x.kernel.unique_bytes for x in launches)
    row: Row = {"seconds": seconds, "gb_per_s": moved / seconds / 1e9, "kernels": parts}
    row["of_copy"] = moved / seconds / copied_bytes_per_s(device, nbytes)
    if _peer(device):
        import torch

        given = [torch.randn(*s, device="cuda") for s in shapes]
        compiled = torch.compile(theirs, dynamic=False)
        for name, call in (("torch", theirs), ("triton", compiled)):
            try:
                call(*given)
                row[f"{name}_gb_per_s"] = moved / _timed(lambda call=call: call(*given)) / 1e9  # type: ignore[misc]
            except Exception as error:  # noqa: BLE001  # foreign code: a figure less
                row[f"{name}_error"] = f"{type(error).__name__}: {error}"[:300]
    return row


# ---- tensors of other libraries


def tensors(device: Device) -> Iterator[Named]:
    """A model takes torch's tensors where they lie, and gives its own back; numpy's where the
    device is this CPU and torch is not there.
    """
    yield "in and out by DLPack", partial(_shared, device)


def _shared(device: Device) -> Row:
    import tunegrad as tg

    a, b = np.ones((64, 256), np.float32), np.ones((256, 32), np.float32)
    model = tg.compile(lambda a, b: (a @ b).relu(), a, b, device=device.name)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(x.shape, np.float32) for x in (a, b)]
    given, from_dlpack, address_of = _library(device, arrays)
    out = model.on_device(*given)
    seen = from_dlpack(out)
    if address_of(seen) != out.memory.address:
        raise AssertionError("the output was copied")
    got = np.asarray(seen.cpu() if hasattr(seen, "cpu") else seen, np.float64)
    worst = float(np.abs(got - np.maximum(arrays[0].astype(np.float64) @ arrays[1], 0)).max())
    if worst > 1e-3:
        raise AssertionError(f"{worst} away from float64")
    return {"largest_error": worst, "address": hex(out.memory.address), "place": list(out.place)}


def _library(device: Device, arrays: list[Any]) -> tuple[list[Any], Any, Any]:
    """Arrays as its own, what it takes tensors by, and how it says where one lies."""
    try:
        import torch
    except ImportError:
        if device.name.startswith("cuda:"):
            raise
        return arrays, np.from_dlpack, lambda x: x.ctypes.data
    place = "cuda" if _peer(device) else "cpu"
    given = [torch.from_numpy(x).to(place) for x in arrays]
    return given, torch.utils.dlpack.from_dlpack, lambda x: x.data_ptr()
