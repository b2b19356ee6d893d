"""Compares the results of a graph of ours with PyTorch's for the same inputs.

    outputs  --within rounding of PyTorch's?-->  right
             --as near to PyTorch's in f64 as PyTorch is itself?-->  right: rounding is amplified
             --no-->  the smallest part of the graph that differs, as a program to run

A graph of ATen operators without writes in place is a function: to run it in PyTorch changes no
input, no buffer, and no generator of random numbers.
"""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from tunegrad.errors import ConfigError, MismatchError, TunegradError

from ..model import InputSpec, Model
from ..tensor import Tensor
from ..weights import Array, Weights
from .aten import Complex
from .graph import (
    array_of,
    constant_of,
    dtype_from,
    load_torch,
    name_of,
    run_graph,
    tensor_of,
    torch_dtype,
)

_log = logging.getLogger(__name__)

_CHECKS = ("error", "warn", False)
"""A first call that differs raises, or warns and gives PyTorch's result; or it is not checked."""

Run = Callable[[Model, Sequence[Any]], Any]
"""Loads a model, and runs it on arrays."""

_UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
_STEP, _FUNCTIONS, _APART = 16.0, 64.0, 4.0
"""Factors of one rounding, as in the verification of kernels (docs/VERIFYING.md)."""

_NUDGE = 4.0
"""Roundings that a value is moved by."""

_NUDGES = 32
"""Draws of nudges at most: an element at a jump leaves its side in every second one."""

_SHOWN = 512
"""Elements of an input that a reproducer spells out."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a graph: ``constants`` are the places of arguments that are part of the program.

    ``unit`` is one rounding of what the program was told to round to (f16, bf16, tf32), 0.0 where
    it has the graph's own dtypes.
    """

    graph: Any
    args: Sequence[Any]
    constants: frozenset[int] = frozenset()
    unit: float = 0.0


def check_choice(door: str, check: object) -> None:
    """Raise ConfigError, which names the door, for a ``check`` that is not there."""
    if not any(check is c or (isinstance(check, str) and check == c) for c in _CHECKS):
        valid = ", ".join(map(repr, _CHECKS))
        raise ConfigError(f"{door}: check {check!r} is not supported; valid: {valid}")


def fault_of(call: Call, got: Sequence[Any], want: Sequence[Any], run: Run) -> str:
    """Say where ``got`` is not ``want``, with the smallest program that shows it; '' where it is.

    ``want`` is what the graph gives in PyTorch. Outputs that are no tensors are not compared.
    """
    got, want = (_as_pairs(values) for values in (got, want))
    said = _compared(call, got, want)
    if not said or _amplified(call, got, want):
        return ""
    try:
        return f"{said}\n{_smallest(call, run)}"
    except (TunegradError, RuntimeError) as error:  # the search must not hide what it looks for
        return f"{said}\n(no smaller part of it was found: {error})"


