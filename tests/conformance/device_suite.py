"""What every device must do, as one test class. Subclass it, give it a ``device``, and it runs against that device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hand_programs import F, arguments_of, expected, loop, vector_add

from tunegrad.devices.programs import Device
from tunegrad.errors import DeviceError, ShapeError
from tunegrad.ir.dtypes import F32
from tunegrad.ir.index import ALWAYS, var
from tunegrad.ir.interpret_program import interpret
from tunegrad.ir.program import Buffer, Load, Pack, Program, Store


def packed_copy() -> Program:
    """y = w transposed, through a pack that the device fills."""
    pack = Pack("w.p", "w", F32, ("p0", "p1"), (3, 2), var("p1", 2) * 3 + var("p0", 3), ALWAYS)
    params = (Buffer("y", F32, 6, "out"), Buffer("w", F32, 6, "const"), Buffer("w.p", F32, 6, "pack"))
    body = (loop("i", 6, Load(1, "w.p", var("i", 6), F), Store("y", var("i", 6), 1, F)),)
    return Program("packed_copy", params, (), (pack,), body)


class DeviceSuite:
    """Subclasses give ``device``, and ``programs``: what hand-written programs it can run."""

    programs: tuple[Program, ...] = (vector_add(), vector_add(64, 16, 1), vector_add(5, 4, 1))

    @pytest.fixture
    def device(self) -> Device:
        raise NotImplementedError

    @pytest.fixture
    def running(self, device: Device) -> Device:
        if not device.runs:
            pytest.skip(f"device {device.name} runs nothing")
        return device

    def test_device_has_a_name_and_a_target(self, device):
        assert device.name
        assert device.target.kind in ("cpu", "gpu")

    def test_device_compiles_equal_programs_to_equal_text(self, device):
        for program in self.programs:
            first, second = device.compile(program), device.compile(replace(program))
            assert first == second
            assert first.program == program
            assert first.source

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
        with pytest.raises(ShapeError, match=f"program {program.name}: no buffer '{name}' was given"):
            running.run(running.compile(program), buffers)

    def test_device_names_a_buffer_that_does_not_fit(self, running):
        program = self.programs[0]
        buffers = arguments_of(program)
        b = program.params[1]
        with pytest.raises(ShapeError, match=rf"buffer '{b.name}' is float64\[{b.size}\], not flat contiguous float32"):
            running.run(running.compile(program), buffers | {b.name: buffers[b.name].astype(np.float64)})
        with pytest.raises(ShapeError, match=rf"buffer '{b.name}' is float32\[{b.size - 1}\], not flat"):
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
