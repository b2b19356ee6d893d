"""Latencies of whole models as rows of the store, and back: checked like trials (``rows``)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from tunegrad.db.records import LATENCY_KINDS, Latency, LatencyKind, Problem
from tunegrad.db.rows.trials import load_fingerprint
from tunegrad.db.rows.values import (
    RowFault,
    checksum,
    clean_text,
    dump,
    dump_properties,
    is_utf8,
    plain_properties,
    properties_faults,
    real,
    sample_faults,
    take_choice,
    take_flag,
    take_json,
    take_properties,
    take_real,
    take_samples,
    take_text,
)
from tunegrad.errors import InternalError

__all__ = [
    "LATENCY_COLUMNS",
    "LATENCY_FROM",
    "LATENCY_VALUES",
    "admit_latency",
    "decode_latency",
    "encode_latency",
]

LATENCY_VALUES = (
    "model", "model_key", "kind", "samples_s", "default_samples_s", "session", "created_s",
    "versions",
    "state", "imported", "checksum",
)  # fmt: skip
"""The values of encode_latency, in order; after fingerprint, which is the id of a row."""

LATENCY_COLUMNS = ", ".join(("l.id", "f.fields", *(f"l.{n}" for n in LATENCY_VALUES)))
"""The columns that decode_latency reads."""

LATENCY_FROM = "latencies l LEFT JOIN fingerprints f ON f.id = l.fingerprint"


def admit_latency(latency: Latency) -> Latency:
    """The latency as it will be read back. Raises InternalError when it breaks a rule."""
    latency = replace(
        latency,
        model=clean_text(latency.model),
        samples_s=tuple(float(s) for s in latency.samples_s),
        default_samples_s=tuple(float(s) for s in latency.default_samples_s),
        created_s=real(latency.created_s),
        versions=plain_properties(latency.versions),
        state=plain_properties(latency.state),
    )
    if faults := list(_latency_faults(latency)):
        raise InternalError(f"latency of model {latency.model!r}: {'; '.join(faults)}")
    return latency


def _latency_faults(x: Latency) -> Iterator[str]:
    if x.kind not in LATENCY_KINDS:
        yield f"kind {x.kind!r} is none of {', '.join(LATENCY_KINDS)}"
    if not x.samples_s:
        yield "it has no samples"
    yield from sample_faults("samples_s", x.samples_s)
    yield from sample_faults("default_samples_s", x.default_samples_s)
    if x.default_samples_s and len(x.default_samples_s) != len(x.samples_s):
        yield (
            f"{len(x.default_samples_s)} default_samples_s stand beside {len(x.samples_s)} "
            "samples_s"
        )
    if not math.isfinite(x.created_s):
        yield f"created_s is {x.created_s!r}, not finite"
    for name in ("model", "model_key", "session"):
        if not is_utf8(getattr(x, name)):
            yield f"{name} is not valid Unicode: {getattr(x, name)!r}"
    yield from properties_faults("versions", x.versions)
    yield from properties_faults("state", x.state)


def _latency_checksum(x: Latency) -> int:
    return checksum(
        (
            x.model, x.model_key, x.kind, x.fingerprint.fields, x.samples_s, x.default_samples_s,
            x.session, x.created_s, x.versions, x.state, x.imported,
        )
    )  # fmt: skip


def encode_latency(x: Latency) -> tuple[object, ...]:
    """Values of an admitted latency for the columns LATENCY_VALUES."""
    return (
        x.model, x.model_key, x.kind, dump(x.samples_s), dump(x.default_samples_s), x.session,
        x.created_s,
        dump_properties(x.versions), dump_properties(x.state), int(x.imported),
        _latency_checksum(x),
    )  # fmt: skip


def decode_latency(row: Sequence[Any]) -> Latency | Problem:
    """The latency of a row of LATENCY_COLUMNS, or what is wrong with it."""
    try:
        return _latency(row)
    except (RowFault, OverflowError) as error:
        return Problem("latencies", row[0] if isinstance(row[0], int) else None, str(error))


def _latency(row: Sequence[Any]) -> Latency:
    if row[1] is None:
        raise RowFault("orphan: its fingerprint row is missing")
    value = dict(zip(LATENCY_VALUES, row[2:], strict=True))
    default_s = take_json("default_samples_s", value["default_samples_s"])
    latency = Latency(
        model=take_text("model", value["model"]),
        model_key=take_text("model_key", value["model_key"]),
        kind=cast("LatencyKind", take_choice("kind", value["kind"], LATENCY_KINDS)),
        fingerprint=load_fingerprint(take_text("fingerprint", row[1])),
        samples_s=take_samples("samples_s", take_json("samples_s", value["samples_s"])),
        default_samples_s=take_samples("default_samples_s", default_s),
        session=take_text("session", value["session"]),
        created_s=take_real("created_s", value["created_s"]),
        versions=take_properties("versions", value["versions"]),
        state=take_properties("state", value["state"]),
        imported=take_flag("imported", value["imported"]),
    )
    if faults := list(_latency_faults(latency)):
        raise RowFault("; ".join(faults))
    if value["checksum"] != _latency_checksum(latency):
        raise RowFault(f"checksum {value['checksum']!r} does not match the row's content")
    return latency
