"""Every kernel of the corpus by default and under twenty drawn schedules, on everything that runs
a GPU's code without one: PoCL and cuda-host give what the interpreter gives, in three orders of
threads with copies that arrive at once and three with copies that arrive late, and Oclgrind reports
no race and no access out of bounds. Products by a matrix unit run on cuda-host alone.

    pytest -m slow tests/device/test_corpus_everywhere.py
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from kernel_corpus import NAMES, kernels_of
from test_cuda_host_corpus import check
from test_oclgrind import counts, oclgrind

from benchmarks.hand_schedules import GPU
from tests.cuda_host import cuda_host
from tests.cuda_texts import ORDERS
from tests.opencl_batches import check_cases, corpus_cases, platform_of
from tests.opencl_device import opencl_device
from tests.product_kernels import KERNELS, MORE
from tests.programs import Programs
from tunegrad.errors import IllegalAction
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule, Space
from tunegrad.search import RandomChooser

DRAWS = 20
PRODUCTS = KERNELS | MORE


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[Programs]]:
    opened = [Programs(cuda_host(*order)) for order in ORDERS]
    yield opened
    for each in opened:
        each.close()


def schedules(name: str, kernel: Kernel, target: Target) -> list[Schedule]:
    """The defaults, and twenty draws that are legal."""
    space = Space(kernel, target)
    chooser = RandomChooser(random.Random(name))
    found = list(space.defaults())
    while len(found) < 1 + DRAWS:
        drawn = space.sample(chooser)
        try:
            space.lower(drawn)
        except IllegalAction:
            continue
        found.append(drawn)
    return list({s.text: s for s in found}.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_pocl_gives_what_the_interpreter_gives(name: str) -> None:
    cases = list(corpus_cases([name], GPU, DRAWS))
    assert cases
    check_cases(platform_of(opencl_device()), cases)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_oclgrind_reports_nothing(name: str) -> None:
    printed, reports = oclgrind(str(DRAWS), name)
    assert reports.strip() == "", reports[:3000]
    assert counts(printed)[0] >= 1


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_cuda_host_gives_what_the_interpreter_gives(hosts: list[Programs], name: str) -> None:
    target = hosts[0].target
    for at, kernel in enumerate(kernels_of(name)):
        for schedule in schedules(f"{name} {at}", kernel, target):
            check(hosts, kernel, target, schedule)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_by_a_unit_give_what_the_interpreter_gives(
    hosts: list[Programs], name: str
) -> None:
    target, kernel = hosts[0].target, PRODUCTS[name]()
    found = schedules(name, kernel, target)
    assert any("tensorcore(" in s.text for s in found)
    for schedule in found:
        check(hosts, kernel, target, schedule)
