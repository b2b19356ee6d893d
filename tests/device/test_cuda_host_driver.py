"""cuda-host's driver: a queue, errors of who calls it, images that are checked; their builder."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from tests.cuda_host import build
from tests.cuda_texts import driver, image
from tunegrad.devices.job import Geometry
from tunegrad.errors import (
    CompileFailure,
    DeviceError,
    DeviceFault,
    InternalError,
    OutOfResources,
)

ADD = 'extern "C" __global__ void add(int *x) { x[threadIdx.x] += 1; }'
FAULT = 'extern "C" __global__ void bad(int *x) { if (blockIdx.x == 2) __trap(); x[0] = 7; }'
BOUND = 'extern "C" __global__ void __launch_bounds__(64, 2) bound(int *x) { x[0] = 1; }'
SHARED = """
extern "C" __global__ void shared(int *x) {
  __shared__ int s[300];
  TG_SHARED;
  s[threadIdx.x] = 5;
  ((int *)tg_shared)[threadIdx.x + BEYOND] = 6;
  __syncthreads();
  x[threadIdx.x] = s[0] + ((int *)tg_shared)[31];
}"""
ONE = Geometry(1, 32)


@pytest.fixture
def host():
    made = driver()
    yield made
    made.close()


def read(host, address, count=32):
    data = np.empty(count, np.int32)
    host.read(address, data)
    return data


def loaded(host, text, entry):
    return host.load(image(text, entry), entry)


def test_what_is_enqueued_happens_when_somebody_waits(host):
    function, x = loaded(host, ADD, "add"), host.allocate(128)
    host.fill(x, 0, 128)
    host.launch(function, ONE, [x])
    host.launch(function, ONE, [x])
    assert len(host._queue) == 3
    np.testing.assert_array_equal(read(host, x), 2)
    assert not host._queue


def test_memory_is_aligned_and_stands_alone(host):
    found = [host.allocate(n) for n in (1, 4096, 5000, 0)]
    assert all(a % 256 == 0 for a in found)
    for address in found:
        host.free(address)
    with pytest.raises(InternalError, match="no memory begins at"):
        host.free(found[0])
    with pytest.raises(MemoryError):
        host.allocate(1 << 60)


@pytest.mark.parametrize(("start", "count"), [(-4, 1), (0, 33), (128, 1)])
def test_bytes_that_are_not_allocated_are_an_error_of_the_caller(host, start, count):
    x = host.allocate(128)
    for call in (host.read, host.write):
        with pytest.raises(InternalError, match="are not allocated"):
            call(x + start, np.zeros(count, np.int32))
    with pytest.raises(InternalError, match="are not allocated"):
        host.fill(x + start, 0, 4 * count)


def test_freed_memory_is_an_illegal_address(host):
    function, x = loaded(host, ADD, "add"), host.allocate(128)
    host.free(x)
    host.launch(function, ONE, [x])
    with pytest.raises(DeviceFault, match="add: block 0, thread 0: illegal address 0x"):
        host.finish()


def test_memory_that_is_given_back_while_others_run_goes_after_them(host):
    """As the collector of garbage may do, between two launches."""
    function, x = loaded(host, ADD, "add"), host.allocate(128)
    host.fill(x, 0, 128)
    host._queue.append(lambda: host.free(x))
    host._queue.append(lambda: host.unload(function))
    host.launch(function, ONE, [x])
    host.finish()
    with pytest.raises(InternalError, match="are not allocated"):
        read(host, x)


def test_a_fault_is_told_by_who_waits_and_nothing_runs_after_it(host):
    bad, add, x = loaded(host, FAULT, "bad"), loaded(host, ADD, "add"), host.allocate(128)
    host.fill(x, 0, 128)
    host.launch(bad, Geometry(4, 1), [x])
    host.launch(add, ONE, [x])
    for _ in range(2):
        with pytest.raises(DeviceFault, match="a kernel's fault: bad: block 2, thread 0: trap"):
            host.finish()
    with pytest.raises(DeviceFault):
        read(host, x)
    host.free(x)
    host.unload(add)
    other = driver()
    y = other.allocate(128)
    other.launch(add_of := loaded(other, ADD, "add"), ONE, [y])
    np.testing.assert_array_equal(read(other, y), 1)
    other.unload(add_of)
    other.close()


def test_a_graph_is_its_launches_with_the_addresses_it_was_made_with(host):
    function, x = loaded(host, ADD, "add"), host.allocate(128)
    addresses = [x]
    graph = host.graph([(function, ONE, addresses)] * 3)
    addresses[0] = 0
    host.replay(graph)
    host.replay(graph)
    np.testing.assert_array_equal(read(host, x), 6)
    host.drop(graph)


def test_marks_are_reached_in_order(host):
    function, x = loaded(host, ADD, "add"), host.allocate(128)
    first = host.event()
    host.launch(function, Geometry(50, 32), [x])
    last = host.event()
    with pytest.raises(InternalError, match="a mark was not reached"):
        host.seconds(first, last)
    host.finish()
    assert 0 < host.seconds(first, last) < 10


def test_resources_are_those_of_the_text(host):
    found = host.resources(loaded(host, BOUND, "bound"))
    assert (found.most_items, found.shared_bytes) == (64, 0)
    text = SHARED.replace("BEYOND", "0")
    assert host.resources(loaded(host, text, "shared")).shared_bytes == 1200


def test_a_launch_of_more_than_there_is_is_out_of_resources(host):
    bound, add, x = loaded(host, BOUND, "bound"), loaded(host, ADD, "add"), host.allocate(128)
    with pytest.raises(OutOfResources, match="groups of 65 items, it runs in up to 64"):
        host.launch(bound, Geometry(1, 65), [x])
    with pytest.raises(OutOfResources, match="groups of 1025 items, it runs in up to 1024"):
        host.launch(add, Geometry(1, 1025), [x])
    with pytest.raises(OutOfResources, match="shares 232449 bytes, there are 232448"):
        host.allow(add, 232449)


def test_a_launch_with_other_arguments_or_more_shared_bytes_is_an_error_of_the_caller(host):
    add, x = loaded(host, ADD, "add"), host.allocate(128)
    with pytest.raises(InternalError, match="2 arguments, it has 1"):
        host.launch(add, ONE, [x, x])
    with pytest.raises(InternalError, match="50000 bytes to share were not allowed before"):
        host.launch(add, Geometry(1, 32, 50000), [x])
    with pytest.raises(InternalError, match="0 groups of 32 items"):
        host.launch(add, Geometry(0, 32), [x])


@pytest.mark.parametrize(
    ("beyond", "told"),
    [(0, ""), (1, "it wrote past the end of 1328 bytes"), (300, "beside the shared memory")],
)
def test_shared_memory_that_the_launch_gives_has_an_end(host, beyond, told):
    function = loaded(host, SHARED.replace("BEYOND", str(beyond)), "shared")
    x = host.allocate(128)
    host.launch(function, Geometry(1, 32, 128), [x])
    if told:
        with pytest.raises(DeviceFault, match=told):
            host.finish()
    else:
        np.testing.assert_array_equal(read(host, x), 11)


def test_images_of_one_text_are_equal_and_say_nothing_of_where_they_were_made(host):
    made = [build.build(ADD, "add") for _ in range(2)]
    assert made[0] == made[1]
    for word in (b"tunegrad-", b"/tmp", bytes(Path.cwd())):
        assert word not in made[0]


@pytest.mark.parametrize(
    "damage",
    [
        lambda image: b"",
        lambda image: b"no image",
        lambda image: image[:-1],
        lambda image: image[: len(image) // 2],
        lambda image: image[:5000] + bytes([image[5000] ^ 1]) + image[5001:],
        lambda image: image[:-16],
    ],
)
def test_an_image_that_is_none_is_a_compile_failure(host, damage):
    with pytest.raises(CompileFailure, match="its image is none of this version for this CPU"):
        host.load(damage(image(ADD, "add")), "add")


def test_an_image_without_the_kernel_is_a_compile_failure(host):
    with pytest.raises(CompileFailure, match="its image has no kernel of that name"):
        host.load(image(ADD, "add"), "other")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('extern "C" __global__ void k(int *x) { x[0] = no_such_thing; }', "program.cu:1:"),
        ('extern "C" __global__ void other(int *x) {}', "'k' was not declared"),
        ('extern "C" __global__ void k(int *x, int n) {}', "a kernel's arguments are pointers"),
        ('extern "C" __global__ void k(int *x) { extern __shared__ int s[]; x[0] = s[0]; }', "s"),
        ("#error here\nvoid k() {}", "#error here"),
    ],
)
def test_a_text_that_does_not_compile_is_a_compile_failure_in_the_compilers_words(text, told):
    driver().close()
    with pytest.raises(CompileFailure, match=r"^program k for this CPU: ") as failure:
        build.build(text, "k")
    assert told in str(failure.value)


def test_a_function_that_is_nowhere_is_a_compile_failure_of_loading(host):
    text = 'extern "C" int nowhere(); extern "C" __global__ void k(int *x) { x[0] = nowhere(); }'
    with pytest.raises(CompileFailure, match=r"its image does not load: .*nowhere"):
        host.load(build.build(text, "k"), "k")


def test_kernels_come_and_go_without_files_or_addresses_left(host):
    x = host.allocate(128)
    before = len([*Path("/proc/self/fd").iterdir()])
    functions = [loaded(host, ADD.replace("+= 1", f"+= {n}"), "add") for n in range(1, 6)]
    for function in functions[::-1]:
        host.launch(function, ONE, [x])
    np.testing.assert_array_equal(read(host, x), 15)
    for function in functions[:3]:
        host.unload(function)
    host.launch(functions[4], ONE, [x])
    np.testing.assert_array_equal(read(host, x), 20)
    host.unload(functions[4])
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_signals_are_as_they_were_after_a_launch():
    """In a process of its own: a fault of Python's own is no kernel's, and ends it."""
    driver().close()
    script = textwrap.dedent(f"""
        import ctypes
        from tests.cuda_host import build
        from tests.cuda_host.driver import HostDriver
        from tunegrad.devices.job import Geometry
        from tunegrad.errors import DeviceFault
        host = HostDriver()
        function = host.load(build.build({FAULT!r}, "bad"), "bad")
        host.launch(function, Geometry(4, 1), [host.allocate(4)])
        try:
            host.finish()
        except DeviceFault:
            ctypes.string_at(0)
    """)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == -signal.SIGSEGV, done.stderr


def test_a_compiler_is_looked_for_in_cxx_first_and_may_have_options(tmp_path):
    with pytest.raises(DeviceError, match=r"no C\+\+ compiler \(CXX=nothing-here -O2\) was found"):
        build._find({"CXX": "nothing-here -O2"})
    script = tmp_path / "mine"
    script.write_text('#!/bin/sh\necho "mine 1.0 $1"\n')
    script.chmod(0o755)
    assert build._find({"CXX": f"{script} -pipe"}) == ((str(script), "-pipe"), "mine 1.0 -pipe")


def test_a_compiler_that_crashes_is_a_crash_of_the_candidate(tmp_path, monkeypatch):
    script = tmp_path / "mine"
    script.write_text("#!/bin/sh\nkill -SEGV $$\n")
    script.chmod(0o755)
    monkeypatch.setattr(build, "_found", lambda: ((str(script),), "mine"))
    with pytest.raises(build.CandidateCrashed, match="program add for this CPU"):
        build.build(ADD, "add")


def test_a_cache_that_can_not_be_written_is_an_error_of_one_line(tmp_path, monkeypatch):
    driver().close()
    (tmp_path / "tunegrad").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(DeviceError, match=r"cuda-host: its runtime can not be kept: .*tunegrad"):
        build.runtime_library()


def test_the_runtime_is_built_once_and_kept_in_the_cache(tmp_path, monkeypatch):
    driver().close()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    built = []
    monkeypatch.setattr(build, "_build_runtime", lambda _, place: built.append(place))
    place = build.runtime_library()
    assert place.parent == tmp_path / "tunegrad" / "cuda-host"
    assert built == [place]
    place.parent.mkdir(parents=True)
    place.touch()
    assert build.runtime_library() == place
    assert built == [place]


def test_fibers_work_by_ucontext_too(tmp_path):
    """Which processors use that have no switch of their own."""
    driver().close()
    text = """
