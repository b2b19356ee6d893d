"""Facts of this machine: the CPU target, a fair number of threads, and the fingerprint of both."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from tunegrad.config import cache_dir, control_groups, cpu_target
from tunegrad.devices.processes.system_calls import number
from tunegrad.errors import ConfigError, DeviceError
from tunegrad.ir.target import Rates, Target, TileUnit
from tunegrad.lazy import dataclass, sha256
from tunegrad.object_cache import ObjectCache

if TYPE_CHECKING:
    from tunegrad.trial import Fingerprint

# ---- masks
#
# Masks: this machine's CPU as an older one, so that one machine tests the code of several.
#
#     TUNEGRAD_CPU_TARGET=znver3          AVX2: 16 registers of 32 bytes, no products of bytes
#     TUNEGRAD_CPU_TARGET=skylake-avx512  AVX-512: 32 registers of 64 bytes, no products of bytes
#
# The mask names the scheduling model, and takes away each vector extension that the older processor
# lacks; a scalar extension stays, since no code of ours asks for one. LLVM's name and features are
# fields of the fingerprint: a masked machine and the machine itself share no row of a store.


_HAS: dict[str, frozenset[str]] = {
    "znver3": frozenset(),
    "skylake-avx512": frozenset(("avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl")),
}
"""The vector extensions beyond AVX2 of each processor, but those of cryptography, which no code of
ours asks for. Source: LLVM 22, X86.td.
"""

_BASE = frozenset(("avx2", "fma", "f16c"))

_BEYOND = ("amx-", "avx10", "avx512", "avxifma", "avxneconvert", "avxvnni", "gfni", "vaes",
           "vpclmulqdq")  # fmt: skip
"""Prefixes of LLVM's names of vector extensions beyond AVX2."""


def masked(name: str, features: Sequence[str]) -> tuple[str, ...]:
    """This machine's features, each with its sign, without those that the processor ``name`` lacks.

    Raises ConfigError for an unknown name, and where this machine lacks what that processor has.
    """
    has = _HAS.get(name)
    if has is None:
        raise ConfigError(f"TUNEGRAD_CPU_TARGET={name!r}; valid: {', '.join(_HAS)}")
    enabled = {f[1:] for f in features if f.startswith("+")}
    if missing := sorted(x for x in _BASE | has if x not in enabled):
        raise ConfigError(
            f"TUNEGRAD_CPU_TARGET={name}: this machine's CPU lacks {', '.join(missing)}"
        )
    return tuple(f"-{f[1:]}" if f[1:] not in has and f[1:].startswith(_BEYOND) else f
                 for f in features)  # fmt: skip


# ---- LLVM's answers
#
# LLVM's answers about this machine and the objects of our own runtime, kept on disk: a process
# whose kernels were compiled before does not load LLVM.
#
#     LLVM's library as a file, the processor as Linux describes it -->  version, CPU name, features
#     version, CPU, features, text                                  -->  object code of the text
#
# Both stand in the cache of compiled objects. What is not there LLVM is asked for. Where it is not
# installed, a model's file brings the object along, and Linux names what the processor has.


PIPELINE = 5
"""Bumped when a list of passes in ``codegen`` changes: objects and measurements of another list are
another compiler's.
"""

_TOLD = frozenset(
    ("vendor_id", "cpu family", "model", "stepping", "microcode", "flags", "CPU implementer",
     "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features")
)  # fmt: skip
"""Facts that Linux tells of a processor, and does not change while it runs."""


@dataclass(frozen=True, slots=True)
class Host:
    """LLVM in words, and its names for the processor of this process and for what that has.

    Without LLVM: no words, no name of the processor, and the features that Linux tells of.
    """

    llvm: str
    arch: str
    features: tuple[str, ...]


