"""What every device must do, as one test class.

Subclass it, give it a ``device``, and it runs against that device.
"""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from time import perf_counter

import numpy as np
import pytest
from hand_programs import F, arguments_of, expected, loop, vector_add
from kernel_corpus import corpus_kernel

from tests.interpreter import interpret
from tests.programs import Programs
from tunegrad.compiling import HOOKS, Payload
from tunegrad.db import open_store
from tunegrad.devices import Candidate, Device, DeviceMeasurer, Engine, Geometry, Lowered, Memory
from tunegrad.errors import CompileFailure, DeviceError, ShapeError
from tunegrad.ir.dtypes import F32
from tunegrad.ir.index import ALWAYS, var
from tunegrad.ir.program import Buffer, Load, Pack, Program, Store
from tunegrad.models.mlp import mlp
from tunegrad.opts import Space
from tunegrad.trial import Policy, Status
from tunegrad.tuning.models import LocalBench, Models, expected_of
from tunegrad.tuning.workload import workload_of


def packed_copy() -> Program:
    """y = w transposed, through a pack that the device fills."""
    pack = Pack("w.p", "w", F32, ("p0", "p1"), (3, 2), var("p1", 2) * 3 + var("p0", 3), ALWAYS)
    params = (
        Buffer("y", F32, 6, "out"),
        Buffer("w", F32, 6, "const"),
        Buffer("w.p", F32, 6, "pack"),
    )
    body = (loop("i", 6, Load(1, "w.p", var("i", 6), F), Store("y", var("i", 6), 1, F)),)
    return Program("packed_copy", params, (), (pack,), body)


