"""configs/ stands at the top of the tree; it is found from a wheel and from an editable install."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

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
    for name in ("tunegrad", "configs"):
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
