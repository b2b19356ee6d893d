"""Records as rows of the store, and back: written plain, checked again each time they are read.

    a record  --admit-->   as it will be read back; InternalError where it breaks a rule
              --encode-->  the values of a row, with a checksum of all that it says
    a row     --decode-->  the record, or a Problem: a value breaks its rule, or the checksum does
                           not match, since a flipped bit in a sample must not make a winner

Rows are data: JSON and numbers. A ``Form`` lists the columns of a record, a ``Kind`` says how a
value goes into a column and out of it, and which rule it keeps.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache, partial
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, get_type_hints

from tunegrad.db.records import (
    IMPORTED,
    LATENCY_KINDS,
    QUESTIONS,
    Decision,
    Evidence,
    Latency,
    Problem,
    Session,
    Withdrawal,
)
from tunegrad.errors import InternalError, StoreError
from tunegrad.ir.kernel import key_of as text_key
from tunegrad.lazy import dataclass
from tunegrad.trial import Fingerprint, Measurement, Policy, Properties, Status, Trial

_ERROR_CHARACTERS = 16_000
"""Of the error of a row: a compiler may say megabytes."""

_Record = TypeVar("_Record", Trial, Decision, Latency, Session)

key_of = lru_cache(maxsize=256)(text_key)
"""The key of a kernel by its canonical text; the latest are remembered, since rows repeat them."""


class RowFault(StoreError):
    """A value of a row that breaks its rule. Never leaves the store: it becomes a Problem."""


# ---- values into rows


def clean_text(text: str, limit: int | None = None) -> str:
    """Text as valid UTF-8, lone surrogates as escapes, cut to ``limit`` characters, marked."""
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    if limit is None or len(text) <= limit:
        return text
    note = f" ... [{len(text)} characters in all]"
    return text[: limit - len(note)] + note


def _real(value: float) -> float:
    """The number as SQLite gives it back: a float, and zero without a sign."""
    return float(value) + 0.0


def _dump(value: object) -> str:
    """The value as JSON in one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def dump_properties(properties: Properties) -> str:
    """Named numbers and words as one JSON object."""
    return _dump(dict(properties))


def _plain_samples(samples: Iterable[float]) -> tuple[float, ...]:
    return tuple(float(s) for s in samples)


def _plain_properties(properties: Properties) -> Properties:
    """The same with every number as a float."""
    return tuple((name, v if isinstance(v, str) else float(v)) for name, v in properties)


def _checksum(content: tuple[object, ...]) -> int:
    """CRC-32 of everything that a row says: a flipped bit makes it damaged, not wrong."""
    return zlib.crc32(_dump(content).encode("utf-8", "surrogatepass"))


# ---- values out of rows: each raises RowFault


def take_text(name: str, value: object) -> str:
    """The value, which is text. Raises RowFault."""
    if not isinstance(value, str):
        raise RowFault(f"{name} is {value!r}, not text")
    return value


