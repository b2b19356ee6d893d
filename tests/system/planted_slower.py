"""Lowering hooks that spoil the stored winner of one kernel, and nothing else: it does a tenth more
work, crashes, hangs, or leaves its output as it was.

    PYTHONPATH=.:tests/system python -m planted_slower

prints the example of docs/REGRESS.md: twelve nights, and three in which it does a tenth more.
"""

from __future__ import annotations

import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults import NotPlanted
from tunegrad.compiling import Payload, candidate
from tunegrad.devices import Lowered

if TYPE_CHECKING:
    from tunegrad.regress import SweepSettings

KERNEL = "matmul 80x384x320 +relu"
"""The second of three of the model below."""

MODEL = """
[model]
name = "planted"
builder = "tunegrad.models.mlp:mlp"
batch = 80
[model.args]
sizes = [256, 320, 384, 256]
"""

HOOKS = candidate.HOOKS
SLOWER = replace(HOOKS, lower="planted_slower:lower_slower")
SPOILT = {kind: replace(HOOKS, lower=f"planted_slower:lower_{kind}")
          for kind in ("crash", "hang", "unwritten")}  # fmt: skip

_CALL = re.compile(r"^  call void @kernel\.body\(.*$", re.MULTILINE)
_BODIES = {
    "crash": "  %away = getelementptr i8, ptr %p0, i64 -35184372088832\n"
    "  store volatile i32 1, ptr %away\n",
    "hang": "  br label %more\nmore:\n  %x = load volatile i8, ptr %p0\n  br label %more\n",
    "unwritten": "",
}


def planted(folder: Path) -> SweepSettings:
    """A sweep of the model in a folder, of whose kernels one has a stored winner."""
    from tunegrad.regress import load_sweep

    (folder / "model.toml").write_text(MODEL, encoding="utf-8")
    config = folder / "night.toml"
    config.write_text(
        '[regress]\nmodels = ["model.toml"]\nthreads = 1\nturns = 8\n', encoding="utf-8"
    )
    found = load_sweep(config, folder / "nights.db")
    _store_winner(found)
    return found


def _store_winner(settings: SweepSettings) -> None:
    from tests.program_hashes import hash_of
    from tunegrad.config import resolve_model
    from tunegrad.db import open_store
    from tunegrad.devices.host.facts import fingerprint, host_target
    from tunegrad.opts import SPACE_VERSION, Space
    from tunegrad.trial import Measurement, Policy, Status, Trial
    from tunegrad.tuning.workload import workload_of_spec

    target = host_target(1)
    work = workload_of_spec(resolve_model(settings.models[0]))
    (kernel,) = [u.kernel for u in work.kernels if u.name == KERNEL]
    actions = winner_of(Space(kernel, target).defaults()[0].text)
    trial = Trial(
        kernel.key, kernel.text, fingerprint(target), actions, hash_of(kernel, actions, target),
        SPACE_VERSION, Policy(), Measurement(Status.OK, (1e-4, 1e-4, 1e-4)), "s1", "beam", 1.0,
    )  # fmt: skip
    with open_store(settings.store, "write") as store, store.session("tune", 0, {}, "0", "s1"):
        store.add(trial)


def winner_of(default: str) -> str:
    """The schedule that stands for a stored winner: the default one without what it stages."""
    return default[: default.index(" stage(")]


def lower_slower(payload: Payload) -> Lowered:
    """Before a kernel's body runs, the first tenth of its outermost loop does."""
    lowered = candidate.lower(payload)
    return replace(lowered, text=a_tenth_more(lowered.text)) if _meant(payload) else lowered


def lower_crash(payload: Payload) -> Lowered:
    """It writes to address 0."""
    return _spoilt(payload, "crash")


def lower_hang(payload: Payload) -> Lowered:
    """It never ends."""
    return _spoilt(payload, "hang")


def lower_unwritten(payload: Payload) -> Lowered:
    """It writes nothing."""
    return _spoilt(payload, "unwritten")


def a_tenth_more(text: str) -> str:
    """The LLVM text with a copy of the body whose outermost loop ends after a tenth, called first.

    It writes what the body writes once more: results stay as they are. Raises NotPlanted.
    """
    begin = text.index("define internal void @kernel.body(")
    body = text[begin : text.index("\n}\n", begin) + 3]
    outermost = re.search(r"%v(\d+) = phi i64 \[ 0, %entry \]", body)
    if outermost is None:
        raise NotPlanted("no loop at the entry")
    end = re.search(rf"icmp slt i64 %n{outermost[1]}, (\d+)", body)
    if end is None or int(end[1]) < 10:
        raise NotPlanted("the outermost loop has less than ten iterations")
    more = body.replace(end[0], f"icmp slt i64 %n{outermost[1]}, {round(int(end[1]) / 10)}")
    more = more.replace("@kernel.body(", "@kernel.more(")
    call = _CALL.search(text)
    assert call is not None
    again = call[0].replace("@kernel.body(", "@kernel.more(")
    return text[:begin] + more + text[begin:].replace(call[0], f"{again}\n{call[0]}")


def _meant(payload: Payload) -> bool:
    return payload.kernel.name == KERNEL and " stage(" not in payload.actions


def _spoilt(payload: Payload, kind: str) -> Lowered:
    lowered = candidate.lower(payload)
    if not _meant(payload):
        return lowered
    text = _CALL.sub(_BODIES[kind].rstrip("\n"), lowered.text)
    if kind == "hang":  # what follows is not reached, and has to stand in no block
        text = re.sub(r"(  br label %more\n)  ret void\n", r"\1", text)
    return replace(lowered, text=text)


def _example() -> str:
    from tunegrad.cli.tables import sweep_text
    from tunegrad.regress import regress

    with tempfile.TemporaryDirectory() as folder:
        nightly = replace(planted(Path(folder)), turns=24)
        for _ in range(12):
            regress(nightly)
        for _ in range(3):
            report = regress(nightly, hooks=SLOWER)
    return sweep_text(replace(report, store="nights.db"))


if __name__ == "__main__":
    sys.stdout.write(f"{_example()}\n")
