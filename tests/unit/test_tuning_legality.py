"""The rows of a stranger's file: schedules that are not legal for their kernel on this machine are
faults.
"""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import count

import pytest
from kernel_corpus import NAMES, corpus_kernel, kernels_of
from store_exports import WORLD, promotion, trial
from stored_decisions import decided

from tunegrad.db import Claim, Contents, Finding, Question, import_store, key_of, open_store
from tunegrad.db.exchange.claims import MAX_ACTIONS
from tunegrad.db.exchange.export import export_lines
from tunegrad.devices.host.facts import fingerprint, host_target
from tunegrad.explain import legality as module
from tunegrad.explain.legality import (
    ENDED,
    LONGEST_S,
    NO_KERNEL,
    OTHER_MACHINE,
    OTHER_SPACE,
    Legality,
)
from tunegrad.ir.parse_kernel import LONGEST_KERNEL
from tunegrad.ir.variants import variants_of
from tunegrad.opts import SPACE_VERSION, Space
from tunegrad.trial import Fingerprint

HERE = fingerprint(host_target(2))
GEMM, CONV = corpus_kernel("gemm_square"), corpus_kernel("conv3x3")
ILLEGAL = "tile(axis=nowhere, size=4)"
REGION = "region\nlaunch (0, 1) 0123456789abcdef"


def verdict(
    actions: str, text: str = GEMM.text, machine: Fingerprint = HERE, version: int = SPACE_VERSION
) -> Finding:
    return Legality()(Claim(text, machine, version, actions))


def chosen(kind: Question, choice: str, text: str) -> Finding:
    return Legality()(Claim(text, HERE, SPACE_VERSION, choice, kind))


@pytest.mark.parametrize("name", NAMES)
def test_legality_passes_the_default_schedule_of_every_kind_of_kernel(name: str) -> None:
    for kernel in (k.canonical() for k in kernels_of(name)):
        for threads in (1, 2):
            target = host_target(threads)
            (default, *_) = Space(kernel, target).defaults()
            assert verdict(default.text, kernel.text, fingerprint(target)) == Finding()


def test_legality_names_the_action_that_is_not_legal() -> None:
    fault = verdict(f"tile(axis=a, size=4) {ILLEGAL}").fault
    assert fault.startswith(
        "must be legal here: tile(axis=nowhere, size=4): no loop 'nowhere' in kernel"
    )


def test_legality_is_that_of_the_threads_that_the_row_names() -> None:
    for threads, legal in ((2, False), (4, True)):
        found = verdict("thread(axis=a, count=4)", machine=fingerprint(host_target(threads)))
        assert (found == Finding()) is legal, found


def test_legality_is_the_same_with_all_numerics() -> None:
    assert verdict(ILLEGAL, machine=fingerprint(host_target(2), "strict")).fault


@pytest.mark.parametrize("threads", ["", "two", "0", "02", "٢", "1" * 30])
def test_legality_takes_a_machine_with_odd_threads_for_another(threads: str) -> None:
    odd = Fingerprint(tuple((k, threads if k == "threads" else v) for k, v in HERE.fields))
    assert verdict(ILLEGAL, machine=odd) == Finding(unchecked=OTHER_MACHINE)


def test_legality_does_not_judge_what_other_machines_and_spaces_may_do() -> None:
    other = Fingerprint(tuple((k, "other" if k == "arch" else v) for k, v in HERE.fields))
    assert verdict(ILLEGAL, machine=other) == Finding(unchecked=OTHER_MACHINE)
    assert verdict(ILLEGAL, version=SPACE_VERSION + 1) == Finding(unchecked=OTHER_SPACE)
    assert verdict("no actions", machine=other).fault.startswith("must be a list of actions")


def test_legality_of_a_variant_is_that_the_kernel_has_it() -> None:
    (name,) = set(variants_of(CONV)) & {"winograd2"}
    assert chosen("variant", name, CONV.text) == Finding()
    assert chosen("variant", name, GEMM.text).fault.startswith(
        "must be a variant of this kernel: direct"
    )
    assert chosen("variant", name, REGION) == Finding(unchecked=NO_KERNEL)


