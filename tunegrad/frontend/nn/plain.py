"""Layers without weights: a function of ``torch.nn.functional`` and its arguments, kept."""

from __future__ import annotations

from typing import Any, ClassVar

from .. import functional as F  # noqa: N812 - its name in the field
from ..functions import function
from ..tensor import Tensor
from .module import Module

__all__ = ["PLAIN", "Plain"]

_NEEDED = ...
_REDUCED = {"size_average": None, "reduce": None, "reduction": "mean"}


class Plain(Module):
    """``name(*arguments)(x)`` is ``function(x, *arguments)``."""

    function: ClassVar[str]
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
        name = type(self).function
        call = getattr(F, name, None) or function(name)
        return call(*inputs, **{k: v for k, v in self.options.items() if k not in _IGNORED})

    def __repr__(self) -> str:
        changed = (f"{k}={v!r}" for k, v in self.options.items() if v != type(self).arguments[k])
        return f"{type(self).__name__}({', '.join(changed)})"


_IGNORED = ("inplace", "size_average", "reduce")
"""Arguments that say nothing here: tensors do not change, and two old words of losses."""


def _plain(name: str, of: str, arguments: dict[str, Any]) -> type[Plain]:
    doc = f"``{of}`` as a layer."
    body = {"function": of, "arguments": arguments, "__doc__": doc, "__module__": __name__}
    return type(name, (Plain,), body)


_IN = {"inplace": False}
_POOL = {"kernel_size": _NEEDED, "stride": None, "padding": 0}
_MAX = {**_POOL, "dilation": 1, "return_indices": False, "ceil_mode": False}
_AVG = {**_POOL, "ceil_mode": False, "count_include_pad": True}
_LP = {"norm_type": _NEEDED, "kernel_size": _NEEDED, "stride": None, "ceil_mode": False}
_WINDOWS = {"kernel_size": _NEEDED, "dilation": 1, "padding": 0, "stride": 1}
_OUT = {"output_size": _NEEDED}