class FirstCall:
    """The first call of a loaded model beside its exported program in PyTorch.

    ``sources`` say where the value of each placeholder comes from, as ``exported`` has them. Where
    parameters are written to between loading and the first call, nothing is compared: the model has
    the values of before. A result that was wrong once stays so, whatever is written later.
    """

    def __init__(self, program: Any, sources: Sequence[tuple[str, Any]], check: Any) -> None:
        self._program, self._sources, self._check = program, sources, check

    def prepared(self, given: Weights | None, unit: float, run: Run) -> Any:
        held = [self._held(kind, what, given) for kind, what in self._sources]
        versions, known = _versions(held), [""]

        def compared(
            inputs: Sequence[Array], outputs: tuple[Array, ...]
        ) -> tuple[Array, ...] | None:
            if not known[0] and _versions(held) != versions:
                return None
            arrays = iter(inputs)
            kinds = [kind for kind, _ in self._sources]
            places = [n.meta["val"] for n in self._program.graph.nodes if n.op == "placeholder"]
            args = [
                tensor_of(np.array(next(arrays)), said.dtype) if kind == "input" else value
                for kind, value, said in zip(kinds, held, places, strict=True)
            ]
            constants = frozenset(i for i, k in enumerate(kinds) if k in ("parameter", "constant"))
            graph = self._program.graph_module
            try:
                want = [w for w in _interpreted(graph, args) if hasattr(w, "dtype")]
            except RuntimeError as error:  # a kernel of PyTorch's that wants other strides
                _log.info("from_torch: nothing was compared, PyTorch can not run this: %s", error)
                return None
            if not known[0]:
                got = [tensor_of(a, w.dtype) for a, w in zip(outputs, want, strict=True)]
                known[0] = fault_of(Call(graph, args, constants, unit), got, want, run)
                if not known[0]:
                    return None
                if self._check == "warn":
                    _log.warning(
                        "from_torch: PyTorch's results are given, since ours differ: %s", known[0]
                    )
            if self._check == "error":
                raise MismatchError(f"from_torch: the model gives other results: {known[0]}")
            return tuple(np.array(array_of(w.contiguous())) for w in want)

        return compared

    def _held(self, kind: str, what: Any, given: Weights | None) -> Any:
        if kind == "parameter":
            held = self._program.state_dict.get(what)
            own = self._program.constants[what] if held is None else held
            return own if given is None else tensor_of(np.array(given[what]), own.dtype)
        return what[0] if kind == "constant" else what


def _versions(values: Sequence[Any]) -> list[Any]:
    """Numbers of writes to tensors, and their addresses."""
    tensors = [v for v in values if hasattr(v, "data_ptr")]
    return [(t.data_ptr(), None if t.is_inference() else t._version) for t in tensors]


def _model_of(call: Call) -> Model:
    """A graph as a model: its tensors but the constants are inputs, everything else is as it is."""
    tensors = [i for i, a in enumerate(call.args) if hasattr(a, "dtype")]
    inputs = [i for i in tensors if i not in call.constants]
    specs = tuple(
        InputSpec(f"x{i}", tuple(call.args[i].shape), dtype_from(call.args[i].dtype))
        for i in inputs
    )
    values: dict[int, Any] = {i: a for i, a in enumerate(call.args) if not hasattr(a, "dtype")}
    for i in call.constants:
        values[i] = constant_of(call.args[i].detach().cpu(), f"constant{i}")
    return Model("part", lambda: partial(_outputs, call.graph, values, inputs), specs)


def _run_model(call: Call, run: Run) -> list[Any]:
    """The tensors that ``_model_of`` gives, as PyTorch's."""
    model = _model_of(call)
    given = [call.args[int(s.name[1:])] for s in model.inputs]
    found = run(model, [array_of(t.detach().cpu().contiguous()) for t in given])
    dtypes = [torch_dtype(t.dtype) for t in model.make()(*map(_input, model.inputs))]
    arrays = found if isinstance(found, tuple) else (found,)
    return [tensor_of(a, d) for a, d in zip(arrays, dtypes, strict=True)]


def _input(spec: InputSpec) -> Tensor:
    return Tensor.input(spec.name, spec.shape, spec.dtype)


def _outputs(graph: Any, values: Any, places: Sequence[int], *given: Tensor) -> tuple[Tensor, ...]:
    every = {**values, **dict(zip(places, given, strict=True))}
    found = run_graph(graph, [every[i] for i in range(len(every))])
    pairs = (v.pairs() if isinstance(v, Complex) else v for v in found)
    return tuple(v for v in pairs if isinstance(v, Tensor))


def _as_pairs(values: Sequence[Any]) -> list[Any]:
    """Complex numbers as pairs of real ones."""
    torch = load_torch()
    return [
        torch.view_as_real(v.resolve_conj()) if hasattr(v, "dtype") and v.is_complex() else v
        for v in values
    ]


# ---- comparing


