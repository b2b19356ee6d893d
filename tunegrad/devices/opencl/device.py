"""OpenCL devices as values: which there are, what they can do, and how programs become binaries of
their drivers.

pyopencl is imported when a device is looked for or opened. Compiling needs the driver, and so the
device: compile workers load it, too.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tunegrad.devices.device import Confinement
from tunegrad.devices.host.facts import fingerprint as host_fingerprint
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.job import KernelIO, Lowered
from tunegrad.devices.lowered import with_source
from tunegrad.devices.opencl.apart import compile_apart
from tunegrad.devices.remote import lowered_c
from tunegrad.errors import CompileFailure, DeviceError, OutOfResources
from tunegrad.ir.pipelines import expand_pipelines
from tunegrad.ir.program import Program
from tunegrad.ir.target import Rates, Target
from tunegrad.render.opencl import OPENCL, render_opencl
from tunegrad.trial import Fingerprint, Properties

if TYPE_CHECKING:
    from tunegrad.devices.device import Inspection
    from tunegrad.devices.opencl.engine import OpenClEngine

# ---- rates
#
# Assumed rates of OpenCL devices: one table for CPUs that run OpenCL, one for GPUs.
#
# CPUs: PoCL 3.0 (LLVM 14) on two cores of a Xeon with AMX. Its default schedules of products of 256
# to 1024 ran at 34 to 36 GFLOP/s, 50 by hand (decision 0038); a sum of tensors moved 54 to 57 GB/s
# of what the last cache holds and 11 to 16 of memory; an exponential took as long as eight
# operations of such a product; a launch that does nothing took 1.2 to 1.7 us of the queue.
#
# GPUs: of a unit of an H100, by arithmetic from its data sheet (67 TFLOP/s of f32, 132 units) and
# the 3.0 TB/s that it was measured to copy. The last cache is taken to be twice as fast as memory,
# and a launch to cost 3 us: neither was measured. Bandwidth grows with the units here, as it does
# roughly from small to large devices.


_CPU_FLOPS, _CPU_CACHE, _CPU_MEMORY = 1.5e10, 5.5e10, 1.3e10
_CPU_LAUNCH_S, _CPU_EXPENSIVE = 1.4e-6, 8

_GPU_FLOPS, _GPU_MEMORY, _GPU_LAUNCH_S, _GPU_EXPENSIVE = 5e11, 3e12 / 132, 3e-6, 8

_SOCKET_BYTES = 64 << 20
"""A larger last cache of a CPU serves a socket of others' cores, too: ``host/facts.py``."""


def declared(target: Target, kind: str) -> Target:
    """An OpenCL target with what a device of its type (``cpu``, ``gpu`` ...) is reckoned to do.

    What OpenCL calls the cache of global memory is the last one.
    """
    last = min(target.l2_bytes, _SOCKET_BYTES) if kind == "cpu" else target.l2_bytes
    rates = _cpu() if kind == "cpu" else _gpu(target.threads)
    return replace(target, l3_bytes=last, rates=rates)


def _cpu() -> Rates:
    return Rates(
        flops=(("f32", _CPU_FLOPS),),
        cache_bytes_per_s=_CPU_CACHE,
        memory_bytes_per_s=_CPU_MEMORY,
        launch_s=_CPU_LAUNCH_S,
        folds_per_s=_CPU_FLOPS,
        expensive_flops=_CPU_EXPENSIVE,
    )


def _gpu(units: int) -> Rates:
    """A unit's work-items fold together, at the rate of its arithmetic."""
    return Rates(
        flops=(("f32", _GPU_FLOPS),),
        cache_bytes_per_s=2 * _GPU_MEMORY * units,
        memory_bytes_per_s=_GPU_MEMORY * units,
        launch_s=_GPU_LAUNCH_S,
        folds_per_s=_GPU_FLOPS / 2,
        expensive_flops=_GPU_EXPENSIVE,
    )


# ---- device


OPTIONS = ("-cl-std=CL1.2",)
"""In this OpenCL C what is declared outside of kernels is constant: they keep nothing."""

_SIMULATOR = "Oclgrind"
"""A platform that checks programs and takes a thousand times as long: it is taken last."""

_HOST_FIELDS = ("cpu_", "cores", "microcode", "smt", "thp", "page")
"""Fields of the host's fingerprint that change the answer where a CPU is the OpenCL device."""


