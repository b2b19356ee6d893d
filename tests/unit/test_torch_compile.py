"""``torch.compile(module, backend="tunegrad")``: what is taken, what runs in PyTorch, what is shared."""

from __future__ import annotations

import copy
import io
import logging
import math
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tunegrad.errors import ConfigError
from tunegrad.frontend.torch.graph import constant_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn
backends = pytest.importorskip("tunegrad.torch")

QUIET = {"store": False, "threads": 1}
UNGUARDED = {"guard_filter_fn": torch.compiler.skip_guard_on_all_nn_modules_unsafe}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The models that the backend loads."""
    seen: list[Any] = []
    original = backends.load

    def counted(model: Any, **settings: Any) -> Any:
        loaded = original(model, **settings)
        seen.append((model, loaded))
        return loaded

    monkeypatch.setattr(backends, "load", counted)
    return seen


def compiled(module: Any, **more: Any) -> Any:
    return torch.compile(module, backend="tunegrad", options=QUIET, **more)


def close(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def mlp() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).eval()


def test_a_module_runs_as_one_program_with_its_parameters_as_constants(loads: list[Any]) -> None:
    module, x = mlp(), torch.randn(5, 4)
    f = compiled(module)
    with torch.no_grad():
        close(f(x), module(x))
        close(f(x + 1), module(x + 1))
    ((model, loaded),) = loads
    assert [i.shape for i in model.inputs] == [(5, 4)]
    layers = {name for row in loaded.report() for name in row.layers}
    assert any(name.startswith("0") for name in layers)
    assert any(name.startswith("3") for name in layers)


def test_constants_share_the_memory_of_the_module() -> None:
    weight = nn.Parameter(torch.randn(4, 4))
    tensor = constant_of(weight, "w")
    assert np.shares_memory(tensor.node.arg.array, weight.detach().numpy())


def test_weights_that_change_are_read_again(loads: list[Any]) -> None:
    module, x = mlp(), torch.randn(5, 4)
    f = compiled(module)
    for step in range(3):
        with torch.no_grad():
            close(f(x), module(x))
            module[0].weight.mul_(2.0 + step)
            module[3].bias.data = torch.randn(3)
    assert len(loads) == 2  # what was written to is an input from then on


def test_a_write_to_one_module_reaches_no_other_that_was_equal() -> None:
    a, b, x = nn.LayerNorm(8), nn.LayerNorm(8), torch.randn(3, 8)
    f, g = compiled(a), compiled(b)
    with torch.no_grad():
        f(x)
        a.bias.add_(1)
        a.weight.mul_(2)
        close(f(x), a(x))
        close(g(x), b(x))


def test_a_buffer_that_was_equal_to_a_parameter_is_written_to() -> None:
    module, x = nn.BatchNorm1d(4).eval(), torch.randn(3, 4)
    f = compiled(module)
    with torch.no_grad():
        f(x)
        module.running_mean.add_(1)
        close(f(x), module(x))
        module.running_var.mul_(2)
        close(f(x), module(x))


def test_a_checkpoint_that_is_loaded_later_is_seen() -> None:
    module, other, x = mlp(), mlp(), torch.randn(5, 4)
    f = compiled(module)
    with torch.no_grad():
        f(x)
        for p in other.parameters():
            p.add_(0.5)
        module.load_state_dict(other.state_dict())
        close(f(x), other(x))


def test_writes_are_seen_where_dynamo_guards_no_module(loads: list[Any]) -> None:
    """Guards of each parameter take most of a short call; ours are there in any case."""
    module, x = mlp(), torch.randn(5, 4)
    f = torch.compile(module, backend="tunegrad", options={**QUIET, **UNGUARDED})
    with torch.no_grad():
        close(f(x), module(x))
        module[0].weight.mul_(2)
        close(f(x), module(x))
        module[1].running_mean.add_(1)
        close(f(x), module(x))
        module[3].bias.data = torch.ones(3)
        close(f(x), module(x))
        module[3].weight = nn.Parameter(torch.randn(3, 8))
        close(f(x), module(x))
        count = len(loads)
        close(f(x), module(x))
    assert len(loads) == count


def test_frozen_weights_are_looked_up_for_no_call(loads: list[Any]) -> None:
    module, x = mlp(), torch.randn(5, 4)
    f = torch.compile(module, backend="tunegrad", options={**QUIET, "freezing": True, **UNGUARDED})
    with torch.no_grad():
        want = module(x)
        close(f(x), want)
        module[0].register_parameter("weight", None)
        del module[1].running_mean
        close(f(x), want)
        module[3].bias.add_(0)  # a write makes no other program
        close(f(x), want)
    ((model, _),) = loads
    assert [i.shape for i in model.inputs] == [(5, 4)]


def test_dynamo_guards_no_frozen_weight_and_still_sees_layers_and_modes() -> None:
    module, x, guarded = mlp(), torch.randn(5, 4), list[str]()

    def keep(entries: Any) -> list[bool]:
        guarded.extend(str(e.name) for e in entries if e.guard_type == "TENSOR_MATCH")
        return [True for _ in entries]

    options = {**QUIET, "freezing": True, "guard_filter_fn": keep}
    f = torch.compile(module, backend="tunegrad", options=options)
    with torch.no_grad():
        close(f(x), module(x))
        assert len(guarded) == 1  # the input
        for width in (3, 2):
            module[3] = nn.Linear(8, width)
            close(f(x), module(x))
        module.train()
        torch.manual_seed(0)
        found = f(x)
        assert not torch.allclose(found, module.eval()(x))


@pytest.mark.parametrize(
    "guards",
    [
        torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe,
        torch.compiler.skip_guard_on_all_nn_modules_unsafe,
        torch.compiler.keep_portable_guards_unsafe,
        torch.compiler.keep_tensor_guards_unsafe,
        torch.compiler.skip_all_guards_unsafe,
    ],
    ids=lambda f: f.__name__,
)
def test_guards_are_dropped_beside_options_of_ours(guards: Any, loads: list[Any]) -> None:
    """In place, without a module around it; what guards see of inputs is another program."""
    module, x = Scored().eval(), torch.randn(5, 4)
    options = {**QUIET, "freezing": True, "guard_filter_fn": guards}
    module.compile(backend="tunegrad", options=options)
    with torch.no_grad():
        close(module(x), module.layers(x))
        if guards is not torch.compiler.skip_all_guards_unsafe:
            close(module(x[:2]), module.layers(x[:2]))
        assert len(loads) == 1 + (guards is not torch.compiler.skip_all_guards_unsafe)
        with torch.compiler.set_stance("default", skip_guard_eval_unsafe=True):
            close(module(x), module.layers(x))


def test_frozen_modules_of_one_class_keep_their_own_weights() -> None:
    options = {**QUIET, "freezing": True, **UNGUARDED}
    blocks, x = (
        [nn.Sequential(nn.Linear(4, 4), nn.Tanh()).eval() for _ in range(3)],
        torch.ones(2, 4),
    )
    f = torch.compile(lambda block, x: block(x) * 2, backend="tunegrad", options=options)
    with torch.no_grad():
        for _ in range(2):
            for block in blocks:
                close(f(block, x), block(x) * 2)


def test_frozen_buffers_that_a_graph_writes_are_written() -> None:
    mine, theirs = mlp().train(), mlp().train()
    f = torch.compile(mine, backend="tunegrad", options={**QUIET, "freezing": True})
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(5, 4)
            close(f(x), theirs(x))
            close(mine[1].running_var, theirs[1].running_var)
    assert int(mine[1].num_batches_tracked) == 3


def test_nothing_is_frozen_where_gradients_are_recorded() -> None:
    module, x = nn.Linear(4, 3), torch.randn(5, 4)
    f = torch.compile(module, backend="tunegrad", options={**QUIET, "freezing": True})
    for _ in range(2):
        close(f(x), module(x))
        f(x).sum().backward()
        with torch.no_grad():
            module.weight.sub_(module.weight.grad)


def test_a_frozen_graph_that_was_copied_takes_all_that_dynamo_passes() -> None:
    module, x = mlp(), torch.randn(5, 4)

    def split(graph: Any, examples: Any) -> Any:
        own = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
        own._param_name_to_source, own.meta = graph._param_name_to_source, graph.meta
        for copied, node in zip(own.graph.nodes, graph.graph.nodes, strict=True):
            copied.meta = dict(node.meta)
            if hasattr(node, "_dynamo_source"):
                copied._dynamo_source = node._dynamo_source
        return backends.backend(own, examples, options={**QUIET, "freezing": True})

    f = torch.compile(module, backend=split)
    with torch.no_grad():
        close(f(x), module(x))
        close(f(x), module(x))


class Scored(nn.Module):
    """A method of ours, which dynamo compiles with no function around it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = mlp()

    def forward(self, x: Any) -> Any:
        return self.layers(x)


