"""Weights: drawn by name and seed, read from files, and refused with names when they do not fit."""

import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from tunegrad.errors import WeightsError
from tunegrad.frontend import (
    ParameterSpec,
    bf16_bits,
    check_weights,
    draw,
    load_weights,
    read_safetensors,
)

SPECS = tuple(
    ParameterSpec(n, s) for n, s in [("fc.weight", (3, 4)), ("fc.bias", (3,)), ("bn.weight", (5,))]
)


def given(**changes):
    weights = {p.name: np.ones(p.shape, np.float32) for p in SPECS}
    return {**weights, **{name.replace("__", "."): v for name, v in changes.items()}}


def refused(call, *messages):
    with pytest.raises(WeightsError) as caught:
        call()
    assert "\n" not in str(caught.value)
    for m in messages:
        assert m in str(caught.value)


def test_draw_depends_on_name_and_seed_only():
    one, other = draw(SPECS, 7), draw(SPECS[::-1][:2], 7)
    for name, array in other.items():
        np.testing.assert_array_equal(array, one[name])
    assert not np.array_equal(draw(SPECS, 8)["fc.bias"], one["fc.bias"])
    assert not np.array_equal(
        draw([ParameterSpec("b", (9,))])["b"], draw([ParameterSpec("c", (9,))])["c"]
    )


def test_draw_is_the_same_in_another_process():
    code = (
        "from tunegrad.frontend import ParameterSpec, draw\n"
        "import sys; sys.stdout.write(draw([ParameterSpec('fc.weight', (3, 4))], "
        "7)['fc.weight'].tobytes().hex())"
    )
    path = ":".join(sys.path)
    env = {"PYTHONPATH": path, "PYTHONHASHSEED": "3"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout == draw(SPECS, 7)["fc.weight"].tobytes().hex()


def test_draw_follows_the_distribution():
    normal = draw([ParameterSpec("n", (20000,), mean=2.0, spread=0.5)])["n"]
    uniform = draw([ParameterSpec("u", (20000,), mean=1.0, spread=0.2, law="uniform")])["u"]
    assert normal.mean() == pytest.approx(2.0, abs=0.02)
    assert normal.std() == pytest.approx(0.5, rel=0.03)
    assert 0.8 <= uniform.min() < 0.81
    assert 1.19 < uniform.max() <= 1.2


def test_weights_larger_than_the_machine_are_refused():
    parameters = [ParameterSpec("small", (2,)), ParameterSpec("huge.w", (2**62, 2))]
    with pytest.raises(WeightsError, match=r"huge\.w \[4611686018427387904, 2\] the largest"):
        draw(parameters)


def test_weights_come_in_the_order_of_the_parameters():
    assert list(check_weights(SPECS, dict(reversed(given().items())))) == [p.name for p in SPECS]


def test_batch_counters_are_ignored():
    assert set(check_weights(SPECS, given(bn__num_batches_tracked=np.int64(3)))) == {
        p.name for p in SPECS
    }


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_floats_of_another_width_are_converted(dtype):
    assert check_weights(SPECS, given(fc__bias=np.ones(3, dtype)))["fc.bias"].dtype == np.float32


def test_missing_weights_are_named_and_counted():
    refused(
        lambda: check_weights(SPECS, {}, "net"),
        "weights of net: 3 missing (fc.weight, fc.bias, bn.weight)",
    )


def test_only_the_first_few_are_named():
    extra = {f"x{i}": np.ones(1) for i in range(5)}
    refused(
        lambda: check_weights(SPECS, given(**extra)),
        "weights of model: 5 unexpected (x0, x1, x2 and 2 more)",
    )


def test_misshapen_weights_are_named_with_both_shapes():
    refused(
        lambda: check_weights(SPECS, given(fc__weight=np.ones((4, 3), np.float32))),
        "1 misshapen (fc.weight is float32 (4, 3), must be f32 (3, 4))",
    )


def test_integers_are_no_float_weights():
    refused(
        lambda: check_weights(SPECS, given(fc__bias=np.ones(3, np.int64))),
        "fc.bias is int64 (3,), must be f32 (3,)",
    )


def test_all_problems_are_told_at_once():
    weights = given(fc__weight=np.ones(2, np.float32), other=np.ones(1))
    del weights["fc.bias"]
    refused(
        lambda: check_weights(SPECS, weights),
        "1 missing (fc.bias); 1 unexpected (other); 1 misshapen (fc.weight",
    )


def test_what_is_no_array_is_refused():
    refused(
        lambda: check_weights(SPECS, given(fc__bias="three")), "weights: fc.bias is of type str"
    )


def test_safetensors_file_is_read(tmp_path):
    weights = draw(SPECS, 5)
    save_file(weights, tmp_path / "w.safetensors")
    loaded = load_weights(SPECS, tmp_path / "w.safetensors")
    for name, array in weights.items():
        np.testing.assert_array_equal(loaded[name], array)


def test_safetensors_file_in_bf16_is_read_as_f32(tmp_path):
    bits = bf16_bits(np.array([1.0, -2.5, 3.0]))
    header = b'{"a":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]}}'
    path = tmp_path / "w.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bits.tobytes())
    assert read_safetensors(path)["a"].tolist() == [1.0, -2.5, 3.0]


def test_safetensors_file_with_wrong_weights_names_the_file(tmp_path):
    path = tmp_path / "w.safetensors"
    save_file({"other": np.ones(1, np.float32)}, path)
    refused(
        lambda: load_weights(SPECS, path, owner="net"),
        f"weights of net in {path}: 3 missing (fc.weight",
    )


def test_absent_file_is_refused(tmp_path):
    path = tmp_path / "none"
    refused(lambda: load_weights(SPECS, path), f"weights file {path}: No such file or directory")


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04 something else", b"\xff" * 64], ids=["empty", "zip", "noise"]
)
def test_damaged_file_is_refused(tmp_path, content):
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    refused(lambda: read_safetensors(path), f"weights file {path} is not a safetensors file")


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ("[1, 1], [0, 4]; [1], [2, 6]", "b has bytes that another array has"),
        (f"[{','.join('1' * 70)}], [0, 4]", "a has the shape [1, 1"),
        (f"[{2**63}, 0], [0, 0]", "a has the shape [9223372036854775808, 0]"),
        (f"[{2**40}, {2**40}, 0], [0, 0]", "a has the shape [1099511627776"),
    ],
)
def test_arrays_that_can_not_be_are_refused(tmp_path, entries, why):
    """Arrays that lie unaligned are copied: a thousand over one another would take its memory."""
    parts = (e.split("], [") for e in entries.split("; "))
    header = ",".join(
        f'"{name}":{{"dtype":"F32","shape":{shape}],"data_offsets":[{at}}}'
        for name, (shape, at) in zip("ab", parts, strict=False)
    )
    path = tmp_path / "w.safetensors"
    path.write_bytes((len(header) + 2).to_bytes(8, "little") + f"{{{header}}}".encode() + bytes(8))
    refused(lambda: read_safetensors(path), f"weights file {path} is not a safetensors file", why)


def test_file_with_an_unknown_dtype_is_refused(tmp_path):
    header = b'{"a":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}}'
    path = tmp_path / "w.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\x00\x00")
    refused(lambda: read_safetensors(path), f"weights file {path}: a has dtype", "valid: F64, F32")
