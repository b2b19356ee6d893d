"""The report on a machine: its devices, compilers, protections and peaks."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CompilerRow", "DeviceRow", "DoctorReport", "IsolationRow", "PlaceRow"]


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One device tunegrad knows. ``detail`` is its description, or why it can not be used."""

    name: str
    usable: bool
    detail: str


@dataclass(frozen=True, slots=True)
class CompilerRow:
    """A compiler or package that changes the answer, and its version; empty when it is not
    installed.
    """

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class IsolationRow:
    """One protection of what is outside a candidate's process, and what it stops; docs/ISOLATION.md
    has the threats.
    """

    name: str
    present: bool
    detail: str


@dataclass(frozen=True, slots=True)
class PlaceRow:
    """Default place of something, and how much of it is there."""

    what: str
    place: str
    held: str


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """Facts of this machine, and its limits: the peaks are measured, not looked up.

    FMA peaks are f32 with ``threads`` threads and with one, in GFLOP/s; bandwidths are of a triad
    from DRAM, in GB/s. ``isolation`` is of a process that would run candidates: it was started, and
    asked what it has. ``cpus`` are those that this process may use, of which other processes kept
    ``others_cpus`` busy; ``busy`` says so where they leave too few, so that the peaks are too low.
    """

    devices: tuple[DeviceRow, ...]
    compilers: tuple[CompilerRow, ...]
    versions: tuple[CompilerRow, ...]
    threads: int
    fma_peak_gflops: float
    fma_peak_one_thread_gflops: float
    bandwidth_gb_per_s: float
    bandwidth_one_thread_gb_per_s: float
    isolation: tuple[IsolationRow, ...]
    places: tuple[PlaceRow, ...] = ()
    cpus: int = 0
    others_cpus: float = 0.0
    busy: str = ""
