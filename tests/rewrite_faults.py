"""Faults planted in rewrites: conditions dropped, masks swapped, offsets and identities wrong.

Each is a change of the text of one function, and names the law that has to see it. ``planted``
gives the function the code of the changed text, so that everybody who has imported it runs that.
"""

from __future__ import annotations

import importlib
import inspect
import random
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType

from tests.address_laws import ADDRESS_LAWS, HAS_TORCH
from tests.rewrite_graph_laws import GRAPH_LAWS
from tests.rewrite_index_laws import INDEX_LAWS
from tests.rewrite_kernel_laws import KERNEL_LAWS, ROUNDS_AT_ONCE
from tests.rewrite_laws import LAWS
from tunegrad.errors import TunegradError

__all__ = ["EVERY_LAW", "FAULTS", "Fault", "changed", "is_seen", "planted"]

EVERY_LAW = LAWS | INDEX_LAWS | GRAPH_LAWS | KERNEL_LAWS | ADDRESS_LAWS


@dataclass(frozen=True, slots=True)
class Fault:
    """A change of a function: ``old`` stands in its text exactly once.

    ``function`` is "module:name" below ``tunegrad.ir``, or with a dot before it below ``tunegrad``;
    ``law`` is the law that sees the fault.
    """

    name: str
    function: str
    old: str
    new: str
    law: str


def _function(fault: Fault) -> FunctionType:
    module, _, path = fault.function.partition(":")
    below = "tunegrad" if module.startswith(".") else "tunegrad.ir."
    found: object = importlib.import_module(below + module)
    for part in path.split("."):
        found = inspect.getattr_static(found, part)
        found = found.fget if isinstance(found, property) else found
    found = found.__func__ if isinstance(found, staticmethod) else found
    found = inspect.unwrap(found) if callable(found) else found  # of what is remembered
    assert isinstance(found, FunctionType), fault
    return found


def changed(fault: Fault) -> CodeType:
    """Return the code of the function with this fault.

    Raises:
        AssertionError: Its text is not there, or there more than once.
    """
    function = _function(fault)
    text = textwrap.dedent(inspect.getsource(function))
    assert text.count(fault.old) == 1, f"{fault.name}: {text.count(fault.old)} places to change"
    text = "from __future__ import annotations\n" + text.replace(fault.old, fault.new)
    made: dict[str, object] = dict(function.__globals__)
    exec(compile(text, f"<{fault.name}>", "exec"), made)  # noqa: S102  # the repository's own text
    planted = made[function.__name__]
    planted = planted.fget if isinstance(planted, property) else planted
    planted = planted.__func__ if isinstance(planted, staticmethod) else planted
    planted = inspect.unwrap(planted) if callable(planted) else planted
    assert isinstance(planted, FunctionType)
    return planted.__code__


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """The rewrite with its fault, and without what was found before; nor is it found later."""
    function = _function(fault)
    code = function.__code__
    function.__code__ = changed(fault)
    _forget()
    try:
        yield
    finally:
        function.__code__ = code
        _forget()


def _forget() -> None:
    """Clear all that functions of kernels and of indices remember, and what a law compiled."""
    for name, module in [*sys.modules.items()]:
        if name.startswith(
            ("tunegrad.ir.", "tunegrad.opts.", "tunegrad.planning.", "tests.address")
        ):
            for found in vars(module).values():
                if callable(clear := getattr(found, "cache_clear", None)):
                    clear()


_SEEN = (
    AssertionError, TunegradError, ValueError, IndexError, AttributeError, TypeError, KeyError,
    RecursionError,
)  # fmt: skip
"""A fault shows as another value, or as a graph or a kernel that is none."""


def is_seen(fault: Fault, case: int) -> bool:
    """Return True where the law of a rule fails while the rule has this fault.

    Cases are the same in every run: laws are drawn anew for each commit, faults are not.
    """
    with planted(fault):
        try:
            EVERY_LAW[fault.law](random.Random(f"fault {fault.name} {case}"))
        except _SEEN:
            return True
    return False


_OF_TORCH = (
    Fault("what is written may lie in what is read", ".torch:_Direct._are_apart",
          "(end if i in self._written else end_written)", "end_written", "apart"),
    Fault("what is read may lie in what is written", ".torch:_Direct._are_apart",
          "(end if i in self._written else end_written)",
          "(end if i in self._written else start)", "apart"),
    Fault("memory ends where its last part does", ".torch:_Direct._are_apart",
          "end = max(end, start + size)", "end = start + size", "apart"),
    Fault("what is written has no end", ".torch:_Direct._are_apart",
          "end_written = end\n", "pass\n", "apart"),
    Fault("neighbours in memory share some", ".torch:_Direct._are_apart",
          "if start < (", "if start <= (", "apart"),
    Fault("inputs that lay apart once lie apart", ".torch:_Direct.run",
          "addresses != self._apart", "not self._apart", "apart"),
    Fault("a program that writes is not looked at", ".torch:_Direct.run",
          "if self._written and", "if not self._written and", "apart"),
    Fault("tensors have the strides of the first call", ".torch:_Direct.run",
          "list(map(_STRIDE, given)) != self._strides or", "", "apart"),
    Fault("a negated view is its memory", ".torch:_Direct.run",
          "or any(map(_IS_NEG, given))", "", "apart"),
    Fault("a graph that writes to its inputs needs no wrapper", ".torch:_is_alone",
          "known.num_mutated_inp_runtime_indices or", "", "alone"),
    Fault("a view of an input needs no wrapper", ".torch:_is_alone",
          "known.num_outputs_aliased", "0", "alone"),
    Fault("what is compared is cast by autocast again", ".torch:_Compiled._in_pytorch",
          'with attrgetter("_C._DisableAutocast")(load_torch())():', "if True:", "alone"),
)  # fmt: skip

