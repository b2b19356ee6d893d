"""``torch.compile(module, backend="tunegrad")``: PyTorch's modules by our kernels, forward and
backward.

    dynamo        Python's code as FX graphs, at breaks more than one
    aot_autograd  each as a graph of ATen operators without writes in place; where gradients are
                  recorded as two, and what the forward one saves are inputs of the backward one
    draws         random numbers become inputs, which PyTorch draws before the call
    run_graph     that one as a graph of tensors, when it is first called with these shapes
    load          kernels, with the winners of the store
    first call    its results beside those of the graph in PyTorch

In inference parameters and buffers become constants of the program, which share the module's memory
until kernels pack them; where gradients are recorded they are inputs. Tensors on a GPU stay there.
A graph that can not be taken runs in PyTorch, and one warning says why. The backend's name is
registered by an entry point, and by importing this module.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from operator import attrgetter, is_, itemgetter
from typing import Any, Literal

from tunegrad.devices import dlpack, known, use_openmp
from tunegrad.errors import (
    ConfigError,
    DeviceError,
    MismatchError,
    MissError,
    ModelError,
    StoreError,
    TunegradError,
)
from tunegrad.forks import ForkSafeLock
from tunegrad.frontend import InputSpec, Model, Tensor
from tunegrad.frontend.torch import (
    TABLE,
    Call,
    Complex,
    Draws,
    array_of,
    check_choice,
    dtype_from,
    fault_of,
    from_torch,
    load_torch,
    missing_operators,
    run_graph,
    tensor_of,
    torch_dtype,
    value_of,
    with_draws_as_inputs,
)
from tunegrad.inference import UNITS, LoadedModel, load

__all__ = ["backend", "from_torch", "register"]

_OPTIONS = ("check", "device", "dtype", "freezing", "numerics", "on_miss", "store", "threads")
_MODES = (
    "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs",
)  # fmt: skip
_SavedGraph: Any = object
"""What ``aot_compile`` of PyTorch asks a backend for."""
with suppress(ImportError):  # PyTorch before 2.9
    from torch._dynamo.aot_compile_types import (  # type: ignore[no-redef]
        GraphModuleSerializableCallable as _SavedGraph,
    )

_KEPT = 16
"""Programs of one graph: by shapes, and by the modules whose parameters it is called with."""

_log = logging.getLogger(__name__)
_QUIET: dict[str, Any] = {"store": None, "on_miss": "default"}

_resizing = ForkSafeLock()
"""Held while PyTorch's own operators of resizing are others: one table of the process."""


