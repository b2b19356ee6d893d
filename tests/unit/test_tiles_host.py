"""Tile registers of this machine: who has them, and what Linux says."""

import os
from dataclasses import replace

from tests.tile_kernels import SERVER
from tunegrad.devices.host import facts
from tunegrad.devices.host.facts import (
    AMX_BF16,
    AMX_INT8,
    Host,
    ask_for_tiles,
    fingerprint,
    host_target,
    tile_units,
    without_tiles,
)
from tunegrad.devices.processes.system_calls import ALLOWED

HAVE = ("+amx-bf16", "-amx-fp16", "+amx-int8", "+amx-tile", "+avx512f")


def test_units_take_tiles_and_their_products():
    assert tile_units(HAVE) == (AMX_BF16, *AMX_INT8)
    assert tile_units(("+amx-tile", "+amx-bf16")) == (AMX_BF16,)
    assert tile_units(("+amx-tile", "+amx-int8")) == AMX_INT8
    assert tile_units(("+amx-int8",)) == ()
    assert tile_units(without_tiles(HAVE)) == ()


def test_what_is_refused_is_no_feature(monkeypatch):
    monkeypatch.setattr(facts, "host", lambda: Host("llvm", "server", HAVE))
    facts._features.cache_clear()
    try:
        monkeypatch.setattr(facts, "ask_for_tiles", lambda: False)
        assert host_target(1).units == ()
        assert "+amx-tile" not in dict(fingerprint(host_target(1)).fields)["features"]
        facts._features.cache_clear()
        monkeypatch.setattr(facts, "ask_for_tiles", lambda: True)
        assert host_target(1).units == (AMX_BF16, *AMX_INT8)
        assert "amx-bf16" in dict(fingerprint(host_target(1)).fields)["features"]
    finally:
        facts._features.cache_clear()


def test_asking_again_gives_the_same_answer():
    assert ask_for_tiles() == ask_for_tiles()
    masked = "TUNEGRAD_CPU_TARGET" in os.environ
    assert masked or not ask_for_tiles() or "+amx-tile" in host_target(1).features


def test_a_confined_process_may_ask():
    assert "arch_prctl" in ALLOWED


def test_a_core_multiplies_as_much_by_tiles_as_is_declared():
    """512 multiply-adds a cycle, next to two vectors of 16 lanes in f32."""
    assert SERVER.rates.speedup(AMX_BF16.name) == AMX_BF16.fmas / (16 * 2)
    assert replace(SERVER, units=()).multiplies_pairs
    assert replace(SERVER, features=("+amx-bf16", "+amx-tile")).multiplies_pairs
