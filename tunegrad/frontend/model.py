"""A model: named inputs, named parameters, and how to build its graph.

A user's own model is ``package.module:function``. The function returns a Model, or a pair ``(fn,
examples)``: ``fn`` takes tensors and returns one or several, ``examples`` are arrays of the shapes
and dtypes it will be called with. Arrays that ``fn`` brings along (weights) become constants.

    def tiny() -> Model:                             def tiny():
        return Model.of(                                 w = np.load("w.npy")
            "tiny", Tiny, (InputSpec("x", (1, 8)),)      x = np.zeros((1, 8), "f4")
        )                                                return lambda x: (x @ w).relu(), [x]
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from numpy.typing import ArrayLike

from tunegrad.errors import ModelError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import F32, DType, dtype_of
from tunegrad.ir.graph import GraphOp, Node
from tunegrad.lazy import dataclass

from .aliasing import Changes, changes, root_of
from .handle import joined, renew
from .nodes import substitute
from .nodes.tracing import no_draws, without_identities
from .tensor import Tensor
from .weights import Array, ParameterSpec, Weights, check_weights, load_weights

if TYPE_CHECKING:
    from tunegrad.config import ModelSpec

    from .nn import Module

Function = Callable[..., Tensor | Sequence[Tensor]]
Example = tuple[Callable[..., Any], Any]
"""A function of tensors, or a ``torch.nn.Module``, and its example inputs."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One argument of the caller's; ``dtype`` may be given by its name, as ``"i64"``.

    ``mean``, ``spread`` and ``positive`` are of numbers that are drawn for it, where it is tuned or
    timed: normal ones of this mean and deviation, or their absolute values. ``parts``: of one
    dimension, it is made of these, one after another, and drawn as they are.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType = F32
    mean: float = 0.0
    spread: float = 1.0
    positive: bool = False
    parts: tuple[InputSpec, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_of(self.dtype))
        if any(n < 0 for n in self.shape):
            raise ModelError(f"input {self.name!r}: shape {self.shape} has an extent below 0")


class FirstCall(Protocol):
    """The comparison of a loaded model's first call with the library that the model comes from."""

    def prepared(
        self, given: Weights | None, unit: float, run: Callable[[Model, Sequence[Any]], Any]
    ) -> Callable[[Sequence[Array], tuple[Array, ...]], tuple[Array, ...] | None]:
        """Return a function that takes the inputs and outputs of the first call.

        ``given`` are weights other than the model's own, ``unit`` is one rounding of what values
        are rounded to on the way (0.0: their own dtypes), and ``run`` runs a model on arrays with
        the same settings.

        The function returns None where the outputs are right, and the right ones where they are
        not and the user wants these. It raises MismatchError where the user wants that.
        """