def ahead(module: Any, x: Any, **options: Any) -> Any:
    if not hasattr(torch.compiler, "load_compiled_function"):
        pytest.skip("this PyTorch has no aot_compile")
    made = torch.compile(
        module.forward, backend="tunegrad", fullgraph=True, options={**QUIET, **options}
    )
    return made.aot_compile(((x,), {}))


def test_aot_compile_reads_the_weights_of_the_module_that_it_is_called_with() -> None:
    module, other, x = Scored().eval(), Scored().eval(), torch.randn(5, 4)
    for freezing in (False, True):
        with torch.no_grad():
            f = ahead(module, x, freezing=freezing)
            for each in (module, other):
                close(f(each, x), each(x))
            other.layers[0].weight.mul_(2)
            close(f(other, x), other(x))


def test_aot_compile_records_gradients() -> None:
    module, x = Scored().eval(), torch.randn(5, 4)
    f = ahead(module, x)
    got = torch.autograd.grad(f(module, x).sum(), [*module.parameters()])
    for a, b in zip(got, torch.autograd.grad(module(x).sum(), [*module.parameters()]), strict=True):
        close(a, b)


@pytest.mark.parametrize("installed", [False, True])
def test_what_aot_compile_made_is_saved_and_compiled_by_its_first_call(
    loads: list[Any], installed: bool
) -> None:
    module, x = Scored().eval(), torch.randn(5, 4)
    with torch.no_grad(), torch._dynamo.config.patch(install_free_tensors=installed):
        f = ahead(module, x, freezing=True)
        f.disable_guard_check()
        close(f(module, x), module(x))
        data = type(f).serialize(f).serialized_data
        saved = torch.compiler.load_compiled_function(io.BytesIO(data))
        assert len(loads) == 1
        for _ in range(2):
            close(saved(module, x), module(x))
        assert len(loads) == 2
        if installed:  # weights are in the file, and no call takes them of the module
            for p in module.parameters():
                p.zero_()
            assert saved(module, x).abs().sum() > 0


