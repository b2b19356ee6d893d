"""A trial as a row of the store, and back. Rows are data: JSON and numbers, checked again each time they are read.

Going in, a trial that breaks a rule is a bug of the caller (InternalError). Coming out, a row that breaks one is
damaged (a Problem), and so is a row whose checksum does not match: a flipped bit in a sample must not make a winner.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, get_type_hints

from tunegrad.db.records import Evidence, Problem, Session, Withdrawal
from tunegrad.errors import InternalError, StoreError
from tunegrad.ir import keys
from tunegrad.trial import Fingerprint, Measurement, Policy, Status, Trial, middle

__all__ = [
    "SESSION_COLUMNS",
    "TRIAL_COLUMNS",
    "TRIAL_FROM",
    "TRIAL_VALUES",
    "RowFault",
    "admit",
    "admit_evidence",
    "clean_text",
    "decode_evidence",
    "decode_session",
    "decode_trial",
    "decode_withdrawal",
    "dump_evidence",
    "dump_fingerprint",
    "dump_policy",
    "encode_trial",
    "identity",
    "key_of",
    "load_fingerprint",
    "load_policy",
]

# What decode_session reads.
SESSION_COLUMNS = "rowid, id, started_s, ended_s, command, seed, settings, version"
_ERROR_CHARACTERS = 16_000
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
    "checksum",
)
# What decode_trial reads.
TRIAL_COLUMNS = ", ".join(
    ("t.id", "k.key", "k.text", "f.fields", "p.text", "p.fields", *(f"t.{n}" for n in TRIAL_VALUES))
)
TRIAL_FROM = (
    "trials t LEFT JOIN kernels k ON k.id = t.kernel LEFT JOIN fingerprints f ON f.id = t.fingerprint"
    " LEFT JOIN policies p ON p.id = t.policy"
)


class RowFault(StoreError):
    """A value of a row that breaks its rule. Never leaves the store: it becomes a Problem."""


key_of = lru_cache(maxsize=256)(keys.key_of)
"""The key of a kernel by its canonical text; the latest are remembered, since rows repeat them."""


def identity(trial: Trial) -> tuple[str, Fingerprint, str, str, int]:
    """What makes two trials the same one: kernel, fingerprint, actions, policy text, space version."""
    return trial.kernel_key, trial.fingerprint, trial.actions, trial.policy.text, trial.space_version


# ----------------------------------------------------------------------------------------------------------------------
# Rules


def clean_text(text: str, limit: int | None = None) -> str:
    """Text that is valid UTF-8 (lone surrogates become escapes), cut to ``limit`` characters, and saying so."""
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    if limit is None or len(text) <= limit:
        return text
    note = f" ... [{len(text)} characters in all]"
    return text[: limit - len(note)] + note


def _faults(trial: Trial) -> Iterator[str]:
    """Every rule that a trial breaks."""
    if key_of(trial.kernel_text) != trial.kernel_key:
        yield f"kernel key {trial.kernel_key!r} is not the hash {key_of(trial.kernel_text)} of its text"
    yield from _sample_faults("samples_s", trial.measurement.samples_s)
    for name in _DURATIONS:
        value = getattr(trial.measurement, name)
        if not (math.isfinite(value) and value >= 0):
            yield f"{name} is {value!r}, not a finite time >= 0"
    if trial.measurement.attempts < 1:
        yield f"attempts is {trial.measurement.attempts!r}, not at least 1"
    if not math.isfinite(trial.created_s):
        yield f"created_s is {trial.created_s!r}, not finite"
    for name in ("kernel_text", "actions", "program_hash", "session", "origin"):
        if not _is_utf8(getattr(trial, name)):
            yield f"{name} is not valid Unicode: {getattr(trial, name)!r}"
    if not _is_utf8(trial.policy.text):
        yield f"policy is not valid Unicode: {trial.policy.text!r}"


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _sample_faults(name: str, samples: Iterable[float]) -> Iterator[str]:
    for index, sample in enumerate(samples):
        if not (math.isfinite(sample) and sample >= 0):
            yield f"{name}[{index}] is {sample!r}, not a finite time >= 0"


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
        error=clean_text(m.error, _ERROR_CHARACTERS),
        lower_s=float(m.lower_s),
        compile_s=float(m.compile_s),
        verify_s=float(m.verify_s),
        timing_s=float(m.timing_s),
        max_error=float(m.max_error),
    )
    trial = replace(trial, measurement=measurement, created_s=float(trial.created_s), origin=clean_text(trial.origin))
    faults = list(_faults(trial))
    if fault := _fingerprint_fault(trial.fingerprint):
        faults.append(fault)
    if faults:
        raise InternalError(f"trial of kernel {trial.kernel_key}, actions {trial.actions!r}: {'; '.join(faults)}")
    return trial


def admit_evidence(evidence: Evidence) -> Evidence:
    """The evidence with plain floats. Raises InternalError for a p-value outside [0, 1] or a sample that is no time."""
    evidence = replace(
        evidence,
        p_value=float(evidence.p_value),
        incumbent_samples_s=tuple(float(s) for s in evidence.incumbent_samples_s),
        challenger_samples_s=tuple(float(s) for s in evidence.challenger_samples_s),
    )
    if faults := list(_evidence_faults(evidence)):
        raise InternalError(f"evidence of a promotion by {evidence.test!r}: {'; '.join(faults)}")
    return evidence


def _evidence_faults(evidence: Evidence) -> Iterator[str]:
    if not 0 <= evidence.p_value <= 1:
        yield f"p_value is {evidence.p_value!r}, not in [0, 1]"
    yield from _sample_faults("incumbent_samples", evidence.incumbent_samples_s)
    yield from _sample_faults("challenger_samples", evidence.challenger_samples_s)


# ----------------------------------------------------------------------------------------------------------------------
# Into rows


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def dump_fingerprint(fingerprint: Fingerprint) -> str:
    """Fields as a JSON list of [name, value] pairs, in ASCII: the identity of a fingerprint."""
    return json.dumps(fingerprint.fields, separators=(",", ":"))


def dump_policy(policy: Policy) -> str:
    """The fields of a policy as JSON, without ``timeout_s``, which its text leaves out and each trial carries."""
    fields = asdict(policy)
    del fields["timeout_s"]
    return _dump(fields)


def dump_evidence(evidence: Evidence) -> str:
    """Evidence as one JSON object."""
    return _dump(
        {
            "test": evidence.test,
            "p_value": evidence.p_value,
            "incumbent_samples": evidence.incumbent_samples_s,
            "challenger_samples": evidence.challenger_samples_s,
            "cold": evidence.cold,
        }
    )


def _checksum(trial: Trial) -> int:
    """CRC-32 of everything that a trial says, so that a row says it too or is known to be damaged."""
    m = trial.measurement
    content = (
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
        *((m.attempts,) if m.attempts != 1 else ()),  # rows of schema 1 have none, and keep their checksum
    )
    return zlib.crc32(_dump(content).encode("utf-8", "surrogatepass"))


def encode_trial(trial: Trial) -> tuple[object, ...]:
    """Values of an admitted trial for the columns TRIAL_VALUES. A NaN as max_error is NULL, as SQLite would have it."""
    m = trial.measurement
    return (
        trial.actions,
        trial.program_hash,
        trial.space_version,
        float(trial.policy.timeout_s),
        m.status.value,
        _dump(m.samples_s),
        middle(m.samples_s) if m.samples_s else None,
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
        _checksum(trial),
    )


# ----------------------------------------------------------------------------------------------------------------------
# Out of rows


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise RowFault(f"{name} is {value!r}, not text")
    return value


def _real(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RowFault(f"{name} is {value!r}, not a number")
    return float(value)


def _integer(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RowFault(f"{name} is {value!r}, not an integer")
    return value


def _json(name: str, text: object) -> Any:
    try:
        return json.loads(_text(name, text))
    except (ValueError, RecursionError) as error:
        raise RowFault(f"{name} is not JSON: {error}") from error


def _samples(name: str, value: object) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise RowFault(f"{name} is {value!r}, not a list")
    return tuple(_real(f"{name}[{i}]", v) for i, v in enumerate(value))


@lru_cache(maxsize=256)
def load_fingerprint(fields: str) -> Fingerprint:
    """The inverse of dump_fingerprint. Raises RowFault."""
    pairs = _json("fingerprint", fields)
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
    values = _json("policy", fields)
    hints = {name: kind for name, kind in get_type_hints(Policy).items() if name != "timeout_s"}
    if not isinstance(values, dict) or values.keys() != hints.keys():
        raise RowFault(f"policy does not have the fields {', '.join(hints)}")
    rules: dict[object, Callable[[str, object], object]] = {int: _integer, float: _real}
    for name, kind in hints.items():
        rules.get(kind, _text)(name, values[name])
    policy = Policy(**values)
    if policy.text != text:
        raise RowFault(f"policy fields say {policy.text!r}, its text says {text!r}")
    return policy


def decode_trial(row: Sequence[Any]) -> Trial | Problem:
    """The trial of a row of TRIAL_COLUMNS, or what is wrong with it. Never raises for what a row may hold."""
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
    if value["status"] not in tuple(Status):
        raise RowFault(f"status {value['status']!r} is none of {', '.join(Status)}")
    policy = load_policy(_text("policy", policy_text), _text("policy", policy_fields))
    durations: dict[str, Any] = {name: _real(name, value[name]) for name in _DURATIONS}
    trial = Trial(
        kernel_key=_text("kernel key", key),
        kernel_text=_text("kernel text", kernel_text),
        fingerprint=load_fingerprint(_text("fingerprint", fields)),
        actions=_text("actions", value["actions"]),
        program_hash=_text("program_hash", value["program_hash"]),
        space_version=_integer("space_version", value["space_version"]),
        policy=replace(policy, timeout_s=_real("timeout_s", value["timeout_s"])),
        measurement=Measurement(
            status=Status(value["status"]),
            samples_s=_samples("samples_s", _json("samples_s", value["samples_s"])),
            error=_text("error", value["error"]),
            max_error=math.nan if value["max_error"] is None else _real("max_error", value["max_error"]),
            attempts=_integer("attempts", value["attempts"]),
            **durations,
        ),
        session=_text("session", value["session"]),
        origin=_text("origin", value["origin"]),
        created_s=_real("created_s", value["created_s"]),
    )
    if faults := list(_faults(trial)):
        raise RowFault("; ".join(faults))
    samples_s = trial.measurement.samples_s
    if value["median_s"] != (middle(samples_s) if samples_s else None):
        raise RowFault(f"median_s {value['median_s']!r} is not the median of its samples")
    if value["checksum"] != _checksum(trial):
        raise RowFault(f"checksum {value['checksum']!r} does not match the row's content")
    return trial


def decode_evidence(row: int, text: object) -> Evidence | Problem:
    """The evidence of promotion ``row``, or what is wrong with it."""
    try:
        value = _json("evidence", text)
        names = {"test", "p_value", "incumbent_samples", "challenger_samples", "cold"}
        if not isinstance(value, dict) or value.keys() != names:
            raise RowFault(f"evidence does not have the fields {', '.join(sorted(names))}")
        if not isinstance(value["cold"], bool):
            raise RowFault(f"cold is {value['cold']!r}, not true or false")
        evidence = Evidence(
            _text("test", value["test"]),
            _real("p_value", value["p_value"]),
            _samples("incumbent_samples", value["incumbent_samples"]),
            _samples("challenger_samples", value["challenger_samples"]),
            value["cold"],
        )
        if faults := list(_evidence_faults(evidence)):
            raise RowFault("; ".join(faults))
    except (RowFault, OverflowError) as error:
        return Problem("promotions", row, str(error))
    return evidence


def decode_withdrawal(row: int, trial: Trial, reason: object, session: object, created_s: object) -> Withdrawal:
    """The withdrawal of row ``row``. What can not be read of it reads as unknown: the trial stays withdrawn."""
    said = clean_text(reason) if isinstance(reason, str) else f"the reason in withdrawal {row} is damaged"
    by = session if isinstance(session, str) else "unknown"
    moment = float(created_s) if isinstance(created_s, int | float) and math.isfinite(created_s) else 0.0
    return Withdrawal(trial, said, by, moment)


def decode_session(row: Sequence[Any]) -> Session | Problem:
    """The session of a row of SESSION_COLUMNS, or what is wrong with it."""
    rowid, session_id, started_s, ended_s, command, seed, settings, version = row
    try:
        if not isinstance(_json("settings", settings), dict):
            raise RowFault("settings is not a JSON object")
        if not all(math.isfinite(_real("time", t)) for t in (started_s, ended_s) if t is not None):
            raise RowFault(f"started_s {started_s!r} or ended_s {ended_s!r} is not a finite time")
        return Session(
            _text("id", session_id),
            _real("started_s", started_s),
            None if ended_s is None else _real("ended_s", ended_s),
            _text("command", command),
            _integer("seed", seed),
            settings,
            _text("version", version),
        )
    except (RowFault, OverflowError) as error:
        return Problem("sessions", rowid, str(error))
