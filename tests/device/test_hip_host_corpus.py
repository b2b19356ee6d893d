"""Default and random schedules for AMD's GPUs, as HIP C++ on this CPU, give what the interpreter
gives. Skips without a C++ compiler.
"""

import pytest
from kernel_corpus import NAMES, corpus_kernel
from test_cuda_host_corpus import check
from test_opencl_schedules import random_schedule

from tests.cover import across
from tests.hip import ARCHITECTURES, hip_host
from tests.product_kernels import KERNELS
from tests.programs import Programs
from tunegrad.opts import Space


@pytest.fixture(scope="module")
def hosts():
    opened = {arch: Programs(hip_host(arch, seed=1)) for arch in ARCHITECTURES}
    yield opened
    for each in opened.values():
        each.close()


def check_default(host, kernel):
    check([host], kernel, host.target, Space(kernel, host.target).defaults()[0])


@pytest.mark.parametrize(("name", "arch"), across(NAMES[::3], ARCHITECTURES))
def test_hip_runs_default_schedules_as_the_interpreter_does(hosts, name, arch):
    check_default(hosts[arch], corpus_kernel(name))


@pytest.mark.parametrize("name", KERNELS)
def test_hip_multiplies_without_a_matrix_unit_as_the_interpreter_does(hosts, name):
    check_default(hosts["gfx90a"], KERNELS[name]())


@pytest.mark.parametrize("name", NAMES[2::4])
def test_hip_runs_random_schedules_as_the_interpreter_does(hosts, name):
    host, kernel = hosts["gfx1100"], corpus_kernel(name)
    check([host], kernel, host.target, random_schedule(Space(kernel, host.target), f"hip {name}"))
