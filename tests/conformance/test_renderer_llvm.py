"""LLVM IR, compiled for this machine and run between guard zones, keeps the contract of a
renderer.
"""

from __future__ import annotations

import pytest
from renderer_suite import RendererSuite

from benchmarks.single_kernel import SingleKernel
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.team import Team
from tunegrad.render.llvm import render_llvm


class Llvm:
    def __init__(self):
        self.target = host_target(2)
        self.team = Team(2)

    def text(self, program):
        return render_llvm(program)

    def run(self, program, arrays):
        with SingleKernel(program, self.target, self.team, arrays) as loaded:
            before = {name: loaded.array(name).copy() for name in arrays}
            outputs = loaded.run()
            assert loaded.damage() == ""
            for name, array in before.items():
                assert loaded.array(name).tobytes() == array.tobytes(), f"input {name} was written"
            return outputs


@pytest.fixture(scope="module")
def renderer():
    renderer = Llvm()
    yield renderer
    renderer.team.close()


class TestLlvm(RendererSuite):
    small = ("packed_gemm", "direct_conv", "softmax_rows")
