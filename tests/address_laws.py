"""The laws of runs on memory that callers own, and of files of arrays: what is written lies where
it must, nothing else changes, and what is refused has changed nothing.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from functools import cache
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tunegrad as tg
from tunegrad.errors import IndexOutOfRange
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import Fusion, LaunchPlan
from tunegrad.ir.graph import Node
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.interpret.kernel import interpret
from tunegrad.ir.verify.kernel import verify_kernel
from tunegrad.runtime import Lifetime, lifetimes, plan_memory
from tunegrad.runtime.mapped import MappedFileError, check_digest, write_arrays

__all__ = ["ADDRESS_LAWS", "HAS_TORCH"]

Array = NDArray[Any]
Law = Callable[[random.Random], None]

HAS_TORCH = importlib.util.find_spec("torch") is not None
"""False: the law of PyTorch's tensors is left out."""

_Function = Callable[..., tg.Tensor | tuple[tg.Tensor, ...]]

_ROWS = 6


def _step(x: tg.Tensor, w: tg.Tensor, m: tg.Tensor) -> tuple[tg.Tensor, ...]:
    m = m * 0.5 + x.T @ x
    return (x @ w).sum(), w - m, m


def _moved(x: tg.Tensor, w: tg.Tensor, m: tg.Tensor) -> tuple[tg.Tensor, ...]:
    return x[2:] @ w + m[:4], tg.cat([w[1:], w[:1] + x[:1]], 0), m - x


def _looked_up(x: tg.Tensor, at: tg.Tensor) -> tg.Tensor:
    return x[at] * 2


def _table(x: tg.Tensor, at: tg.Tensor) -> tuple[tg.Tensor, ...]:
    return x[at].sum(), x + 1


def _twice(x: tg.Tensor, w: tg.Tensor) -> tuple[tg.Tensor, ...]:
    total = x + w
    return total, total, w * 2


def _unread(x: tg.Tensor, w: tg.Tensor, m: tg.Tensor) -> tg.Tensor:
    del w
    return x - m


def _twice_beside(x: tg.Tensor, w: tg.Tensor, m: tg.Tensor) -> tuple[tg.Tensor, ...]:
    total = x + w
    return total, total, m - x


def _constant(x: tg.Tensor, w: tg.Tensor) -> tuple[tg.Tensor, ...]:
    return tg.ones(2, 3), x - w


_FUNCTIONS: dict[_Function, tuple[str, str]] = {
    _step: ("xwm", "wm"), _moved: ("xwm", "wm"), _looked_up: ("xa", ""), _table: ("xa", "x"),
    _twice: ("xw", ""), _twice_beside: ("xwm", "m"), _unread: ("xwm", ""), _constant: ("xw", ""),
}  # fmt: skip
"""The kinds of the inputs of each, and those that are donated."""


def _inputs(rng: random.Random, kinds: str, *, outside: bool = False) -> list[Array]:
    """Small whole numbers, so that every order of a sum is one number; of ``a`` indices, one of
    them ``outside``.
    """
    draw = np.random.default_rng(rng.randrange(1 << 30)).integers
    at = draw(-_ROWS, _ROWS, 5)
    if outside:
        at[rng.randrange(len(at))] = rng.choice((_ROWS, -_ROWS - 1, 1 << 40))
    return [
        at if kind == "a" else draw(-9, 10, (_ROWS, _ROWS)).astype(np.float32) for kind in kinds
    ]


@cache
def _compiled(function: _Function) -> tg.LoadedModel:
    kinds, written = _FUNCTIONS[function]
    donate = [kinds.index(kind) for kind in written]
    given = _inputs(random.Random(0), kinds)
    return tg.compile(function, *given, store=False, threads=1, donate=donate)


def _wanted(function: _Function, given: list[Array]) -> list[Array] | None:
    """All results of the function by the interpreter; None for an index out of range."""
    kinds, _ = _FUNCTIONS[function]
    outside = [x for kind, x in zip(kinds, given, strict=True) if kind == "a"]
    if any(((x < -_ROWS) | (x >= _ROWS)).any() for x in outside):
        return None
    names = [f"x{i}" for i in range(len(given))]
    inputs = [
        tg.Tensor.input(name, x.shape, "i64" if x.dtype == np.int64 else "f32")
        for name, x in zip(names, given, strict=True)
    ]
    made = function(*inputs)
    nodes = tuple(t.node for t in (made if isinstance(made, tuple) else (made,)))
    return [*evaluate(nodes, dict(zip(names, given, strict=True)))]


