"""An OpenCL compiler that crashes ends neither a session nor a process that loads a model."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import hostile
import pytest
from hand_programs import conversion, together

from tests.opencl_device import opencl_device
from tunegrad.devices import Candidate, Device, DeviceMeasurer
from tunegrad.devices.job import Hooks, Limits, Lowered
from tunegrad.devices.opencl import apart
from tunegrad.errors import CandidateCrashed, CompileFailure
from tunegrad.ir.dtypes import DTYPES, F32
from tunegrad.trial import Status


@pytest.fixture(scope="module")
def device() -> Device:
    return opencl_device()


@pytest.fixture(scope="module")
def intel(device: Device) -> Device:
    if dict(device.fingerprint().fields).get("opencl_platform") != "Intel(R) OpenCL":
        pytest.skip("not on Intel's runtime for CPUs: .ci/weekly installs it")
    return device


TEXT = """__kernel void k(__global const float *x, __global const float *y, __global float *out,
__global float *scratch) {{ for (int i = 0; i < {count}; ++i) out[i] = x[i] + y[i]; {more} }}"""


def lowered(more: str = "") -> Lowered:
    return Lowered(TEXT.format(count=hostile.N, more=more), "k", hostile.IO, (64,))


def test_compiler_that_crashes_is_told_and_this_process_goes_on(device, monkeypatch):
    fake = "import os, sys; sys.stdin.buffer.read(8); os.kill(os.getpid(), 11)"
    monkeypatch.setattr(apart, "_process", apart._Process("-c", fake))
    with pytest.raises(CandidateCrashed, match="compiler ended with SIGSEGV, twice"):
        device.compile(lowered())


def test_compiler_that_crashes_within_its_reply_is_told(device, monkeypatch):
    fake = (
        "import os, sys; sys.stdin.buffer.read(8); "
        "os.write(1, bytes([0, 0, 0, 100]) + bytes(5)); os.kill(os.getpid(), 11)"
    )
    monkeypatch.setattr(apart, "_process", apart._Process("-c", fake))
    with pytest.raises(CandidateCrashed, match="compiler ended with SIGSEGV, twice"):
        device.compile(lowered())


def test_modules_beside_a_script_do_not_stand_for_the_librarys(device, monkeypatch, tmp_path: Path):
    for name in ("types", "enum", "signal", "selectors"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(apart, "_process", apart._Process("-m", "tunegrad.devices.opencl.apart"))
    try:
        assert device.compile(lowered())
    finally:
        apart._process.close()


def test_compiler_that_can_not_be_started_leaves_nothing_open(monkeypatch):
    def no_process(*_, **__):
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(apart.subprocess, "Popen", no_process)
    gc.collect()
    before = set(Path("/proc/self/fd").iterdir())
    with pytest.raises(BlockingIOError):
        apart._Process("-c", "pass").ask(b"")
    gc.collect()
    assert set(Path("/proc/self/fd").iterdir()) <= before


def test_crash_that_does_not_come_again_is_not_told(device, monkeypatch, tmp_path: Path):
    flag = str(tmp_path / "crashed")
    fake = (
        "import os\n"
        f"if not os.path.exists({flag!r}): open({flag!r}, 'w'); os.kill(os.getpid(), 11)\n"
        "from tunegrad.devices.opencl import apart; apart.main()"
    )
    process = apart._Process("-c", fake)
    monkeypatch.setattr(apart, "_process", process)
    assert device.compile(lowered())
    assert Path(flag).exists()
    process.close()


def test_compiler_apart_is_one_process_for_many_texts_and_is_replaced(device):
    assert device.compile(lowered())
    running = apart._process._running
    assert running is not None
    assert running.process.pid != os.getpid()
    with pytest.raises(CompileFailure, match="no_such_function"):
        device.compile(lowered("no_such_function(out);"))
    assert apart._process._running is running, "a text that does not compile ends nothing"
    running.process.kill()
    running.process.wait()
    assert device.compile(lowered())
    assert apart._process._running is not running


def test_compiler_apart_ends_with_who_started_it(device):
    before = hostile.children()
    device.compile(lowered())
    apart._process.close()
    assert apart._process._running is None
    assert hostile.eventually(lambda: hostile.children() <= before)


def test_script_without_a_main_guard_compiles(device, tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np\nimport tunegrad as tg\nx = np.ones(8, np.float32)\n"
        f"f = tg.compile(lambda a: (a + a).relu(), x, device={device.name!r}, store=False)\n"
        "print(float(np.sum(f(x))))\n",
        encoding="utf-8",
    )
    path = os.pathsep.join(p for p in sys.path if p)
    settings = {"PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, str(script)],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "16.0\n"), ran.stderr


def conversions(device: Device) -> Lowered:
    """From one f32 to every type: on this text the compiler of Intel's runtime 2026.2 crashes."""
    made = {f"y.{to}": conversion(F32, to, 1, 96) for to in DTYPES.values()}
    return device.lower(together("conversions", made))


def test_intels_compiler_that_crashes_costs_one_row(intel):
    with DeviceMeasurer(intel, Hooks(), Limits(compile_s=30.0), compile_workers=1) as measurer:
        good = Candidate("add", lowered())
        before, crash, after = measurer.measure(
            [good, Candidate("conversions", conversions(intel)), replace(good, kernel_key="again")],
            hostile.QUICK,
        )
    assert before is not None
    assert crash is not None
    assert after is None, "the same program"
    assert (before.measurement.status, before.measurement.error) == (Status.OK, "")
    assert (crash.measurement.status, crash.measurement.attempts) == (Status.CRASHED, 2)
    assert crash.measurement.error == "compiling: the worker ended with SIGSEGV"


def test_intels_compiler_that_crashes_does_not_end_this_process(intel):
    with pytest.raises(CandidateCrashed, match="the driver's compiler ended with SIGSEGV, twice"):
        intel.compile(conversions(intel))
    assert intel.compile(lowered())
