"""A trial as a row of the store, and back.

Rows are data: JSON and numbers, checked again each time they are read.

Going in, a trial that breaks a rule is a bug of the caller (InternalError). Coming out, a row that
breaks one is damaged (a Problem), and so is a row whose checksum does not match: a flipped bit in a
sample must not make a winner.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, get_type_hints

from tunegrad.db.records import Problem
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
    take_integer,
    take_json,
    take_properties,
    take_real,
    take_samples,
    take_text,
)
from tunegrad.errors import InternalError
from tunegrad.ir.kernel import key_of as text_key
from tunegrad.trial import Fingerprint, Measurement, Policy, Status, Trial

__all__ = [
    "ERROR_CHARACTERS",
    "TRIAL_COLUMNS",
    "TRIAL_FROM",
    "TRIAL_VALUES",
    "admit",
    "decode_trial",
    "dump_fingerprint",
    "dump_policy",
    "encode_trial",
    "key_of",
    "load_fingerprint",
    "load_policy",
    "machine_id",
]

ERROR_CHARACTERS = 16_000
_DURATIONS = ("lower_s", "compile_s", "verify_s", "timing_s")

# What encode_trial returns, in order; after kernel, fingerprint and policy, which are ids of rows.
TRIAL_VALUES = (
    "actions",
    "program_hash",
    "space_version",
    "timeout_s",
    "status",
    "samples_s",
    "median_s",
    "error",
    "lower_s",
    "compile_s",
    "verify_s",
    "timing_s",
    "max_error",
    "session",
    "origin",
    "created_s",
    "attempts",
    "reference_samples_s",
    "reference_program",
    "reference_s",
    "facts",
    "state",
    "checksum",
)
# What decode_trial reads.
TRIAL_COLUMNS = ", ".join(
    ("t.id", "k.key", "k.text", "f.fields", "p.text", "p.fields", *(f"t.{n}" for n in TRIAL_VALUES))
)
TRIAL_FROM = (
    "trials t LEFT JOIN kernels k ON k.id = t.kernel LEFT JOIN fingerprints f ON f.id = "
    "t.fingerprint"
    " LEFT JOIN policies p ON p.id = t.policy"
)


key_of = lru_cache(maxsize=256)(text_key)
"""The key of a kernel by its canonical text; the latest are remembered, since rows repeat them."""


# --------------------------------------------------------------------------------------------------
# Rules


def _faults(trial: Trial) -> Iterator[str]:
    """Every rule that a trial breaks."""
    if key_of(trial.kernel_text) != trial.kernel_key:
        yield (
            f"kernel key {trial.kernel_key!r} is not the hash {key_of(trial.kernel_text)} of "
            "its text"
        )
    m = trial.measurement
    yield from sample_faults("samples_s", m.samples_s)
    yield from sample_faults("reference_samples_s", m.reference_samples_s)
    if m.reference_samples_s and len(m.reference_samples_s) != len(m.samples_s):
        yield (
            f"{len(m.reference_samples_s)} reference_samples_s stand beside "
            f"{len(m.samples_s)} samples_s"
        )
    for name in (*_DURATIONS, "reference_s"):
        value = getattr(m, name)
        if not (math.isfinite(value) and value >= 0):
            yield f"{name} is {value!r}, not a finite time >= 0"
    if m.attempts < 1:
        yield f"attempts is {m.attempts!r}, not at least 1"
    if not math.isfinite(trial.created_s):
        yield f"created_s is {trial.created_s!r}, not finite"
    for name in ("kernel_text", "actions", "program_hash", "session", "origin"):
        if not is_utf8(getattr(trial, name)):
            yield f"{name} is not valid Unicode: {getattr(trial, name)!r}"
    yield from properties_faults("facts", m.facts)
    yield from properties_faults("state", m.state)
    if not is_utf8(m.reference_program):
        yield f"reference_program is not valid Unicode: {m.reference_program!r}"
    if not is_utf8(trial.policy.text):
        yield f"policy is not valid Unicode: {trial.policy.text!r}"


def _fingerprint_fault(fingerprint: Fingerprint) -> str | None:
    names = [name for name, _ in fingerprint.fields]
    if any(a >= b for a, b in pairwise(names)):
        return f"fingerprint fields are not sorted and distinct: {names}"
    return None


def admit(trial: Trial) -> Trial:
    """The trial as it will be read back: plain floats, valid UTF-8, a bounded error text.

    Raises InternalError when it breaks a rule of the store: only tunegrad itself makes trials.
    """
    m = trial.measurement
    measurement = replace(
        m,
        samples_s=tuple(float(s) for s in m.samples_s),
        reference_samples_s=tuple(float(s) for s in m.reference_samples_s),
        reference_s=real(m.reference_s),
        error=clean_text(m.error, ERROR_CHARACTERS),
        lower_s=real(m.lower_s),
        compile_s=real(m.compile_s),
        verify_s=real(m.verify_s),
        timing_s=real(m.timing_s),
        max_error=real(m.max_error),
        facts=plain_properties(m.facts),
        state=plain_properties(m.state),
    )
    trial = replace(
        trial,
        measurement=measurement,
        created_s=real(trial.created_s),
        origin=clean_text(trial.origin),
    )
    faults = list(_faults(trial))
    if fault := _fingerprint_fault(trial.fingerprint):
        faults.append(fault)
    if faults:
        raise InternalError(
            f"trial of kernel {trial.kernel_key}, actions {trial.actions!r}: {'; '.join(faults)}"
        )
    return trial


# --------------------------------------------------------------------------------------------------
# Into rows


def dump_fingerprint(fingerprint: Fingerprint) -> str:
    """Fields as a JSON list of [name, value] pairs, in ASCII: the identity of a fingerprint."""
    return json.dumps(fingerprint.fields, separators=(",", ":"))


@lru_cache(maxsize=256)
def machine_id(fingerprint: Fingerprint) -> str:
    """Name of a fingerprint in the rows of a file: 16 hex digits of the SHA-256 of its fields."""
    return hashlib.sha256(dump_fingerprint(fingerprint).encode("ascii")).hexdigest()[:16]


def dump_policy(policy: Policy) -> str:
    """The fields of a policy as JSON, without ``timeout_s``, which its text leaves out and each
    trial carries.
    """
    fields = asdict(policy)
    del fields["timeout_s"]
    return dump(fields)


def _checksum(trial: Trial) -> int:
    """Of everything that a trial says.

    What an older schema has no column for is left out where it says nothing: old rows keep theirs.
    """
    m = trial.measurement
    beside = (m.reference_samples_s, m.reference_program)
    return checksum(
        (
            trial.kernel_key,
            trial.fingerprint.fields,
            trial.actions,
            trial.program_hash,
            trial.space_version,
            trial.policy.text,
            float(trial.policy.timeout_s),
            m.status,
            m.samples_s,
            m.error,
            *(getattr(m, name) for name in _DURATIONS),
            m.max_error,
            trial.session,
            trial.origin,
            trial.created_s,
            *((m.attempts,) if m.attempts != 1 else ()),
            *((beside,) if any(beside) else ()),
            *((m.reference_s,) if m.reference_s else ()),
            *((m.facts, m.state) if m.facts or m.state else ()),
        )
    )


def encode_trial(trial: Trial) -> tuple[object, ...]:
    """Values of an admitted trial for the columns TRIAL_VALUES.

    A NaN as max_error is NULL, as SQLite would have it.
    """
    m = trial.measurement
    return (
        trial.actions,
        trial.program_hash,
        trial.space_version,
        float(trial.policy.timeout_s),
        m.status.value,
        dump(m.samples_s),
        m.seconds if m.samples_s else None,
        m.error,
        m.lower_s,
        m.compile_s,
        m.verify_s,
        m.timing_s,
        None if math.isnan(m.max_error) else m.max_error,
        trial.session,
        trial.origin,
        trial.created_s,
        m.attempts,
        dump(m.reference_samples_s),
        m.reference_program,
        m.reference_s,
        dump_properties(m.facts),
        dump_properties(m.state),
        _checksum(trial),
    )


# --------------------------------------------------------------------------------------------------
# Out of rows


@lru_cache(maxsize=256)
def load_fingerprint(fields: str) -> Fingerprint:
    """The inverse of dump_fingerprint. Raises RowFault."""
    pairs = take_json("fingerprint", fields)
    shaped = isinstance(pairs, list) and all(
        isinstance(p, list) and len(p) == 2 and all(isinstance(v, str) for v in p) for p in pairs
    )
    if not shaped:
        raise RowFault("fingerprint is not a list of [name, value] pairs")
    fingerprint = Fingerprint(tuple((name, value) for name, value in pairs))
    if fault := _fingerprint_fault(fingerprint):
        raise RowFault(fault)
    return fingerprint


@lru_cache(maxsize=64)
def load_policy(text: str, fields: str) -> Policy:
    """The inverse of dump_policy, checked against the policy's text. Raises RowFault."""
    values = take_json("policy", fields)
    hints = {name: kind for name, kind in get_type_hints(Policy).items() if name != "timeout_s"}
    if not isinstance(values, dict) or values.keys() != hints.keys():
        raise RowFault(f"policy does not have the fields {', '.join(hints)}")
    rules: dict[object, Callable[[str, object], object]] = {int: take_integer, float: take_real}
    for name, kind in hints.items():
        rules.get(kind, take_text)(name, values[name])
    policy = Policy(**values)
    if policy.text != text:
        raise RowFault(f"policy fields say {policy.text!r}, its text says {text!r}")
    return policy