@pytest.mark.parametrize(("kind", "choice"), [("cut", "inline"), ("images", "last")])
def test_legality_lets_cuts_and_images_be_of_regions_not_kernels(
    kind: Question, choice: str
) -> None:
    assert chosen(kind, choice, REGION) == Finding()
    assert chosen(kind, choice, GEMM.text).fault == "must be a variant, as the text is a kernel's"


@pytest.mark.parametrize("actions", ["plan(inline)", "images(last)", "variant(winograd2)"])
def test_legality_knows_no_decision_among_schedules(actions: str) -> None:
    assert verdict(actions, CONV.text).fault.startswith("must be a list of actions")


@pytest.mark.parametrize("text", [REGION, GEMM.text + "\n", "kernel\n" * LONGEST_KERNEL])
def test_legality_can_not_tell_for_a_text_that_is_no_kernels(text: str) -> None:
    for actions in ("", ILLEGAL):
        assert verdict(actions, text) == Finding(unchecked=NO_KERNEL)


def test_legality_of_a_schedule_that_takes_seconds_to_apply_is_that_it_is_too_long() -> None:
    text = "tile(axis=a, size=1) " + "tile(axis=a0, size=1) " * (MAX_ACTIONS - 1)
    assert verdict(text) == Finding()
    assert verdict(text + "tile(axis=a0, size=1)").fault == "must have at most 256 actions, not 257"


def test_legality_ends_when_its_time_is_over_but_parses_on() -> None:
    seconds = count(0, LONGEST_S / 2)  # two readings a claim: the second one ends it
    rule = Legality(clock=lambda: next(seconds))
    claims = [Claim(GEMM.text, HERE, SPACE_VERSION, ILLEGAL + " " * i) for i in range(4)]
    found = [rule(c) for c in claims]
    assert [bool(v.fault) for v in found] == [True, True, False, False]
    assert [v.unchecked for v in found[2:]] == [ENDED, ENDED]
    assert rule(Claim(GEMM.text, HERE, SPACE_VERSION, "no actions")).fault


def test_legality_reads_each_kernel_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    parse = module.read_back
    monkeypatch.setattr(module, "read_back", lambda text: read.append(text) or parse(text))
    rule = Legality()
    for actions in ("", "tile(axis=a, size=4)", ILLEGAL):
        for text in (GEMM.text, REGION):
            rule(Claim(text, HERE, SPACE_VERSION, actions))
    assert read == [GEMM.text, REGION]


def test_import_with_the_rule_takes_the_good_rows_and_names_the_others(tmp_path) -> None:
    def row(actions: str, text: str = GEMM.text, **changes: object):
        fields = {"fingerprint": HERE, "space_version": SPACE_VERSION, "actions": actions} | changes
        return replace(trial(0), kernel_text=text, kernel_key=key_of(text), **fields)

    good = (row(""), row("tile(axis=a, size=4)"))
    unknown = (row("tile(axis=a, size=2)", REGION), row(ILLEGAL, space_version=SPACE_VERSION + 1))
    bad = (row(ILLEGAL), row("plan(inline)", REGION))
    sound = (
        decided("cut", REGION, "inline", HERE),
        decided("variant", CONV.text, "winograd2", HERE),
    )
    refused = (
        decided("variant", GEMM.text, "winograd2", HERE),
        decided("cut", GEMM.text, "inline", HERE),
    )
    texts = tuple((t, "") for t in sorted((GEMM.text, CONV.text, REGION), key=key_of))
    promotions = promotion(good[1]), promotion(bad[0])
    file = Contents(
        texts, WORLD.sessions, (*good, *unknown, *bad), promotions, decisions=(*sound, *refused)
    )
    lines = "\n".join(export_lines(file)).encode()
    report = import_store(tmp_path / "b.db", io.BytesIO(lines), "x.jsonl", rule=Legality())
    assert report.unchecked == {NO_KERNEL: 1, OTHER_SPACE: 1}
    assert (report.new_trials, report.unchecked_trials, report.new_promotions) == (
        len(good + unknown),
        2,
        1,
    )
    assert [r.row for r in report.refused] == [
        "trial",
        "trial",
        "promotion",
        "decision",
        "decision",
    ]
    assert report.new_decisions == len(sound)
    with open_store(tmp_path / "b.db") as store:
        assert store.winner(GEMM.key, HERE, SPACE_VERSION).actions == "tile(axis=a, size=4)"
