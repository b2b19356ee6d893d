"""Level 1 generates code without loop strength reduction, and nobody else in the process
notices.
"""

from __future__ import annotations

import ctypes
import threading

import llvmlite.binding as llvm
import numpy as np
import pytest

from tunegrad.devices.host import codegen
from tunegrad.devices.host.codegen import compile_llvm, compile_quick
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.loader import Library

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


QUICK = """
define internal void @kernel.body(ptr %out) noinline {
  %t1 = load i64, ptr %out
  %t2 = mul nsw i64 %t1, FACTOR
  %t3 = add i64 %t2, -3
  %t4 = call i64 @llvm.smin.i64(i64 %t3, i64 MOST)
  %t5 = getelementptr i8, ptr %out, i64 8
  store i64 %t4, ptr %t5
  %t6 = fdiv float 1.0, REAL
  %t7 = getelementptr i8, ptr %out, i64 16
  store float %t6, ptr %t7
  ret void
}
define void @kernel(ptr %out) {
  call void @kernel.body(ptr %out)
  ret void
}
declare i64 @llvm.smin.i64(i64, i64)
"""


def quick(factor: int, most: int, real: float) -> list[float]:
    """What the code of one text says, of 5."""
    text = QUICK.replace("FACTOR", str(factor)).replace("MOST", str(most))
    text = text.replace("REAL", f"0x{np.float64(real).view(np.uint64):016X}")
    library = Library(compile_quick(text, host_target()), ["kernel"], {})
    memory = np.array([5, 0, 0], np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.addresses["kernel"])(memory.ctypes.data)
    return [memory[1], memory[2:].view(np.float32)[0]]


def test_texts_that_differ_in_constants_share_quick_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them has its own constants, whichever was compiled."""
    compiled: list[str] = []

    def counted(text, *settings, **more):
        compiled.append(text)
        return compile_llvm(text, *settings, **more)

    monkeypatch.setattr(codegen, "compile_llvm", counted)
    codegen._quick.cache_clear()
    assert quick(7, 1000, 4.0) == [32, 0.25]
    assert quick(1 << 40, 12, -0.5) == [12, -2.0]
    assert quick(7, 1000, 4.0) == [32, 0.25]
    assert sum("fdiv float 1.0, %" in text for text in compiled) == 1  # others compile beside it


MASKED = """define internal void @kernel.body(ptr %out) {
  %t1 = load <8 x float>, ptr %out, align 4
  %t2 = select <8 x i1> <MASK>, <8 x float> %t1, <8 x float> zeroinitializer
  store <8 x float> %t2, ptr %out, align 4
  ret void
}
define void @kernel(ptr %out) {
  call void @kernel.body(ptr %out)
  ret void
}
"""


def test_texts_that_differ_in_masks_share_quick_code() -> None:
    """The ends of rows of several lengths are masks of lanes, each of its own text."""
    codegen._quick.cache_clear()
    for kept in (5, 3, 5, 7):
        lanes = ", ".join(f"i1 {'true' if i < kept else 'false'}" for i in range(8))
        image = compile_quick(MASKED.replace("MASK", lanes), host_target())
        library, memory = Library(image, ["kernel"], {}), np.arange(1, 9, dtype=np.float32)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.addresses["kernel"])(memory.ctypes.data)
        assert memory.tolist() == [i + 1 if i < kept else 0 for i in range(8)]
    assert codegen._quick.cache_info().misses == 1
