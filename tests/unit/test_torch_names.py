"""The names of PyTorch that inference uses: what exists is callable, what does not is named."""

import tomllib
from pathlib import Path

import pytest

import tunegrad as tg
from tunegrad import nn
from tunegrad.frontend import Tensor

NAMES = tomllib.loads((Path(__file__).parents[1] / "data" / "torch_names.toml").read_text())
HOMES = {"functions": tg, "methods": Tensor, "functional": nn.functional, "modules": nn}
SHARE = 0.96


def absent(kind: str) -> list[str]:
    """Names that are neither callable nor properties (``x.size`` is both)."""
    found = {n: getattr(HOMES[kind], n, None) for n in NAMES[kind]}
    return [n for n, value in found.items() if not (callable(value) or isinstance(value, property))]


def test_at_least_three_hundred_names_are_listed():
    assert sum(len(NAMES[kind]) for kind in HOMES) >= 300
    for kind in HOMES:
        assert len(set(NAMES[kind])) == len(NAMES[kind])


@pytest.mark.parametrize("kind", HOMES)
def test_every_name_exists_or_is_named_as_missing(kind):
    unsaid = [n for n in absent(kind) if n not in NAMES["missing"]]
    assert not unsaid


def test_nothing_named_as_missing_exists():
    everything = {n for kind in HOMES for n in absent(kind)}
    assert set(NAMES["missing"]) == everything


def test_share_of_names_that_exist():
    count = sum(len(NAMES[kind]) for kind in HOMES)
    there = count - sum(len(absent(kind)) for kind in HOMES)
    assert there / count >= SHARE


def test_names_are_pytorchs():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `bench`)")
    homes = {"functions": torch, "methods": torch.Tensor, "functional": torch.nn.functional,
             "modules": torch.nn}  # fmt: skip
    assert not [n for kind, home in homes.items() for n in NAMES[kind] if not hasattr(home, n)]