extern "C" __global__ void k(int *x) {
  __shared__ int s[64];
  for (int k = 0; k < 5; ++k) {
    s[threadIdx.x] = k + x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[(threadIdx.x + 1) % 64];
    __syncthreads();
  }
  if (x[200]) __trap();
}"""
    script = textwrap.dedent(f"""
        import numpy as np
        from tests.cuda_host import build
        from tests.cuda_host.driver import HostDriver
        from tunegrad.devices.job import Geometry
        from tunegrad.errors import DeviceFault
        host = HostDriver(seed=3)
        function = host.load(build.build({text!r}, "k"), "k")
        x, data = host.allocate(1024), np.arange(256, dtype=np.int32) * (np.arange(256) < 64)
        host.write(x, data)
        host.launch(function, Geometry(3, 64), [x])
        host.read(x, data)
        assert (data[:64] == (np.arange(64) + 15) % 64 + 30).all(), data
        host.write(x, np.ones(256, np.int32))
        host.launch(function, Geometry(3, 64), [x])
        try:
            host.finish()
        except DeviceFault as fault:
            print(fault)
    """)
    words = {"PYTHONPATH": os.pathsep.join(sys.path), "XDG_CACHE_HOME": str(tmp_path)}
    command = [*build._found()[0], "-DTG_UCONTEXT"]
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False,
        env=os.environ | words | {"CXX": " ".join(command)},
    )  # fmt: skip
    assert "a kernel's fault: k: block " in done.stdout, done.stderr
    assert ": trap" in done.stdout


def test_marks_of_a_graph_are_reached_in_every_replay_after_their_launches(host):
    function, x = loaded(host, ADD, "add"), host.allocate(128)
    marks = {place: host.event() for place in (0, 1, 3)}
    graph = host.graph(
        [(function, ONE, [x]), (function, Geometry(200, 32), [x]), (function, ONE, [x])], marks
    )
    host.finish()
    before = [m.reached_ns for m in marks.values()]
    for _ in range(2):
        host.replay(graph)
        host.finish()
        after = [m.reached_ns for m in marks.values()]
        assert sorted(after) == after
        assert after[0] > before[-1]
        before = after
    host.drop(graph)
