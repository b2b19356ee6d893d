"""Losses: how far a prediction is from its target, one number unless told otherwise."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from tunegrad.errors import DTypeError, ShapeError

from ..handle import TensorLike, beside, optional
from ..handle import where as select
from .normalisation import Normalisation

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["Losses"]

How = Literal["mean", "sum", "none", "batchmean"]


def _reduced(op: str, losses: Tensor, how: How) -> Tensor:
    if how == "mean":
        return losses.mean()
    if how == "sum":
        return losses.sum()
    if how == "none":
        return losses
    raise ShapeError(f"{op}: reduction={how!r} is not one of 'mean', 'sum', 'none'")


class Losses(Normalisation):
    """``mse_loss``, ``cross_entropy`` and the like."""

    __slots__ = ()

    def _away(self, op: str, target: TensorLike) -> Tensor:
        return self - beside(self, target, op)

    def mse_loss(self, target: TensorLike, reduction: How = "mean") -> Tensor:
        """Squared distances."""
        return _reduced("mse_loss", self._away("mse_loss", target).square(), reduction)

    def l1_loss(self, target: TensorLike, reduction: How = "mean") -> Tensor:
        """Distances."""
        return _reduced("l1_loss", self._away("l1_loss", target).abs(), reduction)

    def smooth_l1_loss(
        self, target: TensorLike, reduction: How = "mean", beta: float = 1.0
    ) -> Tensor:
        """Squares below ``beta``, distances beyond."""
        d = self._away("smooth_l1_loss", target).abs()
        near = d if beta == 0 else select(d < beta, d * d * (0.5 / beta), d - 0.5 * beta)
        return _reduced("smooth_l1_loss", near, reduction)

    def huber_loss(self, target: TensorLike, reduction: How = "mean", delta: float = 1.0) -> Tensor:
        """Squares below ``delta``, distances by delta beyond."""
        d = self._away("huber_loss", target).abs()
        loss = select(d <= delta, d * d * 0.5, (d - 0.5 * delta) * delta)
        return _reduced("huber_loss", loss, reduction)

    def binary_cross_entropy(
        self, target: TensorLike, weight: TensorLike | None = None, reduction: How = "mean"
    ) -> Tensor:
        """Of probabilities: ``-(t * log(p) + (1 - t) * log(1 - p))``, logarithms at least -100."""
        t, w = (
            beside(self, target, "binary_cross_entropy"),
            optional(weight, "binary_cross_entropy"),
        )
        loss = -(t * self.log().clamp(-100) + (1 - t) * (1 - self).log().clamp(-100))
        return _reduced("binary_cross_entropy", loss if w is None else loss * w, reduction)

    def binary_cross_entropy_with_logits(
        self, target: TensorLike, weight: TensorLike | None = None, reduction: How = "mean",
        pos_weight: TensorLike | None = None,
    ) -> Tensor:  # fmt: skip
        """Of numbers before the sigmoid, without overflow on the way."""
        op = "binary_cross_entropy_with_logits"
        t, w, p = beside(self, target, op), optional(weight, op), optional(pos_weight, op)
        negative = -self._same().logsigmoid()
        factor = 1 if p is None else (p - 1) * t + 1
        loss = (1 - t) * self + negative * factor
        return _reduced(op, loss if w is None else loss * w, reduction)

    def kl_div(
        self, target: TensorLike, reduction: How = "mean", log_target: bool = False
    ) -> Tensor:
        """``t * (log(t) - self)``: self is a logarithm, the target one too where that is said."""
        t = beside(self, target, "kl_div")
        loss = t.exp() * (t - self) if log_target else t.xlogy(t) - t * self
        if reduction == "batchmean":
            return loss.sum() / float(self.shape[0])
        return _reduced("kl_div", loss, reduction)

    def nll_loss(
        self, target: TensorLike, weight: TensorLike | None = None, ignore_index: int = -100,
        reduction: How = "mean",
    ) -> Tensor:  # fmt: skip
        """Minus the log-probability of the class that each target names: self is (N, C, ...) or
        (C,), targets are integers (N, ...). ``ignore_index`` does not count; the mean is weighted.

        Raises ShapeError or DTypeError for targets that do not fit.
        """
        t, w = beside(self, target, "nll_loss"), optional(weight, "nll_loss")
        if not t.dtype.is_int:
            raise DTypeError(f"nll_loss: target {t.shape} is {t.dtype}, it must be integers")
        at = 1 if self.ndim > 1 else 0
        if t.shape != (*self.shape[:at], *self.shape[at + 1 :]):
            raise ShapeError(f"nll_loss: input {self.shape} and target {t.shape} do not fit")
        counts = t != ignore_index
        held = select(counts, t, 0)
        picked = self.gather(at, held.unsqueeze(at)).squeeze(at)
        scale = counts.cast(self.dtype)
        scale = scale if w is None else w.take(held) * scale
        loss = -picked * scale
        if reduction == "mean":
            return loss.sum() / scale.sum()
        return _reduced("nll_loss", loss, reduction)

    def cross_entropy(
        self, target: TensorLike, weight: TensorLike | None = None, ignore_index: int = -100,
        reduction: How = "mean", label_smoothing: float = 0.0,
    ) -> Tensor:  # fmt: skip
        """``nll_loss`` of the log-softmax over classes (axis 1); targets may be probabilities of
        self's shape.
        """
        t, w = beside(self, target, "cross_entropy"), optional(weight, "cross_entropy")
        at = 1 if self.ndim > 1 else 0
        logs = self.log_softmax(at)
        classes = self.shape[at]
        spread = None if w is None else w.reshape(*(-1 if a == at else 1 for a in range(self.ndim)))
        if t.dtype.is_float:
            if t.shape != self.shape:
                raise ShapeError(f"cross_entropy: input {self.shape} and target {t.shape} differ")
            mixed = t * (1 - label_smoothing) + label_smoothing / classes
            loss = -(logs * mixed if spread is None else logs * mixed * spread).sum(at)
            if reduction == "mean":
                return loss.sum() / float(math.prod(loss.shape))
            return _reduced("cross_entropy", loss, reduction)
        hard = logs.nll_loss(t, w, ignore_index, reduction)
        if label_smoothing == 0:
            return hard
        counts = (t != ignore_index).cast(self.dtype)
        smooth = -(logs if spread is None else logs * spread).sum(at) * counts
        if reduction == "mean":
            weights = counts if w is None else w.take(select(t != ignore_index, t, 0)) * counts
            smooth = smooth.sum() / weights.sum()
        else:
            smooth = _reduced("cross_entropy", smooth, reduction)
        return hard * (1 - label_smoothing) + smooth * (label_smoothing / classes)

    def poisson_nll_loss(
        self, target: TensorLike, log_input: bool = True, full: bool = False, eps: float = 1e-8,
        reduction: How = "mean",
    ) -> Tensor:  # fmt: skip
        """Of Poisson rates, or of their logarithms; ``full`` adds Stirling's term."""
        t = beside(self, target, "poisson_nll_loss")
        loss = self.exp() - t * self if log_input else self - t * (self + eps).log()
        if full:
            stirling = t * t.log() - t + 0.5 * (2 * math.pi * t).log()
            loss = loss + select(t > 1, stirling, 0.0)
        return _reduced("poisson_nll_loss", loss, reduction)

    def hinge_embedding_loss(
        self, target: TensorLike, margin: float = 1.0, reduction: How = "mean"
    ) -> Tensor:
        """self where the target is 1, what it lacks to the margin where it is -1."""
        t = beside(self, target, "hinge_embedding_loss")
        loss = select(t == 1, self, select(t == -1, (margin - self).relu(), 0.0))
        return _reduced("hinge_embedding_loss", loss, reduction)

    def soft_margin_loss(self, target: TensorLike, reduction: How = "mean") -> Tensor:
        """``log(1 + exp(-target * self))``."""
        loss = (-(beside(self, target, "soft_margin_loss") * self)).softplus()
        return _reduced("soft_margin_loss", loss, reduction)
