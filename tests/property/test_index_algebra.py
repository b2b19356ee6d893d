"""The index algebra against brute force: every simplification keeps its value at every point."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tunegrad.ir.index import Index, Range, Valid, as_index, element, var

Ints = NDArray[np.int64]
Env = dict[str, Ints]
Oracle = Callable[[Env], Ints]
Pair = tuple[Index, Oracle]


def points(extents: dict[str, int]) -> Env:
    grid = np.indices(tuple(extents.values())).reshape(len(extents), -1)
    return dict(zip(extents, grid, strict=True))


def variable(name: str, extent: int) -> Pair:
    return var(name, extent), lambda env: env[name]


def combined(rng: random.Random, a: Pair, b: Pair) -> Pair:
    """One random operation on two expressions; each operation is given its meaning in plain
    integers.
    """
    (x, f), (y, h) = a, b
    k = rng.choice((-7, -3, -2, -1, 2, 3, 4, 5, 6, 8, 12))
    d = rng.choice((1, 2, 3, 4, 5, 6, 8, 12, 16, 24))
    pick = rng.randrange(6)
    if pick == 0:
        return x + y, lambda env: f(env) + h(env)
    if pick == 1:
        return x - y, lambda env: f(env) - h(env)
    if pick == 2:
        return x * k, lambda env: f(env) * k
    if pick == 3:
        return x // d, lambda env: f(env) // d
    if pick == 4:
        return x % d, lambda env: f(env) % d
    return x + k, lambda env: f(env) + k


def affine(rng: random.Random, leaves: list[Pair]) -> Pair:
    """A sum of all leaves with random coefficients, often those of a mixed radix."""
    coefficients = [rng.choice((1, 2, 3, 4, 6, 12, 24, -1, -4)) for _ in leaves]
    index = as_index(rng.randint(-5, 5))
    for (x, _), k in zip(leaves, coefficients, strict=True):
        index = index + x * k
    return (
        index,
        lambda env: (
            sum(f(env) * k for (_, f), k in zip(leaves, coefficients, strict=True)) + index.const
        ),
    )


def expression(rng: random.Random, leaves: list[Pair], steps: int) -> Pair:
    pool = [*leaves, affine(rng, leaves), affine(rng, leaves)]
    for _ in range(steps):
        pool.append(combined(rng, rng.choice(pool[-4:]), rng.choice(pool)))
    return pool[-1]


def extents_of(rng: random.Random) -> dict[str, int]:
    return {name: rng.choice((1, 2, 3, 4, 5, 6, 8)) for name in "abc"[: rng.randint(1, 3)]}


def test_index_keeps_its_value_within_its_bounds() -> None:
    rng = random.Random(1)
    for _ in range(10_000):
        extents = extents_of(rng)
        env = points(extents)
        index, oracle = expression(
            rng, [variable(n, e) for n, e in extents.items()], rng.randint(1, 7)
        )
        want = oracle(env)
        got = np.broadcast_to(np.asarray(index.evaluate(env)), want.shape)
        assert (got == want).all(), (index, extents)
        assert index.lo <= want.min(), (index, extents)
        assert want.max() <= index.hi, (index, extents)
        if index.is_const:
            assert index.lo == index.hi == index.const


def test_index_operation_adds_one_division_at_most() -> None:
    rng, divided = random.Random(3), 0
    for _ in range(5_000):
        extents = extents_of(rng)
        pool = [var(n, e) for n, e in extents.items()]
        for _ in range(rng.randint(1, 7)):
            x, y = rng.choice(pool[-4:]), rng.choice(pool)
            k, d = rng.choice((-7, -3, -1, 2, 4, 6, 12)), rng.choice((2, 3, 4, 6, 8, 12, 24))
            made, most = rng.choice(
                (
                    (x + y, x.divisions() + y.divisions()),
                    (x - y, x.divisions() + y.divisions()),
                    (x * k, x.divisions()),
                    (x // d, x.divisions() + 1),
                    (x % d, x.divisions() + 1),
                )
            )
            assert made.divisions() <= most, (made, x, y, k, d, extents)
            divided += made.divisions() > 0
            pool.append(made)
    assert divided > 1_000


def test_index_equal_sums_have_one_form() -> None:
    rng = random.Random(2)
    for _ in range(1_000):
        a, b, c = var("a", 4), var("b", 3), var("c", 5)
        terms = [
            a * rng.randint(-3, 3),
            b * rng.randint(-3, 3),
            c * rng.randint(-3, 3),
            as_index(rng.randint(-3, 3)),
        ]
        forward, backward = as_index(0), as_index(0)
        for t, u in zip(terms, reversed(terms), strict=True):
            forward, backward = forward + t, backward + u
        assert forward == backward
        assert forward.key == backward.key
        assert hash(forward) == hash(backward)


def test_index_substitution_keeps_its_value() -> None:
    rng = random.Random(3)
    for _ in range(2_000):
        extents = {"a": rng.choice((4, 6, 12)), "b": rng.choice((2, 3))}
        index, oracle = expression(
            rng, [variable(n, e) for n, e in extents.items()], rng.randint(1, 6)
        )
        low = rng.choice([d for d in (1, 2, 3, 4, 6) if extents["a"] % d == 0])
        env = points({"h": extents["a"] // low, "l": low, "b": extents["b"]})
        split = index.substitute({"a": var("h", extents["a"] // low) * low + var("l", low)})
        want = oracle({"a": env["h"] * low + env["l"], "b": env["b"]})
        assert (np.broadcast_to(np.asarray(split.evaluate(env)), want.shape) == want).all(), (
            index,
            split,
        )


def test_index_at_a_point_is_what_substitution_gives() -> None:
    rng = random.Random(6)
    for _ in range(2_000):
        extents = extents_of(rng)
        index, _ = expression(rng, [variable(n, e) for n, e in extents.items()], rng.randint(1, 7))
        point = {n: rng.randrange(e) for n, e in extents.items() if rng.random() < 0.6}
        replaced = {n: as_index(v) for n, v in point.items()}
        assert index.at(point).key == index.substitute(replaced).key
        valid = Valid((Range(index, 0, 3),))
        assert valid.at(point) == valid.substitute(replaced)


def test_index_splitting_an_axis_by_a_divisor_leaves_no_division() -> None:
    a = var("h", 6) * 4 + var("l", 4)
    assert (a // 4).key == "h"
    assert (a % 4).key == "l"
    assert (a // 8).substitute({"h": var("p", 3) * 2 + var("q", 2)}).key == "p"


def test_index_of_one_variable_of_few_values_is_a_line_where_it_grows_evenly() -> None:
    b, c = var("b", 2), var("c", 3)
    assert ((b * 2 + b * 3 // 2) // 3).key == b.key
    assert (c // 2 + (c + 1) // 2).key == c.key
    rng = random.Random(7)
    for _ in range(4_000):
        extent = rng.randint(2, 8)
        index, oracle = expression(rng, [variable("a", extent)], rng.randint(1, 7))
        steps = np.diff(oracle(points({"a": extent})))
        even = bool((steps == steps[0]).all())
        assert (index.divisions() == 0) == even, (index, extent)


@pytest.mark.parametrize("seed", range(4))
def test_index_conditions_keep_their_truth(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(1_000):
        extents = extents_of(rng)
        env = points(extents)
        leaves = [variable(n, e) for n, e in extents.items()]
        ranges, truth = [], np.ones(len(next(iter(env.values()))), np.bool_)
        for _ in range(rng.randint(1, 3)):
            index, oracle = expression(rng, leaves, rng.randint(0, 4))
            lo = rng.randint(-6, 6)
            hi = lo + rng.randint(-1, 12)
            ranges.append(Range(index, lo, hi))
            value = oracle(env)
            truth &= (lo <= value) & (value < hi)
        half = len(ranges) // 2
        valid = Valid(ranges[:half]) & Valid(ranges[half:])
        got = np.array(
            [valid.holds({n: int(v[i]) for n, v in env.items()}) for i in range(len(truth))]
        )
        assert (got == truth).all(), (valid, ranges, extents)
        assert not (valid.always and not truth.all())
        assert not (valid.never and truth.any())
        assert Valid(ranges) == valid


def test_index_survives_pickling() -> None:
    rng = random.Random(5)
    for _ in range(300):
        extents = extents_of(rng)
        index, _ = expression(rng, [variable(n, e) for n, e in extents.items()], 5)
        valid = Valid((Range(index, 0, 3),))
        again_index, again_valid = pickle.loads(pickle.dumps((index, valid)))
        assert again_index == index
        assert again_valid == valid
        assert again_valid.never == valid.never


@pytest.mark.parametrize("seed", range(60))
def test_sums_with_elements_of_memory_keep_their_value(seed):
    rng = random.Random(f"elements {seed}")
    extents = {"a": rng.randint(2, 7), "b": rng.randint(2, 6)}
    size, den = rng.randint(2, 40), rng.randint(2, 24)
    memory = np.array([rng.randint(-2 * den, 2 * den) for _ in range(size)])
    at, where = expression(rng, [variable(n, e) for n, e in extents.items()], 3)

    def value(env: Env) -> Ints:
        places = np.asarray(where(env))
        read = memory[np.where((places >= 0) & (places < size), places, 0)]
        return np.clip(np.where(read < 0, read + den, read), 0, den - 1)

    read: Pair = element("m", at, size, den), value
    index, oracle = expression(rng, [variable("a", extents["a"]), read], 5)
    env = {**points(extents), "m": memory}
    found, count = np.asarray(index.evaluate(env)), len(env["a"])
    np.testing.assert_array_equal(
        np.broadcast_to(found, count), np.broadcast_to(oracle(env), count)
    )
    assert index.lo <= found.min()
    assert found.max() <= index.hi
    assert pickle.loads(pickle.dumps(index)) == index
    moved = index.substitute({"b": as_index(1)}).reading({"m": "n"})
    one = {**env, "b": np.ones_like(env["b"]), "n": memory}
    np.testing.assert_array_equal(
        np.broadcast_to(moved.evaluate(one), count), np.broadcast_to(index.evaluate(one), count)
    )
