"""The processors that this process may use, as Linux describes them: which they are, and how they
are shared.

    /proc/cpuinfo                      -->  vendor, family, model, stepping, name, microcode (x86)
                                            implementer, architecture, part, variant and revision
                                            (aarch64, from MIDR)
    /sys/devices/system/cpu            -->  physical cores, threads of a core that are on
    /sys/kernel/mm/transparent_hugepage -> whether memory comes in huge pages

What a virtual machine or a container hides is ``unknown``: two unknowns of otherwise equal machines
are equal.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["UNKNOWN", "Processor", "parse_cpuinfo", "physical_core", "processor_of"]

UNKNOWN = "unknown"

_CPUINFO = Path("/proc/cpuinfo")
_CPUS = Path("/sys/devices/system/cpu")
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")


@dataclass(frozen=True, slots=True)
class Processor:
    """Facts as text; where allowed processors differ (big and little cores), every value once,
    joined by ``+``.

    ``smt``: threads of a core that are on, the most of any core. ``cores``: physical ones.
    """

    vendor: str
    family: str
    model: str
    stepping: str
    name: str
    microcode: str
    cores: str
    smt: str
    thp: str
    thp_defrag: str


def processor_of(allowed: Collection[int]) -> Processor:
    """The processors with these numbers. /proc and /sys are read once in a process for each set of
    numbers.
    """
    return _known(frozenset(allowed), _CPUINFO, _CPUS, _HUGE_PAGES)


@cache
def _known(allowed: frozenset[int], cpuinfo: Path, cpus: Path, huge_pages: Path) -> Processor:
    return Processor(
        **parse_cpuinfo(_read(cpuinfo), allowed),
        cores=_physical_cores(allowed, cpus),
        smt=_threads_of_a_core(allowed, cpus),
        thp=_selected(_read(huge_pages / "enabled")),
        thp_defrag=_selected(_read(huge_pages / "defrag")),
    )


def parse_cpuinfo(text: str, allowed: Collection[int]) -> dict[str, str]:
    """vendor, family, model, stepping, name and microcode of the allowed processors, by the text of
    /proc/cpuinfo.
    """
    blocks = [_facts(block) for block in text.split("\n\n")]
    of_cpus = [facts for facts in blocks if facts.get("processor", "").isdigit()]
    mine = [facts for facts in of_cpus if int(facts["processor"]) in allowed] or of_cpus
    arm = any("CPU part" in facts for facts in mine)
    return {name: _joined(mine, keys) for name, keys in (_ARM if arm else _X86).items()}


_X86: Mapping[str, tuple[str, ...]] = {
    "vendor": ("vendor_id",),
    "family": ("cpu family",),
    "model": ("model",),
    "stepping": ("stepping",),
    "name": ("model name",),
    "microcode": ("microcode",),
}
_ARM: Mapping[str, tuple[str, ...]] = {
    "vendor": ("CPU implementer",),
    "family": ("CPU architecture",),
    "model": ("CPU part",),
    "stepping": ("CPU variant", "CPU revision"),
    "name": ("model name",),
    "microcode": ("microcode",),
}


def physical_core(cpu: int, cpus: Path = _CPUS) -> tuple[str, str]:
    """Identity of a processor's core: its package and its number; its own number without any."""
    topology = cpus / f"cpu{cpu}" / "topology"
    core = _read(topology / "core_id").strip()
    return _read(topology / "physical_package_id").strip(), core or f"cpu{cpu}"


def _physical_cores(allowed: frozenset[int], cpus: Path) -> str:
    if not any((cpus / f"cpu{cpu}" / "topology" / "core_id").exists() for cpu in allowed):
        return UNKNOWN
    return str(len({physical_core(cpu, cpus) for cpu in allowed}))


def _threads_of_a_core(allowed: frozenset[int], cpus: Path) -> str:
    counts = [
        _count(_read(cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list")) for cpu in allowed
    ]
    return str(max(counts)) if counts and min(counts) > 0 else UNKNOWN


def _count(ranges: str) -> int:
    """Number of entries in a list such as ``0-1,64``; 0 for what is no list."""
    total = 0
    for part in ranges.strip().split(","):
        first, _, last = part.partition("-")
        if not (first.isdigit() and (last or first).isdigit()):
            return 0
        total += int(last or first) - int(first) + 1
    return total


def _facts(block: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in block.splitlines() if ":" in line)
    return {name.strip(): " ".join(value.split()) for name, _, value in pairs}


def _joined(blocks: list[dict[str, str]], keys: tuple[str, ...]) -> str:
    """Every value of these keys once, in order; ``unknown`` where no processor says it."""
    values = {" ".join(facts[k] for k in keys if facts.get(k)) for facts in blocks}
    return "+".join(sorted(values - {""})) or UNKNOWN


def _selected(text: str) -> str:
    """The word in brackets: ``always [madvise] never`` is ``madvise``."""
    _, opened, rest = text.partition("[")
    word, closed, _ = rest.partition("]")
    return word if opened and closed and word else UNKNOWN


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
