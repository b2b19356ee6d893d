"""Losses: how far a prediction is from its target, one number unless told otherwise."""

from __future__ import annotations

import math
from typing import Literal

from tunegrad.errors import DTypeError, ShapeError

from ..handle import Handle, TensorLike, beside, optional, where
from ..operation import operation
from ..vjp import custom_vjp
from .activation import logsigmoid, relu, softplus
from .indexing import gather, take, within
from .reduction import log_softmax
from .special import xlogy

How = Literal["mean", "sum", "none", "batchmean"]


def _away(input: Handle, op: str, target: TensorLike) -> Handle:
    return input - beside(input, target, op)


@operation
def mse_loss(input: Handle, target: TensorLike, reduction: How = "mean") -> Handle:
    """Squared distances."""
    return _reduced("mse_loss", _away(input, "mse_loss", target).square(), reduction)


@operation
def l1_loss(input: Handle, target: TensorLike, reduction: How = "mean") -> Handle:
    """Distances."""
    return _reduced("l1_loss", _away(input, "l1_loss", target).abs(), reduction)


@operation
def smooth_l1_loss(
    input: Handle, target: TensorLike, reduction: How = "mean", beta: float = 1.0
) -> Handle:
    """Squares below ``beta``, distances beyond."""
    away = _away(input, "smooth_l1_loss", target)
    d = away.abs()
    near = d if beta == 0 else where(d < beta, away * away * (0.5 / beta), d - 0.5 * beta)
    return _reduced("smooth_l1_loss", near, reduction)


@operation
def huber_loss(
    input: Handle, target: TensorLike, reduction: How = "mean", delta: float = 1.0
) -> Handle:
    """Squares below ``delta``, distances by delta beyond."""
    away = _away(input, "huber_loss", target)
    d = away.abs()
    loss = where(d <= delta, away * away * 0.5, (d - 0.5 * delta) * delta)
    return _reduced("huber_loss", loss, reduction)


def _information_vjp(g: Handle, _: Handle, p: Handle, t: Handle) -> tuple[Handle, Handle]:
    """d(-t log p - (1 - t) log(1 - p)) = (p - t) dp / (p (1 - p)) + (log(1 - p) - log p) dt"""
    slope = (p - t) / (p * (1 - p)).clamp(1e-12)
    return g * slope, g * ((1 - p).log().clamp(-100) - p.log().clamp(-100))


@custom_vjp(_information_vjp)
def _information(p: Handle, t: Handle) -> Handle:
    return -(t * p.log().clamp(-100) + (1 - t) * (1 - p).log().clamp(-100))


@operation
def binary_cross_entropy(
    input: Handle, target: TensorLike, weight: TensorLike | None = None, reduction: How = "mean"
) -> Handle:
    """Of probabilities: ``-(t * log(p) + (1 - t) * log(1 - p))``, logarithms at least -100."""
    t, w = (
        beside(input, target, "binary_cross_entropy"),
        optional(weight, "binary_cross_entropy"),
    )
    loss = _information(input, t)
    return _reduced("binary_cross_entropy", loss if w is None else loss * w, reduction)


@operation
def binary_cross_entropy_with_logits(
    input: Handle, target: TensorLike, weight: TensorLike | None = None, reduction: How = "mean",
    pos_weight: TensorLike | None = None,
) -> Handle:  # fmt: skip
    """Of numbers before the sigmoid, without overflow on the way."""
    op = "binary_cross_entropy_with_logits"
    t, w, p = beside(input, target, op), optional(weight, op), optional(pos_weight, op)
    negative = -logsigmoid(input)
    factor = 1 if p is None else (p - 1) * t + 1
    loss = (1 - t) * input + negative * factor
    return _reduced(op, loss if w is None else loss * w, reduction)


@operation
def kl_div(
    input: Handle, target: TensorLike, reduction: How = "mean", log_target: bool = False
) -> Handle:
    """``t * (log(t) - input)``: input is a logarithm, the target one too where that is said."""
    t = beside(input, target, "kl_div")
    loss = t.exp() * (t - input) if log_target else xlogy(t, t) - t * input
    if reduction == "batchmean":
        return loss.sum() / float(input.shape[0])
    return _reduced("kl_div", loss, reduction)


