"""The only reader of the environment: where the store and the cache lie, how many threads there
are.

``TUNEGRAD_STORE``, ``XDG_DATA_HOME`` and ``HOME`` place the default store, ``XDG_CACHE_HOME`` and
``HOME`` the cache of compiled kernels, ``TUNEGRAD_THREADS`` caps the default number of threads.
``TUNEGRAD_BUILDERS`` lists the packages whose functions model files may name.
``TUNEGRAD_CPU_TARGET`` names an older processor for which this machine's CPU compiles.
``TUNEGRAD_PERF_MAP`` has addresses of compiled kernels written for Linux's ``perf``.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import product
from pathlib import Path

from tunegrad.errors import ConfigError

_CGROUP = Path("/sys/fs/cgroup")

MOST_THREADS = 1024
"""Threads of one device, at most: more than the CPUs of the largest machines with one memory."""

DEFAULT_DEVICE = "cpu"
"""The device that is there everywhere."""


def default_store(environ: Mapping[str, str] = os.environ) -> Path:
    """``$TUNEGRAD_STORE``, or ``tunegrad/store.db`` under ``$XDG_DATA_HOME`` (``~/.local/share``).

    Creates nothing.
    """
    if store := environ.get("TUNEGRAD_STORE"):
        return Path(store)
    return _xdg(environ, "XDG_DATA_HOME", ".local/share") / "store.db"


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """``tunegrad`` under ``$XDG_CACHE_HOME`` (``~/.cache``): what can be made again.

    Creates nothing.
    """
    return _xdg(environ, "XDG_CACHE_HOME", ".cache")


def _xdg(environ: Mapping[str, str], variable: str, below_home: str) -> Path:
    """Our part of a directory of the XDG specification."""
    return _place(environ.get(variable, ""), environ.get("HOME", ""), below_home)


@lru_cache(maxsize=8)
def _place(place: str, home: str, below_home: str) -> Path:
    """Made once: a first call of an eager operation asks some ten times."""
    if Path(place).is_absolute():  # the XDG rule: a relative path is ignored
        return Path(place) / "tunegrad"
    return (Path(home) if home else Path.home()) / below_home / "tunegrad"


def cpu_target(environ: Mapping[str, str] = os.environ) -> str | None:
    """``$TUNEGRAD_CPU_TARGET``: LLVM's name of the processor that this machine's CPU stands for;
    None where it stands for itself. ``devices.host.facts`` has the valid names.
    """
    return environ.get("TUNEGRAD_CPU_TARGET") or None


def perf_map(environ: Mapping[str, str] = os.environ) -> bool:
    """True where ``$TUNEGRAD_PERF_MAP`` is set, and not 0."""
    return environ.get("TUNEGRAD_PERF_MAP", "0") not in ("", "0")


def usable_cpus() -> int:
    """The CPUs this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_bytes() -> int:
    """Bytes of this machine's memory, of that of its container, or of addresses that a process may
    have (``ulimit -v``), whichever is least.
    """
    memory = min(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *_container_bytes())
    _, most = resource.getrlimit(resource.RLIMIT_AS)  # workers set the other for themselves
    return memory if most == resource.RLIM_INFINITY else min(memory, most)


@lru_cache(maxsize=1)
def _container_bytes() -> tuple[int, ...]:
    """Limits of memory of this process's control groups."""
    return memory_limits(control_groups("memory"))


def memory_limits(groups: Iterable[Path]) -> tuple[int, ...]:
    """Limits of memory, in bytes, that control groups of either version set."""
    found = []
    for at, name in product(groups, ("memory.max", "memory.limit_in_bytes")):
        with suppress(OSError, ValueError):  # not there, or "max"
            found.append(int((at / name).read_text()))
    return tuple(found)


def control_groups(
    controller: str, root: Path = _CGROUP, own: Path = Path("/proc/self/cgroup")
) -> list[Path]:
    """Directories of the control groups, of either version, whose limits of a ``controller`` bind
    this process: those that ``own`` names, and all above them, up to the ``root`` of their mounts.
    """
    found = [root, root / controller]
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return found
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = root / controller if controllers else root
        path = base / name.lstrip("/")
        while path != base and base in path.parents:
            found.append(path)
            path = path.parent
    return found


def allowed_threads(environ: Mapping[str, str] = os.environ) -> int:
    """The CPUs this process may run on, capped by ``$TUNEGRAD_THREADS``."""
    cpus = usable_cpus()
    cap = environ.get("TUNEGRAD_THREADS", "")
    if not cap:
        return cpus
    if not cap.isdecimal() or int(cap) < 1:
        raise ConfigError(f"TUNEGRAD_THREADS={cap!r} is not a positive whole number")
    return min(cpus, int(cap))


def builder_packages(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the packages whose functions a model file may name as its builder.

    These are ``tunegrad.models`` and the names of ``$TUNEGRAD_BUILDERS``, separated by commas. A
    model file is data, and may come from others: code that it names does not run unless its
    package is listed.
    """
    listed = environ.get("TUNEGRAD_BUILDERS", "").split(",")
    return ("tunegrad.models", *(name.strip() for name in listed if name.strip()))