def _placed(rng: random.Random, array: Array) -> Array:
    """A copy at any aligned place of memory of its own."""
    whole = np.zeros(array.nbytes + 1024, np.uint8)
    first = -whole.ctypes.data % 64 + 64 * rng.randrange(8)
    found: Array = whole[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


def at_addresses(rng: random.Random) -> None:
    """Outputs and new values of donated inputs lie at their addresses, all other inputs stay; an
    index out of range is an error, which has changed no donated input.
    """
    ran = 0
    for function, (kinds, donated) in _FUNCTIONS.items():
        model = _compiled(function)
        run = model._runner.at_addresses([a.name for a in model.inputs])
        for n in range(4 if run else 0):
            assert run is not None
            given = _inputs(rng, kinds, outside=n % 2 > 0)
            wanted = _wanted(function, [x.copy() for x in given])
            arrays = [_placed(rng, x) for x in given]
            before = [_placed(rng, x) for x in _inputs(rng, kinds)]
            held = model(*before)  # where a fault forgets to point is memory that lives
            fresh = _outputs(function)
            made = [_placed(rng, np.full_like(y, 77)) for y in fresh[: len(fresh) - len(donated)]]
            try:
                run([x.ctypes.data for x in (*arrays, *made)])
            except IndexOutOfRange:
                assert wanted is None, f"{function.__name__}: no index is out of range"
            else:
                assert wanted is not None, f"{function.__name__}: an index is out of range"
            ran += 1
            new = dict(zip(donated, (wanted or [])[len(made) :], strict=False))
            for kind, x, value in zip(kinds, arrays, given, strict=True):
                assert (x == new.get(kind, value)).all(), f"{function.__name__}: input {kind}"
            for y, value in zip(made, wanted or [], strict=False):
                assert (y == value).all(), f"{function.__name__}: an output"
            del held
    assert ran >= 20, f"of the functions {ran // 4} run at addresses"


@cache
def _outputs(function: _Function) -> list[Array]:
    """Results of the function for some inputs, of which shapes count."""
    given = _inputs(random.Random(0), _FUNCTIONS[function][0])
    found = _wanted(function, given)
    assert found is not None
    return found


def apart(rng: random.Random) -> None:
    """A program runs on tensors as they lie if what it writes to shares nothing with another, and
    each has the strides and the signs of its example.
    """
    import torch

    from tunegrad.torch import _Direct

    class Takes:
        def at_addresses(self, addresses: list[int]) -> bool:
            self.addresses = addresses
            return True

    memory = torch.zeros(64)
    for _ in range(200):
        sizes = [rng.randint(1, 12) for _ in range(rng.randint(1, 5))]
        written = {i for i in range(len(sizes)) if rng.random() < 0.4}
        wide = rng.choice((8, 20, 40))
        direct, model = _Direct([torch.zeros(n) for n in sizes], written, []), Takes()
        places: list[tuple[int, ...]] = []
        for _ in range(24):
            again = places and rng.random() < 0.3
            at = rng.choice(places) if again else tuple(rng.randint(0, wide) for _ in sizes)
            places.append(at)
            given = [memory[a : a + n] for a, n in zip(at, sizes, strict=True)]
            odd = rng.random()
            if odd < 0.1:
                given[0] = memory[at[0] : at[0] + 2 * sizes[0] : 2]
            elif odd < 0.2:
                given[0] = torch._neg_view(given[0])
            spans = [range(a, a + n) for a, n in zip(at, sizes, strict=True)]
            shared = any(
                not set(spans[i]).isdisjoint(spans[j])
                for i in written for j in range(len(sizes)) if i != j
            )  # fmt: skip
            model.addresses = []
            found = direct.run(model, given)  # type: ignore[arg-type]
            if shared or odd < 0.2:
                assert (found, model.addresses) == (None, []), (sizes, written, at, odd)
            else:
                assert found == [], (sizes, written, at)
                assert model.addresses == [x.data_ptr() for x in given]


def _drawn_step(rng: random.Random) -> tuple[tuple[Node, ...], tuple[tuple[int, str], ...]]:
    """New values of tensors, computed of each other, and a sum; which outputs replace inputs."""
    state = [tg.Tensor.input(f"s{i}", (4, 4), "i32") for i in range(rng.randint(2, 3))]
    made = [*state]
    for _ in range(rng.randint(2, 5)):
        x, y = (rng.choice(made) for _ in range(2))
        x = x.T if rng.random() < 0.25 else x
        made.append(
            rng.choice((
                x - y * 3, (x + y).contiguous(), tg.cat([x[2:], y[:2]], 0),
                (x - y.max(1, keepdim=True)).contiguous(),
                tg.cat([x[:2] @ y, y[:2] @ x], 0).contiguous(),
            ))
        )  # fmt: skip
    new = [rng.choice(made[len(state) // 2 :]) for _ in state]
    total = rng.choice(made).max()
    news = tuple((i, f"s{i}") for i in range(len(state)))
    return tuple(t.node for t in (*new, total)), news


def in_memory(rng: random.Random) -> None:
    """A step that writes over its inputs, with temporary buffers in one arena, computes what its
    graph says, where each launch spoils the memory that it writes before it reads.
    """
    for _ in range(40):
        outputs, news = _drawn_step(rng)
        plan = Fusion.of(fold_constants(outputs), news=news, view_bytes=16).as_run()
        draw = np.random.default_rng(rng.randrange(1 << 30))
        inputs = {f"s{i}": draw.integers(-9, 10, (4, 4)).astype(np.int32) for i in range(3)}
        wanted = evaluate(outputs, inputs)
        for x, y in zip(wanted, _ran_in_arena(plan, inputs), strict=True):
            assert (x == y).all(), f"in memory: {plan}"
        starts = [rng.randrange(9) for _ in range(rng.randint(2, 30))]
        spans = [Lifetime(rng.choice((1, 63, 65, 300)), n, n + rng.randrange(4)) for n in starts]
        arena = plan_memory(spans)
        for (a, at), (b, there) in combinations(zip(spans, arena.offsets, strict=True), 2):
            apart = at + a.nbytes <= there or there + b.nbytes <= at
            assert apart or a.last < b.first or b.last < a.first, f"in memory: {spans}"


def _ran_in_arena(plan: LaunchPlan, inputs: dict[str, Array]) -> list[Array]:
    spans, over = lifetimes(plan), dict(plan.over)
    arena = plan_memory(tuple(spans.values()))
    whole = np.full(arena.nbytes, 0x7B, np.uint8)
    places = dict(zip(spans, arena.offsets, strict=True))
    known: dict[int, Array] = {}

    def memory(i: int) -> Array:
        b = plan.buffers[i]
        if i not in known:
            if b.base is not None:
                known[i] = memory(b.base)[b.start : b.start + b.nbytes]
            elif i in over:
                known[i] = memory(over[i])
            elif i in places:
                known[i] = whole[places[i] : places[i] + b.nbytes]
            elif b.role == "input":
                known[i] = b.layout.pack(inputs[b.name]).view(np.uint8).copy()
            elif b.data is not None:
                known[i] = b.layout.pack(b.data.array).view(np.uint8)
            else:
                known[i] = np.full(b.nbytes, 0x7B, np.uint8)
        return known[i]

    for launch in plan.launches:
        k = launch.kernel
        verify_kernel(k)
        args = dict(zip((p.name for p in k.params), launch.args, strict=True))
        replaced = set(k.overwritten.values())
        for p in k.params:
            if p.role == "out" and p.name not in replaced:
                memory(args[p.name])[...] = 0x7B
        given = {p.name: memory(args[p.name]).view(p.dtype.numpy).copy()
                 for p in k.params if p.role != "out"}  # fmt: skip
        for name, flat in interpret(k, given).items():
            memory(args[name])[...] = flat.view(np.uint8)
    return [
        plan.buffers[i].layout.unpack(memory(i).view(plan.buffers[i].dtype.numpy))
        for i in plan.outputs
    ]


def alone(rng: random.Random) -> None:
    """A graph that AOTAutograd's wrappers are left away from writes to its inputs, shares memory
    and rounds as PyTorch does: what is a view of an input stays one, autocast is not applied twice.
    """
    import torch

    def replaced(x: Any, w: Any) -> Any:
        x.mul_(2)
        return x @ w

    def same_memory(x: Any, w: Any) -> Any:
        return x @ w, x.t()

    def exact(x: Any, w: Any) -> Any:
        with torch.autocast("cpu", enabled=False):
            return x @ w

    for function in rng.sample((replaced, same_memory, exact), 3):
        torch._dynamo.reset()
        found = []
        for run in (function, torch.compile(function, backend="tunegrad")):
            x = torch.arange(12.0).reshape(3, 4).clone()
            w = torch.full((4, 4), 1 + 2.0**-12)
            for _ in range(2):
                with torch.no_grad(), torch.autocast("cpu", enabled=function is exact):
                    made = run(x, w)
                outputs = made if isinstance(made, tuple) else (made,)
                places = [y.untyped_storage().data_ptr() for y in (x, *outputs)]
                shared = [a == b for a in places for b in places]
                found.append([shared, x.tolist(), *((y.dtype, y.tolist()) for y in outputs)])
        assert found[:2] == found[2:], f"{function.__name__}: {found}"


def written_files(rng: random.Random) -> None:
    """A file of arrays is taken as it was written, and refused where one bit of it is another."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "m"
        draw = np.random.default_rng(rng.randrange(1 << 30))
        arrays = {f"x{i}": draw.standard_normal(rng.randint(1, 40)) for i in range(3)}
        write_arrays(path, arrays, {"about": "these"})
        check_digest(path)
        whole = path.read_bytes()
        last = range(len(whole) - 32, len(whole))
        for at in (*last, *(rng.randrange(len(whole)) for _ in range(64))):
            bit = 1 << rng.randrange(8)
            path.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
            try:
                check_digest(path)
            except MappedFileError:
                continue
            raise AssertionError(f"bit {bit} of byte {at} of {len(whole)} may be another")


ADDRESS_LAWS: dict[str, Law] = {
    "at addresses": at_addresses, "in memory": in_memory, "written files": written_files,
}  # fmt: skip
if HAS_TORCH:
    ADDRESS_LAWS |= {"apart": apart, "alone": alone}
