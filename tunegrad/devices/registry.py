"""The one place where devices are named: what stands after ``--device``, and where it comes from.

    cpu    opencl:1    opencl:pocl    cuda    cuda:1    cuda:h100    null:sm_90a

A further device is a folder, a line here, and an extra in pyproject.toml; or it stands outside, and
``register`` adds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from tunegrad.config import DEFAULT_DEVICE as DEFAULT
from tunegrad.config import MOST_THREADS
from tunegrad.errors import DeviceError, NothingRunsError

if TYPE_CHECKING:
    from tunegrad.devices.device import Device
    from tunegrad.devices.host.codegen import OptLevel

__all__ = ["DEFAULT", "check_name", "found", "host_device", "known", "open", "register", "running"]

Opener = Callable[[str, "int | None"], "Device"]
"""Of a family: the device of the part of a name after the colon ('' without one) and the threads
that were asked for. Raises DeviceError.
"""


def open(name: str, threads: int | None = None) -> Device:  # noqa: A001 - as gzip.open
    """The device of a name, as ``family`` or ``family:part``, where the part is a number or in the
    name.

    ``threads`` bounds what a CPU may use; other devices have no such thing. Nothing is started: the
    device is a value. Raises DeviceError for a bad number of threads, a name that is unknown, and
    where the device, its driver or its package is not there, saying what to install.
    """
    if threads is not None and (type(threads) is not int or threads < 1):
        raise DeviceError(f"threads {threads!r} is not a positive whole number")
    if threads is not None and threads > MOST_THREADS:
        raise DeviceError(f"threads {threads}: at most {MOST_THREADS}")
    check_name(name)
    family, _, part = name.partition(":")
    return _FAMILIES[family](part, threads)


def check_name(name: str) -> None:
    """Raise DeviceError for what can be no device of any machine; nothing is opened."""
    family, colon, part = name.partition(":")
    if family not in _FAMILIES:
        from tunegrad.config import nearest

        raise DeviceError(
            f"device {name!r} is unknown{nearest(family, known())}; valid: {', '.join(known())}"
        )
    if colon and not part:
        raise DeviceError(f"device {name!r}: a number or a name must follow the colon")


def running(name: str, threads: int | None = None) -> Device:
    """The device of a name, to run something on it.

    Raises as ``open`` does, and NothingRunsError for a device that only compiles.
    """
    device = open(name, threads)
    if not device.runs:
        raise NothingRunsError(f"device {device.name}: it compiles and runs nothing")
    return device


def known() -> tuple[str, ...]:
    """The families of devices that users may name."""
    return tuple(_FAMILIES)


def register(family: str, opener: Opener) -> None:
    """Add a family of devices of another package to those of this process.

    Workers of tunegrad get the device as a value, so its class must be importable there. Raises
    DeviceError for a family that another opener has, and for a name that is empty or has a colon.
    """
    if not family or ":" in family:
        raise DeviceError(f"device family {family!r}: a word without a colon")
    if _FAMILIES.setdefault(family, opener) is not opener:
        raise DeviceError(f"device family {family!r} is taken; known: {', '.join(known())}")


def host_device(threads: int = 1, opt_level: OptLevel | None = None) -> Device:
    """The machine that this process runs on, which is always there; ``opt_level`` is of LLVM."""
    if opt_level is None:
        return open(DEFAULT, threads)
    from tunegrad.devices.cpu.device import CpuDevice
    from tunegrad.devices.host.facts import host_target

    return CpuDevice(host_target(threads), opt_level)


def found() -> list[tuple[str, Device | DeviceError]]:
    """Every device of this machine, or why a family has none."""
    rows: list[tuple[str, Device | DeviceError]] = []
    for name, all_of in _FOUND.items():
        try:
            rows += all_of()
        except DeviceError as error:
            rows.append((name, error))
    return rows


def _all_opencl() -> list[tuple[str, Device | DeviceError]]:
    from tunegrad.devices.opencl.device import check_compiles, found, select

    rows: list[tuple[str, Device | DeviceError]] = []
    for device in found() or [select("")]:
        try:
            check_compiles(device)
        except DeviceError as error:
            rows.append((device.name, error))
        else:
            rows.append((device.name, device))
    return rows


def _all_cuda() -> list[tuple[str, Device | DeviceError]]:
    from tunegrad.devices.cuda.device import found, select

    return [(d.name, d) for d in cast("list[Device]", found() or [select("")])]


def _cpu(part: str, threads: int | None) -> Device:
    from tunegrad.devices.cpu.device import device_of

    if part:
        raise DeviceError(
            f"device 'cpu:{part}': there is one CPU; valid: cpu, and --threads says how much of it"
        )
    return device_of(threads)


def _opencl(part: str, threads: int | None) -> Device:  # noqa: ARG001  # its units are the driver's
    from tunegrad.devices.opencl.device import select

    return select(part)


def _cuda(part: str, threads: int | None) -> Device:  # noqa: ARG001  # its units are what they are
    from tunegrad.devices.cuda.device import select

    return select(part)


def _null(part: str, threads: int | None) -> Device:  # noqa: ARG001  # nothing runs
    from tunegrad.devices.cuda.device import absent

    return absent(part)


_FAMILIES: dict[str, Opener] = {
    "cpu": _cpu,
    "opencl": _opencl,
    "cuda": _cuda,
    "null": _null,
}
_FOUND: dict[str, Callable[[], list[tuple[str, Device | DeviceError]]]] = {
    "cpu": lambda: [(DEFAULT, host_device())],
    "opencl": _all_opencl,
    "cuda": _all_cuda,
}
