"""Operations written once, for PyTorch and for tunegrad: the same text runs on both.

A case is a function of the library (``T``), its functional module (``F``) and tensors; ``check``
computes all cases of a table at once, compiled, and compares every output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import tunegrad as tg
from tunegrad.frontend import Tensor
from tunegrad.frontend.arrays import bf16_bits, bf16_values
from tunegrad.inference import realize

Case = tuple[Callable[..., Any], list[np.ndarray]]
CLOSE = {"f16": 4e-3, "bf16": 3e-2, "f32": 2e-5, "f64": 1e-10}


def numbers(*shape: int, seed: int = 0, low: float = -3.0, high: float = 3.0) -> np.ndarray:
    """f32 numbers between two bounds, without zeros."""
    rng = np.random.default_rng([seed, *shape])
    return rng.uniform(low, high, shape).astype(np.float32)


def integers(*shape: int, seed: int = 0, low: int = -9, high: int = 9, dtype: Any = np.int64):
    """Whole numbers, ``high`` not among them."""
    return np.random.default_rng([seed, *shape]).integers(low, high, shape).astype(dtype)


def both(data: np.ndarray, dtype: str | None, torch: Any) -> tuple[Any, Any]:
    """An array as a tensor of either library; floats in ``dtype``, where one is given."""
    theirs = torch.from_numpy(data.copy())
    if dtype is None or data.dtype.kind != "f":
        return Tensor(data), theirs
    word = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}.get(dtype)
    theirs = theirs.to(torch.float64 if word is None else word)
    if dtype == "bf16":
        return Tensor(bf16_bits(theirs.float().numpy()), "bf16"), theirs
    return Tensor(data, dtype), theirs


def flat(found: Any) -> list[Any]:
    """The tensors of nested results, in order."""
    if isinstance(found, Tensor) or not isinstance(found, tuple | list):
        return [found.values, found.indices] if hasattr(found, "place") else [found]
    return [t for part in found for t in flat(part)]


def check(
    cases: Mapping[str, Case], torch: Any, dtype: str | None = None, close: float | None = None
) -> None:
    """Every output of every case equals PyTorch's: shape, dtype and values."""
    import tunegrad.nn.functional as ours_f

    outputs: list[Tensor] = []
    wanted: list[tuple[str, Any]] = []
    problems: list[str] = []
    for name, (function, arrays) in cases.items():
        pairs = [both(a, dtype, torch) for a in arrays]
        with torch.no_grad():
            theirs = flat_torch(function(torch, torch.nn.functional, *(p[1] for p in pairs)), torch)
        try:
            mine = flat(function(tg, ours_f, *(p[0] for p in pairs)))
        except Exception as error:  # noqa: BLE001 - reported with all others
            problems.append(f"{name}: {type(error).__name__}: {error}")
            continue
        if len(mine) != len(theirs):
            problems.append(f"{name}: {len(mine)} outputs, {len(theirs)} expected")
            continue
        for m, t in zip(mine, theirs, strict=True):
            if isinstance(m, Tensor):
                outputs.append(m)
                wanted.append((name, t))
            elif m != (t.item() if isinstance(t, torch.Tensor) else t):
                problems.append(f"{name}: {m!r}, {t!r} expected")
    for (name, theirs), tensor, array in zip(wanted, outputs, realize(outputs), strict=True):
        problem = difference(tensor, array, theirs, close)
        if problem:
            problems.append(f"{name}: {problem}")
    assert not problems, "\n".join([f"{len(problems)} differ:", *problems])


def flat_torch(found: Any, torch: Any) -> list[Any]:
    if isinstance(found, tuple | list) and not isinstance(found, torch.Size):
        return [t for part in found for t in flat_torch(part, torch)]
    return [found]


def difference(tensor: Tensor, array: np.ndarray, theirs: Any, close: float | None) -> str:
    """What is not the same, in words; empty where nothing is."""
    kinds = {
        "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "int64": "i64",
        "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "bool",
    }  # fmt: skip
    kind = kinds[str(theirs.dtype).removeprefix("torch.")]
    if tuple(theirs.shape) != array.shape or kind != tensor.dtype.name:
        return f"{tensor.dtype}{list(array.shape)}, {kind}{list(theirs.shape)} expected"
    mine = bf16_values(array) if kind == "bf16" else array
    expected = theirs.float().numpy() if kind == "bf16" else theirs.numpy()
    if kind not in CLOSE:
        return "" if np.array_equal(mine, expected) else f"{mine} is not {expected}"
    tolerance = CLOSE[kind] if close is None else close
    a, b = mine.astype(np.float64), expected.astype(np.float64)
    if np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True):
        return ""
    with np.errstate(all="ignore"):
        far = np.nanmax(np.abs(a - b)) if a.size else 0.0
    return f"off by {far:.3g}: {mine.reshape(-1)[:6]!s} is not {expected.reshape(-1)[:6]!s}"


def on(
    functions: Mapping[str, Callable[..., Any]], *arrays: Sequence[np.ndarray]
) -> dict[str, Case]:
    """Each function on each list of arrays."""
    return {
        f"{name} {' '.join(str(a.shape) for a in listed)}": (f, list(listed))
        for name, f in functions.items()
        for listed in arrays
    }
