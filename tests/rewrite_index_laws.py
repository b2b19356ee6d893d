"""The laws of index algebra and of movement: sums, conditions, proofs and layouts against brute
force.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from tests.graph_fuzzer import moved
from tunegrad.errors import ShapeError
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import I32
from tunegrad.ir.fusion.build import source_index
from tunegrad.ir.index import Index, Range, Valid, as_index, element, var
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.layout import Layout, Part
from tunegrad.ir.verify.races import below, condition_facts, stop_facts

__all__ = ["INDEX_LAWS"]

Ints = NDArray[np.int64]
Env = dict[str, Ints]


def points(extents: dict[str, int]) -> Env:
    grid = np.indices(tuple(extents.values())).reshape(len(extents), -1)
    return dict(zip(extents, grid, strict=True))


def at(index: Index, env: Env) -> Ints:
    count = len(next(iter(env.values())))
    return np.broadcast_to(np.asarray(index.evaluate(env)), (count,))  # type: ignore[arg-type]  # many values of each variable


def _sum(rng: random.Random, leaves: list[tuple[Index, Ints]]) -> tuple[Index, Ints]:
    """A sum of leaves with coefficients that often share factors."""
    step = rng.choice((1, 1, 2, 3, 4, 6))
    total, values = as_index(0), np.zeros_like(leaves[0][1])
    for x, known in rng.sample(leaves, rng.randint(1, len(leaves))):
        c = rng.choice((1, 1, 2, 3, 4, 6, 8, 12, -1, -2, -4)) * rng.choice((1, step))
        total, values = total + x * c, values + known * c
    c = rng.choice((0, 0, 1, -1, 2, 5, -7, 13))
    return total + c, values + c


def sums(rng: random.Random) -> None:
    """//, %, + and - of sums keep their value at every point, and the bounds hold there."""
    for _ in range(700):
        extents = {n: rng.choice((2, 3, 4, 5, 6, 8)) for n in "abc"[: rng.randint(1, 3)]}
        env = points(extents)
        leaves = [(var(n, e), env[n]) for n, e in extents.items()]
        for _ in range(6):
            x, known = _sum(rng, leaves[-4:])
            d = rng.choice((2, 2, 3, 4, 4, 6, 8, 12, 24))
            made = [(x // d, known // d), (x % d, known % d)]
            made.append((made[0][0] * d + made[1][0], known))
            made.append((made[1][0] + made[0][0] * d - x, known * 0))
            # the quotient of a number that differs by whole divisors
            other, more = x + leaves[0][0] * (d * rng.choice((-1, 1, 2))), known + 0
            more = more + (at(other, env) - known)
            made.append((other % d + (x // d) * d, more % d + known // d * d))
            for index, want in made:
                found = at(index, env)
                assert (found == want).all(), f"{x} by {d}: {index}"
                assert index.lo <= want.min(), f"{index} is above its least value"
                assert want.max() <= index.hi, f"{index} is below its greatest value"
            leaves += made[:2]


def forms(rng: random.Random) -> None:
    """Quotients and remainders of a mixed radix come apart without a division."""
    for _ in range(300):
        a, b, c = (rng.choice((2, 3, 4, 5)) for _ in range(3))
        x, y, z = var("x", a), var("y", b), var("z", c)
        flat = (x * b + y) * c + z
        assert flat // c == x * b + y
        assert flat % c == z
        assert flat % (b * c) == y * c + z
        n = var("n", a * b)
        assert (n * c + z) // (b * c) == n // b
        assert (n * c + z) % (b * c) == n % b * c + z
        assert flat // (b * c) == x
        assert flat // c % b == y
        assert (flat // c) * c + flat % c == flat
        n = var("n", a * b * c)
        assert n // b // c == n // (b * c)
        assert n % (b * c) % c == n % c
        assert n % (b * c) // c == n // c % b
        assert (n // b) * b + n % b == n
        assert (n + b) % b + (n // b) * b == n


def substitution(rng: random.Random) -> None:
    """Replacing variables, or fixing them, gives the sum at those values."""
    for _ in range(500):
        extents = {"a": rng.choice((4, 6, 12)), "b": rng.choice((2, 3, 5))}
        env = points(extents)
        leaves = [(var(n, e), env[n]) for n, e in extents.items()]
        for _ in range(3):
            x, known = _sum(rng, leaves)
            d = rng.choice((2, 3, 4, 6))
            leaves.append(rng.choice(((x // d, known // d), (x % d, known % d), (x, known))))
        index = sum((x * rng.choice((1, 2, -1)) for x, _ in leaves), as_index(rng.randint(-2, 2)))
        size = rng.randint(4, 40)
        index = index + element("m", index, size, 7)
        memory = np.array([rng.randint(-9, 9) for _ in range(size)])
        low = rng.choice([k for k in (2, 3, 4) if extents["a"] % k == 0])
        small = points({"h": extents["a"] // low, "l": low, "b": extents["b"]})
        a = var("h", extents["a"] // low) * low + var("l", low)
        whole = {"a": small["h"] * low + small["l"], "b": small["b"], "m": memory}
        want = at(index, whole)
        found = index.substitute({"a": a})
        assert (at(found, {**small, "m": memory}) == want).all(), f"{index}: {found}"
        assert found.lo <= want.min()
        assert want.max() <= found.hi
        renamed = index.reading({"m": "q"})
        assert (at(renamed, {**whole, "q": memory}) == want).all()
        assert "m" not in {e.buffer for e in renamed.elements()}
        place = rng.randrange(extents["a"])
        fixed = {**env, "a": env["a"] * 0 + place, "m": memory}
        for x in (index, _sum(rng, leaves[:2])[0]):
            assert (at(x.at({"a": place}), fixed) == at(x, fixed)).all(), f"{x} at {place}"
        valid = Valid((Range(index, -3, 5), Range(leaves[-1][0], 0, 3)))
        held = _held(valid, whole)
        assert (_held(valid.substitute({"a": a}), {**small, "m": memory}) == held).all()
        assert (_held(valid.at({"a": place}), fixed) == _held(valid, fixed)).all()
        assert (_held(valid.reading({"m": "q"}), {**whole, "q": memory}) == held).all()


def _held(valid: Valid, env: Env) -> NDArray[np.bool_]:
    count = len(env["b"])
    if valid.never:
        return np.zeros(count, np.bool_)
    held = np.ones(count, np.bool_)
    for r in valid:
        value = at(r.index, {"b": env["b"], **env}) if r.index.terms else r.index.const
        held &= (r.lo <= value) & (value < r.hi)
    return held


def _ranges(a: Index) -> Iterator[Range]:
    for c in (1, 2, 3, -1, -2):
        for k in (0, 1, -3):
            for lo in (-4, -1, 0, 2, 3):
                for width in (0, 1, 3, 20):
                    yield Range(a * c + k, lo, lo + width)
                    yield Range((a + k) // 3 * c, lo, lo + width)
                    yield Range(a % 3 * c + k, lo, lo + width)


def conditions(rng: random.Random) -> None:
    """A condition, and two of them together, hold where their ranges do."""
    env = points({"a": 8, "b": 2})
    every = list(_ranges(var("a", 8)))
    truth = [(r.lo <= at(r.index, env)) & (at(r.index, env) < r.hi) for r in every]
    where = [{n: int(v[i]) for n, v in env.items()} for i in range(16)]

    def check(valid: Valid, want: NDArray[np.bool_], what: object) -> None:
        found = np.array([valid.holds(p) for p in where])
        assert (found == want).all(), f"{what}: {valid}"
        assert not valid.always or want.all()
        assert not valid.never or not want.any()
        assert len({r.index for r in valid.ranges}) == len(valid.ranges)

    for r, held in zip(every, truth, strict=True):
        check(Valid((r,)), held, r)
        assert not r.always or held.all(), r
        assert not r.never or not held.any(), r
    for _ in range(1200):
        i, j = rng.randrange(len(every)), rng.randrange(len(every))
        one, other = Valid((every[i],)), Valid((every[j],))
        want = truth[i] & truth[j]
        check(one & other, want, (every[i], every[j]))
        check(Valid((every[i], every[j])), want, (every[i], every[j]))
        assert Valid((every[i], every[j])) == one & other


def proofs(rng: random.Random) -> None:
    """What bounds prove under conditions, and inside loops, holds at every such point."""
    for _ in range(500):
        extents = {"a": rng.choice((5, 8, 12)), "b": rng.choice((3, 4))}
        env = points(extents)
        leaves = [(var(n, e), env[n]) for n, e in extents.items()]
        x, known = _sum(rng, leaves)
        d = rng.choice((2, 3, 4))
        leaves += [(x // d, known // d), (x % d, known % d)]
        valid = Valid(Range(_sum(rng, leaves)[0], lo, lo + 6) for lo in (rng.randint(-4, 4),))
        under = [{n: int(v[i]) for n, v in env.items()} for i in range(len(env["a"]))]
        held = np.array([valid.holds(p) for p in under])
        index, _ = _sum(rng, leaves)
        reached = at(index, env)[held]
        facts = condition_facts(valid)
        if not reached.size:
            continue
        most, least = int(reached.max()), int(reached.min())
        assert not below(index, most, facts), f"{index} < {most} under {valid}"
        assert not below(-index, -least, facts), f"{index} > {least} under {valid}"
        stop = _sum(rng, leaves[1:])[0]
        inside = env["a"] < at(stop, env)
        reached = at(index, env)[inside]
        if reached.size:
            assert not below(index, int(reached.max()), stop_facts(var("a", extents["a"]), (stop,)))


def movements(rng: random.Random) -> None:
    """A movement's source index reads the element that the movement puts there, or nothing."""
    for _ in range(250):
        shape = tuple(rng.choice((1, 2, 3, 4, 6)) for _ in range(rng.randint(1, 3)))
        x = g.graph_input("x", shape, I32)
        node = moved(rng, x)
        if node is x or not node.size:
            continue
        for _ in range(rng.randrange(3)):
            node = moved(rng, node)
        if not all(n is x or n.op in g.MOVEMENT for n in g.topological((node,))):
            continue
        values = np.arange(1, x.size + 1, dtype=np.int32).reshape(shape)
        (want,) = evaluate((node,), {"x": values})
        names = [f"d{d}" for d in range(len(node.shape))]
        if not node.size:
            continue
        env = (
            points(dict(zip(names, node.shape, strict=True))) if names else {"d": np.zeros(1, int)}
        )
        index = tuple(var(n, e) for n, e in zip(names, node.shape, strict=True))
        valid = Valid()
        above = node
        while above.srcs:
            index, condition = source_index(above, index)
            valid, above = valid & condition, above.srcs[0]
        count = want.size
        held = np.array([valid.holds({n: int(v[i]) for n, v in env.items()}) for i in range(count)])
        places = [at(i, env) for i in index]
        inside = np.ones(count, np.bool_)
        for p, s in zip(places, shape, strict=True):
            inside &= (p >= 0) & (p < s)
        assert inside[held].all(), f"{node}: outside of {shape}"
        safe = tuple(np.where(held, p, 0) for p in places)
        found = np.where(held, values[safe], 0)
        assert (found == want.reshape(-1)).all(), f"{node}: {index} if {valid}"


def layouts(rng: random.Random) -> None:
    """A layout that verifies puts different indices at different offsets below its size."""
    for _ in range(300):
        shape = tuple(rng.choice((1, 2, 3, 4, 6)) for _ in range(rng.randint(1, 3)))
        parts: list[Part] = []
        for d, extent in enumerate(shape):
            low = rng.choice((1, 2, 3))
            if low == 1:
                parts.append(Part(d, 1, extent + rng.choice((0, 0, 0, 1))))
            else:
                parts += [Part(d, low, -(-extent // low)), Part(d, 1, low)]
        rng.shuffle(parts)
        if rng.random() < 0.4:
            k = rng.randrange(len(parts))
            change = rng.choice(((1, 0, 0), (0, 1, 0), (0, 0, -1), (0, 0, 1)))
            p = parts[k]
            parts[k] = Part(p.dim + change[0], max(1, p.step + change[1]), p.extent + change[2])
        layout = Layout(shape, tuple(parts))
        good = all(p.dim < len(shape) for p in parts)
        names = [f"d{d}" for d in range(len(shape))]
        env = points(dict(zip(names, shape, strict=True)))
        flat = None
        if good:
            digits = [env[names[p.dim]] // p.step for p in parts]
            flat, stride = np.zeros(len(digits[0]), int), 1
            for p, digit in zip(reversed(parts), reversed(digits), strict=True):
                flat, stride = flat + digit % max(1, p.extent) * stride, stride * p.extent
        try:
            layout.verify()
        except ShapeError:
            continue
        assert good, layout
        assert flat is not None
        assert len(set(flat.tolist())) == len(flat), f"{layout} has two indices at one offset"
        index = tuple(var(n, e) for n, e in zip(names, shape, strict=True))
        offsets = at(layout.offset(index), env)
        assert (offsets == flat).all(), f"{layout}: {layout.offset(index)}"
        assert offsets.max() < layout.size
        array = np.arange(1, len(flat) + 1).reshape(shape)
        packed = layout.pack(array)
        assert (packed[flat] == array.reshape(-1)).all()
        assert np.count_nonzero(packed) == array.size
        assert (layout.unpack(packed) == array).all()


INDEX_LAWS: dict[str, Callable[[random.Random], None]] = {
    "sums": sums, "forms": forms, "substitution": substitution, "conditions": conditions,
    "proofs": proofs, "movements": movements, "layouts": layouts,
}  # fmt: skip
