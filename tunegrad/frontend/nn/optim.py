"""Optimisers, schedules of the learning rate, clipping and loss scaling, by PyTorch's definitions.

An optimiser is a pure function of tensors, so that a step of training is one graph:

    optimizer = AdamW(weight_decay=0.1)
    moments = optimizer.moments(parameters)                       zeros, by slot and name
    parameters, moments = optimizer.update(parameters, gradients, moments, lr, step)

``lr`` and ``step`` are tensors of shape (), inputs of the program: a schedule compiles nothing.
``step`` counts from 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self, TypeGuard

import numpy as np

from tunegrad.errors import ConfigError
from tunegrad.ir.dtypes import F32
from tunegrad.ir.graph import topological

from ..creation import full, zeros
from ..functions import maximum, where
from ..tensor import Tensor

__all__ = [
    "LAMB", "SGD", "Adam", "AdamW", "CosineLR", "LossScale", "OneCycleLR", "Optimizer", "RMSprop",
    "StepLR", "WarmupLR", "clip_grad_norm", "clip_grad_value", "finite",
]  # fmt: skip

Schedule = Callable[[int], float]
"""The learning rate of a step, which is counted from 0."""
Tensors = Mapping[str, Tensor]
Groups = Sequence[tuple[Callable[[str], bool], Mapping[str, Any]]]
"""A truth about a parameter's name, and the options that those have for which it is true."""


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """Base of all optimisers.

    ``groups``: of the first pair whose function is true of a parameter's name the options count,
    beside the optimiser's own; ``lr_scale`` is a factor of the learning rate there.
    """

    lr: float | Schedule = field(default=1e-3, kw_only=False)
    weight_decay: float = 0.0
    lr_scale: float = 1.0
    groups: Groups = ()

    slots: ClassVar[tuple[str, ...]] = ()
    """Names of what it keeps for each parameter, of the parameter's shape and dtype."""
    elementwise: ClassVar[bool] = False
    """True where ``one`` of the same class computes each element from that element of the
    parameter, the gradient and the moments alone, by the same rule for every shape: a step then
    updates many parameters as one array.
    """

    def __post_init__(self) -> None:
        known = [f.name for f in fields(self) if f.name not in ("lr", "groups")]
        for _, options in self.groups:
            for name in options:
                if name not in known:
                    raise ConfigError(
                        f"{type(self).__name__}: no option {name!r} of a group; valid: "
                        f"{', '.join(known)}"
                    )
        mine = {f.name: getattr(self, f.name) for f in fields(self)}
        for options in (mine, *(options for _, options in self.groups)):
            for name, value in options.items():
                self._check(name, value)

    def _check(self, name: str, value: Any) -> None:
        """Raise ConfigError for a number that the option can not have."""
        rule = type(self).__name__
        if name == "betas":
            pair = isinstance(value, tuple | list) and len(value) == 2
            if not pair or not all(is_number(b) and 0 <= b < 1 for b in value):
                raise ConfigError(f"{rule}: betas={value!r} must be two numbers in [0, 1)")
            return
        free = name not in _LEAST or (name == "lr" and callable(value))
        if not free and (not is_number(value) or value < 0):
            raise ConfigError(f"{rule}: {name}={value!r} must be a number of at least 0")

    def rate(self, step: int) -> float:
        """The learning rate of a step, which is counted from 0."""
        return float(self.lr(step) if callable(self.lr) else self.lr)

    def place(self, name: str) -> int | None:
        """The place of a parameter's group among ``groups``; None where it is in none."""
        return next((i for i, (belongs, _) in enumerate(self.groups) if belongs(name)), None)

    def of(self, name: str) -> Self:
        """The optimiser of one parameter, with the options of its group."""
        at = self.place(name)
        return self if at is None else replace(self, **{"groups": (), **self.groups[at][1]})

    @property
    def is_elementwise(self) -> bool:
        """True where the class that has the rule says that it is ``elementwise``: the first that
        defines ``one``, or what calls it by names of parameters.
        """
        owner = next(c for c in type(self).__mro__ if not _RULE.isdisjoint(vars(c)))
        return bool(vars(owner).get("elementwise", False))

    def reads_once(self, name: str) -> bool:
        """True of an elementwise rule whose new values of a parameter and its moments all follow
        from one, which reads the gradient and not the parameter, as momentum does without decay.
        """
        if not self.is_elementwise:
            return False
        given = tuple(Tensor.input(f"v{i}", (), F32) for i in range(4 + len(self.kept())))
        p, g, lr, step, *moments = given
        new, after = self.of(name).one(p, g, moments, lr, step)
        results = {t.node for t in (new, *after)} - {t.node for t in given}
        order, at = topological(tuple(results)), g.node
        while at not in results:
            readers = [n for n in order if at in n.srcs]
            if len(readers) != 1:
                return False
            (at,) = readers
        return len(results) == 1 or p.node not in topological((at,))

    def moments(self, parameters: Tensors) -> dict[str, Tensor]:
        """Moments before the first step: zeros, by ``slot.name``."""
        return {
            f"{slot}.{name}": zeros(p.shape, dtype=p.dtype)
            for slot in self.kept()
            for name, p in parameters.items()
        }

    def kept(self) -> tuple[str, ...]:
        """The slots that its options ask for."""
        return self.slots

    def update(
        self, parameters: Tensors, gradients: Tensors, moments: Tensors, lr: Tensor, step: Tensor
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The parameters and what is kept after a step; ``lr`` and ``step`` (from 1) of shape ().

        Moments are computed in f32 at least, and stored in the parameter's dtype.
        """
        slots = self.kept()
        new, kept = dict[str, Tensor](), dict[str, Tensor]()
        for name, p in parameters.items():
            wide = p.dtype.compute
            old = [moments[f"{slot}.{name}"].cast(wide) for slot in slots]
            mine = self.of(name)
            rate = lr.cast(wide) if mine.lr_scale == 1 else lr.cast(wide) * mine.lr_scale
            found, after = mine.one(
                p.cast(wide), gradients[name].cast(wide), old, rate, step.cast(wide)
            )
            new[name] = found.cast(p.dtype)
            for slot, value in zip(slots, after, strict=True):
                kept[f"{slot}.{name}"] = value.cast(p.dtype)
        return new, {name: kept[name] for name in moments}

    def one(
        self, p: Tensor, g: Tensor, moments: Sequence[Tensor], lr: Tensor, step: Tensor
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """One parameter and its moments after a step."""
        raise NotImplementedError

    def _decayed(self, p: Tensor, g: Tensor) -> Tensor:
        """``g + weight_decay * p``"""
        return g + p * self.weight_decay if self.weight_decay else g


@dataclass(frozen=True, kw_only=True)
class SGD(Optimizer):
    """Descent, with momentum (Polyak 1964; Nesterov 1983).

    b = momentum * b + (1 - dampening) * g        b = g in the first step
    p = p - lr * b                                Nesterov: p - lr * (g + momentum * b)
    """

    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False

    slots = ("momentum",)
    elementwise = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and (self.momentum <= 0 or self.dampening):
            raise ConfigError("SGD: nesterov=True needs a momentum above 0 and no dampening")

    def kept(self) -> tuple[str, ...]:
        """Nothing without momentum, in no group."""
        every = [self.momentum, *(o.get("momentum", 0.0) for _, o in self.groups)]
        return self.slots if any(every) else ()

    def one(
        self, p: Tensor, g: Tensor, moments: Sequence[Tensor], lr: Tensor, step: Tensor
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """One parameter and its moments after a step."""
        g = self._decayed(p, g)
        if not self.momentum:
            return p - lr * g, moments
        part = g
        if self.dampening:
            part = g * where(step == 1, 1.0, 1.0 - self.dampening).cast(g.dtype)
        b = moments[0] * self.momentum + part
        return p - lr * (g + b * self.momentum if self.nesterov else b), (b,)


@dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """Adaptive moments (Kingma and Ba 2015); the decay of weights is part of the gradient.

    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g^2
    p = p - lr * m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    slots = ("mean", "square")
    elementwise = True

    def one(
        self, p: Tensor, g: Tensor, moments: Sequence[Tensor], lr: Tensor, step: Tensor
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """One parameter and its moments after a step."""
        ratio, kept = self._ratio(self._decayed(p, g), moments, step)
        return p - lr * ratio, kept

    def _ratio(
        self, g: Tensor, moments: Sequence[Tensor], step: Tensor
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """Corrected mean over root of the corrected mean square, and both moments."""
        (b1, b2), (m, v) = self.betas, moments
        m = m * b1 + g * (1 - b1)
        v = v * b2 + g * g * (1 - b2)
        # 1 - b^t by expm1: near b = 1 the difference would lose most digits in f32; a kernel
        # of it alone is verified on any step that is drawn, so t is bounded
        t = maximum(step, 1.0)
        first, second = (-(t * math.log(b)).expm1() if b else None for b in (b1, b2))
        root = v.sqrt() if second is None else v.sqrt() / second.sqrt()
        return (m if first is None else m / first) / (root + self.eps), (m, v)


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam whose weights decay by themselves, ``p * (1 - lr * weight_decay)`` (Loshchilov and
    Hutter 2019).
    """

    weight_decay: float = 1e-2

    elementwise = True

    def one(
        self, p: Tensor, g: Tensor, moments: Sequence[Tensor], lr: Tensor, step: Tensor
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """One parameter and its moments after a step."""
        ratio, kept = self._ratio(g, moments, step)
        p = p * (1.0 - lr * self.weight_decay) if self.weight_decay else p
        return p - lr * ratio, kept


@dataclass(frozen=True, kw_only=True)
class LAMB(Adam):
    """Adam's step of each parameter, as long as the parameter (You et al. 2020, algorithm 2).

    u = Adam's ratio + weight_decay * p
    p = p - lr * |p| / |u| * u                     |p| / |u| = 1 where either is 0
    """

    eps: float = 1e-6
    weight_decay: float = 1e-2

    def one(
        self, p: Tensor, g: Tensor, moments: Sequence[Tensor], lr: Tensor, step: Tensor
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """One parameter and its moments after a step."""
        ratio, kept = self._ratio(g, moments, step)
        u = self._decayed(p, ratio)
        of_p, of_u = ((x * x).sum().sqrt() for x in (p, u))
        both = (of_p > 0) & (of_u > 0)
        trust = where(both, of_p / where(both, of_u, 1.0), 1.0)
        return p - lr * trust * u, kept


@dataclass(frozen=True, kw_only=True)
class RMSprop(Optimizer):
    """Gradients over the root of their running mean square (Hinton 2012), or of their running
    variance where ``centered`` (Graves 2013).

    v = alpha * v + (1 - alpha) * g^2             a = alpha * a + (1 - alpha) * g
    r = g / (sqrt(v - a^2) + eps)                 without a unless centered
    p = p - lr * r                                b = momentum * b + r; p - lr * b
    """

    lr: float | Schedule = field(default=1e-2, kw_only=False)
    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0
    centered: bool = False

    slots = ("square", "mean", "momentum")
    elementwise = True

    def kept(self) -> tuple[str, ...]:
        """The slots that its options and those of its groups ask for."""
        every = [self, *(replace(self, **{"groups": (), **o}) for _, o in self.groups)]
        asked = {"square": True, "mean": any(e.centered for e in every)}
        asked["momentum"] = any(e.momentum for e in every)
        return tuple(slot for slot in self.slots if asked[slot])

    def one(
        self, p: Tensor, g: Tensor, moments: Sequence[Tensor], lr: Tensor, step: Tensor
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """One parameter and its moments after a step."""
        del step
        g, kept = self._decayed(p, g), list(moments)
        kept[0] = kept[0] * self.alpha + g * g * (1 - self.alpha)
        spread = kept[0]
        if self.centered:
            kept[1] = kept[1] * self.alpha + g * (1 - self.alpha)
            # rounding may leave less than nothing, where PyTorch has NaN
            spread = maximum(spread - kept[1] * kept[1], 0.0)
        r = g / (spread.sqrt() + self.eps)
        if self.momentum:
            kept[-1] = kept[-1] * self.momentum + r
            r = kept[-1]
        return p - lr * r, kept


_RULE = frozenset(("moments", "of", "one", "place", "update"))
"""Methods by which classes differ in how they update a parameter."""
_LEAST = ("lr", "lr_scale", "weight_decay", "momentum", "eps", "alpha")
"""Options that are numbers of at least 0."""


def is_number(value: object) -> TypeGuard[float]:
    """True of numbers that are neither infinite nor NaN, and of no truth."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int | float | np.integer | np.floating) and math.isfinite(value)


# ---- gradients


def clip_grad_norm(gradients: Tensors, max_norm: float) -> tuple[dict[str, Tensor], Tensor]:
    """Gradients by ``min(1, max_norm / (norm + 1e-6))``, and the norm of them all, f32 of shape ()
    (Pascanu et al. 2013).
    """
    squares = [(g._wide() * g._wide()).sum().cast("f32") for g in gradients.values()]
    norm = _total(squares).sqrt()
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    return {
        n: (g._wide() * factor.cast(g.dtype.compute))._as(g.dtype) for n, g in gradients.items()
    }, norm


def clip_grad_value(gradients: Tensors, clip_value: float) -> dict[str, Tensor]:
    """Gradients cut off at ``-clip_value`` and ``clip_value``."""
    return {n: g.clamp(-clip_value, clip_value) for n, g in gradients.items()}


def finite(gradients: Tensors) -> Tensor:
    """True, of shape (), where no gradient has an infinity or a NaN."""
    counts = [(~g.isfinite()).cast("f32").amax() for g in gradients.values() if g.numel()]
    return _total(counts) == 0 if counts else full((), True, dtype="bool")


def _total(parts: Sequence[Tensor]) -> Tensor:
    """The sum of tensors of shape (), in pairs."""
    rest = list(parts)
    while len(rest) > 1:
        rest = [sum(rest[i + 1 : i + 2], rest[i]) for i in range(0, len(rest), 2)]
    return rest[0] if rest else full((), 0.0)


@dataclass(frozen=True)
class LossScale:
    """A factor of the loss, so that small gradients of 16-bit floats are no zeros (Micikevicius et
    al. 2018). A step whose gradients are not finite is skipped.

    ``growth``: the factor by which it grows after ``interval`` steps in a row; 1 leaves it as it
    is. ``backoff``: its factor after a step that was skipped.
    """

    initial: float = 2.0**16
    growth: float = 2.0
    backoff: float = 0.5
    interval: int = 2000

    def after(self, scale: Tensor, good: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
        """The scale, f32, and the number of good steps in a row, i64, after a step that was
        ``whole``; all of shape ().
        """
        if self.growth == 1 and self.backoff == 1:
            return scale, good
        count = where(whole, good + 1, 0).cast("i64")
        full_row = count >= self.interval
        grown = where(full_row, scale * self.growth, scale)
        return where(whole, grown, scale * self.backoff), where(full_row, 0, count).cast("i64")

    @staticmethod
    def static(scale: float) -> LossScale:
        """One that stays."""
        return LossScale(scale, 1.0, 1.0)


# ---- schedules


@dataclass(frozen=True)
class StepLR:
    """``lr`` by ``gamma`` after every ``step_size`` steps."""

    lr: float
    step_size: int
    gamma: float = 0.1

    def __post_init__(self) -> None:
        _check_steps(self, "step_size", 1)

    def __call__(self, step: int) -> float:
        """The learning rate of a step."""
        return self.lr * self.gamma ** (step // self.step_size)


@dataclass(frozen=True)
class CosineLR:
    """Half a cosine from ``lr`` to ``least`` over ``steps``, then ``least`` (Loshchilov and Hutter
    2017).
    """

    lr: float
    steps: int
    least: float = 0.0

    def __post_init__(self) -> None:
        _check_steps(self, "steps", 1)

    def __call__(self, step: int) -> float:
        """The learning rate of a step."""
        return _cosine(self.lr, self.least, min(1.0, step / self.steps))


@dataclass(frozen=True)
class WarmupLR:
    """A straight line from ``start`` times the rate over ``steps``, then the rate: a number, or a
    schedule whose steps count from there.
    """

    then: float | Schedule
    steps: int
    start: float = 0.0

    def __post_init__(self) -> None:
        _check_steps(self, "steps", 0)

    def __call__(self, step: int) -> float:
        """The learning rate of a step."""
        rate = self.then(max(0, step - self.steps)) if callable(self.then) else self.then
        if step >= self.steps:
            return rate
        return rate * (self.start + (1 - self.start) * step / self.steps)


@dataclass(frozen=True)
class OneCycleLR:
    """Half cosines up to ``max_lr`` and down again, in ``steps`` (Smith and Topin 2018)."""

    max_lr: float
    steps: int
    pct_start: float = 0.3
    div_factor: float = 25.0
    final_div_factor: float = 1e4

    def __post_init__(self) -> None:
        _check_steps(self, "steps", 1)
        if not 0 <= self.pct_start <= 1:
            raise ConfigError(f"OneCycleLR: pct_start={self.pct_start!r} must be from 0 to 1")

    def __call__(self, step: int) -> float:
        """The learning rate of a step."""
        least = self.max_lr / self.div_factor
        top, last = self.pct_start * self.steps - 1, self.steps - 1
        if step < top:
            return _cosine(least, self.max_lr, step / top)
        part = min(1.0, (step - top) / (last - top)) if last > top else 1.0
        return _cosine(self.max_lr, least / self.final_div_factor, part)


def _check_steps(schedule: Any, name: str, least: int) -> None:
    value = getattr(schedule, name)
    if type(value) is not int or value < least:
        raise ConfigError(
            f"{type(schedule).__name__}: {name}={value!r} must be an integer of at least {least}"
        )


def _cosine(first: float, last: float, part: float) -> float:
    return last + (first - last) * (1 + math.cos(math.pi * part)) / 2
