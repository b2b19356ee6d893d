"""What a kernel's origin holds, and which layers of a model its kernels come from."""

from __future__ import annotations

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.config import resolve_settings
from tunegrad.frontend import InputSpec, Model, Tensor
from tunegrad.frontend.nn import Linear, Module
from tunegrad.ir.fusion import layers_of
from tunegrad.tuning.workload import Workload, workload_of, workload_of_function, workload_of_spec


def named(model: str) -> Workload:
    return workload_of_spec(resolve_settings(model).model)


def layers(work: Workload) -> dict[str, tuple[str, ...]]:
    found = layers_of(work.plan)
    return {use.name: found[use.key] for use in work.kernels}


def test_origin_holds_operations_constants_and_inputs() -> None:
    first = named("mlp").kernels[0].kernel
    assert {"mul", "reduce", "max", "add"} <= set(first.origin)
    assert first.origin[-3:] == ("layers.0.weight", "layers.0.bias", "x (input)")


def test_origin_of_a_function_names_its_arguments() -> None:
    a = np.ones((4, 4), np.float32)
    work = workload_of_function(lambda left, right: (left @ right).relu(), (a, a))
    assert work.kernels[0].kernel.origin[-2:] == ("left (input)", "right (input)")
    assert layers(work) == {"matmul 4x4x4 +relu": ("left+right",)}


def test_origin_is_no_part_of_a_kernels_key() -> None:
    a = np.ones((4, 4), np.float32)
    works = [
        workload_of_function(f, (a, a))
        for f in (lambda left, right: left @ right, lambda x, y: x @ y)
    ]
    assert works[0].kernels[0].key == works[1].kernels[0].key
    assert works[0].kernels[0].kernel.origin != works[1].kernels[0].kernel.origin


def test_layers_of_a_network_are_its_modules() -> None:
    found = layers(named("resnet18[image=64]"))
    assert ("conv1+bn1",) in found.values()
    assert ("layer4.0.downsample.0+1",) in found.values()
    assert ("after conv1+bn1",) in found.values()  # its pooling has no parameters
    assert ("fc",) in found.values()


def test_kernel_of_several_layers_has_all_of_them() -> None:
    found = layers(named("encoder[sequence=16,hidden=32,heads=2,ffn=64]"))
    assert ("query", "key", "value") in found.values()
    assert ("norm1", "norm2") in found.values()
    assert found["softmax 2x16x16"] == ("after query, key",)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_layers_survive_narrowing_and_folding(dtype: str) -> None:
    work = workload_of_spec(resolve_settings("mlp").model, dtype=dtype)  # type: ignore[arg-type]
    said = {layer for found in layers_of(work.plan).values() for layer in found}
    assert {"layers.0", "layers.1", "layers.2"} <= said


class _Two(Module):
    def __init__(self) -> None:
        self.parts = [Linear(8, 8), Linear(8, 8)]

    def __call__(self, x: Tensor) -> Tensor:
        return self.parts[1](self.parts[0](x).softmax(-1))


def test_modules_of_a_users_own_model_are_named() -> None:
    model = Model.of("two", _Two, (InputSpec("x", (4, 8)),))
    found = layers(workload_of(model, "two", 0))  # two layers of one shape are one kernel
    assert set(found.values()) == {("parts.0", "parts.1"), ("after parts.0",)}


def test_loaded_model_says_where_its_kernels_come_from() -> None:
    rows = tg.load("mlp", device="cpu", threads=1, store=False).report()
    assert [row.layers for row in rows] == [("layers.0",), ("layers.1",), ("layers.2",)]
