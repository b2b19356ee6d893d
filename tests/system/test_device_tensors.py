"""Tensors of other libraries go through a model on a CUDA device without a copy: on cuda-host,
where they are numpy's and torch's.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tests.cuda_host import cuda_host
from tunegrad.devices import dlpack
from tunegrad.errors import DeviceError, DTypeError, ShapeError


def compiled():
    cuda_host()
    a, b = np.ones((6, 32), np.float32), np.ones((32, 16), np.float32)
    return tg.compile(lambda a, b: (a @ b).relu(), a, b, device="cuda-host")


@pytest.fixture(scope="module")
def model():
    return compiled()


@pytest.fixture
def new_model():
    """One that has seen no addresses."""
    return compiled()


def drawn() -> tuple[np.ndarray, np.ndarray]:
    """At a multiple of 64 bytes, which numpy does not promise."""
    rng = np.random.default_rng(0)
    return tuple(_aligned(rng.standard_normal(s).astype(np.float32)) for s in ((6, 32), (32, 16)))


def _aligned(array: np.ndarray) -> np.ndarray:
    room = np.zeros(array.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    found = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


def assert_product(found: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """``relu(a @ b)``, whichever order each library adds a product's terms in."""
    wide = a.astype(np.float64), b.astype(np.float64)
    bound = a.shape[1] * np.finfo(np.float32).eps * (np.abs(wide[0]) @ np.abs(wide[1]))
    error = np.abs(found - np.maximum(wide[0] @ wide[1], 0))
    assert (error <= bound).all(), f"off by {(error / bound).max():.3g} of the bound"


@pytest.fixture
def given():
    """The number of capsules that are out, without those that another test left."""
    gc.collect()
    before = len(dlpack._given)
    return lambda: len(dlpack._given) - before


class Seen:
    """A tensor that notes how it is asked; ``place`` is what it says of itself."""

    def __init__(self, array: np.ndarray, place: tuple[int, int] = (1, 0)) -> None:
        self.array, self.place, self.asked = array, place, []

    def __dlpack__(self, **options: Any) -> object:
        self.asked.append(options)
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.place


def addresses_of(model, monkeypatch) -> list[int]:
    """Where the launches of the next runs read and write."""
    found: list[int] = []
    plan = model._runner._plan
    point = type(plan).point

    def noted(self, step, argument, memory):
        found.append(memory.address)
        point(self, step, argument, memory)

    monkeypatch.setattr(type(plan), "point", noted)
    return found


def test_inputs_and_outputs_are_used_where_they_lie(model, monkeypatch):
    a, b = drawn()
    used = addresses_of(model, monkeypatch)
    given = Seen(a), Seen(b)
    out = model.on_device(*given)
    assert [x.asked for x in given] == [[{}], [{}]], "a CPU has no streams"
    seen = np.from_dlpack(out)
    assert used == [a.ctypes.data, b.ctypes.data, seen.ctypes.data]
    assert_product(seen, a, b)
    np.testing.assert_array_equal(seen, out.numpy())


def test_torch_takes_what_comes_back_and_gives_what_goes_in(model):
    torch = pytest.importorskip("torch")
    a, b = (torch.from_numpy(x) for x in drawn())
    out = model.on_device(a, b)
    seen = torch.from_dlpack(out)
    assert seen.data_ptr() == out.memory.address
    assert_product(seen.numpy(), a.numpy(), b.numpy())


def test_an_output_lives_as_long_as_anybody_holds_it(model, given):
    a, b = drawn()
    seen = np.from_dlpack(model.on_device(a, b))
    gc.collect()
    for _ in range(3):
        other = model.on_device(-a, b)
        assert other.memory.address != seen.ctypes.data
    assert_product(seen, a, b)
    at = seen.ctypes.data
    del seen, other
    gc.collect()
    assert given() == 0, "no capsule is out"
    held = [model.on_device(a, b) for _ in range(3)]
    assert at in {x.memory.address for x in held}, "it is used again"


def graphs_of(model, monkeypatch) -> list[int]:
    """One entry for each graph that is made from now on."""
    made: list[int] = []
    driver = model._engine.driver
    graph = driver.graph
    monkeypatch.setattr(
        driver, "graph", lambda launches, marks=None: made.append(1) or graph(launches, marks)
    )
    return made