@dataclass(frozen=True, slots=True)
class Model:
    """``make()`` gives a fresh Module, or a plain function of tensors; ``parameters`` are the
    module's, and ``own`` their values where the model brings them along. ``first_call`` compares
    the first call of a loaded model with where the model comes from. ``donated`` names inputs whose
    new values are the last outputs, in order: a loaded model writes them in the arrays that it is
    given. ``rewrite`` makes another graph of the outputs', such as one of bytes.
    """

    name: str
    make: Callable[[], Function]
    inputs: tuple[InputSpec, ...]
    parameters: tuple[ParameterSpec, ...] = ()
    own: Weights | None = field(default=None, compare=False, repr=False)
    first_call: FirstCall | None = field(default=None, compare=False, repr=False)
    donated: tuple[str, ...] = ()
    rewrite: Callable[[tuple[Node, ...]], tuple[Node, ...]] | None = None

    def donating(self, arguments: Sequence[int | str]) -> Model:
        """The model with these inputs donated, by number or name; each has its new value among the
        last outputs, in this order.

        Raises:
            ModelError: there is no such input, or one is named twice.
        """
        names = [i.name for i in self.inputs]
        found: list[str] = []
        for a in arguments:
            known = a in names if isinstance(a, str) else -len(names) <= a < len(names)
            if not known:
                raise ModelError(
                    f"model {self.name}: donate={a!r} is none of its inputs "
                    f"{', '.join(names) or '(none)'}"
                )
            found.append(a if isinstance(a, str) else names[a])
        twice = next((n for n in found if found.count(n) > 1), None)
        if twice is not None:
            raise ModelError(f"model {self.name}: input {twice} is donated twice")
        return replace(self, donated=tuple(found))

    def news(
        self, outputs: Sequence[Node], changed: Sequence[str] = ()
    ) -> tuple[tuple[int, str], ...]:
        """The places of outputs that are new values of inputs, with the names of these: of donated
        ones, then of ``changed`` ones, which the function writes to.

        Raises:
            ModelError: an output has another shape or dtype than its input, or an input is donated
            and changed.
        """
        both = next((n for n in self.donated if n in changed), None)
        if both is not None:
            raise ModelError(
                f"model {self.name}: input {both} is donated, and the function changes it, too"
            )
        names = (*self.donated, *changed)
        first = len(outputs) - len(names)
        specs = {i.name: i for i in self.inputs}
        if first < 0:
            raise ModelError(
                f"model {self.name} returns {len(outputs)} tensors, and {len(self.donated)} inputs "
                "are donated; the last outputs are their new values"
            )
        for at, name in enumerate(names, first):
            old, new = specs[name], outputs[at]
            if (old.shape, old.dtype) != (new.shape, new.dtype):
                raise ModelError(
                    f"model {self.name}: output {at} is the new value of input {name} "
                    f"{old.dtype}{list(old.shape)}, and is {new.dtype}{list(new.shape)}"
                )
        return tuple(enumerate(names, first))

    @staticmethod
    def of(name: str, make: Callable[[], Function], inputs: Sequence[InputSpec]) -> Model:
        """The model of a module that ``make`` creates.

        Raises:
            ModelError: two inputs of one name.
        """
        names = [i.name for i in inputs]
        if len(set(names)) != len(names):
            raise ModelError(f"model {name}: input names {names} are not distinct")
        module = make()
        parameters = tuple(module.specs().values()) if _is_module(module) else ()
        return Model(name, make, tuple(inputs), parameters)

    @staticmethod
    def of_function(name: str, function: Function, examples: Sequence[ArrayLike | Tensor]) -> Model:
        """The model of a plain function, with inputs like ``examples``, named by its parameters or
        x0, x1, ...; or of a ``torch.nn.Module``.

        Raises:
            ModelError: the function does not take as many.
        """
        if is_torch_module(function):
            return _from_torch(function, examples, name)
        tensors = [Tensor(e) for e in examples]
        names = _input_names(name, function, len(tensors))
        inputs = tuple(InputSpec(n, t.shape, t.dtype) for n, t in zip(names, tensors, strict=True))
        return Model(name, partial(_same, function), inputs)

    def build(self, weights: Weights) -> tuple[Tensor, ...]:
        """The outputs of ``traced``."""
        return self.traced(weights)[0]

    def traced(self, weights: Weights) -> tuple[tuple[Tensor, ...], tuple[str, ...]]:
        """The outputs as graphs of INPUT nodes (named as in ``inputs``) and constants, and names of
        inputs that the function writes to: their new values are the last outputs, in this order.
        Weights are checked.

        Raises:
            WeightsError: missing, unexpected or misshapen weights. ModelError: the function returns
            something else than tensors, depends on an input of its own, or changes a tensor that is
            none of its arguments.
        """
        function = self.make()
        arrays = check_weights(self.parameters, weights, self.name)
        if self.parameters and _is_module(function):  # others hold their weights already
            function.load(arrays)
        given = [Tensor.input(i.name, i.shape, i.dtype) for i in self.inputs]
        with no_draws(self.name), changes() as found:
            result: object = function(*given)
        written = [
            (i.name, x) for i, x in zip(self.inputs, given, strict=True)
            if id(x) in found and without_identities((x.node,))[0].op is not GraphOp.INPUT
        ]  # fmt: skip
        outputs = () if result is None and written else _outputs(self.name, result)
        _undone(self.name, found, [*given, *outputs])
        closed = _closed(self, (*outputs, *(x for _, x in written)))
        if self.rewrite is not None:
            closed = tuple(map(Tensor.of, self.rewrite(tuple(t.node for t in closed))))
        return closed, tuple(n for n, _ in written)

    def weights(
        self, source: Weights | str | Path | None = None, seed: int = 0
    ) -> dict[str, Array]:
        """Its weights from a dict or ``.safetensors`` file; else its own, or drawn from a seed."""
        if source is None and self.own is not None:
            return dict(self.own)
        return load_weights(self.parameters, source, seed, self.name)


def _undone(name: str, found: Changes, own: Sequence[Tensor]) -> None:
    """Tensors of before the call as they were.

    Raises ModelError where there is one that the function changed: it outlives the call, and is
    neither an argument nor a result.
    """
    known = {id(root_of(x)) for x in own}
    kept = None
    for key, (ref, node, bindings) in found.items():
        x = ref()
        if x is not None and key not in known:
            renew(x, node, bindings)
            kept = x
    if kept is not None:
        raise ModelError(
            f"model {name}: the function changes {kept.describe()}, which is none of its "
            "arguments: it would be changed once, when the function is compiled; pass it as one"
        )


def _same(function: Function) -> Function:
    return function


def _is_module(value: object) -> TypeGuard[Module]:
    """True for a Module of ours; layers are not imported for that."""
    return _is_of(value, f"{__package__}.nn.module")


def is_torch_module(value: object) -> bool:
    """True for a ``torch.nn.Module``; PyTorch is not imported for that."""
    return _is_of(value, "torch.nn")


def _is_of(value: object, home: str) -> bool:
    """True for a value of the class ``Module`` of a module, if that is there: another thread may
    be about to import it.
    """
    kind = getattr(sys.modules.get(home), "Module", None)
    return kind is not None and isinstance(value, kind)


