"""The host's target, thread limits and fingerprint."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tunegrad.devices.host import cpu_limit, default_threads, fingerprint, host_target
from tunegrad.errors import DeviceError

FIELDS = {
    "device", "arch", "features", "cores", "threads", "l1", "l2", "l3", "os", "compiler", "compiler_version", "numerics"
}  # fmt: skip


def test_host_target_is_deterministic():
    assert host_target(2) == host_target(2)


def test_host_target_has_sane_facts():
    target = host_target()
    assert target.kind == "cpu"
    assert target.vector_bytes in (16, 32, 64)
    assert 0 < target.l1_bytes < target.l2_bytes <= target.l3_bytes
    assert target.threads == default_threads() >= 1


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
    assert [name for name, *_ in fingerprint(target).differences(fingerprint(other))] == ["features"]


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
