"""Models in bytes: what was calibrated, its file, and the model that it makes of another one.

    resnet18.int8.json    {"kind": "tunegrad int8 1",
                           "model": "resnet18[batch=1]",
                           "method": "minmax",
                           "products": [{"name": "fc.weight", "digest": "9f..", "tensor": 0}, ..],
                           "tensors": [{"step": 0.0174, "zero": 114, "factors": []}, ..]}

The file is data, and holds no weights: those of the model that it names, by its digests. A product
that stays in f32 has the tensor -1.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, cast

import msgspec
import numpy as np
from msgspec import Meta

from tunegrad.config import CALIBRATED, check_package, resolve_model
from tunegrad.errors import ModelError, WeightsError
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.graph import ConstData, Node
from tunegrad.ir.rewrites import Product, Scale, find_products, quantised

from .model import Model, model_of_spec

_KIND = "tunegrad int8 1"
_LONGEST = 64 << 20
_DIGEST = 32
_FILES = (".onnx", ".toml")


class CalibratedProduct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A product of a model: its constant, and which of the tensors it multiplies; -1 in f32."""

    name: str
    digest: str
    tensor: Annotated[int, Meta(ge=-1)]


class _Tensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    step: Annotated[float, Meta(gt=0.0, le=3e38)]
    zero: Annotated[int, Meta(ge=0, le=255)]
    factors: tuple[Annotated[float, Meta(gt=0.0, le=3e38)], ...] = ()


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The bytes of a model: its products in order, and the scales of the tensors they multiply.

    ``model`` is the text that names the model, empty where it is none of a name. A file of a model
    is named from the folder of the calibration's own file there, and as this process sees it here.
    """

    kind: str
    model: str
    method: str
    products: tuple[CalibratedProduct, ...]
    tensors: tuple[_Tensor, ...]

    @staticmethod
    def of(
        name: str,
        method: str,
        products: Sequence[Product],
        scales: Mapping[Node, Scale],
        kept: Sequence[int] = (),
    ) -> Calibration:
        """The calibration of a model's products; those at the places ``kept`` stay in f32."""
        bytes_of = [p.tensor for i, p in enumerate(products) if i not in kept]
        places = {t: i for i, t in enumerate(dict.fromkeys(bytes_of))}
        listed = tuple(
            CalibratedProduct(p.name, _digest(p), -1 if i in kept else places[p.tensor])
            for i, p in enumerate(products)
        )
        found = (scales[t] for t in places)
        tensors = tuple(_Tensor(s.step, s.zero, s.factors) for s in found)
        return Calibration(_KIND, name, method, listed, tensors)

    def rewrite(self, outputs: tuple[Node, ...], name: str) -> tuple[Node, ...]:
        """The graph of the model with its products of bytes.

        Raises WeightsError where the graph has other products, or these have other weights.
        """
        folded = fold_constants(outputs)
        products = find_products(folded)
        if len(products) != len(self.products):
            raise WeightsError(
                f"model {name}: {len(self.products)} products were calibrated, and the model has "
                f"{len(products)}; calibrate it again"
            )
        scales: dict[Node, Scale] = {}
        kept: set[Node] = set()
        for p, said in zip(products, self.products, strict=True):
            if _digest(p) != said.digest:
                raise WeightsError(
                    f"model {name}: {p.name or 'a constant'} of shape {p.weight.shape} is another "
                    f"one than {said.name or 'the constant'} that was calibrated; give the weights "
                    "(or the seed) of then, or calibrate it again"
                )
            if said.tensor < 0:
                kept.add(p.sum)
                continue
            t = self.tensors[said.tensor]
            if t.factors and (p.along is None or len(t.factors) != p.tensor.shape[p.along[0]]):
                raise WeightsError(
                    f"model {name}: {len(t.factors)} factors of {said.name} do not fit a tensor of "
                    f"shape {p.tensor.shape}; calibrate it again"
                )
            scales[p.tensor] = Scale(t.step, t.zero, t.factors)
        return quantised(folded, products, scales, kept)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write and replace the file (a link's target). ModelError where that can not be."""
        place, target = Path(path), Path(os.path.realpath(path))
        if target.exists() and not target.is_file():
            raise ModelError(f"file {place}: it is no regular file")
        part = target.with_name(f"{target.name}.part{os.getpid()}")
        said = msgspec.structs.replace(self, model=_seen_from(place.parent, self.model))
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(msgspec.json.format(msgspec.json.encode(said), indent=1))
            part.replace(target)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise ModelError(f"file {place}: {error.strerror or error}") from None


def _digest(p: Product) -> str:
    """The first half of the SHA-256 of a constant's numbers."""
    array = np.ascontiguousarray(cast(ConstData, p.weight.arg).array)
    hashed = hashlib.sha256(str(array.shape).encode())
    hashed.update(array.reshape(-1).view(np.uint8).data)
    return hashed.hexdigest()[:_DIGEST]


def quantised_model(base: Model, calibration: Calibration) -> Model:
    """A model with its products of bytes, whose first call is compared with nothing."""
    name = f"{base.name} int8"
    return replace(
        base, name=name, first_call=None,
        rewrite=partial(calibration.rewrite, name=name),
    )  # fmt: skip


def read_calibration(path: str | os.PathLike[str]) -> Calibration:
    """Read a file that ``Calibration.write`` wrote.

    Raises ModelError, naming the field, for one that is none.
    """
    try:
        if not Path(path).is_file() and Path(path).exists():  # a pipe is never at its end
            raise ModelError(f"file {path}: it is no regular file")
        if Path(path).stat().st_size > _LONGEST:
            raise ModelError(f"file {path}: it is longer than {_LONGEST >> 20} MB")
        found = msgspec.json.decode(Path(path).read_bytes(), type=Calibration)
    except OSError as error:
        raise ModelError(f"file {path}: {error.strerror or error}") from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ModelError(f"file {path} is no calibration of a model in bytes: {error}") from None
    if found.kind != _KIND:
        raise ModelError(f"file {path}: its kind is {found.kind!r:.60}, not {_KIND!r}")
    most = max((p.tensor for p in found.products), default=-1)
    if most >= len(found.tensors):
        raise ModelError(f"file {path}: tensor {most} is none of its {len(found.tensors)}")
    return msgspec.structs.replace(found, model=_beside(Path(path).parent, found.model))


def model(path: str) -> Model:
    """The model of a file of a calibration: that which it names, with products of bytes.

    Raises ModelError for a file that is none, or names no model; a function that it names must be
    of a package that model files may name.
    """
    found = read_calibration(path)
    if not found.model:
        raise ModelError(
            f"file {path}: it is of a model that has no name; tg.quantize(model, {path!r}) applies "
            "it"
        )
    if found.model.partition("[")[0].endswith(CALIBRATED):
        raise ModelError(f"file {path}: its model {found.model!r:.80} is a calibration itself")
    check_package(found.model, path)
    return quantised_model(model_of_spec(resolve_model(found.model)), found)


def _seen_from(folder: Path, text: str) -> str:
    """The name of a model; that of a file as seen from a folder."""
    base, bracket, said = text.partition("[")
    if not base.endswith(_FILES):
        return text
    return os.path.relpath(Path(base).expanduser(), folder) + bracket + said


def _beside(folder: Path, text: str) -> str:
    """The name of a model; that of a file as seen from here, by how a folder sees it."""
    base = text.partition("[")[0]
    is_file = base.endswith(_FILES) and not Path(base).is_absolute()
    return str(folder / text) if is_file else text