def _from_torch(module: object, examples: Sequence[object], name: str) -> Model:
    # the importer of modules stands above models, and is imported where there is a module
    importer = importlib.import_module(f"{__package__}.torch")
    made: Model = importer.from_torch(module, *examples)
    return replace(made, name=name)


def _outputs(name: str, result: object) -> tuple[Tensor, ...]:
    listed = result if isinstance(result, list | tuple) else (result,)
    outputs = tuple(t for t in listed if isinstance(t, Tensor))
    if not outputs or len(outputs) != len(listed):
        raise ModelError(
            f"model {name} returns {type(result).__name__}, it must return a tensor or several"
        )
    return outputs


def _closed(model: Model, outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Arrays the function brought along as constants; no input but the model's own is left."""
    bindings = joined(outputs)
    own = {i.name for i in model.inputs}
    constants: dict[Node, Node] = {}
    nodes = without_identities(tuple(t.node for t in outputs))
    for node in graph.topological(nodes):
        if node.op is GraphOp.INPUT and node.arg not in own:
            array = bindings.get(str(node.arg))
            if array is None:
                raise ModelError(
                    f"model {model.name} depends on input {node.arg!r}, which is not one of "
                    f"{sorted(own)}"
                )
            constants[node] = graph.const(array, node.dtype)
    return tuple(Tensor.of(n) for n in substitute(nodes, constants))


def _input_names(name: str, function: Function, count: int) -> list[str]:
    try:
        signature = inspect.signature(function)
        signature.bind(*range(count))
    except TypeError as error:
        raise ModelError(
            f"model {name}: {count} example inputs do not fit the function: {error}"
        ) from None
    except ValueError:  # a builtin without a signature
        return [f"x{i}" for i in range(count)]
    plain = [p.name for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    return plain[:count] if len(plain) >= count else [f"x{i}" for i in range(count)]


def as_model(value: object, name: str = "") -> Model:
    """Make a Model of the value that a user's function returned: one, or a pair of a function or a
    ``torch.nn.Module`` and its examples (of a module also one example that is no list). Without a
    name it takes that of the function or module.

    Raises:
        ModelError: neither of them.
    """
    if isinstance(value, Model):
        return value
    if isinstance(value, tuple) and value and not name:
        name = getattr(value[0], "__name__", type(value[0]).__name__).strip("<>")
    if isinstance(value, tuple) and len(value) == 2 and is_torch_module(value[0]):
        examples = value[1] if isinstance(value[1], list | tuple) else [value[1]]
        return _from_torch(value[0], examples, name)
    if is_torch_module(value):
        raise ModelError(
            f"model {name} is a torch.nn.Module without examples; it must be a pair (module, "
            "[examples])"
        )
    if (
        isinstance(value, tuple)
        and len(value) == 2
        and callable(value[0])
        and isinstance(value[1], list | tuple)
    ):
        return Model.of_function(name, value[0], value[1])
    raise ModelError(
        f"model {name} is a {type(value).__name__}; it must be a Model or a pair (function "
        "or torch.nn.Module, [examples])"
    )


def find_model(reference: str, arguments: Mapping[str, object] | None = None) -> Model:
    """Import ``package.module:function``, call it with ``arguments``, and take what it returns as a
    Model.

    Raises:
        ModelError: no such module or function, or arguments it does not take.
    """
    module_name, colon, attribute = reference.partition(":")
    if not (module_name and colon and attribute):
        raise ModelError(f"model {reference!r} must be written package.module:function")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ModelError(f"model {reference!r}: {error}") from None
    function = getattr(module, attribute, None)
    if not callable(function):
        raise ModelError(f"model {reference!r}: module {module_name} has no function {attribute!r}")
    given = dict(arguments or {})
    try:
        inspect.signature(function).bind(**given)
    except TypeError as error:
        valid = ", ".join(inspect.signature(function).parameters) or "none"
        raise ModelError(f"model {reference!r}: {error}; its arguments: {valid}") from None
    return as_model(function(**given), reference)


def model_of_spec(spec: ModelSpec) -> Model:
    """The model that a spec's builder makes, under the spec's name.

    Modules are also looked for where one stands. Raises ModelError for one that can not be built,
    or that has other inputs than its file says.
    """
    from tunegrad.config import build_model

    folders: list[str] = []
    with suppress(OSError):  # the folder in which this process stands may have been removed
        folders.append(str(Path.cwd()))
    model = as_model(build_model(spec, folders), spec.name)
    said = [(i.shape, i.dtype) for i in spec.inputs]
    built = [(i.shape, i.dtype.name) for i in model.inputs]
    if said and said != built:
        raise ModelError(
            f"{spec.source}: [input] says {_listed(said):.300}, and builder {spec.builder} makes a "
            f"model of {_listed(built):.300}"
        )
    if spec.train:
        from .training import step_of

        model = step_of(model, spec.train, spec.loss)
    return replace(model, name=spec.name)


def _listed(inputs: Sequence[tuple[tuple[int, ...], str]]) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for shape, dtype in inputs) or "no inputs"