def test_weights_made_in_inference_mode_are_inputs(loads: list[Any]) -> None:
    with torch.inference_mode():
        module, x = mlp(), torch.randn(5, 4)
        f = compiled(module)
        for _ in range(2):
            close(f(x), module(x))
            module[0].weight.mul_(2.0)
        close(f(x), module(x))
    ((model, _),) = loads
    assert len(model.inputs) == 1 + sum(1 for _ in module.parameters()) + 2


def test_layers_that_share_a_weight_share_its_changes(loads: list[Any]) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(7, 4)
            self.head = nn.Linear(4, 7, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids: Any) -> Any:
            return self.head(self.table(ids).tanh())

    module, ids = Tied(), torch.tensor([[1, 2, 6], [0, 3, 3]])
    f = compiled(module)
    with torch.no_grad():
        for _ in range(2):
            close(f(ids), module(ids))
            module.table.weight.mul_(-2.0)
            close(f(ids), module(ids))
    assert [i.shape for i in loads[0][0].inputs] == [(2, 3)]


def test_one_tensor_for_several_inputs() -> None:
    def function(a: Any, b: Any, c: Any) -> Any:
        return a @ b.t() - c.sum(), b * 2

    x, y = torch.randn(3, 4), torch.randn(3, 4)
    f = compiled(function)
    with torch.no_grad():
        for args in ((x, x, x), (x, y, x), (y, x, x), (x, y, torch.randn(5)), (y, y, y)):
            for got, want in zip(f(*args), function(*args), strict=True):
                close(got, want)


def test_inputs_that_overlap_and_are_written_to() -> None:
    def function(a: Any, b: Any) -> Any:
        a.mul_(2)
        return a + b

    with torch.no_grad():
        for first, second in ((slice(0, 3), slice(1, 4)), (slice(0, 3), slice(0, 3))):
            torch._dynamo.reset()  # PyTorch does not guard by how inputs overlap
            f = compiled(function)
            mine = torch.arange(12.0).reshape(4, 3)
            theirs = mine.clone()
            close(f(mine[first], mine[second]), function(theirs[first], theirs[second]))
            close(mine, theirs)


def test_outputs_that_are_one_tensor_a_parameter_or_a_view() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4))

        def forward(self, x: Any) -> Any:
            y = x * self.weight
            return y, y, self.weight, y[0], x[1:]

    module, x = Odd(), torch.randn(3, 4)
    with torch.no_grad():
        got, want = compiled(module)(x), module(x)
    for a, b in zip(got, want, strict=True):
        close(a, b)
    assert got[2] is module.weight
    assert got[4].data_ptr() == x[1:].data_ptr()
    with torch.no_grad():
        got[0].zero_()  # what is one tensor for PyTorch is one here, and so is one memory
    close(got[1], torch.zeros(3, 4))
    close(got[3], torch.zeros(4))


