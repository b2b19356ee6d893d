"""Validates that a graph that was rewritten before it is planned is still the one that it was.

    before   --fold, fours, pairs, tf32, 16 bits, repeats-->   after

    n               ->  new[n]           what the rewrites say that they made of each node
    n = op(srcs)    ->  op(new[srcs])    what it is by their own word for its sources: the same node
                                         nearly everywhere; where it is another, both are compared

A rewrite says what it has made of each node of a graph (``Step``); none of that is believed.
Sources come first, so that each comparison is of one operation and what stands in its place, in
terms of reductions and inputs that both have. The last ones are the outputs: all that counts.

Numbers are those of plans (``numbers``), but constants are what they hold: what is made of nothing
else is compared as folding computes it, in its own type. To 16 bits and to tf32 rewrites round on
purpose: constants are rounded on both sides, all else is a function of exact arguments on both. A
sum of floats that became one of integers is compared without roundings; a long one also where
bytes are all the greatest or all the least, which would wrap around. A bias that such a sum has
taken in, before it is scaled, is compared element by element; the sum may not wrap by its bounds.

Plans and rewrites that are known to be right are not compared again.
"""

from __future__ import annotations

import hashlib
import logging
import weakref
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import count
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np

from tunegrad.config import cache_dir
from tunegrad.errors import WrongPlan
from tunegrad.forks import ForkSafeLock
from tunegrad.lazy import dataclass
from tunegrad.object_cache import ObjectCache

from ..dtypes import F32, I8, U8, DType
from ..expr import Const, Op
from ..fusion.plan import VALIDATION, LaunchPlan
from ..graph import (
    MOVEMENT,
    Bounds,
    ConstData,
    GraphOp,
    Node,
    Step,
    elementwise,
    reduce,
    topological,
    with_sources,
)
from ..interpret.evaluate import evaluate
from ..interpret.numeric import Array, compute, convert, to_compute
from ..rewrites import ranges
from ..rewrites.sums import chain
from . import graphs, plans
from .numbers import Number, Numbers, deep

Heights = dict[Node, tuple[int, int]]
"""Of nodes that were asked for, the operations to the farthest reduction or source, and source."""

_MOST, _LEAST = 64, 2
"""Samples of a node, at most and at least."""

_CASES = 4
"""Inputs that indices are looked at for."""

_LONG = 1 << 13
"""Terms from which on sums of bytes are compared at their ends: 31 bits hold any shorter one."""

_DEEPER_TERMS = 1 << 22
"""Terms of reductions in one another, of all samples, that are worked out of what differs."""

_WHOLE, _DRAWN = 1 << 11, 1 << 7
"""Elements of constants that are compared with their maps one and all, at most; and of others. The
rewrites of ResNet-50 take 7.4 ms so, 6.9 without the first, 8.8 with four times as many of others,
494 with all elements of all.
"""

_DEEP = 24
"""Operations between two places at which a chain without reductions may be cut."""


def check_rewrite(
    before: tuple[Node, ...],
    after: tuple[Node, ...],
    steps: Sequence[Step],
    narrow: DType | None = None,
    on_purpose: bool = False,
) -> list[str]:
    """Compare two graphs, output by output; ``narrow``: the type that constants were rounded to;
    ``on_purpose``: rewrites were asked to round.

    Returns why nodes can not be compared. Raises WrongPlan where outputs differ.
    """
    left: dict[str, None] = {}
    heights: Heights = {}
    for made, image in _pairs(before, after, steps):
        left.update(_compared(made, image, narrow, on_purpose, heights))
    return list(left)


def _pairs(
    before: tuple[Node, ...], after: tuple[Node, ...], steps: Sequence[Step]
) -> list[tuple[Node, Node]]:
    """What nodes are by their own word for their rewritten sources, and what stands in their place,
    where that is another node.
    """
    if len(before) != len(after):
        raise WrongPlan(f"graph: {len(before)} outputs became {len(after)}")
    if before == after:
        return []
    order = topological(before)
    images = _images(order, steps)
    others = {n for n, image in images.items() if image is not n}
    changed = (n for n in order if n in others or not others.isdisjoint(n.srcs))
    pairs = [(_made(n, images), images[n]) for n in changed]
    pairs += [(_unfenced(images[o]), _unfenced(a)) for o, a in zip(before, after, strict=True)]
    return [(made, image) for made, image in pairs if made is not image]


