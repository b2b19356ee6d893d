"""The processor's facts, read from recorded texts of several kinds of machines."""

from __future__ import annotations

import pytest
from recorded_cpuinfo import BIG_LITTLE, HIDDEN, NEOVERSE, XEON, ZEN4

from tunegrad.devices.host import facts as module
from tunegrad.devices.host.facts import UNKNOWN, parse_cpuinfo

XEON_FACTS = (
    "GenuineIntel",
    "6",
    "143",
    "8",
    "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
    "0x2b000603",
)
RECORDED = {
    "xeon": (XEON, {0, 1}, XEON_FACTS),
    "zen4": (ZEN4, {0}, ("AuthenticAMD", "25", "17", "1", "AMD EPYC 9R14", "0xa101144")),
    "no microcode": (HIDDEN, {0}, ("GenuineIntel", "6", "85", UNKNOWN, UNKNOWN, UNKNOWN)),
    "neoverse": (NEOVERSE, {0, 1}, ("0x41", "8", "0xd40", "0x1 1", UNKNOWN, UNKNOWN)),
    "little core": (BIG_LITTLE, {0}, ("0x41", "8", "0xd05", "0x1 0", UNKNOWN, UNKNOWN)),
    "both cores": (
        BIG_LITTLE,
        {0, 4},
        ("0x41", "8", "0xd05+0xd0b", "0x1 0+0x4 0", UNKNOWN, UNKNOWN),
    ),
    "nothing": ("", {0}, (UNKNOWN,) * 6),
    "no list": ("garbage\n: \n\n::\n\x00", {0}, (UNKNOWN,) * 6),
}


@pytest.mark.parametrize("name", RECORDED)
def test_processor_is_read_from_cpuinfo(name):
    text, allowed, expected = RECORDED[name]
    found = parse_cpuinfo(text, allowed)
    assert (
        tuple(found[k] for k in ("vendor", "family", "model", "stepping", "name", "microcode"))
        == expected
    )


def test_processor_of_numbers_that_cpuinfo_does_not_list_is_that_of_all():
    assert parse_cpuinfo(ZEN4, {7}) == parse_cpuinfo(ZEN4, {0})


@pytest.fixture
def machine(tmp_path):
    """Two cores of two threads: processors 0 and 2, 1 and 3."""
    for cpu in range(4):
        topology = tmp_path / "cpu" / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "core_id").write_text(f"{cpu % 2}\n")
        (topology / "physical_package_id").write_text("0\n")
        (topology / "thread_siblings_list").write_text(f"{cpu % 2},{cpu % 2 + 2}\n")
    (tmp_path / "thp").mkdir()
    (tmp_path / "thp" / "enabled").write_text("always [madvise] never\n")
    (tmp_path / "thp" / "defrag").write_text("always defer defer+madvise madvise [never]\n")
    (tmp_path / "cpuinfo").write_text(XEON)
    return tmp_path


def facts(machine, *allowed):
    return module._known(frozenset(allowed), machine / "cpuinfo", machine / "cpu", machine / "thp")


@pytest.mark.parametrize(
    ("allowed", "cores"), [((0, 1, 2, 3), "2"), ((0, 2), "1"), ((0, 1), "2"), ((3,), "1")]
)
def test_processor_counts_physical_cores_of_what_is_allowed(machine, allowed, cores):
    found = facts(machine, *allowed)
    assert (found.cores, found.smt) == (cores, "2")


def test_processor_with_its_second_threads_off_has_one_each(machine):
    for cpu in (0, 1):
        (machine / "cpu" / f"cpu{cpu}" / "topology" / "thread_siblings_list").write_text(f"{cpu}\n")
    assert facts(machine, 0, 1).smt == "1"


def test_processor_names_the_mode_of_huge_pages(machine):
    found = facts(machine, 0)
    assert (found.thp, found.thp_defrag) == ("madvise", "never")


def test_processor_that_says_nothing_is_unknown_in_every_field(tmp_path):
    found = facts(tmp_path / "absent", 0, 1)
    assert {getattr(found, name) for name in found.__slots__} == {UNKNOWN}


@pytest.mark.parametrize(
    ("text", "count"), [("0-3", 4), ("0,64", 2), ("0-1,64-65\n", 4), ("7", 1), ("", 0), ("a-b", 0)]
)
def test_processor_lists_are_counted(text, count):
    assert module._count(text) == count


def test_processor_reads_each_file_once_in_a_process(machine, monkeypatch):
    read = []
    monkeypatch.setattr(module, "_read", lambda path: read.append(path) or "")
    first = facts(machine, 0, 1)
    after_first = list(read)
    assert facts(machine, 1, 0) == first
    assert read == after_first
    assert after_first.count(machine / "cpuinfo") == 1
