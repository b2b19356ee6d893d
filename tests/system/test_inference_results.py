"""Compiled models and functions give what the graph means, whatever the shapes, inputs and
outputs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tunegrad import inference
from tunegrad.frontend import Model
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.models import encoder_layer, mlp, resnet18

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return RNG.standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize(
    "model",
    [
        resnet18(image=32, classes=10),
        mlp(batch=3, sizes=(20, 30, 7)),
        encoder_layer(sequence=8, hidden=64, heads=4, ffn=96),
    ],
    ids=lambda m: m.name,
)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_loaded_model_gives_what_its_graph_means(model: Model, threads: int) -> None:
    inputs = {i.name: floats(*i.shape) for i in model.inputs}
    outputs = model.build(model.weights(seed=3))
    wanted = evaluate(tuple(t.node for t in outputs), inputs)
    loaded = tg.load(model, store=False, seed=3, threads=threads)
    np.testing.assert_allclose(loaded(**inputs), wanted[0], rtol=2e-4, atol=2e-4)


def test_a_second_run_gives_the_same_bits() -> None:
    loaded, x = tg.load(mlp(sizes=(20, 30, 7)), store=False), floats(1, 20)
    np.testing.assert_array_equal(loaded(x), loaded(x))


def same(function: Callable[..., Any], *arrays: Any) -> Any:
    """What ``function`` gives compiled; checked against numpy, which has the same operators."""
    compiled = tg.compile(function, *arrays, store=False)
    result, wanted = compiled(*arrays), function(*arrays)
    results, wants = (result, wanted) if isinstance(wanted, tuple) else ((result,), (wanted,))
    assert len(results) == len(wants)
    for r, w in zip(results, wants, strict=True):
        assert (r.shape, r.dtype) == (np.shape(w), np.asarray(w).dtype)
        np.testing.assert_allclose(r, w, rtol=1e-5, atol=1e-5)
    return result


def test_scalars() -> None:
    same(lambda a, b: a * b + a, np.float32(3), np.float32(4))


@pytest.mark.parametrize("shape", [(0,), (1, 0, 3)])
def test_an_empty_output_launches_no_kernel(shape: tuple[int, ...]) -> None:
    compiled = tg.compile(lambda a: a + a, floats(*shape), store=False)
    assert compiled(floats(*shape)).shape == shape
    assert compiled.report() == ()


def test_an_empty_input_of_a_full_output() -> None:
    same(lambda a, b: a.sum() + b, floats(0, 3), floats(2))


def test_an_empty_output_beside_a_full_one() -> None:
    same(lambda a, b: (a + a, b + b), floats(0), floats(5))


def test_one_array_as_two_inputs() -> None:
    a = floats(5, 5)
    same(lambda x, y: x @ y + x, a, a)


def test_an_output_that_is_used_again() -> None:
    def function(a: Any, b: Any) -> Any:
        c = a @ b
        return c, c @ b, c

    same(function, floats(6, 6), floats(6, 6))


def test_an_input_as_output_is_copied() -> None:
    a = floats(4, 4)
    result = same(lambda x: x, a)
    result[:] = 0
    assert a.all()


def test_outputs_are_memory_of_nobody_else() -> None:
    compiled, a = tg.compile(lambda x: (x + 1, x + 1, x), floats(64), store=False), floats(64)
    arrays = [a, *compiled(a), *compiled(a)]
    for i, x in enumerate(arrays):
        assert not any(np.shares_memory(x, y) for y in arrays[:i])
        assert x.flags.writeable


def test_inputs_keep_their_bytes() -> None:
    compiled, a = (
        tg.compile(lambda x: (x - x.max()).exp(), floats(33, 7), store=False),
        floats(33, 7),
    )
    before = a.tobytes()
    compiled(a)
    assert a.tobytes() == before


def shifted(a: Any) -> Any:
    """The same values, at every address but a multiple of 64."""
    memory = np.empty(a.nbytes + 80, np.uint8)
    start = -memory.ctypes.data % 64 + 4
    view = memory[start : start + a.nbytes].view(a.dtype).reshape(a.shape)
    view[...] = a
    return view


def on_a_line(a: Any) -> Any:
    memory = np.empty(a.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    view = memory[start : start + a.nbytes].view(a.dtype).reshape(a.shape)
    view[...] = a
    return view


def read_only(a: Any) -> Any:
    a = a.copy()
    a.flags.writeable = False
    return a


@pytest.mark.parametrize(
    "given",
    [
        np.asfortranarray,
        shifted,
        on_a_line,
        read_only,
        lambda a: np.repeat(a, 2, axis=0)[::2],
        lambda a: a.tolist(),
    ],
    ids=["transposed", "unaligned", "aligned", "read-only", "strided", "list"],
)
def test_inputs_of_any_memory(given: Callable[[Any], Any]) -> None:
    a = RNG.standard_normal((16, 24))
    compiled = tg.compile(lambda x: x.exp() + x, a, store=False)
    np.testing.assert_allclose(compiled(given(a)), np.exp(a) + a, rtol=1e-6)


def test_inputs_are_read_where_they_are() -> None:
    a = floats(64, 64)
    compiled = tg.compile(lambda x: x + 1, a, store=False)
    before = compiled.memory_bytes
    compiled(on_a_line(a))
    assert compiled.memory_bytes == before
    np.testing.assert_array_equal(compiled(shifted(a)), a + 1)
    assert compiled.memory_bytes == before
    compiled(a.T)
    assert compiled.memory_bytes == before + a.nbytes


@pytest.mark.parametrize("dtype", ["float64", "int32", "int64", "bool"])
def test_dtypes(dtype: str) -> None:
    a = RNG.integers(0, 2, (5, 9)).astype(dtype)
    compiled = tg.compile(lambda x: (x & x) if dtype == "bool" else x + x, a, store=False)
    result = compiled(a)
    assert result.dtype == a.dtype
    np.testing.assert_array_equal(result, a if dtype == "bool" else a + a)


def test_bf16_comes_and_goes_as_bit_patterns() -> None:
    x = tg.Tensor([1.0, -2.5, 0.0], dtype="bf16")
    compiled = tg.compile(lambda t: t * 2, x, store=False)
    bits = np.array([0x3F80, 0xC020, 0], np.uint16)
    np.testing.assert_array_equal(compiled(bits), np.array([0x4000, 0xC0A0, 0], np.uint16))


def test_inputs_by_name_in_any_order() -> None:
    compiled = tg.compile(lambda first, second: first - second, floats(3), floats(3), store=False)
    a, b = floats(3), floats(3)
    np.testing.assert_array_equal(compiled(second=b, first=a), a - b)
    np.testing.assert_array_equal(compiled(a, second=b), a - b)


def test_an_input_that_nothing_reads() -> None:
    compiled = tg.compile(lambda used, spare: used + 1, floats(3), floats(3), store=False)
    a = floats(3)
    np.testing.assert_array_equal(compiled(a, floats(3)), a + 1)


def test_threads_that_share_a_model_get_their_own_results() -> None:
    w = floats(64, 64)
    loaded = tg.compile(lambda x: (x @ w).relu() @ w, floats(8, 64), store=False)
    given = [floats(8, 64) for _ in range(4)]
    wanted = [np.maximum(x @ w, 0) @ w for x in given]
    right: dict[int, bool] = {}

    def work(i: int) -> None:
        right[i] = all(
            np.allclose(loaded(given[i]), wanted[i], rtol=1e-3, atol=1e-3) for _ in range(50)
        )

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for w_ in workers:
        w_.start()
    for w_ in workers:
        w_.join()
    assert right == dict.fromkeys(range(4), True)


def test_realize_computes_several_tensors_at_once() -> None:
    a, b = floats(4, 5), floats(5, 3)
    x = tg.Tensor(a)
    product, total = inference.realize([x @ tg.Tensor(b), x.sum(1)])
    np.testing.assert_allclose(product, a @ b, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(total, a.sum(1), rtol=1e-5, atol=1e-5)


def test_a_tensor_of_other_values_does_not_see_the_first_ones() -> None:
    def value(seed: int) -> Any:
        a = np.random.default_rng(seed).standard_normal((7, 7)).astype(np.float32)
        return (tg.Tensor(a) @ tg.Tensor(a)).numpy(), a @ a

    for seed in range(3):
        got, wanted = value(seed)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_swapped_operands_are_another_program() -> None:
    a, b = tg.Tensor(floats(5)), tg.Tensor(floats(5))
    np.testing.assert_array_equal((a - b).numpy(), -(b - a).numpy())


def test_constants_are_part_of_the_program() -> None:
    w = floats(5)
    one = (tg.Tensor(w) + tg.Tensor.constant(np.ones(5, np.float32))).numpy()
    two = (tg.Tensor(w) + tg.Tensor.constant(np.full(5, 2, np.float32))).numpy()
    np.testing.assert_allclose(two - one, 1, rtol=1e-5)
