"""Level 1 generates code without loop strength reduction, and nobody else in the process
notices.
"""

from __future__ import annotations

import threading

import llvmlite.binding as llvm
import pytest

from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.facts import host_target

TEXT = """
define void @k(ptr noalias %a, ptr noalias %b) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %n, %loop ]
  %j = mul nsw i64 %i, 12
  %p = getelementptr float, ptr %a, i64 %j
  %q = getelementptr float, ptr %b, i64 %j
  %x = load float, ptr %p
  %y = fadd float %x, 1.0
  store float %y, ptr %q
  %n = add nuw nsw i64 %i, 1
  %c = icmp slt i64 %n, 1000
  br i1 %c, label %loop, label %end
end:
  ret void
}
"""


def image(level):
    return compile_llvm(TEXT, host_target(), level)


@pytest.fixture
def reduced():
    """Code of level 2 as it is when nobody touched an option, of a loop that strength reduction
    changes.
    """
    before = image(2)
    llvm.set_option("test", "-disable-lsr=true")
    try:
        assert image(2) != before
    finally:
        llvm.set_option("test", "-disable-lsr=false")
    return before


def test_level_one_leaves_other_levels_as_they_were(reduced):
    image(1)
    assert image(2) == reduced


def test_level_one_is_the_same_whoever_compiles_next_to_it():
    alone = {level: image(level) for level in (1, 2)}
    found: dict[int, set[bytes]] = {1: set(), 2: set()}
    threads = [
        threading.Thread(target=lambda n=n: found[n].update(image(n) for _ in range(50)))
        for n in (1, 2)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == {level: {code} for level, code in alone.items()}
