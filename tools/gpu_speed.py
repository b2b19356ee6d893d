# mypy: disable-error-code="import-not-found,import-untyped"
"""The steps of a GPU session that ask how fast kernels are: products, convolutions and rows beside
cuBLAS, cuDNN and Triton, all of them through torch, where torch sees the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tests.gpu_hand import gemm as typed_gemm
from tests.gpu_hand import hgemm, image_kernel
from tunegrad.devices import Device
from tunegrad.frontend import Tensor
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule as fuse
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.numeric import to_memory
from tunegrad.opts import Schedule, Space

__all__ = ["convolutions", "products", "rows", "tensors"]

Row = dict[str, Any]
Named = tuple[str, Callable[[], Row]]


def _seconds(
    device: Device, kernel: Kernel, schedule: Schedule | None = None, samples: int = 20
) -> tuple[float, str]:
    """The fastest of several launches of a schedule, the default one, and its text."""
    space = Space(kernel, device.target)
    schedule = schedule or space.defaults()[0]
    lowered = device.lower(space.lower(schedule))
    with device.open() as engine:
        code = engine.load(lowered, device.compile(lowered))
        rng, memories = np.random.default_rng(0), []
        for p in lowered.io.params:
            memories.append(engine.allocate(p.nbytes))
            dtype = next((q.dtype for q in kernel.params if q.name == p.name), None)
            if p.role in ("in", "const") and dtype is not None:
                engine.write(memories[-1], to_memory(rng.standard_normal(p.elements), dtype))
        scratch = [engine.allocate(n) for n in lowered.scratch_bytes]
        launch = engine.launch(code, memories, scratch)
        engine.time(launch, 3)
        return min(engine.time(launch, samples)), schedule.text


# ---- torch


def _peer(device: Device) -> bool:
    """Whether torch sees the GPU that is timed."""
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


def products(device: Device, sizes: tuple[int, ...]) -> Iterator[Named]:
    """Square ones by their default schedules, and those of halves by hand, beside cuBLAS."""
    for size in sizes:
        for dtype in ("f32", "tf32", "f16", "bf16"):
            yield f"{dtype} {size}", partial(_product, device, dtype, size, None)
        slots = [s for s in (2, 3, 4) if size % 128 == 0 and s <= size // 32]
        for each in slots:
            yield (
                f"f16 {size} by hand, {each} slots",
                partial(_product, device, "f16", size, hgemm(each)),
            )


def _product(device: Device, dtype: str, size: int, schedule: Schedule | None) -> Row:
    ours_s, text = _seconds(device, typed_gemm(size, size, size, dtype), schedule)
    flops = 2.0 * size**3
    row: Row = {"seconds": ours_s, "tflops": flops / ours_s / 1e12, "schedule": text}
    if _peer(device):
        import torch

        kind = _torch_dtype(dtype)
        a, b = (torch.randn(size, size, device="cuda", dtype=kind) for _ in range(2))
        theirs_s = _timed(lambda: torch.mm(a, b))
        row |= {"cublas_tflops": flops / theirs_s / 1e12, "ratio": theirs_s / ours_s}
    return row


# ---- convolutions


def convolutions(
    device: Device, batch: int, shapes: tuple[tuple[int, int], ...]
) -> Iterator[Named]:
    """3x3 of halves in channels-last images, as many channels out as in, beside cuDNN."""
    for channels, size in shapes:
        yield f"conv {channels} {size}", partial(_convolution, device, batch, channels, size)


def _convolution(device: Device, batch: int, channels: int, size: int) -> Row:
    ours_s, text = _seconds(device, image_kernel(batch, channels, size))
    flops = 2.0 * 9 * batch * channels**2 * size**2
    row: Row = {"seconds": ours_s, "tflops": flops / ours_s / 1e12, "schedule": text}
    if _peer(device):
        import torch

        torch.backends.cudnn.benchmark = True
        kind, last = _torch_dtype("f16"), torch.channels_last
        x = torch.randn(batch, channels, size, size, device="cuda", dtype=kind)
        w = torch.randn(channels, channels, 3, 3, device="cuda", dtype=kind)
        x, w = x.contiguous(memory_format=last), w.contiguous(memory_format=last)
        theirs_s = _timed(lambda: torch.nn.functional.conv2d(x, w, padding=1))
        row |= {"cudnn_tflops": flops / theirs_s / 1e12, "ratio": theirs_s / ours_s}
    return row


# ---- rows


def rows(device: Device, count: int) -> Iterator[Named]:
    """What moves more than it computes, GB/s, beside torch and what its compiler writes in
    Triton.
    """
    x = Tensor.input("x", (count, 4096), "f32")
    y = Tensor.input("y", (count, 4096), "f32")
    w = Tensor.input("w", (4096,), "f32")
    made: dict[str, tuple[Tensor, Callable[..., Any]]] = {
        "add": (x + y, lambda x, y, _: x + y),
        "softmax": (x.softmax(-1), lambda x, *_: x.softmax(-1)),
        "layer norm": (x.layer_norm(w, w), _layer_norm),
        "sum of rows": (x.sum(1), lambda x, *_: x.sum(1)),
        "sum of columns": (x.sum(0), lambda x, *_: x.sum(0)),
        "gelu": (x.gelu(), lambda x, *_: _functional().gelu(x)),
    }
    for name, (tensor, theirs) in made.items():
        yield name, partial(_moved, device, tensor, theirs, count)


def _functional() -> Any:
    import torch

    return torch.nn.functional


def _layer_norm(x: Any, _: Any, w: Any) -> Any:
    return _functional().layer_norm(x, (4096,), w, w)


def _moved(device: Device, tensor: Tensor, theirs: Callable[..., Any], count: int) -> Row:
    launches = fuse(fold_constants((tensor.node,))).launches
    seconds, moved, texts = 0.0, 0, []
    for launch in launches:
        took_s, text = _seconds(device, launch.kernel)
        seconds, moved = seconds + took_s, moved + launch.kernel.unique_bytes
        texts.append(text)
    row: Row = {"seconds": seconds, "gb_per_s": moved / seconds / 1e9, "schedules": texts}
    if _peer(device):
        import torch

        given = [torch.randn(*s, device="cuda") for s in ((count, 4096), (count, 4096), (4096,))]
        compiled = torch.compile(theirs, dynamic=False)
        for name, call in (("torch", theirs), ("triton", compiled)):
            try:
                call(*given)
                row[f"{name}_gb_per_s"] = moved / _timed(lambda call=call: call(*given)) / 1e9  # type: ignore[misc]
            except Exception as error:  # noqa: BLE001  # foreign code: a figure less
                row[f"{name}_error"] = f"{type(error).__name__}: {error}"[:300]
    return row


# ---- tensors of torch


def tensors(device: Device) -> Iterator[Named]:
    """A model takes torch's tensors where they lie, and gives its own back."""
    yield "in and out by DLPack", partial(_shared, device)


def _shared(device: Device) -> Row:
    import torch

    import tunegrad as tg

    a, b = np.ones((64, 256), np.float32), np.ones((256, 32), np.float32)
    model = tg.compile(lambda a, b: (a @ b).relu(), a, b, device=device.name)
    place = "cuda" if _peer(device) else "cpu"
    given = [torch.randn(*x.shape, device=place) for x in (a, b)]
    out = model.on_device(*given)
    seen = torch.from_dlpack(out)
    if seen.data_ptr() != out.memory.address:
        raise AssertionError("the output was copied")
    want = (given[0].double() @ given[1].double()).relu()
    worst = float((seen.double() - want).abs().max())
    if worst > 1e-3:
        raise AssertionError(f"{worst} away from torch")
    return {"largest_error": worst, "address": hex(out.memory.address), "place": list(out.place)}
