"""Batches that do not fit a model are errors of one line, which name the batch or the file."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.errors import ConfigError, ModelError
from tunegrad.frontend.calibrated import Calibration, read_calibration
from tunegrad.inference import batches
from tunegrad.inference.batches import Batches
from tunegrad.runtime import Argument

_X = Argument("x", (2, 8), tg.f32)
_Y = Argument("ids", (2,), tg.i64)


def _good(n: int = 2) -> np.ndarray:
    return np.ones((n, 8), np.float32)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "there are none"),
        (3, "neither a folder"),
        ([_good(3)], "several times as many rows"),
        ([np.ones((2, 9), np.float32)], "shape (2, 9)"),
        ([(_good(), _good())], "2 arrays, and the model has 1 inputs: x"),
        ([{"y": _good()}], "arrays y; the model's inputs are x"),
        ([{f"y{i}\n": _good() for i in range(900)}], "... (900 of them); the model's inputs are x"),
        ([_good(), _good() * np.inf], "batch 1: array x has numbers that are not finite"),
        ([_good().astype(np.int64)], "array x is int64"),
    ],
)
def test_a_batch_that_does_not_fit(given: Any, said: str) -> None:
    with pytest.raises(ModelError) as caught:
        Batches(given, [_X])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_hold_no_arrays(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    objects = tmp_path / "objects.npz"
    np.savez(objects, x=np.array([{}], object))
    text = tmp_path / "text.npz"
    text.write_text("no zip")
    cut = tmp_path / "cut.npy"
    np.save(cut, _good())
    cut.write_bytes(cut.read_bytes()[:100])
    pipes = tmp_path / "pipes"
    pipes.mkdir()
    os.mkfifo(pipes / "a.npz")
    for path, said in (
        (empty, "there are none in"),
        (pipes, "it is no regular file"),
        (objects, "Object arrays cannot be loaded"),
        (text, "holds no arrays"),
        (cut, "holds no arrays"),
        (tmp_path / "none.npz", "no such folder or file"),
        (tmp_path, None),
    ):
        with pytest.raises(ModelError) as caught:
            Batches(path, [_X])
        assert said is None or said in str(caught.value)


@pytest.mark.parametrize(
    "shape", [f"({10**14}, 8)", "(-2, 8)", f"({2**62}, 8)", "(2, 8", "((2, 8)"]
)
def test_a_file_that_claims_another_size_than_it_has(tmp_path: Path, shape: str) -> None:
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}".ljust(127) + "\n"
    npy = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode()
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
        file.writestr("x.npy", npy)
    (tmp_path / "x.npy").write_bytes(npy)
    for name in ("x.npz", "x.npy"):
        with pytest.raises(ModelError, match="holds no arrays") as caught:
            Batches(tmp_path / name, [_X])
        assert "\n" not in str(caught.value)


def test_an_archive_of_zeros_is_not_unpacked(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(batches, "_LARGEST", 10_000)
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((2000, 8), np.float32))
    with pytest.raises(ModelError, match="64,128 bytes in a file of a hundredth"):
        Batches(tmp_path / "x.npz", [_X])
    np.savez(tmp_path / "y.npz", x=np.zeros((2000, 8), np.float32))
    assert len(Batches(tmp_path / "y.npz", [_X])) == 1000


def test_of_one_batch_alone_none_is_held_out() -> None:
    w = np.eye(8, 4, dtype=np.float32)
    for count, held in ((1, 0), (2, 1)):
        made = tg.quantize((lambda x: x @ w, [_good()]), [_good()] * count, store=False, threads=1)
        assert (made.report.batches, made.report.held_out) == (1, held)
        assert made.report.deviation is not None


def test_rows_of_a_file_are_batches_in_order(tmp_path: Path) -> None:
    x = np.arange(80, dtype=np.float32).reshape(10, 8)
    ids = np.arange(10)
    np.savez(tmp_path / "b.npz", x=x[4:], ids=ids[4:])
    np.savez(tmp_path / "a.npz", x[:4], ids[:4])  # arr_0, arr_1
    found = list(Batches(tmp_path, [_X, _Y]))
    np.testing.assert_array_equal(np.concatenate([b["x"] for b in found]), x)
    np.testing.assert_array_equal(np.concatenate([b["ids"] for b in found]), ids)
    assert [len(b["x"]) for b in found] == [2] * 5


def test_integers_of_another_width_are_taken_where_they_fit() -> None:
    ids = Argument("ids", (2,), tg.i8)
    (batch,) = Batches([np.array([1, -2])], [ids])
    assert batch["ids"].dtype == np.int8
    with pytest.raises(ModelError, match="array ids is int64"):
        Batches([np.array([1, 300])], [ids])


def test_a_model_that_writes_to_its_input_is_an_error() -> None:
    w = np.ones((8, 4), np.float32)

    def step(x: tg.Tensor) -> tg.Tensor:
        x += 1.0
        return x @ w

    with pytest.raises(ModelError, match="writes to its inputs"):
        tg.quantize((step, [_good()]), [_good()], store=False)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9])
def test_every_fourth_batch_is_held_out(count: int) -> None:
    found = Batches([_good() * i for i in range(count)], [_X])
    used, held = ([int(b["x"][0, 0]) for b in found.part(h)] for h in (False, True))
    assert (len(used), len(held)) == (found.count(False), found.count(True))
    if count == 1:
        assert used == held == [0]
    else:
        assert sorted(used + held) == list(range(count))
        assert held == [i for i in range(count) if i % 4 == 3] if count >= 4 else [count - 1]


@pytest.mark.parametrize(
    "options",
    [
        {"method": "best"},
        {"percentile": 10.0},
        {"percentile": "high"},
        {"smooth": "0.5"},
        {"max_error": [0.1]},
        {"keep": [3]},
        {"keep": "z"},
        {"smooth": 1.5},
        {"max_error": -1.0},
        {"keep": ["z"]},
    ],
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    w = np.ones((8, 4), np.float32)
    with pytest.raises(ConfigError):
        tg.quantize((lambda x: x @ w, [_good()]), [_good()], store=False, threads=1, **options)


def test_a_model_without_products_is_an_error() -> None:
    with pytest.raises(ModelError, match="nothing to quantise"):
        tg.quantize((lambda x: x.relu(), [_good()]), [_good()], store=False)


def test_a_calibration_stays_behind_its_link_and_no_pipe_is_waited_for(tmp_path: Path) -> None:
    path, link, pipe = (tmp_path / f"{n}.int8.json" for n in ("model", "newest", "pipe"))
    Calibration.of("", "minmax", [], {}).write(path)
    link.symlink_to(path.name)
    Calibration.of("", "mse", [], {}).write(link)
    assert link.is_symlink()
    assert read_calibration(path).method == "mse"
    os.mkfifo(pipe)
    for use in (read_calibration, Calibration.of("", "mse", [], {}).write):
        with pytest.raises(ModelError, match="no regular file"):
            use(pipe)
    assert pipe.is_fifo()