def backend(
    graph_module: Any,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph for ``torch.compile``, which calls this for each one.

    ``options`` are those of ``tg.load``: store, on_miss, threads, device, numerics, dtype; and
    ``check``: the first call of each program is compared with the graph in PyTorch. ``"error"``
    (the default) raises MismatchError where they differ by more than rounding, ``"warn"`` gives
    PyTorch's results from then on, False does not compare. With ``freezing`` the parameters and
    buffers of modules stay as they are where no gradients are recorded, and no call asks for them.
    ``mode`` changes nothing: a call never searches, and what ``tunegrad tune`` has found is used in
    any mode.

    Raises:
        ConfigError: an option, or a mode, that is not there.
    """
    settings = _settings(options, mode)
    torch = load_torch()
    use_openmp(attrgetter("_C.__file__")(torch))
    from torch._functorch import config

    if not getattr(config, "force_autograd_cache", False):
        return _compiled(graph_module, example_inputs, settings)
    # ``aot_compile`` asks AOTAutograd for a cache of what Inductor alone makes
    with attrgetter("patch")(config)(
        force_autograd_cache=False, bundled_autograd_cache=False, enable_autograd_cache=False
    ):
        run = _compiled(graph_module, example_inputs, settings, ahead=True)
    return _Ahead(graph_module, dict(options or {}), run)


def _compiled(
    graph_module: Any, example_inputs: Sequence[Any], settings: dict[str, Any], ahead: bool = False
) -> Callable[..., Any]:
    """A graph as a function. ``ahead``: what calls it is made already, and passes all inputs."""
    torch = load_torch()
    from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd

    names = _names(graph_module, example_inputs)
    recording = torch.is_grad_enabled() and any(
        getattr(x, "requires_grad", False) for x in example_inputs
    )
    asked: Sequence[int] = range(len(example_inputs))
    freezing = settings.pop("freezing") and not recording
    if freezing and not ahead:
        asked = _frozen(graph_module, example_inputs)
    held = [*graph_module.parameters(), *graph_module.buffers()]
    frozen = frozenset(map(id, held)) if freezing else frozenset()
    alone: list[_Compiled] = []

    def taken(graph: Any, constants: bool, written: tuple[int, ...] = ()) -> Any:
        _take_flexible_apart(graph)
        draws = with_draws_as_inputs(graph)
        missing = missing_operators(graph.graph)
        if missing:
            _log.warning(
                "torch.compile: %d operators are not supported, this graph runs in PyTorch: %s",
                len(missing), ", ".join(missing),
            )  # fmt: skip
            return make_boxed_func(lambda *args: graph.forward(*args, *draws(args)))
        return _Compiled(graph, names, settings, constants, draws, written, frozen)

    def inference(graph: Any, examples: Sequence[Any]) -> Any:
        written = _written()
        made = taken(graph, not _writes_parameters(examples, written), written)
        whole = len(examples) == len(held) + len(asked)
        if isinstance(made, _Compiled) and not recording and whole and _is_alone(example_inputs):
            alone.append(made)
        return made

    def training(graph: Any, _: Sequence[Any]) -> Any:
        _let_graphs_be_kept()
        return taken(graph, False)

    compiler = aot_autograd(
        fw_compiler=training,
        bw_compiler=training,
        inference_compiler=inference,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=_decompositions(),
    )
    with _resizing_whole(), _taken_apart() if recording else nullcontext():
        compiled: Callable[..., Any] = compiler(graph_module, [example_inputs[i] for i in asked])
    for made in alone:
        compiled = made.with_first(held)
    if len(asked) == len(example_inputs):
        return compiled
    pick, count = _picker(asked), len(asked)
    # what splits a graph of dynamo's, as for data in parallel, passes all that there was
    return lambda *args: compiled(*(args if len(args) == count else pick(args)))


def _frozen(graph_module: Any, examples: Sequence[Any]) -> list[int]:
    """Make parameters and buffers of modules attributes of the graph, for good: dynamo looks them
    up for no call then. The places of the inputs that are left.

    Guards of dynamo's see to it that these modules, and no others of their class, are called, in
    place of guards of their tensors.
    """
    from torch._dynamo.guards import GuardBuilder, install_guard
    from torch._guards import TracingContext

    graph, left, parameter = graph_module.graph, list[int](), load_torch().nn.Parameter
    taken = set[Any]()
    sources = getattr(graph_module, "_param_name_to_source", {})
    for i, (node, example) in enumerate(
        zip(graph.find_nodes(op="placeholder"), examples, strict=True)
    ):
        source = getattr(node.meta.get("grapharg"), "source", None)
        modules = _modules_of(source)
        if not modules or not _is_static(example):
            left.append(i)
            continue
        for module in (modules[0], modules[-1]):
            install_guard(module.make_guard(GuardBuilder.ID_MATCH))
        taken.add(source)
        is_weight = isinstance(example, parameter)
        (graph_module.register_parameter if is_weight else graph_module.register_buffer)(
            node.name, example
        )
        sources[node.name] = source
        with graph.inserting_before(node):
            held = graph.get_attr(node.name)
        held.meta = {k: v for k, v in node.meta.items() if k != "grapharg"}
        node.replace_all_uses_with(held)
        graph.erase_node(node)
    if taken:
        guards = attrgetter("guards_context.dynamo_guards")(TracingContext.get())
        guards.inner = type(guards.inner)(g for g in guards if g.originating_source not in taken)
    graph_module.recompile()
    return left


def _modules_of(source: Any) -> list[Any]:
    """The places of the modules that a tensor belongs to, its own first; none for another one."""
    from torch._dynamo.source import ChainedSource, UnspecializedNNModuleSource

    found = []
    while isinstance(source, ChainedSource):
        source, inner = source.base, source
        if isinstance(inner, UnspecializedNNModuleSource):
            found.append(source)
    return found


@contextmanager
def _resizing_whole() -> Iterator[None]:
    """Resizing is traced as operators of our table. What PyTorch has in Python for tracing goes by
    a scale that its kernels do not: 3 rows that become ``floor(3 * 1.3)`` are the same 3 rows.
    """
    from torch._C import DispatchKey

    aten, kept = load_torch().ops.aten, []
    with _resizing:
        for name in TABLE:
            if name.startswith("upsample_"):
                packet, _, overload = name.partition(".")
                operator = getattr(getattr(aten, packet), overload or "default")
                own = operator.py_kernels
                taken = {
                    k: own.pop(k)
                    for k in (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)
                    if k in own
                }
                kept.append((operator, taken))
                _remembered(operator).clear()
        try:
            yield
        finally:
            for operator, taken in kept:
                operator.py_kernels.update(taken)
                _remembered(operator).clear()


@contextmanager
def _taken_apart() -> Iterator[None]:
    """Attention and recurrent layers are traced as products, not as kernels of PyTorch's whose
    backward passes read what only these kernels write.
    """
    from torch._C import _get_mkldnn_enabled, _set_mkldnn_enabled
    from torch.nn.attention import SDPBackend, sdpa_kernel

    before = _get_mkldnn_enabled()
    _set_mkldnn_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        _set_mkldnn_enabled(before)


def _take_flexible_apart(graph_module: Any) -> None:
    """Rewrite attention with functions of its scores as the products that PyTorch says it is."""
    from torch._higher_order_ops.flex_attention import flex_attention, math_attention
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils._pytree import tree_flatten, tree_unflatten

    graph, torch = graph_module.graph, load_torch()
    found = graph.find_nodes(op="call_function", target=flex_attention)
    for node in found:
        leaves, form = tree_flatten(node.args)
        modules = {
            i: getattr(graph_module, x.target)
            for i, x in enumerate(leaves)
            if isinstance(x, torch.fx.Node) and x.op == "get_attr" and "val" not in x.meta
        }
        places = [
            i for i, x in enumerate(leaves) if isinstance(x, torch.fx.Node) and i not in modules
        ]

        def products(
            *given: Any, leaves: Any = leaves, form: Any = form, modules: Any = modules,
            places: Any = places,
        ) -> Any:  # fmt: skip
            known = {**dict(enumerate(leaves)), **modules, **dict(zip(places, given, strict=True))}
            return math_attention(*tree_unflatten([*known.values()], form))

        examples = [leaves[i].meta["val"] for i in places]
        with examples[0].fake_mode:
            made = make_fx(products, decomposition_table=dict(_decompositions()))(*examples)
        for held in made.graph.find_nodes(op="get_attr"):
            name = f"{node.name}_{held.target}"
            graph_module.register_buffer(name, getattr(made, held.target), persistent=False)
            held.target = name
        inputs = dict(zip(made.graph.find_nodes(op="placeholder"), places, strict=True))
        with graph.inserting_before(node):
            results = graph.graph_copy(made.graph, {n: leaves[i] for n, i in inputs.items()})
        for user in list(node.users):
            user.replace_all_uses_with(results[user.args[1]])
            graph.erase_node(user)
        graph.erase_node(node)
        for i in modules:
            graph.erase_node(leaves[i])
        graph.eliminate_dead_code()
    if found:
        graph_module.recompile()


def _written() -> tuple[int, ...]:
    """The places of the inputs that the graph that is compiled now writes to: their new values are
    its first outputs, in this order, which AOTAutograd copies to them.
    """
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    known = getattr(context, "fw_metadata", None)
    if known is None or known.tokens:
        return ()
    return tuple(known.mutated_inp_runtime_indices)


def _is_alone(inputs: Sequence[Any]) -> bool:
    """True where AOTAutograd has nothing to do around the graph that is compiled now: no gradients,
    no views of inputs as outputs, no new values to copy. Warm calls of 1 to 20 small layers
    that pass it by take 1.0 to 1.5 us of 17 to 28 less (CPU time, in 20 or 21 of 21 turns).
    """
    from torch._guards import TracingContext
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    known = getattr(TracingContext.try_get(), "fw_metadata", None)
    return known is not None and not (
        known.num_mutated_inp_runtime_indices or known.num_outputs_aliased
        or known.num_intermediate_bases or known.tokens or known.dynamic_outputs
        or known.num_graphsafe_rng_states or known.grad_enabled_mutation is not None
        or any(map(is_traceable_wrapper_subclass, inputs))
    )  # fmt: skip


def _let_graphs_be_kept() -> None:
    """Tell PyTorch that the backward program that is compiled now writes to nothing that it is
    given: else ``retain_graph=True`` is refused after a call without.
    """
    from torch._guards import TracingContext

    known: Any = getattr(TracingContext.try_get(), "fw_metadata", None)
    if getattr(known, "bw_donated_idxs", None):
        known.bw_donated_idxs = []


def _writes_parameters(examples: Sequence[Any], written: Sequence[int]) -> bool:
    """True where a graph writes to a parameter, as optimisers do: its tensors do not stay."""
    torch = load_torch()
    return any(
        isinstance(examples[i], torch.nn.Parameter) or getattr(examples[i], "_is_param", False)
        for i in written
        if i < len(examples)
    )


def register() -> None:
    """Tell ``torch.compile`` of the backend, where no entry point did."""
    load_torch()
    from torch._dynamo.backends import registry

    if "tunegrad" not in registry.list_backends():
        registry.register_backend(backend, name="tunegrad")


def _settings(options: Mapping[str, Any] | None, mode: str | None) -> dict[str, Any]:
    if mode is not None and mode not in _MODES:
        raise ConfigError(
            f"torch.compile: mode {mode!r} is not supported; valid: {', '.join(map(repr, _MODES))}"
        )
    given = dict(options or {})
    wrong = [name for name in given if name not in _OPTIONS]
    if wrong:
        raise ConfigError(
            f"torch.compile: options {', '.join(wrong)} are unknown; valid: {', '.join(_OPTIONS)}"
        )
    check_choice("torch.compile", given.get("check", "error"))
    if not isinstance(freezing := given.get("freezing", False), bool):
        raise ConfigError(f"torch.compile: freezing is {freezing!r}; valid: True, False")
    return {**_QUIET, "check": "error", "freezing": False, **given}


@cache
def _decompositions() -> Mapping[Any, Any]:
    """PyTorch's, but for operators that the table has. PyTorch takes 50 to 90 ms to list them."""
    from torch._decomp import core_aten_decompositions

    every: dict[Any, Any] = dict(core_aten_decompositions())
    return {
        operator: made
        for operator, made in every.items()
        if str(operator).removeprefix("aten.") not in TABLE
    }


def _names(graph_module: Any, examples: Sequence[Any]) -> dict[int, str]:
    """Names of the parameters and buffers in the user's module, by the tensors' identity.

    ``L['self']._modules['0']._parameters['weight']`` is ``0.weight``.
    """
    places = [n for n in graph_module.graph.nodes if n.op == "placeholder"]
    names: dict[int, str] = {}
    for node, example in zip(places, examples, strict=False):
        source = getattr(node.meta.get("grapharg"), "source", None)
        if source is not None and _is_static(example):
            text = source.name() if callable(source.name) else source.name
            parts = re.findall(r"\._(?:modules|parameters|buffers)\['([^']+)'\]", text)
            if parts:
                names[id(example)] = ".".join(parts)
    return names


def _is_static(value: Any) -> bool:
    """True for a parameter or a buffer of a module, by what dynamo wrote on it."""
    torch = load_torch()
    return isinstance(value, torch.nn.Parameter) or (
        getattr(value, "_dynamo_static_input_type", None) is not None
    )


@dataclass(frozen=True, slots=True)
class _Output:
    """An output of a graph: computed, or a value that is known, or the argument at the place
    ``value``: as it is, or with a new value, which the program writes in its memory. Or a view of
    the output at the place ``value[0]``, ``value[1]`` elements behind its first one; of the
    parts of complex numbers where ``value[2]``.

    ``order`` are its dimensions as the program's output has them, and ``strides`` those of PyTorch,
    in elements; both None where it is contiguous.
    """

    source: Literal["computed", "known", "argument", "new", "view"]
    value: Any
    order: tuple[int, ...] | None = None
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] | None = None