def check_guards(
    before: tuple[Node, ...], after: tuple[Node, ...], guards: Sequence[ranges.Guard]
) -> None:
    """Compare a graph with what ``ranges.guarded`` made of it, and the guards with its indices.

    Without WITHIN nodes it is the same one. At drawn inputs, the indices of each are in range, or a
    guard is the farthest of them. Raises WrongPlan.
    """
    order = topological(before)
    images: dict[Node, Node] = {}
    for n in order:
        images[n] = images[n.srcs[0]] if n.op is GraphOp.WITHIN else _made(n, images)
    for o, a in zip(before, after, strict=False):
        if images[o] is not a:
            raise WrongPlan(f"graph: {o} without checks of indices became {a}")
    values = after[len(before) :]
    for n in order:
        if n.op is not GraphOp.WITHIN or not n.size:
            continue
        index, *when = (images[s] for s in n.srcs)
        bounds = cast(Bounds, n.arg)
        alike = [
            v
            for v, g in zip(values, guards, strict=True)
            if (g.bounds.low, g.bounds.high) == (bounds.low, bounds.high)
        ]
        for case in range(_CASES):
            inputs = _Inputs(case)
            found = inputs.all_of(index)
            if found is None or (when and inputs.all_of(when[0]) != [1]):
                continue
            if all(bounds.low <= i < bounds.high for i in found):
                continue
            low = bounds.low if index.dtype.signed else 0
            farthest = [(v, inputs.all_of(v)) for v in alike]
            if not any(f is None or f == [_farthest(found, low, v.dtype)] for v, f in farthest):
                raise WrongPlan(f"graph: indices {index} of {bounds} are not checked")


def _farthest(indices: list[int], low: int, dtype: DType) -> int:
    return max((i - low) % (1 << dtype.bits) for i in indices)


class _Inputs:
    """Drawn inputs of a graph, of which all of a small tensor can be had."""

    def __init__(self, case: int) -> None:
        self.numbers = Numbers.drawn(1, case, exactly=True, rounds=True)
        self.case = case
        self.places: dict[Node, int] = {}

    def all_of(self, n: Node) -> list[int] | None:
        """All elements of a tensor of integers or truths; None if too many, or not worked out."""
        cone = topological((n,))
        if n.size * graphs.terms_behind(cone, (), n) > graphs.SAMPLED_TERMS:
            return None
        try:
            return self._all_of(n)
        except (graphs.Unvalidated, RecursionError):
            return None

    def _all_of(self, n: Node) -> list[int]:
        lines = np.unravel_index(np.arange(n.size), n.shape) if n.shape else ()
        at = tuple(np.asarray(i)[None] for i in lines)
        found = self.numbers.array(
            graphs.GraphValues(self.numbers, self._held).at(n, at, 2), n.dtype, 2
        )
        return [int(x) for x in np.broadcast_to(found, (1, n.size)).flat]

    def _held(self, n: Node, at: graphs.At, depth: int) -> Number | None:
        if n.op is GraphOp.CONST:
            return _constant(self.numbers, n, at, depth)
        if n.op is not GraphOp.INPUT:
            return None
        place = self.places.setdefault(n, len(self.places))
        where = deep(graphs.flat_position(at, n.shape), depth)
        return self.numbers.leaf(_CASES * place + self.case, where, n.dtype)


def _images(order: list[Node], steps: Sequence[Step]) -> dict[Node, Node]:
    """The last image of each node; else its operation on its sources' images."""
    found = {n: n for n in order}
    for i, step in enumerate(steps):
        images: dict[Node, Node] = {}
        for n in topological(tuple(found.values())) if i else order:
            image = step.get(n)
            images[n] = _made(n, images) if image is None else image
        found = {n: images[m] for n, m in found.items()}
    return found


