"""Random numbers of a graph as inputs of it: PyTorch draws them before each call.

    native_dropout(x, p)   -->   x * (mask / (1 - p))       mask: one more input
    rand_like(x)           -->   one more input

They are drawn in the graph's order by PyTorch's own generator, so ``torch.manual_seed`` says what
comes, and dropout has the masks that it has in PyTorch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tunegrad.trees import mapped

from .graph import load_torch, name_of

_DRAWN = frozenset(
    "aten." + name
    for name in (
        "rand.default", "rand_like.default", "randn.default", "randn_like.default",
        "randint.default", "randint.low", "randint_like.default", "randint_like.low_dtype",
        "randperm.default", "bernoulli.p", "uniform.default", "exponential.default",
    )
)  # fmt: skip
"""Operators whose results depend on shapes and numbers alone, not on the elements of a tensor."""

_DROPOUT = "aten.native_dropout.default"


@dataclass(frozen=True, slots=True)
class _Like:
    """A tensor of which the shape, the strides and the dtype are read."""

    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    dtype: Any
    device: Any


class Draws:
    """The draws of a graph: a function of its arguments, whose numbers may say shapes."""

    def __init__(self, graph_module: Any) -> None:
        places = [n.meta.get("val") for n in graph_module.graph.nodes if n.op == "placeholder"]
        sym = load_torch().SymInt
        self._symbols = {v.node.expr: i for i, v in enumerate(places) if isinstance(v, sym)}
        self._made: list[tuple[Callable[..., Any], Any, Any]] = []

    def __bool__(self) -> bool:
        return bool(self._made)

    def add(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """One more draw; nodes among the arguments stand for what PyTorch says of them."""
        self._made.append((function, mapped(args, _described), mapped(kwargs, _described)))

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """Draw, for these arguments of the graph."""
        settled = partial(_settled, {symbol: args[i] for symbol, i in self._symbols.items()})
        return [
            function(*mapped(given, settled), **mapped(named, settled))
            for function, given, named in self._made
        ]


def with_draws_as_inputs(graph_module: Any) -> Draws:
    """Rewrite the graph: what it draws is given behind its other arguments."""
    graph = graph_module.graph
    draws = Draws(graph_module)
    last = [n for n in graph.nodes if n.op == "placeholder"][-1:]
    for node in list(graph.nodes):
        name = name_of(node.target) if node.op == "call_function" else ""
        if name != _DROPOUT and name not in _DRAWN:
            continue
        if last:
            with graph.inserting_after(last[0]):
                place = graph.placeholder(f"drawn_{len(draws._made)}")
        else:
            with graph.inserting_before(next(iter(graph.nodes))):
                place = graph.placeholder(f"drawn_{len(draws._made)}")
        last = [place]
        if name == _DROPOUT:
            _dropout_of(graph, node, place, draws)
        else:
            place.meta["val"] = node.meta["val"]
            draws.add(node.target, node.args, node.kwargs)
            node.replace_all_uses_with(place)
            graph.erase_node(node)
    if draws:
        graph.lint()
        graph_module.recompile()
    return draws


def _dropout_of(graph: Any, node: Any, place: Any, draws: Draws) -> None:
    """Dropout by a mask that is given; in PyTorch's order of roundings."""
    aten = load_torch().ops.aten
    x, p = node.args[0], float(node.args[1])
    train = node.args[2] is not False and p > 0
    said, mask = node.meta["val"]
    place.meta["val"] = mask
    draws.add(_mask, (x, p if train else 0.0), {})
    with graph.inserting_before(node):
        kept = graph.call_function(aten._to_copy.default, (place,), {"dtype": said.dtype})
        scale = graph.call_function(aten.mul.Tensor, (kept, 1 / (1 - p) if p < 1 else 0.0))
        found = graph.call_function(aten.mul.Tensor, (x, scale))
    for made in (kept, scale, found):
        made.meta["val"] = said
    for user in list(node.users):
        if user.target is operator.getitem:
            user.replace_all_uses_with(place if user.args[1] else found)
            graph.erase_node(user)
    graph.erase_node(node)


def _mask(x: Any, p: float) -> Any:
    """True for the elements that dropout keeps, as PyTorch draws them."""
    mask = load_torch().empty_like(x, dtype=load_torch().bool)
    return mask.bernoulli_(1 - p) if p else mask.fill_(True)


def _described(value: Any) -> Any:
    """A leaf of a node's arguments; of a node what PyTorch says of it."""
    torch = load_torch()
    if isinstance(value, torch.fx.Node):
        value = value.meta["val"]
    if isinstance(value, torch.Tensor):
        return _Like(tuple(value.shape), tuple(value.stride()), value.dtype, value.device)
    return value


def _settled(sizes: Mapping[Any, int], value: Any) -> Any:
    """The same for one call: sizes are numbers, and tensors are empty ones."""
    torch = load_torch()
    if isinstance(value, _Like):
        shape, strides = mapped((value.shape, value.strides), partial(_settled, sizes))
        return torch.empty_strided(shape, strides, dtype=value.dtype, device=value.device)
    if isinstance(value, torch.SymInt):
        return int(value.node.expr.subs(sizes))
    return value
