"""The default schedule of every kernel of whole models is right, on all sets of inputs that
candidates are held to: what a tune starts from, and what runs where nothing is stored. So are those
of the variants that are expected to be faster.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tunegrad.compiling import HOOKS, Payload
from tunegrad.config import resolve_settings
from tunegrad.devices import Candidate, DeviceMeasurer, host_device
from tunegrad.frontend import as_model
from tunegrad.opts import Space
from tunegrad.planning import pick_variants
from tunegrad.trial import Policy, Status
from tunegrad.tuning.workload import Workload, workload_of, workload_of_spec

THREADS = 2
ONCE = Policy(min_samples=1, max_samples=1, budget_s=1e-3, timeout_s=60.0)
BUILT_IN = ("mlp", "encoder", "resnet18", "resnet50")
PLAIN_TORCH = ("mobilenet_v2", "unet", "vit_s", "bert_6", "llama_block", "lstm")
LIGHT_ONNX = ("resnet50", "squeezenet", "shufflenet", "densenet121", "inception_v1", "inception_v2",
              "bvlc_alexnet", "vgg19", "zfnet512")  # fmt: skip


def named(model: str) -> Workload:
    """As a command resolves its name."""
    return workload_of_spec(resolve_settings(model).model, target=host_device(THREADS).target)


def built_in(name: str, _: Path) -> Workload:
    return named(name)


def plain_torch(name: str, _: Path) -> Workload:
    pytest.importorskip("torch", reason="no torch")
    from tests.torch_zoo import ZOO

    model = as_model(ZOO[name](full=True))
    return workload_of(model, model.name, 0, target=host_device(THREADS).target)


def light_onnx(name: str, folder: Path) -> Workload:
    pytest.importorskip("onnxruntime", reason="no onnxruntime, which the benchmark needs")
    onnx = pytest.importorskip("onnx", reason="no onnx")
    from benchmarks.onnx_light import with_weights

    light = Path(onnx.__file__).parent / f"backend/test/data/light/light_{name}.onnx"
    onnx.save(with_weights(onnx.load(light)), folder / f"{name}.onnx")
    return named(str(folder / f"{name}.onnx"))


CASES = [
    pytest.param(partial(of, name), id=f"{of.__name__}-{name}")
    for of, names in ((built_in, BUILT_IN), (plain_torch, PLAIN_TORCH), (light_onnx, LIGHT_ONNX))
    for name in names
]


@pytest.mark.slow
@pytest.mark.parametrize("made", CASES)
def test_default_schedules_of_a_model_are_right(
    made: Callable[[Path], Workload], tmp_path: Path
) -> None:
    work, device = made(tmp_path), host_device(THREADS)
    here = device.fingerprint()
    picked, _ = pick_variants(work.plan, device.target, here, None, "contract")
    kernels = {key: kernel for p in (work.plan, picked) for key, (kernel, _) in p.kernels().items()}
    wrong = {}
    with DeviceMeasurer(device, HOOKS) as measurer:
        for key, kernel in kernels.items():
            (text, *_) = (s.text for s in Space(kernel, device.target).defaults())
            candidate = Candidate(key, Payload(kernel, text, device))
            (outcome,) = measurer.measure([candidate], ONCE)
            assert outcome is not None
            if outcome.measurement.status is not Status.OK:
                wrong[kernel.name] = f"{outcome.measurement.status}: {outcome.measurement.error}"
    assert not wrong
    assert kernels