PLAIN: dict[str, type[Plain]] = {
    name: _plain(name, of, arguments)
    for name, of, arguments in (
        ("ReLU", "relu", _IN),
        ("ReLU6", "relu6", _IN),
        ("LeakyReLU", "leaky_relu", {"negative_slope": 0.01, **_IN}),
        ("RReLU", "rrelu", {"lower": 1 / 8, "upper": 1 / 3, **_IN}),
        ("ELU", "elu", {"alpha": 1.0, **_IN}),
        ("SELU", "selu", _IN),
        ("CELU", "celu", {"alpha": 1.0, **_IN}),
        ("GELU", "gelu", {"approximate": "none"}),
        ("GLU", "glu", {"dim": -1}),
        ("SiLU", "silu", _IN),
        ("Mish", "mish", _IN),
        ("Sigmoid", "sigmoid", {}),
        ("LogSigmoid", "logsigmoid", {}),
        ("Tanh", "tanh", {}),
        ("Tanhshrink", "tanhshrink", {}),
        ("Softplus", "softplus", {"beta": 1.0, "threshold": 20.0}),
        ("Softsign", "softsign", {}),
        ("Softshrink", "softshrink", {"lambd": 0.5}),
        ("Hardshrink", "hardshrink", {"lambd": 0.5}),
        ("Hardtanh", "hardtanh", {"min_val": -1.0, "max_val": 1.0, **_IN}),
        ("Hardsigmoid", "hardsigmoid", _IN),
        ("Hardswish", "hardswish", _IN),
        ("Threshold", "threshold", {"threshold": _NEEDED, "value": _NEEDED, **_IN}),
        ("Softmax", "softmax", {"dim": None}),
        ("Softmin", "softmin", {"dim": None}),
        ("LogSoftmax", "log_softmax", {"dim": None}),
        ("MaxPool1d", "max_pool1d", _MAX),
        ("MaxPool2d", "max_pool2d", _MAX),
        ("MaxPool3d", "max_pool3d", _MAX),
        ("AvgPool1d", "avg_pool1d", _AVG),
        ("AvgPool2d", "avg_pool2d", {**_AVG, "divisor_override": None}),
        ("AvgPool3d", "avg_pool3d", {**_AVG, "divisor_override": None}),
        ("LPPool1d", "lp_pool1d", _LP),
        ("LPPool2d", "lp_pool2d", _LP),
        ("AdaptiveAvgPool1d", "adaptive_avg_pool1d", _OUT),
        ("AdaptiveAvgPool2d", "adaptive_avg_pool2d", _OUT),
        ("AdaptiveAvgPool3d", "adaptive_avg_pool3d", _OUT),
        ("AdaptiveMaxPool1d", "adaptive_max_pool1d", _OUT),
        ("AdaptiveMaxPool2d", "adaptive_max_pool2d", _OUT),
        ("AdaptiveMaxPool3d", "adaptive_max_pool3d", _OUT),
        ("Flatten", "flatten", {"start_dim": 1, "end_dim": -1}),
        ("Unflatten", "unflatten", {"dim": _NEEDED, "sizes": _NEEDED}),
        ("PixelShuffle", "pixel_shuffle", {"upscale_factor": _NEEDED}),
        ("PixelUnshuffle", "pixel_unshuffle", {"downscale_factor": _NEEDED}),
        ("ChannelShuffle", "channel_shuffle", {"groups": _NEEDED}),
        ("Upsample", "upsample", {
            "size": None, "scale_factor": None, "mode": "nearest", "align_corners": None}),
        ("Unfold", "unfold", _WINDOWS),
        ("Fold", "fold", {"output_size": _NEEDED, **_WINDOWS}),
        ("LocalResponseNorm", "local_response_norm", {
            "size": _NEEDED, "alpha": 1e-4, "beta": 0.75, "k": 1.0}),
        ("CosineSimilarity", "cosine_similarity", {"dim": 1, "eps": 1e-8}),
        ("PairwiseDistance", "pairwise_distance", {"p": 2.0, "eps": 1e-6, "keepdim": False}),
        ("Dropout", "dropout", {"p": 0.5, **_IN}),
        ("Dropout1d", "dropout", {"p": 0.5, **_IN}),
        ("Dropout2d", "dropout", {"p": 0.5, **_IN}),
        ("Dropout3d", "dropout", {"p": 0.5, **_IN}),
        ("AlphaDropout", "dropout", {"p": 0.5, **_IN}),
        ("MSELoss", "mse_loss", _REDUCED),
        ("L1Loss", "l1_loss", _REDUCED),
        ("SmoothL1Loss", "smooth_l1_loss", {**_REDUCED, "beta": 1.0}),
        ("HuberLoss", "huber_loss", {"reduction": "mean", "delta": 1.0}),
        ("BCELoss", "binary_cross_entropy", {"weight": None, **_REDUCED}),
        ("BCEWithLogitsLoss", "binary_cross_entropy_with_logits", {
            "weight": None, **_REDUCED, "pos_weight": None}),
        ("KLDivLoss", "kl_div", {**_REDUCED, "log_target": False}),
        ("NLLLoss", "nll_loss", {
            "weight": None, "size_average": None, "ignore_index": -100, "reduce": None,
            "reduction": "mean"}),
        ("CrossEntropyLoss", "cross_entropy", {
            "weight": None, "size_average": None, "ignore_index": -100, "reduce": None,
            "reduction": "mean", "label_smoothing": 0.0}),
        ("PoissonNLLLoss", "poisson_nll_loss", {
            "log_input": True, "full": False, "size_average": None, "eps": 1e-8, "reduce": None,
            "reduction": "mean"}),
        ("SoftMarginLoss", "soft_margin_loss", _REDUCED),
        ("HingeEmbeddingLoss", "hinge_embedding_loss", {"margin": 1.0, **_REDUCED}),
        ("TripletMarginLoss", "triplet_margin_loss", {
            "margin": 1.0, "p": 2.0, "eps": 1e-6, "swap": False, "size_average": None,
            "reduce": None, "reduction": "mean"}),
    )
}  # fmt: skip


def _padding(rank: int, mode: str) -> type[Plain]:
    """``ReflectionPad2d(1)`` and the like: as much on all sides, or a number for each."""
    word = {"reflect": "ReflectionPad", "replicate": "ReplicationPad", "circular": "CircularPad",
            "constant": "ConstantPad", "zero": "ZeroPad"}[mode]  # fmt: skip
    known: dict[str, Any] = {"padding": _NEEDED}
    if mode == "constant":
        known["value"] = _NEEDED

    def forward(self: Plain, x: Tensor) -> Tensor:
        width = self.options["padding"]
        flat = [width] * (2 * rank) if isinstance(width, int) else list(width)
        value = self.options.get("value")
        return x.pad(flat, "constant" if mode == "zero" else mode, value)  # type: ignore[arg-type]

    body = {"function": "pad", "arguments": known, "forward": forward,
            "__doc__": f"``pad`` of the last {rank} dimensions as a layer."}  # fmt: skip
    return type(f"{word}{rank}d", (Plain,), {**body, "__module__": __name__})


for _rank in (1, 2, 3):
    for _mode in ("reflect", "replicate", "circular", "constant", "zero"):
        _made = _padding(_rank, _mode)
        PLAIN[_made.__name__] = _made


def __getattr__(name: str) -> type[Plain]:
    if name in PLAIN:
        return PLAIN[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
