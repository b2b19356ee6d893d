"""LLVM IR of integer arithmetic, and of bools, which are integers of one bit."""

from __future__ import annotations

from tunegrad.errors import InternalError
from tunegrad.ir.expr import Op
from tunegrad.ir.program import VType

from .llvm_values import LlvmValues, literal, ltype, mask_type, scalar_type, suffix_of

__all__ = ["of_integers"]

_INT = {Op.ADD: "add", Op.SUB: "sub", Op.MUL: "mul", Op.AND: "and", Op.OR: "or", Op.XOR: "xor"}


def of_integers(to: LlvmValues, op: Op, a: list[str], s: VType) -> str:
    """An operation on integers; on bools a sum is the union, a product the meet."""
    ty, suffix = ltype(s), suffix_of(scalar_type(s.dtype), s.lanes)
    if s.dtype.is_bool:
        op = {Op.MUL: Op.AND, Op.MIN: Op.AND, Op.ADD: Op.OR, Op.MAX: Op.OR, Op.SUB: Op.XOR}.get(
            op, op
        )
    if op in _INT:
        return to.named(f"{_INT[op]} {ty} {a[0]}, {a[1]}")
    if op is Op.NOT:
        return to.named(f"xor {ty} {a[0]}, {literal(True if s.dtype.is_bool else -1, s)}")
    if op is Op.NEG:
        return to.named(f"sub {ty} {literal(0, s)}, {a[0]}")
    if op is Op.ABS and not s.dtype.signed:
        return a[0]
    if op is Op.ABS:
        return _extreme_int(
            to, "smax", a[0], to.named(f"sub {ty} {literal(0, s)}, {a[0]}"), ty, suffix
        )
    if op is Op.FMA:
        return to.named(f"add {ty} {to.named(f'mul {ty} {a[0]}, {a[1]}')}, {a[2]}")
    if op in (Op.MAX, Op.MIN):
        name = f"{'s' if s.dtype.signed else 'u'}{op}"
        return _extreme_int(to, name, a[0], a[1], ty, suffix)
    if op in (Op.FLOORDIV, Op.MOD):
        return _division(to, op, a, s) if s.dtype.signed else _unsigned(to, op, a, s)
    if op in (Op.SHL, Op.SHR):
        return _shift(to, op, a, s)
    raise InternalError(f"no LLVM for {op} on {s}")


def _extreme_int(to: LlvmValues, name: str, x: str, y: str, ty: str, suffix: str) -> str:
    return to.named(to.call(ty, f"llvm.{name}.{suffix}", [(ty, x), (ty, y)]))


def _unsigned(to: LlvmValues, op: Op, a: list[str], s: VType) -> str:
    """Division by 0 gives 0."""
    ty, mask = ltype(s), mask_type(s.lanes)
    zero = literal(0, s)
    none = to.named(f"icmp eq {ty} {a[1]}, {zero}")
    d = to.named(f"select {mask} {none}, {ty} {literal(1, s)}, {ty} {a[1]}")
    result = to.named(f"{'udiv' if op is Op.FLOORDIV else 'urem'} {ty} {a[0]}, {d}")
    return to.named(f"select {mask} {none}, {ty} {zero}, {ty} {result}")


def _shift(to: LlvmValues, op: Op, a: list[str], s: VType) -> str:
    """By all bits or more (as a number without a sign) nothing is left but the sign."""
    ty, mask, bits = ltype(s), mask_type(s.lanes), s.dtype.bits
    all_bits = literal(bits - 1, s)
    inside = to.named(f"icmp ule {ty} {a[1]}, {all_bits}")
    by = to.named(f"select {mask} {inside}, {ty} {a[1]}, {ty} {all_bits}")
    if op is Op.SHR and s.dtype.signed:
        return to.named(f"ashr {ty} {a[0]}, {by}")
    moved = to.named(f"{'shl' if op is Op.SHL else 'lshr'} {ty} {a[0]}, {by}")
    return to.named(f"select {mask} {inside}, {ty} {moved}, {ty} {literal(0, s)}")


def _division(to: LlvmValues, op: Op, a: list[str], s: VType) -> str:
    """Python's: the quotient rounds down and the remainder has the divisor's sign.

    X // 0 is 0 and x % 0 is 0, like numpy. Neither 0 nor -1 reaches the division: the least
    integer over -1 traps.
    """
    ty, mask = ltype(s), mask_type(s.lanes)
    zero, one, minus_one = literal(0, s), literal(1, s), literal(-1, s)
    none = to.named(f"icmp eq {ty} {a[1]}, {zero}")
    minus = to.named(f"icmp eq {ty} {a[1]}, {minus_one}")
    special = to.named(f"or {mask} {none}, {minus}")
    d = to.named(f"select {mask} {special}, {ty} {one}, {ty} {a[1]}")
    r = to.named(f"srem {ty} {a[0]}, {d}")
    signs = to.named(f"xor {ty} {r}, {d}")
    opposite = to.named(f"icmp slt {ty} {signs}, {zero}")
    left = to.named(f"icmp ne {ty} {r}, {zero}")
    fix = to.named(f"and {mask} {opposite}, {left}")
    if op is Op.MOD:
        moved = to.named(f"add {ty} {r}, {d}")
        result = to.named(f"select {mask} {fix}, {ty} {moved}, {ty} {r}")
    else:
        q = to.named(f"sdiv {ty} {a[0]}, {d}")
        less = to.named(f"sub {ty} {q}, {one}")
        rounded = to.named(f"select {mask} {fix}, {ty} {less}, {ty} {q}")
        negated = to.named(f"sub {ty} {zero}, {a[0]}")
        result = to.named(f"select {mask} {minus}, {ty} {negated}, {ty} {rounded}")
    return to.named(f"select {mask} {none}, {ty} {zero}, {ty} {result}")
