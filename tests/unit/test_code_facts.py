"""What images say of candidates: read from objects, kept with measurements, told to who asks."""

from __future__ import annotations

import pytest
from kernel_corpus import corpus_kernel

from tunegrad import devices
from tunegrad.compiling import HOOKS, Payload, build
from tunegrad.db.views.histories import MeasurementRow
from tunegrad.devices import Candidate, DeviceMeasurer, Limits
from tunegrad.devices.cpu.machine_code import object_facts
from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.facts import host_target
from tunegrad.errors import CompileFailure
from tunegrad.opts import Schedule, Space
from tunegrad.trial import Policy, Status

STACK = """
define void @kernel(ptr %out) {{
  %room = alloca [{n} x i8], align 16
  call void asm sideeffect "", "r,~{{memory}}"(ptr %room)
  ret void
}}
"""


@pytest.mark.parametrize(
    ("reserved", "least"), [(64, 0), (200, 72), (4096, 3968), (100_000, 99_872)]
)
def test_object_says_how_large_code_and_stack_are(reserved, least):
    """Of the stack 128 bytes may lie below it, and are not counted."""
    target = host_target(1)
    if not target.arch or "x86" not in devices.host_device().fingerprint().text:
        pytest.skip("the prologue that is read is that of x86-64")
    facts = dict(object_facts(compile_llvm(STACK.format(n=reserved), target, 1), "kernel"))
    assert least <= facts["stack_bytes"] <= least + 200
    assert 0 < facts["code_bytes"] < 100


def test_what_is_no_object_is_a_compile_failure():
    with pytest.raises(CompileFailure):
        object_facts(b"nothing", "kernel")


def test_facts_of_a_cpu_candidate_are_read_without_compiling_it_again(monkeypatch):
    device = devices.open("cpu")
    kernel = corpus_kernel("conv3x3")
    lowered = build(kernel, Space(kernel, device.target).defaults()[0], device)
    image = device.compile(lowered)
    monkeypatch.setattr(type(device), "compile", None)
    assert {name for name, _ in device.facts(lowered, image)} >= {"code_bytes"}
    assert device.state() == ()


@pytest.fixture(scope="module")
def measured():
    device = devices.open("cpu", 1)
    kernel = corpus_kernel("gemm_square")
    texts = Space(kernel, device.target).defaults()[0].text, ""
    candidates = [Candidate(kernel.key, Payload(kernel, text, device)) for text in texts]
    policy = Policy(min_samples=3, max_samples=5, budget_s=0.05)
    with DeviceMeasurer(device, HOOKS, Limits(), compile_workers=1) as measurer:
        outcomes = measurer.measure(candidates, policy)
        counted = measurer.counted_code(
            [*candidates, Candidate(kernel.key, Payload(kernel, "unroll(axis=zz)", device))]
        )
    return device, kernel, texts, outcomes, counted


def test_measured_candidates_have_facts_of_their_own_images(measured):
    device, kernel, texts, outcomes, _ = measured
    for text, outcome in zip(texts, outcomes, strict=True):
        lowered = build(kernel, Schedule.parse(text), device)
        assert outcome.measurement.status is Status.OK
        assert outcome.measurement.facts == device.facts(lowered, device.compile(lowered))
        assert {name for name, _ in outcome.measurement.state} <= {"clock_mhz", "launch_ns"}


def test_listings_are_counted_when_asked_for(measured):
    device, kernel, texts, _, counted = measured
    *found, illegal = counted
    assert illegal == ()
    for text, facts in zip(texts, found, strict=True):
        code = device.inspect(build(kernel, Schedule.parse(text), device)).facts
        assert dict(facts)["loop_fmas"] == code.fmas
        assert dict(facts)["instructions"] == code.kernel_instructions
        assert [name for name, _ in facts] == sorted(name for name, _ in facts)


def test_history_has_a_column_of_code_and_one_of_the_device_where_rows_tell():
    from tunegrad.cli.tables.store import _measurements

    def row(facts, state):
        return MeasurementRow(
            0.0, "m", "unroll(axis=a)", Status.OK, 1.0, None, False, False, "beam", "s1", "",
            facts, state,
        )  # fmt: skip

    told = {"registers": 64.0, "spills": 0.0, "occupancy": 0.5, "shuffles": 3.0}
    text = _measurements((row(told, {"sm_mhz": 1755.0, "power_w": 312.5}), row({}, {})))
    assert "registers 64; spills 0; occupancy 0.5" in text
    assert "sm_mhz 1755; power_w 312" in text
    head = _measurements((row({}, {}),)).splitlines()[0]
    assert "code" not in head
    assert "device" not in head
