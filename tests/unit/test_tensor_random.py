"""Draws are counted: the same bits for a seed on every device, whatever the kernels."""

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.errors import DTypeError, ShapeError
from tunegrad.frontend.random import Generator
from tunegrad.inference.realizing import _canonical
from tunegrad.ir.interpret.evaluate import evaluate

# https://prng.di.unimi.it/splitmix64.c, seed 0
PUBLISHED = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]


def test_bits_are_the_published_ones():
    assert Generator(0).bits(4).numpy().tolist() == PUBLISHED


def test_compiled_draws_are_those_of_the_interpreter():
    for draw in (tg.rand(50), tg.rand(50, dtype="f64"), tg.randint(7, (50,))):
        (expected,) = evaluate((draw.node,), draw.bindings)
        assert np.array_equal(draw.numpy(), expected)


def test_seed_repeats_the_draws():
    tg.manual_seed(11)
    first = [tg.rand(3, 4).numpy(), tg.randn(5).numpy()]
    tg.manual_seed(11)
    again = [tg.rand(3, 4).numpy(), tg.randn(5).numpy()]
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    tg.manual_seed(12)
    assert not np.array_equal(first[0], tg.rand(3, 4).numpy())


def test_draws_go_on_where_the_last_one_ended():
    whole = Generator(5).bits(10).numpy()
    parts = Generator(5)
    assert np.array_equal(whole, np.concatenate([parts.bits(4).numpy(), parts.bits(6).numpy()]))


def test_another_seed_is_no_other_kernel():
    graphs = [_canonical((Generator(seed).bits(8).node,))[0] for seed in (1, 2)]
    assert graphs[0][0] is graphs[1][0]


def test_distributions_have_their_moments():
    tg.manual_seed(0)
    u, n = tg.rand(200, 500).numpy(), tg.randn(200, 500).numpy()
    assert 0 <= u.min() < 1e-3
    assert 0.999 < u.max() < 1
    assert abs(u.mean() - 0.5) < 5e-3
    assert abs(n.mean()) < 0.02
    assert abs(n.std() - 1) < 0.02
    assert abs((n**4).mean() - 3) < 0.2
    assert abs(tg.bernoulli(tg.full((200, 500), 0.3)).numpy().mean() - 0.3) < 0.01


def test_places_are_drawn_by_their_weights():
    tg.manual_seed(0)
    weights = tg.tensor([0.0, 1.0, 3.0])
    drawn = tg.multinomial(weights, 2000, replacement=True).numpy()
    assert set(drawn.tolist()) == {1, 2}
    assert abs((drawn == 2).mean() - 0.75) < 0.04
    assert sorted(tg.multinomial(weights, 2).tolist()) == [1, 2]


def test_permutation_has_every_number_once():
    assert sorted(tg.randperm(50).numpy().tolist()) == list(range(50))


def test_whole_numbers_lie_between_their_bounds():
    assert set(tg.randint(-2, 3, (500,)).numpy().tolist()) == {-2, -1, 0, 1, 2}


def test_dtypes_and_shapes_are_those_asked_for():
    assert (tg.rand(2, 3, dtype="f16").dtype.name, tg.rand((2, 3)).shape) == ("f16", (2, 3))
    assert tg.randn_like(tg.zeros(4, dtype="f64")).dtype.name == "f64"
    assert tg.rand(0, 3).numpy().shape == (0, 3)
    assert tg.rand(1000, dtype="f16").numpy().max() < 1


def test_wrong_draws_are_refused():
    with pytest.raises(DTypeError, match="rand: i32 of shape"):
        tg.rand(2, dtype="i32")
    with pytest.raises(ShapeError, match="no whole number from 3 to below 3"):
        tg.randint(3, 3, (2,))
