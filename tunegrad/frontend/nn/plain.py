"""Layers without weights: a function of ``torch.nn.functional`` and its arguments, kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from .. import functional as F  # noqa: N812 - its name in the field
from .. import functions
from ..tensor import Tensor
from .module import Module

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "SELU", "AdaptiveAvgPool1d", "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d",
    "AlphaDropout", "AvgPool1d", "AvgPool2d", "AvgPool3d", "BCELoss", "BCEWithLogitsLoss",
    "ChannelShuffle", "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d",
    "ConstantPad2d", "ConstantPad3d", "CosineSimilarity", "CrossEntropyLoss", "Dropout",
    "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout", "Flatten", "Fold",
    "Hardshrink", "Hardsigmoid",
    "Hardswish", "Hardtanh", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss",
    "LPPool1d", "LPPool2d", "LeakyReLU", "LocalResponseNorm", "LogSigmoid", "LogSoftmax",
    "MSELoss", "MaxPool1d", "MaxPool2d", "MaxPool3d", "Mish", "NLLLoss", "PairwiseDistance",
    "PixelShuffle", "PixelUnshuffle", "PoissonNLLLoss", "RReLU", "ReLU", "ReLU6",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d",
    "ReplicationPad2d", "ReplicationPad3d", "SiLU", "Sigmoid", "SmoothL1Loss", "SoftMarginLoss",
    "Softmax", "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink",
    "Threshold", "TripletMarginLoss", "Unflatten", "Unfold", "Upsample", "ZeroPad1d",
    "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip

_NEEDED = ...
_REDUCED = {"size_average": None, "reduce": None, "reduction": "mean"}


class Plain(Module):
    """``name(*arguments)(x)`` is ``function(x, *arguments)``."""

    function: ClassVar[Callable[..., Any]]
    arguments: ClassVar[dict[str, Any]]
    """By name, in PyTorch's order, with defaults; ``...`` where there is none."""

    def __init__(self, *given: Any, **named: Any) -> None:
        name, known = type(self).__name__, type(self).arguments
        if len(given) > len(known):
            raise TypeError(f"{name}: takes {len(known)} arguments, {len(given)} were given")
        options = dict(zip(known, given, strict=False))
        for word, value in named.items():
            if word not in known:
                valid = ", ".join(known) or "none"
                raise TypeError(f"{name}: no argument {word!r}; valid: {valid}")
            if word in options:
                raise TypeError(f"{name}: {word!r} is given twice")
            options[word] = value
        missing = [w for w, default in known.items() if default is _NEEDED and w not in options]
        if missing:
            raise TypeError(f"{name}: {', '.join(missing)} must be given")
        self.options = {**known, **options}

    def forward(self, *inputs: Tensor) -> Any:
        """The function of the inputs."""
        return type(self).function(
            *inputs, **{k: v for k, v in self.options.items() if k not in _IGNORED}
        )

    def __repr__(self) -> str:
        changed = (f"{k}={v!r}" for k, v in self.options.items() if v != type(self).arguments[k])
        return f"{type(self).__name__}({', '.join(changed)})"


_IGNORED = ("inplace", "size_average", "reduce")
"""Arguments that say nothing here: in place or not, and two old words of losses."""


def _plain(name: str, of: Callable[..., Any], arguments: dict[str, Any]) -> type[Plain]:
    """The layer of this name. ``arguments`` are those of ``Plain``."""
    doc = f"``{of.__name__}`` as a layer."
    body = {"function": staticmethod(of), "arguments": arguments, "__doc__": doc}
    return type(name, (Plain,), {**body, "__module__": __name__})


class Dropping(Plain):
    """``function(x, p, training)``: numbers are dropped in ``train()``."""

    def forward(self, *inputs: Tensor) -> Any:
        """The input, and in ``train()`` what is left of it."""
        return type(self).function(*inputs, self.options["p"], self.training)


def _dropping(name: str, of: Callable[..., Any]) -> type[Plain]:
    doc = f"``{of.__name__}`` as a layer, which drops in ``train()``."
    body = {"function": staticmethod(of), "arguments": {"p": 0.5, **_IN}, "__doc__": doc}
    return type(name, (Dropping,), {**body, "__module__": __name__})


_IN = {"inplace": False}
_POOL = {"kernel_size": _NEEDED, "stride": None, "padding": 0}
_MAX = {**_POOL, "dilation": 1, "return_indices": False, "ceil_mode": False}
_AVG = {**_POOL, "ceil_mode": False, "count_include_pad": True}
_LP = {"norm_type": _NEEDED, "kernel_size": _NEEDED, "stride": None, "ceil_mode": False}
_WINDOWS = {"kernel_size": _NEEDED, "dilation": 1, "padding": 0, "stride": 1}
_OUT = {"output_size": _NEEDED}