def test_outputs_that_are_let_go_keep_the_graph(new_model, monkeypatch):
    a, b = drawn()
    new_model.on_device(a, b)
    made = graphs_of(new_model, monkeypatch)
    for _ in range(5):
        new_model.on_device(a, b)
    assert not made


def test_inputs_elsewhere_have_a_graph_when_they_come_again(new_model, monkeypatch):
    _, b = drawn()
    new_model.on_device(Seen(b[:6] @ b.T), Seen(b))
    places = [_aligned(np.full((6, 32), k, np.float32)) for k in range(1, 21)]
    made = graphs_of(new_model, monkeypatch)

    def check(a: np.ndarray) -> None:
        found = new_model.on_device(Seen(a), Seen(b)).numpy()
        assert_product(found, a, b)

    for a in places:
        check(a)
    assert not made, "each came once"
    for _ in range(3):
        for a in places[-2:]:
            check(a)
    assert len(made) == 2
    for a in places[:16]:
        check(a)
        check(places[-1])
    assert len(made) == 2, "one that is used stays"
    for a in places[:16]:
        check(a)
    check(places[-1])
    assert len(made) == 2, "graphs of long ago are let go"
    check(places[-1])
    assert len(made) == 3


def test_a_capsule_that_nobody_took_is_given_back(model, given):
    capsule = model.on_device(*drawn()).__dlpack__()
    assert given() == 1
    del capsule
    assert given() == 0


def test_numpy_is_copied_and_mixes_with_tensors(model):
    a, b = drawn()
    strided = np.asfortranarray(a)
    assert_product(model.on_device(strided, Seen(b)).numpy(), a, b)


def test_what_does_not_fit_is_one_clear_line(model):
    a, b = drawn()
    for given, kind, told in (
        (Seen(a[:5]), ShapeError, r"input 'a' has shape \(5, 32\), it must be \(6, 32\)"),
        (Seen(a.astype(np.float64)), DTypeError, "input 'a' has dtype f64, it must be f32"),
        (Seen(_aligned(np.zeros((12, 32), np.float32))[::2]), ShapeError, "is not contiguous"),
        (
            Seen(_aligned(np.zeros(200, np.float32))[1:193].reshape(6, 32)),
            ShapeError,
            "multiple of",
        ),
        (Seen(a.astype(np.complex64)), DTypeError, "DLPack's code 5, 64 bits and 1 lanes"),
    ):
        with pytest.raises(kind, match=told):
            model.on_device(given, b)


def test_a_tensor_on_another_device_is_one_clear_line(model):
    a, b = drawn()
    with pytest.raises((ShapeError, DTypeError), match="input 'a'"):
        model.on_device(Seen(a, (2, 0)), b)


def test_what_is_given_keeps_the_protocol(model):
    out = model.on_device(*drawn())
    assert out.__dlpack_device__() == (1, 0)
    for words in ({"stream": 1}, {"copy": True}, {"dl_device": (2, 0)}):
        with pytest.raises(BufferError, match="output of"):
            out.__dlpack__(**words)
    on_gpu = dlpack.DeviceTensor(out.memory, out.shape, out.dtype, (2, 0), "y")
    for stream in (None, -1, 1, 2, 0x7F00):
        on_gpu.__dlpack__(stream=stream)
    with pytest.raises(BufferError, match="y: stream 0: 1, 2, a handle, or -1"):
        on_gpu.__dlpack__(stream=0)


def test_a_stream_is_named_to_who_gives_a_tensor():
    """As a GPU's engine does: cuda-host has no streams, so it is told to have one."""

    class Engine:
        place, stream = (2, 3), 0x5EED

        def at(self, address, nbytes, owner):
            return address, nbytes, owner

    a, _ = drawn()
    given = Seen(a, (2, 3))
    found = dlpack.imported(given, Engine())
    assert given.asked == [{"stream": 0x5EED}]
    assert found.memory[:2] == (a.ctypes.data, a.nbytes)
    assert (found.shape, found.dtype) == ((6, 32), "f32")
    with pytest.raises(DeviceError, match=r"\(2, 1\) of DLPack is not \(2, 3\)"):
        dlpack.imported(Seen(a, (2, 1)), Engine())


def test_other_devices_say_what_to_do():
    a = np.ones(4, np.float32)
    model = tg.compile(lambda a: a + 1, a, device="cpu")
    with pytest.raises(DeviceError, match="device cpu: its memory is not shared; call the model"):
        model.on_device(a)
