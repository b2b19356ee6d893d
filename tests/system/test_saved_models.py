"""Models as files: what is loaded from one is what was saved; what is no such file is one line."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from safetensors.numpy import load_file

import tunegrad as tg
from tests.cover import each_once
from tests.opencl_device import opencl_device
from tunegrad.devices.host import facts
from tunegrad.errors import ConfigError, DeviceError, ModelError, UserError
from tunegrad.ir.fusion import VALIDATION
from tunegrad.models import encoder_layer, mlp, resnet18
from tunegrad.runtime.mapped import map_arrays, write_arrays

MODEL = mlp(sizes=(64, 48, 16))
X = np.random.default_rng(0).standard_normal((1, 64), np.float32)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "m.plan"
    tg.load(MODEL, store=False, threads=1).save(path)
    return path


def head_of(path: Path) -> dict[str, object]:
    _, about, _ = map_arrays(path)
    found: dict[str, object] = msgspec.json.decode(about["tunegrad"])
    return found


def written_with(path: Path, head: dict[str, object]) -> None:
    arrays, _, _ = map_arrays(path)
    kept = {name: a.copy() for name, a in arrays.items()}
    write_arrays(path, kept, {"tunegrad": msgspec.json.encode(head).decode()})


def lstm() -> tg.Model:
    """Steps that read views of one product, and state of a view's size."""
    layer = tg.nn.LSTM(8, 16, batch_first=True)
    layer.load(seed=0)
    return tg.Model.of_function("lstm", lambda x: layer(x)[0], [np.zeros((2, 6, 8), np.float32)])


MODELS: dict[str, Callable[[], tg.Model]] = {
    "mlp": lambda: MODEL,
    "lstm": lstm,
    "encoder": lambda: encoder_layer(sequence=16, hidden=32, heads=2, ffn=64),
    "resnet18": lambda: resnet18(image=32),
}


@pytest.mark.parametrize(("name", "dtype"), each_once(sorted(MODELS), ["bf16", "f32"]))
def test_a_saved_model_gives_what_it_gave(name: str, dtype: str, tmp_path: Path) -> None:
    threads = min(2, len(os.sched_getaffinity(0)))
    model = tg.load(MODELS[name](), store=False, threads=threads, dtype=dtype)
    arrays = model._drawn(0)
    model.save(tmp_path / "m.plan")
    again = tg.load(str(tmp_path / "m.plan"))
    for a, b in zip(model._runner.run(arrays), again._runner.run(arrays), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (again.name, again.dtype, again.threads) == (model.name, model.dtype, threads)
    assert again.report() == model.report()
    assert again.inputs == model.inputs
    again.save(tmp_path / "n.plan")
    assert (tmp_path / "n.plan").stat().st_size == (tmp_path / "m.plan").stat().st_size


SERVES = """
import sys
import numpy as np
import tunegrad as tg
from tunegrad.inference import process_compiler

model = tg.load(sys.argv[1])
counts = process_compiler().counts
total = model(np.ones((1, 64), np.float32)).sum()
print(counts.lowered + counts.compiled + counts.from_disk, total)
assert "tunegrad.opts.lowering" not in sys.modules, "a server lowers nothing"
"""


def test_a_model_is_pickled_as_it_is_saved_and_a_copy_is_the_model() -> None:
    model = tg.compile(lambda x: x.exp() + 1, X, store=False, threads=1)
    assert copy.copy(model) is model
    assert copy.deepcopy([model])[0] is model
    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer)([[0.0] * 64]).tolist())"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, input=pickle.dumps(model), capture_output=True, check=True)
    assert done.stdout.decode().strip() == str([[2.0] * 64])


def test_a_server_compiles_no_kernel_and_keeps_only_its_runtime(
    saved: Path, tmp_path: Path
) -> None:
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "none"), "XDG_DATA_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", SERVES, str(saved)], check=True, capture_output=True, text=True,
        env=env, cwd=Path(tg.__file__).parents[1],
    )  # fmt: skip
    made, total = done.stdout.split()
    assert made == "0"
    expected = tg.load(MODEL, store=False, threads=1)(np.ones((1, 64), np.float32)).sum()
    assert float(total) == pytest.approx(float(expected))
    kept = (tmp_path / "none" / "tunegrad" / "objects").iterdir()
    assert len(list(kept)) <= 2  # what LLVM said of this machine, and the threads' runtime


SERVE_SIZE = """
import sys
from importlib.machinery import PathFinder
import numpy as np

find = PathFinder.find_spec
THERE = {"tunegrad", "numpy", "msgspec", *sys.stdlib_module_names}

def serving(name, *more):
    return find(name, *more) if name.partition(".")[0] in THERE else None

PathFinder.find_spec = serving
sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in repr(f)]
import tunegrad as tg

try:
    print(float(tg.load(sys.argv[1])(np.ones((1, 64), np.float32)).sum()))
    print(*sorted({m.split(".")[1] for m in sys.modules if m.startswith("tunegrad.")}))
    tg.compile(lambda x: x * 2, np.ones(3, np.float32))
except tg.errors.DeviceError as error:
    print(error)
"""