@cache
def host() -> Host:
    """This machine, in LLVM's words: as an older processor where the user named one.

    Raises ConfigError for a processor that this machine can not stand for, DeviceError without
    LLVM where no file has brought the code that it would make.
    """
    try:
        found, name = _asked(), cpu_target()
    except DeviceError:
        if not _CARRIED:
            raise
        found, name = Host("", "unknown", _told_features(_read(_CPUINFO))), None
    return replace(found, arch=name, features=masked(name, found.features)) if name else found


def _asked() -> Host:
    """LLVM's answer, from the cache where it is there."""
    key, kept = _host_key(), _cache()
    found = None if key is None else _host_of(kept.get(key))
    if found is None:
        found = Host(*llvm().asked_host())
        if key is not None:
            kept.put(key, "\n".join((found.llvm, found.arch, *found.features)).encode())
    return found


def llvm() -> ModuleType:
    """``devices.host.codegen``, the compiler by LLVM. Raises DeviceError where LLVM is missing."""
    try:
        from tunegrad.devices.host import codegen
    except (ImportError, OSError) as error:  # the package is missing, or its library does not load
        why = str(error).splitlines()[0]
        raise DeviceError(
            "device cpu: kernels are compiled by LLVM; what runs without is a .plan that was saved "
            f"for such a CPU: pip install llvmlite ({why})"
        ) from error
    return codegen


def compiler_version() -> str:
    """The compiler in words: the llvmlite release, the LLVM inside it, and our list of passes."""
    return f"{host().llvm} passes-{PIPELINE}"


def own_code(text: Callable[[], str], source: str = "") -> bytes:
    """A module of our own for this machine, compiled at level 1: an ELF relocatable object.

    ``source`` is all that a text depends on which is long to write; without it the text is written
    to be looked up. Raises as ``compile_llvm``, and DeviceError without LLVM where no file has
    brought it.
    """
    machine, kept = host(), _cache()
    if not machine.llvm:
        return _carried(text())
    parts = ("own code", compiler_version(), machine.arch, *machine.features, source or text())
    key = sha256("\0".join(parts).encode()).hexdigest()
    image = kept.get(key)
    if image is None:
        target = Target("cpu", "cpu", machine.arch, machine.features)
        image = bytes(llvm().compile_llvm(text(), target, opt_level=1))
        kept.put(key, image)
    return image


_CARRIED: dict[str, bytes] = {}
"""Objects of our own that files have brought, by the digest of their text."""


def carry(digest: str, image: bytes) -> None:
    """Let ``own_code`` of the text with this digest be ``image`` where LLVM is not installed."""
    _CARRIED[digest] = image


def _carried(text: str) -> bytes:
    image = _CARRIED.get(sha256(text.encode()).hexdigest())
    if image is None:
        raise DeviceError(
            "device cpu: the code of threads in this .plan is of another tunegrad: save the model "
            "again, or pip install llvmlite"
        )
    return image


_FLAGS = {
    "3dnowprefetch": "prfchw", "abm": "lzcnt", "bmi1": "bmi", "lahf_lm": "sahf", "lm": "64bit",
    "pclmulqdq": "pclmul", "pni": "sse3", "rdrand": "rdrnd", "sha_ni": "sha", "sse4_1": "sse4.1",
    "sse4_2": "sse4.2", "asimd": "neon", "atomics": "lse", "fp": "fp-armv8",
}  # fmt: skip
"""Linux's names of features that LLVM calls otherwise. Others differ by an underscore at most."""

_UNASKED = ("clwb", "invpcid", "pku", "rdrnd", "rdseed", "shstk", "wbnoinvd")
"""Features that Linux may hide, as ``rdseed`` of Zen 5: compilers write none of them."""


def _told_features(cpuinfo: str) -> tuple[str, ...]:
    """LLVM's names of what Linux says that the processor has, each with its sign."""
    facts = _facts(cpuinfo.partition("\n\n")[0])
    told = set((facts.get("flags") or facts.get("Features") or "").split())
    names = {_FLAGS.get(x, x) for x in told} | {*_UNASKED}
    if "sse4_2" in told:
        names.add("crc32")
    amx = {x.replace("_", "-") for x in told if x.startswith("amx_")}
    joined = {x.replace("_", "") for x in told}
    return tuple(f"+{x}" for x in sorted(names | amx | joined))


