"""Operations written once, for PyTorch and for tunegrad: the same text runs on both.

A case is a function of the library (``T``), its functional module (``F``) and tensors; ``check``
computes all cases of a table at once, compiled, and compares every output. Without PyTorch its
results are those of ``tests/data/torch_expected.npz``, which

    TUNEGRAD_RECORD_TORCH=1 python -m pytest -n 0 tests/unit/test_torch_*.py

writes anew with PyTorch.
"""

from __future__ import annotations

import atexit
import functools
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tunegrad as tg
from tunegrad.frontend import Tensor, bf16_values
from tunegrad.inference import realize

Case = tuple[Callable[..., Any], list[np.ndarray]]
Expected = tuple[str, np.ndarray]
RECORDED = Path(__file__).parents[1] / "data" / "torch_expected.npz"
NEW: dict[str, list[Expected]] = {}
_RECORDING = bool(os.environ.get("TUNEGRAD_RECORD_TORCH"))
CLOSE = {"f16": 4e-3, "bf16": 3e-2, "f32": 2e-5, "f64": 1e-10}


def numbers(*shape: int, seed: int = 0, low: float = -3.0, high: float = 3.0) -> np.ndarray:
    """f32 numbers between two bounds, without zeros."""
    rng = np.random.default_rng([seed, *shape])
    return rng.uniform(low, high, shape).astype(np.float32)


def integers(*shape: int, seed: int = 0, low: int = -9, high: int = 9, dtype: Any = np.int64):
    """Whole numbers, ``high`` not among them."""
    return np.random.default_rng([seed, *shape]).integers(low, high, shape).astype(dtype)


def both(data: np.ndarray, dtype: str | None, torch: Any) -> tuple[Any, Any]:
    """An array as a tensor of either library; floats in ``dtype``, where one is given. Without
    PyTorch the second one is None.
    """
    cast = dtype is not None and data.dtype.kind == "f"
    ours = Tensor(data, dtype) if cast else Tensor(data)
    if torch is None:
        return ours, None
    theirs = torch.from_numpy(data.copy())
    return ours, theirs.to(getattr(torch, _TORCH[str(dtype)])) if cast else theirs


_TORCH = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
_KINDS = {v: k for k, v in _TORCH.items()} | {
    "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "bool",
}  # fmt: skip


def optional_torch() -> Any:
    """PyTorch, or None where it is not installed: then its recorded results are compared with."""
    try:
        import torch
    except ImportError:
        return None
    return torch


@functools.cache
def _recorded() -> Mapping[str, list[Expected]]:
    """Results by test and case: an index, and all values of a dtype in one row."""
    with np.load(RECORDED) as found:
        rows = {k: found[k] for k in found.files if k != "index"}
        index = json.loads(bytes(found["index"]))
    return {
        key: [
            (kind, rows[kind][at : at + math.prod(shape)].reshape(shape))
            for kind, shape, at in parts
        ]
        for key, parts in index.items()
    }


def _expected(
    function: Callable[..., Any], inputs: Sequence[Any], torch: Any, key: str
) -> list[Expected]:
    """PyTorch's results: computed, and kept where they are recorded; or read."""
    if torch is None:
        return _recorded()[key]
    with torch.no_grad():
        found = function(torch, torch.nn.functional, *inputs)
    results = [plain(t, torch) for t in flat_torch(found, torch)]
    if _RECORDING:
        NEW[key] = results
    return results


def plain(theirs: Any, torch: Any) -> Expected:
    """A result of PyTorch as its dtype and an array; bf16 values as f32."""
    if not isinstance(theirs, torch.Tensor):
        return "py", np.asarray(theirs)
    kind = _KINDS[str(theirs.dtype).removeprefix("torch.")]
    return kind, (theirs.float() if kind == "bf16" else theirs).detach().numpy()


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
    wanted: list[tuple[str, Expected]] = []
    problems: list[str] = []
    test = os.environ["PYTEST_CURRENT_TEST"].split("/")[-1].split(" ")[0]
    for name, (function, arrays) in cases.items():
        pairs = [both(a, dtype, torch) for a in arrays]
        theirs = _expected(function, [p[1] for p in pairs], torch, f"{test}|{name}")
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
            elif m != t[1].item():
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


def difference(tensor: Tensor, array: np.ndarray, theirs: Expected, close: float | None) -> str:
    """What is not the same, in words; empty where nothing is."""
    kind, expected = theirs
    if expected.shape != array.shape or kind != tensor.dtype.name:
        return f"{tensor.dtype}{list(array.shape)}, {kind}{list(expected.shape)} expected"
    mine = bf16_values(array) if kind == "bf16" else array
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


def write_recorded() -> None:
    """Keep what PyTorch gave in this session, where that was asked for."""
    if _RECORDING and NEW:
        index: dict[str, list[tuple[str, tuple[int, ...], int]]] = {}
        rows: dict[str, list[np.ndarray]] = {}
        ends: dict[str, int] = {}
        for key, results in NEW.items():
            for kind, array in results:
                at = ends.get(kind, 0)
                index.setdefault(key, []).append((kind, array.shape, at))
                rows.setdefault(kind, []).append(array.reshape(-1))
                ends[kind] = at + array.size
        text = np.frombuffer(json.dumps(index).encode(), np.uint8)
        values = {kind: np.concatenate(parts) for kind, parts in rows.items()}
        np.savez_compressed(RECORDED, index=text, **values)


atexit.register(write_recorded)