@dataclass(frozen=True, slots=True)
class OpenClDevice:
    """See ``devices.device.Device``. ``number`` counts the devices of all platforms, GPUs first.

    ``identity`` is what its driver says of it, as (field, value): of a fingerprint, and to find it
    again in another process.
    """

    number: int
    target: Target
    identity: tuple[tuple[str, str], ...]
    exclusive: bool = True

    runs = True
    confinement = Confinement(driver=True)

    @property
    def name(self) -> str:
        return f"opencl:{self.number}"

    def describe(self) -> str:
        about, t = dict(self.identity), self.target
        return (
            f"{about['platform']}: {about['name']}, {t.threads} compute units, groups of up to "
            f"{t.max_local} items, "
            f"{t.shared_bytes >> 10} KiB of local memory"
        )

    def fingerprint(self, numerics: str = "contract") -> Fingerprint:
        about = dict(self.identity)
        extensions = hashlib.blake2b(
            ",".join(self.target.features).encode(), digest_size=6
        ).hexdigest()
        fields = {
            "device": "opencl",
            "arch": self.target.arch,
            "features": extensions,
            "units": str(self.target.threads),
            "local": str(self.target.shared_bytes),
            "group": str(self.target.max_local),
            "os": f"{platform.system().lower()}-{platform.machine()}",
            "compiler": "opencl-c",
            "compiler_version": self.compiler(),
            "numerics": numerics,
            **{f"opencl_{k}": v for k, v in about.items()},
        }
        if about["type"] == "cpu":
            host = dict(host_fingerprint(host_target(1)).fields)
            fields |= {k: v for k, v in host.items() if k.startswith(_HOST_FIELDS)}
        return Fingerprint(tuple(sorted(fields.items())))

    def compiler(self) -> str:
        about = dict(self.identity)
        return f"{about['platform']} {about['version']} {about['driver']} {' '.join(OPTIONS)}"

    def lower(self, program: Program) -> Lowered:
        self._check_resources(program)
        return lowered_c(program, render_opencl(program))

    def compile(self, lowered: Lowered, killable: bool = False) -> bytes:
        if not killable:
            return compile_apart(self.identity, lowered)
        here = opened(self)
        cl = here.cl
        try:
            with warnings.catch_warnings(action="ignore", category=cl.CompilerWarning):
                built = cl.Program(here.context, lowered.text).build(
                    options=list(OPTIONS), cache_dir=False
                )
            (binary,) = built.get_info(cl.program_info.BINARIES)
        except cl.Error as error:
            words = f"program {lowered.entry} on {self.name}: {error}"
            raise CompileFailure(with_source(words, lowered.text)) from error
        image: bytes = binary
        return image

    def inspect(self, lowered: Lowered) -> Inspection | None:
        return None

    def facts(self, lowered: Lowered, image: bytes) -> Properties:
        return ()

    def state(self) -> Properties:
        return ()

    def open(self, pin: bool = False) -> OpenClEngine:
        from tunegrad.devices.opencl.engine import OpenClEngine

        return OpenClEngine(self)

    def _check_resources(self, program: Program) -> None:
        if program.local > self.target.max_local:
            raise OutOfResources(
                f"program {program.name}: {program.local} work-items, groups of {self.name} "
                "have up to "
                f"{self.target.max_local}"
            )
        allocs = expand_pipelines(program).allocs
        shared = sum(a.size * a.dtype.itemsize for a in allocs if a.space == "shared")
        if shared > self.target.shared_bytes:
            raise OutOfResources(
                f"program {program.name}: {shared} bytes shared, {self.name} has "
                f"{self.target.shared_bytes}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """The package, the driver's device and a context on it, in this process."""

    cl: Any
    device: Any
    context: Any


@functools.lru_cache(maxsize=8)
def opened(device: OpenClDevice) -> Opened:
    """One context a device and process.

    Raises DeviceError where the device is not there, or is another one.
    """
    cl = _pyopencl()
    for raw in _raw(cl):
        if _identity(raw, cl) == device.identity:
            return Opened(cl, raw, cl.Context([raw]))
    raise DeviceError(f"device {device.name}: {device.describe()} is not on this machine")


_UNNAMED = "-generic"
"""The end of the version of a PoCL device whose processor is newer than PoCL's LLVM."""


def check_compiles(device: OpenClDevice) -> None:
    """Raise DeviceError for a CPU that PoCL's LLVM has no name of, and compiles nothing for.

    PoCL 3.0 (LLVM 14) has none of Zen 5, and asks its compiler for a processor called ``generic``.
    """
    about = dict(device.identity)
    if about["type"] == "cpu" and about.get("version", "").endswith(_UNNAMED):
        failure = _failure_to_compile(device)
        if failure is not None:
            raise DeviceError(
                f"device {device.name}: {about['platform']} {about['driver']} compiles nothing for "
                "this CPU, which is newer than its LLVM; a newer PoCL, as of your distribution "
                "(pocl-opencl-icd), or another driver does"
            ) from failure


@functools.lru_cache(maxsize=8)
def _failure_to_compile(device: OpenClDevice) -> CompileFailure | None:
    """The failure of the empty kernel, tried once a process; None where it compiles."""
    try:
        device.compile(Lowered("__kernel void empty(void) {}", "empty", KernelIO(())), True)
    except CompileFailure as failure:
        return failure
    return None


def found() -> list[OpenClDevice]:
    """The devices of this machine. Raises DeviceError where pyopencl is not installed."""
    cl = _pyopencl()
    return [_device(number, raw, cl) for number, raw in enumerate(_raw(cl))]


_PLATFORMS = {"pocl": "portable computing language"}
"""Names of platforms that they do not have in their own."""


def select(part: str) -> OpenClDevice:
    """The device that stands after ``opencl:``, as a number or a part of its name; '' is the first
    one.

    A platform goes before its devices: on an Intel CPU, ``intel`` is Intel's driver and not PoCL.
    Raises DeviceError where there is none, several have that in their names, or its driver compiles
    nothing for this machine.
    """
    device = _selected(part)
    check_compiles(device)
    return device


def _selected(part: str) -> OpenClDevice:
    devices = found()
    if not devices:
        raise DeviceError(
            "device opencl: no OpenCL driver was found; a driver of your GPU makes one, or "
            "PoCL on any CPU: "
            "pip install 'tunegrad[opencl]'"
        )
    valid = "; ".join(
        f"{d.name} ({dict(d.identity)['platform']}, {dict(d.identity)['name']})" for d in devices
    )
    if part.isdigit() or not part:
        number = int(part or 0)
        if number >= len(devices):
            raise DeviceError(
                f"device opencl:{part}: this machine has {len(devices)} OpenCL devices: {valid}"
            )
        return devices[number]
    word = _PLATFORMS.get(part.lower(), part.lower())
    named = [d for d in devices if word in dict(d.identity)["platform"].lower()]
    named = named or [d for d in devices if word in d.describe().lower()]
    if len(named) != 1:
        count = "several OpenCL devices have" if named else "no OpenCL device has"
        raise DeviceError(f"device opencl:{part}: {count} that in the name: {valid}")
    return named[0]


def _pyopencl() -> Any:
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
    try:
        import pyopencl
    except ImportError as error:
        raise DeviceError(
            f"device opencl needs pyopencl: pip install 'tunegrad[opencl]' ({error})"
        ) from error
    return pyopencl


def _raw(cl: Any) -> list[Any]:
    """The driver's devices: GPUs first, then others, simulators last."""
    try:
        platforms = cl.get_platforms()
    except cl.LogicError:  # the loader found no driver at all
        return []
    devices = [d for p in platforms for d in p.get_devices()]
    return sorted(devices, key=lambda d: (d.platform.name == _SIMULATOR, _type(d, cl) != "gpu"))


def _type(raw: Any, cl: Any) -> str:
    kinds = cl.device_type
    return "cpu" if raw.type & kinds.CPU else "gpu" if raw.type & kinds.GPU else "accelerator"


def _identity(raw: Any, cl: Any) -> tuple[tuple[str, str], ...]:
    fields = {
        "platform": raw.platform.name,
        "platform_version": raw.platform.version,
        "name": raw.name,
        "vendor": raw.vendor,
        "version": raw.version,
        "driver": raw.driver_version,
        "type": _type(raw, cl),
    }
    if fields["type"] != "cpu":  # a CPU's are what they are just now, with PoCL
        fields |= {"clock": str(raw.max_clock_frequency), "memory": str(raw.global_mem_size)}
    return tuple(sorted((k, " ".join(str(v).split())) for k, v in fields.items()))


def _device(number: int, raw: Any, cl: Any) -> OpenClDevice:
    target = Target(
        name="opencl",
        kind="gpu",
        arch=f"{raw.name} {raw.version}".strip(),
        features=tuple(sorted(raw.extensions.split())),
        vector_bytes=max(16, min(OPENCL.vector_bytes, 4 * int(raw.native_vector_width_float))),
        registers=64,
        threads=int(raw.max_compute_units),
        l2_bytes=int(raw.global_mem_cache_size),
        shared_bytes=int(raw.local_mem_size),
        max_local=int(raw.max_work_group_size),
        view_bytes=max(64, int(raw.mem_base_addr_align) // 8),
        max_buffers=int(raw.max_parameter_size) // 8,
    )
    kind = _type(raw, cl)
    return OpenClDevice(number, declared(target, kind), _identity(raw, cl), exclusive=kind == "cpu")
