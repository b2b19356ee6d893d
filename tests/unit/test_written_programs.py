"""Programs as files: what is written is read back; what is no such file is none."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import IO, Any

import pytest

import tunegrad
from tests.kernel_corpus import NAMES, corpus_kernel
from tools.pipeline_files import files_of, legs
from tunegrad.compiling import artifact, build
from tunegrad.compiling.artifact import ProgramFacts, program_key
from tunegrad.compiling.saved import read_program, written_program
from tunegrad.devices import KernelIO
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.devices.host.facts import host_target
from tunegrad.ir.dtypes import F32
from tunegrad.ir.index import ALWAYS, NEVER, Range, Valid, var
from tunegrad.ir.program import Pack
from tunegrad.opts import Schedule, Space

DEVICE = CpuDevice(host_target(2))


@cache
def program(name: str) -> ProgramFacts:
    kernel = corpus_kernel(name)
    lowered = build(kernel, Space(kernel, DEVICE.target).defaults()[0], DEVICE)
    return ProgramFacts(replace(lowered, text=""), "a" * 64, "b" * 32)


@pytest.mark.parametrize("name", NAMES)
def test_every_program_of_the_corpus_is_read_back(name: str) -> None:
    body = written_program(program(name))
    assert body is not None
    assert read_program(body) == program(name)


@pytest.mark.parametrize("valid", [ALWAYS, NEVER, Valid([Range(var("a.0", 8), 1, 5)])])
def test_packs_with_quotients_and_conditions_are_read_back(valid: Valid) -> None:
    a, b = var("a.0", 8), var("b", 6)
    pack = Pack("p.load", "p", F32, ("a.0", "b"), (8, 6), (a * 6 + b) // 4 * 7 + (a + b) % 5, valid)
    made = program(NAMES[0])
    made = replace(made, lowered=replace(made.lowered, io=KernelIO((), (pack,), ("p",))))
    body = written_program(made)
    assert body is not None
    found = read_program(body)
    assert found == made
    assert str(found.lowered.io.packs) == str(made.lowered.io.packs)


def test_what_is_no_program_is_none() -> None:
    whole = written_program(program(NAMES[0]))
    assert whole is not None
    rng = random.Random(0)
    for _ in range(500):
        blob = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            blob[rng.randrange(len(blob))] = rng.randrange(256)
        read_program(bytes(blob))  # something or nothing, and no exception
        assert read_program(whole[: rng.randrange(len(whole))]) is None
    fields = json.loads(whole)
    for name in fields:
        assert read_program(json.dumps({**fields, name: 7.5}).encode()) is None
    packs = [{"name": "p", "source": "q", "dtype": "f32", "variables": [], "extents": []}]
    for offset in ([], [1, 2], [0, ["x"], 1], [0, ["//", [3], 0], 1], [[]], ["x"], [None]):
        packs[0] |= {"offset": offset, "valid": []}
        assert read_program(json.dumps({**fields, "packs": packs}).encode()) is None


def test_a_key_holds_what_lowering_depends_on() -> None:
    first, second = (corpus_kernel(name) for name in NAMES[:2])
    other = CpuDevice(replace(DEVICE.target, l1_bytes=DEVICE.target.l1_bytes * 2))
    keys = {
        program_key(first, Schedule(()).text, DEVICE),
        program_key(second, Schedule(()).text, DEVICE),
        program_key(first, Space(first, DEVICE.target).defaults()[0].text, DEVICE),
        program_key(first, Schedule(()).text, other),
        program_key(first, Schedule(()).text, CpuDevice(DEVICE.target, opt_level=2)),
    }
    assert len(keys) == 5
    assert program_key(first, Schedule(()).text, DEVICE) in keys


def test_written_programs_are_known_by_every_file_that_makes_them() -> None:
    """Locks and lazy imports aside, what ``build`` runs is what the key of a program digests."""
    root = Path(tunegrad.__file__).parent
    run = {str(root / file) for file in files_of(legs()["build"])}
    aside = {str(root / file) for file in ("forks.py", "lazy.py")}
    known = {entry.path for entry in artifact._own_files()}
    assert run - aside <= known
    assert str(root / "pipeline.py") in known
    kept = {str(root / file) for file in ("db/lookup.py", "inference/choosing.py", "trial.py")}
    assert kept <= known, "what a kept plan holds, and the rules by which it was looked up"


def test_a_product_runs_through_few_files() -> None:
    calls = legs()
    assert len(files_of(calls["build"])) <= 35
    assert len({file for leg in calls.values() for file in files_of(leg)}) <= 71


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one file of a package in place of this one, with a cache of its own."""
    for stage in artifact._STAGES:
        (tmp_path / "package" / stage).mkdir(parents=True)
    path = tmp_path / "package" / "compiling" / "artifact.py"
    path.write_text("one = 1")
    monkeypatch.setattr(artifact, "__file__", str(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return path


def digest_of(monkeypatch: pytest.MonkeyPatch) -> tuple[str, int]:
    """The digest that a new process would find, and the number of files that it reads for it."""
    read: list[object] = []

    def opened(file: object, mode: str) -> IO[Any]:
        read.append(file)
        return open(file, mode)  # type: ignore[call-overload,no-any-return]  # noqa: PTH123

    monkeypatch.setattr(artifact, "open", opened, raising=False)
    return artifact._own_code.__wrapped__(), len(read)


def test_the_digest_of_our_code_is_remembered_by_what_the_file_system_knows(
    own_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact, "SETTLED_NS", -1 << 60)  # it has not changed for a while
    first, read = digest_of(monkeypatch)
    assert read == 1
    assert digest_of(monkeypatch) == (first, 0)
    facts = own_file.stat()
    other = own_file.with_name("other")
    other.write_text("one = 2")
    other.replace(own_file)
    os.utime(own_file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    second, read = digest_of(monkeypatch)
    assert (read, second == first) == (1, False)


def test_the_digest_of_files_that_were_just_written_is_not_remembered(
    own_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact, "SETTLED_NS", 1 << 60)
    assert [digest_of(monkeypatch)[1] for _ in range(2)] == [1, 1]


def test_a_name_that_leads_to_no_file_is_none_of_our_code(
    own_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Emacs names the lock of a file that is edited."""
    before = digest_of(monkeypatch)
    own_file.with_name(".#artifact.py").symlink_to("user@host.1:2")
    assert digest_of(monkeypatch) == before
