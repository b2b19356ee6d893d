"""The report on a machine as text."""

from __future__ import annotations

from tunegrad.cli.tables.printer import Table, figure, words
from tunegrad.reports import DoctorReport

__all__ = ["doctor_text"]


def doctor_text(report: DoctorReport) -> str:
    """Devices, compilers, versions, what was measured, and what candidates are kept in."""
    devices = Table.of(
        report.devices,
        words("device", lambda d: d.name),
        words("usable", lambda d: "yes" if d.usable else "no"),
        words("detail", lambda d: d.detail),
    )
    tools = Table.of(
        (*report.compilers, *report.versions),
        words("compiler or package", lambda c: c.name),
        words("version", lambda c: c.version or "not installed"),
    )
    fma = "FMA peak, f32, GFLOP/s", report.fma_peak_one_thread_gflops, report.fma_peak_gflops
    triad = "DRAM triad, GB/s", report.bandwidth_one_thread_gb_per_s, report.bandwidth_gb_per_s
    peaks = Table.of(
        (fma, triad),
        words("measured", lambda p: p[0]),
        figure("1 thread", lambda p: f"{p[1]:.1f}"),
        figure(f"{report.threads} threads", lambda p: f"{p[2]:.1f}"),
    )
    places = Table.of(
        report.places,
        words("kept", lambda p: p.what),
        words("where", lambda p: p.place),
        words("held", lambda p: p.held),
    )
    isolation = Table.of(
        report.isolation,
        words("isolation", lambda r: r.name),
        words("here", lambda r: "yes" if r.present else "no"),
        words("what it is", lambda r: r.detail),
    )
    others = f"{report.others_cpus:.1f} of {report.cpus} CPUs"
    busy = "the machine is busy, and the peaks are too low" if report.busy else "it is quiet enough"
    blocks = [
        devices.text(),
        tools.text(),
        peaks.text(),
        f"other processes use {others}: {busy}",
        places.text(),
        isolation.text(),
    ]
    return "\n\n".join(blocks)
