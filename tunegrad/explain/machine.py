"""Facts about this machine: its processor or GPU, the installed software, measured limits."""

from __future__ import annotations

import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version

from tunegrad import devices
from tunegrad.config import allowed_threads, cache_dir, default_store, usable_cpus
from tunegrad.devices import Device, DeviceMeasurer, MachineLimits, Protections, counters_refused
from tunegrad.errors import DeviceError
from tunegrad.reports import CompilerRow, DeviceRow, DoctorReport, IsolationRow, PlaceRow
from tunegrad.tuning import busy_text, probed

_COMPILERS = ("gcc", "clang")
_PACKAGES = (
    "tunegrad", "numpy", "llvmlite", "pebble", "psutil", "click", "rich", "msgspec",
)  # fmt: skip
_EXTRAS = {
    "optuna": "optuna", "pyopencl": "opencl", "matplotlib": "plot", "ray": "ray", "torch": "torch",
    "pytest": "test", "hypothesis": "test", "onnx": "bench", "onnxruntime": "bench",
    "openvino": "bench",
}  # fmt: skip
"""Packages of the extras, and the extra of each; of several, the one that users need."""


def doctor() -> DoctorReport:
    """Examine this machine.

    Measures its peaks, with nothing else of ours running; takes a few seconds.
    """
    threads = allowed_threads()
    host = devices.host_device(threads)
    others = probed()
    with DeviceMeasurer(host, compile_workers=1) as measurer:
        limits = measurer.machine_limits()
        protections = measurer.protections()
    return DoctorReport(
        devices=tuple(_device(*row) for row in devices.found()),
        compilers=(CompilerRow("llvm", host.compiler()), *(_compiler(name) for name in _COMPILERS)),
        versions=_versions(), threads=threads, fma_peak_gflops=limits.flops(threads) / 1e9,
        fma_peak_one_thread_gflops=limits.flops(1) / 1e9,
        bandwidth_gb_per_s=_triad(limits, threads) / 1e9,
        bandwidth_one_thread_gb_per_s=_triad(limits, 1) / 1e9,
        isolation=isolation_rows(protections), places=_places(), cpus=usable_cpus(),
        others_cpus=others, busy=busy_text(others, threads), no_counters=counters_refused(),
    )  # fmt: skip


def _places() -> tuple[PlaceRow, ...]:
    """Default places of the store and of compiled kernels, and their contents."""
    store, cache = default_store(), cache_dir()
    kept = [f for f in cache.rglob("*") if f.is_file()] if cache.is_dir() else []
    size = sum(f.stat().st_size for f in kept)
    held = f"{store.stat().st_size / 1e6:.1f} MB" if store.is_file() else "there is none yet"
    return (
        PlaceRow("store", str(store), held),
        PlaceRow(
            "cache of compiled kernels", str(cache), f"{len(kept)} files, {size / 1e6:.1f} MB"
        ),
    )


def isolation_rows(has: Protections) -> tuple[IsolationRow, ...]:
    """Protections that keep a candidate from harming anything outside its process."""
    calls = "system calls: files, processes, sockets, signals to others end it"
    rows = (
        ("seccomp", has.seccomp, calls),
        ("Landlock", has.landlock > 0, _landlock(has.landlock)),
        ("user namespace", has.user_namespace, "no privileges, even where tunegrad runs as root"),
        ("network namespace", has.network_namespace, "no network, no IPC of other processes"),
        ("empty root", has.empty_root, "an empty folder as root, where there is no Landlock"),
        ("own session", has.session, "signals to its process group stay in it"),
    )
    return tuple(IsolationRow(*row) for row in rows)


def _landlock(version: int) -> str:
    if not version:
        return "this kernel has none, or it is switched off"
    known = ["no file"] + ["no TCP"] * (version >= 4) + ["no signal to others"] * (version >= 6)
    return f"version {version}: {', '.join(known)}"


def _triad(limits: MachineLimits, threads: int) -> float:
    return dict(limits.triad_dram).get(threads, 0.0)


def _device(name: str, found: Device | DeviceError) -> DeviceRow:
    if isinstance(found, DeviceError):
        return DeviceRow(name, False, str(found))
    return DeviceRow(name, True, found.describe())


def _compiler(name: str) -> CompilerRow:
    path = shutil.which(name)
    if path is None:
        return CompilerRow(name, "")
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return CompilerRow(name, "")
    return CompilerRow(name, (answer.stdout.splitlines() or [""])[0].strip())


def _versions() -> tuple[CompilerRow, ...]:
    own = (
        CompilerRow("python", platform.python_version()),
        *(CompilerRow(n, _version(n)) for n in _PACKAGES),
    )
    return (*own, *(_extra(package, extra) for package, extra in _EXTRAS.items()))


def _extra(package: str, extra: str) -> CompilerRow:
    """A package of an extra; where it is absent, its name says how to install it."""
    found = _version(package)
    return CompilerRow(package if found else f"{package} (pip install 'tunegrad[{extra}]')", found)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