def _made(n: Node, images: Mapping[Node, Node]) -> Node:
    srcs = tuple(images[s] for s in n.srcs)
    return with_sources(n, srcs)


def _unfenced(n: Node) -> Node:
    while n.op is GraphOp.CONTIGUOUS:
        n = n.srcs[0]
    return n


def _compared(
    made: Node, image: Node, narrow: DType | None, on_purpose: bool, heights: Heights
) -> dict[str, None]:
    if made.shape != image.shape or made.dtype != image.dtype:
        raise WrongPlan(f"graph: {made} was rewritten to {image}, which is another tensor")
    if not made.size:
        return {}
    try:
        if narrow is None and not on_purpose and _are_one_constant(made, image):
            return {}
        pair = _Pair(made, image, narrow, on_purpose, heights)
        try:
            pair.compare()
        except WrongPlan as wrong:
            _compare_deeper(pair, wrong, narrow, on_purpose, heights)
    except graphs.Unvalidated as error:
        return {f"{made} rewritten to {image}: {error}": None}
    except RecursionError:
        return {f"{made}: operations inside one another, deeper than Python's stack": None}
    return {}


def _are_one_constant(made: Node, image: Node) -> bool:
    """Compare a constant with the maps of constants that it stands for, bit by bit; False where it
    is no such: a sum, or what 16 bits hold. Raises WrongPlan where they differ.
    """
    if image.op is not GraphOp.CONST:
        return False
    places, known = _places(image.shape), dict[Node, Array | None]()
    found, held = _at(made, places, known), _at(image, places, known)
    if found is None or held is None:
        return False
    found = np.broadcast_to(found, places.shape)
    if found.tobytes() != held.tobytes():
        same = found == held
        if held.dtype.kind == "f":
            same = same & (np.signbit(found) == np.signbit(held)) | np.isnan(found) & np.isnan(held)
        if not same.all():
            at = np.unravel_index(places, image.shape) if image.shape else ()
            raise _wrong(made, image, at, same)
    return True


def _wrong(made: Node, image: Node, at: graphs.At, same: Array) -> WrongPlan:
    first = [int(i[np.flatnonzero(~same)[0]]) for i in at]
    return WrongPlan(
        f"graph: element {first} of {_shown(made)} is not what it was rewritten to, "
        f"{_shown(image)} (of {len(same)} that were compared here, {int(same.sum())} are right)"
    )


@lru_cache(maxsize=256)
def _places(shape: tuple[int, ...]) -> Array:
    """Row-major positions of all elements, or of ``_DRAWN`` ones."""
    if prod(shape) <= _WHOLE:
        return np.arange(prod(shape))
    return graphs.flat_position(graphs.sampled(shape, _DRAWN, (), prod(shape)), shape)


def _at(n: Node, places: Array, known: dict[Node, Array | None]) -> Array | None:
    """Elements of a tensor that is made of constants by maps, of numbers that are computed with as
    they are stored; None for others. ``known``: what was asked for before, at these places.
    """
    if n not in known:
        known[n] = _worked_out(n, places, known) if n.dtype.compute == n.dtype else None
    return known[n]


def _worked_out(n: Node, places: Array, known: dict[Node, Array | None]) -> Array | None:
    if n.op is GraphOp.CONST:
        array = cast(ConstData, n.arg).array
        return array.reshape(-1)[places] if array.size == n.size else None
    if n.op is GraphOp.FULL:
        return convert(np.asarray(cast(Any, n.arg)[2]), n.dtype)
    if n.op is GraphOp.MAP:
        args = [_at(s, places, known) for s in n.srcs]
        if any(x is None for x in args):
            return None
        return compute(cast(Op, n.arg), *cast(Any, args)).astype(n.dtype.numpy, copy=False)
    if n.op is GraphOp.RESHAPE:
        return _at(n.srcs[0], places, known)
    if n.op is GraphOp.EXPAND:
        (src,), at = n.srcs, np.unravel_index(places, n.shape)
        moved = tuple(0 * i if s == 1 else i for i, s in zip(at, src.shape, strict=True))
        return _at(src, graphs.flat_position(moved, src.shape), {})
    return None


