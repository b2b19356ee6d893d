"""Whole bf16 models on tile registers, for which plain code stands, on two threads."""

import numpy as np
import pytest

from tests.amx_twins import TiledCpu
from tests.tile_kernels import tiled
from tunegrad import config
from tunegrad.frontend import model_of_spec
from tunegrad.inference import compiled_choice, process_compiler
from tunegrad.ir.fusion import schedule
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.opts import Space
from tunegrad.planning import prepared
from tunegrad.runtime import Runner


@pytest.mark.parametrize(
    ("name", "products", "allowed"),
    [("mlp[batch=32]", 2, 1e-4), ("resnet18[image=64]", 10, 5e-3), ("encoder", 6, 8e-3)],
)
def test_a_model_computes_what_its_graph_says(name, products, allowed):
    """Errors are those of roundings to bf16 that tip over (docs/NUMERICS.md)."""
    model, device = model_of_spec(config.resolve_model(name)), TiledCpu(tiled(2))
    outputs = tuple(t.node for t in model.build(model.weights(None, 0)))
    nodes = prepared(outputs, "contract", device.target, "bf16")
    plan, kernels = schedule(nodes), [k for k, _ in schedule(nodes).kernels().values()]
    defaults = [Space(k, device.target).defaults()[0].text for k in kernels]
    assert sum("tensorcore" in text for text in defaults) >= products
    rng = np.random.default_rng(0)
    values = {i.name: rng.standard_normal(i.shape).astype(np.float32) for i in model.inputs}
    with device.open() as engine:
        here = device.fingerprint()
        codes = {
            k.key: compiled_choice(k, engine, here, None, "default", process_compiler())[1]
            for k in kernels
        }
        (got,) = Runner(plan, codes, engine).run(values)
    (want,) = evaluate(nodes, values)
    assert np.abs(got - want).max() <= allowed * np.abs(want).max()
