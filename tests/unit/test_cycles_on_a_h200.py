"""The model of cycles ranks what a GPU measured: points that a H200 recorded."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest

from benchmarks.recorded import read_recording
from tools.gpu_models import SPACES
from tunegrad.devices.cuda.architectures import Chip, cuda_target
from tunegrad.opts.sketches.contraction import warp_contraction
from tunegrad.opts.sketches.cycles import Block, cycles
from tunegrad.opts.sketches.items_tensor import _problem

DATA = Path(__file__).parents[1] / "data" / "h200"
H200 = cuda_target(
    "sm_90a", Chip(units=132, cache_bytes=62914560, hertz=1.98e9, memory_bytes_per_s=4.814e12)
)


@pytest.mark.parametrize("name", ["conv 64 56", "conv 256 14"])
def test_model_of_cycles_ranks_the_blocks_of_a_convolution(name: str) -> None:
    from scipy.stats import spearmanr  # takes a second, in each process that collects the tests

    recording = read_recording(DATA / f"{name.replace(' ', '_')}.jsonl.gz").recording
    kernel = SPACES[name][0]()
    found = warp_contraction(kernel, H200)
    assert found is not None
    extents = [prod(a.extent for a in axes) for axes in (found.both, found.m, found.n)]
    problem = _problem(kernel, found, *extents)
    reckoned, measured = [], []
    for trial in recording.trials:
        taken = {recording.questions[q].name: (q, choice) for q, choice in trial.paths[0]}
        answer = {n: int(recording.questions[q].options[c]) for n, (q, c) in taken.items()}
        tiles, warps = ((answer[f"m.{x}"], answer[f"n.{x}"]) for x in ("tiles", "warps"))
        block = Block(tiles, warps, answer["k.block"], answer["slots"])
        reckoned.append(cycles(block, problem, found.unit, H200))
        measured.append(trial.measurement.seconds)
    assert len(measured) >= 32
    assert spearmanr(reckoned, measured).statistic > 0.6