def _cache() -> ObjectCache:
    return ObjectCache(cache_dir() / "objects")


def _host_of(body: bytes | None) -> Host | None:
    if body is None:
        return None
    version, arch, *features = body.decode().split("\n")
    return Host(version, arch, tuple(features))


def _host_key() -> str | None:
    """The key of LLVM's answers; None where the library or the processor can not be seen."""
    found = importlib.util.find_spec("llvmlite")
    if found is None or found.origin is None:
        return None
    try:
        beside = (Path(found.origin).parent / "binding").iterdir()  # a pattern takes 4 ms
        (library,) = (p for p in beside if "llvmlite." in p.name and p.name.endswith("so"))
        facts = library.stat()
        processor = _CPUINFO.read_bytes().decode("utf-8", "replace")
    except (OSError, ValueError):
        return None
    lines = {x for x in processor.splitlines() if x.partition(":")[0].strip() in _TOLD}
    if not lines:
        return None
    parts = ("host", str(library), str(facts.st_size), str(facts.st_mtime_ns), *sorted(lines))
    return sha256("\0".join(parts).encode()).hexdigest()


# ---- rates
#
# Rates of one core of a CPU, as far as they were measured: one table for every CPU target.
#
# The rates are round figures of a Zen 4 server core with AVX-512, on which the default choices were
# made. Measured there, one core reached 118 GFLOP/s of f32 (one fused multiply-add of 16 lanes a
# cycle) and read memory at 28 to 31 GB/s.
#
# Cores that start two fused multiply-adds a cycle have twice the peak. Raising the rate for them
# was tried on one: it made worse choices among direct, channels-last and Winograd convolutions,
# because direct kernels stay further below that peak than a model of peaks can say. So a rate is
# what a default schedule comes near; tuning measures the rest.


_TWO_FMAS = frozenset(("skylake-avx512", "cascadelake", "cooperlake", "icelake-server", "znver5"))

_FLOPS = 1e11
"""f32 operations a second of one core with registers of 64 bytes; narrower ones have a share."""

_CACHE_BYTES_PER_S, _MEMORY_BYTES_PER_S = 5e10, 2.5e10

_LAUNCH_S = 1e-6
"""Of a kernel in a model. One that does nothing took two threads of a Xeon 0.35 to 0.39 us."""

_FOLDS_PER_S, _FOLD_RUN = 1.1e9, 64
"""One core summed rows of (2^24, 4) so fast. A step is of several vectors, whose sums overlap."""

_EXPENSIVE_FLOPS = 15

_MADE_HALVES = 1.25
"""Time of products of fours in 16 bits over that of halves which memory has: 128 x 2304 x 768 ran
at 90 and 113 products a nanosecond on a Zen 5 held to AVX2, 128 x 768 x 3072 at 89 and 107.
"""

_L2_BYTES_PER_CYCLE = 24
"""Besides computing; 26 to 46 alone, measured on cores with two fused multiply-adds a cycle. Tiles
of 5 x 4 ask for 24 and were no slower than others; those of 4 x 6 ask for 30, and took 1.35 times
as long.
"""

L3_SHARE_BYTES = 64 << 20
"""A larger last cache serves a whole socket, cores that are not ours included: of 480 MiB, two
cores read 64 MiB at 22 to 26 GB/s and 128 MiB at memory's 15 to 20.
"""

_STREAMS = 8
"""Rows that a prefetcher follows, and whose equal places one set of the first cache holds."""


def declared(target: Target) -> Target:
    """A CPU target with what its core is declared to do; its other facts stay."""
    fmas = _fmas_per_cycle(target)
    return replace(
        target,
        fmas_per_cycle=fmas,
        l2_bytes_per_cycle=_L2_BYTES_PER_CYCLE,
        l3_share_bytes=L3_SHARE_BYTES,
        streams=_STREAMS,
        rates=_rates(target, fmas),
    )


