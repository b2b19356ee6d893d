"""Small stores drawn by Hypothesis: few kernels, machines and schedules, so that stores share
trials and disagree.
"""

from __future__ import annotations

import math

from hypothesis import strategies as st

from tunegrad.db import Contents, Decision, Evidence, Latency, Session, key_of
from tunegrad.db.contents import Promotion, Spend, Withdrawn, identity
from tunegrad.db.exchange.export import export_lines
from tunegrad.db.rows import dump_fingerprint
from tunegrad.trial import Fingerprint, Measurement, Policy, Status, Trial

KERNELS = ("kernel\n  a", "kernel\n  b")
MACHINES = tuple(Fingerprint((("arch", arch), ("device", "cpu"))) for arch in ("skylake", "znver4"))
ACTIONS = ("", "unroll(axis=a)", "vectorize(axis=b)")
POLICIES = (Policy(), Policy(cache="cold"))
TIMES = (1e-3, 2e-3, 3e-3, 0.1 + 0.2)
SESSIONS = tuple(
    Session(f"s{n}", float(n), None, "tune mlp" if n else "", n, "{}", "0.1.0") for n in range(3)
)
samples = st.lists(st.sampled_from(TIMES), min_size=1, max_size=3).map(tuple)
moments = st.integers(0, 5).map(float)


@st.composite
def trials(draw: st.DrawFn) -> Trial:
    """A trial of one of a few schedules, ended in any way."""
    text = draw(st.sampled_from(KERNELS))
    status = draw(st.sampled_from([Status.OK, Status.OK, *Status]))
    taken = draw(samples) if status is Status.OK else ()
    return Trial(
        kernel_key=key_of(text),
        kernel_text=text,
        fingerprint=draw(st.sampled_from(MACHINES)),
        actions=draw(st.sampled_from(ACTIONS)),
        program_hash="",
        space_version=draw(st.integers(1, 2)),
        policy=draw(st.sampled_from(POLICIES)),
        measurement=Measurement(
            status,
            taken,
            reference_samples_s=taken if draw(st.booleans()) else (),
            reference_program=draw(st.sampled_from(["", "f" * 32])),
            reference_s=draw(st.sampled_from([0.0, 2e-3])),
            attempts=draw(st.integers(1, 2)),
            error=draw(st.sampled_from(["", "off by\n\x1b[1m0.5 \u2603"])),
            max_error=draw(st.sampled_from([0.0, 0.25, math.inf, math.nan])),
            facts=draw(st.sampled_from([(), (("registers", 64.0), ("spills", 0.0))])),
            state=draw(st.sampled_from([(), (("sm_mhz", 1755.0),)])),
        ),
        session=draw(st.sampled_from(SESSIONS)).id,
        origin=draw(st.sampled_from(["beam", "default"])),
        created_s=draw(moments),
    )


@st.composite
def decisions(draw: st.DrawFn) -> Decision:
    """An alternative of one of a few questions."""
    status = draw(st.sampled_from([Status.OK, Status.OK, Status.CRASHED]))
    evidence = Evidence(
        "sign", draw(st.sampled_from([0.001, 1.0])), draw(samples), draw(samples), cold=False
    )
    return Decision(
        kind=draw(st.sampled_from(["variant", "cut"])),
        text=draw(st.sampled_from((*KERNELS, "region\nc"))),
        choice=draw(st.sampled_from(["direct", "winograd2", "keep_1"])),
        chosen=status is Status.OK and draw(st.booleans()),
        evidence=evidence,
        fingerprint=draw(st.sampled_from(MACHINES)),
        space_version=1,
        session=draw(st.sampled_from(SESSIONS)).id,
        created_s=draw(moments),
        status=status,
        error=draw(st.sampled_from(["", "in the whole model:\n\x1b[1mcrashed"])),
        policy=Policy().text,
    )


@st.composite
def latencies(draw: st.DrawFn) -> Latency:
    """What one of two models took."""
    taken = draw(samples)
    return Latency(
        model=draw(st.sampled_from(["mlp", "encoder"])),
        model_key="f" * 32,
        kind=draw(st.sampled_from(["tuned", "default"])),
        fingerprint=draw(st.sampled_from(MACHINES)),
        samples_s=taken,
        default_samples_s=draw(st.sampled_from([(), taken])),
        session=draw(st.sampled_from(SESSIONS)).id,
        created_s=draw(moments),
        versions=(("tunegrad", "0.1.0"),),
        state=(("governor", "unknown"), ("load_1m", 0.5)),
    )


@st.composite
def stores(draw: st.DrawFn) -> Contents:
    """A store as one process may have filled it: each trial once, promotions of timed trials
    only.
    """
    found = {identity(t): t for t in draw(st.lists(trials(), max_size=8))}
    timed = [t for t in found.values() if t.measurement.ran]
    promotions = []
    for trial in draw(st.lists(st.sampled_from(timed), max_size=4)) if timed else []:
        incumbent = draw(st.one_of(st.just(()), samples))
        evidence = Evidence(
            "mannwhitneyu",
            draw(st.sampled_from([0.001, 1.0])),
            incumbent,
            draw(samples),
            draw(st.booleans()),
        )
        promotions.append(Promotion(identity(trial), evidence, draw(moments)))
    decided = tuple(dict.fromkeys(draw(st.lists(decisions(), max_size=4))))
    timed_models = tuple(dict.fromkeys(draw(st.lists(latencies(), max_size=3))))
    texts = sorted({t.kernel_text for t in found.values()} | {d.text for d in decided}, key=key_of)
    named = {row.session for row in (*found.values(), *decided, *timed_models)}
    bad = draw(st.lists(st.sampled_from(timed), max_size=2)) if timed else []
    voids = {
        identity(t): Withdrawn(
            identity(t), "it was wrong", draw(st.sampled_from(sorted(named))), draw(moments)
        )
        for t in bad
    }
    spends = {
        (model, machine): Spend(model, machine, "beam", draw(moments))
        for model, machine in draw(
            st.lists(st.tuples(st.just("m"), st.sampled_from(MACHINES)), max_size=2)
        )
    }
    return Contents(
        kernels=tuple((text, draw(st.sampled_from(["", "conv", "matmul"]))) for text in texts),
        sessions=tuple(s for s in SESSIONS if s.id in named),
        trials=tuple(found.values()),
        promotions=tuple(dict.fromkeys(promotions)),
        spends=tuple(
            sorted(spends.values(), key=lambda s: (s.model_key, dump_fingerprint(s.fingerprint)))
        ),
        withdrawals=tuple(voids.values()),
        decisions=decided,
        latencies=timed_models,
    )


def dump(contents: Contents) -> list[str]:
    """Everything as text, so that NaN equals NaN."""
    marks = [f"imported {t.origin}" for t in contents.trials] + [
        p.evidence.test for p in contents.promotions
    ]
    marks += [w.reason for w in contents.withdrawals] + [
        d.evidence.test for d in contents.decisions
    ]
    marks += [f"imported {x.imported}" for x in contents.latencies]
    return [*export_lines(contents), *marks]
