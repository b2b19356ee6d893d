"""``compile(donate=...)``: new values are written into the arrays that are given, and are those of
a function that donates nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tunegrad as tg
from tests.opencl_device import opencl_device
from tunegrad.devices.cpu.engine import meets
from tunegrad.errors import DTypeError, IndexOutOfRange, ModelError, ShapeError
from tunegrad.ir.fusion import in_place, schedule
from tunegrad.runtime.plan import Runner

F = np.float32


def _square(seed: int, n: int = 6) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, n)).astype(F)


def _momentum(x: tg.Tensor, w: tg.Tensor, m: tg.Tensor) -> tuple[tg.Tensor, ...]:
    m = 0.9 * m + x.T @ (x @ w)
    return (x @ w).sum(), w - 0.1 * m, m


def _turned(a: tg.Tensor, b: tg.Tensor) -> tuple[tg.Tensor, ...]:
    return a + a.T, b * 2


def _swapped(a: tg.Tensor, b: tg.Tensor) -> tuple[tg.Tensor, ...]:
    return b, a


def _round(a: tg.Tensor, b: tg.Tensor, c: tg.Tensor) -> tuple[tg.Tensor, ...]:
    return a @ b, b @ c, c @ a


def _shifted(a: tg.Tensor, b: tg.Tensor) -> tuple[tg.Tensor, ...]:
    moved = tg.cat([a[1:], a[:1] + b[:1]], 0)
    return moved, b - a


def _twice(a: tg.Tensor, b: tg.Tensor) -> tuple[tg.Tensor, ...]:
    c = a + b
    return c.sum(), c, c


def _constant(a: tg.Tensor, b: tg.Tensor) -> tuple[tg.Tensor, ...]:
    return tg.zeros(6, 6), b + 1


def _unread(a: tg.Tensor, b: tg.Tensor) -> tuple[tg.Tensor, ...]:
    return b * 3, b + 1


def _same(a: tg.Tensor, b: tg.Tensor) -> tuple[tg.Tensor, ...]:
    return a, b + a


def _rows(a: tg.Tensor, b: tg.Tensor) -> tuple[tg.Tensor, ...]:
    return a - b.softmax(1), b - a.softmax(0)


CASES: dict[str, tuple[Callable[..., object], int]] = {
    f.__name__: (f, n)
    for f, n in (
        (_momentum, 3), (_turned, 2), (_swapped, 2), (_round, 3), (_shifted, 2), (_twice, 2),
        (_constant, 2), (_unread, 2), (_same, 2), (_rows, 2),
    )
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_three_steps_are_those_of_the_pure_function(name: str):
    _compare(name, "cpu")


def test_three_steps_on_opencl_are_those_of_the_pure_function():
    _compare("_turned", opencl_device().name)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_three_steps_on_opencl_are_those_of_any_pure_function(name: str):
    _compare(name, opencl_device().name)


def _compare(name: str, device: str) -> None:
    function, count = CASES[name]
    given = [_square(i) for i in range(count)]
    donated = range(1, count) if name == "_momentum" else range(count)
    pure = tg.compile(function, *given, device=device, store=False, threads=2)
    made = tg.compile(function, *given, device=device, store=False, threads=2, donate=[*donated])
    state, arrays = [x.copy() for x in given], [x.copy() for x in given]
    for _ in range(3):
        wanted, found = pure(*state), made(*arrays)
        for at, i in enumerate(reversed(donated), 1):
            state[i] = wanted[-at]
            assert found[-at] is arrays[i]
        for a, b in zip(wanted, found, strict=True):
            np.testing.assert_array_equal(a, b)
    for a, b in zip(state, arrays, strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_array_that_kernels_can_not_use_is_updated_by_a_copy():
    made = tg.compile(lambda a: a * 2 + 1, np.zeros((3, 4), F), store=False, donate=(0,))
    wide = np.arange(24, dtype=F).reshape(6, 4)
    wanted = wide.copy()
    wanted[::2] = wanted[::2] * 2 + 1
    raw = np.zeros(3 * 4 * 4 + 1, np.uint8)[1:].view(F).reshape(3, 4)
    assert made(wide[::2]) is not None
    made(raw)
    np.testing.assert_array_equal(wide, wanted)
    assert (raw == 1).all()


def test_a_saved_model_updates_its_arrays(tmp_path: Path):
    given = [_square(i) for i in range(3)]
    made = tg.compile(_momentum, *given, store=False, donate=("w", "m"))
    made.save(tmp_path / "step.plan")
    again = tg.load(str(tmp_path / "step.plan"))
    x, w, m = (a.copy() for a in given)
    wanted = [np.array(y) for y in made(*(a.copy() for a in given))]
    _, new, moment = again(x, w, m)
    assert (new is w, moment is m) == (True, True)
    for a, b in zip(wanted[1:], (w, m), strict=True):
        np.testing.assert_array_equal(a, b)


def test_timed_runs_leave_the_given_arrays_alone():
    given = [_square(i) for i in range(3)]
    made = tg.compile(_momentum, *given, store=False, donate=("w", "m"))
    kept = [a.copy() for a in given]
    made.timer(*given)(3)
    made.benchmark_s(2)
    for a, b in zip(given, kept, strict=True):
        np.testing.assert_array_equal(a, b)


def _looked_up(
    table: tg.Tensor, bias: tg.Tensor, at: tg.Tensor
) -> tuple[tg.Tensor, tg.Tensor, tg.Tensor]:
    rows = table[at]
    return rows.sum(), table * 2, bias + rows.sum(0)


@pytest.mark.parametrize("device", ["cpu", "opencl"])
def test_an_index_out_of_range_leaves_donated_inputs_as_they_were(device: str):
    device = opencl_device().name if device == "opencl" else device
    table, bias = np.ones((4, 3), F), np.zeros(3, F)
    at = np.array([0, 3], np.int64)
    options = {"store": False, "device": device}
    made = tg.compile(_looked_up, table, bias, at, donate=("table", "bias"), **options)
    assert made.checks_first
    with pytest.raises(IndexOutOfRange):
        made(table, bias, at + 1)
    assert (table == 1).all()
    assert (bias == 0).all()
    made(table, bias, at)
    assert (table == 2).all()
    assert (bias == 2).all()


def test_an_index_that_depends_on_new_values_is_found_out_of_range_after_they_are_written():
    def stepped(table: tg.Tensor, at: tg.Tensor) -> tuple[tg.Tensor, tg.Tensor]:
        new = (at + 1).contiguous()
        return table[new].sum(), new

    table, at = np.ones((4, 3), F), np.array([0, 2], np.int64)
    made = tg.compile(stepped, table, at, store=False, donate=("at",))
    made(table, at)
    with pytest.raises(IndexOutOfRange):
        made(table, at)


Made = Callable[..., object]


def _read_only(made: Made) -> object:
    a = _square(0)
    a.flags.writeable = False
    return made(a, _square(1))


def _part(made: Made) -> object:
    wide = np.zeros((6, 7), F)
    return made(wide[:, :6], wide[:, 1:])


def _rows_of_one(made: Made) -> object:
    rows = np.zeros((9, 6), F)
    return made(rows[:6], rows[3:])


def _folded(made: Made) -> object:
    return made(np.lib.stride_tricks.as_strided(_square(0), (6, 6), (4, 4)), _square(1))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (_folded, ShapeError, r"elements of its array may share memory .*strides \(4, 4\) bytes"),
        (_read_only, ShapeError, "input 'a' is donated, and its array is read-only"),
        (lambda f: f(_square(0).tolist(), _square(1)), DTypeError, "must be an array.* is a list"),
        (lambda f: f(*[_square(0)] * 2), ShapeError, "'a' is donated, and shares memory"),
        (_part, ShapeError, "input 'a' is donated, and shares memory with input 'b'"),
        (_rows_of_one, ShapeError, "input 'a' is donated, and shares memory with input 'b'"),
    ],
)  # fmt: skip
def test_an_array_that_must_not_be_changed_is_refused(
    call: Callable[[Made], object], error: type[Exception], words: str
):
    made = tg.compile(lambda a, b: a + b, _square(0), _square(1), store=False, donate=("a",))
    with pytest.raises(error, match=words):
        call(made)


def test_inputs_side_by_side_in_one_array_are_updated():
    made = tg.compile(_rows, _square(0), _square(1), store=False, donate=(0, 1))
    pure = tg.compile(_rows, _square(0), _square(1), store=False)
    whole = np.concatenate([_square(0), _square(1)])
    wanted = np.concatenate(pure(whole[:6].copy(), whole[6:].copy()))
    made(whole[:6], whole[6:])
    np.testing.assert_array_equal(whole, wanted)


@pytest.mark.parametrize(
    ("donate", "words"),
    [
        (("c",), "donate='c' is none of its inputs a, b"),
        ((2,), "donate=2 is none of its inputs a, b"),
        ((0, "a"), "input a is donated twice"),
        (("a", "b"), "returns 1 tensors, and 2 inputs are donated"),
        (("b",), r"output 0 is the new value of input b f32\[1, 6\], and is f32\[6, 6\]"),
    ],
)
def test_a_donation_that_no_output_fits_is_an_error(donate: tuple[int | str, ...], words: str):
    with pytest.raises(ModelError, match=words):
        tg.compile(lambda a, b: a + b, _square(0), _square(1)[:1], store=False, donate=donate)


def _adam(x: tg.Tensor, *state: tg.Tensor) -> tuple[tg.Tensor, ...]:
    """Adam of flat parameters, whose gradients are of one layer each."""
    (w, m, v), inputs = state[:3], state[3:]
    slopes = [(x.T @ g).reshape(-1) if i % 2 else g.sum(0) for i, g in enumerate(inputs)]
    slope = tg.cat(slopes, 0).contiguous()
    m, v = m * 0.9 + slope * 0.1, v * 0.99 + slope * slope * 0.01
    return w - 0.01 * m / (v.sqrt() + 1e-3), m, v


def _layers(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(count)
    sizes = [(3 + i) * (8 if i % 2 else 1) for i in range(count)]
    state = [rng.standard_normal(sum(sizes)).astype(F) for _ in range(3)]
    return [
        rng.standard_normal((16, 8)).astype(F), *state[:2], abs(state[2]),
        *(rng.standard_normal((16, 3 + i)).astype(F) for i in range(count)),
    ]  # fmt: skip


def test_gradients_are_written_as_parts_of_what_adam_reads(tmp_path: Path):
    given = _layers(7)
    pure = tg.compile(_adam, *given, store=False, threads=2)
    made = tg.compile(_adam, *given, store=False, threads=2, donate=(1, 2, 3))
    ((_, parts),) = made._plan.parts.items()
    assert len(parts) == 7
    made.save(tmp_path / "adam.plan")
    again = [a.copy() for a in given]
    wanted = pure(*given)
    made(*given)
    tg.load(str(tmp_path / "adam.plan"))(*again)
    for a, b, c in zip(wanted, given[1:], again[1:], strict=False):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)


def test_an_update_of_sixty_parameters_by_adam_is_at_most_four_launches():
    given = _layers(60)
    outputs = _adam(*(tg.Tensor.input(f"x{i}", a.shape) for i, a in enumerate(given)))
    plan = in_place(
        schedule(tuple(t.node for t in outputs), view_bytes=1),
        [(0, "x1"), (1, "x2"), (2, "x3")],
        1,
    )
    assert len(plan.over) == 3
    assert len(plan.launches) - 60 <= 4


def test_calls_on_arrays_that_are_used_as_they_lie_are_one_function(
    monkeypatch: pytest.MonkeyPatch,
):
    """With guards that are read before an input is replaced, behind it, and without any."""
    at, table = np.array([0, 2], np.int64), np.ones((4, 3), F)
    looked_up = tg.compile(
        _looked_up, table, np.zeros(3, F), at, store=False, donate=("table", "bias")
    )
    moved = tg.compile(
        lambda a, at: (a[(at + 1).contiguous()].sum(), at + 1), table, at, store=False, donate=(1,)
    )
    a, b = _square(0), _square(1)
    turned = tg.compile(_turned, a, b, store=False, donate=(0, 1))
    wanted = a + a.T, b * 2
    monkeypatch.setattr(Runner, "run", None)
    assert looked_up.checks_first
    assert not moved.checks_first
    assert looked_up(table, np.zeros(3, F), at)[1] is table
    assert moved(table, at)[1] is at
    found = turned(a, b)
    assert found[0] is a
    np.testing.assert_array_equal(a, wanted[0])
    np.testing.assert_array_equal(b, wanted[1])


def test_arrays_meet_where_they_share_a_byte_that_is_written():
    rng = random.Random(0)
    met = 0
    for _ in range(2000):
        n = rng.randint(1, 5)
        spans = [(rng.randint(0, 6), rng.random() < 0.4) for _ in range(n)]
        at = [rng.randint(1, 16) for _ in range(n)]
        held = [{*range(a, a + size)} for a, (size, _) in zip(at, spans, strict=True)]
        shared = any(
            x & y and (spans[i][1] or spans[j][1])
            for i, x in enumerate(held) for j, y in enumerate(held[:i])
        )  # fmt: skip
        # an array without elements inside another one may be taken for one that meets it
        empty = any(not size for size, _ in spans)
        assert meets(at, spans) == shared or (empty and not shared)
        met += shared
    assert 400 < met < 1600


def test_arrays_that_come_again_are_looked_at_beside_new_ones():
    made = tg.compile(lambda a, b: a + b, _square(0), _square(1), store=False, donate=("a",))
    a, b = _square(0), _square(1)
    made(a, b)
    made(a, b)
    with pytest.raises(ShapeError, match="input 'a' is donated, and shares memory with input 'b'"):
        made(a, a.T)
    a.flags.writeable = False
    with pytest.raises(ShapeError, match="its array is read-only"):
        made(a, b)