ReLU = _plain("ReLU", F.relu, _IN)
ReLU6 = _plain("ReLU6", F.relu6, _IN)
LeakyReLU = _plain("LeakyReLU", F.leaky_relu, {"negative_slope": 0.01, **_IN})
RReLU = _plain("RReLU", F.rrelu, {"lower": 1 / 8, "upper": 1 / 3, **_IN})
ELU = _plain("ELU", F.elu, {"alpha": 1.0, **_IN})
SELU = _plain("SELU", F.selu, _IN)
CELU = _plain("CELU", F.celu, {"alpha": 1.0, **_IN})
GELU = _plain("GELU", F.gelu, {"approximate": "none"})
GLU = _plain("GLU", F.glu, {"dim": -1})
SiLU = _plain("SiLU", F.silu, _IN)
Mish = _plain("Mish", F.mish, _IN)
Sigmoid = _plain("Sigmoid", F.sigmoid, {})
LogSigmoid = _plain("LogSigmoid", F.logsigmoid, {})
Tanh = _plain("Tanh", F.tanh, {})
Tanhshrink = _plain("Tanhshrink", F.tanhshrink, {})
Softplus = _plain("Softplus", F.softplus, {"beta": 1.0, "threshold": 20.0})
Softsign = _plain("Softsign", F.softsign, {})
Softshrink = _plain("Softshrink", F.softshrink, {"lambd": 0.5})
Hardshrink = _plain("Hardshrink", F.hardshrink, {"lambd": 0.5})
Hardtanh = _plain("Hardtanh", F.hardtanh, {"min_val": -1.0, "max_val": 1.0, **_IN})
Hardsigmoid = _plain("Hardsigmoid", F.hardsigmoid, _IN)
Hardswish = _plain("Hardswish", F.hardswish, _IN)
Threshold = _plain("Threshold", F.threshold, {"threshold": _NEEDED, "value": _NEEDED, **_IN})
Softmax = _plain("Softmax", F.softmax, {"dim": None})
Softmin = _plain("Softmin", F.softmin, {"dim": None})
LogSoftmax = _plain("LogSoftmax", F.log_softmax, {"dim": None})
MaxPool1d = _plain("MaxPool1d", F.max_pool1d, _MAX)
MaxPool2d = _plain("MaxPool2d", F.max_pool2d, _MAX)
MaxPool3d = _plain("MaxPool3d", F.max_pool3d, _MAX)
AvgPool1d = _plain("AvgPool1d", F.avg_pool1d, _AVG)
AvgPool2d = _plain("AvgPool2d", F.avg_pool2d, {**_AVG, "divisor_override": None})
AvgPool3d = _plain("AvgPool3d", F.avg_pool3d, {**_AVG, "divisor_override": None})
LPPool1d = _plain("LPPool1d", F.lp_pool1d, _LP)
LPPool2d = _plain("LPPool2d", F.lp_pool2d, _LP)
AdaptiveAvgPool1d = _plain("AdaptiveAvgPool1d", F.adaptive_avg_pool1d, _OUT)
AdaptiveAvgPool2d = _plain("AdaptiveAvgPool2d", F.adaptive_avg_pool2d, _OUT)
AdaptiveAvgPool3d = _plain("AdaptiveAvgPool3d", F.adaptive_avg_pool3d, _OUT)
AdaptiveMaxPool1d = _plain("AdaptiveMaxPool1d", F.adaptive_max_pool1d, _OUT)
AdaptiveMaxPool2d = _plain("AdaptiveMaxPool2d", F.adaptive_max_pool2d, _OUT)
AdaptiveMaxPool3d = _plain("AdaptiveMaxPool3d", F.adaptive_max_pool3d, _OUT)
Flatten = _plain("Flatten", functions.flatten, {"start_dim": 1, "end_dim": -1})
Unflatten = _plain("Unflatten", functions.unflatten, {"dim": _NEEDED, "sizes": _NEEDED})
PixelShuffle = _plain("PixelShuffle", F.pixel_shuffle, {"upscale_factor": _NEEDED})
PixelUnshuffle = _plain("PixelUnshuffle", F.pixel_unshuffle, {"downscale_factor": _NEEDED})
ChannelShuffle = _plain("ChannelShuffle", F.channel_shuffle, {"groups": _NEEDED})
Upsample = _plain(
    "Upsample",
    F.upsample,
    {"size": None, "scale_factor": None, "mode": "nearest", "align_corners": None},
)
Unfold = _plain("Unfold", F.unfold, _WINDOWS)
Fold = _plain("Fold", F.fold, {"output_size": _NEEDED, **_WINDOWS})
LocalResponseNorm = _plain(
    "LocalResponseNorm",
    F.local_response_norm,
    {"size": _NEEDED, "alpha": 1e-4, "beta": 0.75, "k": 1.0},
)
CosineSimilarity = _plain("CosineSimilarity", F.cosine_similarity, {"dim": 1, "eps": 1e-8})
PairwiseDistance = _plain(
    "PairwiseDistance", F.pairwise_distance, {"p": 2.0, "eps": 1e-6, "keepdim": False}
)
Dropout = _dropping("Dropout", F.dropout)
Dropout1d = _dropping("Dropout1d", F.dropout1d)
Dropout2d = _dropping("Dropout2d", F.dropout2d)
Dropout3d = _dropping("Dropout3d", F.dropout3d)
AlphaDropout = _dropping("AlphaDropout", F.alpha_dropout)
FeatureAlphaDropout = _dropping("FeatureAlphaDropout", F.feature_alpha_dropout)
MSELoss = _plain("MSELoss", F.mse_loss, _REDUCED)
L1Loss = _plain("L1Loss", F.l1_loss, _REDUCED)
SmoothL1Loss = _plain("SmoothL1Loss", F.smooth_l1_loss, {**_REDUCED, "beta": 1.0})
HuberLoss = _plain("HuberLoss", F.huber_loss, {"reduction": "mean", "delta": 1.0})
BCELoss = _plain("BCELoss", F.binary_cross_entropy, {"weight": None, **_REDUCED})
BCEWithLogitsLoss = _plain(
    "BCEWithLogitsLoss",
    F.binary_cross_entropy_with_logits,
    {"weight": None, **_REDUCED, "pos_weight": None},
)
KLDivLoss = _plain("KLDivLoss", F.kl_div, {**_REDUCED, "log_target": False})
NLLLoss = _plain(
    "NLLLoss", F.nll_loss,
    {"weight": None, "size_average": None, "ignore_index": -100, "reduce": None,
     "reduction": "mean"},
)  # fmt: skip
CrossEntropyLoss = _plain(
    "CrossEntropyLoss", F.cross_entropy,
    {"weight": None, "size_average": None, "ignore_index": -100, "reduce": None,
     "reduction": "mean", "label_smoothing": 0.0},
)  # fmt: skip
PoissonNLLLoss = _plain(
    "PoissonNLLLoss", F.poisson_nll_loss,
    {"log_input": True, "full": False, "size_average": None, "eps": 1e-8, "reduce": None,
     "reduction": "mean"},
)  # fmt: skip
SoftMarginLoss = _plain("SoftMarginLoss", F.soft_margin_loss, _REDUCED)
HingeEmbeddingLoss = _plain(
    "HingeEmbeddingLoss", F.hinge_embedding_loss, {"margin": 1.0, **_REDUCED}
)
TripletMarginLoss = _plain(
    "TripletMarginLoss", F.triplet_margin_loss,
    {"margin": 1.0, "p": 2.0, "eps": 1e-6, "swap": False, **_REDUCED},
)  # fmt: skip