class DeviceSuite:
    """Subclasses give ``opened``, and ``programs``: what hand-written programs it can run.

    ``model``: whether whole models run on it in a moment. ``equal_images``: equal programs have
    equal images; a driver may write into an image what it named it.
    """

    programs: tuple[Program, ...] = (vector_add(), vector_add(64, 16, 1), vector_add(5, 4, 1))
    model = True
    equal_images = True

    @pytest.fixture
    def opened(self) -> Device:
        raise NotImplementedError

    @pytest.fixture
    def device(self, opened: Device) -> Iterator[Programs]:
        with Programs(opened) as programs:
            yield programs

    @pytest.fixture
    def running(self, device: Programs) -> Programs:
        if not device.runs:
            pytest.skip(f"device {device.name} runs nothing")
        return device

    @pytest.fixture
    def engine(self, opened: Device) -> Iterator[Engine]:
        if not opened.runs:
            pytest.skip(f"device {opened.name} runs nothing")
        with opened.open() as engine:
            yield engine

    # ---- the value

    def test_device_is_a_value_that_travels(self, opened):
        there = pickle.loads(pickle.dumps(opened))
        assert there == opened
        assert hash(there) == hash(opened)
        assert there.fingerprint() == opened.fingerprint()

    def test_device_says_who_it_is(self, opened):
        assert opened.describe()
        assert opened.compiler()
        fields = dict(opened.fingerprint("strict").fields)
        assert fields["numerics"] == "strict"
        assert fields["device"]
        assert opened.fingerprint() != opened.fingerprint("strict")

    def test_device_lowers_to_buffers_entry_and_geometry(self, opened):
        for program in self.programs:
            lowered = opened.lower(program)
            assert lowered.text
            assert lowered.entry
            assert [p.name for p in lowered.io.params][: len(program.params)] == [
                b.name for b in program.params
            ]
            assert lowered.geometry == Geometry(program.threads, program.local)

    def test_device_that_does_not_open_says_so(self, opened):
        if opened.runs:
            pytest.skip(f"device {opened.name} runs programs")
        with pytest.raises(DeviceError, match="runs nothing"):
            opened.open()

    # ---- memory

    def test_memory_holds_what_was_written(self, engine):
        values = np.arange(100, dtype=np.float32)
        memory = engine.allocate(values.nbytes)
        assert not engine.allocate(64).read("f32").any(), "fresh memory is zeroed"
        engine.write(memory, values)
        np.testing.assert_array_equal(memory.read("f32"), values)
        engine.fill(memory, 0xFF)
        assert np.isnan(memory.read("f32")).all()
        assert memory.damage() == ""

    def test_parts_of_memory_are_its_bytes(self, engine):
        memory = engine.allocate(4 * engine.align)
        part = engine.part(memory, 2 * engine.align, engine.align)
        assert part.nbytes == engine.align
        engine.fill(part, 7)
        found = memory.read("bool").view(np.uint8)
        assert found.tolist() == [
            *[0] * (2 * engine.align),
            *[7] * engine.align,
            *[0] * engine.align,
        ]

    def test_equal_bytes_have_equal_digests(self, engine):
        first, second = engine.allocate(1000), engine.allocate(1000)
        assert engine.digest([first]) == engine.digest([second])
        engine.fill(engine.part(second, 0, 1), 1)
        assert engine.digest([first]) != engine.digest([second])
        assert engine.digest([first, second]) != engine.digest([second, first])

    def test_packs_fill_memory_and_the_rest_of_it(self, engine):
        (pack,) = packed_copy().packs
        memory = engine.allocate(40)
        engine.pack(pack, np.arange(6, dtype=np.float32), memory, rest=0xFF)
        values = memory.read("f32")
        assert values[:6].tolist() == [0, 3, 1, 4, 2, 5]
        assert np.isnan(values[6:]).all()

    @pytest.mark.parametrize("shape", [(), (0, 3), (3, 5)])
    def test_results_get_memory_of_their_own_where_vectors_begin(self, engine, shape):
        results = [engine.fresh(shape, np.dtype(np.float32)) for _ in range(8)]
        assert all(r.shape == shape and r.dtype == np.float32 for r in results)
        assert all(r.flags.c_contiguous and r.flags.writeable for r in results)
        lent = [engine.borrow(r) for r in results]
        assert all(
            m is None or r.ctypes.data % engine.align == 0
            for r, m in zip(results, lent, strict=True)
        )
        for i, r in enumerate(results):
            r[...] = i
        assert all((r == i).all() for i, r in enumerate(results))

    def test_arrays_that_are_lent_are_the_callers(self, engine):
        array = np.arange(64, dtype=np.float32)
        lent = engine.borrow(array)
        if lent is not None:
            engine.write(lent, -array)
            assert array[3] == -3.0

    # ---- code

    def test_loaded_code_can_be_referred_to_weakly(self, opened, engine):
        lowered = opened.lower(self.programs[0])
        code = engine.load(lowered, opened.compile(lowered))
        assert weakref.ref(code)() is code

    def test_what_is_no_image_is_refused(self, opened, engine):
        lowered = opened.lower(self.programs[0])
        with pytest.raises(CompileFailure):
            engine.load(lowered, b"no image at all")

    def test_plans_run_in_order_and_can_be_pointed_elsewhere(self, opened, engine):
        program = self.programs[0]
        lowered = opened.lower(program)
        code = engine.load(lowered, opened.compile(lowered))
        buffers = arguments_of(program)
        name, want = expected(program, buffers)
        memories = self._memories(engine, lowered, buffers)
        scratch = [engine.allocate(n) for n in lowered.scratch_bytes]
        plan = engine.bind([engine.launch(code, memories, scratch) for _ in range(2)])
        plan.run()
        place = [p.name for p in lowered.io.params].index(name)
        elements = lowered.io.params[place].elements
        np.testing.assert_allclose(
            memories[place].read("f32")[:elements], want, rtol=1e-5, atol=1e-5
        )
        other = engine.allocate(memories[place].nbytes)
        plan.point(1, place, other)
        plan.run()
        np.testing.assert_array_equal(other.read("f32"), memories[place].read("f32"))
        seconds, means = plan.time(3, each=True)
        assert (len(seconds), len(means)) == (3, 2)
        assert all(s > 0 for s in (*seconds, *means))
        assert plan.time(2)[1] == ()

    def test_times_follow_the_work(self, opened, engine):
        program = self.programs[0]
        lowered = opened.lower(program)
        memories = self._memories(engine, lowered, arguments_of(program))
        scratch = [engine.allocate(n) for n in lowered.scratch_bytes]
        launch = engine.launch(engine.load(lowered, opened.compile(lowered)), memories, scratch)
        began_s = perf_counter()
        samples = engine.time(launch, 3)
        assert len(samples) == 3
        assert 0 < sum(samples) <= perf_counter() - began_s, "no more than there was time for"
        assert len(engine.time(launch, 2, inner=4)) == 2
        assert len(engine.time(launch, 2, evicted=memories)) == 2
        assert len(engine.time(launch, 2, near=memories)) == 2

    def test_peaks_are_positive(self, opened, engine):
        limits = engine.limits()
        threads = opened.target.threads
        assert limits.flops(threads) > 0
        assert limits.bandwidth(threads) > 0

    # ---- in workers, and whole models

    def test_candidates_are_measured_in_processes(self, opened):
        if not opened.runs:
            pytest.skip(f"device {opened.name} runs nothing")
        kernel = corpus_kernel("gemm")
        space = Space(kernel, opened.target)
        texts = [space.defaults()[0].text, ""]
        with DeviceMeasurer(opened, HOOKS, compile_workers=1) as workers:
            candidates = [Candidate(kernel.key, Payload(kernel, text, opened)) for text in texts]
            outcomes = workers.measure(candidates, Policy(min_samples=3, max_samples=3))
        rows = [o.measurement for o in outcomes if o is not None]
        assert rows
        assert [(r.status, r.error) for r in rows] == [(Status.OK, "")] * len(rows)
        assert all(s > 0 for r in rows for s in r.samples_s)

    def test_whole_models_run_in_a_process(self, opened):
        if not (opened.runs and self.model):
            pytest.skip(f"device {opened.name} runs no whole models")
        work = workload_of(mlp(sizes=(48, 32, 20)), "small", 0)
        with DeviceMeasurer(opened, HOOKS, compile_workers=1) as workers:
            evaluate = partial(expected_of, workers)
            with closing(LocalBench(opened, workers.compile, evaluate, workers.limits)) as bench:
                with open_store(":memory:", "write") as store:
                    model = Models(store, opened.target, opened.fingerprint(), bench).of(work)
                assert bench.judged(model)
                bench.check([model])
                assert all(s > 0 for s in bench.latencies(model, 3))

    def _memories(
        self, engine: Engine, lowered: Lowered, buffers: dict[str, np.ndarray]
    ) -> list[Memory]:
        memories = [engine.allocate(p.nbytes) for p in lowered.io.params]
        for p, memory in zip(lowered.io.params, memories, strict=True):
            engine.write(memory, buffers[p.name])
        return memories

    # ---- single programs

    def test_device_has_a_name_and_a_target(self, device):
        assert device.name
        assert device.target.kind in ("cpu", "gpu")

    def test_device_compiles_equal_programs_to_equal_text(self, device):
        for program in self.programs:
            first, second = device.compile(program), device.compile(replace(program))
            assert first.lowered == second.lowered
            assert first.program == program
            assert first.source
            if self.equal_images:
                assert first == second

    def test_device_compiles_different_programs_to_different_text(self, device):
        texts = {device.compile(program).source for program in self.programs}
        assert len(texts) == len(self.programs)

    def test_device_gives_the_float64_result(self, running):
        for program in self.programs:
            buffers = arguments_of(program)
            running.run(running.compile(program), buffers)
            name, want = expected(program, buffers)
            np.testing.assert_allclose(buffers[name], want, rtol=1e-5, atol=1e-5)

    def test_device_agrees_with_the_interpreter_bit_for_bit(self, running):
        for program in self.programs:
            mine, theirs = arguments_of(program, 3), arguments_of(program, 3)
            running.run(running.compile(program), mine)
            interpret(program, theirs)
            for name, want in theirs.items():
                np.testing.assert_array_equal(mine[name], want)

    def test_device_leaves_inputs_alone(self, running):
        program = self.programs[0]
        buffers = arguments_of(program)
        before = {b.name: buffers[b.name].copy() for b in program.params if b.role == "in"}
        running.run(running.compile(program), buffers)
        for name, array in before.items():
            np.testing.assert_array_equal(buffers[name], array)

    def test_device_runs_one_compiled_program_on_many_buffers(self, running):
        program = self.programs[0]
        compiled = running.compile(program)
        for seed in range(3):
            buffers = arguments_of(program, seed)
            running.run(compiled, buffers)
            name, want = expected(program, buffers)
            np.testing.assert_allclose(buffers[name], want, rtol=1e-5, atol=1e-5)

    def test_device_fills_packs(self, running):
        program = packed_copy()
        buffers = {"y": np.zeros(6, np.float32), "w": np.arange(6, dtype=np.float32)}
        running.run(running.compile(program), buffers)
        assert buffers["y"].tolist() == [0, 3, 1, 4, 2, 5]

    def test_device_times_every_sample_it_was_asked_for(self, running):
        program = self.programs[0]
        buffers = arguments_of(program)
        seconds = running.time(running.compile(program), buffers, 4)
        assert len(seconds) == 4
        assert all(s > 0 for s in seconds)
        name, want = expected(program, buffers)
        np.testing.assert_allclose(buffers[name], want, rtol=1e-5, atol=1e-5)

    def test_device_names_a_buffer_that_is_missing(self, running):
        program = self.programs[0]
        buffers = arguments_of(program)
        name = program.params[1].name
        del buffers[name]
        with pytest.raises(
            ShapeError, match=f"program {program.name}: no buffer '{name}' was given"
        ):
            running.run(running.compile(program), buffers)

    def test_device_names_a_buffer_that_does_not_fit(self, running):
        program = self.programs[0]
        buffers = arguments_of(program)
        b = program.params[1]
        with pytest.raises(
            ShapeError,
            match=rf"buffer '{b.name}' is float64\[{b.size}\], not flat contiguous float32",
        ):
            running.run(
                running.compile(program), buffers | {b.name: buffers[b.name].astype(np.float64)}
            )
        with pytest.raises(
            ShapeError, match=rf"buffer '{b.name}' is float32\[{b.size - 1}\], not flat"
        ):
            running.run(running.compile(program), buffers | {b.name: buffers[b.name][1:]})

    def test_device_that_runs_nothing_says_so(self, device):
        if device.runs:
            pytest.skip(f"device {device.name} runs programs")
        program = self.programs[0]
        for attempt in (device.run, lambda *args: device.time(*args, 1)):
            with pytest.raises(DeviceError, match="runs nothing"):
                attempt(device.compile(program), arguments_of(program))

    def test_device_can_be_closed_twice(self, device):
        device.close()
        device.close()
