"""Every wrapper of CUDA C++: its twin on the CPU against numpy, its PTX through NVRTC.

Copies run eagerly and lazily, threads in three orders.
"""

import re

import numpy as np
import pytest

from tests.cuda_host import build
from tests.cuda_texts import ORDERS, launch
from tests.wrapper_kernels import CASES
from tunegrad.devices.cuda import nvrtc
from tunegrad.devices.job import Geometry
from tunegrad.errors import DeviceError
from tunegrad.render.cuda import WRAPPERS, wrappers_text

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")


def having(name: str) -> list[str]:
    """The architectures that have every instruction of a case, the oldest first."""
    least = max(WRAPPERS[w].least_sm for w in CASES[name].uses)
    return [a for a in ARCHITECTURES if int(re.sub(r"\D", "", a)) >= least]


ON_ENDS = [
    pytest.param(n, a, marks=() if a in (having(n)[0], having(n)[-1]) else pytest.mark.slow)
    for n in CASES
    for a in having(n)
]


@pytest.mark.parametrize("name", CASES)
def test_the_twin_of_a_wrapper_gives_what_numpy_gives(name):
    case = CASES[name]
    given = case.arrays()
    want = case.want(given)
    first = next(iter(given))
    for seed, lazy in ORDERS:
        got = launch(case.text, "k", Geometry(1, case.items), given, seed, lazy)[first]
        if name.endswith("f16_f16"):
            got = got.view(np.float16)
        if case.tolerance:
            scale = np.abs(want).max()
            assert np.abs(got.astype(np.float64) - want).max() <= case.tolerance * scale
        else:
            np.testing.assert_array_equal(got, want)


def test_every_wrapper_has_a_case():
    assert {name for case in CASES.values() for name in case.uses} == set(WRAPPERS)


def test_a_twin_has_the_arguments_of_the_wrapper():
    """By types: each is called with what its text for a GPU declares, and nothing is converted."""
    calls = []
    for name, wrapper in WRAPPERS.items():
        gives, declared = re.search(
            rf"__forceinline__ (.*?) {name}\((.*?)\)", wrapper.text
        ).groups()
        kinds = [re.sub(r"\w+$", "", a).strip() for a in declared.split(",") if a]
        template = "<0>" if wrapper.text.startswith("template") else ""
        calls.append(f"{gives} (*f_{name})({', '.join(kinds)}) = {name}{template};")
    text = "\n".join([*calls, 'extern "C" __global__ void k(int *x) {}'])
    assert build.build(text, "k")


@pytest.mark.parametrize(("name", "arch"), ON_ENDS)
def test_the_text_of_a_wrapper_assembles_without_a_warning(name, arch):
    """For the first architecture that has its instruction and the newest; slow: all between."""
    try:
        built = nvrtc.build(CASES[name].text, "k", arch)
    except DeviceError as error:
        pytest.skip(str(error))
    assert built.warnings == ""
    assert built.spilled_bytes == 0


def test_texts_of_wrappers_are_in_order_and_stand_once():
    names = ["tg_cp_commit", "tg_bar_sync", "tg_cp_commit"]
    text = wrappers_text(names)
    assert text == wrappers_text(reversed(names))
    assert text.startswith("#ifndef TG_HOST\n")
    assert [text.count(f" {n}(") for n in ("tg_bar_sync", "tg_cp_commit")] == [1, 1]
    assert text.index("tg_bar_sync") < text.index("tg_cp_commit")
    assert wrappers_text([]) == ""