class _Program:
    """A loaded model for one set of constants and shapes; no model where it runs in PyTorch.

    ``constants``: places of arguments that are part of the program. ``inputs``: places of tensors
    that are passed; ``orders``: the dimensions of some of them as their memory has them, in which
    the program takes them. ``frozen``: the identity of constants that stay as they are. Everything
    else is a number, and has to be the same. ``count``: outputs that a call gives; some of these
    are views of those behind them.
    """

    def __init__(
        self,
        args: Sequence[Any],
        constants: Sequence[int],
        model: LoadedModel | None = None,
        outputs: Sequence[_Output] = (),
        shared: bool = False,
        orders: Mapping[int, Sequence[int]] | None = None,
        frozen: Set[int] = frozenset(),
        count: int | None = None,
    ) -> None:
        self.model, self.shared, self._count = model, shared, count
        self.constants = tuple(constants)
        self._asked = tuple(i for i in constants if id(args[i]) not in frozen)
        self._outputs = tuple(outputs)
        self._views = [n for n, o in enumerate(outputs) if o.source == "view"]
        tensors = [i for i, a in enumerate(args) if hasattr(a, "dtype")]
        self.inputs = tuple(i for i in tensors if i not in set(constants))
        self._pick = _picker(self._asked)
        self._given = _picker(self.inputs)
        self._rest = _picker([i for i, a in enumerate(args) if not hasattr(a, "dtype")])
        self._held = self._pick(args)
        self._versions, self._memory = _versions(self._held), _memory(self._held)
        self._shapes = list(map(_SHAPE, self._given(args)))
        self._numbers = self._rest(args)
        orders = orders or {}
        self._lend = [partial(_lent if shared else _array, orders.get(i)) for i in self.inputs]
        self._takes = [partial(_taken, o, shared) for o in outputs if o.source == "computed"]
        written = {self.inputs.index(o.value) for o in outputs if o.source == "new"}
        ordered = {n for n, i in enumerate(self.inputs) if i in orders}
        given = self._given(args)
        self._direct = None if shared else _Direct.of(given, written, ordered, outputs)

    def fits(self, args: Sequence[Any]) -> bool:
        """Return True for the same constants, which were not written to, and the same shapes."""
        held = self._pick(args)
        return (
            all(map(is_, held, self._held))
            and list(map(_VERSION, held)) == self._versions
            and list(map(_ADDRESS, held)) == self._memory
            and list(map(_SHAPE, self._given(args))) == self._shapes
            and (not self._numbers or self._rest(args) == self._numbers)
        )

    def moved(self, args: Sequence[Any]) -> set[int]:
        """Places of constants that are the same tensors, with other values."""
        before = zip(self._asked, self._held, self._versions, self._memory, strict=True)
        return {
            i
            for i, t, version, place in before
            if args[i] is t and (_versions((t,)), _memory((t,))) != ([version], [place])
        }

    def run(self, model: LoadedModel, args: Sequence[Any]) -> tuple[Any, ...]:
        given = self._given(args)
        made = None if self._direct is None else self._direct.run(model, given)
        if made is None:
            run = model.on_device if self.shared else model
            found = run(*[lend(t) for lend, t in zip(self._lend, given, strict=True)])
            arrays = iter(found if isinstance(found, tuple) else (found,))
            made = [take(next(arrays)) for take in self._takes]
        if len(made) == len(self._outputs):
            return tuple(made[: self._count])
        tensors = iter(made)
        found = [
            next(tensors) if o.source == "computed"
            else o.value if o.source in ("known", "view")
            else args[o.value]
            for o in self._outputs
        ]  # fmt: skip
        for n in self._views:
            o, (place, offset, parts) = self._outputs[n], found[n]
            base = _AS_REAL(found[place]) if parts else found[place]
            found[n] = base.as_strided(o.shape, _strides(o), offset)
        return tuple(found[: self._count])