@operation
def nll_loss(
    input: Handle, target: TensorLike, weight: TensorLike | None = None, ignore_index: int = -100,
    reduction: How = "mean",
) -> Handle:  # fmt: skip
    """Minus the log-probability of the class that each target names: input is (N, C, ...) or
    (C,), targets are integers (N, ...). ``ignore_index`` does not count; the mean is weighted.

    Raises ShapeError or DTypeError for targets that do not fit, IndexOutOfRange for a class that is
    not from 0 to C - 1.
    """
    t, w = beside(input, target, "nll_loss"), optional(weight, "nll_loss")
    if not t.dtype.is_int:
        raise DTypeError(f"nll_loss: target {t.shape} is {t.dtype}, it must be integers")
    t = _labels(t, ignore_index)
    at = 1 if input.ndim > 1 else 0
    if t.shape != (*input.shape[:at], *input.shape[at + 1 :]):
        raise ShapeError(f"nll_loss: input {input.shape} and target {t.shape} do not fit")
    counts = t != ignore_index
    held = within(where(counts, t, 0), "nll_loss", 0, input.shape[at])
    picked = gather(input, at, held.unsqueeze(at)).squeeze(at)
    scale = counts.cast(input.dtype)
    scale = scale if w is None else take(w, held) * scale
    loss = -picked * scale
    if reduction == "mean":
        return loss.sum() / scale.sum()
    return _reduced("nll_loss", loss, reduction)


def _labels(target: Handle, ignore_index: int) -> Handle:
    """Integers in a type that has the one that does not count: bytes of a file have no -100."""
    t = target.dtype
    return target if not t.is_int or t.least <= ignore_index <= t.greatest else target.cast("i64")


@operation
def cross_entropy(
    input: Handle, target: TensorLike, weight: TensorLike | None = None, ignore_index: int = -100,
    reduction: How = "mean", label_smoothing: float = 0.0,
) -> Handle:  # fmt: skip
    """``nll_loss`` of the log-softmax over classes (axis 1); targets may be probabilities."""
    t, w = beside(input, target, "cross_entropy"), optional(weight, "cross_entropy")
    at = 1 if input.ndim > 1 else 0
    logs = log_softmax(input, at)
    classes = input.shape[at] or 1
    spread = None if w is None else w.reshape(*(-1 if a == at else 1 for a in range(input.ndim)))
    if t.dtype.is_float:
        if t.shape != input.shape:
            raise ShapeError(f"cross_entropy: input {input.shape} and target {t.shape} differ")
        mixed = t * (1 - label_smoothing) + label_smoothing / classes
        loss = -(logs * mixed if spread is None else logs * mixed * spread).sum(at)
        if reduction == "mean":
            return loss.sum() / float(math.prod(loss.shape))
        return _reduced("cross_entropy", loss, reduction)
    t = _labels(t, ignore_index)
    hard = nll_loss(logs, t, w, ignore_index, reduction)
    if label_smoothing == 0:
        return hard
    counts = (t != ignore_index).cast(input.dtype)
    smooth = -(logs if spread is None else logs * spread).sum(at) * counts
    if reduction == "mean":
        weights = counts if w is None else take(w, where(t != ignore_index, t, 0)) * counts
        smooth = smooth.sum() / weights.sum()
    else:
        smooth = _reduced("cross_entropy", smooth, reduction)
    return hard * (1 - label_smoothing) + smooth * (label_smoothing / classes)


@operation
def poisson_nll_loss(
    input: Handle, target: TensorLike, log_input: bool = True, full: bool = False,
    eps: float = 1e-8, reduction: How = "mean",
) -> Handle:  # fmt: skip
    """Of Poisson rates, or of their logarithms; ``full`` adds Stirling's term."""
    t = beside(input, target, "poisson_nll_loss")
    loss = input.exp() - t * input if log_input else input - t * (input + eps).log()
    if full:
        stirling = t * t.log() - t + 0.5 * (2 * math.pi * t).log()
        loss = loss + where(t > 1, stirling, 0.0)
    return _reduced("poisson_nll_loss", loss, reduction)


@operation
def hinge_embedding_loss(
    input: Handle, target: TensorLike, margin: float = 1.0, reduction: How = "mean"
) -> Handle:
    """input where the target is 1, what it lacks to the margin where it is -1."""
    t = beside(input, target, "hinge_embedding_loss")
    loss = where(t == 1, input, where(t == -1, relu(margin - input), 0.0))
    return _reduced("hinge_embedding_loss", loss, reduction)


@operation
def soft_margin_loss(input: Handle, target: TensorLike, reduction: How = "mean") -> Handle:
    """``log(1 + exp(-target * input))``."""
    loss = softplus(-(beside(input, target, "soft_margin_loss") * input))
    return _reduced("soft_margin_loss", loss, reduction)


def _reduced(op: str, losses: Handle, how: How) -> Handle:
    if how == "mean":
        return losses.mean()
    if how == "sum":
        return losses.sum()
    if how == "none":
        return losses
    raise ShapeError(f"{op}: reduction={how!r} is not one of 'mean', 'sum', 'none'")