def _compared(call: Call, got: Sequence[Any], want: Sequence[Any]) -> str:
    """The first output that differs by more than rounding, in words; '' where none does."""
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        if not hasattr(w, "dtype"):
            continue
        if tuple(g.shape) != tuple(w.shape) or g.dtype != w.dtype:
            return f"output {i} is {g.dtype} {tuple(g.shape)}, not {w.dtype} {tuple(w.shape)}"
        bad = _bad(g, w, _allowed(call, w))
        count = int(bad.sum())
        if count:
            at = tuple(int(n) for n in bad.nonzero()[0])
            return (
                f"output {i}: {count} of {w.numel()} elements differ, the first at {at}: "
                f"{g[at].item()}, PyTorch has {w[at].item()}"
            )
    return ""


def _allowed(call: Call, want: Any) -> Any:
    """Distances from PyTorch's that elements of an output may have; 0 where they are no floats.

    Both sides round, f32 as the verification of kernels allows it for the longest sum of the graph,
    and a graph with 16-bit values at each of its operators.
    """
    if not want.dtype.is_floating_point:
        return 0.0
    torch = load_torch()
    size = want.double().abs()
    size = torch.where(size.isfinite(), size, 0.0)
    spread = size + (size.square().mean().sqrt() if size.numel() else 0.0)
    nodes = [n for n in call.graph.graph.nodes if n.op == "call_function"]
    units = [u for n in nodes for u in _units(n.meta.get("val"))]
    units.append(_UNITS.get(str(want.dtype).removeprefix("torch."), 0.0))
    unit = min(max(units), _UNITS["float32"])
    coarse = max([call.unit, *(u for u in units if u > _UNITS["float32"])])
    steps = _STEP * math.sqrt(max(map(_terms, nodes), default=1)) + _FUNCTIONS
    return spread * (unit * steps + _APART * coarse * math.sqrt(max(1, len(nodes)))) + 1e-45


def _units(said: Any) -> Iterable[float]:
    for value in said if isinstance(said, list | tuple) else (said,):
        name = str(getattr(value, "dtype", "")).removeprefix("torch.")
        if name in _UNITS:
            yield _UNITS[name]


