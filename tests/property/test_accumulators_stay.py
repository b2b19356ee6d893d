"""No schedule changes the dtype that a sum is added up in: registers, partial sums and folds of
lanes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from pair_builders import DOT

from tunegrad.errors import IllegalAction
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import schedule
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import Fold, Load, Register, walk
from tunegrad.ir.target import Target
from tunegrad.opts import Space
from tunegrad.planning import prepared

CPU = Target("cpu", "cpu", "x86-64", vector_bytes=32, registers=16, threads=2, l2_bytes=4096)


class _Drawn:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def choose(self, name: str, options: Sequence[object], default: int) -> int:
        return self.rng.randrange(len(options))


def _kernel(dtype: str, accumulate: str | None, shape: str, numerics: str) -> Kernel:
    a, b = Tensor.input("a", (37, 300), dtype), Tensor.input("b", (300, 41), dtype)
    made = (
        a.matmul(b, accumulate=accumulate)
        if shape == "product"
        else a.sum(1, accumulate=accumulate)
    )
    nodes = prepared((made.node,), numerics, DOT)  # type: ignore[arg-type]
    return schedule(nodes).launches[-1].kernel


CASES = [
    ("bf16", None, "product", "contract", "f32"), ("bf16", None, "product", "bf16-dot", "f32"),
    ("bf16", "f64", "product", "bf16-dot", "f64"), ("f16", None, "sum", "contract", "f32"),
    ("f32", "f64", "sum", "contract", "f64"), ("f32", "f64", "product", "strict", "f64"),
    ("i32", "i32", "sum", "contract", "i32"), ("i32", None, "sum", "contract", "i64"),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "accumulate", "shape", "numerics", "want"), CASES)
def test_every_schedule_adds_up_in_the_kernel_s_accumulator(
    dtype: str, accumulate: str | None, shape: str, numerics: str, want: str
) -> None:
    kernel = _kernel(dtype, accumulate, shape, numerics)
    assert [str(r.dtype) for r in kernel.reduces] == [want]
    space, tried = Space(kernel, CPU), 0
    output = kernel.outputs[0]
    for seed in range(40):
        try:
            program = space.lower(space.sample(_Drawn(seed)))
        except IllegalAction:
            continue
        tried += 1
        body = list(walk(program.body))
        found = {str(i.vtype.dtype) for i in body if isinstance(i, Register | Fold)}
        assert want in found
        assert found <= {want, "f64" if want == "f32" else want}, "blocks may be added in f64"
        if str(output.dtype) != want:  # partial sums would be rounded there
            assert not any(isinstance(i, Load) and i.buffer == output.name for i in body)
    assert tried >= 20
