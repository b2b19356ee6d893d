"""What a candidate reads outside its buffers, or before anybody wrote it, shows in what it
computes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hostile import QUICK, N, text

from tunegrad.devices import DeviceMeasurer, host_device
from tunegrad.devices.job import Candidate, Hooks, KernelIO, Lowered, Parameter, Reference
from tunegrad.trial import Status

IO = KernelIO(
    (
        Parameter("x", "f32", N, "in"),
        Parameter("y", "f32", N, "const"),
        Parameter("out", "f32", N, "out"),
    )
)


def reference(payload: object, inputs: dict[str, np.ndarray]) -> dict[str, Reference]:
    return {"out": Reference(inputs["x"].astype(np.float64) + inputs["y"])}


def hardly_finite(payload: object, inputs: dict[str, np.ndarray]) -> dict[str, Reference]:
    """NaN for every element but 100, which are finite."""
    values = np.full(N, np.nan)
    values[:100] = inputs["x"][:100]
    return {"out": Reference(values)}


def read(pointer: str, index: int) -> str:
    """Adds one element of a buffer to the first result."""
    return text(
        f"  %g = getelementptr float, ptr %{pointer}, i64 {index}\n  %z = load float, ptr %g\n"
        "  %first = load float, ptr %out\n  %moved = fadd float %first, %z\n  store float "
        "%moved, ptr %out"
    )


def masked(pointer: str, index: int) -> str:
    """Loads one element of a buffer and takes zero instead, as lanes past the end do."""
    return read(pointer, index).replace(
        "%moved = fadd float %first, %z",
        "%none = icmp slt i64 %tid, 0\n  %kept = select i1 %none, float %z, float 0.0\n"
        "  %moved = fadd float %first, %kept",
    )


@pytest.fixture(scope="module")
def measurer() -> Iterator[DeviceMeasurer]:
    with DeviceMeasurer(host_device(1), Hooks(reference=f"{__name__}:reference")) as measurer:
        yield measurer


def status(measurer: DeviceMeasurer, ir: str) -> tuple[Status, str]:
    (outcome,) = measurer.measure([Candidate("poison", Lowered(ir, "k", IO, (64,)))], QUICK)
    assert outcome is not None
    return outcome.measurement.status, outcome.measurement.error


@pytest.mark.parametrize("pointer", ["x", "y"])
@pytest.mark.parametrize("index", [-1024, -1, N, N + 15, N + 1023])
def test_read_outside_an_input_that_is_used_is_wrong(measurer, pointer, index):
    found, error = status(measurer, read(pointer, index))
    assert found is Status.WRONG
    assert error.startswith("out[0]: got nan")


@pytest.mark.parametrize("pointer", ["x", "y"])
@pytest.mark.parametrize("index", [-1, N])
def test_read_outside_an_input_that_is_masked_is_right(measurer, pointer, index):
    assert status(measurer, masked(pointer, index)) == (Status.OK, "")


@pytest.mark.parametrize("index", [0, 15, 16, -1])
def test_read_of_the_workspace_that_nobody_wrote_is_wrong(measurer, index):
    assert status(measurer, read("workspace", index))[0] is Status.WRONG


def test_kernel_that_writes_nothing_is_wrong_where_nan_is_right():
    """The poison of what is written is not NaN on the first set."""
    with DeviceMeasurer(host_device(1), Hooks(reference=f"{__name__}:hardly_finite")) as measurer:
        some = text(count=100).replace("fadd float %a, %b", "fadd float %a, 0.0")
        found, error = status(measurer, some)
    assert found is Status.WRONG
    assert error.startswith("out[100]: got 1.30577")
