"""The target of a kernel: plain data, which a worker has of devices that it cannot open.

    Target       what a device has and can do; code asks "can it?", never "which is it?"
    Rates        how fast a model reckons it to be where nothing was measured yet
    MatrixUnit   one shape that work-items multiply together
    TileUnit     one shape that a thread multiplies in tile registers

Facts are fields, which the device's own folder declares. Questions are properties.
"""

from __future__ import annotations

from math import inf
from typing import Literal

from tunegrad.lazy import dataclass

__all__ = ["MatrixUnit", "Rates", "Target", "TileUnit"]


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of one core (or unit) of a device: a model to compare plans by.

    ``flops`` are (dtype or matrix unit, operations a second) of a core, two in a fused
    multiply-add; what is not named runs at the rate of f32. ``cache_bytes_per_s`` is that of the
    last cache, for all cores together, and so is ``memory_bytes_per_s``. ``launch_s`` is what one
    kernel more costs. A sum into one accumulator takes ``folds_per_s`` steps of ``fold_run``
    neighbours each. ``expensive_flops`` is what an exponential, a division or the like costs more
    than an addition, in operations.

    The default is a device of which nothing was declared: all is free, so no plan is preferred to
    that of the rules.
    """

    flops: tuple[tuple[str, float], ...] = ()
    cache_bytes_per_s: float = inf
    memory_bytes_per_s: float = inf
    launch_s: float = 0.0
    folds_per_s: float = inf
    fold_run: int = 1
    expensive_flops: int = 0

    @property
    def f32_flops_per_s(self) -> float:
        """f32 operations a second of one core; infinity where nothing was declared."""
        return dict(self.flops).get("f32", inf)

    def speedup(self, name: str) -> float:
        """Speed of a core on a dtype, or by a matrix unit, as a multiple of that on f32."""
        known = dict(self.flops)
        return known[name] / self.f32_flops_per_s if name in known else 1.0


@dataclass(frozen=True, slots=True)
class MatrixUnit:
    """A product of small matrices by 32 work-items together: (m, n, k); dtypes of operands, result.

    Operands are kept ``packed`` to a register of 32 bits (one of 64 bits is one). Item ``l`` is
    (``r``, ``c``) = (``l // 4``, ``l % 4``), and holds, for every h, j and p

        A[8*h + r, packed*c + j + 4*packed*s]       h < m/8, j < packed, s < steps
        B[packed*c + j + 4*packed*s, r]
        C[8*h + r, 2*c + p]                         p < 2

    as instructions of the form mma.sync have it, whatever their types. Operands of ``tf32`` are f32
    that were rounded to it (``Op.TF32``); of others the unit reads their first 19 bits.
    """

    shape: tuple[int, int, int]
    dtypes: tuple[str, str]
    packed: int = 1
    fmas: int = 0
    """Multiply-adds that one unit of the device starts in a cycle by this shape; 0: not known."""

    items = 32
    rows, columns, pair = 8, 4, 2
    """Work-items along m and along n, and neighbouring results of one."""

    @property
    def highs(self) -> int:
        """Rows of one work-item."""
        return self.shape[0] // self.rows

    @property
    def steps(self) -> int:
        """Registers of one row of A, or of one column of B, that a work-item holds."""
        return self.shape[2] // (self.columns * self.packed)

    @property
    def held(self) -> str:
        """The dtype in which an operand lies in memory and in registers."""
        return "f32" if self.rounds else self.dtypes[0]

    @property
    def rounds(self) -> bool:
        """True if operands are f32 that are rounded before."""
        return self.dtypes[0] == "tf32"

    @property
    def name(self) -> str:
        """As an action writes it: ``m16n8k16_f16_f32``."""
        return _unit_name(self.shape, self.dtypes)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class TileUnit:
    """A product of small matrices by one thread, which has ``registers`` for whole ones.

        C[m, n] += A[m, k] * B[k, n]      m of up to shape[0] rows, n = shape[1], k = shape[2]

    ``dtypes`` are those of an element of A and of B, and of C; ``right`` is that of B where it is
    another one. An element of 32 bits may be several numbers that are multiplied one by one and
    added (``bf16x2``, ``u8x4``). A register holds up to
    ``most_rows`` rows, all equally long, from any memory where rows are equally far apart; how
    many rows each one has is set before it is used (AMX: Intel SDM, volume 1, chapter 18).
    """

    shape: tuple[int, int, int]
    dtypes: tuple[str, str]
    registers: int = 8
    fmas: int = 0
    """Multiply-adds that a core does in a cycle by this shape; 0: not known."""
    right: str = ""

    most_rows = 16

    @property
    def factors(self) -> tuple[str, str]:
        """The dtypes of an element of A and of one of B."""
        return self.dtypes[0], self.right or self.dtypes[0]

    @property
    def takes_bytes(self) -> bool:
        """True if its elements are words of bytes."""
        return self.dtypes[0] in ("u8x4", "i8x4")

    @property
    def name(self) -> str:
        """As an action writes it: ``m16n16k16_bf16x2_f32``, ``m16n16k16_u8x4_i8x4_i32``."""
        taken = dict.fromkeys(self.factors)
        return _unit_name(self.shape, (*taken, self.dtypes[1]))

    def __str__(self) -> str:
        return self.name


def _unit_name(shape: tuple[int, int, int], dtypes: tuple[str, ...]) -> str:
    m, n, k = shape
    return f"m{m}n{n}k{k}_{'_'.join(dtypes)}"


@dataclass(frozen=True, slots=True)
class Target:
    """Facts of one device that change the generated code or the sensible choices.

    ``kind`` is a label for people: what a device can do is asked of the properties. ``arch`` and
    ``features`` are in the compiler's own words (LLVM's for a CPU).

    ``vector_bytes`` is the widest SIMD register (with work-items: the widest load of one),
    ``registers`` the number of vector registers. ``fmas_per_cycle`` are fused multiply-adds of
    whole vectors that a core starts in a cycle. ``threads`` are cores, or units that run
    work-groups. Cache sizes are of one core except ``l3_bytes``, the last cache's; of that,
    ``l3_share_bytes`` is the most that one process can expect to keep. ``l2_bytes_per_cycle`` is
    what a core reads of its second cache besides computing, ``streams`` how many rows of memory it
    reads side by side. Kernels read parts of buffers from multiples of ``view_bytes`` on.

    ``max_local`` is the most work-items of a group, and zero where there are no groups;
    ``shared_bytes`` the memory that a group shares. ``warp`` work-items run together, with up to
    ``regs_per_item`` registers of 32 bits each (zero: not known). ``units`` are the shapes of its
    matrix unit. ``copies_ahead`` says that an item can start a copy to shared memory and go on
    (``CopyAsync``), ``loads_matrices`` that a warp loads fragments together (``MatLoad``). Groups
    that run on one unit at a time share ``unit_items`` work-items, ``unit_registers`` of 32 bits
    and ``unit_shared_bytes`` (zero: what one group may have). All units together move
    ``memory_bytes_per_cycle`` from and to memory (zero: not known).

    A kernel takes up to ``max_buffers`` buffers of up to ``max_buffer_bytes`` each, and runs in up
    to ``max_groups`` groups (zero: any).

    ``rates`` compare plans and nothing else: no schedule, no text, no fingerprint and no key
    depends on them.
    """

    name: str
    kind: Literal["cpu", "gpu"]
    arch: str
    features: tuple[str, ...] = ()
    vector_bytes: int = 16
    registers: int = 16
    threads: int = 1
    l1_bytes: int = 32 << 10
    l2_bytes: int = 512 << 10
    l3_bytes: int = 8 << 20
    shared_bytes: int = 0
    max_local: int = 0
    fmas_per_cycle: int = 1
    l2_bytes_per_cycle: int = 64
    l3_share_bytes: int = 1 << 40
    streams: int = 8
    view_bytes: int = 64
    warp: int = 1
    regs_per_item: int = 0
    units: tuple[MatrixUnit | TileUnit, ...] = ()
    copies_ahead: bool = False
    loads_matrices: bool = False
    unit_items: int = 0
    unit_registers: int = 0
    unit_shared_bytes: int = 0
    memory_bytes_per_cycle: float = 0.0
    max_buffers: int = 0
    max_buffer_bytes: int = 0
    max_groups: int = 0
    rates: Rates = Rates()

    def __hash__(self) -> int:
        """Of a few fields: every table of what was found for a target asks."""
        return hash((self.name, self.arch, self.threads, self.vector_bytes, self.l2_bytes))

    # ---- what it can do

    @property
    def has_work_items(self) -> bool:
        """True if kernels run in groups of work-items, rather than as a team of threads.

        A thread loop is then the grid: one group runs one iteration. Barriers are of a group, and
        operands are copied to memory that it shares.
        """
        return self.max_local > 0

    @property
    def host_threads(self) -> int:
        """CPUs that a run keeps busy: the team's, and the one that waits for a GPU."""
        return 1 if self.has_work_items else self.threads

    @property
    def has_vector_registers(self) -> bool:
        """True if one thread computes on whole vectors; with work-items, the lanes are those."""
        return not self.has_work_items

    @property
    def can_stream(self) -> bool:
        """True if a store may go past the caches."""
        return self.has_vector_registers

    @property
    def can_prefetch(self) -> bool:
        """True if a load may ask for a cache line further on."""
        return self.has_vector_registers

    @property
    def can_keep(self) -> bool:
        """True if a thread has scratch for values that a later stage needs again."""
        return not self.has_work_items

    @property
    def avx512(self) -> bool:
        """True if code may use the instructions of AVX-512F."""
        return "+avx512f" in self.features

    @property
    def amx(self) -> bool:
        """True if code may use tile registers (AMX); ``units`` lists the products in them."""
        return "+amx-tile" in self.features

    @property
    def vnni(self) -> bool:
        """True if one instruction adds products of four unsigned bytes by four signed ones to i32
        (VNNI: ``vpdpbusd`` of any length that there is).
        """
        return {"+avx512vnni", "+avx512vl"} <= set(self.features) or "+avxvnni" in self.features

    @property
    def widens_bytes(self) -> bool:
        """True if vectors multiply bytes as numbers of 16 bits, and add up pairs
        (``vpmaddwd``), for want of VNNI.
        """
        wide = "+avx512bw" if self.vector_bytes > 32 else "+avx2"
        return wide in self.features and not self.vnni

    @property
    def multiplies_halves(self) -> bool:
        """True if vectors add up products of numbers of 16 bits: two operations for two products a
        lane, or one (``vpdpwssd``) with VNNI.
        """
        return self.vnni or self.widens_bytes

    @property
    def multiplies_any_bytes(self) -> bool:
        """True if sums of products of bytes, each with a sign or without, are as fast as others."""
        tiles = any(u.takes_bytes for u in self.units if isinstance(u, TileUnit))
        return tiles or self.widens_bytes

    @property
    def multiplies_bytes(self) -> bool:
        """True if sums of products of unsigned by signed bytes are faster than those of floats."""
        return self.vnni or self.multiplies_any_bytes

    @property
    def matrix_units(self) -> dict[str, MatrixUnit | TileUnit]:
        """The shapes of its matrix unit by name."""
        return {u.name: u for u in self.units}

    @property
    def multiplies_pairs(self) -> bool:
        """True if products of bf16 pairs are worth making: one instruction adds them up."""
        return self.bf16_dot or self.multiplies("bf16x2")

    def multiplies(self, dtype: str) -> bool:
        """True if a matrix unit multiplies factors of ``dtype``; tf32 are rounded f32."""
        return any(u.dtypes[0] == dtype for u in self.units)

    @property
    def bf16_dot(self) -> bool:
        """True if one instruction adds products of bf16 pairs to f32 (AVX512_BF16, any length)."""
        return {"+avx512f", "+avx512bf16", "+avx512vl"} <= set(self.features)

    # ---- numbers that follow

    @property
    def cached_bytes(self) -> int:
        """Bytes of a kernel's data that caches can be expected to hold: a share of the last one."""
        return min(self.l3_bytes, self.l3_share_bytes)

    @property
    def cycles_per_s(self) -> float:
        """Cycles of a unit in a second; 0 where that is not known."""
        if not self.memory_bytes_per_cycle or self.rates.memory_bytes_per_s == inf:
            return 0.0
        return self.rates.memory_bytes_per_s / self.memory_bytes_per_cycle

    def lanes(self, itemsize: int) -> int:
        """Elements of ``itemsize`` bytes in one vector register."""
        return max(1, self.vector_bytes // itemsize)

    @property
    def widest_lanes(self) -> int:
        """Results of 4 bytes in the widest register: a vector, or one row of a tile register."""
        tiles = (u.shape[1] for u in self.units if isinstance(u, TileUnit))
        return max(self.lanes(4), *tiles, 1)

    def flops_per_s(self, cores: int | None = None) -> float:
        """f32 operations a second of so many cores, all by default."""
        return self.rates.f32_flops_per_s * (self.threads if cores is None else cores)

    def bytes_per_s(self, nbytes: int) -> float:
        """The rate at which ``nbytes`` move: the last cache's for less than half of it."""
        cached = nbytes < self.cached_bytes // 2
        return self.rates.cache_bytes_per_s if cached else self.rates.memory_bytes_per_s
