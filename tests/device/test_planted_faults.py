"""A fault planted in lowering, rendering or measuring is never measured as a right candidate."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fault_kernels import CASES, TARGET, is_caught, measured
from tests.faults import HOOKS, KEEPING, SAME_FAULT
from tests.hostile_programs import Unguarded
from tunegrad.compiling import Payload, candidate
from tunegrad.devices import DeviceMeasurer
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.devices.host.team import Executable
from tunegrad.errors import CompileFailure, InternalError
from tunegrad.trial import Status

IN_CI, MANY = 1, 100


@pytest.fixture(scope="module")
def device() -> Iterator[DeviceMeasurer]:
    with DeviceMeasurer(Unguarded(TARGET), HOOKS, compile_workers=1) as measurer:
        yield measurer


def check_caught(device: DeviceMeasurer, fault: str, numbers: range) -> None:
    """Without the fault every member is right; with it, none."""
    passed = []
    for number in numbers:
        honest = measured(device, fault, number, plant=False)
        assert honest.status is Status.OK, honest.error
        if not is_caught(device, fault, number):
            passed.append(number)
    assert not passed, (
        f"{fault}: {len(passed)} of {len(numbers)} were measured as right: numbers {passed}"
    )


@pytest.mark.parametrize("fault", CASES)
def test_planted_fault_is_caught(device: DeviceMeasurer, fault: str) -> None:
    check_caught(device, fault, range(IN_CI))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", CASES)
def test_planted_fault_is_caught_a_hundred_times_of_a_hundred(
    device: DeviceMeasurer, fault: str
) -> None:
    check_caught(device, fault, range(MANY))


@pytest.mark.slow
def test_planted_kernels_of_a_fault_are_all_different() -> None:
    for fault, case in CASES.items():
        assert len({case.kernel(number).key for number in range(MANY)}) == MANY, fault


def test_planted_reference_with_the_fault_of_the_candidate_is_found_out() -> None:
    """Reference and candidate come from one lowering: where it is wrong, they agree."""
    fault, statuses = "difference_swapped", []
    with DeviceMeasurer(CpuDevice(TARGET), SAME_FAULT, compile_workers=1) as device:
        for number in range(IN_CI):
            with suppress(
                InternalError
            ):  # a kernel whose reference is found wrong may also end as an error
                statuses.append(measured(device, fault, number).status)
    assert Status.OK not in statuses


NO_POISON = """
from tunegrad.devices.host.team import Bulk

Bulk.fill = lambda self, to, byte: None
"""

RIGHT_THEN_NOTHING = """
from test_planted_faults import IN_CI
from tests.fault_kernels import TARGET, measured
from tests.faults import HOOKS
from tunegrad.compiling import Payload, candidate
from tunegrad.devices import DeviceMeasurer
from tunegrad.devices.cpu.device import CpuDevice

if __name__ == "__main__":
    with DeviceMeasurer(CpuDevice(TARGET), HOOKS, compile_workers=1) as device:
        for number in range(IN_CI):
            for plant in (False, True):
                found = measured(device, "nothing_computed", number, plant=plant)
                print(found.status.value, found.error)
"""


def test_planted_measurer_that_keeps_old_outputs_accepts_no_candidate_that_computes_nothing(
    tmp_path: Path,
) -> None:
    """The measurer does not poison outputs, in none of its processes: what a right candidate left
    in them stays.
    """
    (tmp_path / "sitecustomize.py").write_text(
        NO_POISON, encoding="utf-8"
    )  # Python imports it as it starts
    script = tmp_path / "measure.py"
    script.write_text(RIGHT_THEN_NOTHING, encoding="utf-8")
    root = Path(__file__).parents[2]
    paths = [tmp_path, Path(__file__).parent, root, *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    ran = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True
    )
    lines = ran.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["ok", "wrong"] * IN_CI, ran.stdout
    assert not any("got nan" in line for line in lines)  # which is what poison reads as


@pytest.mark.parametrize("fault", KEEPING)
def test_planted_memory_of_its_own_is_refused_as_it_is_loaded(fault: str) -> None:
    case = CASES.get(fault, CASES["leaves_what_it_wrote"])
    lowered = candidate.lower(Payload(case.kernel(0), case.actions, CpuDevice(TARGET)))
    device = CpuDevice(TARGET)
    Executable.load(device.compile(lowered), lowered.entry).close()
    keeping = replace(lowered, text=KEEPING[fault](lowered.text))
    with pytest.raises(CompileFailure, match="illegal: "):
        device.compile(keeping)
    image = Unguarded(TARGET).compile(keeping)
    with pytest.raises(CompileFailure, match=r"illegal: section .* can be written"):
        Executable.load(image, lowered.entry)
