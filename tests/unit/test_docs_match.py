"""Documents say what the commands say."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

import tunegrad as tg
from tools.docs.cli_page import help_texts
from tunegrad.cli.app import root
from tunegrad.cli.regress import regress
from tunegrad.cli.tune import tune
from tunegrad.db import open_store

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TUNE = "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/tunegrad tune resnet18"
TEST = "python3 -m venv .venv && .venv/bin/pip install '.[test]' && .venv/bin/pytest"


def find_child(group: click.Group, name: str) -> click.Command:
    child = group.get_command(click.Context(group), name)
    assert child is not None, name
    return child


@pytest.mark.parametrize("command", [TUNE, TEST])
def test_readme_holds_the_two_commands(command: str) -> None:
    assert f"```\n{command}\n```" in README


def test_ci_runs_no_test_beside_an_installation() -> None:
    lines = (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
    last = max(i for i, line in enumerate(lines) if "pip install" in line)
    assert not [x for x in lines[:last] if '"$test"' in x and x.endswith("&")]


@pytest.mark.parametrize("text", [pytest.param(text, id=path) for path, text in help_texts()])
def test_help_ends_with_an_example_that_parses(text: str) -> None:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    assert "Example:" in lines
    examples = lines[lines.index("Example:") + 1 :]
    assert examples
    for example in examples:
        words = shlex.split(example.partition(" | ")[0])
        assert words[0] == "tunegrad"
        assert_parses(words)


def assert_parses(words: list[str]) -> None:
    program, *rest = words
    command: click.Command = root
    ctx = click.Context(root, info_name=program, **root.context_settings)
    while isinstance(command, click.Group):
        name, rest = rest[0], rest[1:]
        command = find_child(command, name)
    command.make_context(name, rest, parent=ctx)  # raises UsageError for what does not parse


DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("benchmarks/*.md"),
        *ROOT.glob("examples/*.md"),
    ]
)


def prose(text: str) -> str:
    """A document without its blocks of code."""
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(text: str) -> set[str]:
    """What links to the headings of a document end with."""
    titles = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(document: Path) -> list[str]:
    """Relative links to a file that is not there, or to a heading that the file does not have."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(document.read_text(encoding="utf-8"))):
        place, _, anchor = target.partition("#")
        path = document.parent / place if place else document
        if "://" not in target and not (
            path.exists() and (not anchor or anchor in anchors(path.read_text(encoding="utf-8")))
        ):
            broken.append(target)
    return broken


def of_documents(find: Callable[[Path], list[str]]) -> dict[str, list[str]]:
    """What is found in each document, by its path; documents without anything are left out."""
    return {str(path.relative_to(ROOT)): found for path in DOCUMENTS if (found := find(path))}


def test_links_lead_somewhere() -> None:
    assert of_documents(broken_links) == {}


def test_site_lists_every_page_once() -> None:
    """The site has no page without a place; decisions and notebook have lists of their own."""
    docs = ROOT / "docs"
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n", 1)[1]
    pages = [*docs.glob("*.md"), *docs.glob("*/README.md")]
    assert sorted(re.findall(r": (\S+\.md)$", site, re.MULTILINE)) == sorted(
        str(page.relative_to(docs)) for page in pages
    )


def leaving_links(document: Path) -> list[str]:
    """Links of a page of the site to a folder, or out of docs/: they lead nowhere there."""
    outside = []
    for target in re.findall(r"\]\(([^)#\s]+)", prose(document.read_text(encoding="utf-8"))):
        path = (document.parent / target).resolve()
        if "://" not in target and not (path.is_file() and path.is_relative_to(ROOT / "docs")):
            outside.append(target)
    return outside if "docs" in document.relative_to(ROOT).parts else []


def test_links_of_the_site_stay_in_it() -> None:
    assert of_documents(leaving_links) == {}


def git(*words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", "-C", str(ROOT), *words], input=typed, capture_output=True, text=True, check=False
    )


REVISION = re.compile(r"\b[Rr]evision\s+`?([0-9a-f]{7,40})\b")
MADE_FROM = [
    (path, revision)
    for path in DOCUMENTS
    for revision in dict.fromkeys(REVISION.findall(path.read_text(encoding="utf-8")))
]


def test_revisions_that_documents_name_are_in_the_repository() -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    if not (ROOT / ".git").exists():
        pytest.skip("the tree is no checkout of Git")
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("the clone is shallow")
    named = "".join(f"{revision}^{{commit}}\n" for _, revision in MADE_FROM)
    told = git("cat-file", "--batch-check", typed=named).stdout.splitlines()
    assert [line for line in told if line.endswith(" missing")] == []
    assert len(told) == len(MADE_FROM)


def test_readme_example_prints_what_it_shows(tmp_path: Path) -> None:
    """With an empty store: the schedules that are printed as hits are misses then."""
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (shown,) = re.findall(r"It printed, .*?```\n(.*?)```", README, re.DOTALL)
    with open_store(str(tmp_path / "tuned.db"), "write"):
        pass
    places = {
        "XDG_CACHE_HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-W", "error", "-c", code]
    ran = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, **places},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    printed, kernels = (
        ran.stdout.splitlines(),
        [line.removesuffix(" hit") for line in shown.splitlines()[:-1]],
    )
    # The third kernel is of a variant, which other machines choose otherwise.
    assert printed[:2] == [f"{kernel} miss kernel: not in the store" for kernel in kernels[:2]]
    assert re.fullmatch(r"\d+ .+ miss kernel: not in the store", printed[2])
    assert printed[3:] == shown.splitlines()[3:]


def test_every_sweep_of_the_page_takes_its_options_and_finds_its_file() -> None:
    """The cron line and the job of docs/REGRESS.md."""
    text = (ROOT / "docs" / "REGRESS.md").read_text(encoding="utf-8")
    part = text[text.index("## Every night") : text.index("## The file")]
    lines = [x for x in part.splitlines() if ".venv/bin/tunegrad regress" in x]
    assert len(lines) == 2
    for line in lines:
        words = shlex.split(re.split(r"[|>]", line.split("tunegrad regress", 1)[1])[0])
        with regress.make_context("regress", words) as context:
            assert context.params["config"] == "nightly"
            assert context.params["markdown"] == "nightly.md"


def test_every_option_of_the_page_on_quantising_is_there() -> None:
    text = (ROOT / "docs" / "QUANTISE.md").read_text(encoding="utf-8")
    options = {o for p in tune.params for o in p.opts}
    assert set(re.findall(r"`(--[a-z-]+)", text)) <= options
    assert set(re.findall(r"`(\w+)=[\w\[\"]", text)) - {"dtype"} <= set(
        inspect.signature(tg.quantize).parameters
    )