def _fmas_per_cycle(target: Target) -> int:
    """Two of 64 bytes on Zen 5 and Intel's servers (by AMX or name), else one, or two of 32."""
    if target.vector_bytes < 64:
        return 2
    return 2 if "+amx-tile" in target.features or target.arch in _TWO_FMAS else 1


def _rates(target: Target, fmas: int) -> Rates:
    """``fmas`` a cycle. Products of bf16 pairs: twice as many by vectors, but half as many where
    tiles are for them (``vdpbf16ps`` took 2.2 cycles there, an FMA 0.5), and by tiles what is
    declared. A product of fours of bytes, or of two halves, is one instruction and one operation,
    as two on floats are; in 16 bits that of fours is two multiplications, of the even and of the
    odd bytes. A tile of bytes has four products to such an operation.
    """
    f32 = _FLOPS * (target.vector_bytes / 64)
    one = f32 / (target.lanes(4) * fmas)
    vectors = [("f32", f32)]
    if target.bf16_dot:
        vectors.append(("bf16x2", (0.5 if target.amx else 2.0) * f32))
    if target.vnni or target.widens_bytes:
        fours = f32 / 2 if target.vnni else f32 / (4 * _MADE_HALVES)
        vectors += [("dot4", fours), ("dot2i", f32 / 2)]
    units = [u for u in target.units if isinstance(u, TileUnit)]
    return Rates(
        flops=(*((u.name, u.fmas * one / (8 if u.takes_bytes else 1)) for u in units), *vectors),
        cache_bytes_per_s=_CACHE_BYTES_PER_S,
        memory_bytes_per_s=_MEMORY_BYTES_PER_S,
        launch_s=_LAUNCH_S,
        folds_per_s=_FOLDS_PER_S,
        fold_run=_FOLD_RUN,
        expensive_flops=_EXPENSIVE_FLOPS,
    )


# ---- processor
#
# The processors that this process may use, as Linux describes them: which they are, and how they
# are shared.
#
#     /proc/cpuinfo                      -->  vendor, family, model, stepping, name, microcode (x86)
#                                             implementer, architecture, part, variant and revision
#                                             (aarch64, from MIDR)
#     /sys/devices/system/cpu            -->  physical cores, threads of a core that are on
#     /sys/kernel/mm/transparent_hugepage -> whether memory comes in huge pages
#
# What a virtual machine or a container hides is ``unknown``: two unknowns of otherwise equal
# machines are equal.


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
    """The processors with these numbers; /proc and /sys are read once for each set of numbers."""
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
    """vendor, family, model, stepping, name and microcode of the allowed processors."""
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


# ---- tile registers
#
# Tile registers of x86 processors (AMX): what they multiply, and Linux's leave to use them.
#
#     cpuid leaf 7: EDX bit 24 (tiles), bit 22 (products of bf16), bit 25 (of bytes)
#                                                                   -->  LLVM's features of the host
#     arch_prctl(ARCH_REQ_XCOMP_PERM, 18)                           -->  this process may use them
#
# What a thread keeps in tiles is 8 KiB more to save, so Linux has a process ask before its first
# tile instruction, which is illegal otherwise; all of its threads may use them from then on. A
# process that is started anew asks anew. The call is one of those that a confined process may make.
# See the kernel's ``Documentation/arch/x86/xstate.rst``.


AMX_BF16 = TileUnit((16, 16, 16), ("bf16x2", "f32"), registers=8, fmas=512)
"""TDPBF16PS: 16 x 16 results of 16 pairs in 16 cycles, 1024 operations in each, by Intel's figures
for Sapphire Rapids. An Emerald Rapids did that, and 0.9 of it with the loads of 2 x 2 tiles.
"""

AMX_INT8 = tuple(
    TileUnit((16, 16, 16), (a, "i32"), registers=8, fmas=1024, right=b)
    for a in ("u8x4", "i8x4")
    for b in ("i8x4", "u8x4")
)
"""TDPBUSD, TDPBUUD, TDPBSSD, TDPBSUD: 16 x 16 results of 64 bytes in 16 cycles, as was measured."""