def served(path: Path, cache: Path) -> list[str]:
    """Lines of a process in which numpy and msgspec alone are installed."""
    env = os.environ | {"XDG_CACHE_HOME": str(cache), "XDG_DATA_HOME": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", SERVE_SIZE, str(path)], check=True, capture_output=True,
        text=True, env=env, cwd=Path(tg.__file__).parents[1],
    )  # fmt: skip
    return done.stdout.splitlines()


LACKS = (
    "device cpu: kernels are compiled by LLVM; what runs without is a .plan that was saved for such"
    " a CPU: pip install llvmlite (No module named 'llvmlite')"
)


def test_a_saved_model_runs_without_llvm_and_what_is_compiled_says_what_to_install(
    saved: Path, tmp_path: Path
) -> None:
    total, packages, error = served(saved, tmp_path)
    assert float(total) == tg.load(str(saved))(np.ones((1, 64), np.float32)).sum()
    assert not set(packages.split()) & {"cli", "db", "explain", "regress", "search", "tuning"}
    assert error == LACKS


def test_a_file_without_the_code_of_threads_needs_llvm(saved: Path, tmp_path: Path) -> None:
    written_with(saved, {**head_of(saved), "runtime": ""})
    assert served(saved, tmp_path) == [LACKS]
    written_with(saved, {**head_of(saved), "runtime": "0" * 64})
    said = (
        "device cpu: the code of threads in this .plan is of another tunegrad: save the model "
        "again, or pip install llvmlite"
    )
    assert served(saved, tmp_path) == [said]


def test_linux_tells_of_every_feature_that_llvm_sees() -> None:
    """What code may use. A feature that Linux hides would keep a file from such a machine."""
    told = set(facts._told_features(Path("/proc/cpuinfo").read_text()))
    seen = {f for f in facts._asked().features if f.startswith("+")}
    hidden = {"+avxneconvert", "+avxvnniint8", "+avxvnniint16", "+cmpccxadd", "+prefetchi"}
    assert seen - told - hidden <= {"+kl", "+widekl", "+uintr", "+sgx", "+pconfig"}


def test_a_feature_that_linux_hides_and_no_compiler_uses_keeps_no_file_away() -> None:
    """Linux takes ``rdseed`` from Zen 5, whose processor says that it has it."""
    told = facts._told_features("processor : 0\nflags : fpu avx2 sse4_2\n\n")
    assert {"+rdseed", "+rdrnd", "+avx2", "+crc32"} <= set(told)
    assert "+avx512f" not in told


def test_constants_are_mapped_and_survive_another_save(saved: Path) -> None:
    first = tg.load(str(saved))
    before = first(X)
    constants = [m for m in first._constants._known.values() if hasattr(m, "bytes")]
    assert constants
    assert all(not m.bytes.flags.writeable for m in constants)
    tg.load(mlp(sizes=(64, 48, 16)), store=False, threads=1, seed=5).save(saved)
    np.testing.assert_array_equal(first(X), before)
    assert not np.array_equal(tg.load(str(saved))(X), before)


def test_the_library_of_the_format_reads_it(saved: Path) -> None:
    arrays, _, _ = map_arrays(saved)
    theirs = load_file(saved)
    assert arrays.keys() <= theirs.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, theirs[name])


