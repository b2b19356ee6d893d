"""What the loader makes of objects: damaged and foreign ones are CompileFailures, good ones lie
where they should.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import random
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.loader import MACHINES, Library, check_stateless, read_object
from tunegrad.errors import CompileFailure

TEXT = """
@state = global i64 40
declare double @pow(double, double)
define i64 @count() {
  %old = load i64, ptr @state
  %new = add i64 %old, 1
  store i64 %new, ptr @state
  ret i64 %new
}
define double @kernel(double %x) {
  %y = fadd double %x, 0x3FB999999999999A
  %z = call double @pow(double %y, double 3.0)
  ret double %z
}
"""
EXPORTS = ("count", "kernel")


def image() -> bytes:
    return compile_llvm(TEXT, host_target(), 1)


def mappings() -> list[tuple[int, int, str]]:
    """(start, end, rights) of everything that this process has mapped."""
    rows = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    return [(*(int(end, 16) for end in row[0].split("-")), row[1]) for row in rows]


def rights(address: int) -> str:
    return next(perm for start, end, perm in mappings() if start <= address < end)


def damaged(whole: bytes, rng: random.Random) -> bytes:
    """Cut, or with a few bytes of it, or of its tables, changed."""
    kind, blob = rng.randrange(3), bytearray(whole)
    if kind == 0:
        return bytes(blob[: rng.randrange(len(blob))])
    first = 0 if kind == 1 else len(blob) // 2
    for _ in range(rng.randrange(1, 8)):
        blob[rng.randrange(first, len(blob))] = rng.randrange(256)
    return bytes(blob)


def link_damaged(cases: int) -> int:
    """How many objects, damaged in ``cases`` ways, were refused. For a process of its own."""
    whole, refused = image(), 0
    for case in range(cases):
        try:
            Library(damaged(whole, random.Random(case)), EXPORTS, {}).close()
        except CompileFailure:
            refused += 1
    return refused


def test_damaged_objects_never_end_the_process_that_links_them():
    code = "import test_loader_objects as t; print(t.link_damaged(500))"
    path = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {path!r}); {code}"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert 250 < int(done.stdout) < 500


def test_every_cut_object_is_a_compile_failure():
    whole = image()
    for end in range(len(whole)):
        with pytest.raises(CompileFailure, match="linking count, kernel: "):
            Library(whole[:end], EXPORTS, {})


def test_an_object_of_another_machine_is_a_compile_failure():
    whole = image()
    other = 183 if read_object(whole).machine == 62 else 62
    with pytest.raises(CompileFailure, match=f"object of ELF machine {other}, not "):
        Library(whole[:18] + struct.pack("<H", other) + whole[20:], EXPORTS, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (("@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] "
         "[{ i32, ptr, ptr } { i32 1, ptr @kernel, ptr null }]"),
         "thread-local data and constructors are not loaded"),
        ("@mine = thread_local global i64 1", "thread-local data and constructors are not loaded"),
        ("@shared = common global i64 0", "section index 0xfff2 is not loaded here"),
        ("@huge = global [2000000000 x i8] zeroinitializer", "at most 1073741824"),
    ],
    ids=["constructor", "thread-local", "common", "huge"],
)  # fmt: skip
def test_what_is_not_loaded_is_refused_in_words(text, message):
    whole = compile_llvm(f"{text}\ndefine void @kernel() {{\n  ret void\n}}\n", host_target(), 1)
    with pytest.raises(CompileFailure, match=message):
        Library(whole, ("kernel",), {})


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("@a = internal global [9 x i8] zeroinitializer", "has 9 bytes that can be written"),
        ("declare i64 @getpid()", "it calls getpid"),
        ("declare i64 @fmodl()", "it calls fmodl"),
    ],
)
def test_a_kernel_that_keeps_something_or_calls_the_system_is_refused(more, message):
    body = "  store i8 1, ptr @a\n" if more[0] == "@" else f"  call i64 @{more.split('@')[1]}\n"
    define = "define void @kernel() {\n"
    whole = compile_llvm(f"{more}\n{define}{body}  ret void\n}}\n", host_target(), 1)
    Library(whole, ("kernel",), {}).close()
    with pytest.raises(CompileFailure, match=f"illegal: .*{message}"):
        Library(whole, ("kernel",), {}, stateless=True)


@pytest.mark.parametrize(
    "name", ["memcpy", "fmodf", "exp", "erf", "tanh", "asinhf", "__truncsfhf2", "__divti3"]
)
def test_functions_of_numbers_are_what_a_kernel_may_call(name):
    text = (
        f"declare void @{name}()\ndefine void @kernel() {{\n  call void @{name}()\n  ret void\n}}"
    )
    check_stateless(read_object(compile_llvm(text, host_target(), 1)), ())


def test_an_export_that_the_object_lacks_is_a_compile_failure():
    with pytest.raises(
        CompileFailure, match="linking nobody: symbol nobody: the object does not define it"
    ):
        Library(image(), ("nobody",), {})


def test_code_starts_on_a_line_of_the_cache_and_can_not_be_written():
    library = Library(image(), EXPORTS, {})
    assert library.addresses["count"] % 64 == 0
    assert rights(library.addresses["kernel"]).startswith("r-x")
    call = ctypes.CFUNCTYPE(ctypes.c_int64)(library.addresses["count"])
    assert [call(), call()] == [41, 42]
    library.close()
    library.close()


def test_unloading_gives_every_mapping_back():
    whole = image()
    Library(whole, EXPORTS, {}).close()
    gc.collect()
    before = sum(end - start for start, end, perm in mappings() if "x" in perm)
    for _ in range(500):
        Library(whole, EXPORTS, {})
    held = [Library(whole, EXPORTS, {}) for _ in range(300)]
    assert sum(end - start for start, end, perm in mappings() if "x" in perm) >= before + 300 * 4096
    held.clear()
    assert sum(end - start for start, end, perm in mappings() if "x" in perm) == before


def test_imports_come_before_what_the_process_has():
    twice = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_double)(lambda x, y: x * y)
    address = ctypes.cast(twice, ctypes.c_void_p).value
    call = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)
    library = Library(image(), EXPORTS, {"pow": address})
    assert call(library.addresses["kernel"])(2.0) == pytest.approx(6.3)
    plain = Library(image(), EXPORTS, {})
    assert call(plain.addresses["kernel"])(2.0) == pytest.approx(2.1**3)


@pytest.mark.parametrize("case", range(20))
def test_aarch64_fields_lead_to_the_symbol(case):
    rng, rules = random.Random(case), MACHINES["aarch64"].rules
    place = rng.randrange(1 << 32, 1 << 40) & ~3
    value = (place + rng.randrange(-(1 << 31), 1 << 31)) & ~15
    near = (place + rng.randrange(-(1 << 27), 1 << 27)) & ~3
    words = bytearray(
        struct.pack("<IIII", 0x90000001, 0xF9400021, 0x3DC00021, 0x94000000)
    )  # adrp, ldr x, ldr q, bl
    for at, kind, to in ((0, 275, value), (4, 286, value), (8, 299, value), (12, 283, near)):
        rules[kind].patch(memoryview(words), at, to, place)
    adrp, ldr, ldr_q, branch = struct.unpack("<IIII", words)
    pages = (adrp >> 29 & 3) | (adrp >> 5 & 0x7FFFF) << 2
    page = (place & ~0xFFF) + ((pages ^ 1 << 20) - (1 << 20)) * 4096
    assert page + (ldr >> 10 & 0xFFF) * 8 == value
    assert page + (ldr_q >> 10 & 0xFFF) * 16 == value
    assert place + (((branch & 0x3FFFFFF) ^ 1 << 25) - (1 << 25)) * 4 == near
    assert (adrp & 0x9F00001F, ldr & 0xFFC003FF, branch >> 26) == (0x90000001, 0xF9400021, 0x25)


@pytest.mark.parametrize(
    ("machine", "kind", "distance"),
    [("x86_64", 2, 1 << 31), ("aarch64", 283, 1 << 27), ("aarch64", 275, 1 << 32)],
)
def test_a_distance_that_does_not_fit_is_a_compile_failure(machine, kind, distance):
    place = 1 << 40
    for to in (place + distance, place - distance - 4096):
        with pytest.raises(CompileFailure, match="does not fit a field"):
            MACHINES[machine].rules[kind].patch(memoryview(bytearray(8)), 0, to, place)


def test_this_machine_has_a_linker():
    assert MACHINES[platform.machine()].number == read_object(image()).machine


def test_code_is_named_for_perf_where_that_is_asked_for(monkeypatch):
    monkeypatch.setenv("TUNEGRAD_PERF_MAP", "1")
    code = (
        "import os, test_loader_objects as t\n"
        "kept = t.Library(t.image(), t.EXPORTS, {})\n"
        "print(os.getpid(), min(kept.addresses.values()))"
    )
    path = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {path!r}); {code}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    pid, first = done.stdout.split()
    file = Path(f"/tmp/perf-{pid}.map")
    start, size, name = file.read_text().split()
    file.unlink()
    assert int(start, 16) <= int(first) < int(start, 16) + int(size, 16)
    assert name == "tunegrad:count"


def test_kernels_have_names_of_their_own_for_perf(monkeypatch, tmp_path):
    monkeypatch.setenv("TUNEGRAD_PERF_MAP", "1")
    file = Path(f"/tmp/perf-{os.getpid()}.map")
    file.unlink(missing_ok=True)
    a, b = np.ones((13, 17), np.float32), np.ones((17, 19), np.float32)
    f = tg.compile(lambda a, b: a @ b, a, b, threads=1, store=False)
    assert "tunegrad:matmul 13x19x17" in file.read_text().splitlines()[-1]
    f.save(tmp_path / "f.plan")
    file.unlink()
    tg.load(str(tmp_path / "f.plan"))
    assert file.read_text().endswith(" tunegrad:matmul 13x19x17\n")
    file.unlink()