def _samples_of(value: Mapping[str, Any], name: str) -> tuple[float, ...]:
    return take_samples(name, take_json(name, value[name]))


def decode_trial(row: Sequence[Any]) -> Trial | Problem:
    """The trial of a row of TRIAL_COLUMNS, or what is wrong with it.

    Never raises for what a row may hold.
    """
    try:
        return _decode(row)
    except (RowFault, OverflowError) as error:
        return Problem("trials", row[0] if isinstance(row[0], int) else None, str(error))


def _decode(row: Sequence[Any]) -> Trial:
    key, kernel_text, fields, policy_text, policy_fields = row[1:6]
    for name, value in (("kernel", key), ("fingerprint", fields), ("policy", policy_text)):
        if value is None:
            raise RowFault(f"orphan: its {name} row is missing")
    value = dict(zip(TRIAL_VALUES, row[6:], strict=True))
    status = Status(take_choice("status", value["status"], Status))
    policy = load_policy(take_text("policy", policy_text), take_text("policy", policy_fields))
    trial = Trial(
        kernel_key=take_text("kernel key", key),
        kernel_text=take_text("kernel text", kernel_text),
        fingerprint=load_fingerprint(take_text("fingerprint", fields)),
        actions=take_text("actions", value["actions"]),
        program_hash=take_text("program_hash", value["program_hash"]),
        space_version=take_integer("space_version", value["space_version"]),
        policy=replace(policy, timeout_s=take_real("timeout_s", value["timeout_s"])),
        measurement=Measurement(
            status=status,
            samples_s=_samples_of(value, "samples_s"),
            error=take_text("error", value["error"]),
            max_error=math.nan
            if value["max_error"] is None
            else take_real("max_error", value["max_error"]),
            attempts=take_integer("attempts", value["attempts"]),
            lower_s=take_real("lower_s", value["lower_s"]),
            compile_s=take_real("compile_s", value["compile_s"]),
            verify_s=take_real("verify_s", value["verify_s"]),
            timing_s=take_real("timing_s", value["timing_s"]),
            reference_samples_s=_samples_of(value, "reference_samples_s"),
            reference_program=take_text("reference_program", value["reference_program"]),
            reference_s=take_real("reference_s", value["reference_s"]),
            facts=take_properties("facts", value["facts"]),
            state=take_properties("state", value["state"]),
        ),
        session=take_text("session", value["session"]),
        origin=take_text("origin", value["origin"]),
        created_s=take_real("created_s", value["created_s"]),
    )
    if faults := list(_faults(trial)):
        raise RowFault("; ".join(faults))
    m = trial.measurement
    if value["median_s"] != (m.seconds if m.samples_s else None):
        raise RowFault(f"median_s {value['median_s']!r} does not follow from its samples")
    if value["checksum"] != _checksum(trial):
        raise RowFault(f"checksum {value['checksum']!r} does not match the row's content")
    return trial
