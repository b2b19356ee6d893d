"""Code is linked wherever the system puts memory, and where it gives none an exception says so: no
process aborts.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

PRELUDE = '''
import ctypes, mmap, resource
import numpy as np
from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.team import Executable
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.loader import Library

PAGE, GIB = mmap.PAGESIZE, 1 << 30
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def reserve(size):
    """Address space that nothing may touch, and that costs no memory."""
    noreserve = 0x4000
    at = libc.mmap(None, size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | noreserve, -1, 0)
    assert at not in (None, (1 << 64) - 1), "no address space"
    return at


def scatter():
    """From now on single pages are mapped 3 GiB apart: the only holes of that size lie that far
    from each other.
    """
    blocks = sorted(reserve(3 * GIB) for _ in range(120))
    for size in (GIB, 1 << 26, 1 << 22, 1 << 18, 1 << 14, PAGE):
        while reserve(size) > blocks[0]:
            pass
    for block in blocks:
        libc.munmap(block, PAGE)


TEXT = """
declare double @pow(double, double)
declare void @tg_barrier(ptr)
define double @kernel(double %x) {
  %y = fadd double %x, 0x3FB999999999999A
  %z = call double @pow(double %y, double 3.0)
  ret double %z
}
define void @waits(ptr %team) {
  call void @tg_barrier(ptr %team)
  ret void
}
"""


def check(library):
    """Run it: a constant of its own, and a call to libm."""
    call = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(library.addresses["kernel"])
    assert abs(call(2.0) - 2.1**3) < 1e-12


def link(image):
    return Library(image, ("kernel", "waits"), {"tg_barrier": 0x7F00_0000_0000})
'''


def run(body: str, timeout_s: float = 120.0) -> str:
    """What a process of its own prints; its exit code must be 0."""
    script = PRELUDE + textwrap.dedent(body)
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stderr[-2000:]}"
    return done.stdout


def test_loader_links_where_successive_mappings_lie_three_gib_apart():
    printed = run("""
        image = compile_llvm(TEXT, host_target())
        scatter()
        one, two = reserve(PAGE), reserve(PAGE)
        assert abs(one - two) > 2 * GIB, "the holes are not far apart"
        held = [link(image) for _ in range(30)]
        for library in held:
            check(library)
        print(len(held))
    """)
    assert printed == "30\n"


def test_models_run_where_successive_mappings_lie_three_gib_apart():
    printed = run("""
        import tunegrad as tg
        a, b = np.ones((40, 24), np.float32), np.full((24, 33), 0.5, np.float32)
        scatter()
        for k in range(3):
            f = tg.compile(lambda a, b: ((a @ b) * (k + 0.125)).gelu().softmax(1), a, b, device="cpu")
            print(np.allclose(f(a, b), 1 / 33))
    """)
    assert printed == "True\n" * 3


def test_models_load_with_eight_gb_of_address_space_taken():
    printed = run("""
        import tunegrad as tg
        taken = [reserve(1_000_000_000) for _ in range(8)]
        model = tg.load("mlp", device="cpu", on_miss="default")
        print(len(model.report()) > 0)
    """)
    assert printed == "True\n"


def test_linking_without_memory_is_a_memory_error_and_works_again_with_some():
    printed = run("""
        image = compile_llvm(TEXT, host_target())
        check(link(image))
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * PAGE
        resource.setrlimit(resource.RLIMIT_AS, (used + (16 << 20), -1))
        held = []
        try:
            while len(held) < 100_000:
                held.append(link(image))
        except MemoryError:
            count = len(held)
            held.clear()
            check(link(image))
            print(100 < count < 100_000)
    """)
    assert printed == "True\n"


@pytest.mark.parametrize("megabytes", [8, 24, 32, 2000])
def test_compiling_with_little_memory_is_a_memory_error(megabytes):
    printed = run(f"""
        limit = {megabytes} << 20
        lines = ["define void @kernel(ptr %p) {{"]
        for i in range(6_000):
            lines += [f"  %a{{i}} = getelementptr float, ptr %p, i64 {{i * 7 % 513}}",
                      f"  %v{{i}} = load float, ptr %a{{i}}",
                      f"  %w{{i}} = fmul float %v{{i}}, %v{{i // 2}}",
                      f"  store float %w{{i}}, ptr %a{{i}}"]
        text = chr(10).join([*lines, "  ret void", "}}"])
        compile_llvm(TEXT, host_target())
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * PAGE
        resource.setrlimit(resource.RLIMIT_AS, (used + limit, -1))
        try:
            compile_llvm(text, host_target(), 1)
            print("compiled")
        except MemoryError:
            print("no memory")
    """)
    assert printed == ("compiled\n" if megabytes == 2000 else "no memory\n")
