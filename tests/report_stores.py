"""Stores as tune sessions leave them, with scripted times, for the tests of reports."""

from __future__ import annotations

from pathlib import Path

from tests.kernel_corpus import corpus_kernel
from tunegrad.db import Evidence, Latency, Properties, Store, open_store
from tunegrad.trial import Fingerprint, Measurement, Policy, Status, Trial

HERE = Fingerprint((("arch", "znver4"), ("device", "cpu"), ("threads", "2")))
GEMM, ROWS = corpus_kernel("gemm"), corpus_kernel("softmax")
KEY, OTHER = GEMM.key, ROWS.key
WINNER = "tile(axis=b, size=16) vectorize(axis=b1)"
CODE: Properties = (("instructions", 37.0), ("spills", 0.0))
BEFORE = (2.0e-3, 2.1e-3, 1.9e-3, 2.0e-3, 2.2e-3, 2.0e-3, 2.1e-3, 2.0e-3)
AFTER = (1.0e-3, 1.0e-3, 1.1e-3, 1.0e-3, 1.0e-3, 0.9e-3, 1.0e-3, 1.0e-3)


def trial(
    kernel: str,
    text: str,
    actions: str,
    seconds: float,
    at_s: float,
    origin: str,
    session: str,
    error: str = "",
    status: Status = Status.CRASHED,
    here: Fingerprint = HERE,
) -> Trial:
    """A trial at a moment of its session; with an error it failed."""
    measured = (
        Measurement(status, error=error, timing_s=0.1, compile_s=0.2)
        if error
        else Measurement(Status.OK, (seconds,) * 3, timing_s=0.1, compile_s=0.2, facts=CODE)
    )
    return Trial(
        kernel, text, here, actions, f"program of {actions}", 2, Policy(), measured, session,
        origin, at_s,
    )  # fmt: skip


def facts(layers: str = "layers.0", others_cpus: float = 0.0) -> Properties:
    """What a session says of itself when it ends."""
    found: dict[str, float | str] = {
        "others_cpus_mean": others_cpus,
        "peak_gflops": 100.0, "cache_gb_per_s": 200.0, "memory_gb_per_s": 20.0,
        "seconds.asking": 3.0, "seconds.timing": 5.0, "seconds.other": 0.5,
        f"kernel.{KEY}.uses": 2.0, f"kernel.{KEY}.layers": layers,
        f"kernel.{KEY}.default_s": 2e-3, f"kernel.{KEY}.tuned_s": 1e-3,
        f"kernel.{KEY}.gain": 2.0, f"kernel.{KEY}.low": 1.9, f"kernel.{KEY}.high": 2.1,
        f"kernel.{OTHER}.uses": 1.0, f"kernel.{OTHER}.layers": "after layers.0",
        f"kernel.{OTHER}.default_s": 5e-4, f"kernel.{OTHER}.tuned_s": 5e-4,
    }  # fmt: skip
    return tuple(sorted(found.items()))


def write_session(
    store: Store,
    session: str,
    model: str = "small",
    *,
    with_facts: bool = True,
    names: tuple[str, str] = ("matmul 64x64x64", "softmax 8x8"),
    layers: str = "layers.0",
    error: str = "worker: signal 11",
    origin: str = "portfolio:beam",
    promoted: bool = True,
    here: Fingerprint = HERE,
    others_cpus: float = 0.0,
) -> None:
    """A session of a model of two kernels, of which one got faster; it begins when it is
    written.
    """
    settings = {"model": model, "device": "cpu", "threads": 2, "searcher": "portfolio",
        "budget_s": 20.0}  # fmt: skip
    with store.session("tune", 7, settings, "0.1.0", session,
            (("compiler", "llvm-22"),), (("load_1m", 0.5),)) as row:  # fmt: skip
        begun_s = row.started_s
        gemm, rows = str(GEMM.canonical()), str(ROWS.canonical())
        store.add(trial(KEY, gemm, "", 2e-3, begun_s + 1.0, "default", session, here=here))
        store.add(trial(OTHER, rows, "", 5e-4, begun_s + 1.5, "default", session, here=here))
        store.add(
            trial(KEY, gemm, "unroll(axis=ra)", 3e-3, begun_s + 2.0, origin, session, here=here)
        )
        store.add(trial(KEY, gemm, "bad", 0.0, begun_s + 3.0, origin, session, error,
            here=here))  # fmt: skip
        won = store.add(trial(KEY, gemm, WINNER, 1e-3, begun_s + 4.0, origin, session, here=here))
        if promoted:
            store.promote(won, Evidence("mannwhitneyu", 0.001, BEFORE, AFTER, cold=False))
        store.name_kernel(gemm, names[0])
        store.name_kernel(rows, names[1])
        store.record_latency(
            Latency(model, "k" * 32, "tuned", here, AFTER, BEFORE, session, begun_s + 5.0)
        )
        if with_facts:
            store.add_facts(session, facts(layers, others_cpus))


def store_of(path: Path, *sessions: str) -> Path:
    """A store with these sessions of one model."""
    with open_store(path, "write") as store:
        for session in sessions:
            write_session(store, session)
    return path
