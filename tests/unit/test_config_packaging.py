"""Wheels: configs/ stands at the top of the tree and is found from a wheel and from an editable
install; the wheel of ``tunegrad-serve`` runs saved models with numpy and msgspec alone.
"""

from __future__ import annotations

import io
import json
import re
import runpy
import shutil
import subprocess
import sys
import threading
import tomllib
import zipfile
from email.parser import HeaderParser
from http.server import ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.models import mlp

ROOT = Path(__file__).parents[2]
RESOLVE = "from tunegrad.config import config_names, configs_dir, resolve_model; "
RESOLVE += "print(configs_dir()); print(*config_names()); print(resolve_model('resnet').name)"

pytest.importorskip("setuptools", minversion="77", reason="building a wheel needs setuptools 77")


def build(tree: Path, out: Path, kind: str) -> Path:
    """Build a wheel of a copy of the sources, without pip and without a network."""
    script = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(out)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tree, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return out / done.stdout.splitlines()[-1]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    target = tmp_path / "tree"
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("tunegrad", "configs", "serve"):
        shutil.copytree(ROOT / name, target / name, ignore=ignore)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target / name)
    return target


def resolve(code: str, elsewhere: Path) -> list[str]:
    """What a fresh process prints that has no other way to this package than ``code``."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code + RESOLVE],
        cwd=elsewhere,
        env={"HOME": str(elsewhere)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_wheel_holds_every_module_and_every_config(tree: Path, tmp_path: Path) -> None:
    wheel = build(tree, tmp_path, "wheel")
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(unpacked)
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "tunegrad").rglob("*.py")}
    configs = {f"tunegrad/{path.relative_to(ROOT)}" for path in (ROOT / "configs").glob("*.toml")}
    assert (modules | configs | {"tunegrad/py.typed"}) - names == set()
    assert not any(name.startswith(("tests/", "configs/", "benchmarks/")) for name in names)

    where, found, resnet = resolve(f"import sys; sys.path.insert(0, {str(unpacked)!r}); ", tmp_path)
    assert where == str(unpacked / "tunegrad" / "configs")
    files = {path.stem for path in (ROOT / "configs").glob("*.toml")}
    assert found.split() == sorted(files - {"nightly"})  # that one says what a sweep times
    assert resnet == "resnet50"


def test_editable_install_reads_the_checkout(tree: Path, tmp_path: Path) -> None:
    wheel = build(tree, tmp_path, "editable")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # This very package may be installed in the environment of the tests, and in this way: then the
    # module that finds it has the same name.
    code = "import site, sys; finds = lambda x: x.startswith('__editable__'); "
    code += (
        "sys.meta_path[:] = [f for f in sys.meta_path if not finds(getattr(f, '__module__', ''))]; "
    )
    code += "[sys.modules.pop(name) for name in [*sys.modules] if finds(name)]; "
    code += f"sys.path.insert(0, {str(site)!r}); site.addsitedir({str(site)!r}); "
    # Before the finder of folders, which finds a wheel that is installed.
    code += "sys.meta_path.sort(key=lambda finder: '__editable__' not in str(finder)); "
    where, _, resnet = resolve(code, tmp_path)
    assert where == str(tree / "configs")
    assert resnet == "resnet50"


def project(folder: str) -> dict[str, Any]:
    """What a pyproject.toml says of its distribution."""
    text = (ROOT / folder / "pyproject.toml").read_text(encoding="utf-8")
    found: dict[str, Any] = tomllib.loads(text)["project"]
    return found


def needed(folder: str) -> set[str]:
    return {re.split(r"[<>=~!\[ ]", line)[0] for line in project(folder)["dependencies"]}


def test_a_base_install_has_no_package_that_a_default_tune_does_without() -> None:
    assert needed(".") == {"numpy", "llvmlite", "click", "rich", "msgspec", "pebble", "psutil"}
    assert needed("serve") == {"numpy", "msgspec"}
    assert set(project("serve")["dependencies"]) <= set(project(".")["dependencies"])


def test_both_distributions_have_one_version_and_age_of_python() -> None:
    for folder in (".", "serve"):
        assert project(folder)["dynamic"] == ["version"]
        assert project(folder)["requires-python"] == ">=3.11"
    assert "Typing :: Typed" in project(".")["classifiers"]


SERVED = """
import sys
import threading
sys.path[:0] = sys.argv[2:]
import numpy as np
import tunegrad as tg
print(tg.__file__)
print(float(tg.load(sys.argv[1])(np.ones((1, 64), np.float32)).sum()))
for asked in (lambda: tg.tune, lambda: tg.load("mlp")):
    try:
        asked()
    except (ImportError, tg.errors.ModelError) as error:
        print(error)