def _compare_deeper(
    pair: _Pair, wrong: WrongPlan, narrow: DType | None, on_purpose: bool, heights: Heights
) -> None:
    """Compare the elements that differ as functions of what the reductions read, and so on.

    A reduction of what repeats itself repeats itself: two of its elements may be one number. Raises
    ``wrong`` where elements differ down to the inputs, or can not be worked out.
    """
    while pair.opaque and pair.regular_differ:
        try:
            pair = _Pair(pair.made, pair.image, narrow, on_purpose, heights, pair)
            pair.compare()
        except WrongPlan:
            continue
        except (graphs.Unvalidated, RecursionError):
            break
        return
    raise wrong


class _Pair:
    """A node and what stands in its place, at some elements."""

    def __init__(
        self,
        made: Node,
        image: Node,
        narrow: DType | None,
        on_purpose: bool,
        heights: Heights,
        before: _Pair | None = None,
    ) -> None:
        """``before``: the comparison of which ends are worked out, where elements differ."""
        self.made, self.image = made, image
        self.opened: frozenset[Node] = before.opened | before.opaque if before else frozenset()
        self.opaque: frozenset[Node]
        self.opaque, cone = _common(made, image, heights, set(self.opened))
        seed = f"{made.op} {made.shape} {image.op} {[n.shape for n in image.srcs]}"
        self.seed = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big")
        terms = _terms(cone)
        biased = _adds_biases(made, image)
        if biased:
            _check_wraps(made, image)
        if before is None:
            count = min(_MOST, max(_LEAST, graphs.SAMPLED_TERMS // terms))
            if biased:  # each element of a bias by itself
                count = min(graphs.SAMPLED_TERMS, max(count, *made.shape) + _LEAST)
            at = graphs.sampled(made.shape, count, graphs.borders(cone), self.seed)
        else:
            at = self._again(before.differ, cone)
        samples = len(at[0]) if at else 1
        integral: bool = (
            before.integral
            if before
            else _sums_integers(made, (n for n in cone if n not in self.opaque))
            or biased
            or _moves_scales(made, image)
        )
        self.integral: bool = integral
        on_purpose = on_purpose or narrow is not None or integral
        reads = [n for n in cone if n.op is GraphOp.INPUT or n in self.opaque]
        spoiled = samples if reads and not on_purpose else 0
        small = sum(n.dtype in (I8, U8) for n in reads)
        ends = 1 << min(4, small) if integral and terms > _LONG else 0
        self.ends = np.repeat(np.arange(-1, ends), samples) if ends else None
        self.at = tuple(np.tile(i, 1 + ends + (spoiled > 0)) for i in at)
        self.regular = samples * (1 + ends)
        self.numbers = Numbers.drawn(
            samples * (1 + ends) + spoiled,
            self.seed,
            exactly=not integral,
            rounds=not integral,
            narrow=narrow,
            on_purpose=on_purpose,
            spoiled=spoiled,
            rarely=1 << (2 * terms * len(reads)).bit_length() >> 1,
        )
        self.numbers.patient = True
        self.places: dict[Node, int] = {}
        self.bits: dict[Node, int] = {}  # of ``ends``, by what is of bytes
        self.values = graphs.GraphValues(self.numbers, self._held)
        self.differ: graphs.At = ()
        self.regular_differ = False

    def _again(self, differ: graphs.At, cone: Iterable[Node]) -> graphs.At:
        """Elements that differ, in several orders. Raises Unvalidated for too many terms."""
        above = set(cone)
        order = [n for n in topological((self.made, self.image)) if n in above]
        terms = max(graphs.terms_behind(order, self.opaque, n) for n in (self.made, self.image))
        least = len(differ[0]) if differ else 1
        if least * terms > _DEEPER_TERMS:
            raise graphs.Unvalidated(f"{terms} terms of reductions in one another")
        return tuple(
            np.resize(i, max(least, min(_MOST, graphs.SAMPLED_TERMS // terms))) for i in differ
        )

    def compare(self) -> None:
        """Raise WrongPlan where they ``differ``, or where finite numbers do, ``regular_differ``."""
        found = [self._kept(self.values.root(n, self.at)) for n in (self.made, self.image)]
        same = self.numbers.same(found[0], found[1], self.made.dtype.compute)
        if same.all() or self._sums_of_constants():
            return
        self.differ = _each_once(tuple(i[~same] for i in self.at))
        self.regular_differ = not same[: self.regular].all()
        raise _wrong(self.made, self.image, self.at, same)

    def _kept(self, found: Number) -> Number:
        """A literal of 16 bits as memory has it: where it is read, it has all its digits."""
        dtype = self.made.dtype
        if not isinstance(found, Const) or not dtype.is_half or not self.numbers.rounds:
            return found
        return self.numbers.cast(found, dtype.compute, dtype)

    def _held(self, n: Node, at: graphs.At, depth: int) -> Number | None:
        if n.op is GraphOp.CONST:
            return _constant(self.numbers, n, at, depth)
        if n in self.opened and n.op is GraphOp.REDUCE and n.dtype.is_float:
            op, dims = cast(tuple[Op, tuple[int, ...]], n.arg)
            if op in (Op.MAX, Op.MIN):  # all terms count, not the greatest alone
                terms = elementwise(Op.SIN, n.srcs[0])
                return self.values.at(reduce(Op.ADD, terms, dims), at, depth)
        if n.op is not GraphOp.INPUT and n not in self.opaque:
            return None
        place = self.places.setdefault(n, len(self.places))
        where = deep(graphs.flat_position(at, n.shape), depth)
        found = self.numbers.special_leaf(place + 2, where, n.dtype)
        if self.ends is None or n.dtype not in (I8, U8):
            return found
        ends, bit = deep(self.ends, depth), self.bits.setdefault(n, len(self.bits)) & 3
        end = np.where(ends >> bit & 1, n.dtype.greatest, n.dtype.least)
        drawn = self.numbers.array(found, n.dtype, depth)
        return np.where(ends < 0, drawn, end.astype(n.dtype.numpy))

    def _sums_of_constants(self) -> bool:
        """True if both are constant sums of floats, equal but for the order of adding up."""
        order = topological((self.made, self.image))
        sums = [n for n in order if n.op is GraphOp.REDUCE and n.dtype.is_float]
        if not sums or any(n.op is GraphOp.INPUT for n in order) or not self.made.dtype.is_float:
            return False
        a, b = (to_compute(x, self.made.dtype) for x in evaluate((self.made, self.image)))
        terms = max(n.srcs[0].size // max(1, n.size) for n in sums)
        unit = {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
        off = 16 * min(terms, 1 << 12) * unit[self.made.dtype.name]
        size = float(np.max(np.abs(a), initial=0.0, where=np.isfinite(a)))
        return bool(np.allclose(a, b, rtol=off, atol=off * size, equal_nan=True))


def _each_once(at: graphs.At) -> graphs.At:
    return tuple(np.unique(np.stack(at), axis=1)) if at else ()


def _constant(numbers: Numbers, n: Node, at: graphs.At, depth: int) -> Number:
    """Elements of a constant, which are what they are."""
    array = cast(ConstData, n.arg).array
    if array.size != n.size:
        raise graphs.Unvalidated("a constant whose elements are gone")
    found = array.reshape(-1)[deep(graphs.flat_position(at, n.shape), depth)]
    if n.dtype.is_pair:
        low, high = (numbers.residues(compute(x, found)) for x in (Op.LOW, Op.HIGH))
        return np.asarray(low | high << np.uint64(31))
    exact = to_compute(found, n.dtype)
    if not n.dtype.is_float:
        return exact
    return numbers.known(exact) if numbers.exactly else numbers.residues(exact)


def _sums_integers(made: Node, worked_out: Iterable[Node]) -> bool:
    """True if a sum of floats was rewritten to one of integers, which is rounded once, and not in
    each term: they are equal as real numbers, which is what the field tells. A sum of integers that
    both have is an end, and no such.
    """
    return (
        made.op is GraphOp.REDUCE
        and made.dtype.is_float
        and any(n.op is GraphOp.REDUCE and n.dtype.is_int for n in worked_out)
    )


def _moves_scales(made: Node, image: Node) -> bool:
    """True if a quotient of f32 became sums or products of other constants, or a sum a product with
    what its terms were multiplied by: they are equal as real numbers, and rounded elsewhere.
    """
    if made.dtype != F32:
        return False
    if made.op is GraphOp.REDUCE:
        return image.op is GraphOp.MAP and image.arg is Op.MUL
    image = chain(image)[0]
    quotient = made.op is GraphOp.MAP and made.arg is Op.DIV
    return quotient and image.op is GraphOp.MAP and image.arg in (Op.ADD, Op.MUL)


def _adds_biases(made: Node, image: Node) -> bool:
    """True if a sum of f32 became a product: the sums of integers that it scales, with what was
    added to them before.
    """
    (n, _), (m, _) = chain(made), chain(image)
    return made.dtype == F32 and n.op is m.op is GraphOp.MAP and (n.arg, m.arg) == (Op.ADD, Op.MUL)


def _check_wraps(made: Node, image: Node) -> None:
    """Raise WrongPlan where integers of a rewritten sum may pass the ends of their type."""
    total = chain(image)[0].srcs[0]
    while total.op is GraphOp.CAST or total.op in MOVEMENT:
        total = total.srcs[0]
    if total.dtype.is_int and total.op is GraphOp.MAP and ranges.wraps(total):
        raise WrongPlan(f"graph: {_shown(made)} became {_shown(image)}, whose integers may wrap")


def _common(
    made: Node, image: Node, heights: Heights, opened: set[Node]
) -> tuple[frozenset[Node], list[Node]]:
    """Nodes that both are made of, down to ends that both have, and the nodes above those.

    An end that only one of them gets to is no such, and is worked out, as those that are
    ``opened``. Nodes are met from above: what stands over one of them is known by then.
    """
    if not image.srcs and image.op is not GraphOp.INPUT:  # what folding made
        return frozenset(), [image, *topological((made,))]
    both = {made, image}
    readers = {made: {made}, image: {image}} if made is not image else {made: both}
    ends, above = set[Node](), list[Node]()
    order = count()
    left = [(-_height(n, heights)[1], next(order), n) for n in readers]
    heapify(left)
    while left:
        n = heappop(left)[2]
        found = readers[n]
        above.append(n)
        if found == both and n not in both and n not in opened and _is_end(n, heights):
            ends.add(n)
            continue
        for s in n.srcs:
            if s not in readers:
                readers[s] = set()
                heappush(left, (-_height(s, heights)[1], next(order), s))
            readers[s].update(found)
    return frozenset(ends), above


def _is_end(n: Node, heights: Heights) -> bool:
    """True for a reduction, numbers that become bytes, and every ``_DEEP``-th operation of a chain,
    counted from its beginning, so that both sides end at the same ones.
    """
    if n.op is GraphOp.REDUCE:
        return True
    if n.op is GraphOp.CAST and n.dtype in (I8, U8):
        return True
    height = _height(n, heights)[0]
    return bool(n.srcs) and height > 0 and height % _DEEP == 0


def _height(n: Node, heights: Heights) -> tuple[int, int]:
    """Operations from the farthest reduction or source to ``n``, and from the farthest source."""
    stack = [n]
    while stack:
        m = stack[-1]
        if m not in heights:
            below = [s for s in m.srcs if s not in heights]
            if below:
                stack += below
                continue
            near, far = zip(*(heights[s] for s in m.srcs), strict=True) if m.srcs else ((-1,),) * 2
            heights[m] = 0 if m.op is GraphOp.REDUCE else 1 + max(near), 1 + max(far)
        stack.pop()
    return heights[n]


def _terms(cone: list[Node]) -> int:
    """Terms of the sums behind one element, about."""
    found = 1
    for n in cone:
        if n.op is GraphOp.REDUCE:
            found = max(found, prod(n.srcs[0].shape[d] for d in cast(Any, n.arg)[1]))
    return found


def _shown(n: Node) -> str:
    inner = ", ".join(map(repr, n.srcs))
    what = "" if isinstance(n.arg, ConstData) or not n.srcs else f" {n.arg}"
    return f"{n.op}{what}({inner}) {n.dtype}{list(n.shape)}"


_log = logging.getLogger(__name__)

_lock = ForkSafeLock()

_by_node: weakref.WeakKeyDictionary[Node, dict[Hashable, str]] = weakref.WeakKeyDictionary()
"""Faults by buffers' nodes and the launches that write them: "" where all is right."""

_by_text: dict[str, str] = {}
"""The same by a digest of all that it depends on."""

_TOO_DEEP = "operations inside one another, deeper than Python's stack"


@dataclass(frozen=True, slots=True)
class Validation:
    """The result of validating a plan: how many buffers stand for nodes, and those that could not
    be validated, each with the name of its launch and the reason.
    """

    buffers: int
    left_out: tuple[tuple[str, str], ...]


def validated(plan: LaunchPlan, outputs: tuple[Node, ...] | None = None) -> LaunchPlan:
    """The plan, whose kernels compute the graph that its buffers' nodes are of.

    ``outputs``: what its outputs are; None where no graph says it. A warning names the buffers that
    can not be worked out. Raises WrongPlan.
    """
    found = validation(plan, outputs)
    for name, why in dict.fromkeys(found.left_out):
        _warn(name, why)
    return plan


def validated_guards(
    outputs: tuple[Node, ...],
) -> tuple[tuple[Node, ...], tuple[ranges.Guard, ...]]:
    """A graph without WITHIN nodes and its guards, as ``ranges.guarded``, which are compared with
    it. Raises WrongPlan, and IndexOutOfRange as that.
    """
    after, guards = ranges.guarded(outputs)
    if after != outputs:
        check_guards(outputs, after, guards)
    return after, guards


def validated_rewrite(
    before: tuple[Node, ...],
    after: tuple[Node, ...],
    steps: Sequence[Step],
    narrow: DType | None = None,
    on_purpose: bool = False,
) -> tuple[Node, ...]:
    """``after``, if it computes what ``before`` does; a warning for what is not compared.

    Remembered on disk, but where all that changed is constants: those are compared as fast as the
    graphs are written down.
    """
    pairs, heights = _pairs(before, after, steps), Heights()
    key = None
    if any(image.srcs for _, image in pairs):
        key = _key_of_graphs(before, after, narrow, on_purpose)
    cache = _cache_at(cache_dir())
    kept = None if key is None else cache.get(key)
    if kept is None:
        left = dict[str, None]()
        for made, image in pairs:
            left.update(_compared(made, image, narrow, on_purpose, heights))
        kept = "\n".join(" ".join(why.split()) for why in left).encode()
        if key is not None:
            cache.put(key, kept)
    for why in filter(None, kept.decode().split("\n")):
        _warn_of_graph(why)
    return after


def _key_of_graphs(*what: object) -> str | None:
    """A key of graphs and settings; None with arrays that others may write to."""
    graphs = [cast(tuple[Node, ...], x) for x in what if isinstance(x, tuple)]
    order = topological(tuple(n for graph in graphs for n in graph))
    if any(isinstance(n.arg, ConstData) and n.arg.memory for n in order):
        return None
    at = {id(n): i for i, n in enumerate(order)}
    rows = [
        (n.op, n.arg.digest if isinstance(n.arg, ConstData) else n.arg, n.shape, n.dtype.name,
         *(at[id(s)] for s in n.srcs))
        for n in order
    ]  # fmt: skip
    ends = [[at[id(n)] for n in graph] for graph in graphs]
    settings = [str(x) for x in what if not isinstance(x, tuple)]
    return _key(("of graphs", *settings, repr(ends), repr(rows)))


@lru_cache(maxsize=1024)
def _warn(name: str, why: str) -> None:
    """Once a process for each."""
    _log.warning("plan: launch %s is not validated against its graph: %s", name, why)


@lru_cache(maxsize=1024)
def _warn_of_graph(why: str) -> None:
    """Once a process for each."""
    _log.warning("graph: a rewrite is not validated: %s", why)


def validation(plan: LaunchPlan, outputs: tuple[Node, ...] | None = None) -> Validation:
    """Validate a plan, what is not known of it; as ``validated``. Raises VerifyError for a plan
    that reads an input after it is replaced.
    """
    if plan.over:
        plan.verify()
    if outputs is not None:
        _check_outputs(plan, outputs)
    groups = list(plans.groups_of(plan))
    with _lock:
        found = _found(groups)
    left_out = ((g.launch.name, why) for g, why in zip(groups, found, strict=True) if why)
    return Validation(len(groups), tuple(left_out))


def _check_outputs(plan: LaunchPlan, outputs: tuple[Node, ...]) -> None:
    """Each output is the buffer of its node; fences around a node are that node."""
    nodes = [plan.buffers[i].node for i in plan.outputs]
    if len(nodes) != len(outputs):
        raise WrongPlan(f"plan: it has {len(nodes)} outputs, its graph {len(outputs)}")
    for i, n, o in zip(plan.outputs, nodes, outputs, strict=True):
        if not isinstance(n, Node) or _unfenced(n) is not _unfenced(o):
            raise WrongPlan(f"plan: output {plan.buffers[i]} stands for {n}, and is {o}")


def _found(groups: Sequence[plans.Group]) -> list[str]:
    """Reasons why buffers can not be validated; "" for one that is right. Raises WrongPlan."""
    keys = [g.key for g in groups]
    new: dict[str, tuple[plans.Group, list[Node]]] = {}
    texts: dict[int, str] = {}
    for i, (group, key) in enumerate(zip(groups, keys, strict=True)):
        if key not in _by_node.setdefault(group.node, {}):
            cone = group.cone()
            texts[i] = hashlib.sha256(group.text(cone).encode()).hexdigest()
            if texts[i] not in _by_text:
                new.setdefault(texts[i], (group, cone))
    deep = _validated(new) if new else set()
    for i, text in texts.items():
        if text not in deep:
            _by_node[groups[i].node][keys[i]] = _by_text[text]
    return [
        _TOO_DEEP if texts.get(i) in deep else _by_node[g.node][key]
        for i, (g, key) in enumerate(zip(groups, keys, strict=True))
    ]


def _validated(new: Mapping[str, tuple[plans.Group, list[Node]]]) -> set[str]:
    """Learn what is not known in this process: from disk, where a plan had all of it, or by
    validating each. Returns those for which this caller's stack was too deep: another's may do.
    """
    cache, key = _cache_at(cache_dir()), _key(new)
    kept = cache.get(key)
    if kept is not None:
        _by_text.update(zip(new, kept.decode().split("\n"), strict=True))
        return set()
    deep = set()
    for text, (group, cone) in new.items():
        try:
            plans.validate_group(group, cone)
            _by_text[text] = ""
        except graphs.Unvalidated as error:
            _by_text[text] = " ".join(str(error).split())
        except RecursionError:
            deep.add(text)
    if not deep:
        cache.put(key, "\n".join(_by_text[text] for text in new).encode())
    return deep


@lru_cache(maxsize=2)
def _cache_at(directory: Path) -> ObjectCache:
    """Apart from objects, which are many: a process that writes looks at all of them."""
    return ObjectCache(directory / "validated")


def _key(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join((f"validated plan {VALIDATION}", *texts)).encode()).hexdigest()
