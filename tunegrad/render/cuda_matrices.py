"""Products of matrix units as CUDA C++: one function a unit, inline PTX on a GPU.

    tg_mma_m16n8k16_f16_f32(float *d, const unsigned int *a, const unsigned int *b)    d += a * b

On a CPU (``TG_HOST``) the warp's items meet in ``tg_host_mma``, and one of them multiplies what all
hold, in the places that ``MatrixUnit`` says.
"""

from __future__ import annotations

from tunegrad.errors import InternalError
from tunegrad.ir.target import MatrixUnit

__all__ = ["mma_text"]

_TYPES = {"f16": "f16", "bf16": "bf16", "f32": "f32", "f64": "f64"}
"""Of PTX."""
_REGISTERS = {"f16": ("unsigned int", "r"), "bf16": ("unsigned int", "r"), "f32": ("float", "f"),
              "f64": ("double", "d")}  # fmt: skip
"""What holds operands and sums, and the letter of its constraint."""


def mma_text(unit: MatrixUnit) -> str:
    """The function that multiplies by a unit. Raises InternalError for one of other types."""
    taken, gives = unit.dtypes
    if taken not in _TYPES or gives not in ("f32", "f64"):
        raise InternalError(f"CUDA has no product of {unit}")
    operand, o = _REGISTERS[taken]
    result, r = _REGISTERS[gives]
    head = (
        f"__device__ __forceinline__ void tg_mma_{unit}({result} *d, const {operand} *a, "
        f"const {operand} *b)"
    )
    m, n, k = unit.shape
    types = ".".join(_TYPES[t] for t in (gives, taken, taken, gives))
    sizes = unit.highs * unit.pair, unit.steps * unit.highs, unit.steps
    at, parts = 0, []
    for size in sizes:
        parts.append("{" + ", ".join(f"%{at + i}" for i in range(size)) + "}")
        at += size
    text = f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{types} {', '.join([*parts, parts[0]])};"
    sums = ", ".join(f'"+{r}"(d[{i}])' for i in range(sizes[0]))
    given = ", ".join(f'"{o}"({x}[{i}])' for x, c in zip("ab", sizes[1:], strict=True)
                      for i in range(c))  # fmt: skip
    host = f"tg_host_mma<{result}, {operand}, {unit.highs}, {unit.steps}, {unit.packed}>"
    widen = f", tg_from_{taken}" if unit.packed > 1 else ""
    return "\n".join(
        [
            "#ifdef TG_HOST",
            f"{head} {{ {host}(d, a, b{widen}); }}",
            "#else",
            f'{head} {{ asm volatile("{text}" : {sums} : {given}); }}',
            "#endif",
        ]
    )