class _Direct:
    """Calls of a program whose kernels read and write the memory of PyTorch's tensors on the CPU.

    ``inputs``: examples. Mutable: it remembers where the inputs of the last call lay that are
    written to.
    """

    def __init__(
        self, inputs: Sequence[Any], written: Set[int], outputs: Sequence[_Output]
    ) -> None:
        self._strides, self._written = list(map(_STRIDE, inputs)), written
        self._sizes = [t.numel() * t.element_size() for t in inputs]
        self._make = [partial(_EMPTY, tuple(o.shape), _strides(o), o.value) for o in outputs]
        self._apart: list[int] = []

    @staticmethod
    def of(
        inputs: Sequence[Any], written: Set[int], ordered: Set[int], outputs: Sequence[_Output]
    ) -> _Direct | None:
        """None where an array is not the memory of its tensor. ``written``, ``ordered``: numbers of
        inputs that are written to, and that lie without gaps in an order of their own.
        """
        made = [o for o in outputs if o.source == "computed"]
        empty = any(0 in x.shape for x in (*inputs, *made))
        pairs = any(d.is_complex for d in (*(t.dtype for t in inputs), *(o.value for o in made)))
        whole = all(i in ordered or t.is_contiguous() for i, t in enumerate(inputs))
        return None if empty or pairs or not whole else _Direct(inputs, written, made)

    def run(self, model: LoadedModel, given: Sequence[Any]) -> list[Any] | None:
        """The computed outputs; None, and nothing has run, where an input lies otherwise."""
        if list(map(_STRIDE, given)) != self._strides or any(map(_IS_NEG, given)):
            return None
        addresses = list(map(_ADDRESS, given))
        if self._written and addresses != self._apart and not self._are_apart(addresses):
            return None
        made = [make() for make in self._make]
        return made if model.at_addresses(addresses + list(map(_ADDRESS, made))) else None

    def _are_apart(self, addresses: list[int]) -> bool:
        """True if what is written to shares no memory with another input."""
        spans = [*zip(addresses, self._sizes, range(len(addresses)), strict=True)]
        end = end_written = 0
        for start, size, i in sorted(spans):
            if start < (end if i in self._written else end_written):
                return False
            end = max(end, start + size)
            if i in self._written:
                end_written = end
        self._apart = addresses
        return True


