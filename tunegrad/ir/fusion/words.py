"""Words that lie in memory already: neighbours of bf16, or bytes, read as words, without a kernel
that copies.

    buffer 3 bf16[56,56,64] temp                     buffer 3 bf16[56,56,64] temp
    buffer 4 bf16x2[56,56,32] temp             -->
    launch elementwise pair 32x56x56 (4, 3)
    launch conv3x3 .. (5, 4, 2)                      launch conv3x3 .. (5, 3, 2)

Kernels stay what they are: a parameter of words is given a buffer of two or four times as many
numbers. Views of the words become views of the numbers.
"""

from __future__ import annotations

from dataclasses import replace

from ..dtypes import BF16, F32, I8, U8
from ..expr import Apply, Cast, Expr, Load, Op
from ..kernel import Kernel, Store
from .plan import Buffer, LaunchPlan

__all__ = ["without_copies"]

_WORDS = (Op.PAIR, Op.QUAD)


def without_copies(plan: LaunchPlan) -> LaunchPlan:
    """The plan without launches that only store neighbours of a buffer as words.

    A copy stays where one of its readers reads the numbers one by one, too. A plan without any is
    the same object. Buffers keep their numbers: those that nothing uses take no memory.
    """
    copies = {x.args[0]: x.args[1] for x in plan.launches if _is_copy(x.kernel)}
    for launch in plan.launches:
        args = [plan.memory(i) for i in launch.args]
        for i in args[1:]:
            if i in copies and plan.memory(copies[i]) in args:
                del copies[i]
    if not copies:
        return plan
    buffers = tuple(_of_numbers(b, plan, copies) for b in plan.buffers)
    made = tuple(
        replace(x, args=tuple(copies.get(i, i) for i in x.args))
        for x in plan.launches
        if x.args[0] not in copies
    )
    return replace(plan, buffers=buffers, launches=made)


def _of_numbers(b: Buffer, plan: LaunchPlan, copies: dict[int, int]) -> Buffer:
    """A view of words as one of the numbers that they are copies of."""
    if b.base is None or b.base not in copies:
        return b
    source = plan.buffers[copies[b.base]]
    return replace(b, base=plan.memory(source.id), start=b.start + source.start)


def _is_copy(kernel: Kernel) -> bool:
    """True if a kernel stores words of neighbours, each where those lie."""
    if len(kernel.params) != 2 or len(kernel.stages) != 1:
        return False
    (store,) = kernel.stages
    assert isinstance(store, Store)  # the only stage of a kernel
    x, out = store.expr, kernel.param(store.param)
    if not isinstance(x, Apply) or x.op not in _WORDS or kernel.params[0] is not out:
        return False
    count = len(x.args)
    parts = [_part(y) for y in x.args]
    source = kernel.params[1]
    if any(y is None or not y.valid.always for y in parts) or source.role == "const":
        return False
    at = out.layout.offset(store.index) * count
    lies = [source.layout.offset(y.index) for y in parts if y is not None]
    whole = source.layout.size == count * out.layout.size == count * _points(kernel)
    return store.valid.always and whole and lies == [at + i for i in range(count)]


def _points(kernel: Kernel) -> int:
    total = 1
    for a in kernel.all_axes():
        total *= a.extent
    return total


def _part(x: Expr) -> Load | None:
    """A load of what words are made of; bf16 may be widened."""
    if isinstance(x, Cast) and x.dtype == F32:
        x = x.x
    return x if isinstance(x, Load) and x.dtype in (BF16, I8, U8) else None
