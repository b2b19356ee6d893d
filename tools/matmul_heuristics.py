"""Default blocks of products against NVIDIA's own forecast, which needs no GPU.

    python -m tools.matmul_heuristics [sm_80]

For 20 products of halves: the time that nvidia-matmul-heuristics forecasts for the block and the
split of k that the product has by default, over that of the best configuration it knows. It says
nothing of our kernels, which were not timed: it says how good blocks of these sizes would be in
theirs. Of 9.0 and 10.0 its forecasts are of other instructions than ours: it has none for many of
our blocks.

The package is no dependency: pip install nvidia-matmul-heuristics
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import sys
from dataclasses import dataclass
from math import prod
from statistics import geometric_mean
from typing import Any

from tests.gpu_hand import gemm
from tunegrad.devices.cuda.architectures import typical
from tunegrad.ir.looptree import MatrixTile
from tunegrad.ir.variants import parts_of, splits_k
from tunegrad.opts import Space
from tunegrad.opts.actions import Pipeline
from tunegrad.planning import expected

__all__ = ["SHAPES", "Chosen", "chosen", "main"]

SHAPES = (
    (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096),
    (8192, 8192, 8192), (16, 4096, 4096), (32, 4096, 4096), (64, 4096, 4096), (128, 4096, 4096),
    (256, 4096, 4096), (512, 4096, 4096), (4096, 1024, 4096), (4096, 4096, 1024),
    (8192, 1024, 8192), (2048, 8192, 2048), (100352, 64, 256), (25088, 512, 128),
    (6272, 256, 2304), (1568, 2048, 512), (2048, 1024, 4096),
)  # fmt: skip
"""m, n, k: squares, few rows, long sums, and products that convolutions of ResNet-50 are."""

_GPUS = {
    "sm_80": "A100_SXM_80GB", "sm_86": "A10_PCIE", "sm_89": "L40S", "sm_90a": "H100_SXM",
    "sm_100a": "B200", "sm_120a": "RTX_PRO_6000",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chosen:
    """Results of a group and of a warp, terms of a step, steps at a time, splits of k, the unit."""

    block: tuple[int, int]
    warp: tuple[int, int]
    step: int
    stages: int
    split: int = 1
    shape: tuple[int, int, int] = (16, 8, 16)

    def __str__(self) -> str:
        (m, n), (wm, wn) = self.block, self.warp
        split = f", split {self.split}" if self.split > 1 else ""
        return f"{m}x{n}, {wm}x{wn}, {self.step}, {self.stages}{split}"


@dataclass(frozen=True, slots=True)
class _Row:
    shape: tuple[int, int, int]
    ours: str
    best: str
    ratio: float


def main(argv: list[str] | None = None) -> int:
    """Print a table; 1 where the package is missing, 0 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tools.matmul_heuristics")
    parser.add_argument("arch", nargs="?", default="sm_80", choices=sorted(_GPUS))
    arch = parser.parse_args(argv).arch
    try:
        nmh = importlib.import_module("nvMatmulHeuristics")
    except ImportError:
        print("tools.matmul_heuristics: pip install nvidia-matmul-heuristics", file=sys.stderr)
        return 1
    gpu = nmh.NvMatmulHeuristicsNvidiaGpu[_GPUS[arch]]
    api = nmh.NvMatmulHeuristicsInterfaceEx(nmh.NvMatmulHeuristicsTarget.GENERIC, gpu=gpu)
    rows = [_row(api, nmh, arch, shape) for shape in SHAPES]
    print(f"{arch}, {_GPUS[arch]}, f16 to f32; block, warp, step, stages\n")
    print("| m, n, k | default | their best | forecast of ours over theirs |\n|---|---|---|---|")
    for r in rows:
        ratio = f"{r.ratio:.2f}" if r.ratio else "none"
        print(f"| {', '.join(map(str, r.shape))} | {r.ours} | {r.best} | {ratio} |")
    known = [r.ratio for r in rows if r.ratio]
    within = sum(ratio <= 1.15 for ratio in known)
    print(f"\n{within} of {len(known)} within 1.15; geometric mean {geometric_mean(known):.3f}")
    print(f"{len(rows) - len(known)} have blocks of which it makes no forecast")
    return 0


def _row(api: Any, nmh: Any, arch: str, shape: tuple[int, int, int]) -> _Row:
    layout = nmh.NvMatmulHeuristicsMatmulLayout.NN_ROW_MAJOR
    problem = api.makeNvMatmulHeuristicsProblem(*shape, layout)
    (found,) = api.get(problem, 1, precision="HSS")
    ours = chosen(arch, shape)
    config = _config(nmh, ours)
    time = api.nvMatmulHeuristicsEstimateRuntime(  # what get() calls; its wrappers do not work
        api.handle, b"HSS", int(api.target), ctypes.byref(problem), ctypes.byref(config),
        api.hardware_descriptor,
    )  # fmt: skip
    best = found["kernel"]
    theirs = Chosen(
        (best.cta_tile_m, best.cta_tile_n),
        (best.warp_tile_m, best.warp_tile_n),
        best.cta_tile_k,
        best.stages,
        best.split_k,
    )
    return _Row(shape, str(ours), str(theirs), time / found["runtime"])


def chosen(arch: str, shape: tuple[int, int, int]) -> Chosen:
    """Default choices for a product of halves on a typical GPU of an architecture."""
    target = typical(arch)
    variant = expected(gemm(*shape), target)
    kernel = parts_of(gemm(*shape), variant)[0]
    space = Space(kernel, target)
    (schedule,) = space.defaults()
    tree = space.tree(schedule)
    unit = tree.matrix
    assert isinstance(unit, MatrixTile)  # every shape here is a product that a unit multiplies
    loops = tree.loops

    def covered(axis: str, kinds: tuple[str, ...]) -> int:
        """Results, or terms, that loops of these kinds make together."""
        return prod(x.extent for x in loops if axis in x.axes and x.kind.value in kinds)

    items, registers = ("local",), ("upcast", "unroll", "matrix")
    m, n = (a.name for a in kernel.axes[-2:])
    rows, columns = (covered(a, items + registers) for a in (m, n))
    warps = covered(m, items) // unit.unit.rows, covered(n, items) // unit.unit.columns
    return Chosen(
        (rows, columns),
        (rows // warps[0], columns // warps[1]),
        covered("ra", registers),
        next((a.slots for a in schedule.actions if isinstance(a, Pipeline)), 1),
        int(variant.removeprefix("split_k")) if splits_k(variant) else 1,
        unit.unit.shape,
    )


def _config(nmh: Any, ours: Chosen) -> Any:
    """As their structure."""
    config = nmh.NvMatmulHeuristicsInterface.nvmmhKernelConfiguration()
    config.cta = (*ours.block, ours.step)
    config.warp = (*ours.warp, ours.step)
    config.instr = ours.shape
    config.splitK = ours.split
    config.loadStages = max(2, ours.stages)
    config.gridSwizzle = 8  # as theirs has it: their kernels walk the grid so
    config.ctaOrder = 0
    config.cluster = (1, 1)
    return config


if __name__ == "__main__":
    sys.exit(main())