def test_outputs_that_share_memory_share_it_where_nothing_is_compared() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        return y[1:, ::2], y.t(), y, y.reshape(-1)[-2:]

    x = torch.randn(3, 4)
    for options in (QUIET, {**QUIET, "check": False}):
        torch.compiler.reset()
        f = torch.compile(function, backend="tunegrad", options=options)
        for _ in range(2):
            got, want = f(x), function(x)
            for found in (got, want):
                found[1][3, 2] = 9.0
                found[0].add_(1.0)
            for a, b in zip(got, want, strict=True):
                close(a, b)
                assert a.stride() == b.stride()


@pytest.mark.parametrize(
    "views",
    [
        lambda h: h.chunk(3, -1),
        lambda h: [t.view(2, 5, 2, 4).transpose(1, 2) for t in h.chunk(3, -1)],
        lambda h: (h[:, 3:], h[:, :3], h[0]),
        lambda h: (h.sum(-1, keepdim=True).expand(-1, -1, 5),),
        lambda h: (h.unfold(-1, 8, 4),),
        lambda h: (torch.fft.rfft(h).transpose(0, 2),),
    ],
    ids=["chunks", "heads", "parts", "repeated", "windows", "complex"],
)
def test_views_that_make_up_a_hidden_tensor_lie_in_it(views: Any) -> None:
    """They had memory of their own, contiguous, and did not change together."""
    module, x = torch.nn.Linear(8, 24), torch.randn(2, 5, 8)
    f = compiled(lambda x: tuple(views(module(x))))
    with torch.no_grad():
        for _ in range(2):
            got, want = f(x), tuple(views(module(x)))
            for found in (got, want):
                found[-1][(0,) * found[-1].ndim] = 7.0
            for a, b in zip(got, want, strict=True):
                close(a, b)
                assert (a.stride(), a.storage_offset()) == (b.stride(), b.storage_offset())


def test_a_row_of_a_hidden_tensor_is_computed_alone() -> None:
    module, x = torch.nn.Linear(8, 24), torch.randn(2, 5, 8)
    f = compiled(lambda x: module(x)[:, 0])
    with torch.no_grad():
        got = f(x)
    close(got, module(x)[:, 0])
    assert got.untyped_storage().nbytes() == 2 * 24 * 4


def test_parts_of_complex_outputs_share_their_memory() -> None:
    def function(x: Any) -> Any:
        z = torch.fft.fft(x)
        return z.imag, z, z[0], z.real

    x = torch.randn(3, 4)
    got, want = compiled(function)(x), function(x)
    for found in (got, want):
        found[2].zero_()
        found[3].add_(1.0)
    for a, b in zip(got, want, strict=True):
        close(a, b)


def test_a_result_outlives_the_next_call() -> None:
    module, x = mlp(), torch.randn(5, 4)
    f = compiled(module)
    with torch.no_grad():
        first = f(x)
        kept = first.clone()
        f(x * 3)
    close(first, kept)


def test_two_modules_of_one_class_keep_their_own_weights() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.inner(x).tanh()

    x, blocks = torch.randn(2, 4), [Block(), Block(), Block()]
    fs = [compiled(b) for b in blocks]
    with torch.no_grad():
        for _ in range(2):
            for f, b in zip(fs, blocks, strict=True):
                close(f(x), b(x))


def test_other_shapes_make_other_programs(loads: list[Any]) -> None:
    module = mlp()
    f = compiled(module)
    with torch.no_grad():
        for rows in (2, 3, 7, 3):
            x = torch.randn(rows, 4)
            close(f(x), module(x))
    assert len(loads) == 3


def test_a_symbolic_size_in_the_graph_is_the_number_of_the_call() -> None:
    def function(x: Any) -> Any:
        return x.reshape(-1, x.shape[0]).sum(0) * x.shape[0] + torch.arange(x.shape[0])

    f = compiled(function, dynamic=True)
    with torch.no_grad():
        for rows in (2, 3, 6):
            x = torch.randn(rows, 4)
            close(f(x), function(x))


