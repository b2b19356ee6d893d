"""Commands as a shell runs them: full disks, closed streams, signals, locales, examples."""

from __future__ import annotations

import gzip
import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
import numpy as np
import pytest

from tunegrad.cli.app import COMMANDS, root

pytestmark = pytest.mark.timing

TREE = Path(__file__).parents[2]
LIMIT_S = 90.0
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(TREE), **more}


def run(
    *words: str,
    folder: Path,
    out: int | None = subprocess.PIPE,
    before: Callable[[], None] | None = None,
    **more: str,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tunegrad", *words],
        cwd=folder,
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        timeout=LIMIT_S,
        check=False,
        env=environment(**more),
        preexec_fn=before,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place with a small store of a real session, and what was told while it was made: its log
    could not be written.
    """
    place = tmp_path_factory.mktemp("edges")
    made = run(
        "tune",
        "mlp",
        "--budget",
        "600s",
        "--max-trials",
        "12",
        "--store",
        "tuned.db",
        *(("--log", str(FULL)) if FULL.exists() else ()),
        folder=place,
    )
    assert made.returncode == 0, made.stderr
    (place / "told").write_text(made.stdout + made.stderr, encoding="utf-8")
    return place


@needs_full
@pytest.mark.parametrize(
    "words",
    [
        ("show", "mlp", "--store", "tuned.db"),
        ("run", "nothing", "--json"),
    ],
)
def test_full_stdout_is_one_line_of_error(words: tuple[str, ...], folder: Path) -> None:
    with FULL.open("w", encoding="utf-8") as full:
        found = run(*words, folder=folder, out=full.fileno())
    assert found.returncode == 1
    assert found.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in found.stderr
    assert "stdout: can not be written: No space left on device" in found.stderr


def test_closed_stdout_is_one_line_of_error(folder: Path) -> None:
    closed = "exec " + shlex.join([sys.executable, "-m", "tunegrad", "show", "mlp", "--store"])
    found = subprocess.run(
        ["bash", "-c", f"{closed} tuned.db >&-"], cwd=folder, capture_output=True, text=True,
        timeout=LIMIT_S, check=False, env=environment(),
    )  # fmt: skip
    assert found.returncode == 1
    assert found.stderr == "error: stdout: can not be written: it is closed\n"


@needs_full
def test_search_goes_on_where_its_log_can_not_be_written(folder: Path) -> None:
    told = (folder / "told").read_text(encoding="utf-8")
    warned = f"warning: log {FULL}: can not be written any more: No space left on device"
    assert told.count(warned) == 1
    assert "matmul 10x512" in told


def small_files() -> None:
    """As a full disk: a file ends after 100 bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))


