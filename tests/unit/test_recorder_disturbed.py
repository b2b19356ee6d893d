"""Recording on a device made of numbers: each program once, and once more where its samples were
disturbed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from search_surface import kernel

from benchmarks.recorded import recorder
from benchmarks.recorded.points import settle_vary
from tunegrad.devices import CompiledCandidate, Geometry, KernelIO, host_device
from tunegrad.errors import ConfigError
from tunegrad.opts import Space
from tunegrad.trial import Measured, Measurement, Status

KERNEL = kernel("copy", 4096)
DEVICE = host_device(2)
TARGET = DEVICE.target
VARY = settle_vary(Space(KERNEL, TARGET), {"tile": 4, "thread": 0}, 1000)
STEADY = (1e-3, 1.01e-3, 1.02e-3)
DISTURBED = (1e-3, 2e-3, 2e-3)


class PaperDevice:
    """``samples`` says what the n-th run of a program gives.

    Programs are all of a text but its ``thread``.
    """

    runs: ClassVar[Counter[str]]
    compiled: ClassVar[Counter[str]]
    samples: Any = staticmethod(lambda _text, _run: STEADY)
    merged = False
    refused = ""

    def __init__(self, *_: object, **__: object) -> None:
        self.device = DEVICE

    def __enter__(self) -> PaperDevice:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def compile(self, candidates: Any, known: Any = ()) -> list[CompiledCandidate | Measured]:
        found: list[CompiledCandidate | Measured] = []
        for candidate in candidates:
            text = candidate.payload.actions
            if self.refused and self.refused in text:
                found.append(Measured("", Measurement(Status.COMPILE_ERROR, error="refused")))
                continue
            program = hashlib.sha256(
                (text.split(" thread")[0] if self.merged else text).encode()
            ).hexdigest()
            self.compiled[program] += program not in known
            image = b"" if program in known else b"code"
            found.append(
                CompiledCandidate(image, text, KernelIO(()), (), Geometry(), program, 0.001, 0.002)
            )
        return found

    def measure_compiled(
        self, _candidate: object, code: CompiledCandidate, *_: object
    ) -> Measurement:
        assert not code.duplicate
        self.runs[code.program_hash] += 1
        return Measurement(Status.OK, type(self).samples(code.entry, self.runs[code.program_hash]))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> type[PaperDevice]:
    class Device(PaperDevice):
        runs, compiled = Counter(), Counter()

    monkeypatch.setattr(recorder, "DeviceMeasurer", Device)
    monkeypatch.setattr(recorder, "_BATCH", 3)
    return Device


def test_recording_measures_every_point_once(device: type[PaperDevice]) -> None:
    found = recorder.record(KERNEL, DEVICE, VARY)
    assert found.complete
    assert len(found.trials) >= 6
    assert set(device.runs.values()) == {1}
    assert {t.measurement.samples_s for t in found.trials} == {STEADY}


def test_recording_measures_a_shared_program_once(device: type[PaperDevice]) -> None:
    device.merged = True
    found = recorder.record(KERNEL, DEVICE, VARY)
    assert found.complete
    assert found.programs == len(device.runs) < len(found.trials)
    assert set(device.runs.values()) == {1}


def test_disturbed_program_is_measured_again_for_all_its_texts(device: type[PaperDevice]) -> None:
    device.merged = True
    device.samples = staticmethod(lambda _text, run: DISTURBED if run == 1 else STEADY)
    found = recorder.record(KERNEL, DEVICE, VARY)
    assert {t.measurement.samples_s for t in found.trials} == {STEADY}
    assert set(device.runs.values()) == {2}


def test_recording_goes_on_from_what_is_known(device: type[PaperDevice]) -> None:
    asked: list[tuple[int, int]] = []

    def first_batch(done: int, total: int) -> bool:
        asked.append((done, total))
        return len(asked) == 1

    part = recorder.record(KERNEL, DEVICE, VARY, go_on=first_batch)
    assert (len(part.trials), part.complete) == (3, False)
    whole = recorder.record(KERNEL, DEVICE, VARY, known=part)
    assert whole.complete
    assert set(device.runs.values()) == {1}
    assert asked == [(0, len(whole.trials)), (3, len(whole.trials))]
    again = recorder.record(KERNEL, DEVICE, VARY, known=whole)
    assert again == whole


def test_what_does_not_compile_is_a_trial(device: type[PaperDevice]) -> None:
    device.refused = "thread"
    found = recorder.record(KERNEL, DEVICE, VARY)
    assert found.complete
    failed = [t for t in found.trials if "thread" in t.actions]
    assert failed
    assert {(t.program_hash, t.measurement.status) for t in failed} == {("", Status.COMPILE_ERROR)}
    assert recorder.record(KERNEL, DEVICE, VARY, known=found) == found


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("what", ["kernel", "machine", "policy", "space version"])
def test_recording_is_not_mixed_with_another(what: str) -> None:
    known = recorder.record(KERNEL, DEVICE, VARY)
    other = {
        "kernel": replace(known, kernel_key="0" * 32),
        "machine": replace(
            known, fingerprint=replace(known.fingerprint, fields=(("device", "other"),))
        ),
        "policy": replace(known, policy=replace(known.policy, cache="cold")),
        "space version": replace(known, space_version=99),
    }[what]
    with pytest.raises(ConfigError, match=f"the recording that is there is of another {what}: "):
        recorder.record(KERNEL, DEVICE, VARY, known=other)