def test_graph_breaks_are_allowed(loads: list[Any]) -> None:
    def function(x: Any) -> Any:
        y = x.relu() + 1
        torch._dynamo.graph_break()
        return y.sum(1) if float(y.sum()) > 0 else y.mean(1)

    x = torch.randn(3, 4)
    f = compiled(function)
    with torch.no_grad():
        close(f(x), function(x))
    assert len(loads) >= 2


def test_writes_to_inputs_and_buffers_are_done() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(4))

        def forward(self, x: Any) -> Any:
            self.seen += x.sum(0)
            x[0] = 1.0
            return x * self.seen

    mine, theirs = Counter(), Counter()
    f = compiled(mine)
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(3, 4)
            y = x.clone()
            close(f(x), theirs(y))
            close(x, y)
            close(mine.seen, theirs.seen)


def test_views_and_inputs_as_outputs_stay_what_they_are() -> None:
    def function(x: Any) -> Any:
        return x, x.t(), x + 1, 3, None

    x = torch.randn(3, 4)
    with torch.no_grad():
        same, turned, more, number, nothing = compiled(function)(x)
    assert same is x
    assert turned.data_ptr() == x.data_ptr()
    close(more, x + 1)
    assert (number, nothing) == (3, None)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.uint8, torch.bool]
)
def test_types_of_elements(dtype: Any) -> None:
    def function(x: Any) -> Any:
        return torch.cat([x, x.flip(0)]), x.sum(0), x == x[0]

    x = (torch.arange(12).reshape(3, 4) % 5).to(dtype)
    with torch.no_grad():
        for got, want in zip(compiled(function)(x), function(x), strict=True):
            assert got.dtype == want.dtype
            torch.testing.assert_close(got, want)


def test_outputs_have_the_strides_of_pytorch() -> None:
    x = torch.randn(2, 3, 4, 5)
    image = x.to(memory_format=torch.channels_last)
    cases = [
        (lambda v: v.t() * 2, torch.randn(3, 5)),
        (lambda v: v.permute(2, 0, 3, 1) + 1, x),
        (lambda v: (v + 1).sum(1, keepdim=True), image),
        (torch.relu, image),
        (lambda v: v.permute(0, 2, 3, 1).expand(2, 4, 5, 3) * 2, image),
        (torch.relu, image[:0]),
        (lambda v: v.transpose(0, 1).to(torch.float64), torch.randn(1, 4)),
    ]
    for function, given in cases:
        torch._dynamo.reset()
        with torch.no_grad():
            got, want = compiled(function)(given), function(given)
        close(got, want)
        assert strides(got) == strides(want)


def strides(*tensors: Any) -> list[list[int]]:
    """Of the dimensions that have several elements."""
    return [[s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1] for t in tensors]


def laid(shape: Any, order: Any) -> Any:
    """Numbers with these strides, which may be 0 or equal."""
    last = sum((n - 1) * s for n, s in zip(shape, order, strict=True))
    return torch.linspace(-1, 1, last + 1).as_strided(shape, order)


def test_a_product_of_tensors_with_dimensions_of_one_element_has_the_strides_of_eager() -> None:
    """PyTorch's description of the graph says (16, 1, 4, 16)."""
    a, b = laid((1, 4, 1, 6), (1, 1, 4, 4)), laid((1, 4, 1), (4, 1, 1))
    with torch.no_grad():
        got = compiled(torch.mul)(b, a)
    close(got, b * a)
    assert strides(got) == strides(b * a) == [[4, 1, 16]]


@pytest.mark.parametrize(
    "function",
    [torch.neg, torch.mul, lambda a, b: torch.where(a > 0, b, a), torch.lerp, torch.maximum],
    ids=["unary", "binary", "where", "ternary", "maximum"],
)
def test_drawn_strides_of_outputs_are_those_of_eager(function: Any) -> None:
    """Extents of 1, equal strides, expanded dimensions, operands of several ranks."""
    rng = random.Random(0)
    count = 3 if function is torch.lerp else 1 if function is torch.neg else 2

    def operand(shape: Any) -> Any:
        shape = [n if rng.random() < 0.7 else 1 for n in shape][rng.choice([0, 0, 0, 1]) :]
        order, step = [0] * len(shape), 1
        for d in rng.sample(range(len(shape)), len(shape)):
            order[d] = step if shape[d] > 1 else rng.choice([0, 1, step, 24])
            step *= shape[d]
        if rng.random() < 0.2:
            order = [s if rng.random() < 0.7 else 0 for s in order]
        return laid(shape, order)

    drawn = [
        [operand(shape) for _ in range(count)]
        for shape in ([rng.choice([1, 2, 4, 4]) for _ in range(4)] for _ in range(40))
    ]

    def every(given: Any) -> Any:
        return [function(*operands) for operands in given]

    with torch.no_grad():
        got, want = compiled(every)(drawn), every(drawn)
    assert len({str(strides(*w)) for w in drawn}) > 12
    for a, b in zip(got, want, strict=True):
        close(a, b)
    assert strides(*got) == strides(*want)