class _Pad(Plain):
    """``pad`` of the last dimensions: as much on all sides, or a number for each."""

    mode: ClassVar[str]
    rank: ClassVar[int]

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]  # of one tensor
        """(N, C, ..) padded."""
        width = self.options["padding"]
        flat = [width] * (2 * self.rank) if isinstance(width, int) else list(width)
        mode: Any = self.mode
        return x.pad(flat, mode, self.options.get("value"))


def _pad(name: str, mode: str, rank: int, arguments: dict[str, Any]) -> type[Plain]:
    doc = f"``pad`` of the last {rank} dimensions as a layer."
    body = {"mode": mode, "rank": rank, "arguments": arguments, "__doc__": doc}
    return type(name, (_Pad,), {**body, "__module__": __name__})


_PADDING = {"padding": _NEEDED}
_FILLED = {**_PADDING, "value": _NEEDED}

ReflectionPad1d = _pad("ReflectionPad1d", "reflect", 1, _PADDING)
ReflectionPad2d = _pad("ReflectionPad2d", "reflect", 2, _PADDING)
ReflectionPad3d = _pad("ReflectionPad3d", "reflect", 3, _PADDING)
ReplicationPad1d = _pad("ReplicationPad1d", "replicate", 1, _PADDING)
ReplicationPad2d = _pad("ReplicationPad2d", "replicate", 2, _PADDING)
ReplicationPad3d = _pad("ReplicationPad3d", "replicate", 3, _PADDING)
CircularPad1d = _pad("CircularPad1d", "circular", 1, _PADDING)
CircularPad2d = _pad("CircularPad2d", "circular", 2, _PADDING)
CircularPad3d = _pad("CircularPad3d", "circular", 3, _PADDING)
ConstantPad1d = _pad("ConstantPad1d", "constant", 1, _FILLED)
ConstantPad2d = _pad("ConstantPad2d", "constant", 2, _FILLED)
ConstantPad3d = _pad("ConstantPad3d", "constant", 3, _FILLED)
ZeroPad1d = _pad("ZeroPad1d", "constant", 1, _PADDING)
ZeroPad2d = _pad("ZeroPad2d", "constant", 2, _PADDING)
ZeroPad3d = _pad("ZeroPad3d", "constant", 3, _PADDING)
