"""Images of the reference device hold programs; what else a file may hold is refused, and runs
nothing.
"""

from __future__ import annotations

import os
import pickle

import pytest
from hand_programs import vector_add

from tests.reference_device import ReferenceDevice
from tunegrad.errors import CompileFailure


class Harmful:
    def __reduce__(self):
        return os.system, ("exit 3",)


@pytest.mark.parametrize(
    "image", [pickle.dumps(Harmful()), pickle.dumps(vector_add)[:-3], b"", b"xyz"]
)
def test_reference_image_that_is_no_program_is_refused(image):
    device = ReferenceDevice()
    with device.open() as engine, pytest.raises(CompileFailure, match="no image"):
        engine.load(device.lower(vector_add()), image.hex().encode())