def test_export_leaves_no_cut_off_file(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "out.jsonl"
    words = ("store", "export", "--store", "tuned.db", "--out", str(place))
    # Python would keep the first 100 bytes of a module's code, and every later run would read them.
    small = partial(run, folder=folder, before=small_files, PYTHONDONTWRITEBYTECODE="1")
    assert small(*words).returncode == 1
    assert list(tmp_path.iterdir()) == []
    place.write_text("before", encoding="utf-8")
    found = small(*words)
    assert found.stderr.startswith(f"error: file {place}: can not be written: File too large")
    assert place.read_text(encoding="utf-8") == "before"
    assert run(*words, folder=folder).returncode == 0
    assert json.loads(place.read_text(encoding="utf-8").splitlines()[0])["format"]
    assert [p.name for p in tmp_path.iterdir()] == ["out.jsonl"]


def test_export_that_gzip_packed_is_imported(folder: Path, tmp_path: Path) -> None:
    exported = run("store", "export", "--store", "tuned.db", "--best", folder=folder).stdout
    packed = tmp_path / "w.jsonl.gz"
    packed.write_bytes(gzip.compress(exported.encode()))
    found = run("store", "import", str(packed), "--store", "new.db", folder=tmp_path)
    assert found.returncode == 0, found.stderr
    assert re.search("winners that a file claims +[1-9]", found.stdout)
    packed.write_bytes(packed.read_bytes()[:-50])
    cut = run("store", "import", str(packed), "--store", "cut.db", folder=tmp_path)
    assert (cut.returncode, cut.stderr.count("\n")) == (1, 1)
    assert "is not a whole gzip file" in cut.stderr


@pytest.mark.parametrize("utf8", ["0", "1"])
def test_accented_path_is_printed_as_it_is(utf8: str, tmp_path: Path) -> None:
    found = run(
        "store", "stats", "--store", "café.db", folder=tmp_path,
        LC_ALL="C", PYTHONUTF8=utf8, PYTHONCOERCECLOCALE="0",
    )  # fmt: skip
    assert found.returncode == 1
    assert "\\udc" not in found.stderr
    assert "/café.db: does not exist" in found.stderr


def test_program_on_stdin_tunes(tmp_path: Path) -> None:
    tuned = 'tg.tune("mlp", budget_s=600, max_trials=6, store="s.db")'
    program = f"import tunegrad as tg\nprint({tuned}.model)\n"
    found = subprocess.run(
        [sys.executable, "-"], input=program, cwd=tmp_path, capture_output=True, text=True,
        timeout=LIMIT_S, check=False, env=environment(),
    )  # fmt: skip
    assert (found.returncode, found.stdout) == (0, "mlp\n"), found.stderr


@pytest.mark.parametrize("after_s", [0.1, 0.8, 3.0])
def test_ctrl_c_at_any_moment_of_the_start_is_no_traceback(after_s: float, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tunegrad", "tune", "mlp", "--budget", "60", "--store", "s.db"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT_S)
    if process.returncode == -signal.SIGINT and not err and after_s < 0.1:
        return  # Python did not hear signals yet
    if "Traceback" in err and "cli/__init__.py" not in err:
        return  # Python itself, or the import of the package, had not ended
    # An interrupt inside of an `exec` of a module that is imported makes Python end by the signal,
    # which is the same to a shell.
    assert process.returncode in (130, -signal.SIGINT), (out, err)
    assert "Traceback" not in err
    assert "stopping, keeping the best so far" in err or err.endswith("interrupted\n")


def test_more_threads_than_cpus_are_said(folder: Path) -> None:
    found = run("show", "mlp", "--store", "tuned.db", "--threads", "1000", folder=folder)
    assert "warning: 1000 threads on " in found.stderr
    assert found.returncode == 0


def test_show_says_why_a_kernel_is_a_miss_as_run_does(folder: Path) -> None:
    shown = run("show", "encoder", "--store", "tuned.db", folder=folder).stdout
    assert "miss (kernel: not in the store)" in shown


def test_verify_of_a_store_of_a_real_session_has_nothing_to_note(folder: Path) -> None:
    found = run("store", "verify", "--store", "tuned.db", folder=folder)
    assert (found.stdout, found.stderr) == ("tuned.db: ok\n", "")


# ---- help


def examples(command: click.Command, path: tuple[str, ...] = ()) -> list[str]:
    """The command lines of a command's help, and of those below it, in order."""
    found = []
    if command.epilog:
        found = [line.strip() for line in command.epilog.splitlines()[2:]]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            found += examples(below, (*path, name))
    return found


def test_every_command_has_an_example_that_calls_it() -> None:
    lines = examples(root)
    for name in COMMANDS:
        assert any(re.match(rf"tunegrad {name}\b", line) for line in lines), name


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_examples_of_all_helps_run_as_they_stand(tmp_path: Path) -> None:
    long = re.compile(r"tunegrad (tune resnet18$|watch)")  # the latter until it is interrupted
    lines = [line for line in examples(root) if not long.match(line)]
    order = ("tune", "store export", "regress", "store merge")
    first = [line for start in order for line in lines if line.startswith(f"tunegrad {start}")]
    shim = tmp_path / "bin"
    shim.mkdir()
    command = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tunegrad "$@"\n'
    (shim / "tunegrad").write_text(command, encoding="utf-8")
    (shim / "tunegrad").chmod(0o755)
    np.savez(tmp_path / "batches.npz", x=np.ones((4, 784), np.float32))
    for line in [*first, *(line for line in lines if line not in first)]:
        nightly = tmp_path / "nightly.db"  # of what was tuned before
        if "nightly.db" in line and not nightly.exists():
            nightly.write_bytes((tmp_path / "tuned.db").read_bytes())
        if "monday.db" in line:  # with sweeps, which `compare` compares
            for day in ("monday", "tuesday"):
                (tmp_path / f"{day}.db").write_bytes(nightly.read_bytes())
        found = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line], cwd=tmp_path, capture_output=True, text=True,
            timeout=300, check=False, env=environment(PATH=f"{shim}:{os.environ['PATH']}"),
        )  # fmt: skip
        assert found.returncode == 0, f"{line}\n{found.stdout}\n{found.stderr}"
        assert "Traceback" not in found.stderr


def test_models_are_shown_and_run_where_there_is_no_store_yet(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": "", "TUNEGRAD_STORE": ""}
    shown = run("show", "mlp", folder=tmp_path, **home)
    assert shown.returncode == 0, shown.stderr
    assert "default" in shown.stdout
    for words in (("report",), ("store", "stats")):
        done = run(*words, folder=tmp_path, **home)
        assert done.returncode == 1
        assert "does not exist; `tunegrad tune" in done.stderr


def test_no_memory_and_results_that_are_no_numbers_are_said(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import numpy as np\nimport tunegrad as tg\n"
        "def model(rows, w):\n"
        "    def f(x):\n        return x @ tg.Tensor(np.full((4, 3), w, np.float32))\n"
        "    return tg.Model('own', lambda: f, (tg.InputSpec('x', (rows, 4)),))\n"
        "def huge():\n    return model(1 << 40, 1.0)\n"
        "def nan():\n    return model(2, np.nan)\n",
        encoding="utf-8",
    )
    huge = run("run", "own:huge", folder=tmp_path)
    assert huge.returncode == 1
    assert re.match("error: .*no memory", huge.stderr.splitlines()[-1])
    assert "Traceback" not in huge.stderr
    found = run("run", "own:nan", folder=tmp_path)
    assert found.returncode == 0
    assert "outputs of the model hold NaN" in found.stdout
