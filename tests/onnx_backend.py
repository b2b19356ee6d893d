"""tunegrad as a backend of ``onnx.backend.test``, ONNX's own conformance suite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.backend.base import Backend, BackendRep

import tunegrad as tg
from tunegrad.errors import ModelError
from tunegrad.frontend.onnx.importer import model_of_proto

__all__ = ["TunegradBackend", "outcome"]


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


class _Rep(BackendRep):  # type: ignore[misc]
    def __init__(self, proto: Any) -> None:
        self._proto = proto

    def run(self, inputs: Sequence[Any], **_: Any) -> tuple[Any, ...]:
        """Loaded for the shapes of these inputs: the suite leaves some open."""
        names = {t.name for t in self._proto.graph.initializer}
        given = [i for i in self._proto.graph.input if i.name not in names]
        for info, value in zip(given, inputs, strict=True):
            dims = info.type.tensor_type.shape
            del dims.dim[:]
            for extent in _array(value).shape:
                dims.dim.add().dim_value = extent
        inputs = [_array(x) for x in inputs]
        try:
            return self._run(self._proto, inputs)
        except ModelError as error:
            if "must be known" not in str(error):
                raise
        # The suite gives axes and shapes as inputs; here they are constants of the model.
        fixed = ModelProto()
        fixed.CopyFrom(self._proto)
        kept = []
        for info, value in zip(given, inputs, strict=True):
            if info is not given[0] or value.dtype.kind == "i":
                fixed.graph.initializer.append(numpy_helper.from_array(value, info.name))
            else:
                kept.append(value)
        return self._run(fixed, kept)

    def _run(self, proto: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
        loaded = tg.load(model_of_proto(proto, "case"), store=False, threads=1)
        bits = [x.view(np.uint16) if x.dtype.name == "bfloat16" else x for x in inputs]
        out = loaded(*bits)
        return out if isinstance(out, tuple) else (out,)


class TunegradBackend(Backend):  # type: ignore[misc]
    """See the module."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **_: Any) -> _Rep:
        return _Rep(model)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


def outcome(case: Any) -> str:
    """'' where a case of the suite passes, else why not, in one line."""
    rep = TunegradBackend.prepare(case.model)
    for inputs, outputs in case.data_sets:
        try:
            found = rep.run(inputs)
        except Exception as error:  # noqa: BLE001  # a failed case is one line
            return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        for a, b in zip(found, outputs, strict=False):
            b = _array(b)
            if b.dtype.name == "bfloat16":
                a, b = (x.view(b.dtype).astype(np.float32) for x in (a, b))
            if a.shape != b.shape or a.dtype != b.dtype:
                return f"wrong: {a.dtype}{a.shape} for {b.dtype}{b.shape}"
            if not np.allclose(a, b, case.rtol, max(case.atol, 1e-6), equal_nan=True):
                off = np.abs(a.astype(np.float64) - b.astype(np.float64))
                return f"wrong: off by {np.max(off)}"
    return ""