class _Compiled:
    """One graph: programs by the shapes of its inputs, made when they are needed.

    It takes its arguments as one list, as aot_autograd has them. ``constants``: parameters and
    buffers are part of the programs; those whose identity is in ``frozen`` stay as they are.
    ``draws``: the random numbers that are its last arguments.
    ``written``: places of the arguments whose new values are its first outputs. A program writes
    these in the arguments' memory and gives the arguments, which PyTorch then need not copy.
    """

    def __init__(
        self, graph: Any, names: Mapping[int, str], settings: Mapping[str, Any], constants: bool,
        draws: Draws, written: tuple[int, ...] = (), frozen: Set[int] = frozenset(),
    ) -> None:  # fmt: skip
        self._boxed_call = True  # PyTorch copies it from the object
        self._graph, self._names = graph, names
        self._wide, self._bases = _with_bases(graph) if constants else (graph, {})
        self._constants, self._draws, self._places = constants, draws, written
        self._frozen = frozen
        self._check = settings["check"]
        self._settings = {k: v for k, v in settings.items() if k != "check"}
        self._programs: list[_Program] = []
        self._written: set[int] = set()
        self._warned = False

    def __call__(self, args: Sequence[Any]) -> Any:
        if self._draws:
            args = [*args, *self._draws(args)]
        for program in self._programs:
            if program.fits(args):
                break
        else:
            return self._first_call(args)
        if program.model is None:
            return self._in_pytorch(args)
        return program.run(program.model, args)

    def with_first(self, held: Sequence[Any]) -> Callable[..., Any]:
        """The function of the arguments that come behind ``held``."""
        return (lambda *args: self([*held, *args])) if held else lambda *args: self(args)

    def _first_call(self, args: Sequence[Any]) -> Any:
        """Make a program for these arguments, and compare what it gives with PyTorch.

        It is kept, for other threads too, once that is over: a call that raises, as for an index
        out of range, was none.
        """
        want, error = self._eager(args) if self._check else (None, None)
        program = self._program(args, want)
        if program.model is None:
            self._keep(program)
            return self._in_pytorch(args) if want is None else want
        given = [a.clone() if i in self._places else a for i, a in enumerate(args)]
        found = program.run(program.model, given)  # what it may write to is compared first
        fault = self._fault(program, args, found, want, error) if self._check else ""
        if not fault:
            self._keep(program)
            return found
        program.model = None
        self._keep(program)
        if self._check == "error":
            raise MismatchError(
                f"torch.compile: this graph gives other results than PyTorch: {fault}"
            )
        _log.warning("torch.compile: this graph runs in PyTorch, since ours differs: %s", fault)
        return want

    def _in_pytorch(self, args: Sequence[Any]) -> Any:
        """PyTorch's results. What autocast casts is in the graph, where it stood: a region without
        it is one.
        """
        with attrgetter("_C._DisableAutocast")(load_torch())():
            return self._graph.forward(*args)

    def _eager(self, args: Sequence[Any]) -> tuple[Any, Exception | None]:
        """PyTorch's results, or its error."""
        try:
            return self._in_pytorch(args), None
        except Exception as error:  # noqa: BLE001 - raised unless our kernels raise theirs before
            return None, error

    def _fault(
        self,
        program: _Program,
        args: Sequence[Any],
        found: Any,
        want: Any,
        error: Exception | None,
    ) -> str:
        """A text that tells how ``found`` differs from PyTorch's results; '' where it does not."""
        if isinstance(error, RuntimeError):  # a kernel of PyTorch's that wants other strides
            _log.info("torch.compile: nothing was compared, PyTorch can not run this: %s", error)
            return ""
        if error is not None:
            raise error
        settings = {"device": _place([a for a in args if hasattr(a, "dtype")]), **self._settings}
        unit = max(UNITS.get(str(settings.get(k)), 0.0) for k in ("dtype", "numerics"))
        call = Call(self._graph, args, frozenset(program.constants), unit)
        return fault_of(call, found, want, lambda m, arrays: load(m, **settings)(*arrays))

    def _keep(self, program: _Program) -> None:
        self._programs = [program, *self._programs][:_KEPT]

    def _program(self, args: Sequence[Any], want: Any) -> _Program:
        """A program for these arguments. ``want``: PyTorch's results, if they are known.

        A parameter that was written to since it was a constant is an input from now on.
        """
        for old in self._programs:
            self._written |= old.moved(args)
        self._programs = [p for p in self._programs if not p.moved(args)]
        static = [
            i
            for i, a in enumerate(args)
            if self._constants
            and hasattr(a, "dtype")
            and _is_static(a)
            and (_is_counted(a) or id(a) in self._frozen)
            and i not in self._written
            and i not in self._places
        ]
        try:
            return self._made(args, static, want)
        except (ConfigError, DeviceError, MissError, StoreError):
            raise  # the options are wrong
        except TunegradError as error:
            self._warn(error)
            return _Program(args, static, frozen=self._frozen)

    def _warn(self, error: TunegradError) -> None:
        if not self._warned:
            _log.warning("torch.compile: this graph runs in PyTorch: %s", error)
        self._warned = True

    def _made(self, args: Sequence[Any], static: Sequence[int], want: Any) -> _Program:
        fixed = set(static)
        inputs = tuple(i for i, a in enumerate(args) if hasattr(a, "dtype") and i not in fixed)
        given = [args[i] for i in (*inputs, *static)]
        place = _place(given)
        orders = {} if self._constants or place != "cpu" else _orders(args, inputs)
        specs = tuple(_spec(f"x{i}", args[i], orders.get(i)) for i in inputs)
        values = {
            i: value_of(args[i].cpu(), self._names.get(id(args[i]), f"constant{i}")) for i in static
        }
        rest = {i: a for i, a in enumerate(args) if not hasattr(a, "dtype")}
        pairs = frozenset(i for i in inputs if args[i].is_complex())
        every = partial(_every, self._wide, {**rest, **values}, inputs, pairs, orders)
        found = every(*(Tensor.input(s.name, s.shape, s.dtype) for s in specs))
        count = len(_results(self._graph))
        said = [*_said(self._graph, want), *[None] * (len(found) - count)]
        outputs = _outputs(self._wide, found, said)
        if not any(o.source == "computed" for o in outputs):
            raise ModelError("it gives no tensor")
        if place == "cpu":
            free = {i for i in inputs if i not in pairs and _is_whole(args[i])} - orders.keys()
            outputs = _in_place(outputs, self._places, free)
        if self._constants:  # where gradients are recorded, AOTAutograd makes views
            outputs = _with_views(outputs, said, len(self._places), self._bases)
        donated = tuple(f"x{o.value}" for o in outputs if o.source == "new")
        run = partial(_run, every, outputs)
        model = load(
            Model("graph", lambda: run, specs, donated=donated),
            **{"device": place, **self._settings},
        )
        shared = model.place is not None and all(dlpack.place_of(t) == model.place for t in given)
        if not shared and place != "cpu":
            asked = self._settings.get("device", place)
            raise DeviceError(
                f"its tensors lie on {place}, and it is compiled for {asked}; "
                f'leave out "device", or say options={{"device": "{place}"}}'
            )
        return _Program(args, static, model, outputs, shared, orders, self._frozen, count)


