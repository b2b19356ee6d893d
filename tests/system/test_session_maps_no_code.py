"""The process of a session links and runs nothing that was generated: no candidate, no reference,
no model.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from small_models import model_file, settings_of

from tunegrad.db import open_store
from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.loader import Library
from tunegrad.devices.host.team import Executable, Team
from tunegrad.tuning.session import run_session
from tunegrad.tuning.workload import workload_of_spec

pytestmark = pytest.mark.timing

_ANONYMOUS_CODE = re.compile(r"^\S+ [r-][w-]x[ps] \S+ \S+ 0 *(\[(?!vdso|vsyscall).*\])?$")


def anonymous_code(pid: int) -> list[str]:
    """The executable mappings of a process that no file is behind, but for the kernel's own."""
    lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if _ANONYMOUS_CODE.match(line)]


def imported_code() -> int:
    """How many of them importing the session brings along: a page of libffi, for callbacks of
    llvmlite.
    """
    text = "import os, sys; import tunegrad.tuning.session; sys.path.append(sys.argv[1]); "
    text += "import test_session_maps_no_code as here; print(len(here.anonymous_code(os.getpid())))"
    command = [sys.executable, "-c", text, str(Path(__file__).parent)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_the_reader_of_maps_sees_linked_code() -> None:
    """What the next test counts grows where code is linked."""
    library = Library(compile_llvm("define void @f() {\n  ret void\n}", host_target()), ("f",), {})
    assert len(anonymous_code(os.getpid())) > imported_code()
    library.close()


def test_a_whole_tune_maps_no_code_into_the_session_s_process(
    tmp_path: Path, places: dict[str, str]
) -> None:
    command = [
        sys.executable,
        "-m",
        "tunegrad.cli",
        "tune",
        str(model_file(tmp_path)),
        "--budget",
        "600",
        "--max-trials",
        "12",
        "--threads",
        "1",
        "--store",
        str(tmp_path / "s.db"),
        "--seed",
        "3",
    ]
    with subprocess.Popen(
        command, env={**os.environ, **places}, stderr=subprocess.PIPE, text=True
    ) as process:
        found, looks = set[str](), 0
        while process.poll() is None:
            try:
                found.update(anonymous_code(process.pid))
            except OSError:  # it ended between two lines
                break
            looks += 1
            time.sleep(0.05)
        _, said = process.communicate()
    assert process.returncode == 0, said
    assert looks > 10
    assert len(found) <= imported_code(), found


def test_a_session_never_calls_the_loader_in_its_own_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("code is linked in the session's process")

    for owner, name in ((Library, "__init__"), (Executable, "load"), (Team, "__init__")):
        monkeypatch.setattr(owner, name, refuse)
    settings = replace(settings_of(tmp_path, 600.0, tmp_path / "n.db"), max_trials=12)
    report = run_session(settings, workload_of_spec(settings.model), [])
    assert report.tuned_ms is not None
    assert report.mismatch == ""
    with open_store(settings.store) as store:
        assert store.stats().promotions > 0