def test_a_channels_last_network_gives_channels_last() -> None:
    conv = nn.Conv2d(3, 8, 3).eval().to(memory_format=torch.channels_last)
    f = compiled(conv)
    with torch.no_grad():
        for batch in (2, 3, 5):
            image = torch.randn(batch, 3, 9, 9).to(memory_format=torch.channels_last)
            got, want = f(image), conv(image)
            assert got.is_contiguous(memory_format=torch.channels_last)
            close(got.permute(0, 2, 3, 1).view(-1, 8), want.permute(0, 2, 3, 1).view(-1, 8))


def test_layers_in_train_mode_do_as_in_pytorch(caplog: pytest.LogCaptureFixture) -> None:
    norm, x = nn.BatchNorm1d(4), torch.randn(6, 4)
    other = nn.BatchNorm1d(4)
    with torch.no_grad(), caplog.at_level(logging.WARNING, logger="tunegrad.torch"):
        close(compiled(norm)(x), other(x))
        close(norm.running_mean, other.running_mean)
        close(norm.running_var, other.running_var)
        assert not caplog.records
        f = compiled(nn.Dropout(0.5))
        torch.manual_seed(1)
        got = f(x)
        torch.manual_seed(1)
        close(got, nn.Dropout(0.5)(x))
    assert not caplog.records


def test_modes_of_torch_compile_are_taken() -> None:
    module, x = mlp(), torch.randn(5, 4)
    for mode in ("default", "reduce-overhead", "max-autotune"):
        torch._dynamo.reset()
        with torch.no_grad():
            close(torch.compile(module, backend="tunegrad", mode=mode)(x), module(x))


def test_later_calls_whose_tensors_lie_otherwise(loads: list[Any]) -> None:
    """Kernels read and write PyTorch's memory; what does not lie as on the first call is copied."""

    def function(x: Any, w: Any) -> Any:
        return x @ w, x.argmax(1)

    x, w = torch.randn(6, 4), torch.randn(4, 3)
    graph = torch.fx.symbolic_trace(function)
    program = backends.backend(graph, [x, w], options=QUIET)
    negative = torch.complex(torch.zeros(6, 4), torch.randn(6, 4)).conj().imag
    bytes_ = torch.zeros(6 * 4 * 4 + 1, dtype=torch.uint8)
    odd = torch.from_numpy(bytes_.numpy()[1:].view(np.float32).reshape(6, 4))
    assert negative.is_neg()
    assert odd.data_ptr() % 4
    for given in (x, x + 1, torch.randn(4, 6).t(), negative, odd, torch.randn(12, 4)[::2]):
        for found, want in zip(program(given, w), function(given, w), strict=True):
            close(found, want)
            assert found.data_ptr() % found.element_size() == 0
    assert len(loads) == 1
    assert program(x, w)[0].untyped_storage().resizable()


def test_indices_are_checked_on_every_call() -> None:
    f = compiled(nn.functional.cross_entropy)
    logits = torch.randn(5, 4, requires_grad=True)
    for labels in ([0, 1, 2, 3, 0], [3, 3, 3, 3, 3]):
        close(f(logits, torch.tensor(labels)),
              nn.functional.cross_entropy(logits, torch.tensor(labels)))  # fmt: skip
    with pytest.raises(IndexError):
        f(logits, torch.tensor([0, 1, 2, 4, 0]))
    f(logits, torch.tensor([1, 1, 1, 1, 1])).backward()


def test_inputs_that_are_not_contiguous() -> None:
    x = torch.randn(4, 6).t()[::2]
    with torch.no_grad():
        close(compiled(lambda v: v * 2 + 1)(x), x * 2 + 1)


def test_what_is_not_there_runs_in_pytorch_with_one_warning(
    caplog: pytest.LogCaptureFixture, loads: list[Any]
) -> None:
    def function(x: Any) -> Any:
        return torch.linalg.svd(x)[1] + torch.special.digamma(x.abs() + 1).sum()

    x = torch.randn(3, 3)
    with caplog.at_level(logging.WARNING, logger="tunegrad.torch"), torch.no_grad():
        close(compiled(function)(x), function(x))
    (record,) = [r for r in caplog.records if r.name == "tunegrad.torch"]
    assert "svd" in record.getMessage()
    assert "digamma" in record.getMessage()
    assert not loads


