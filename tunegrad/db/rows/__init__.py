"""Records as rows of the store, and back: written plain, checked again each time they are read."""

from __future__ import annotations

from .decisions import (
    DECISION_COLUMNS,
    DECISION_FROM,
    DECISION_VALUES,
    admit_decision,
    decode_decision,
    encode_decision,
)
from .evidence import admit_evidence, decode_evidence, decode_withdrawal, dump_evidence
from .latencies import (
    LATENCY_COLUMNS,
    LATENCY_FROM,
    LATENCY_VALUES,
    admit_latency,
    decode_latency,
    encode_latency,
)
from .sessions import SESSION_COLUMNS, SESSION_VALUES, decode_session, encode_session
from .trials import (
    TRIAL_COLUMNS,
    TRIAL_FROM,
    TRIAL_VALUES,
    admit,
    decode_trial,
    dump_fingerprint,
    dump_policy,
    encode_trial,
    key_of,
    load_fingerprint,
    load_policy,
    machine_id,
)
from .values import RowFault, clean_text, dump_properties, properties_faults

__all__ = [
    "DECISION_COLUMNS",
    "DECISION_FROM",
    "DECISION_VALUES",
    "LATENCY_COLUMNS",
    "LATENCY_FROM",
    "LATENCY_VALUES",
    "SESSION_COLUMNS",
    "SESSION_VALUES",
    "TRIAL_COLUMNS",
    "TRIAL_FROM",
    "TRIAL_VALUES",
    "RowFault",
    "admit",
    "admit_decision",
    "admit_evidence",
    "admit_latency",
    "clean_text",
    "decode_decision",
    "decode_evidence",
    "decode_latency",
    "decode_session",
    "decode_trial",
    "decode_withdrawal",
    "dump_evidence",
    "dump_fingerprint",
    "dump_policy",
    "dump_properties",
    "encode_decision",
    "encode_latency",
    "encode_session",
    "encode_trial",
    "key_of",
    "load_fingerprint",
    "load_policy",
    "machine_id",
    "properties_faults",
]
