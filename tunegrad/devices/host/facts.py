"""Facts of this machine: the CPU target, how many threads it is fair to use, and the fingerprint of
both.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tunegrad.devices.host.cores import declared
from tunegrad.devices.host.kept import compiler_version, host
from tunegrad.devices.host.processor import UNKNOWN, physical_core, processor_of
from tunegrad.devices.host.tiles import ask_for_tiles, tile_units, without_tiles
from tunegrad.errors import DeviceError
from tunegrad.ir.target import Target
from tunegrad.trial import Fingerprint

__all__ = ["cpu_limit", "cpu_quota", "fingerprint", "host_target", "usable_cores"]

_CPUS = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup")
_L1_BYTES, _L2_BYTES, _L3_BYTES = 32 << 10, 512 << 10, 8 << 20


def host_target(threads: int | None = None) -> Target:
    """The Target of this machine's CPU for kernels of up to ``threads`` threads (default:
    ``usable_cores``).

    Raises DeviceError for less than one thread.
    """
    count = usable_cores() if threads is None else threads
    if count < 1:
        raise DeviceError(f"threads={count}: at least 1")
    features = _features()
    vector, registers = _vectors(frozenset(features))
    sizes = _cache_sizes()
    target = Target(
        name="cpu",
        kind="cpu",
        arch=host().arch,
        features=features,
        vector_bytes=vector,
        registers=registers,
        threads=count,
        l1_bytes=sizes.get(1, _L1_BYTES),
        l2_bytes=sizes.get(2, _L2_BYTES),
        l3_bytes=sizes.get(3, _L3_BYTES),
        units=tile_units(features),
        view_bytes=1,  # vectors are loaded from anywhere
    )
    return declared(target)


def fingerprint(target: Target, numerics: str = "contract") -> Fingerprint:
    """The store's key for measurements of ``target`` on this machine.

    ``numerics`` names what the renderer lets the compiler do to floating point. Each field, and why
    it is one, stands in docs/STORE.md. The kernel's release is left out: it changes at every update
    and has no say in the generated code. tunegrad's own lowering is the space version, which the
    store keeps beside the fingerprint.
    """
    allowed = os.sched_getaffinity(0)
    cpu = processor_of(allowed)
    enabled = sorted(name[1:] for name in target.features if name.startswith("+"))
    digest = hashlib.blake2b(",".join(enabled).encode(), digest_size=6).hexdigest()
    fields = {
        "device": target.name,
        "arch": target.arch,
        "features": f"{digest}:{','.join(enabled)}",
        "cpu_vendor": cpu.vendor,
        "cpu_family": cpu.family,
        "cpu_model": cpu.model,
        "cpu_stepping": cpu.stepping,
        "cpu_name": cpu.name,
        "microcode": cpu.microcode,
        "cores": str(len(allowed)),
        "physical_cores": cpu.cores,
        "smt": cpu.smt,
        "cpu_quota": _quota_text(),
        "thp": cpu.thp,
        "thp_defrag": cpu.thp_defrag,
        "page": str(os.sysconf("SC_PAGESIZE")),
        "threads": str(target.threads),
        "l1": str(target.l1_bytes),
        "l2": str(target.l2_bytes),
        "l3": str(target.l3_bytes),
        "os": f"{platform.system().lower()}-{platform.machine()}",
        "compiler": "llvm",
        "compiler_version": compiler_version(),
        "numerics": numerics,
    }
    return Fingerprint(tuple(sorted(fields.items())))


def usable_cores() -> int:
    """Physical cores that this process may use, within its cgroup's quota."""
    allowed = os.sched_getaffinity(0)
    cores = {physical_core(cpu) for cpu in allowed}
    return max(1, min(len(cores), cpu_limit()))


def cpu_limit(group: Path | None = None, membership: Path = Path("/proc/self/cgroup")) -> int:
    """Whole CPUs the cgroup's quota (v2 or v1) allows, rounded up; the number of allowed cores when
    there is none.
    """
    allowed = len(os.sched_getaffinity(0))
    roots = (group,) if group is not None else tuple(_groups(membership))
    for root in roots:
        quota, period = _read_quota(root)
        if quota > 0 and period > 0:
            allowed = min(allowed, max(1, -(-quota // period)))
    return allowed


def _groups(membership: Path) -> list[Path]:
    """Every directory whose quota binds this process: its own group and all above it."""
    found = [_CGROUP, _CGROUP / "cpu"]
    for line in _read(membership).splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = _CGROUP / "cpu" if controllers else _CGROUP
        path = base / name.lstrip("/")
        while path != base and base in path.parents:
            found.append(path)
            path = path.parent
    return found


def _read_quota(root: Path) -> tuple[int, int]:
    words = _read(root / "cpu.max").split()
    if len(words) != 2:
        words = [
            _read(root / "cpu.cfs_quota_us").strip(),
            _read(root / "cpu.cfs_period_us").strip(),
        ]
    try:
        return int(words[0]), int(words[1])
    except ValueError:  # "max", or no such file
        return 0, 0


def cpu_quota(roots: Sequence[Path]) -> str:
    """CPUs that cgroups let this process use, the least of them, as ``1.5``; ``none`` where they
    set no limit.

    ``unknown`` where no cgroup can be seen: one may be set from outside.
    """
    if not any(root.is_dir() for root in roots):
        return UNKNOWN
    quotas = [_read_quota(root) for root in roots]
    shares = [quota / period for quota, period in quotas if quota > 0 and period > 0]
    return f"{min(shares):g}" if shares else "none"


@cache
def _quota_text() -> str:
    """Read once: a session's rows are of one machine."""
    return cpu_quota(_groups(Path("/proc/self/cgroup")))


@cache
def _features() -> tuple[str, ...]:
    found = tuple(sorted(host().features, key=lambda name: name[1:]))
    refused = "+amx-tile" in found and not ask_for_tiles()
    return without_tiles(found) if refused else found


def _vectors(features: frozenset[str]) -> tuple[int, int]:
    """(bytes of a vector register, how many of them)."""
    if "+avx512f" in features:
        return 64, 32
    if "+avx2" in features:
        return 32, 16
    return 16, 32 if platform.machine() == "aarch64" else 16


@cache
def _cache_sizes() -> dict[int, int]:
    """Bytes of the data or unified cache of each level, of the first allowed core."""
    sizes: dict[int, int] = {}
    for index in sorted((_CPUS / f"cpu{min(os.sched_getaffinity(0))}" / "cache").glob("index*")):
        level, kind, size = (_read(index / name).strip() for name in ("level", "type", "size"))
        unit = {"K": 1 << 10, "M": 1 << 20}.get(size[-1:], 1)
        digits = size.rstrip("KM")
        if kind in ("Data", "Unified") and level.isdigit() and digits.isdigit():
            sizes[int(level)] = int(digits) * unit
    return sizes


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