def test_a_saved_model_on_an_opencl_device(tmp_path: Path) -> None:
    model = tg.load(MODEL, device=opencl_device().name, store=False)
    model.save(tmp_path / "m.plan")
    np.testing.assert_array_equal(tg.load(str(tmp_path / "m.plan"))(X), model(X))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"threads": 2}, "threads 2: model file .* was saved with 1"),
        ({"device": "opencl"}, "device 'opencl': model file .* was saved with cpu"),
        ({"dtype": "f16"}, "dtype 'f16': model file .* was saved with f32"),
        ({"weights": {}}, "weights .* was saved with its own"),
    ],
)
def test_what_a_file_says_can_not_be_asked_otherwise(
    saved: Path, more: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        tg.load(str(saved), **more)  # type: ignore[arg-type]


def test_a_file_for_another_machine_names_what_lacks(saved: Path) -> None:
    head = head_of(saved)
    written_with(saved, {**head, "features": [*head["features"], "+nothing"]})  # type: ignore[misc]
    with pytest.raises(DeviceError, match=r"is for .*; this machine is .* without \+nothing: load"):
        tg.load(str(saved))


def test_a_file_of_another_version_says_so(saved: Path) -> None:
    written_with(saved, {**head_of(saved), "version": 99})
    with pytest.raises(ModelError, match="has version 99; this tunegrad reads 2: save"):
        tg.load(str(saved))


def test_a_plan_that_was_validated_otherwise_is_named_and_stays_so(
    saved: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    head = head_of(saved)
    assert head["validated"] == VALIDATION
    again = tmp_path / "again.plan"
    tg.load(str(saved)).save(again)
    assert head_of(again)["validated"] == VALIDATION
    assert not caplog.records
    for before, text in (
        ({}, "(not at all)"),
        ({"validated": 1}, f"(by rules 1, not {VALIDATION})"),
    ):
        written_with(saved, {**{k: v for k, v in head.items() if k != "validated"}, **before})
        caplog.clear()
        tg.load(str(saved)).save(again)
        assert text in caplog.text
        assert head_of(again)["validated"] == before.get("validated", 0)


def test_a_file_with_one_flipped_bit_is_not_used(saved: Path) -> None:
    blob = bytearray(saved.read_bytes())
    header = 8 + int.from_bytes(blob[:8], "little")
    code = blob.index(b"\x7fELF") + 200
    drawn = np.random.default_rng(2).integers(header, len(blob), 200)
    for at in (code, len(blob) - 1, *map(int, drawn)):
        blob[at] ^= 1 << at % 8
        saved.write_bytes(blob)
        with pytest.raises(ModelError, match="is damaged: its bytes are not what was written"):
            tg.load(str(saved))
        blob[at] ^= 1 << at % 8
    saved.write_bytes(blob)
    tg.load(str(saved))


def test_a_damaged_file_is_one_line(saved: Path) -> None:
    blob = saved.read_bytes()
    rng = np.random.default_rng(1)
    length = int.from_bytes(blob[:8], "little")
    for _ in range(300):
        at = int(rng.integers(0, 8 + length))
        saved.write_bytes(blob[:at] + bytes([int(rng.integers(0, 256))]) + blob[at + 1 :])
        if saved.read_bytes() != blob:
            with pytest.raises(UserError):
                tg.load(str(saved))
    for cut in (0, 7, 8, 100, len(blob) - 1):
        saved.write_bytes(blob[:cut])
        with pytest.raises(ModelError, match="model file"):
            tg.load(str(saved))


def test_a_field_of_another_kind_is_one_line(saved: Path) -> None:
    head, blob = head_of(saved), saved.read_bytes()
    for name in head:
        for wrong in (None, 7.5, [], {}, "x"):
            if type(wrong) is type(head[name]) or wrong == head[name]:
                continue
            saved.write_bytes(blob)
            written_with(saved, {**head, name: wrong})
            with pytest.raises(ModelError, match="model file"):
                tg.load(str(saved))


def test_a_view_outside_of_its_buffer_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "m.plan"
    tg.load(lstm(), store=False, threads=1).save(path)
    head = head_of(path)
    view = next(b for b in head["buffers"] if b["role"] == "view")  # type: ignore[attr-defined]
    for field, wrong in (("start", 1 << 40), ("start", -4), ("base", 10_000), ("base", None)):
        kept, view[field] = view[field], wrong
        written_with(path, head)
        with pytest.raises(ModelError, match="is damaged"):
            tg.load(str(path))
        view[field] = kept


def test_a_forged_header_is_one_line(saved: Path) -> None:
    """Its digest is right: buffers that are not there, a pack that no kernel has, nested lists."""
    head, blob = head_of(saved), saved.read_bytes()
    places = [{"buffer": 0, "kernel": "k", "pack": "none"}]
    constant = head["constants"][0]  # type: ignore[index]
    for field, wrong in (
        ("starts", [-(2**63)]), ("ends", [1000]), ("starts", [-1]), ("over", [[0, 1000]]),
        ("starts", []), ("inputs", [{"name": "other", "shape": [1], "dtype": "f32"}]),
        ("constants", places), ("constants", [{**constant, "pack": "none"}]),
    ):  # fmt: skip
        saved.write_bytes(blob)
        written_with(saved, {**head, field: wrong})
        with pytest.raises(ModelError, match="is damaged"):
            tg.load(str(saved))
    saved.write_bytes(blob)
    arrays = {name: a.copy() for name, a in map_arrays(saved)[0].items()}
    write_arrays(saved, arrays, {"tunegrad": '{"a":' * 50_000})
    with pytest.raises(ModelError, match="holds no saved model"):
        tg.load(str(saved))


def test_names_and_places_are_checked(saved: Path, tmp_path: Path) -> None:
    model = tg.load(MODEL, store=False, threads=1)
    with pytest.raises(ModelError, match=r"its name must end with \.plan"):
        model.save(tmp_path / "m.bin")
    with pytest.raises(ModelError, match="No such file"):
        model.save(tmp_path / "none" / "m.plan")
    with pytest.raises(ModelError, match="No such file"):
        tg.load(str(tmp_path / "none.plan"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.plan"]


def test_a_full_disk_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(ModelError, match="No space left on device"):
        tg.load(MODEL, store=False, threads=1, seed=2).save(saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]