_OF_STEPS = (
    Fault("what is no number is the greatest byte", ".render.llvm_operations:_nearest",
          "fcmp olt", "fcmp ult", "steps"),
    Fault("what is above all integers is the least", ".render.llvm_operations:_nearest",
          "literal(_ABOVE, s)", "literal(3e38, s)", "steps"),
    Fault("a product that is no number is the greatest byte",
          ".render.llvm_operations:_nearest_far", "fcmp ogt", "fcmp ugt", "steps"),
    Fault("a product below all bytes with a sign wraps around",
          ".render.llvm_operations:_nearest_far", "ROUNDING - 256", "-3e38", "steps"),
    Fault("a product is as far below 0 as it is", ".render.llvm_operations:_nearest_far",
          "fsub float", "fadd float", "steps"),
    Fault("steps beyond a byte wrap around", ".render.llvm_operations:_stepped",
          "_clamped(to, total, (least, most), word)", "total", "steps"),
    Fault("what is no number is the least byte with a sign",
          ".render.llvm_operations:_stepped", "fcmp ord", "fcmp uno", "steps"),
    Fault("what is no number is the byte that is added", ".render.llvm_operations:_stepped",
          "to.splat(_less_byte(to, 0, zero), word) if zero else ", "", "steps"),
    Fault("what is below all integers is the greatest byte with a sign",
          ".render.llvm_operations:_nearest", "if signed:", "if False:", "steps"),
    Fault("a byte with a sign is one without", ".render.llvm_operations:_widened",
          "'sext' if dtype.signed else 'zext'", "'zext'", "steps"),
    Fault("steps less a byte begin at 0", ".render.llvm_operations:_of_byte",
          "to.splat(_less_byte(to, e, zero), word)", "literal(e, word)", "steps"),
    Fault("the second byte that is added is the only one",
          ".render.llvm_operations:with_steps", "and not to.steps[x][1]", "", "steps"),
    Fault("any byte that is taken off is the one that was added",
          ".render.llvm_operations:with_steps", "and to.centred[a[0]][1] == zero", "", "steps"),
    Fault("no byte is taken off", ".render.llvm_operations:with_steps",
          "{ltype(word)} {less} to", "{ltype(word)} {wide} to", "steps"),
    Fault("four lanes are cut, not rounded", ".render.llvm_operations:_nearest",
          "sse2.cvtps2dq", "sse2.cvttps2dq", "steps"),
    Fault("eight lanes are cut, not rounded", ".render.llvm_operations:_nearest",
          "avx.cvt.ps2dq", "avx.cvtt.ps2dq", "steps"),
)  # fmt: skip

