"""What a command hands back: one frozen record each, in plain numbers and text, and how such records become JSON.

A report holds no behaviour and no formatting. Times that a reader compares are in milliseconds (``_ms``), shares and
per cents as their names say; ``None`` stands for "not measured".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import Literal

__all__ = [
    "CompilerRow",
    "DeviceRow",
    "DoctorReport",
    "Json",
    "LookupRow",
    "RunReport",
    "ShowRow",
    "TuneReport",
    "TuneRow",
    "to_json",
]

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Outcome = Literal["hit", "near", "miss"]


@dataclass(frozen=True, slots=True)
class TuneRow:
    """One distinct kernel of a tuned model.

    ``share`` is its part of the tuned model's kernel time (all uses), 0 to 1. ``default_ms`` and ``tuned_ms`` are of
    one use. ``candidates`` counts this session's trials by status. ``actions`` and ``origin`` are the winner's.
    """

    kernel: str
    key: str
    uses: int
    share: float
    default_ms: float | None
    tuned_ms: float | None
    pct_peak: float | None
    candidates: Mapping[str, int] = field(default_factory=dict)
    actions: str = ""
    origin: str = ""

    @property
    def gain(self) -> float | None:
        """Default time over tuned time; None when either is unknown."""
        return _ratio(self.default_ms, self.tuned_ms)


@dataclass(frozen=True, slots=True)
class TuneReport:
    """What one tuning session did. ``default_ms`` and ``tuned_ms`` are of the whole model, end to end."""

    model: str
    device: str
    threads: int
    searcher: str
    store: str
    session: str
    rows: tuple[TuneRow, ...]
    default_ms: float | None
    tuned_ms: float | None
    interrupted: bool
    seconds: float
    candidates_per_s: float

    @property
    def gain(self) -> float | None:
        """Default time of the whole model over its tuned time; None when either is unknown."""
        return _ratio(self.default_ms, self.tuned_ms)

    @property
    def candidates(self) -> dict[str, int]:
        """This session's trials by status, over all kernels."""
        total: dict[str, int] = {}
        for row in self.rows:
            for status, count in row.candidates.items():
                total[str(status)] = total.get(str(status), 0) + count
        return total


@dataclass(frozen=True, slots=True)
class LookupRow:
    """How one kernel of a loaded model found its schedule.

    ``differs`` names the fingerprint fields that kept a stored winner from being a hit, as ``field: mine != theirs``.
    """

    kernel: str
    key: str
    uses: int
    outcome: Outcome
    differs: tuple[str, ...] = ()
    actions: str = ""


@dataclass(frozen=True, slots=True)
class RunReport:
    """Latency of a loaded model with the stored winners, next to the default schedules; medians of interleaved runs."""

    model: str
    device: str
    threads: int
    store: str
    stored_ms: float
    default_ms: float
    repeats: int
    rows: tuple[LookupRow, ...] = ()

    @property
    def gain(self) -> float | None:
        """Default latency over stored latency."""
        return _ratio(self.default_ms, self.stored_ms)


@dataclass(frozen=True, slots=True)
class ShowRow:
    """One kernel of a model: what it will run with here, and where that came from.

    ``origin`` is who proposed the winner (default, beam, random ...), ``session`` the session that measured it.
    """

    kernel: str
    key: str
    uses: int
    outcome: Outcome
    actions: str
    origin: str
    session: str = ""
    tuned_ms: float | None = None
    differs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One device tunegrad knows. ``detail`` is its description, or why it can not be used."""

    name: str
    usable: bool
    detail: str


@dataclass(frozen=True, slots=True)
class CompilerRow:
    """A compiler or package that changes the answer, and its version; empty when it is not installed."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """What this machine is, and what it can do at best: the peaks are measured, not looked up.

    FMA peaks are f32 with ``threads`` threads and with one, in GFLOP/s; bandwidths are of a triad from DRAM, in GB/s.
    """

    devices: tuple[DeviceRow, ...]
    compilers: tuple[CompilerRow, ...]
    versions: tuple[CompilerRow, ...]
    threads: int
    fma_peak_gflops: float
    fma_peak_one_thread_gflops: float
    bandwidth_gb_per_s: float
    bandwidth_one_thread_gb_per_s: float


def _ratio(before: float | None, after: float | None) -> float | None:
    return before / after if before is not None and after else None


def to_json(value: object) -> Json:
    """``value`` as JSON data: records become objects of their fields and properties, infinities and NaN become null."""
    match value:
        case Enum():
            return to_json(value.value)
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case PurePath():
            return str(value)
        case Mapping():
            return {str(to_json(k)): to_json(v) for k, v in value.items()}
        case Iterable():
            return [to_json(v) for v in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            names = [f.name for f in fields(value)]
            names += [n for n, member in vars(type(value)).items() if isinstance(member, property)]
            return {name: to_json(getattr(value, name)) for name in names}
    raise TypeError(f"{type(value).__name__} has no JSON form: {value!r}")
