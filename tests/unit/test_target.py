"""A target is data: what it can do is asked, and no text depends on how fast it may be."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from dataclasses import fields, replace
from math import inf
from pathlib import Path

import pytest
from kernel_corpus import NAMES, kernels_of
from pair_builders import DOT
from variant_builders import Conv, kernel_of, only

import tunegrad
from benchmarks.hand_schedules import AVX512, GPU
from tunegrad.devices.host.facts import declared, fingerprint, host_target
from tunegrad.devices.opencl import device as opencl
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import Alternatives, Fusion
from tunegrad.ir.target import MatrixUnit, Rates, Target
from tunegrad.opts import Space
from tunegrad.planning import expected, expected_s, stored_s

ROOT = Path(tunegrad.__file__).parent
FAST = Rates((("f32", 2e11), ("f16", 8e11)), 1e11, 5e10, 2e-6, 1e9, 64, 10)
UNIT = MatrixUnit((16, 8, 16), ("f16", "f32"))


KERNEL = kernel_of(only(Tensor.input("x", (64, 64)) @ Tensor.input("y", (64, 64))))

SENT_BACK = """
import pickle, sys

target = pickle.load(sys.stdin.buffer)
sys.stdout.buffer.write(pickle.dumps(target))
"""


def texts(target: Target) -> list[str]:
    """The default schedules of one kernel."""
    return [x.text for x in Space(KERNEL, target).defaults()]


# ---- questions


def test_target_with_groups_has_work_items_and_none_of_a_thread_s_means() -> None:
    assert GPU.has_work_items
    assert not GPU.has_vector_registers
    assert not any((GPU.can_stream, GPU.can_prefetch, GPU.can_keep))


def test_target_without_groups_has_vector_registers_and_a_thread_s_means() -> None:
    assert not AVX512.has_work_items
    assert AVX512.has_vector_registers
    assert all((AVX512.can_stream, AVX512.can_prefetch, AVX512.can_keep))


def test_answers_do_not_follow_the_label() -> None:
    """A CPU that runs OpenCL has work-items."""
    named = replace(GPU, kind="cpu")
    assert named.has_work_items
    assert texts(named) == texts(GPU) != texts(AVX512)


def test_pairs_are_multiplied_by_what_has_all_the_features() -> None:
    assert DOT.bf16_dot
    assert not GPU.bf16_dot
    assert not AVX512.bf16_dot


def test_caches_hold_no_more_of_a_shared_one_than_a_process_can_expect() -> None:
    server = replace(AVX512, l3_bytes=480 << 20)
    assert server.cached_bytes == 64 << 20
    assert replace(server, l3_share_bytes=480 << 20).cached_bytes == 480 << 20
    assert AVX512.cached_bytes == AVX512.l3_bytes < 64 << 20


def test_matrix_unit_is_called_what_an_action_calls_it() -> None:
    assert UNIT.name == "m16n8k16_f16_f32"


def test_no_form_names_a_processor() -> None:
    names = re.compile(r"(?i)znver|\bzen\b|xeon|epyc|[a-z]lake\b|haswell|sapphire|nvidia|h100")
    texts = {p: p.read_text(encoding="utf-8") for p in sorted((ROOT / "ir").rglob("*.py"))}
    assert [f"{p.name}: {x[0]}" for p, text in texts.items() for x in names.finditer(text)] == []


# ---- what its device declares


@pytest.mark.parametrize(
    ("target", "count"),
    [
        (AVX512, 1),
        (replace(AVX512, arch="sapphirerapids", features=("+amx-tile",)), 2),
        (replace(AVX512, arch="znver5"), 2),
        (replace(AVX512, vector_bytes=32), 2),
        (replace(AVX512, vector_bytes=16), 2),
    ],
    ids=["zen 4", "amx", "zen 5", "avx2", "sse"],
)
def test_cpu_declares_how_many_fmas_a_core_starts_in_a_cycle(target: Target, count: int) -> None:
    assert declared(target).fmas_per_cycle == count


def test_cpu_declares_a_rate_for_its_own_vectors() -> None:
    wide, narrow = declared(AVX512), declared(replace(AVX512, vector_bytes=16))
    assert (wide.flops_per_s(1), narrow.flops_per_s(1)) == (1e11, 2.5e10)
    assert wide.flops_per_s() == wide.threads * wide.flops_per_s(1)
    assert (wide.bytes_per_s(1 << 20), wide.bytes_per_s(1 << 30)) == (5e10, 2.5e10)
    assert declared(DOT).rates.speedup("bf16x2") == 2
    assert wide.rates.speedup("bf16x2") == 1


def test_opencl_declares_a_table_for_cpus_and_one_for_gpus() -> None:
    bare = replace(GPU, threads=4, rates=Rates())
    cpu, gpu = opencl.declared(bare, "cpu"), opencl.declared(bare, "gpu")
    assert cpu.flops_per_s() < gpu.flops_per_s() < inf
    assert AVX512.rates.launch_s < cpu.rates.launch_s < gpu.rates.launch_s
    twice = opencl.declared(replace(bare, threads=8), "gpu")
    assert twice.bytes_per_s(1 << 40) == 2 * gpu.bytes_per_s(1 << 40)
    assert gpu.cached_bytes == gpu.l2_bytes


def test_host_is_declared() -> None:
    here = host_target(1)
    assert here == declared(here)
    assert 0 < here.flops_per_s() < inf


def test_target_of_which_nothing_is_declared_prefers_no_plan_to_the_rules() -> None:
    bare = replace(AVX512, rates=Rates())
    kernel = Conv(channels=64, outputs=64, height=28, width=28).kernel()
    assert expected(kernel, AVX512) != "direct"
    assert expected(kernel, bare) == "direct"
    assert expected_s(kernel, bare, "contract") == 0


# ---- plans follow the data, and only plans do


CONV = Conv(channels=16, outputs=16, height=16, width=16).kernel()
LONG = kernel_of(only(Tensor.input("x", (1 << 15,)).sum()))


def changed(**rates: object) -> Target:
    return replace(AVX512, rates=replace(AVX512.rates, **rates))  # type: ignore[arg-type]


def test_slower_arithmetic_plans_fewer_products() -> None:
    fast, slow = (expected(CONV, changed(flops=(("f32", rate),))) for rate in (1e14, 1e9))
    assert slow.startswith("winograd")
    assert fast != slow


def test_dearer_launches_plan_fewer_kernels() -> None:
    assert expected(LONG, changed(launch_s=0.0)) == "split64"
    assert expected(LONG, changed(launch_s=1e-3)) == "direct"


def test_faster_and_wider_folds_leave_a_sum_to_one_core() -> None:
    for slow, fast in (({"folds_per_s": 1e7}, {"folds_per_s": 1e11}), ({"fold_run": 1}, {})):
        assert expected(LONG, changed(launch_s=4e-6, **slow)) == "split64"
        assert expected(LONG, changed(launch_s=4e-6, **fast)) == "direct"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("flops", (("f32", 1e8),)),
        ("memory_bytes_per_s", 1e8),
        ("launch_s", 1.0),
        ("expensive_flops", 10**9),
    ],
)
def test_expected_seconds_follow_every_rate(name: str, value: object) -> None:
    """A model that kept a figure of its own would not see the slower one."""
    kernel = kernel_of(only(Tensor.input("x", (4096, 4096)).exp()))
    before, after = (expected_s(kernel, t, "contract") for t in (AVX512, changed(**{name: value})))
    assert after > 2 * before


def test_stored_bytes_and_small_kernels_move_at_the_cache_s_rate() -> None:
    slow = changed(cache_bytes_per_s=1e6)
    x = Tensor.input("x", (8, 8))
    edges = Alternatives(Fusion.of(((x.exp() + x).sum(1).node,))).edges()
    edge = next(e for e in edges if e.stored_bytes)
    assert stored_s(edge, slow) == pytest.approx(stored_s(edge, AVX512) * 5e10 / 1e6)
    kernel = kernel_of(only(x + 1.0))
    assert expected_s(kernel, slow, "contract") > 10 * expected_s(kernel, AVX512, "contract")


def test_rates_change_no_schedule_and_no_program() -> None:
    slow = replace(AVX512, rates=FAST)
    for name in NAMES:
        for kernel in kernels_of(name):
            mine, other = Space(kernel, AVX512), Space(kernel, slow)
            assert [x.text for x in mine.defaults()] == [x.text for x in other.defaults()]
            first = mine.defaults()[0]
            assert mine.lower(first).hash == other.lower(first).hash


def test_rates_are_in_no_fingerprint() -> None:
    here = host_target(1)
    assert fingerprint(here) == fingerprint(replace(here, rates=FAST))


def test_targets_with_other_rates_are_other_targets() -> None:
    """What is remembered of a kernel on a target is not said of another one."""
    targets = (AVX512, replace(AVX512, rates=FAST), replace(AVX512))
    first, other, same = (expected_s(KERNEL, t, "contract") for t in targets)
    assert targets[0] == targets[2] != targets[1]
    assert first == same != other


# ---- it travels


def test_target_survives_into_a_process_with_another_hash_seed() -> None:
    unusual = replace(GPU, units=(UNIT,), rates=FAST, warp=32, regs_per_item=255)
    for target in (AVX512, host_target(2), unusual):
        done = subprocess.run(
            [sys.executable, "-c", SENT_BACK],
            input=pickle.dumps(target),
            check=True,
            capture_output=True,
            env=os.environ | {"PYTHONHASHSEED": "4711", "PYTHONPATH": str(ROOT.parent)},
        )
        back = pickle.loads(done.stdout)
        assert back == target
        assert hash(back) == hash(target)
        assert {f.name: getattr(back, f.name) for f in fields(Target)} == {
            f.name: getattr(target, f.name) for f in fields(Target)
        }