FAULTS = (
    # mask algebra
    Fault("a masked load counts as the constant 0 of a pad", "fusion.build:masked",
          "and isinstance(x.args[2], Const)\n", "\n", "masked"),
    Fault("a pad of a pad is anything but 0 outside", "fusion.build:masked",
          "and _vanishes(x.args[2])", "", "masked"),
    Fault("a pad of a pad is where its inner mask holds", "fusion.build:masked",
          "masked(valid & x.args[0].valid, x.args[1])", "masked(x.args[0].valid, x.args[1])",
          "masked"),
    Fault("a pad of a pad is where its outer mask holds", "fusion.build:masked",
          "masked(valid & x.args[0].valid, x.args[1])", "masked(valid, x.args[1])", "masked"),
    Fault("a condition of values is one of places", "fusion.build:masked",
          "and isinstance(x.args[0], Inside)\n", "\n", "masked"),
    Fault("a pad that is nowhere inside is everywhere", "fusion.build:masked",
          "return zero", "return x", "masked"),
    Fault("a pad takes its sides in the other order", "fusion.build:masked",
          "_where(inside(valid), x, zero)", "_where(inside(valid), zero, x)", "masked"),
    Fault("-0.0 is 0", "fusion.build:_vanishes",
          'return x.value == 0 and not str(x.value).startswith("-")', "return x.value == 0",
          "masked"),
    Fault("what is computed of positions vanishes", "fusion.build:_vanishes",
          "if not isinstance(x, Apply):\n        return False",
          "if not isinstance(x, Apply):\n        return True", "masked"),
    Fault("a sum vanishes where one term does", "fusion.build:_vanishes",
          "return _vanishes(x.args[0]) and _vanishes(x.args[1])",
          "return _vanishes(x.args[0]) or _vanishes(x.args[1])", "masked"),
    Fault("a product with any number vanishes", "fusion.build:_vanishes",
          "(_vanishes(a) and (_vanishes(b) or _positive(b)))", "_vanishes(a)", "masked"),
    Fault("a choice vanishes where its first side does", "fusion.build:_vanishes",
          "_vanishes(x.args[1]) and _vanishes(x.args[2])", "_vanishes(x.args[1])", "masked"),
    Fault("a product with a negative number is +0", "fusion.build:_positive",
          "x.value > 0 and isfinite(x.value)", "isfinite(x.value)", "masked"),
    Fault("conditions that both hold are either", "fusion.build:apply_op",
          "inside(args[0].valid & args[1].valid)", "inside(args[0].valid)", "computed"),
    Fault("or of conditions is and", "fusion.build:apply_op",
          "op is Op.AND and isinstance(args[0], Inside)", "isinstance(args[0], Inside)",
          "computed"),
    Fault("a condition that never holds always does", "fusion.build:inside",
          "Const(not valid.never, dtypes.BOOL)", "Const(True, dtypes.BOOL)", "index values"),
    # arithmetic of expressions
    Fault("a sum with 1 is its other term", "fusion.build:apply_op",
          "op is Op.MUL and any", "op in (Op.MUL, Op.ADD) and any", "computed"),
    Fault("x * 1 is 1", "fusion.build:apply_op",
          "return args[1] if _is(args[0], 1) else args[0]",
          "return args[0] if _is(args[0], 1) else args[1]", "computed"),
    Fault("true and x is true", "fusion.build:apply_op",
          "return args[1] if _is(args[0], True) else args[0]",
          "return args[0] if _is(args[0], True) else args[1]", "computed"),
    Fault("a number that no power of two is divides by its reciprocal", "fusion.build:_divided",
          "and abs(frexp(value)[0]) == 0.5", "", "computed"),
    Fault("division by -1 is none", "fusion.build:_divided",
          "value == 1.0", "abs(value) == 1.0", "computed"),
    Fault("a choice of a false constant is its first side", "fusion.build:_where",
          "return a if c.value else b", "return a", "computed"),
    Fault("a choice of true and anything is its condition", "fusion.build:_where",
          "and _is(b, False)", "", "computed"),
    Fault("a rounding to 16 bits of what was cut to integers is none", "fusion.build:cast_to",
          "and x.dtype == dtypes.F32", "", "cast"),
    Fault("a rounding to 16 bits of another 16 bits is none", "fusion.build:cast_to",
          "and x.x.dtype == dtype and", "and", "cast"),
    # index algebra
    Fault("a quotient keeps the constant's remainder", "index:_floordiv",
          "_floordiv(Index(rest, n.const % d), d)", "_floordiv(Index(rest, 0), d)", "sums"),
    Fault("a remainder drops the constant", "index:_mod",
          "_mod(Index(rest, n.const % d), d)", "_mod(Index(rest, 0), d)", "sums"),
    Fault("a quotient of one bound is that of all", "index:_floordiv",
          "if n.lo // d == n.hi // d:", "if n.lo // d == (n.hi - 1) // d:", "sums"),
    Fault("a remainder forgets which multiple it is of", "index:_mod",
          "return n - n.lo // d * d", "return n", "sums"),
    Fault("digits below may reach the next", "index:_split",
          "low.hi < g", "low.hi <= g", "sums"),
    Fault("digits below may be negative", "index:_split",
          "low.lo >= 0 and", "", "sums"),
    Fault("a modulus goes into one that does not divide it", "index:_mod",
          "a.den % d == 0", "a.den > d", "sums"),
    Fault("a quotient of a modulus that does not divide it", "index:_floordiv",
          "and atom.den % d == 0", "", "sums"),
    Fault("quotients of quotients add their divisors", "index:_floordiv",
          "atom.den * d)", "atom.den + d)", "sums"),
    Fault("a modulus is joined with a quotient of another factor", "index:_rejoin",
          "sums.get(atom, 0) != c * mod.den * k", "atom not in sums", "sums"),
    Fault("a modulus is joined with a quotient of another sum", "index:_rejoin_other",
          "if apart.const % mod.den == 0 and all(x % mod.den == 0 for _, x in apart.terms):",
          "if True:", "sums"),
    Fault("a modulus is joined whatever stands before its quotient", "index:_rejoin_other",
          "and atom.den == mod.den and k == c * mod.den", "and atom.den == mod.den", "sums"),
    Fault("bounds forget the sign of a coefficient", "index:Index._bound",
          "lo += c * atom.hi", "lo += c * atom.lo", "sums"),
    Fault("substitution leaves constants out", "index:Index.substitute",
          "const += c * new.const", "const += new.const", "substitution"),
    Fault("a point moves by one", "index:Index.at",
          "const += c * value", "const += value", "substitution"),
    Fault("a renamed buffer is read at the old place", "index:_element",
          "element(buffer, num, like.size, like.den)", "element(buffer, num, like.size, like.size)",
          "substitution"),
    Fault("what is above a digit is divided by it again", "index:_floordiv",
          "return _floordiv(high, d // g)", "return _floordiv(high, d)", "forms"),
    Fault("digits above one are not put back", "index:_mod",
          "_mod(high, d // g) * g + low", "_mod(high, d // g) + low", "forms"),
    Fault("a quotient of a remainder is a remainder of any", "index:_floordiv",
          "_mod(_floordiv(atom.num, d), atom.den // d)", "_mod(_floordiv(atom.num, d), atom.den)",
          "forms"),
    Fault("groups of dimensions have any sizes", "fusion.build:reshape_groups",
          "while pa != pb:", "while False:", "groups"),
    Fault("a dimension in a group is counted and left out", "fusion.build:reshape_groups",
          "gb.append(db[j])", "pass", "groups"),
    Fault("a tensor without elements is taken apart", "fusion.build:reshape_groups",
          "if any(a[d] == 0 for d in da):", "if False:", "groups"),
    # conditions
    Fault("a range that is divided rounds its end down", "index:_plain",
          "-(-lo // c), -(-hi // c)", "-(-lo // c), hi // c", "conditions"),
    Fault("a range that is divided rounds its begin down", "index:_plain",
          "-(-lo // c), -(-hi // c)", "lo // c, -(-hi // c)", "conditions"),
    Fault("a negative range keeps its ends", "index:_plain",
          "1 - hi, 1 - lo", "-hi, -lo", "conditions"),
    Fault("a range of a quotient ends a step early", "index:_plain",
          "lo * atom.den, hi * atom.den", "lo * atom.den, (hi - 1) * atom.den + 1", "conditions"),
    Fault("of two ranges the wider one counts", "index:Valid.__init__",
          "max(r.lo, old.lo), min(r.hi, old.hi)", "min(r.lo, old.lo), max(r.hi, old.hi)",
          "conditions"),
    Fault("a range holds at its end", "index:Range.always",
          "self.index.hi < self.hi", "self.index.hi <= self.hi", "conditions"),
    Fault("a refuted range is dropped", "index:Valid.__init__",
          "never = never or any(r.never for r in merged.values())",
          "merged = {i: r for i, r in merged.items() if not r.never}", "conditions"),
    Fault("of two conditions the first counts", "index:Valid.__and__",
          "return Valid(self.ranges + other.ranges)", "return Valid(self.ranges)", "conditions"),
    # movement
    Fault("padding moves by its end", "fusion.build:source_index",
          "moved = [i - lo for i, (lo, _) in zip(index, arg, strict=True)]",
          "moved = [i - hi for i, (_, hi) in zip(index, arg, strict=True)]", "movements"),
    Fault("padding at an end alone has no mask", "fusion.build:source_index",
          "if w != (0, 0)", "if w[0]", "movements"),
    Fault("a flip begins past the end", "fusion.build:source_index",
          "src.shape[d] - 1 - i", "src.shape[d] - i", "movements"),
    Fault("a window's stride is its dilation", "fusion.build:source_index",
          "i * stride + k * dilation", "i * dilation + k * stride", "movements"),
    Fault("a permutation is its inverse", "fusion.build:_permuted",
          "moved[o] = index[d]", "moved[d] = index[o]", "movements"),
    Fault("views that follow each other cancel", "fusion.build:Place.below",
          "if order == tuple(range(len(order))) and start.shape == shape:",
          "if start.shape == shape:", "turned"),
    Fault("permutations join in the other order", "fusion.build:Place.below",
          "tuple(order[d] for d in self.order)", "tuple(self.order[d] for d in order)", "turned"),
    Fault("a view of a view begins where that one ended", "fusion.build:Place.below",
          "Place(_reshaped(start.index, start.shape, shape)",
          "Place(_reshaped(self.index, start.shape, shape)", "turned"),
    Fault("positions leave the range of their type", "fusion.build:_position",
          "found.lo < n.dtype.least or found.hi > n.dtype.greatest", "False", "positions"),
    Fault("differences of positions are sums", "fusion.build:_position",
          "a + b if arg is Op.ADD else a - b", "a + b", "positions"),
    Fault("positions beyond an extent are read", "fusion.build:_Builder._gathered",
          "position.lo >= 0 and position.hi < x.shape[dim]", "position.lo >= 0", "positions"),
    Fault("a shrink begins one later", "fusion.build:source_index",
          "i + begin for i, (begin, _)", "i + begin + (begin > 0) for i, (begin, _)", "movements"),
    Fault("a reshape takes its strides from the other end", "fusion.build:_reshaped",
          "offset, stride = ZERO, 1\n        for d in reversed(outer):",
          "offset, stride = ZERO, 1\n        for d in outer:", "movements"),
    # proofs
    Fault("a fact is added whatever its sign", "verify.races:_below",
          "c * k < 0 and c % k == 0", "c % k == 0", "proofs"),
    Fault("what holds up to an end holds at it", "verify.races:condition_facts",
          "r.hi - 1 - r.index", "r.hi - 2 - r.index", "proofs"),
    Fault("a loop's variable stays two below its stop", "verify.races:stop_facts",
          "gap = stop - var - 1", "gap = stop - var - 2", "proofs"),
    # layouts
    Fault("digits of a layout may leave a gap", "layout:Layout.verify",
          "p.step != step or", "", "layouts"),
    Fault("a digit keeps what is above it", "layout:Layout.digit",
          "digit = digit // part.step", "digit = digit // 1", "layouts"),
    Fault("a layout's strides forget padding", "layout:Layout.offset",
          "stride *= p.extent", "stride *= min(p.extent, self.shape[p.dim])", "layouts"),
    # axes, parts and variants of kernels
    Fault("siblings are launched before what they read", "fusion.siblings:_Order._are_before",
          "self.place.get(n, -1) <= place", "self.place.get(n, -1) != -2", "siblings"),
    Fault("siblings are launched behind what reads them", "fusion.siblings:_Order._may_read",
          "not self.groups[place].is_read", "True", "siblings"),
    Fault("what reads siblings is not noted", "fusion.siblings:_Order.add",
          "self.groups[self.place[n]].is_read = True", "pass", "siblings"),
    Fault("kernels of other points are siblings", "fusion.siblings:_Order._kind",
          "_points(d.node), ", "", "siblings"),
    Fault("merged axes are read in the other order", "fusion.axes:_merged",
          "both.index // inner.extent, both.index % inner.extent",
          "both.index % outer.extent, both.index // outer.extent", "merged"),
    Fault("a merged dimension has the extent of one", "fusion.axes:_merge_dims",
          "shape[d] * shape[d + 1], *shape[d + 2 :]", "shape[d], *shape[d + 2 :]", "merged"),
    Fault("a merged load keeps its old condition", "expr:substituting",
          "x.dtype, x.valid.substitute(env))", "x.dtype, x.valid)", "divided"),
    Fault("positions keep their old axes", "expr:substituting",
          "IndexValue(x.index.substitute(env), x.dtype)", "x", "divided"),
    Fault("an axis is split where its extent has no such divisor", "fusion.axes:_division",
          "and axis.extent % by == 0", "", "divided"),
    Fault("rewriting keeps a condition's old axes", "fusion.axes:rewritten",
          "valid = index_of(s.param, s.index), s.valid.substitute(env)",
          "valid = index_of(s.param, s.index), s.valid", "divided"),
    Fault("a part is read from its first row on as before", "fusion.axes:_View.access",
          "index[self.dim] - self.first", "index[self.dim]", "parts"),
    Fault("a part begins at its first row, wherever that is", "fusion.axes:_view",
          "begin = first // step * step", "begin = first", "parts"),
    Fault("a part ends before its last row", "fusion.axes:_view",
          "end = last + 1 if", "end = last if", "parts"),
    Fault("a layout's digits are read backwards", "fusion.axes:_in_storage_order",
          "parts = digits[p.name] = tuple(part for part in p.layout.parts if part.extent != 1)",
          "parts = digits[p.name] = tuple(p for p in p.layout.parts if p.extent != 1)[::-1]",
          "canonical"),
    Fault("a padded layout counts as a dense one", "fusion.axes:_in_storage_order",
          "if p.layout.size != prod(p.shape):", "if False:", "canonical"),
    Fault("a split reduction drops what is in no chunk", "variants.split:finish_of",
          "if rest.extent:", "if False:", "splits"),
    Fault("chunks of a split overlap", "variants.split:partial_of",
          "(chunk.index * rows + row.index) * lanes + lane.index",
          "(chunk.index * (rows - 1) + row.index) * lanes + lane.index", "splits"),
    Fault("the rest of a split begins one late", "variants.split:finish_of",
          "at = as_index(parts * rows) + rest.index", "at = as_index(parts) + rest.index",
          "splits"),
    Fault("Winograd's tiles at an end are whole", "variants.winograd:_finish",
          "kept = Valid(Range(env[a], 0, extents[a]) for a in (conv.rows, conv.columns))",
          "kept = Valid(Range(env[a], 0, extents[a]) for a in (conv.rows,))", "convolutions"),
    Fault("Winograd's image is not padded", "variants.winograd:_transform",
          "bounds = (Range(index[d], 0, shape[d]) for d in images[x].dims[:2])",
          "bounds = (Range(index[d], 0, shape[d]) for d in images[x].dims[:1])", "convolutions"),
    Fault("Winograd's window starts one late", "variants.winograd:_transform",
          "as_index(i), as_index(j))\n        env", "as_index(j), as_index(i))\n        env",
          "convolutions"),
    Fault("channels go last in the store alone", "variants.convolutions:_parts",
          "return replace(e, index=_last(e.index, channel))", "return e", "convolutions"),
    Fault("bytes of a word are in its own order", "variants.convolutions:_bytes_apart",
          "index[at] + j * source.shape[at]", "index[at] * count + j", "on floats"),
    Fault("an image on floats loses its mask", "variants.convolutions:_widened",
          "Load(x.param, index, dtype, x.valid)", "Load(x.param, index, dtype)", "on floats"),
    Fault("floats keep what a zero point comes to", "variants.convolutions:_of_floats",
          "Apply(Op.SUB, (left, Cast(rest, F32)), F32)", "left", "on floats"),
    Fault("a sum that is read as an integer is on floats", "variants.convolutions:_of_floats",
          "return None if isinstance(e, Value) and e.stage == total else e", "return e",
          "on floats"),
    Fault("weights on floats have the window the other way round",
          "variants.rewrite:_Wide.of", "(*window, output, channel)",
          "(*window[::-1], output, channel)", "on floats"),
    Fault("weights on floats are in the order of words", "variants.rewrite:_Wide.of",
          ".swapaxes(-2, -3)", "", "on floats"),
    Fault("halves of weights are neighbours", "variants.rewrite:_Wide.of",
          "parts[..., :2, :, :] & 0xFFFF | parts[..., 2:, :, :] << 16",
          "parts[..., ::2, :, :] & 0xFFFF | parts[..., 1::2, :, :] << 16", "in halves"),
    Fault("even bytes are odd ones", "variants.convolutions:_bytes_apart",
          "(Op.EVEN, Op.ODD)", "(Op.ODD, Op.EVEN)", "in halves"),
    Fault("channels in halves are neighbours", "variants.winograd:exact_transformed",
          "u[j] & 0xFFFF | u[j + 2] << 16", "u[2 * j] & 0xFFFF | u[2 * j + 1] << 16", "in halves"),
    Fault("an upper half keeps what the lower one took", "variants.winograd:_apart",
          "_carried(x, Op.ADD)", "x", "in halves"),
    Fault("bytes with a sign are numbers without one", "variants.winograd:_together",
          "halves if word.dtype.of == U8 else", "halves if word.dtype.is_quad else", "in halves"),
    Fault("sums in halves are as large as they come", "variants.winograd:match_bytes3x3",
          "terms * U8.greatest", "0 * U8.greatest", "in halves"),
    Fault("weights in halves have no sign", "variants.winograd:match_bytes3x3",
          "w.dtype == I8X4", "w.dtype.is_quad", "in halves"),
    Fault("a sum in halves is another multiple", "variants.winograd:_divided",
          "odd = _EXACT_OVER // 4", "odd = _EXACT_OVER // 12", "in halves"),
    Fault("a term in halves has the other sign", "variants.winograd:_combine_integers",
          "Op.ADD if other == minus else Op.SUB", "Op.ADD", "in halves"),
    # windows in rows
    Fault("rows of the image are next to each other", "variants.convolutions:windows",
          "own[y].index * by + row.index", "own[y].index + row.index", "windows in rows"),
    Fault("places of a row are those of its last loop", "variants.convolutions:windows",
          "k.index // step % extent", "k.index % extent", "windows in rows"),
    Fault("neighbours' channels begin where pixels do", "variants.convolutions:_flat",
          "* count + both.index", "+ both.index", "windows in rows"),
    # graphs
    Fault("any number times anything is it", "folding:_map_rules",
          "op is Op.MUL and 1 in values and not n.dtype.is_half",
          "op in (Op.MUL, Op.MAX) and 1 in values and not n.dtype.is_half", "folding of maps"),
    Fault("x * 0 of floats is 0", "folding:_map_rules",
          "and 0 in values and not n.dtype.is_float", "and 0 in values", "folding of maps"),
    Fault("a number and anything is none of it", "folding:_map_rules",
          "and 0 in values and not n.dtype.is_float", "and not n.dtype.is_float",
          "folding of maps"),
    Fault("x + 0 of floats is x", "folding:_map_rules",
          '(n.dtype.is_int or str(values[i]) == "-0.0")', "True", "folding of maps"),
    Fault("x - -0.0 is x", "folding:_map_rules",
          'and values[1] == 0 and str(values[1]) != "-0.0"', "and values[1] == 0",
          "folding of maps"),
    Fault("0 - x is x", "folding:_map_rules",
          'op is Op.SUB and values[1] == 0 and str(values[1]) != "-0.0":\n        return n.srcs[0]',
          "op is Op.SUB and 0 in values:\n        return n.srcs[1 - values.index(0)]",
          "folding of maps"),
    Fault("1 / x is x", "folding:_map_rules",
          "op is Op.DIV and values[1] == 1:\n        return n.srcs[0]",
          "op is Op.DIV and 1 in values:\n        return n.srcs[1 - values.index(1)]",
          "folding of maps"),
    Fault("a false condition chooses its first side", "folding:_map_rules",
          "return n.srcs[1] if values[0] else n.srcs[2]", "return n.srcs[1]", "folding of maps"),
    Fault("padding is the number that is padded", "folding:_full_rules",
          'n.op is GraphOp.PAD and (value != 0 or str(value) == "-0.0")', "False",
          "folding of shapes"),
    Fault("-0.0 is padded with itself", "folding:_full_rules",
          'and (value != 0 or str(value) == "-0.0")', "and value != 0", "folding of shapes"),
    Fault("a sum of a number is the number", "folding:_reduced_full",
          "total = value * count", "total = value", "folding of shapes"),
    Fault("sums that wrap around are folded", "folding:_reduced_full",
          "inside = n.dtype.least <= total <= n.dtype.greatest", "inside = True",
          "folding of shapes"),
    Fault("sums that round are folded", "folding:_reduced_full",
          "and float(value).is_integer()", "", "folding of shapes"),
    Fault("an operation on copies is on the first extents alone", "folding:_narrow",
          "max(extents) for extents in zip(*below, strict=True)",
          "min(extents) for extents in zip(*below, strict=True)", "folding of parts"),
    Fault("positions repeat along their own dimension", "rewrites.sums:Repeats._dims",
          "return every - {typed(int, n.arg)}", "return every", "repeated"),
    Fault("a sum of two repeats where either does", "rewrites.sums:Repeats._dims",
          "every.intersection(*map(self.of, n.srcs))",
          "frozenset().union(*map(self.of, n.srcs))", "repeated"),
    Fault("padding repeats what it pads", "rewrites.sums:Repeats._dims",
          "return below - {d for d in every if n.srcs[0].shape[d] != n.shape[d]}",
          "return below", "repeated"),
    Fault("what is gathered repeats whatever its index is", "rewrites.sums:Repeats._dims",
          "if anywhere else", "if True else", "repeated"),
    Fault("a permutation repeats where its source does", "rewrites.sums:Repeats._dims",
          "return frozenset(d for d, s in enumerate(typed(tuple[int, ...], n.arg)) if s in below)",
          "return below", "repeated"),
    Fault("what is summed counts once where it repeats", "rewrites.sums:Repeats.reduced_once",
          "twice = self.of(src) - set(axes)", "twice = self.of(src)", "repeated"),
    Fault("a dimension in words may be flipped", "rewrites.packed_dots:_after",
          "(m.op is GraphOp.FLIP and at in arg)", "False", "quads"),
    Fault("a dimension in words may be padded", "rewrites.packed_dots:_after",
          "(m.op in whole and arg[at] != whole[m.op])", "False", "quads"),
    Fault("a dimension in words may be cut anywhere", "rewrites.packed_dots:_reshaped",
          "and (extent == before[at] or part)", "", "quads"),
    Fault("a split dimension's parts need not be whole words", "rewrites.packed_dots:_reshaped",
          "part = extent % count == 0 and before[at] % extent == 0",
          "part = before[at] % extent == 0", "quads"),
    Fault("an f32 input is rounded unasked", "rewrites.packed_dots:_paired_sum",
          "len(operands) < 2 or len(wide) > inputs", "len(operands) < 2", "pairs"),
    Fault("a rounded factor loses a movement", "rewrites.packed_dots:_rounded",
          "moves[views:])", "moves[views + 1 :])", "tf32"),
    Fault("what is compared is not rounded", "rewrites.widen:_kept",
          "n.arg in _JUMPS if n.op is GraphOp.MAP else not n.dtype.is_float", "False", "halves"),
    Fault("what no product leads to is not rounded", "rewrites.widen:widened",
          "(_results(order) & small)", "small", "halves"),
    Fault("a result that is read wide loses a movement", "rewrites.widen:widened",
          "applied(new[base.srcs[0]], moves)",
          "applied(new[base.srcs[0]], [m for m in moves if m.op is not GraphOp.FLIP])", "halves"),
    Fault("a zero point is taken off once, not once a term", "rewrites.packed_dots:_sum_in_fours",
          "total = g.elementwise(Op.ADD, zero, total)", "total = zero", "quads"),
    Fault("a factor that is moved keeps its zero", "rewrites.packed_dots:_shifted",
          "g.elementwise(Op.XOR, x, g.full(128, x.shape, U8))", "x", "quads"),
    Fault("what is padded before it moves is moved after", "rewrites.packed_dots:_shifted",
          "front = a.moves[: _pads(a.moves)]", "front = ()", "quads"),
    Fault("a zero point that bytes do not hold is padded with itself",
          "rewrites.packed_dots:_sum_in_fours",
          "_padded(a, shift) if _fits(a.zero, a.base.dtype, known) else None",
          "_padded(a, shift)", "quads"),
    Fault("one factor's scale is lost", "rewrites.packed_dots:_dequantised_sum",
          "g.cast(made, F32), left), right)", "g.cast(made, F32), right), right)", "dequantised"),
    Fault("a scale is that of the first term", "rewrites.packed_dots:_at_results",
          "d is None or d not in same", "d is None", "dequantised"),
    Fault("a factor is dequantised without its zero point", "rewrites.packed_dots:_scaled",
          "number = g.elementwise(Op.SUB, *ints)", "number = ints[0]", "dequantised"),
    Fault("words of one part stand for the next", "fusion.plan:_is_copy",
          "whole and lies == [at + i for i in range(count)]", "whole", "pairs"),
    Fault("a reduction under padding is computed of masked terms", "fusion.build:_Builder._reduce",
          "if not valid.always or (inner and not self.rows):",
          "if inner and not self.rows:", "drafted"),
    Fault("an element is kept for other places", "fusion.build:_Builder._element",
          "key = (id(node), place.index, valid)", "key = (id(node), place.index)", "drafted"),
    Fault("a load under padding reads without its mask", "fusion.build:_Builder._load",
          "index, node.dtype, valid)", "index, node.dtype)", "drafted"),
    Fault("padding masks what is below it alone", "fusion.build:_Builder.emit",
          "valid = valid & condition", "valid = condition", "drafted"),
    Fault("a gather reads its index at the wrong row", "fusion.build:_Builder._gathered",
          "offset = offset * extent + i", "offset = offset + i", "drafted"),
    Fault("a cast to 16 bits rounds nothing", "fusion.build:_Builder._compute",
          "as_compute(cast_to(as_compute(self.emit(node.srcs[0], place, valid)), arg))",
          "as_compute(self.emit(node.srcs[0], place, valid))", "drafted"),
    # bytes between layers
    Fault("bytes in steps of another scale are the same", "rewrites.scales:_dequantised",
          "_number(x.srcs[1], known) != steps.scale", "_number(x.srcs[1], known) is None",
          "scales"),
    Fault("bytes beside another zero point are the same", "rewrites.scales:_dequantised",
          "of_bytes and zero == steps.zero", "of_bytes", "scales"),
    Fault("bytes of another type are the same", "rewrites.scales:_dequantised",
          "number.srcs[0].dtype == steps.dtype", "number.srcs[0].dtype in (I8, U8)", "scales"),
    Fault("a zero that pads is the byte of any zero point", "rewrites.scales:_bytes_of",
          "and not steps.zero", "", "scales"),
    Fault("the byte of a number is one without a zero point", "rewrites.scales:_Steps.of",
          "+ np.float32(self.zero)", "", "scales"),
    Fault("a greatest byte is that of the first", "rewrites.scales:_bytes_of",
          "g.elementwise(cast(Op, x.arg), *(p for p in made_of if p is not None))", "made_of[0]",
          "scales"),
    Fault("a bias keeps its scale", "rewrites.scales:_part",
          "_spread(_joint(Op.DIV, one, by), y.shape)", "_spread(one, y.shape)", "scales"),
    Fault("bytes beside a sum keep their scale", "rewrites.scales:_of_bytes",
          "_joint(Op.DIV, one, by)", "one", "scales"),
    Fault("any bound is an end of bytes", "rewrites.scales:_unclamped",
          "by.of(limit) != ends[cast(Op, x.arg)]", "False", "scales"),
    Fault("a bound at the other end is one", "rewrites.scales:_unclamped",
          "Op.MIN: n.dtype.greatest", "Op.MIN: n.dtype.least", "scales"),
    Fault("a sum keeps its scale", "rewrites.scales:_quotient",
          "_spread(_joint(Op.DIV, factor, by), x.shape)", "_spread(factor, x.shape)", "scales"),
    Fault("one of two scales is lost", "rewrites.scales:_quotient",
          "one if factor is None else _joint(Op.MUL, one, factor)", "one", "scales"),
    Fault("a bias of another scale is one of sums", "rewrites.scales:_whole_bias",
          "!= small(steps.srcs[1])).any()", "!= small(steps.srcs[1])).all() and False", "biases"),
    Fault("a bias of integers is taken off", "rewrites.scales:_whole_bias",
          "g.const(-added", "g.const(added", "biases"),
    Fault("sums and biases may pass 2^31", "rewrites.scales:_whole_bias",
          ">= (1 << 31 if whole else _EXACT)", ">= 1 << 62", "biases"),
    Fault("biases of 64 bits are their lower half", "rewrites.scales:_whole_bias",
          "(added.astype(np.float32) != small(steps.srcs[0])).any()", "False", "biases"),
    Fault("a product of scales is rounded otherwise", "rewrites.scales:single_scales",
          "values_of(n), F32", "np.nextafter(values_of(n), np.float32(9)), F32", "biases"),
    Fault("a bias of integers is added once more", "rewrites.scales:_whole_bias",
          "total, less = total.srcs[0], _joint", "less = _joint", "biases"),
    Fault("a bias that is divided by another number is one of sums",
          "rewrites.scales:_whole_bias",
          "_number(quotient.srcs[1], known) != _number(bias.srcs[1], known)", "False", "biases"),
    Fault("blocks are padded at their other end", "rewrites.scales:_in_blocks",
          "widths[d][0] // block, widths[d][1] // block",
          "widths[d][1] // block, widths[d][0] // block", "scales"),
    Fault("a clamp to other numbers is a cast that saturates", "folding:saturated",
          "or _value(x.srcs[1]) != bound", "", "scales"),
    Fault("bytes stand for numbers without their zero point", "rewrites.quantise:_numbers",
          "if s.zero:", "if False:", "quantised products"),
    Fault("bytes are made without their zero point", "rewrites.quantise:_codes",
          "if s.zero:", "if False:", "quantised products"),
    Fault("zero is none of the bytes", "rewrites.quantise:Scale.of",
          "low, high = min(low, 0.0), max(high, 0.0)", "pass", "quantised products"),
    Fault("factors of channels are multiplied by twice", "rewrites.quantise:_codes",
          "np.float32(1.0) / np.asarray(s.factors, np.float32)",
          "np.asarray(s.factors, np.float32)", "quantised products"),
    Fault("what else reads bytes loses the factors of channels", "rewrites.quantise:_whole",
          "if not s.factors:", "if True:", "quantised products"),
    Fault("a constant is not multiplied by the factors of channels",
          "rewrites.quantise:weight_in_bytes", "if factors and p.along is not None:", "if False:",
          "quantised products"),
    Fault("a product that is kept reads bytes", "rewrites.quantise:quantised",
          "staying[n].of(raw[staying[n].tensor], raw[staying[n].weight])",
          "staying[n].of(read[staying[n].tensor], raw[staying[n].weight])", "quantised products"),
    Fault("a flag chooses floats", "rewrites.quantise:switched",
          "g.expand(any_of, no.shape), yes, no)", "g.expand(any_of, no.shape), no, yes)",
          "quantised products"),
    # validation
    Fault("zeros of either sign are one constant", "validate.rewrites:_are_one_constant",
          "(np.signbit(found) == np.signbit(held))", "True", "constants"),
    Fault("one NaN is not another", "validate.rewrites:_are_one_constant",
          "| np.isnan(found) & np.isnan(held)", "", "constants"),
    Fault("a constant is right where one element is", "validate.rewrites:_are_one_constant",
          "if not same.all():", "if not same.any():", "constants"),
    Fault("a constant of any bits is right", "validate.rewrites:_are_one_constant",
          "if found.tobytes() != held.tobytes():", "if False:", "constants"),
    Fault("integers are drawn up to their greatest", "validate.plans:_digits",
          "max(abs(x) for x in interval(n))", "max(interval(n))", "digits"),
    Fault("integers are drawn beyond what floats hold", "validate.plans:_digits",
          ".bit_length()", ".bit_length() + 1", "digits"),
    # slices, parts and terms
    Fault("a slice of an input begins at its first element", "fusion.parts:sliced",
          "source.start + first * source.dtype.itemsize", "source.start", "slices"),
    Fault("a slice begins where no device can read", "fusion.parts:sliced",
          "and start % view_bytes == 0", "", "slices"),
    Fault("neighbours in any order are a slice", "fusion.parts:_first_copied",
          "None if first.terms else first.const", "first.const", "slices"),
    Fault("a slice that is padded is one", "fusion.parts:_first_copied",
          "not x.valid.always or len(x.index) != 1", "len(x.index) != 1", "slices"),
    Fault("a view of what moves stays at its place", "fusion.parts:_moved",
          "start=b.start + places[b.base] * size", "start=b.start", "slices"),
    Fault("a copied part lies behind its place", "fusion.parts:_joined",
          "base=whole, start=run[0][1] * size", "base=whole, start=0", "slices"),
    Fault("a chain that is an output is left out", "fusion.parts:_is_plain",
          'b.role == "temp"', "True", "chains"),
    Fault("a chain that is read twice is left out", "fusion.parts:_unchained",
          "reads[i] == 1 and ", "", "chains"),
    Fault("parts of a chain lie over each other", "fusion.parts:_unchained",
          "if dropped and [*accumulate(sizes, initial=0)] == starts:", "if dropped:", "chains"),
    Fault("parts of a chain lie in the order of launches", "fusion.parts:_unchained",
          "*(i for i, _, _ in ordered)", "*(i for i, _, _ in pieces)", "chains"),
    Fault("a condition of the first factor leaves terms out", "kernel:on_both",
          "r for r in left if r in right", "r for r in left", "terms"),
    Fault("a choice beside any number is zero without its condition", "kernel:_zero_without",
          "and x.args[2].value == 0", "", "terms"),
    # tiles of training steps
    Fault("weights that vary take large tiles", ".planning.expected:allowed",
          "if _weights_vary(kernel):", "if False:", "tiles of steps"),
    Fault("a step takes tiles of any size", ".planning.expected:allowed",
          "v.endswith(_AS_EXACT)", "True", "tiles of steps"),
    Fault("constant weights are of a step", ".planning.expected:_weights_vary",
          "and not conv.constant", "", "tiles of steps"),
    Fault("a store decides what is not allowed", ".planning.expected:picked",
          "stored if stored in names else", "stored if stored else", "tiles of steps"),
    # new values in the memory of inputs, and buffers that share an arena
    Fault("an input is replaced while others still read it",
          "fusion.donation:_Donation._directly",
          "self.edges.update((r, n) for r in before)", "pass", "in memory"),
    Fault("what waits for a launch is put before it", "fusion.donation:_Donation._directly",
          "before & _reached(n, self.edges)", "False", "in memory"),
    Fault("a kernel that turns its input may replace it", "fusion.donation:overwriting",
          "None if any(faults) else made.canonical()", "made.canonical()", "in memory"),
    Fault("one result is the new value of two inputs", "fusion.donation:_Donation._replace",
          "if self.outputs.count(new) == 1 and new in self.writer and self._directly(new, old):",
          "if new in self.writer and self._directly(new, old):", "in memory"),
    Fault("memory is free before its last reader", ".runtime.plan:lifetimes",
          "Lifetime(p.nbytes, at[0], at[-1])", "Lifetime(p.nbytes, at[0], at[-2:][0])",
          "in memory"),
    Fault("what a launch writes lies over what it reads", ".runtime.memory:Lifetime.meets",
          "self.first <= other.last and other.first <= self.last",
          "self.first < other.last and other.first < self.last", "in memory"),
    Fault("a buffer ends where another one begins, or later", ".runtime.memory:_apart",
          "there - here - own.nbytes", "there - here", "in memory"),
    Fault("of two buffers below the last one counts", ".runtime.memory:_place",
          "at = max(at, -(-end // align) * align)", "at = -(-end // align) * align",
          "in memory"),
    # runs on memory of callers
    Fault("new values of inputs lie elsewhere", ".runtime.plan:Runner.at_addresses",
          ", *self._arguments(over.get(b.id, -1))", "", "at addresses"),
    Fault("new values of inputs have addresses", ".runtime.plan:Runner.at_addresses",
          "if b.id not in self._over]", "]", "at addresses"),
    Fault("a view begins where its tensor does", ".runtime.plan:Runner._arguments",
          "0 if b.base is None else b.start", "0", "at addresses"),
    Fault("new values are written before indices are looked at",
          ".runtime.plan:Runner.at_addresses",
          "if self._over and (self._guards or several):", "if False:", "at addresses"),
    Fault("no index is looked at", ".runtime.plan:Runner.at_addresses",
          "if not self._guards:", "if True:", "at addresses"),
    Fault("outputs are all of them", ".runtime.plan:Runner.at_addresses",
          " and len(self._written) == len(self._outputs)", "", "at addresses"),
    Fault("an output that is another one as well is not copied",
          ".runtime.plan:Runner.at_addresses", "if first.setdefault(b.id, i) != i:", "if False:",
          "at addresses"),
    Fault("a part begins where its memory does", ".devices.cpu.engine:_Plan.at_addresses",
          "addresses[n] + start", "addresses[n]", "at addresses"),
    Fault("a file is told by one byte", ".runtime.mapped:check_digest",
          ".digest() != whole[-_DIGEST_BYTES:].tobytes()",
          ".digest()[0] != whole[-_DIGEST_BYTES]", "written files"),
    Fault("a file's arrays are in no digest", ".runtime.mapped:check_digest",
          "raise MappedFileError(\"it is damaged", "MappedFileError(\"it is damaged",
          "written files"),
    *(_OF_TORCH if HAS_TORCH else ()),
    *(_OF_STEPS if ROUNDS_AT_ONCE else ()),
)  # fmt: skip
