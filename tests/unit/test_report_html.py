"""The file of a report: names are text in it, and it loads nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.report_stores import GEMM, KEY, store_of, trial, write_session
from tests.simulated_nights import World, stored
from tunegrad.cli.app import run
from tunegrad.cli.html import report_html
from tunegrad.cli.html.charts import Axis, labels_of
from tunegrad.cli.html.script import SCRIPT, script_policy
from tunegrad.cli.html.style import COLOURS, SERIES, Html, clean, element, joined
from tunegrad.db import open_store
from tunegrad.trial import Fingerprint
from tunegrad.tuning.reporting import gather
from tunegrad.tuning.reporting.candidates import search_of

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
    assert not {"img", "iframe", "object", "link", "base", "form"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.text.count("<script>alert('x')</script>") >= 6


def test_only_the_reports_own_script_runs_and_its_policy_names_it(tmp_path: Path) -> None:
    page = hostile(tmp_path)
    assert Seen(page).tags.count("script") == 1
    assert re.findall("<script>(.*?)</script>", page, re.DOTALL) == [SCRIPT]
    assert f"script-src {escape(script_policy(SCRIPT))}" in page


def test_nothing_is_loaded(tmp_path: Path) -> None:
    page = hostile(tmp_path)
    assert not re.search(r"https?:|[^:]//[a-z]", page.replace(SCRIPT, ""))
    assert not re.search(r"url\(|@import|data:", page)
    assert not re.search(r"\bimport\b|\bsrc\b|XMLHttp|fetch|eval", SCRIPT)
    sources = [v for n, v in Seen(page).attributes if n in ("src", "href", "xlink:href")]
    assert all(v and v.startswith("#") for v in sources)
    assert "default-src &#x27;none&#x27;" in page


def test_ids_are_distinct_and_every_reference_is_one(tmp_path: Path) -> None:
    store_of(tmp_path / "a.db", "s1", "s2")
    page = report(tmp_path)
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]*)', page)) <= set(ids)


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2 defines it."""
    parts = (int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_a_contrast_of_four_and_a_half_and_drawings_of_three(dark: bool) -> None:
    def contrast(name: str, ground: str) -> float:
        low, high = sorted(luminance(COLOURS[n][dark]) for n in (name, ground))
        return (high + 0.05) / (low + 0.05)

    for text in ("ink", "muted", "good", "bad", "after"):
        assert min(contrast(text, ground) for ground in ("paper", "ground")) >= 4.5, text
    assert min(contrast("ink", "badge"), contrast("ink", "warn")) >= 4.5
    for drawn in ("before", "after", "bad", *SERIES):
        assert contrast(drawn, "paper") >= 3.0, drawn


def test_equal_stores_give_equal_files(tmp_path: Path) -> None:
    store_of(tmp_path / "a.db", "s1")
    assert report(tmp_path) == report(tmp_path)


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
    assert "of one launch, in the whole model, in the turns of the sweep" in text
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


def test_every_kernel_of_a_table_leads_to_its_part_and_back(tmp_path: Path) -> None:
    store_of(tmp_path / "a.db", "s1")
    page = report(tmp_path, "--session", "last")
    assert page.count('href="#s0-k1"') >= 2  # the list, and the roofline
    assert page.count('href="#s0-kernels"') >= 2  # the contents, and each kernel
    contents = re.search("<nav.*?</nav>", page, re.DOTALL)
    assert contents
    parts = re.findall(r'<section id="(s0-\w+)"', page)
    assert re.findall(r'href="#([^"]+)"', contents[0])[: len(parts)] == parts


def test_five_thousand_candidates_are_less_than_a_megabyte(tmp_path: Path) -> None:
    page = gather(store_of(tmp_path / "a.db", "s1"), "last")
    trials = [
        trial(
            KEY, "", f"tile(axis=b, size={n % 50 + 1}) tile(axis=a, size={n // 50 + 1}) "
            f"upcast(axis=a{n % 4}) stage(param=p{n % 5}, at=a{n % 7}, layout=(a, b{n % 3}))",
            4e-3 + 1e-6 * n, float(n), f"portfolio:{n % 6}", "s1",
        )
        for n in range(5000)
    ]  # fmt: skip
    found = search_of(trials, dict.fromkeys(map(id, trials), 1.0), trials[0].actions)
    first, *others = page.pages[0].kernels
    kernels = (replace(first, search=found), *others)
    written = report_html(replace(page, pages=(replace(page.pages[0], kernels=kernels),)))
    assert len(written) < 1_000_000
    (data,) = re.findall('<pre class="data" hidden>(.*?)</pre>', written, re.DOTALL)
    assert len(data.split("\n")[3].split()) == 5000  # the time of each


def test_labels_lie_on_no_other_label_and_on_no_point() -> None:
    spots = [(0.5 + 0.01 * n, 0.5) for n in range(8)] + [(0.0, 0.0), (1.0, 1.0)]
    found = labels_of(spots, [str(n) for n in range(10)], 300, (290, 900))
    assert {0, 8, 9} <= set(found)
    for width in (290, 900):
        boxes = [
            (width * spots[n][0] + dx, 300 * spots[n][1] + dy)
            for n, (dx, dy, wide) in found.items()
            if width == 900 or not wide
        ]
        for n, (x, y) in enumerate(boxes):
            assert 0 <= x <= width - 8
            assert 0 <= y <= 300 - 15
            for other in boxes[:n]:
                assert abs(x - other[0]) >= 8 or abs(y - other[1]) >= 15


@pytest.mark.parametrize("figure", [5e-324, 1e-300, 1e300, 1.7e308])
def test_figures_of_any_size_make_a_page(tmp_path: Path, figure: float) -> None:
    here = Fingerprint((("cores", "9" * 5000), ("device", "cpu"), ("l3", "8" * 5000)))
    with open_store(tmp_path / "a.db", "write") as store:
        write_session(store, "s1", here=here, others_cpus=figure)
        for n, seconds in enumerate((figure, 1.0, 1e300)):
            actions = f"tile(axis=a, size={n})"
            store.add(trial(KEY, str(GEMM.canonical()), actions, seconds, 0.0, "x", "s1",
                here=here))  # fmt: skip
        limits = ("cache_gb_per_s", "memory_gb_per_s", "peak_gflops")
        times = ("default_s", "tuned_s", "flops_s")
        store.add_facts("s1", tuple((name, figure) for name in limits))
        store.add_facts("s1", tuple((f"kernel.{KEY}.{name}", figure) for name in times))
    page = report(tmp_path)
    assert "Roofline" in page
    assert not re.search(r' d="[^"]*(?:nan|inf)', page)


@pytest.mark.parametrize(
    "axis",
    [Axis(0.0, 0.013), Axis(0.7, 19.0, log=True), Axis(1e-3, 1e6, log=True),
     Axis(1.0, 1.02, log=True), Axis(5.0, 5.1)],
)  # fmt: skip
def test_ticks_are_few_and_inside(axis: Axis) -> None:
    ticks = axis.ticks(5)
    assert 1 <= len(ticks) <= 6
    assert all(-1e-6 <= axis.at(t) <= 1 + 1e-6 for t in ticks)


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