_REQUEST, _TILE_DATA = 0x1023, 18


def ask_for_tiles() -> bool:
    """Ask the kernel for tile registers; True when this process may use them from now on."""
    call = number("x86_64", "arch_prctl") if platform.machine() == "x86_64" else None
    if call is None:
        return False
    libc = ctypes.CDLL(None)
    libc.syscall.restype = ctypes.c_long
    asked = (ctypes.c_long(call), ctypes.c_ulong(_REQUEST), ctypes.c_ulong(_TILE_DATA))
    return bool(libc.syscall(*asked) == 0)


def require_tiles(target: Target, ask: Callable[[], bool] = ask_for_tiles) -> None:
    """Ask for what code of ``target`` uses. Raises DeviceError where the system refuses it."""
    if target.amx and not ask():
        raise DeviceError(
            f"device {target.name}: Linux refuses tile registers (AMX) to this process; the "
            "target of this machine, asked for anew, has none then"
        )


def tile_units(features: Iterable[str]) -> tuple[TileUnit, ...]:
    """The shapes that a processor with these features multiplies in tile registers."""
    have = set(features)
    if "+amx-tile" not in have:
        return ()
    pairs = (AMX_BF16,) if "+amx-bf16" in have else ()
    return (*pairs, *AMX_INT8) if "+amx-int8" in have else pairs


def without_tiles(features: Iterable[str]) -> tuple[str, ...]:
    """The features of a processor whose tile registers this process may not use."""
    return tuple(f"-{f[1:]}" if f.startswith("+amx-") else f for f in features)


# ---- facts


_L1_BYTES, _L2_BYTES, _L3_BYTES = 32 << 10, 512 << 10, 8 << 20


def host_target(threads: int | None = None) -> Target:
    """The Target of this machine's CPU for kernels of up to ``threads`` threads (default:
    ``usable_cores``).

    Raises DeviceError for less than one thread.
    """
    count = usable_cores() if threads is None else threads
    if count < 1:
        raise DeviceError(f"threads={count}: at least 1")
    return _target(host().arch, _features(), count)


@lru_cache(maxsize=8)
def _target(arch: str, features: tuple[str, ...], count: int) -> Target:
    vector, registers = _vectors(frozenset(features))
    sizes = _cache_sizes()
    target = Target(
        name="cpu",
        kind="cpu",
        arch=arch,
        features=features,
        vector_bytes=vector,
        registers=registers,
        threads=count,
        l1_bytes=sizes.get(1, _L1_BYTES),
        l2_bytes=sizes.get(2, _L2_BYTES),
        l3_bytes=sizes.get(3, _L3_BYTES),
        units=tile_units(features),
        view_bytes=1,  # vectors are loaded from anywhere
    )
    return declared(target)


def fingerprint(target: Target, numerics: str = "contract") -> Fingerprint:
    """The store's key for measurements of ``target`` on this machine.

    ``numerics`` names what the renderer lets the compiler do to floating point. Each field, and why
    it is one, stands in docs/STORE.md. The kernel's release is left out: it changes at every update
    and has no say in the generated code. tunegrad's own lowering is the space version, which the
    store keeps beside the fingerprint.
    """
    from tunegrad.trial import Fingerprint

    allowed = os.sched_getaffinity(0)
    cpu = processor_of(allowed)
    fields = {
        "device": target.name,
        "arch": target.arch,
        "features": _enabled(target.features),
        "cpu_vendor": cpu.vendor,
        "cpu_family": cpu.family,
        "cpu_model": cpu.model,
        "cpu_stepping": cpu.stepping,
        "cpu_name": cpu.name,
        "microcode": cpu.microcode,
        "cores": str(len(allowed)),
        "physical_cores": cpu.cores,
        "smt": cpu.smt,
        "cpu_quota": _quota_text(),
        "thp": cpu.thp,
        "thp_defrag": cpu.thp_defrag,
        "page": str(os.sysconf("SC_PAGESIZE")),
        "threads": str(target.threads),
        "l1": str(target.l1_bytes),
        "l2": str(target.l2_bytes),
        "l3": str(target.l3_bytes),
        "os": f"{platform.system().lower()}-{platform.machine()}",
        "compiler": "llvm",
        "compiler_version": compiler_version(),
        "numerics": numerics,
    }
    return Fingerprint(tuple(sorted(fields.items())))