"""


def test_the_wheel_that_serves_runs_a_saved_model_by_numpy_and_msgspec(
    tree: Path, tmp_path: Path
) -> None:
    wheel = build(tree / "serve", tmp_path, "wheel")
    site, there = tmp_path / "site", tmp_path / "there"
    there.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
        (about,) = (n for n in archive.namelist() if n.endswith("/METADATA"))
        said = HeaderParser().parsestr(archive.read(about).decode())
    assert (said["Name"], said["Version"]) == ("tunegrad-serve", tg.__version__)
    assert sum(f.stat().st_size for f in site.rglob("*")) < 3_000_000
    for name in ("numpy", "numpy.libs", "msgspec"):
        spec = find_spec(name.partition(".")[0])
        assert spec is not None
        found = Path(str(spec.origin)).parent.with_name(name)
        if found.exists():
            (there / name).symlink_to(found)
    model = tg.load(mlp(sizes=(64, 48, 16)), store=False, threads=1)
    model.save(tmp_path / "m.plan")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", SERVED, str(tmp_path / "m.plan"), str(site), str(there)],
        capture_output=True, text=True, check=False, cwd=tmp_path, env={"HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    place, total, *refused = done.stdout.splitlines()
    assert Path(place).is_relative_to(site)
    assert float(total) == float(model(np.ones((1, 64), np.float32)).sum())
    assert [line.partition(" ")[0] for line in refused] == ["tunegrad.tune", "model"]
    assert all(line.endswith("pip install tunegrad in its place") for line in refused)


CONTAINER = ROOT / "serve" / "Containerfile"


def test_containers_are_pinned_copy_what_there_is_and_run_as_no_root() -> None:
    text = CONTAINER.read_text(encoding="utf-8").replace("\\\n", " ")
    stages: dict[str, dict[str, list[str]]] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        if word == "FROM":
            image, _, name = rest.partition(" AS ")
            assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", image)
            stages[name] = {}
        else:
            stages[name].setdefault(word, []).append(rest)
    assert list(stages) == ["build", "tune", "serve"]
    copied = [x for s in stages.values() for c in s.get("COPY", ()) for x in c.split()[:-1]]
    assert copied
    assert all((ROOT / name).exists() for name in copied)
    for name in ("tune", "serve"):
        assert stages[name]["USER"] == [name]
        assert f"useradd --create-home {name}" in stages[name]["RUN"][0]
        (check,) = stages[name]["HEALTHCHECK"]
        for commands in (
            stages[name]["ENTRYPOINT"],
            stages[name]["CMD"],
            [f"[{check.partition('[')[2]}"],
        ):
            (command,) = map(json.loads, commands)
            assert all(isinstance(x, str) for x in command)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["tune", "serve"])
def test_containers_build_where_there_is_a_builder(target: str) -> None:
    builder = shutil.which("docker") or shutil.which("podman")
    if (
        builder is None
        or subprocess.run([builder, "info"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no builder of containers")
    words = [builder, "build", "-f", str(CONTAINER), "--target", target, "."]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_server_of_the_container_runs_models_and_is_the_one_of_the_page() -> None:
    source = (ROOT / "serve" / "server.py").read_text(encoding="utf-8")
    names = runpy.run_path(str(ROOT / "serve" / "server.py"))
    assert source in (ROOT / "docs" / "SERVING.md").read_text(encoding="utf-8")
    model = tg.load(mlp(sizes=(64, 48, 16)), store=False, threads=1)
    names["MODELS"]["mlp"] = model
    model.metrics()
    server = ThreadingHTTPServer(("127.0.0.1", 0), names["Handler"])
    names["Handler"].log_message = lambda *_: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    place = f"http://127.0.0.1:{server.server_port}"
    try:
        sent = io.BytesIO()
        np.save(sent, np.ones((1, 64), np.float32))
        with urlopen(f"{place}/mlp", sent.getvalue()) as answer:
            found = np.load(io.BytesIO(answer.read()))
        with urlopen(f"{place}/%6Dlp", sent.getvalue()) as answer:
            assert answer.status == 200
        huge = io.BytesIO()
        said = {"descr": "<f4", "fortran_order": False, "shape": (1 << 60,)}
        np.lib.format.write_array_header_1_0(huge, said)
        for wrong in (b"no array", b"", b"PK\x03\x04", huge.getvalue()):
            with pytest.raises(HTTPError, match="400"):
                urlopen(f"{place}/mlp", wrong)
        with urlopen(f"{place}/metrics") as answer:
            said = answer.read().decode()
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"{place}/else")
    finally:
        server.shutdown()
        server.server_close()
    np.testing.assert_array_equal(found, model(np.ones((1, 64), np.float32)))
    assert f'tunegrad_calls_total{{model="{model.name}"}} 2' in said


@pytest.mark.slow
def test_fresh_environments_are_as_small_as_the_docs_say(tree: Path, tmp_path: Path) -> None:
    """Whole site-packages, with bytecode. Needs an index of packages."""
    for folder, most_mb in ((tree, 300), (tree / "serve", 80)):
        venv = tmp_path / f"{folder.name}-venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
        pip = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "install"]
        done = subprocess.run(
            [*pip, "-q", str(folder)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"no index: {done.stderr.strip().splitlines()[-1]}")
        (site,) = venv.glob("lib/*/site-packages")
        used = subprocess.run(["du", "-sm", str(site)], capture_output=True, text=True, check=True)
        assert int(used.stdout.split()[0]) <= most_mb
