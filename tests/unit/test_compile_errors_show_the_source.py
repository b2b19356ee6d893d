"""A compile error shows the numbered lines of the source that it is about."""

from __future__ import annotations

import gc

import pytest

from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.lowered import with_source
from tunegrad.errors import CompileFailure

LONG = "\n".join(f"line {n} of the text;" for n in range(1, 101))


def test_lines_that_a_compiler_names_are_shown_with_their_neighbours() -> None:
    said = with_source("program.cu(40): error: what is that", LONG)
    assert said.splitlines() == [
        "program.cu(40): error: what is that",
        "source, 5 of 100 lines:",
        *(f"{n:3} | line {n} of the text;" for n in range(38, 43)),
    ]


def test_lines_that_a_compiler_quotes_are_shown() -> None:
    said = with_source("does not dominate all uses!\n  line 77 of the text;", LONG)
    assert " 77 | line 77 of the text;" in said
    assert " 50 | line 50 of the text;" not in said


def test_a_message_that_names_no_line_shows_the_first_ones() -> None:
    assert "source, 24 of 100 lines:\n  1 | line 1 of the text;" in with_source("no", LONG)


UNDOMINATED = (
    "define i32 @k(i1 %c) {\n  br i1 %c, label %a, label %b\na:\n"
    "  %x_of_one_branch = add i32 1, 2\n  br label %b\nb:\n  ret i32 %x_of_one_branch\n}\n"
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("define void @k() {\n  %x = fadd float 1.0, %nothing\n  ret void\n}\n", 2),
        (UNDOMINATED, 7),
    ],
)
def test_what_llvm_refuses_is_shown_by_its_line(text: str, line: int) -> None:
    with pytest.raises(CompileFailure) as found:
        compile_llvm(text, host_target(1))
    assert f"{line} | {text.splitlines()[line - 1]}" in str(found.value)


def test_a_compile_error_that_is_kept_for_long_is_collected_without_harm() -> None:
    """A module must not outlive its context, whatever order the collector takes."""
    for _ in range(50):
        with pytest.raises(CompileFailure) as found:
            compile_llvm(UNDOMINATED, host_target(1))
        found.value.__dict__["itself"] = found
    del found
    gc.collect()
