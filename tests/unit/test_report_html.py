"""The file of a report: names are text in it, and it loads nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.report_stores import store_of, write_session
from tests.simulated_nights import World, stored
from tunegrad.cli.app import run
from tunegrad.cli.html.style import Html, clean, element, joined
from tunegrad.db import open_store

pytest.importorskip("matplotlib", reason="charts need the plot extra")

HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)> \"'& $x_1$ </title></style>"


class Seen(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def report(tmp_path: Path, *arguments: str) -> str:
    out = tmp_path / "out.html"
    assert run(["report", "--store", str(tmp_path / "a.db"), "-o", str(out), *arguments]) == 0
    return out.read_text(encoding="utf-8")


def hostile(tmp_path: Path) -> str:
    with open_store(tmp_path / "a.db", "write") as store:
        for name in ("s1", "s2"):
            write_session(
                store, name, HOSTILE, names=(HOSTILE, f"{HOSTILE}\x01\ud800".encode(
                    "utf-8", "replace").decode()), layers=HOSTILE[:90], error=HOSTILE,
                origin=HOSTILE.replace(" ", "_"),
            )  # fmt: skip
    return report(tmp_path)


def test_names_from_a_store_are_text_and_never_markup(tmp_path: Path) -> None:
    page = Seen(hostile(tmp_path))
    assert not {"script", "img", "iframe", "object", "link", "base", "form"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.text.count("<script>alert('x')</script>") >= 6


def test_nothing_is_loaded(tmp_path: Path) -> None:
    page = hostile(tmp_path)
    assert not re.search(r"https?:|//[a-z]", page)
    assert not re.search(r"url\((?!#)|@import|data:", page)
    sources = [v for n, v in Seen(page).attributes if n in ("src", "href", "xlink:href")]
    assert all(v and v.startswith("#") for v in sources)
    assert "default-src &#x27;none&#x27;" in page


def test_ids_are_distinct_and_every_reference_is_one(tmp_path: Path) -> None:
    store_of(tmp_path / "a.db", "s1", "s2")
    page = report(tmp_path)
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]*)', page)) <= set(ids)


def test_every_colour_is_one_of_the_page(tmp_path: Path) -> None:
    store_of(tmp_path / "a.db", "s1", "s2")
    charts = re.findall(r"<svg.*?</svg>", report(tmp_path), re.DOTALL)
    assert charts
    assert not [c for c in charts if re.search(r"(?:fill|stroke): #", c)]


def test_equal_stores_give_equal_files(tmp_path: Path) -> None:
    store_of(tmp_path / "a.db", "s1")
    assert report(tmp_path) == report(tmp_path)


def test_gains_have_intervals_and_those_with_one_inside_are_no_difference(tmp_path: Path) -> None:
    store_of(tmp_path / "a.db", "s1")
    text = Seen(report(tmp_path, "--session", "last")).text
    assert "2.00x (1.90 to 2.10)" in text
    assert "the same schedule" in text
    assert "its code: instructions 37, spills 0" in text
    from tunegrad.cli.html.sections import gain

    assert Seen(gain(1.02, (0.98, 1.05))).text == "no difference (0.98 to 1.05)"
    assert Seen(gain(1.01, (1.001, 1.01))).text == "no difference (1.00 to 1.01)"
    assert Seen(gain(1.5, None)).text == "1.50x (no interval)"


def test_page_of_a_sweep_has_its_findings_and_its_peers(tmp_path: Path) -> None:
    world = World(nights=20, kernels=6, step=(15, 2, 1.08))
    stored(tmp_path / "a.db", world.run(11))
    with open_store(tmp_path / "a.db", "write") as store:
        (whole,) = [x for x in store.latencies("simulated") if x.session == "night19"]
        store.record_latency(
            replace(whole, model="simulated: peer ort", samples_s=(1.5e-3,), default_samples_s=())
        )
    text = Seen(report(tmp_path, "--session", "night19")).text
    assert "What the sweep found" in text
    assert "times are of one launch, in the whole model, in the turns of the sweep." in text
    assert "slower: simulated: k2 on cpu: 1.0" in text
    assert "with it changed revision: aaaa -> bbbb" in text
    assert "Peers" in text
    assert "ortsimulated1.5000" in text


def test_file_that_can_not_be_written_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store_of(tmp_path / "a.db", "s1")
    assert run(["report", "--store", str(tmp_path / "a.db"), "-o", str(tmp_path)]) == 1
    assert "can not be written" in capsys.readouterr().err


def test_missing_library_is_named_with_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(["report", "--store", str(tmp_path / "a.db")]) == 1
    assert capsys.readouterr().err == (
        "error: report needs matplotlib, which is not installed: pip install 'tunegrad[plot]'\n"
    )


def test_what_was_written_is_said_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store_of(tmp_path / "a.db", "s1")
    size = len(report(tmp_path, "--json").encode())
    import json

    said = json.loads(capsys.readouterr().out)
    assert (said["bytes"], said["sessions"], said["kernels"]) == (size, 1, 2)


def test_text_is_escaped_and_markup_kept() -> None:
    assert element("p", "<b>", Html("<i></i>"), css='a"b') == (
        '<p class="a&quot;b">&lt;b&gt;<i></i></p>'
    )
    assert joined("&", None, 3) == "&amp;3"
    assert clean("a\x00b\x9c\ufffe\ud800\n") == "a\ufffdb\ufffd\ufffd\ufffd\n"
