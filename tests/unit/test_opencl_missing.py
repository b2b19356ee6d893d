"""Without pyopencl, the OpenCL device says which extra to install, and importing its module loads
nothing.
"""

import subprocess
import sys

import pytest

from tunegrad import devices
from tunegrad.errors import DeviceError


def test_opencl_without_pyopencl_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(
        DeviceError, match=r"device opencl needs pyopencl: pip install 'tunegrad\[opencl\]'"
    ):
        devices.open("opencl")


def test_opencl_module_imports_no_pyopencl():
    code = "import sys, tunegrad.devices.opencl.device; sys.exit('pyopencl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