def _take_real(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RowFault(f"{name} is {value!r}, not a number")
    return float(value)


def _take_integer(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RowFault(f"{name} is {value!r}, not an integer")
    return value


def _take_flag(name: str, value: object) -> bool:
    if value not in (0, 1) or not isinstance(value, int):
        raise RowFault(f"{name} is {value!r}, not 0 or 1")
    return bool(value)


def _take_choice(choices: Iterable[str], name: str, value: object) -> str:
    if value not in tuple(choices):
        raise RowFault(f"{name} {value!r} is none of {', '.join(choices)}")
    return str(value)


def _take_json(name: str, value: object) -> Any:
    try:
        return json.loads(take_text(name, value))
    except (ValueError, RecursionError) as error:
        raise RowFault(f"{name} is not JSON: {error}") from error


def _samples(name: str, value: object) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise RowFault(f"{name} is {value!r}, not a list")
    return tuple(_take_real(f"{name}[{i}]", v) for i, v in enumerate(value))


def _take_samples(name: str, value: object) -> tuple[float, ...]:
    return _samples(name, _take_json(name, value))


def _take_properties(name: str, value: object) -> Properties:
    found = _take_json(name, value)
    if not isinstance(found, dict):
        raise RowFault(f"{name} is {value!r}, not a JSON object")
    return tuple(
        (key, v if isinstance(v, str) else _take_real(f"{name} {key}", v))
        for key, v in found.items()
    )


def _take_settings(name: str, value: object) -> str:
    if not isinstance(_take_json(name, value), dict):
        raise RowFault(f"{name} is not a JSON object")
    return take_text(name, value)


# ---- rules of values, in both directions


def _is_utf8(text: str) -> bool:
    """True for valid Unicode: a text without lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


Faults = Iterable[str]


def _text_faults(name: str, text: str) -> Faults:
    return () if _is_utf8(text) else (f"{name} is not valid Unicode: {text!r}",)


def _moment_faults(name: str, value: float | None) -> Faults:
    finite = value is None or math.isfinite(value)
    return () if finite else (f"{name} is {value!r}, not finite",)


def _time_faults(name: str, value: float) -> Faults:
    return () if 0 <= value < math.inf else (f"{name} is {value!r}, not a finite time >= 0",)


def _count_faults(name: str, value: int) -> Faults:
    return () if value >= 1 else (f"{name} is {value!r}, not at least 1",)


def _sample_faults(name: str, samples: Sequence[float]) -> Faults:
    if all([0 <= s < math.inf for s in samples]):  # noqa: C419  # a generator takes longer
        return ()
    return [f for i, s in enumerate(samples) for f in _time_faults(f"{name}[{i}]", s)]


def properties_faults(name: str, properties: Properties) -> Iterator[str]:
    """Every rule that named numbers and words break."""
    names = [key for key, _ in properties]
    if any(a >= b for a, b in pairwise(names)):
        yield f"{name} are not sorted and distinct: {names}"
    for key, value in properties:
        if isinstance(value, float) and not math.isfinite(value):
            yield f"{name} {key} is {value!r}, not finite"
        if not _is_utf8(f"{key}{value}"):
            yield f"{name} {key!r} is not valid Unicode: {value!r}"


def _choice_faults(choices: Sequence[str], name: str, value: str) -> Faults:
    return () if value in choices else (f"{name} {value!r} is none of {', '.join(choices)}",)


def _fingerprint_faults(fingerprint: Fingerprint) -> Iterator[str]:
    names = [name for name, _ in fingerprint.fields]
    if any(a >= b for a, b in pairwise(names)):
        yield f"fingerprint fields are not sorted and distinct: {names}"


# ---- evidence


_EVIDENCE = ("test", "p_value", "incumbent_samples", "challenger_samples", "cold")


def _plain_evidence(e: Evidence) -> Evidence:
    return replace(
        e,
        p_value=float(e.p_value),
        incumbent_samples_s=_plain_samples(e.incumbent_samples_s),
        challenger_samples_s=_plain_samples(e.challenger_samples_s),
    )


def admit_evidence(evidence: Evidence) -> Evidence:
    """The evidence with plain floats.

    Raises InternalError for a p-value outside [0, 1] or a sample that is no time.
    """
    evidence = _plain_evidence(evidence)
    if faults := list(_evidence_faults("evidence", evidence)):
        raise InternalError(f"evidence by {evidence.test!r}: {'; '.join(faults)}")
    return evidence


def _evidence_faults(_: str, evidence: Evidence) -> Iterator[str]:
    if not 0 <= evidence.p_value <= 1:
        yield f"p_value is {evidence.p_value!r}, not in [0, 1]"
    yield from _text_faults("test", evidence.test)
    yield from _sample_faults("incumbent_samples", evidence.incumbent_samples_s)
    yield from _sample_faults("challenger_samples", evidence.challenger_samples_s)


def _evidence_values(e: Evidence) -> tuple[object, ...]:
    return e.test, e.p_value, e.incumbent_samples_s, e.challenger_samples_s, e.cold


def dump_evidence(evidence: Evidence) -> str:
    """Evidence as one JSON object."""
    return _dump(dict(zip(_EVIDENCE, _evidence_values(evidence), strict=True)))


def json_evidence(evidence: Evidence) -> dict[str, object]:
    """Evidence as an exported file has it, which does not mark what was imported."""
    return asdict(replace(evidence, test=evidence.test.removeprefix(IMPORTED)))


def _take_evidence(name: str, text: object) -> Evidence:
    value = _take_json(name, text)
    if not isinstance(value, dict) or value.keys() != set(_EVIDENCE):
        raise RowFault(f"evidence does not have the fields {', '.join(sorted(_EVIDENCE))}")
    if not isinstance(value["cold"], bool):
        raise RowFault(f"cold is {value['cold']!r}, not true or false")
    return Evidence(
        take_text("test", value["test"]),
        _take_real("p_value", value["p_value"]),
        _samples("incumbent_samples", value["incumbent_samples"]),
        _samples("challenger_samples", value["challenger_samples"]),
        value["cold"],
    )


def decode_evidence(row: int, text: object) -> Evidence | Problem:
    """The evidence of promotion ``row``, or what is wrong with it."""
    try:
        evidence = _take_evidence("evidence", text)
        _sound(_evidence_faults("evidence", evidence))
    except (RowFault, OverflowError) as error:
        return Problem("promotions", row, str(error))
    return evidence


def decode_withdrawal(
    row: int, trial: Trial, reason: object, session: object, created_s: object
) -> Withdrawal:
    """The withdrawal of row ``row``.

    What can not be read of it reads as unknown: the trial stays withdrawn.
    """
    damaged = f"the reason in withdrawal {row} is damaged"
    said = clean_text(reason) if isinstance(reason, str) else damaged
    by = session if isinstance(session, str) else "unknown"
    moment = (
        float(created_s) if isinstance(created_s, int | float) and math.isfinite(created_s) else 0.0
    )
    return Withdrawal(trial, said, by, moment)


# ---- kinds of values, and forms of records


def _same(value: Any) -> Any:
    return value


def _no_faults(_name: str, _value: Any) -> Faults:
    return ()


class Kind(NamedTuple):
    """A kind of value: how it is read from a column and written there, how it looks once it was
    read, the rule that it keeps, and its JSON in an exported file.
    """

    take: Callable[[str, object], Any]
    dump: Callable[[Any], object] = _same
    plain: Callable[[Any], Any] = _same
    faults: Callable[[str, Any], Faults] = _no_faults
    json: Callable[[Any], object] = _same


def finite_json(value: object) -> object:
    """A number that is not finite as text: ``inf``, ``nan``."""
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)


def _choice(choices: Sequence[str]) -> Kind:
    return Kind(partial(_take_choice, choices), faults=partial(_choice_faults, choices))


_TEXT = Kind(take_text, faults=_text_faults)
_NAME = _TEXT._replace(plain=clean_text)
_ERROR = Kind(take_text, plain=lambda text: clean_text(text, _ERROR_CHARACTERS))
_INTEGER = Kind(_take_integer)
_COUNT = Kind(_take_integer, faults=_count_faults)
_FLAG = Kind(_take_flag, int)
_MOMENT = Kind(_take_real, plain=_real, faults=_moment_faults)
_TIME = Kind(_take_real, plain=_real, faults=_time_faults)
_SAMPLES = Kind(_take_samples, _dump, _plain_samples, _sample_faults)
_PROPERTIES = Kind(_take_properties, dump_properties, _plain_properties, properties_faults, dict)
_EVIDENCE_TEXT = Kind(
    _take_evidence, dump_evidence, _plain_evidence, _evidence_faults, json_evidence
)
_STATUS = Kind(
    lambda name, value: Status(_take_choice(Status, name, value)),
    lambda status: status.value,
    json=lambda status: status.value,
)
_ORIGIN = _NAME._replace(json=lambda origin: origin.removeprefix(IMPORTED))
_END = Kind(
    lambda name, value: None if value is None else _take_real(name, value), faults=_moment_faults
)
# NaN is NULL, as SQLite would have it.
_MAX_ERROR = Kind(
    lambda name, value: math.nan if value is None else _take_real(name, value),
    lambda value: None if math.isnan(value) else value,
    _real,
    json=finite_json,
)


class Column(NamedTuple):
    """A column and the field of the same name, of the record or of its ``part``."""

    name: str
    kind: Kind
    of: Callable[[Any], Any]
    part: str = ""


def _column(name: str, kind: Kind, part: str = "") -> Column:
    return Column(name, kind, attrgetter(f"{part}.{name}" if part else name), part)


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a record as a row.

    ``owners`` are what a row takes from the rows that it names, ``source`` is the table with these
    rows beside it, ``columns`` are its own; ``derived`` columns follow from all that.
    """

    table: str
    source: str
    owners: tuple[str, ...]
    columns: tuple[Column, ...]
    derived: tuple[str, ...] = ("checksum",)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns whose values ``encode`` gives, in order."""
        return (*(c.name for c in self.columns), *self.derived)

    @property
    def select(self) -> str:
        """The columns that ``decode`` reads: the row's id, its owners, its own."""
        alias = f"{self.table[0]}."
        row_id = "rowid" if self.table == "sessions" else f"{alias}id"
        return ", ".join((row_id, *self.owners, *(f"{alias}{n}" for n in self.names)))

    def written(self, record: object) -> tuple[object, ...]:
        """The values of its own columns, in order."""
        return tuple([c.kind.dump(c.of(record)) for c in self.columns])

    def read(self, row: Sequence[object]) -> dict[str, Any]:
        """The fields of a row's own columns, by name. Raises RowFault."""
        return {c.name: c.kind.take(c.name, v) for c, v in zip(self.columns, row, strict=True)}

    def parted(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Fields of the record, and those of its part."""
        own = {c.name: values[c.name] for c in self.columns if not c.part}
        return own, {c.name: values[c.name] for c in self.columns if c.part}

    def faults(self, record: object) -> Iterator[str]:
        """Every rule that a field breaks."""
        for c in self.columns:
            yield from c.kind.faults(c.name, c.of(record))

    def plain(self, record: _Record) -> _Record:
        """The record with its own fields as they will be read back."""
        own = (c for c in self.columns if not c.part and c.kind.plain is not _same)
        return replace(record, **{c.name: c.kind.plain(getattr(record, c.name)) for c in own})

    def json(self, record: object) -> dict[str, object]:
        """Its own columns as an exported file has them."""
        return {c.name: c.kind.json(c.of(record)) for c in self.columns}


_M = "measurement"
TRIALS = Form(
    "trials",
    "trials t LEFT JOIN kernels k ON k.id = t.kernel LEFT JOIN fingerprints f ON f.id = "
    "t.fingerprint LEFT JOIN policies p ON p.id = t.policy",
    ("k.key", "k.text", "f.fields", "p.text", "p.fields"),
    (
        _column("actions", _TEXT),
        _column("program_hash", _TEXT),
        _column("space_version", _INTEGER),
        _column("status", _STATUS, _M),
        _column("samples_s", _SAMPLES, _M),
        _column("error", _ERROR, _M),
        _column("lower_s", _TIME, _M),
        _column("compile_s", _TIME, _M),
        _column("verify_s", _TIME, _M),
        _column("timing_s", _TIME, _M),
        _column("max_error", _MAX_ERROR, _M),
        _column("attempts", _COUNT, _M),
        _column("reference_samples_s", _SAMPLES, _M),
        _column("reference_program", _TEXT, _M),
        _column("reference_s", _TIME, _M),
        _column("facts", _PROPERTIES, _M),
        _column("state", _PROPERTIES, _M),
        _column("session", _TEXT),
        _column("origin", _ORIGIN),
        _column("created_s", _MOMENT),
    ),
    ("timeout_s", "median_s", "checksum"),
)
DECISIONS = Form(
    "decisions",
    "decisions d LEFT JOIN kernels k ON k.id = d.kernel LEFT JOIN fingerprints f "
    "ON f.id = d.fingerprint",
    ("k.key", "k.text", "f.fields"),
    (
        _column("kind", _choice(QUESTIONS)),
        _column("space_version", _INTEGER),
        _column("choice", _TEXT),
        _column("chosen", _FLAG),
        _column("evidence", _EVIDENCE_TEXT),
        _column("status", _STATUS),
        _column("error", _ERROR),
        _column("policy", _TEXT),
        _column("session", _TEXT),
        _column("created_s", _MOMENT),
    ),
)
LATENCIES = Form(
    "latencies",
    "latencies l LEFT JOIN fingerprints f ON f.id = l.fingerprint",
    ("f.fields",),
    (
        _column("model", _NAME),
        _column("model_key", _TEXT),
        _column("kind", _choice(LATENCY_KINDS)),
        _column("samples_s", _SAMPLES),
        _column("default_samples_s", _SAMPLES),
        _column("session", _TEXT),
        _column("created_s", _MOMENT),
        _column("versions", _PROPERTIES),
        _column("state", _PROPERTIES),
        _column("imported", _FLAG),
    ),
)
SESSIONS = Form(
    "sessions",
    "sessions s",
    (),
    (
        _column("id", _TEXT),
        _column("started_s", _MOMENT),
        _column("ended_s", _END),
        _column("command", _TEXT),
        _column("seed", _INTEGER),
        _column("settings", Kind(_take_settings)),
        _column("version", _TEXT),
        _column("versions", _PROPERTIES),
        _column("state", _PROPERTIES),
    ),
    (),
)


def _decoded(
    form: Form, row: Sequence[Any], make: Callable[[Sequence[Any]], _Record]
) -> _Record | Problem:
    """The record of a row, or what is wrong with it. Never raises for what a row may hold."""
    try:
        for name, value in zip(form.owners, row[1:], strict=False):
            if value is None:
                named = {"k": "kernel", "f": "fingerprint", "p": "policy"}[name[0]]
                raise RowFault(f"orphan: its {named} row is missing")
        return make(row)
    except (RowFault, OverflowError) as error:
        return Problem(form.table, row[0] if isinstance(row[0], int) else None, str(error))


def _sound(faults: Iterable[str]) -> None:
    """Raise RowFault for faults."""
    if found := list(faults):
        raise RowFault("; ".join(found))


def _checked(faults: Iterable[str], stored: object, checksum: int) -> None:
    """Raise RowFault for faults, and for a checksum that is not that of the content."""
    _sound(faults)
    if stored != checksum:
        raise RowFault(f"checksum {stored!r} does not match the row's content")


# ---- trials


def _beside_fault(name: str, others: Sequence[float], samples: Sequence[float]) -> Iterator[str]:
    if others and len(others) != len(samples):
        yield f"{len(others)} {name} stand beside {len(samples)} samples_s"


def _trial_faults(trial: Trial) -> Iterator[str]:
    if key_of(trial.kernel_text) != trial.kernel_key:
        yield (
            f"kernel key {trial.kernel_key!r} is not the hash {key_of(trial.kernel_text)} of "
            "its text"
        )
    m = trial.measurement
    yield from TRIALS.faults(trial)
    yield from _beside_fault("reference_samples_s", m.reference_samples_s, m.samples_s)
    yield from _text_faults("kernel_text", trial.kernel_text)
    yield from _text_faults("policy", trial.policy.text)


def admit(trial: Trial) -> Trial:
    """The trial as it will be read back: plain floats, valid UTF-8, a bounded error text.

    Raises InternalError when it breaks a rule of the store: only tunegrad itself makes trials.
    """
    m = trial.measurement
    plain = {c.name: c.kind.plain(getattr(m, c.name)) for c in TRIALS.columns if c.part}
    trial = replace(TRIALS.plain(trial), measurement=replace(m, **plain))
    if faults := [*_trial_faults(trial), *_fingerprint_faults(trial.fingerprint)]:
        raise InternalError(
            f"trial of kernel {trial.kernel_key}, actions {trial.actions!r}: {'; '.join(faults)}"
        )
    return trial


def _trial_checksum(trial: Trial) -> int:
    """Of everything that a trial says.

    What an older schema has no column for is left out where it says nothing: old rows keep theirs.
    """
    m = trial.measurement
    beside = (m.reference_samples_s, m.reference_program)
    return _checksum(
        (
            trial.kernel_key, trial.fingerprint.fields, trial.actions, trial.program_hash,
            trial.space_version, trial.policy.text, float(trial.policy.timeout_s), m.status,
            m.samples_s, m.error, m.lower_s, m.compile_s, m.verify_s, m.timing_s, m.max_error,
            trial.session, trial.origin, trial.created_s,
            *((m.attempts,) if m.attempts != 1 else ()),
            *((beside,) if any(beside) else ()),
            *((m.reference_s,) if m.reference_s else ()),
            *((m.facts, m.state) if m.facts or m.state else ()),
        )
    )  # fmt: skip


def encode_trial(trial: Trial) -> tuple[object, ...]:
    """Values of an admitted trial for the columns ``TRIALS.names``."""
    m = trial.measurement
    median_s = m.seconds if m.samples_s else None
    timeout_s = float(trial.policy.timeout_s)
    return (*TRIALS.written(trial), timeout_s, median_s, _trial_checksum(trial))


def decode_trial(row: Sequence[Any]) -> Trial | Problem:
    """The trial of a row of ``TRIALS.select``, or what is wrong with it."""
    return _decoded(TRIALS, row, _trial)


def _trial(row: Sequence[Any]) -> Trial:
    _, key, text, fields, policy_text, policy_fields, *values, timeout_s, median_s, checksum = row
    own, measured = TRIALS.parted(TRIALS.read(values))
    policy = load_policy(take_text("policy", policy_text), take_text("policy", policy_fields))
    m = Measurement(**measured)
    trial = Trial(
        kernel_key=take_text("kernel key", key),
        kernel_text=take_text("kernel text", text),
        fingerprint=load_fingerprint(take_text("fingerprint", fields)),
        policy=replace(policy, timeout_s=_take_real("timeout_s", timeout_s)),
        measurement=m,
        **own,
    )
    faults = [*_trial_faults(trial)]
    if not faults and median_s != (m.seconds if m.samples_s else None):
        faults = [f"median_s {median_s!r} does not follow from its samples"]
    _checked(faults, checksum, _trial_checksum(trial))
    return trial


# ---- what trials name


def dump_fingerprint(fingerprint: Fingerprint) -> str:
    """Fields as a JSON list of [name, value] pairs, in ASCII: the identity of a fingerprint."""
    return json.dumps(fingerprint.fields, separators=(",", ":"))


@lru_cache(maxsize=256)
def machine_id(fingerprint: Fingerprint) -> str:
    """Name of a fingerprint in the rows of a file: 16 hex digits of the SHA-256 of its fields."""
    return hashlib.sha256(dump_fingerprint(fingerprint).encode("ascii")).hexdigest()[:16]


@lru_cache(maxsize=256)
def load_fingerprint(fields: str) -> Fingerprint:
    """The inverse of dump_fingerprint. Raises RowFault."""
    pairs = _take_json("fingerprint", fields)
    shaped = isinstance(pairs, list) and all(
        isinstance(p, list) and len(p) == 2 and all(isinstance(v, str) for v in p) for p in pairs
    )
    if not shaped:
        raise RowFault("fingerprint is not a list of [name, value] pairs")
    fingerprint = Fingerprint(tuple((name, value) for name, value in pairs))
    for fault in _fingerprint_faults(fingerprint):
        raise RowFault(fault)
    return fingerprint


def dump_policy(policy: Policy) -> str:
    """The fields of a policy as JSON, without ``timeout_s``, which each trial carries."""
    fields = asdict(policy)
    del fields["timeout_s"]
    return _dump(fields)


@lru_cache(maxsize=64)
def load_policy(text: str, fields: str) -> Policy:
    """The inverse of dump_policy, checked against the policy's text. Raises RowFault."""
    values = _take_json("policy", fields)
    hints = {name: kind for name, kind in get_type_hints(Policy).items() if name != "timeout_s"}
    if not isinstance(values, dict) or values.keys() != hints.keys():
        raise RowFault(f"policy does not have the fields {', '.join(hints)}")
    rules: dict[object, Callable[[str, object], object]] = {int: _take_integer, float: _take_real}
    for name, kind in hints.items():
        rules.get(kind, take_text)(name, values[name])
    policy = Policy(**values)
    if policy.text != text:
        raise RowFault(f"policy fields say {policy.text!r}, its text says {text!r}")
    return policy


# ---- decisions


def admit_decision(decision: Decision) -> Decision:
    """The decision as it will be read back. Raises InternalError when it breaks a rule."""
    admit_evidence(decision.evidence)
    decision = DECISIONS.plain(decision)
    if faults := [*_decision_faults(decision), *_fingerprint_faults(decision.fingerprint)]:
        raise InternalError(f"decision {decision.kind} {decision.choice!r}: {'; '.join(faults)}")
    return decision


def _decision_faults(d: Decision) -> Iterator[str]:
    if d.chosen and d.status is not Status.OK:
        yield f"chosen, and its status is {d.status}"
    yield from DECISIONS.faults(d)
    yield from _text_faults("text", d.text)


def _decision_checksum(d: Decision) -> int:
    return _checksum(
        (
            d.kind, d.key, d.fingerprint.fields, d.space_version, d.choice, d.chosen, d.status,
            d.error, d.policy, d.session, d.created_s, *_evidence_values(d.evidence),
        )
    )  # fmt: skip


def encode_decision(d: Decision) -> tuple[object, ...]:
    """Values of an admitted decision for the columns ``DECISIONS.names``."""
    return (*DECISIONS.written(d), _decision_checksum(d))


def decode_decision(row: Sequence[Any]) -> Decision | Problem:
    """The decision of a row of ``DECISIONS.select``, or what is wrong with it."""
    return _decoded(DECISIONS, row, _decision)


def _decision(row: Sequence[Any]) -> Decision:
    _, key, text, fields, *values, checksum = row
    if key_of(take_text("kernel text", text)) != key:
        raise RowFault(f"kernel key {key!r} is not the hash {key_of(text)} of its text")
    fingerprint = load_fingerprint(take_text("fingerprint", fields))
    decision = Decision(text=text, fingerprint=fingerprint, **DECISIONS.read(values))
    _checked(_decision_faults(decision), checksum, _decision_checksum(decision))
    return decision


# ---- latencies, sessions


def admit_latency(latency: Latency) -> Latency:
    """The latency as it will be read back. Raises InternalError when it breaks a rule."""
    latency = LATENCIES.plain(latency)
    if faults := list(_latency_faults(latency)):
        raise InternalError(f"latency of model {latency.model!r}: {'; '.join(faults)}")
    return latency


def _latency_faults(x: Latency) -> Iterator[str]:
    if not x.samples_s:
        yield "it has no samples"
    yield from LATENCIES.faults(x)
    yield from _beside_fault("default_samples_s", x.default_samples_s, x.samples_s)


def _latency_checksum(x: Latency) -> int:
    return _checksum(
        (
            x.model, x.model_key, x.kind, x.fingerprint.fields, x.samples_s, x.default_samples_s,
            x.session, x.created_s, x.versions, x.state, x.imported,
        )
    )  # fmt: skip


def encode_latency(x: Latency) -> tuple[object, ...]:
    """Values of an admitted latency for the columns ``LATENCIES.names``."""
    return (*LATENCIES.written(x), _latency_checksum(x))


def decode_latency(row: Sequence[Any]) -> Latency | Problem:
    """The latency of a row of ``LATENCIES.select``, or what is wrong with it."""
    return _decoded(LATENCIES, row, _latency)


def _latency(row: Sequence[Any]) -> Latency:
    _, fields, *values, checksum = row
    fingerprint = load_fingerprint(take_text("fingerprint", fields))
    latency = Latency(fingerprint=fingerprint, **LATENCIES.read(values))
    _checked(_latency_faults(latency), checksum, _latency_checksum(latency))
    return latency


def encode_session(session: Session) -> tuple[object, ...]:
    """Values of a session for the columns ``SESSIONS.names``."""
    return SESSIONS.written(session)


def decode_session(row: Sequence[Any]) -> Session | Problem:
    """The session of a row of ``SESSIONS.select``, or what is wrong with it."""
    return _decoded(SESSIONS, row, _session)


def _session(row: Sequence[Any]) -> Session:
    session = Session(**SESSIONS.read(row[1:]))
    _sound(SESSIONS.faults(session))
    return session