@lru_cache(maxsize=8)
def _enabled(features: tuple[str, ...]) -> str:
    """A digest of the features that a processor has, and their names."""
    import hashlib

    names = ",".join(sorted(name[1:] for name in features if name.startswith("+")))
    return f"{hashlib.blake2b(names.encode(), digest_size=6).hexdigest()}:{names}"


def usable_cores() -> int:
    """Physical cores that this process may use, within its cgroup's quota."""
    allowed = os.sched_getaffinity(0)
    cores = {physical_core(cpu) for cpu in allowed}
    return max(1, min(len(cores), cpu_limit()))


def cpu_limit(group: Path | None = None) -> int:
    """Whole CPUs that the cgroup's quota (v2 or v1) allows, rounded up; else the allowed cores."""
    allowed = len(os.sched_getaffinity(0))
    roots = (group,) if group is not None else tuple(control_groups("cpu"))
    for root in roots:
        quota, period = _read_quota(root)
        if quota > 0 and period > 0:
            allowed = min(allowed, max(1, -(-quota // period)))
    return allowed


def _read_quota(root: Path) -> tuple[int, int]:
    words = _read(root / "cpu.max").split()
    if len(words) != 2:
        words = [
            _read(root / "cpu.cfs_quota_us").strip(),
            _read(root / "cpu.cfs_period_us").strip(),
        ]
    try:
        return int(words[0]), int(words[1])
    except ValueError:  # "max", or no such file
        return 0, 0


def cpu_quota(roots: Sequence[Path]) -> str:
    """CPUs that cgroups let this process use, the least of them, as ``1.5``; ``none`` where they
    set no limit.

    ``unknown`` where no cgroup can be seen: one may be set from outside.
    """
    if not any(root.is_dir() for root in roots):
        return UNKNOWN
    quotas = [_read_quota(root) for root in roots]
    shares = [quota / period for quota, period in quotas if quota > 0 and period > 0]
    return f"{min(shares):g}" if shares else "none"


@cache
def _quota_text() -> str:
    """Read once: a session's rows are of one machine."""
    return cpu_quota(control_groups("cpu"))


@cache
def _features() -> tuple[str, ...]:
    found = tuple(sorted(host().features, key=lambda name: name[1:]))
    refused = "+amx-tile" in found and not ask_for_tiles()
    return without_tiles(found) if refused else found


def _vectors(features: frozenset[str]) -> tuple[int, int]:
    """(bytes of a vector register, how many of them)."""
    if "+avx512f" in features:
        return 64, 32
    if "+avx2" in features:
        return 32, 16
    return 16, 32 if platform.machine() == "aarch64" else 16


@cache
def _cache_sizes() -> dict[int, int]:
    """Bytes of the data or unified cache of each level, of the first allowed core."""
    sizes: dict[int, int] = {}
    place = _CPUS / f"cpu{min(os.sched_getaffinity(0))}" / "cache"
    found = sorted(place.iterdir()) if place.is_dir() else []
    for index in (p for p in found if p.name.startswith("index")):
        level, kind, size = (_read(index / name).strip() for name in ("level", "type", "size"))
        unit = {"K": 1 << 10, "M": 1 << 20}.get(size[-1:], 1)
        digits = size.rstrip("KM")
        if kind in ("Data", "Unified") and level.isdigit() and digits.isdigit():
            sizes[int(level)] = int(digits) * unit
    return sizes