def test_numbers_that_change_between_calls_are_computed_with(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Those that dynamo makes sure of, as the limits of a clamp, are numbers of the program."""

    def function(x: Any, a: float, b: float) -> Any:
        y = x * (b / (a * a + 1) ** 0.5) + math.sin(a)
        y = torch.nn.functional.leaky_relu(y.clamp(-b, b), a) + int(b) + max(a, b)
        return y * a, y > b

    f = compiled(function)
    with caplog.at_level(logging.WARNING, logger="tunegrad.torch"):
        for a, b in ((0.3, 1.5), (0.7, 2.5), (0.9, 0.25), (0.1, 3.5)):
            x, again = (torch.linspace(-2, 2, 6).requires_grad_() for _ in range(2))
            (found, shown), (wanted, told) = f(x, a, b), function(again, a, b)
            found.sum().backward()
            wanted.sum().backward()
            close((found, x.grad), (wanted, again.grad))
            assert torch.equal(shown, told)
    assert not caplog.records


def test_attention_with_functions_of_its_scores_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    """A bias by distance that is looked up, grouped heads, and a mask of which a row is empty."""
    flexible = pytest.importorskip("torch.nn.attention.flex_attention")
    q, k, v = torch.randn(2, 4, 16, 16), torch.randn(2, 2, 16, 16), torch.randn(2, 2, 16, 16)
    table = torch.randn(4, 32)

    def seen(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (i >= j) & (i != 3)

    mask = flexible.create_block_mask(seen, None, None, 16, 16, device="cpu", BLOCK_SIZE=16)

    def function(q: Any, k: Any, v: Any) -> Any:
        def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return s + table[h, i - j + 15] * 0.1

        return flexible.flex_attention(q, k, v, score, block_mask=mask, enable_gqa=True)

    with caplog.at_level(logging.WARNING, logger="tunegrad.torch"), torch.no_grad():
        found = compiled(function)(q, k, v)
    assert not caplog.records
    close(found, function(q, k, v))
    assert not found[:, :, 3].any()


def test_gradients_of_complex_numbers_are_here(caplog: pytest.LogCaptureFixture) -> None:
    def function(x: Any, k: Any) -> Any:
        product = torch.fft.rfft(x, n=24) * torch.fft.rfft(k, n=24)
        return torch.fft.irfft(product, n=24)[..., :12] + product.abs().sum()

    drawn = torch.randn(3, 12), torch.randn(12)
    given, again = ([t.clone().requires_grad_() for t in drawn] for _ in range(2))
    with caplog.at_level(logging.WARNING, logger="tunegrad.torch"):
        compiled(function)(*given).sum().backward()
    function(*again).sum().backward()
    torch.testing.assert_close(
        [t.grad for t in given], [t.grad for t in again], atol=1e-3, rtol=1e-4
    )
    assert not caplog.records


def test_gradients_of_a_loss_with_log_sigmoid_are_here(caplog: pytest.LogCaptureFixture) -> None:
    y, again = (torch.linspace(-3, 3, 6).reshape(2, 3).requires_grad_() for _ in range(2))
    kinds = torch.tensor([[1.0, 0, 1], [0, 1, 1]])
    loss = torch.nn.functional.multilabel_soft_margin_loss
    with caplog.at_level(logging.WARNING, logger="tunegrad.torch"):
        compiled(loss)(y, kinds).backward()
    loss(again, kinds).backward()
    close(y.grad, again.grad)
    assert not caplog.records


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, 3.0, float("inf")])
def test_gradients_of_distances_are_those_of_pytorch(
    p: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Two points are equal: their distance has the gradient 0."""
    drawn = torch.randn(2, 4, 3), torch.randn(2, 5, 3)
    drawn[0][:, 0] = drawn[1][:, 0]
    given, again = ([t.clone().requires_grad_() for t in drawn] for _ in range(2))
    with caplog.at_level(logging.WARNING, logger="tunegrad.torch"):
        (compiled(torch.cdist)(*given, p) * 0.5).sum().backward()
        (torch.cdist(*again, p) * 0.5).sum().backward()
    close([t.grad for t in given], [t.grad for t in again])
    assert not caplog.records


def test_arguments_that_are_not_there_run_in_pytorch(caplog: pytest.LogCaptureFixture) -> None:
    def function(x: Any) -> Any:
        return torch.nn.functional.interpolate(x, size=5, mode="bilinear")

    x = torch.randint(0, 255, (1, 2, 4, 4), dtype=torch.uint8)
    f = compiled(function)
    with caplog.at_level(logging.WARNING, logger="tunegrad.torch"), torch.no_grad():
        close(f(x), function(x))
        close(f(x), function(x))
    assert len([r for r in caplog.records if "runs in PyTorch" in r.getMessage()]) == 1


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("grad", [False, True])
def test_resizing_by_a_scale_that_keeps_an_extent_is_that_of_eager(mode: str, grad: bool) -> None:
    """``floor(3 * 1.3)`` is 3: eager keeps the rows, PyTorch's own decomposition repeats one."""

    def function(x: Any) -> Any:
        return nn.functional.interpolate(x, scale_factor=(1.3, 1.5), mode=mode)

    x = torch.randn(1, 2, 3, 3, requires_grad=grad)
    with torch.set_grad_enabled(grad):
        got, want = compiled(function)(x), function(x)
        close(got, want)
    if grad:
        for a, b in zip(
            *(torch.autograd.grad(y.square().sum(), x) for y in (got, want)), strict=True
        ):
            close(a, b)


def test_resizing_is_traced_by_one_thread_at_a_time() -> None:
    """What the first one puts back is not what the second one traces with."""
    operator, key = torch.ops.aten.upsample_nearest2d.vec, torch._C.DispatchKey
    found, inside, leave = list[bool](), threading.Event(), threading.Event()

    def other() -> None:
        with backends._resizing_whole():
            inside.set()
            leave.wait(60)
            found.append(key.CompositeImplicitAutograd in operator.py_kernels)

    thread = threading.Thread(target=other)
    with backends._resizing_whole():
        thread.start()
        inside.wait(0.05)
    leave.set()
    thread.join()
    assert found == [False]
    assert key.CompositeImplicitAutograd in operator.py_kernels


def test_bytes_are_resized_smoothly_by_pytorch(caplog: pytest.LogCaptureFixture) -> None:
    def function(x: Any) -> Any:
        return nn.functional.interpolate(x, size=(7, 9), mode="bilinear")

    x = torch.arange(0, 250, 10, dtype=torch.uint8).reshape(1, 1, 5, 5)
    with caplog.at_level(logging.WARNING, logger="tunegrad.torch"), torch.no_grad():
        assert torch.equal(compiled(function)(x), function(x))
    assert "aten.upsample_bilinear2d: u8 is not supported" in caplog.text


def test_a_choice_by_noise_is_pytorchs(caplog: pytest.LogCaptureFixture) -> None:
    x, found = torch.randn(4, 6), []
    function = torch.nn.functional.gumbel_softmax
    with caplog.at_level(logging.WARNING, logger="tunegrad.torch"), torch.no_grad():
        for f in (compiled(function), function):
            torch.manual_seed(0)
            found.append(f(x, hard=True))
    close(*found)
    assert not caplog.records


def test_random_numbers_are_pytorchs() -> None:
    x = torch.randn(3, 4)
    f = compiled(lambda v: v + torch.rand(4))
    with torch.no_grad():
        torch.manual_seed(1)
        got = f(x)
        torch.manual_seed(1)
        close(got, x + torch.rand(4))


@pytest.mark.parametrize("directions", [1, 2])
def test_a_recurrent_layer_is_taken_where_dynamo_takes_it(
    directions: int, loads: list[Any]
) -> None:
    layer = nn.LSTM(4, 5, num_layers=2, bidirectional=directions == 2).eval()
    x = torch.randn(3, 2, 4)
    with torch._dynamo.config.patch(allow_rnn=True), torch.no_grad():
        got, (h, c) = compiled(layer)(x)
        want, (wh, wc) = layer(x)
    for a, b in ((got, want), (h, wh), (c, wc)):
        close(a, b)
    assert loads


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match="options budget are unknown; valid: check"):
        backends.backend(None, [], options={"budget": 3})
    with pytest.raises(ConfigError, match="freezing is 1; valid: True, False"):
        backends.backend(None, [], options={"freezing": 1})
    with pytest.raises(ConfigError, match="mode 'fastest' is not supported"):
        backends.backend(None, [], mode="fastest")


def test_the_name_is_registered() -> None:
    assert "tunegrad" in torch._dynamo.list_backends()
