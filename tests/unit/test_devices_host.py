"""The host's target, thread limits and fingerprint."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tunegrad.devices.host import facts as host
from tunegrad.devices.host.facts import (
    UNKNOWN,
    Processor,
    cpu_limit,
    cpu_quota,
    fingerprint,
    host_target,
    usable_cores,
)
from tunegrad.errors import DeviceError
from tunegrad.trial import Fingerprint

FIELDS = {
    "device", "arch", "features", "cores", "threads", "l1", "l2", "l3", "os", "compiler",
    "compiler_version",
    "numerics",
    "cpu_vendor", "cpu_family", "cpu_model", "cpu_stepping", "cpu_name", "microcode",
    "physical_cores", "smt",
    "cpu_quota", "thp", "thp_defrag", "page",
}  # fmt: skip


def test_host_target_is_deterministic():
    assert host_target(2) == host_target(2)


def test_host_target_has_sane_facts():
    target = host_target()
    assert target.kind == "cpu"
    assert target.vector_bytes in (16, 32, 64)
    assert 0 < target.l1_bytes < target.l2_bytes <= target.l3_bytes
    assert target.threads == usable_cores() >= 1


def test_no_threads_is_refused():
    with pytest.raises(DeviceError, match="threads=0: at least 1"):
        host_target(0)


def test_fingerprint_has_every_field_sorted():
    names = [name for name, _ in fingerprint(host_target(1)).fields]
    assert set(names) == FIELDS
    assert names == sorted(names)


def test_fingerprints_of_two_thread_counts_differ_in_that_field():
    one, two = fingerprint(host_target(1)), fingerprint(host_target(2))
    assert one.differences(two) == (("threads", "1", "2"),)


def test_fingerprint_names_a_missing_feature():
    target = host_target(1)
    other = replace(target, features=(*target.features, "+made_up"))
    assert [name for name, *_ in fingerprint(target).differences(fingerprint(other))] == [
        "features"
    ]


def test_fingerprint_has_no_empty_field():
    assert [name for name, value in fingerprint(host_target(1)).fields if not value] == []


@pytest.mark.parametrize(
    ("fact", "field"),
    [
        ("vendor", "cpu_vendor"), ("family", "cpu_family"), ("model", "cpu_model"),
        ("stepping", "cpu_stepping"),
        ("name", "cpu_name"), ("microcode", "microcode"), ("cores", "physical_cores"),
        ("smt", "smt"), ("thp", "thp"),
        ("thp_defrag", "thp_defrag"),
    ],
)  # fmt: skip
def test_fingerprint_changes_with_each_fact_of_the_processor(monkeypatch, fact, field):
    mine = fingerprint(host_target(1))
    other = replace(host.processor_of(os.sched_getaffinity(0)), **{fact: "another"})
    monkeypatch.setattr(host, "processor_of", lambda allowed: other)
    there = fingerprint(host_target(1))
    assert [(name, theirs) for name, _, theirs in mine.differences(there)] == [(field, "another")]


def test_fingerprints_of_two_machines_that_say_nothing_are_equal(monkeypatch):
    silent = Processor(*[UNKNOWN] * 10)
    monkeypatch.setattr(host, "processor_of", lambda allowed: silent)
    one = fingerprint(host_target(1))
    assert one == fingerprint(host_target(1))
    assert dict(one.fields)["microcode"] == UNKNOWN


def test_row_without_the_new_fields_is_another_machine_that_names_them():
    now = fingerprint(host_target(1))
    old = Fingerprint(tuple((k, v) for k, v in now.fields if k not in ("microcode", "smt")))
    assert [(name, stored) for name, stored, _ in old.differences(now)] == [
        ("microcode", ""),
        ("smt", ""),
    ]


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"cpu.max": "150000 100000\n"}, "1.5"),
        ({"cpu.max": "max 100000\n"}, "none"),
        ({"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, "none"),
        ({"cpu.cfs_quota_us": "50000\n", "cpu.cfs_period_us": "100000\n"}, "0.5"),
        ({}, "none"),
    ],
)
def test_quota_is_told_in_cpus(tmp_path, files, text):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    assert cpu_quota([tmp_path]) == text


def test_quota_of_nested_groups_is_the_least(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    (tmp_path / "inner" / "cpu.max").write_text("300000 100000\n")
    assert cpu_quota([tmp_path, tmp_path / "inner"]) == "1"


def test_quota_is_unknown_where_no_group_can_be_seen(tmp_path):
    assert cpu_quota([tmp_path / "absent"]) == UNKNOWN


def test_quota_of_a_cgroup_caps_the_threads(tmp_path):
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    assert cpu_limit(tmp_path) == 1


def test_quota_of_an_old_cgroup_caps_the_threads(tmp_path):
    (tmp_path / "cpu.cfs_quota_us").write_text("50000\n")
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    assert cpu_limit(tmp_path) == 1


def test_unlimited_cgroup_does_not_cap(tmp_path):
    free = cpu_limit(tmp_path / "absent")
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert cpu_limit(tmp_path) == free
