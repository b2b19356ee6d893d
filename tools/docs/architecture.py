"""The blocks of docs/ARCHITECTURE.md: one small computation through every form, as it really runs.

Values that a clock or a machine decides (seconds, fingerprints) are named and not printed, so the
page is the same everywhere.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache

from benchmarks.hand_schedules import AVX512, FULL
from tunegrad.compiling import HOOKS, Payload, build
from tunegrad.db import Hit, Miss, open_store
from tunegrad.devices import Candidate, CompiledCandidate, DeviceMeasurer
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.devices.host.facts import declared, fingerprint, host_target
from tunegrad.frontend import Tensor
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.text import print_graph
from tunegrad.opts import Form, Schedule, Space
from tunegrad.render.llvm import render_llvm
from tunegrad.trial import Fingerprint, Measured, Policy, Trial

from .fences import fence, table

__all__ = ["ACTIONS", "BLOCKS", "SMALL"]

SMALL = declared(replace(AVX512, arch="x86-64", vector_bytes=16, registers=16, threads=1))
"""Four lanes and few registers, so that the forms fit on a page."""

ACTIONS = (
    "tile(axis=b, size=4) tile(axis=a, size=2) reorder(order=(a0, b0, ra, a1, b1)) "
    "upcast(axis=a1) vectorize(axis=b1)"
)


def expression() -> Tensor:
    a = Tensor.input("a", (5, 6))
    b = Tensor.input("b", (6, 8))
    return (a @ b).relu()


@cache
def kernel() -> Kernel:
    """The one kernel of the expression."""
    (launch,) = schedule(fold_constants((expression().node,))).launches
    return launch.kernel


def _space() -> Space:
    return Space(kernel(), SMALL)


def _python() -> str:
    return fence(inspect.getsource(expression), "python")


def _graph() -> str:
    return fence(print_graph((expression().node,)))


def _kernel() -> str:
    k = kernel()
    return "\n\n".join(
        [fence(k.text), f"Its name, for people, is `{k.name}`; its key in the store `{k.key}`."]
    )


def _unscheduled() -> str:
    return fence(str(_space().tree(Schedule(()))))


def _actions() -> str:
    return fence("\n".join(str(a) for a in Schedule.parse(ACTIONS).actions))


def _looptree() -> str:
    return fence(str(_space().tree(Schedule.parse(ACTIONS))))


def _default() -> str:
    chosen = Space(FULL["packed_gemm"].kernel, AVX512).defaults()[0]
    rows = [(d.name, str(d.options), str(d.choice)) for d in chosen.trace]
    lines = textwrap.wrap(chosen.text.replace(", ", ",\0"), 110)
    return "\n\n".join(
        [
            fence("\n".join(lines).replace("\0", " ")),
            table(("decision", "options", "default"), rows),
        ]
    )


def _program() -> str:
    return fence(_space().lower(Schedule.parse(ACTIONS)).text)


def _llvm() -> str:
    lines = render_llvm(_space().lower(Schedule.parse(ACTIONS))).splitlines()
    loop, entry = (fence("\n".join(part(lines)), "llvm") for part in (_innermost, _entry))
    return f"{loop}\n\nand the entry, called once per thread of the team:\n\n{entry}"


def _innermost(lines: list[str]) -> list[str]:
    """The first loop that multiplies, from its label to the branch back."""
    first = next(i for i, line in enumerate(lines) if "@llvm.fmuladd" in line)
    begin = max(i for i in range(first) if lines[i].startswith("loop"))
    number = lines[begin].removeprefix("loop").rstrip(":")
    end = next(i for i in range(first, len(lines)) if f"label %loop{number}," in lines[i])
    return lines[begin : end + 1]


def _entry(lines: list[str]) -> list[str]:
    begin = next(i for i, line in enumerate(lines) if line.startswith("define void"))
    return lines[begin : lines.index("}", begin) + 1]


@cache
def _trial() -> tuple[Trial, CompiledCandidate]:
    """The schedule compiled, verified and timed in worker processes, as a search would."""
    k, target, policy = kernel(), host_target(1), Policy(max_samples=3, budget_s=0.01)
    candidate = Candidate(k.key, Payload(k, ACTIONS, CpuDevice(SMALL)))
    with DeviceMeasurer(CpuDevice(target), HOOKS, compile_workers=1) as device:
        (compiled,) = device.compile([candidate])
        if isinstance(compiled, Measured):
            raise TypeError(f"{ACTIONS}: {compiled.measurement}")
        measurement = device.measure_compiled(candidate, compiled, policy)
    trial = Trial(
        k.key, k.text, fingerprint(target), ACTIONS, compiled.program_hash, Space.version, policy,
        measurement,
        session="docs", origin="hand", created_s=1.0,
    )  # fmt: skip
    return trial, compiled


def _measured() -> str:
    trial, compiled = _trial()
    m = trial.measurement
    rows = [
        ("object code", _yes(compiled.image.startswith(b"\x7fELF"), "an ELF object")),
        ("status", str(m.status)),
        (
            "samples",
            _yes(
                len(m.samples_s) >= trial.policy.min_samples,
                f"{trial.policy.min_samples} or more, in seconds",
            ),
        ),
        ("largest error", _yes(0 <= m.max_error < 1e-5, "below 0.00001")),
        (
            "also kept",
            ", ".join(f.name for f in fields(m) if f.name.endswith("_s") and f.name != "samples_s"),
        ),
    ]
    return table(("", "of this schedule"), rows)


def _stored() -> str:
    trial, _ = _trial()
    rows = []
    with (
        open_store(":memory:", "write") as store,
        store.session("docs", 0, {}, "0", session_id="docs"),
    ):
        store.add(trial)
        here = store.lookup(trial.kernel_key, trial.fingerprint, trial.space_version)
        other = Fingerprint(
            tuple((k, "skylake" if k == "arch" else v) for k, v in trial.fingerprint.fields)
        )
        there = store.lookup(trial.kernel_key, other, trial.space_version)
    if not isinstance(here, Hit) or not isinstance(there, Miss):
        raise TypeError(f"lookups gave {here} and {there}")
    measured = {
        "fingerprint": ", ".join(k for k, _ in trial.fingerprint.fields),
        "program_hash": "of the LLVM IR text",
    }
    for f in fields(trial):
        value = getattr(here.trial, f.name)
        shown = measured.get(f.name) or getattr(value, "text", None) or str(value)
        shown = ", ".join(x.name for x in fields(value)) if f.name == "measurement" else shown
        shown = "when it was measured" if f.name == "created_s" else shown
        rows.append((f.name, shown.replace("\n", " ")))
    names = ", ".join(d.field for d in there.differences)
    lookups = (
        f"Looked up with the same fingerprint it is a `{type(here).__name__}`; with another "
        "`arch`, "
        f"a `{type(there).__name__}` whose differences are: {names}."
    )
    return "\n\n".join([table(("column", "of this trial"), rows), lookups])


def _yes(holds: bool, words: str) -> str:
    if not holds:
        raise RuntimeError(f"not so: {words}")
    return words


def _passes() -> str:
    seen: list[tuple[str, str, str]] = []

    def observe(name: str, before: Form, after: Form) -> None:
        made = type(after).__name__ if after is not before else "the same, or an error"
        seen.append((f"`{name}`", type(before).__name__, made))

    build(kernel(), Schedule.parse(ACTIONS), CpuDevice(SMALL), observe)
    return table(("pass", "of", "makes"), seen)


BLOCKS: dict[str, Callable[[], str]] = {
    "passes": _passes,
    "python": _python,
    "graph": _graph,
    "kernel": _kernel,
    "unscheduled": _unscheduled,
    "actions": _actions,
    "looptree": _looptree,
    "default": _default,
    "program": _program,
    "llvm": _llvm,
    "measured": _measured,
    "stored": _stored,
}
