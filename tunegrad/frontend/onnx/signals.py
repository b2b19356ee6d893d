"""Fourier transforms, as products with matrices of sines and cosines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..functions import stack
from ..tensor import Tensor
from .node import NodeView

__all__ = ["SIGNALS"]

_LONGEST = 1 << 12
"""Elements of a transform; its matrices have the square of it."""


def _transformed(n: NodeView, x: Tensor, length: int, back: bool, half: bool) -> Tensor:
    """The transform of the last dimension but one of (.., elements, 1 or 2), which is cut or filled
    with zeros to ``length``; ``half`` of the frequencies, or from half of them.
    """
    if length > _LONGEST:
        raise n.error(f"{length} elements; up to {_LONGEST} are there")
    kind, x = x.dtype, x.cast(x.dtype.compute)
    if back and half:
        return _from_half(x, length).cast(kind)
    count = min(x.shape[-2], length)
    x = x.narrow(-2, 0, count)
    kept = length // 2 + 1 if half else length
    angle = 2 * np.pi * np.outer(np.arange(count), np.arange(kept)) / length
    cos, sin = (Tensor(f(angle) / (length if back else 1), x.dtype) for f in (np.cos, np.sin))
    real = x[..., 0]
    if x.shape[-1] == 1:
        other = real @ sin
        parts = [real @ cos, other if back else other.neg()]
    elif back:
        parts = [real @ cos - x[..., 1] @ sin, real @ sin + x[..., 1] @ cos]
    else:
        parts = [real @ cos + x[..., 1] @ sin, x[..., 1] @ cos - real @ sin]
    return stack(parts, -1).cast(kind)


def _from_half(x: Tensor, length: int) -> Tensor:
    """Real elements from the half of their frequencies; the others are conjugates."""
    count = min(x.shape[-2], length // 2 + 1)
    x = x.narrow(-2, 0, count)
    number = np.arange(count)
    alone = (number == 0) | (2 * number == length)
    angle = 2 * np.pi * np.outer(number, np.arange(length)) / length
    share = np.where(alone, 1.0, 2.0).reshape(-1, 1) / length
    cos, sin = (Tensor(f(angle) * share, x.dtype) for f in (np.cos, np.sin))
    real = x[..., 0] @ cos
    real = real if x.shape[-1] == 1 else real - x[..., 1] @ sin
    return real.unsqueeze(-1)


def _dft(n: NodeView) -> Tensor:
    x, back, half = n(0), bool(n.get("inverse", 0)), bool(n.get("onesided", 0))
    given = n.ints(2) if n.opset >= 20 else None
    axis = given[0] if given else n.get("axis", -2 if n.opset >= 20 else 1)
    axis %= x.ndim
    if axis == x.ndim - 1:
        raise n.error("the last axis holds real and imaginary parts")
    length = n.ints(1)
    extent = x.shape[axis]
    wanted = length[0] if length else 2 * (extent - 1) if back and half else extent
    return _transformed(n, x.movedim(axis, -2), wanted, back, half).movedim(-2, axis)


def _stft(n: NodeView) -> Tensor:
    """STFT: (batch, elements, 1 or 2) to (batch, frames, frequencies, 2)."""
    x, step, window, length = n(0), n.ints(1), n.tensor(2), n.ints(3)
    if not step or (window is None and not length):
        raise n.error("frame_step and frame_length must be known")
    x = x.unsqueeze(-1) if x.ndim == 2 else x
    size = window.shape[0] if window is not None else length[0] if length else 0
    frames = x.window(1, size, step[0]).movedim(-1, 2)
    frames = frames if window is None else frames * window.reshape(-1, 1)
    return _transformed(n, frames, size, False, bool(n.get("onesided", 1)))


SIGNALS: dict[str, Callable[[NodeView], Any]] = {"DFT": _dft, "STFT": _stft}