class _Ahead(_SavedGraph):  # type: ignore[misc]
    """A graph that ``aot_compile`` takes; saved, it is compiled by its first call.

    It is saved with its options, and with the parameters that are its attributes.
    """

    def __init__(
        self, graph_module: Any, options: Mapping[str, Any], run: Callable[..., Any] | None = None
    ) -> None:
        self.graph_module, self.options, self.run = graph_module, options, run

    @classmethod
    def serialize_compile_artifacts(cls, fn: Any) -> bytes:
        saved: bytes = super().serialize_compile_artifacts(cls(fn.graph_module, fn.options))
        return saved

    def __call__(self, *args: Any) -> Any:
        if self.run is None:
            from torch._guards import TracingContext, tracing
            from torch._subclasses import FakeTensorMode
            from torch.fx.experimental.symbolic_shapes import ShapeEnv

            # where its inputs came from in Python is not in the file
            self.graph_module.__dict__.pop("_param_name_to_source", None)
            with tracing(TracingContext(FakeTensorMode(shape_env=ShapeEnv()))):
                self.run = _compiled(self.graph_module, args, _settings(self.options, None), True)
        return self.run(*args)


_COMPLEX = {"f16": "complex32", "f32": "complex64", "f64": "complex128"}
_SHAPE = attrgetter("shape", "dtype")
_STRIDE = load_torch().Tensor.stride
_IS_NEG = load_torch().Tensor.is_neg
_VERSION = attrgetter("_version")
_ADDRESS = load_torch().Tensor.data_ptr
_AS_REAL = load_torch().view_as_real
_STORAGE = attrgetter("_cdata")
_EMPTY = attrgetter("_C._dynamo.guards._empty_strided_cpu")(load_torch())
"""``empty_strided`` of shape, strides and dtype in half its time, as Inductor's code calls it."""


_remembered = attrgetter("_dispatch_cache")
"""What an operator remembers of how it is dispatched."""


