"""A machine that stands for an older one compiles for that, and shares no row of a store."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import replace

import pytest

from tunegrad.devices.host import facts
from tunegrad.devices.host.facts import fingerprint, host_target, masked
from tunegrad.errors import ConfigError

ZEN4 = (
    "+avx2", "+fma", "+f16c", "-amx-tile", "+avx512f", "+avx512cd", "+avx512bw", "+avx512dq",
    "+avx512vl", "+avx512vnni", "+avx512bf16", "+vaes", "+vpclmulqdq", "+gfni", "+sha",
)  # fmt: skip
ZEN3 = tuple(f.replace("+avx512", "-avx512") for f in ZEN4)


def on(features):
    return {f[1:] for f in features if f.startswith("+")}


def test_a_mask_takes_away_the_vector_extensions_that_a_processor_lacks():
    assert on(masked("znver3", ZEN4)) == {"avx2", "fma", "f16c", "sha"}
    assert on(masked("skylake-avx512", ZEN4)) == {
        "avx2", "fma", "f16c", "sha", "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"
    }  # fmt: skip


def test_a_mask_names_every_feature_and_adds_none():
    for name in ("znver3", "skylake-avx512"):
        found = masked(name, ZEN4)
        assert [f[1:] for f in found] == [f[1:] for f in ZEN4]
        assert on(found) <= on(ZEN4)


def test_an_unknown_processor_is_refused():
    with pytest.raises(
        ConfigError, match="TUNEGRAD_CPU_TARGET='z80'; valid: znver3, skylake-avx512"
    ):
        masked("z80", ZEN4)


def test_a_processor_with_more_than_this_machine_is_refused():
    with pytest.raises(ConfigError, match="=skylake-avx512: this machine's CPU lacks avx512bw, "):
        masked("skylake-avx512", ZEN3)


_PRINT = """
import json
from tunegrad.devices.cpu.device import device_of
device = device_of(1)
t = device.target
print(json.dumps([t.arch, t.vector_bytes, t.registers, t.vnni, t.bf16_dot, t.amx,
                  dict(device.fingerprint().fields)]))
"""


def in_another_process(name):
    done = subprocess.run(
        [sys.executable, "-c", _PRINT], env={**os.environ, "TUNEGRAD_CPU_TARGET": name},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


needs_avx2 = pytest.mark.skipif(
    platform.machine() != "x86_64" or "+avx2" not in facts.host().features,
    reason="this machine has no AVX2",
)


@needs_avx2
def test_a_masked_machine_is_another_machine_to_the_store(monkeypatch):
    arch, *facts, fields = in_another_process("znver3")
    assert (arch, *facts) == ("znver3", 32, 16, False, False, False)
    real = dict(fingerprint(replace(host_target(1), arch="znver4")).fields)
    different = {name for name in real if real[name] != fields[name]}
    assert "arch" in different
    assert different <= {"arch", "features"}, "all else is the machine's own"


def test_a_mask_that_this_machine_can_not_wear_is_one_line():
    done = subprocess.run(
        [sys.executable, "-m", "tunegrad", "doctor"], capture_output=True, text=True, check=False,
        env={**os.environ, "TUNEGRAD_CPU_TARGET": "z80"},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "error: TUNEGRAD_CPU_TARGET='z80'; valid: znver3, skylake-avx512\n"
