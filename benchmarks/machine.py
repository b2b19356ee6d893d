"""The process and the machine: settings that must stand before any peer is imported, and what to
print about them.
"""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

__all__ = [
    "Usage", "bystanders", "cores", "describe", "features", "prepare", "revision", "versions",
]  # fmt: skip

_PACKAGES = (
    "tunegrad", "llvmlite", "numpy", "torch", "triton", "onnxruntime", "openvino", "onnx",
    "cuda-bindings", "nvidia-cuda-nvrtc",
)  # fmt: skip
_M_MMAP_MAX, _M_TRIM_THRESHOLD = -4, -1  # malloc.h of glibc


def cores() -> frozenset[int]:
    """The cores this process may use."""
    return frozenset(os.sched_getaffinity(0))


def prepare(threads: int, scratch: Path) -> None:
    """Set thread counts, where Inductor compiles (``scratch``) and how memory is had.

    Call before importing any peer.

    PyTorch allocates its results on every call. With glibc's defaults, large ones are fresh pages
    each time, and the page faults (1.6 us a page) would be timed instead of the operation. Kept
    memory serves every contestant alike. So do huge pages, which numpy and tunegrad ask for by
    themselves.
    """
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(scratch / "inductor")
    os.environ["THP_MEM_ALLOC_ENABLE"] = "1"  # PyTorch's results
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


@dataclass(frozen=True, slots=True)
class Usage:
    """A moment's clocks, in seconds: the wall's, all cores' busy time, this process with its
    finished children.
    """

    wall_s: float
    busy_s: float
    own_s: float

    @staticmethod
    def now() -> Usage:
        return Usage(time.monotonic(), _busy_s(), _own_s())


def bystanders(before: Usage, after: Usage, processors: int) -> tuple[str, ...]:
    """One line when other processes used more than 3 % of the processors, which no interleaving can
    make fair.

    ``processors`` are all of the machine's, for their busy time is counted, whichever this process
    may use. Linux counts busy time in ticks of 10 ms, so the two moments must be seconds apart.
    """
    others_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    share = others_s / ((after.wall_s - before.wall_s) * processors)
    if share <= 0.03:
        return ()
    return (
        (
            f"other processes used {share:.0%} of the cores meanwhile: time again when the "
            "machine is idle"
        ),
    )


def _busy_s() -> float:
    """Seconds that all cores were not idle since the machine started; 0 where Linux does not
    say.
    """
    path = Path("/proc/stat")
    if not path.exists():
        return 0.0
    user, nice, system, _idle, _iowait, irq, softirq = map(
        int, path.read_text().split("\n", 1)[0].split()[1:8]
    )
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    """CPU seconds of this process and its finished children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def describe(command: Sequence[str], threads: int) -> dict[str, object]:
    """Facts that a reader of the figures must know: the CPU, cores, system, versions and the
    command.
    """
    return {
        "cpu": _cpu_name(),
        "cores": len(cores()),
        "threads": threads,
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": versions(),
        "command": " ".join(command),
    }


def versions() -> dict[str, str]:
    """Of the packages that figures depend on, those that are installed."""
    return {name: version for name in _PACKAGES if (version := _version(name))}


def features() -> tuple[str, ...]:
    """Vector and tile features of the CPU, by Linux's names, sorted."""
    flags = _cpu().get("flags", "").split()
    return tuple(sorted(f for f in flags if f.startswith(("amx", "avx", "fma", "f16c"))))


def revision() -> str:
    """Git's revision of this tree, with ``+`` where files differ from it; '' without Git."""
    root = Path(__file__).parents[1]

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=root, capture_output=True, text=True, check=True
        )  # fmt: skip
        return done.stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + "+" * bool(git("status", "--porcelain"))
    except (OSError, subprocess.CalledProcessError):
        return ""


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _cpu_name() -> str:
    """The CPU as Linux names it, with family and model, since virtual machines often hide the rest
    of the name.
    """
    fields = _cpu()
    name = fields.get("model name", platform.processor())
    kind = f"family {fields.get('cpu family', '?')} model {fields.get('model', '?')}"
    wide = "avx512f" if "avx512f" in fields.get("flags", "").split() else "no avx512f"
    return f"{name}, {kind}, {wide}"


def _cpu() -> dict[str, str]:
    """Linux's description of the first processor, by field."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().split("\n\n")[0].splitlines() if path.exists() else []
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