def _picker(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function that takes the arguments at these places."""
    if len(places) > 1:
        return itemgetter(*places)
    if not places:
        return lambda _: ()
    (place,) = places
    return lambda args: (args[place],)


def _versions(tensors: Sequence[Any]) -> list[int]:
    """The number of writes to each tensor that PyTorch has counted."""
    return list(map(_VERSION, tensors))


def _memory(tensors: Sequence[Any]) -> list[int]:
    """The address of each tensor."""
    return list(map(_ADDRESS, tensors))


def _place(tensors: Sequence[Any]) -> str:
    """The device that all of these lie on, by our name of it. Raises ModelError."""
    devices = {str(t.device) for t in tensors}
    if len(devices) > 1 or not {d.partition(":")[0] for d in devices} <= set(known()):
        raise ModelError(
            f"its tensors lie on {', '.join(sorted(devices))}; all must be on the CPU, or on one "
            "NVIDIA GPU"
        )
    return devices.pop() if devices else "cpu"


def _is_plain(dtype: Any) -> bool:
    """True for a dtype that numpy has, and that is no pair of numbers."""
    return dtype is not load_torch().bfloat16 and not dtype.is_complex


def _array(order: Sequence[int] | None, tensor: Any) -> Any:
    """The array of a tensor; its dimensions in another order."""
    found = array_of(tensor)
    return found if order is None else found.transpose(order)


def _lent(order: Sequence[int] | None, tensor: Any) -> Any:
    """A tensor as kernels read it where it lies: contiguous, and aligned; its dimensions in another
    order.
    """
    found = tensor.detach().resolve_neg()
    plain = (found if order is None else found.permute(order)).contiguous()
    return plain if plain.data_ptr() % dlpack.ALIGN == 0 else plain.clone()


def _taken(output: _Output, shared: bool, found: Any) -> Any:
    """A tensor of PyTorch of what the program gives for an output, without a copy."""
    t = load_torch().from_dlpack(found) if shared else tensor_of(found, output.value)
    return t if output.strides is None else t.as_strided(output.shape, output.strides)


def _strides(output: _Output) -> tuple[int, ...]:
    """The strides of an output, in elements."""
    if output.strides is not None:
        return tuple(output.strides)
    return tuple(prod(output.shape[d + 1 :]) for d in range(len(output.shape)))


def _orders(args: Sequence[Any], places: Sequence[int]) -> dict[int, Sequence[int]]:
    """The dimensions of tensors as their memory has them, for those that lie there without gaps
    and in another order: what a forward program hands to a backward one in PyTorch's strides.
    """
    found: dict[int, Sequence[int]] = {}
    for i in places:
        t = args[i]
        if t.is_contiguous() or not _is_plain(t.dtype) or t.is_neg():
            continue
        order = sorted(range(t.ndim), key=lambda d: (t.shape[d] != 1, -t.stride(d)))
        if t.permute(order).is_contiguous():
            found[i] = order
    return found


def _spec(name: str, tensor: Any, order: Sequence[int] | None = None) -> InputSpec:
    """An input; complex numbers are pairs along a last dimension."""
    if tensor.is_complex():
        return InputSpec(name, (*tensor.shape, 2), dtype_from(tensor.real.dtype))
    shape = tuple(tensor.shape if order is None else (tensor.shape[d] for d in order))
    return InputSpec(name, shape, dtype_from(tensor.dtype))


def _every(
    graph: Any,
    known: Mapping[int, Any],
    places: Sequence[int],
    pairs: frozenset[int],
    orders: Mapping[int, Sequence[int]],
    *given: Tensor,
) -> Sequence[Any]:
    """The graph's outputs, whatever they are. ``pairs``: inputs that are complex numbers;
    ``orders``: those that come with other orders of dimensions.
    """
    passed = {
        i: Complex.of_pairs(t)
        if i in pairs
        else t.permute(*sorted(range(t.ndim), key=orders[i].__getitem__))
        if i in orders
        else t
        for i, t in zip(places, given, strict=True)
    }
    values = {**known, **passed}
    found: Sequence[Any] = run_graph(graph, [values[i] for i in range(len(values))])
    return found


def _run(every: Any, outputs: Sequence[_Output], *given: Tensor) -> tuple[Tensor, ...]:
    """The graph's output tensors, contiguous in PyTorch's strides; arguments' values last."""
    found = [*zip(every(*given), outputs, strict=True)]
    tensors = (
        (v.pairs() if isinstance(v, Complex) else v, o)
        for source in ("computed", "new")
        for v, o in found
        if o.source == source
    )
    return tuple(v if o.order is None else v.permute(*o.order) for v, o in tensors)


def _is_whole(tensor: Any) -> bool:
    """True if an array can have all of a tensor's memory, to be written to."""
    return (
        tensor.is_contiguous() and tensor.numel() > 0 and _is_plain(tensor.dtype)
        and not tensor.is_neg()
    )  # fmt: skip


def _in_place(
    outputs: Sequence[_Output], places: Sequence[int], free: Set[int]
) -> tuple[_Output, ...]:
    """The outputs, of which the first are new values of the arguments at ``places``: those that are
    computed are written there where ``free`` says so.
    """
    first = [
        _Output("new", i) if i in free and o.source == "computed" and o.order is None else o
        for o, i in zip(outputs, places, strict=False)
    ]
    return (*first, *outputs[len(first) :])


def _outputs(graph: Any, found: Sequence[Any], want: Sequence[Any] | None) -> tuple[_Output, ...]:
    """Outputs of the graph, with the strides that PyTorch's results have; as its description of
    the graph says where there are none.

    The two differ: by the description, products of tensors with dimensions of one element, or
    batch normalisation, may have strides that no kernel of PyTorch's gives them.
    """
    places = {n: i for i, n in enumerate(graph.graph.find_nodes(op="placeholder"))}
    return tuple(
        _Output("argument", places[n]) if n in places else _output(v, like)
        for n, v, like in zip(_results(graph), found, _said(graph, want), strict=True)
    )


def _results(graph: Any) -> Sequence[Any]:
    """The nodes whose values a graph gives."""
    (end,) = graph.graph.find_nodes(op="output")
    nodes: Sequence[Any] = end.args[0]
    return nodes


def _said(graph: Any, want: Sequence[Any] | None) -> Sequence[Any]:
    """PyTorch's results, or its description of them."""
    return want or [getattr(n, "meta", {}).get("val") for n in _results(graph)]


def _with_bases(graph: Any) -> tuple[Any, dict[int, tuple[int, Any]]]:
    """A graph with tensors behind its outputs that some of these are views of, and by the places of
    these outputs those of the tensors, with the descriptions of the outputs; itself and nothing
    where there are none.

    Only tensors that have no more elements than such outputs together: of ``h[:, 0]`` alone the
    rest of ``h`` is not computed.
    """
    made: dict[Any, Any] = {}
    for n in graph.graph.nodes:
        if _is_simple(n.meta.get("val")):
            made.setdefault(_STORAGE(n.meta["val"].untyped_storage()), n)
    nodes, views = list(_results(graph)), dict[Any, list[int]]()
    for place, n in enumerate(nodes):
        base: Any = made.get(_STORAGE(n.meta["val"].untyped_storage())) if _is_view(n) else None
        if base not in (None, *nodes) and base.op == "call_function" and not _is_view(base):
            views.setdefault(base, []).append(place)
    sizes = {b: sum(nodes[i].meta["val"].numel() for i in of) for b, of in views.items()}
    bases = [b for b in views if b.meta["val"].numel() <= sizes[b]]
    if not bases:
        return graph, {}
    torch = load_torch()
    wide = torch.fx.Graph()
    copies: dict[Any, Any] = {}
    outputs = wide.graph_copy(graph.graph, copies)
    wide.output((*outputs, *(copies[b] for b in bases)))
    places = {
        i: (len(nodes) + at, nodes[i].meta["val"]) for at, b in enumerate(bases) for i in views[b]
    }
    return torch.fx.GraphModule(graph, wide), places


def _is_view(node: Any) -> bool:
    """True for a tensor that is not all of its memory, in its order."""
    said: Any = getattr(node, "meta", {}).get("val")
    if not _is_simple(said):
        return False
    whole = said.numel() * said.element_size() == said.untyped_storage().nbytes()
    return not (whole and said.is_contiguous())


def _with_views(
    outputs: Sequence[_Output],
    said: Sequence[Any],
    first: int,
    bases: Mapping[int, tuple[int, Any]],
) -> tuple[_Output, ...]:
    """The outputs from the place ``first`` on that share memory in PyTorch share it here, where one
    of them is all of it: to write to one is to write to the other. So do those that are views of
    one hidden tensor and lie in it as the graph says, which ``bases`` has by their places.
    """
    every, whole = list(outputs), dict[int, int]()
    for turn in ("whole", "views"):
        for n, (o, like) in enumerate(zip(outputs, said, strict=True)):
            if n < first or o.source != "computed" or not _is_simple(like):
                continue
            memory = like.untyped_storage()
            key = _STORAGE(memory)
            base = whole.get(key)
            if turn == "whole":
                as_said = like.is_contiguous() or o.strides is not None
                if as_said and like.numel() * like.element_size() == memory.nbytes():
                    whole.setdefault(key, n)
            elif base not in (None, n):
                parts = said[base].is_complex() and said[base].real.dtype is like.dtype
                if parts or said[base].dtype is like.dtype:
                    place = (base, like.storage_offset(), parts)
                    every[n] = _Output("view", place, None, tuple(like.shape), like.stride())
            elif base is None and n in bases:
                at, told = bases[n]
                if outputs[at].value is like.dtype and _lies(like) == _lies(told):
                    place = (at, like.storage_offset(), False)
                    every[n] = _Output("view", place, None, tuple(like.shape), like.stride())
    return tuple(every)


def _lies(tensor: Any) -> tuple[Any, ...]:
    """How a tensor lies in its memory."""
    return tensor.stride(), tensor.storage_offset(), tensor.untyped_storage().nbytes()


def _is_simple(tensor: Any) -> bool:
    """True for a tensor of PyTorch with elements, whose sizes are numbers, as its memory has it."""
    return (
        hasattr(tensor, "untyped_storage") and not tensor.is_neg() and not tensor.is_conj()
        and all(isinstance(n, int) for n in (*tensor.shape, *tensor.stride()))
        and isinstance(tensor.storage_offset(), int) and tensor.numel() > 0
    )  # fmt: skip


def _output(value: Any, said: Any) -> _Output:
    if isinstance(value, Complex):
        return _Output("computed", getattr(load_torch(), _COMPLEX[value.real.dtype.name]))
    if isinstance(value, Tensor):
        return _strided(value, said)
    if value is None and hasattr(said, "dtype"):
        raise ModelError(f"an output of {said.dtype} {tuple(said.shape)} is not computed here")
    return _Output("known", value)


def _strided(tensor: Tensor, said: Any) -> _Output:
    """An output with PyTorch's strides.

    It is contiguous where these leave gaps or repeat elements: what is so in PyTorch is a view, and
    views are made outside of the graph.
    """
    plain = _Output("computed", torch_dtype(tensor.dtype), shape=tensor.shape)
    if not hasattr(said, "stride") or 0 in tensor.shape:
        return plain
    told = [s if isinstance(s, int) else s.node.hint for s in said.stride()]
    if None in told or len(told) != tensor.ndim:
        return plain
    dims = [d for d in range(tensor.ndim) if tensor.shape[d] > 1]
    dims.sort(key=lambda d: -told[d])
    strides, step = [1] * tensor.ndim, 1
    for d in reversed(dims):
        strides[d], step = step, step * tensor.shape[d]
    symbolic = not all(isinstance(s, int) for s in said.stride())
    if not symbolic:
        if any(told[d] != strides[d] for d in dims):
            return plain
        strides = told
    if dims == sorted(dims):
        return plain
    order = (*(d for d in range(tensor.ndim) if d not in dims), *dims)
    return _Output("computed", plain.value, order, tensor.shape, tuple(strides))


def _is_counted(tensor: Any) -> bool:
    """True if PyTorch counts writes to the tensor; not where it was made in inference mode."""
    return not tensor.is_inference()


register()