def _terms(node: Any) -> int:
    """About as many numbers as one element of a node's result is summed from."""
    said = node.meta.get("val")
    out = said[0] if isinstance(said, list | tuple) and said else said
    shapes = [
        tuple(a.meta["val"].shape)
        for a in node.all_input_nodes
        if hasattr(a.meta.get("val"), "shape")
    ]
    if not shapes or not hasattr(out, "shape"):
        return 1
    name = str(node.target)
    sizes = [[s if isinstance(s, int) else (s.node.hint or 1) for s in shape] for shape in shapes]
    if "conv" in name and len(sizes) > 1:
        return math.prod(sizes[1][1:]) or 1
    longest = max((shape[-1] for shape in sizes if shape), default=1)
    made = max(1, math.prod(n if isinstance(n, int) else (n.node.hint or 1) for n in out.shape))
    return max(1, longest, max(map(math.prod, sizes)) // made)


def _bad(got: Any, want: Any, allowed: Any) -> Any:
    """Mask of the elements that differ. Infinities and NaN must be where PyTorch's are."""
    torch = load_torch()
    if not want.dtype.is_floating_point:
        return got != want
    g, w = got.double(), want.double()
    same = (g == w) | (g.isnan() & w.isnan())
    return ~torch.where(g.isfinite() & w.isfinite(), (g - w).abs() <= allowed, same)


def _amplified(call: Call, got: Sequence[Any], want: Sequence[Any]) -> bool:
    """Return True where PyTorch's own rounding explains what differs.

    Floats may be four times as far from the graph in f64 as PyTorch's are, and anything may differ
    as much as it does when the numbers on the way are some roundings away.
    """
    torch = load_torch()
    floats = [w for w in want if hasattr(w, "dtype") and w.dtype.is_floating_point]
    truth = _as_pairs(_interpreted(call.graph, call.args, torch.float64)) if floats else want
    nudged: list[Sequence[Any]] = []
    for place, (g, w, t) in enumerate(zip(got, want, truth, strict=True)):
        if not hasattr(w, "dtype"):
            continue
        if tuple(g.shape) != tuple(w.shape) or g.dtype != w.dtype:
            return False
        allowed = _allowed(call, w)
        bad = _bad(g, w, allowed)
        if w.dtype.is_floating_point:
            own = (w.double() - t.to(w.dtype).double()).abs()
            own = torch.where(own.isfinite(), own, 0.0)
            far = own.max() if own.numel() else 0.0
            bad &= _bad(g, t.to(w.dtype), _APART * far + allowed)
        if not w.dtype.is_floating_point and bool(bad.any()):
            bad &= ~_tied(call, place, g, w)
        most = torch.zeros_like(w, dtype=torch.float64)
        for draw in range(_NUDGES):
            if not bool(bad.any()):
                break
            if draw == len(nudged):
                nudged.append(_as_pairs(_nudged(call, draw)))
            other = nudged[draw][place]
            if w.dtype.is_floating_point:
                off = (other.double() - w.double()).abs()
                most = torch.maximum(most, torch.where(off.isfinite(), off, 0.0))
                bad &= _bad(g, w, _APART * most + allowed)
                if not bool(off.isfinite().all()):  # a sum of what is equal may be one of nothing
                    bad &= _bad(g, other, _allowed(call, other))
            else:
                bad &= other == w
        if bool(bad.any()):
            return False
    return True


_EQUALS = ("aten.eq.Tensor", "aten.ne.Tensor")

_NEAR = 8
"""Units within which two moved numbers may have been equal: 5.7 standard deviations of how far two
are moved apart. With 1 the gradient of a maximum that is computed again is refused.
"""

_IN_ANY_ORDER = ("aten.topk.default", "aten.sort.default")
"""Operators that may give equal elements in any order."""


def _tied(call: Call, place: int, got: Any, want: Any) -> Any:
    """Mask of the positions at which ``got`` and ``want`` name equal elements, where the output is
    the positions of an operator that may give these in any order.
    """
    torch = load_torch()
    (end,) = (n for n in call.graph.graph.nodes if n.op == "output")
    node = end.args[0][place]
    source = node.args[0] if node.args and node.target is operator.getitem else None
    if source is None or node.args[1] != 1 or name_of(source.target) not in _IN_ANY_ORDER:
        return torch.zeros_like(got, dtype=torch.bool)
    x = _values(call)[source.args[0]]
    given = source.args[2:] if "topk" in name_of(source.target) else source.args[1:]
    dim = given[0] if given else source.kwargs.get("dim", -1)
    if not got.ndim or int(got.min()) < 0 or int(got.max()) >= x.shape[dim]:
        return torch.zeros_like(got, dtype=torch.bool)
    each = got.sort(dim).values
    apart = bool((each.diff(dim=dim) != 0).all())
    return (x.gather(dim, got) == x.gather(dim, want)) & apart


@contextmanager
def _as_traced() -> Iterator[None]:
    """Without gradients, and without autocast: what that casts is in the graph."""
    torch = load_torch()
    with torch.no_grad(), attrgetter("_C._DisableAutocast")(torch)():
        yield


def _interpreted(graph: Any, args: Sequence[Any], wide: Any = None) -> Any:
    """The graph's outputs in PyTorch; with every float in ``wide``, where that is given."""
    torch = load_torch()
    narrow = (torch.float16, torch.bfloat16, torch.float32)

    def widened(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(wide) if value.dtype in narrow else value
        if isinstance(value, torch.dtype):
            return wide if value in narrow else value
        if isinstance(value, list | tuple):
            return type(value)(map(widened, value))
        return value

    class Wide(torch.fx.Interpreter):  # type: ignore[misc,name-defined]
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            return super().call_function(
                target, widened(args), {k: widened(v) for k, v in kwargs.items()}
            )

        def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
            return widened(super().get_attr(target, args, kwargs))

    with _as_traced():
        if wide is None:
            return torch.fx.Interpreter(graph).run(*args)
        return Wide(graph).run(*map(widened, args))


def _nudged(call: Call, seed: int) -> Any:
    """The graph's outputs in PyTorch, each float on the way some roundings away (Parker 1997).

    Every other seed takes for equal what is so far apart: gradients ask which element was largest.
    """
    torch = load_torch()
    drawn = torch.Generator().manual_seed(seed)

    def moved(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(map(moved, value))
        if not hasattr(value, "dtype") or not value.dtype.is_floating_point:
            return value
        unit = max(_NUDGE * _UNITS[str(value.dtype).removeprefix("torch.")], call.unit)
        off = torch.randn(value.shape, generator=drawn, dtype=torch.float64).to(value.device)
        return (value.detach().double() * (1 + unit * off)).to(value.dtype)

    class Moved(torch.fx.Interpreter):  # type: ignore[misc,name-defined]
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            found = super().call_function(target, args, kwargs)
            name = name_of(target)
            if seed % 2 and name in _EQUALS and all(a.dtype.is_floating_point for a in args):
                a, b = (x.double() for x in args)
                unit = max(_NUDGE * _UNITS[str(args[0].dtype).removeprefix("torch.")], call.unit)
                off = (a - b).abs()  # infinity is near to nothing
                near = off.isfinite() & (off <= _NEAR * unit * torch.maximum(a.abs(), b.abs()))
                found = found | near if name == _EQUALS[0] else found & ~near
            return moved(found)

    with _as_traced():
        return Moved(call.graph).run(*map(moved, call.args))


# ---- the smallest part


def _smallest(call: Call, run: Run) -> str:
    """The smallest part of the graph that differs when it runs alone, as a program in text."""
    values = _values(call)
    nodes = [n for n in call.graph.graph.nodes if n.op == "call_function" and _is_made(values[n])]
    for node in nodes:
        part = _part(call, [node], values)
        if _differs(part, run):
            return _program(part, run)
    size = 2
    while size < len(nodes):
        for start in range(0, len(nodes), max(1, size // 2)):
            part = _part(call, nodes[start : start + size], values)
            if _differs(part, run):
                return _program(_shrunk(call, nodes[start : start + size], values, run), run)
        size *= 2
    return _program(_part(call, nodes, values), run)


def _shrunk(call: Call, nodes: list[Any], values: Any, run: Run) -> Call:
    """A part that differs, without nodes at its ends that are not needed for that."""
    for side in (slice(1, None), slice(None, -1)):
        while len(nodes) > 1 and _differs(_part(call, nodes[side], values), run):
            nodes = nodes[side]
    return _part(call, nodes, values)


def _differs(part: Call, run: Run) -> bool:
    want = _as_pairs([w for w in _interpreted(part.graph, part.args) if hasattr(w, "dtype")])
    got = _run_model(part, run)
    return bool(_compared(part, got, want)) and not _amplified(part, got, want)


def _is_made(value: Any) -> bool:
    """Return True for a tensor, or several."""
    found = value if isinstance(value, list | tuple) else (value,)
    return any(hasattr(v, "dtype") for v in found)


def _values(call: Call) -> dict[Any, Any]:
    """The value of every node, by PyTorch."""
    torch = load_torch()
    found: dict[Any, Any] = {}

    class Kept(torch.fx.Interpreter):  # type: ignore[misc,name-defined]
        def run_node(self, n: Any) -> Any:
            found[n] = super().run_node(n)
            return found[n]

    with _as_traced():
        Kept(call.graph, garbage_collect_values=False).run(*call.args)
    return found


def _part(call: Call, nodes: Sequence[Any], values: dict[Any, Any]) -> Call:
    """Some nodes, one after another in the graph, as a graph of their own."""
    torch = load_torch()
    places = [n for n in call.graph.graph.nodes if n.op == "placeholder"]
    fixed = {n for i, n in enumerate(places) if i in call.constants}
    for n in call.graph.graph.nodes:
        if n.op == "get_attr" or (
            n.op == "call_function" and all(a in fixed for a in n.all_input_nodes)
        ):
            fixed.add(n)
    inside, graph = set(nodes), torch.fx.Graph()
    new: dict[Any, Any] = {}
    args: list[Any] = []
    constants: set[int] = set()
    for outer in dict.fromkeys(a for n in nodes for a in n.all_input_nodes if a not in inside):
        given = values[outer]
        parts = given if isinstance(given, list | tuple) else [given]
        made = []
        for part in parts:
            made.append(graph.placeholder(f"a{len(args)}"))
            made[-1].meta = dict(outer.meta) if parts[0] is given else {}
            if outer in fixed and hasattr(part, "dtype"):
                constants.add(len(args))
            args.append(part)
        new[outer] = made[0] if not isinstance(given, list | tuple) else made
    ends = []
    for n in nodes:
        if n.target.__name__ == "getitem" and isinstance(new.get(n.args[0]), list):
            new[n] = new[n.args[0]][n.args[1]]
            continue
        new[n] = graph.node_copy(n, lambda a: new[a])
        outside = any(u not in inside for u in n.users) or not n.users
        if outside and hasattr(values[n], "dtype"):
            ends.append(new[n])
        elif outside and _is_made(values[n]):
            read = [u.args[1] for u in n.users if u.target is operator.getitem]
            ends += _picked(graph, new[n], values[n], read or range(len(values[n])))
    graph.output(tuple(ends))
    return Call(torch.fx.GraphModule({}, graph), args, frozenset(constants), call.unit)


def _picked(graph: Any, node: Any, values: Sequence[Any], places: Iterable[int]) -> list[Any]:
    """The tensors at some places of several."""
    found = []
    for i in places:
        if hasattr(values[i], "dtype"):
            found.append(graph.call_function(operator.getitem, (node, i)))
            found[-1].meta["val"] = values[i]
    return found


# ---- as text


def _program(part: Call, run: Run) -> str:
    """A part as a program: with drawn inputs, where it differs on these too."""
    drawn = Call(part.graph, [_drawn(a, i) for i, a in enumerate(part.args)], part.constants)
    try:
        plain = _differs(drawn, run)
    except (TunegradError, RuntimeError, IndexError):  # positions that are out of range
        plain = False
    lines = [
        "the smallest part of it that differs:",
        "",
        "import torch",
        "from torch import device, inf, nan",
        "import tunegrad.torch",
        *part.graph.code.replace("def forward(self, ", "def part(").strip().splitlines(),
    ]
    for i, a in enumerate(part.args):
        lines.append(f"a{i} = {_written(a, i, plain)}")
    names = ", ".join(f"a{i}" for i in range(len(part.args)))
    lines += [
        "with torch.no_grad():",
        f'    got = torch.compile(part, backend="tunegrad", options={{"check": False}})({names})',
        f"    want = part({names})",
        "for g, w in zip(got, want):",
        "    torch.testing.assert_close(g, w)",
    ]
    return "\n".join(lines)


def _drawn(value: Any, seed: int) -> Any:
    torch = load_torch()
    if not hasattr(value, "dtype") or not value.dtype.is_floating_point:
        return value
    drawn = torch.Generator().manual_seed(seed)
    plain = torch.randn(value.shape, generator=drawn).to(value.dtype)
    return torch.empty_like(plain).copy_(plain)


def _written(value: Any, seed: int, plain: bool) -> str:
    if not hasattr(value, "dtype"):
        return repr(value)
    shape = tuple(value.shape)
    if plain and value.dtype.is_floating_point:
        return (
            f"torch.randn({shape}, generator=torch.Generator().manual_seed({seed}))"
            f".to({value.dtype})"
        )
    if value.numel() <= _SHOWN:
        return f"torch.tensor({value.tolist()}, dtype={value.dtype}).reshape({shape})"
    low, high = value.min().item(), value.max().item()
    return f"...  # {value.dtype} {shape}, from {low} to {high}: too many to print"
