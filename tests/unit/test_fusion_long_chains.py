"""An elementwise function is one kernel, however often it uses what it has computed."""

import numpy as np
import pytest

from tunegrad.frontend import Tensor
from tunegrad.frontend.nodes.folds import cumulative
from tunegrad.ir.expr import loads_in, tree_size
from tunegrad.ir.fusion import Fusion
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.parse_kernel import LONGEST_KERNEL, parse_kernel

FUNCTIONS = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "erfc", "erfinv", "expm1", "log1p",
    "sinh",
)  # fmt: skip


def kernels(x: Tensor) -> list[Kernel]:
    return [n.kernel for n in Fusion.of((x.node,)).schedule().launches]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_of_one_input_is_one_kernel(name):
    x = Tensor(np.zeros(100, np.float32))
    assert len(kernels(getattr(x, name)())) == 1


def test_erfinv_of_f64_is_a_kernel_for_each_step():
    """Where it was cut for its length, each of ten kernels took the first step again."""
    assert len(kernels(Tensor(np.zeros(100)).erfinv())) == 3


@pytest.mark.parametrize("name", ["atan2", "hypot", "logaddexp"])
def test_function_of_two_inputs_is_one_kernel(name):
    x, y = (Tensor(np.full(100, v, np.float32)) for v in (1, 2))
    assert len(kernels(getattr(x, name)(y))) == 1


def squared(times: int) -> Kernel:
    """A number that is squared, and rounded down, so often."""
    x = Tensor(np.ones(16, np.float32))
    for _ in range(times):
        x = (x * x).floor()
    (kernel,) = kernels(x)
    return kernel


def test_text_of_much_that_is_shared_is_short_and_read_again():
    kernel = squared(12)
    assert tree_size(kernel.stores[0].expr) > 4_000
    assert len(kernel.text) < 600
    assert parse_kernel(kernel.text).text == kernel.text


def test_text_of_little_that_is_shared_has_no_lines_of_its_own():
    assert "\n  t0 = " not in squared(5).text


def test_what_doubles_without_end_is_cut():
    x = Tensor(np.ones(16, np.float32))
    for _ in range(70):
        x = (x * x).floor()
    assert len(made := kernels(x)) > 1
    assert all(len(k.text) < LONGEST_KERNEL and tree_size(k.stores[0].expr) < 1 << 22 for k in made)


@pytest.mark.parametrize("times", [19, 20, 21, 24])
def test_text_of_the_longest_kernels_is_read_again(times):
    """With three uses of each number, and a conversion of each: no other kernel is longer."""
    x = Tensor(np.ones(16, np.float32))
    y = x
    for _ in range(times):
        x = (x * x).floor()
        y = y.cast("f16").cast("f32").where(y < 1.5, y)
    for kernel in (*kernels(x), *kernels(y)):
        assert parse_kernel(kernel.text).text == kernel.text


def test_loads_count_the_operations_that_take_them():
    x = Tensor(np.ones(16, np.float32))
    (kernel,) = kernels(x * x)
    assert len(loads_in(kernel.stores[0].expr)) == 2
    (kernel,) = kernels((x * x).floor() * (x * x).floor())
    assert len(loads_in(kernel.stores[0].expr)) == 2


def test_kernels_that_share_much_are_compared_at_once():
    kernel = squared(18)
    again = parse_kernel(kernel.text)
    assert again == kernel.canonical()
    assert hash(again) == hash(kernel.canonical())
    assert again != squared(17).canonical()


@pytest.mark.parametrize("n", [65, 1000, 5000])
def test_scan_adds_the_totals_of_one_level_to_each_element(n):
    """Each level's totals are stored: an element reads what is before its block, and its own."""
    x = Tensor(np.zeros((4, n), np.float32))
    found = kernels(Tensor.of(cumulative("sum", x.node, 1)))
    assert max(len(k.loads) for k in found if not k.reduces) == 2


def test_what_was_cut_for_its_length_stays_cut_where_a_toggle_inlines_it():
    """Its own kernel is too long as well, which is no reason to cut it again."""
    x = Tensor(np.ones(16, np.float32))
    for _ in range(24):
        x = (x * x).floor()
    fusion = Fusion.of((x.node,))
    (cut,) = (
        i for i, n in enumerate(fusion.drafts.order) if n in fusion.drafts.drafts and n != x.node
    )
    assert len(fusion.toggled({cut}).schedule().launches) == 2


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_padding_counts_as_deep_as_its_text_is(dtype):
    """Each pad is an operation of the text, and each rounding to 16 bits another."""
    x = Tensor.input("x", (16,), dtype)
    for _ in range(70):
        x = x.pad((1, 0)) + 0.5
    for kernel in kernels(x):
        assert parse_kernel(kernel.text).text == kernel.text
