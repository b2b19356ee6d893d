"""PyTorch eager and Inductor, each in both memory formats.

Eager in the default format is the reference of all.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional

from benchmarks import torch_models
from benchmarks.contestants import CallContestant, Contestant
from benchmarks.workloads import Array, Workload, arrays, touched

__all__ = ["eager", "in_bf16", "inductor", "reference"]


class _Kernel(nn.Module):
    """A kernel workload as a module; its constants are parameters, so that freezing may re-lay
    them.
    """

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.workload = workload
        constants = [torch.from_numpy(array) for array in arrays(workload)[1]]
        self.weights = nn.ParameterList(nn.Parameter(c, requires_grad=False) for c in constants)

    def forward(self, *x: torch.Tensor) -> torch.Tensor:
        w, c = self.workload, self.weights
        match w.op:
            case "add":
                return x[0] + x[1]
            case "attention":
                return functional.scaled_dot_product_attention(x[0], x[1], x[2])
            case "copy":
                return x[0].clone()
            case "conv2d":
                return functional.conv2d(x[0], c[0], c[1], w.stride, w.padding).relu_()
            case "gelu":
                return functional.gelu(x[0])
            case "layer_norm":
                return functional.layer_norm(x[0], tuple(c[0].shape), c[0], c[1])
            case "linear":
                return x[0] @ c[0]
            case "matmul":
                return x[0] @ x[1]
            case "max_pool2d":
                return functional.max_pool2d(x[0], w.window, w.stride, w.padding)
            case "softmax":
                return torch.softmax(x[0], w.axis)
            case "sum":
                return x[0].sum(w.axis)
            case "transpose":
                return x[0].t().contiguous()
            case "model":
                raise ValueError(f"{w.name} is a model, not a kernel")


def _module(workload: Workload) -> nn.Module:
    """A fresh module of the workload; models share no storage with the reference."""
    return (
        copy.deepcopy(torch_models.build(workload.name))
        if workload.is_model
        else _Kernel(workload).eval()
    )


def _tensors(workload: Workload) -> tuple[torch.Tensor, ...]:
    return tuple(torch.from_numpy(array) for array in arrays(workload)[0])


def reference(workload: Workload) -> Array:
    """PyTorch eager's result, in the default memory format."""
    with torch.inference_mode():
        return _numpy(_module(workload)(*_tensors(workload)))


def _numpy(tensor: torch.Tensor) -> Array:
    array: Array = tensor.contiguous().numpy()
    return array


_FORMATS = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}


def _formats(workload: Workload) -> dict[str, torch.memory_format]:
    """The memory formats to try, by layout: of images both.

    The input is in that format, the result comes in it.
    """
    return _FORMATS if workload.has_images else {"": torch.contiguous_format}


def _contestant(
    peer: str, variant: str, call: Callable[[], torch.Tensor], layout: str = ""
) -> CallContestant:
    """Wrap a call so that gradient bookkeeping is off in both the timed loop and the reading."""
    guarded = torch.inference_mode()(call)
    name = f"{variant} {layout}" if layout else variant
    return CallContestant(peer, name, guarded, lambda: _numpy(guarded()), layout)


def eager(workload: Workload, threads: int) -> Iterator[Contestant]:
    """Eager: into a kept output where PyTorch has ``out=``; images in both memory formats."""
    torch.set_num_threads(threads)
    inputs = _tensors(workload)
    into = _into(workload, inputs)
    if into is not None:
        yield _contestant("torch", "eager out=", into)
        return
    for layout, memory_format in _formats(workload).items():
        module = _module(workload).to(memory_format=memory_format)
        laid_out = tuple(x.contiguous(memory_format=memory_format) for x in inputs)
        yield _contestant("torch", "eager", lambda module=module, x=laid_out: module(*x), layout)  # type: ignore[misc]


def in_bf16(workload: Workload, threads: int) -> Iterator[Contestant]:
    """A workload whose constants and inputs are bf16, eager, images in both memory formats. Its
    result is widened where it is read, not where it is timed.
    """
    torch.set_num_threads(threads)
    for layout, memory_format in _formats(workload).items():
        module = _module(workload).to(dtype=torch.bfloat16, memory_format=memory_format)
        x = tuple(
            t.to(torch.bfloat16).contiguous(memory_format=memory_format) for t in _tensors(workload)
        )
        call = torch.inference_mode()(_called(module, x))
        read = _widened(call)
        yield CallContestant("torch bf16", f"eager {layout}".rstrip(), call, read, layout)


def _called(module: nn.Module, x: tuple[torch.Tensor, ...]) -> Callable[[], torch.Tensor]:
    return lambda: module(*x)


def _widened(call: Callable[[], torch.Tensor]) -> Callable[[], Array]:
    return lambda: _numpy(call().float())


def _into(workload: Workload, x: tuple[torch.Tensor, ...]) -> Callable[[], torch.Tensor] | None:
    """The operation writing into one kept output, where PyTorch can."""
    if workload.op not in ("add", "copy", "gelu", "matmul", "softmax", "sum", "transpose"):
        return None
    with torch.inference_mode():
        out = torch.from_numpy(touched(tuple(_module(workload)(*x).shape)))
    match workload.op:
        case "add":
            return lambda: torch.add(x[0], x[1], out=out)
        case "copy":
            return lambda: out.copy_(x[0])
        case "gelu":
            return lambda: torch._C._nn.gelu(x[0], out=out)  # noqa: SLF001  the public gelu has no out=
        case "matmul":
            return lambda: torch.matmul(x[0], x[1], out=out)
        case "softmax":
            return lambda: torch.softmax(x[0], workload.axis, out=out)
        case "sum":
            return lambda: torch.sum(x[0], workload.axis, out=out)
        case _:
            return lambda: out.copy_(x[0].t())


def inductor(workload: Workload, threads: int) -> Iterator[Contestant]:
    """torch.compile with max-autotune and frozen weights, images in both memory formats.

    All is compiled on return.
    """
    from torch._inductor import (
        config,
        select_algorithm,
    )  # importing them costs seconds, which only this peer should pay

    torch.set_num_threads(threads)
    config.freezing = True
    config.compile_threads = 1  # no pool of compile workers left running beside the timings
    config.max_autotune_report_choices_stats = select_algorithm.PRINT_AUTOTUNE = False
    torch._dynamo.reset()  # noqa: SLF001  there is no other name for it; not between the formats: both must stay
    inputs = _tensors(workload)
    for layout, memory_format in _formats(workload).items():
        compiled = torch.compile(
            _module(workload).to(memory_format=memory_format), mode="max-autotune", dynamic=False
        )
        laid_out = tuple(x.contiguous(memory_format=memory_format) for x in inputs)
        call = torch.no_grad()(lambda compiled=compiled, x=laid_out: compiled(*x))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own deprecated calls while it tunes
            call()
        variant = f"max-autotune, frozen {layout}".rstrip()
        yield CallContestant("inductor", variant, call, lambda call=call: _numpy(call()), layout)  # type: ignore[misc]
