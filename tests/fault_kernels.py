"""For each planted fault a family of kernels and a schedule on which it shows; the member says the
shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tests.faults import IN_LOWERING, IN_TEXT
from tunegrad.frontend import Tensor
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule
from tunegrad.ir.kernel import Kernel

__all__ = ["CASES", "Case"]


@dataclass(frozen=True, slots=True)
class Case:
    """A family of tensors by number (0 to 99, all different), and the schedule that its kernels run
    under.
    """

    make: Callable[[int], Tensor]
    actions: str

    def kernel(self, number: int) -> Kernel:
        """The kernel of one member."""
        nodes = tuple(fold_constants((self.make(number).node,)))
        return schedule(nodes).launches[-1].kernel


def _x(*shape: int, dtype: str = "f32", name: str = "x") -> Tensor:
    return Tensor.input(name, shape, dtype)


def _w(*shape: int) -> Tensor:
    rng = np.random.default_rng(sum(shape))
    return Tensor.constant(rng.standard_normal(shape).astype(np.float32))


def _gemm(n: int) -> Tensor:
    k = 16 + 8 * (n % 5)
    return (_x(12 + 2 * (n % 7), k) @ _w(k, 16 + 4 * (n % 3))).relu()


def _rows(n: int, *, width: int = 50) -> tuple[int, int]:
    """100 shapes whose width is no multiple of 8."""
    return 3 + n % 10, width + 8 * (n // 10)


_BLOCKED = (
    "tile(axis=ra, size=8) tile(axis=b, size=4) tile(axis=a, size=2) reorder(order=(ra0, "
    "a0, b0, ra1, a1, b1)) "
    "upcast(axis=a1) vectorize(axis=b1) thread(axis=a0, count=2) stage(param=p2, at=ra0, "
    "layout=(b0, ra1, b1))"
)
_PACKED = (
    "tile(axis=b, size=4) reorder(order=(a, b0, ra, b1)) vectorize(axis=b1) "
    "thread(axis=a, count=2) "
    "stage(param=p2, at=load, layout=(b0, ra, b1))"
)
_LANES = "tile(axis=b, size=8) vectorize(axis=b1)"

_BLOCKED_GEMM = Case(_gemm, _BLOCKED)
_PLAIN_GEMM = Case(_gemm, "tile(axis=b, size=4) vectorize(axis=b1) reorder(order=(a, b0, ra, b1))")
_ADD = Case(lambda n: _x(*_rows(n)) + _x(_rows(n)[1], name="y"), _LANES)
_SUBTRACT = Case(lambda n: _x(*_rows(n)) - _x(_rows(n)[1], name="y"), _LANES)

CASES: Mapping[str, Case] = {
    "lost_barrier": _BLOCKED_GEMM,
    "everybody_runs_all": _BLOCKED_GEMM,
    "tail_dropped": _ADD,
    "stores_unmasked": _ADD,
    "sum_runs_past_its_tail": Case(
        lambda n: _x(5 + n % 7, 11 + 4 * (n % 5)) @ _x(11 + 4 * (n % 5), 16 + n % 3, name="y"),
        "tile(axis=ra, size=4) reorder(order=(ra0, a, b, ra1))",
    ),
    "condition_inverted": Case(lambda n: _x(*_rows(n)).pad(((1, 2), (0, 3)), value=2.5), ""),
    "pack_transposed": Case(_gemm, _PACKED),
    "last_term_lost": _PLAIN_GEMM,
    "last_term_of_a_million_lost": Case(lambda n: _x((1 << 20) + n).sum(), ""),
    "index_off_by_one": _PLAIN_GEMM,
    "stage_not_refreshed": _BLOCKED_GEMM,
    "sum_starts_at_one": Case(lambda n: _x(*_rows(n)).sum(1), ""),
    "maximum_starts_at_zero": Case(lambda n: _x(*_rows(n)).max(1), ""),
    "accumulators_kept": _PLAIN_GEMM,
    "epilogue_in_every_block": _BLOCKED_GEMM,
    "difference_swapped": Case(lambda n: _x(*_rows(n)).softmax(-1), ""),
    "lanes_rotated": _ADD,
    "conversion_truncates": Case(
        lambda n: _x(8 * (5 + n), dtype="f16") + 1.0, "tile(axis=a, size=8) vectorize(axis=a1)"
    ),
    "computed_in_bf16": _PLAIN_GEMM,
    "computed_in_tf32": Case(_gemm, _PACKED),
    "product_of_inputs_in_tf32": Case(lambda n: _x(*_rows(n)) @ _x(_rows(n)[1], 16, name="y"), ""),
    "shares_overlap": _BLOCKED_GEMM,
    "share_left_out": Case(
        lambda n: _x(*_rows(n)) + _x(_rows(n)[1], name="y"), "thread(axis=a, count=2)"
    ),
    "nothing_computed": _ADD,
    "nothing_computed_of_logarithms": Case(lambda n: _x(*_rows(n)).log().sum(1), ""),
    "returns_early_after_the_first_run": _ADD,
    "code_of_another_kernel": _SUBTRACT,
}

assert CASES.keys() == IN_LOWERING.keys() | IN_TEXT.keys()
