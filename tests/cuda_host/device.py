"""cuda-host as a value: the CPU of this machine, as CUDA C++ sees a GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.cuda_host.build import build, compiler
from tunegrad.devices.cuda.architectures import Chip, cuda_target
from tunegrad.devices.cuda.nvrtc import lower_cuda
from tunegrad.devices.device import Confinement
from tunegrad.devices.host.facts import fingerprint as host_fingerprint
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.job import Lowered
from tunegrad.errors import DeviceError
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target
from tunegrad.trial import Fingerprint, Properties

if TYPE_CHECKING:
    from tunegrad.devices.cuda.engine import CudaEngine
    from tunegrad.devices.device import Inspection

__all__ = ["CudaHost", "opened"]

_CHIP = Chip(units=2, cache_bytes=1 << 20, hertz=2e7, memory_bytes_per_s=2e9)
"""A fiber a thread does about a fiftieth of what the core does by itself."""
_HOST_FIELDS = ("cpu_", "cores", "microcode", "smt", "thp", "page")


@dataclass(frozen=True, slots=True)
class CudaHost:
    """See ``devices.device.Device``. ``seed``: the order in which the threads of a block run;
    ``lazy``: asynchronous copies arrive as late as they may, else at once.
    """

    seed: int = 0
    lazy: bool = False

    runs = True
    exclusive = True
    confinement = Confinement(driver=True)

    @property
    def name(self) -> str:
        words = ["cuda-host", *(["lazy"] * self.lazy), *([str(self.seed)] * bool(self.seed))]
        return ":".join(words)

    @property
    def target(self) -> Target:
        return replace(cuda_target("sm_80", _CHIP), arch="host")

    def describe(self) -> str:
        order = f"in an order drawn by {self.seed}" if self.seed else "in index order"
        copies = ", copies as late as they may be" if self.lazy else ""
        return f"CUDA C++ on this CPU, threads {order}{copies}"

    def fingerprint(self, numerics: str = "contract") -> Fingerprint:
        host = dict(host_fingerprint(host_target(1)).fields)
        fields = {
            "device": self.name,
            "arch": "host",
            "compiler_version": self.compiler(),
            "numerics": numerics,
            **{k: v for k, v in host.items() if k.startswith(_HOST_FIELDS)},
        }
        return Fingerprint(tuple(sorted(fields.items())))

    def compiler(self) -> str:
        return compiler()

    def lower(self, program: Program) -> Lowered:
        return lower_cuda(program, self.target)

    def compile(self, lowered: Lowered, killable: bool = False) -> bytes:
        return build(lowered.text, lowered.entry)

    def inspect(self, lowered: Lowered) -> Inspection | None:
        return None

    def facts(self, lowered: Lowered, image: bytes) -> Properties:
        """Facts of an image: bytes that a group shares, which is all that a GPU would have in
        common with it, and the size of the library.
        """
        return (
            ("code_bytes", float(len(image))),
            ("shared_bytes", float(lowered.geometry.shared_bytes)),
        )

    def state(self) -> Properties:
        return ()

    def open(self, pin: bool = False) -> CudaEngine:
        from tests.cuda_host.driver import HostDriver
        from tunegrad.devices.cuda.engine import CudaEngine

        compiler()
        return CudaEngine(self, HostDriver(self.seed, self.lazy))


def opened(part: str, threads: int | None) -> CudaHost:
    """Read the part of a device's name after ``cuda-host:``: ``lazy``, a seed, or both. Raises
    DeviceError for anything else, and where there is no compiler. One block runs at a time.
    """
    words = part.split(":") if part else []
    lazy = words[:1] == ["lazy"]
    seed = words[lazy:]
    if len(seed) > 1 or not all(word.isdigit() for word in seed):
        rule = "lazy delays copies, a number draws the order of threads: cuda-host:lazy:3"
        raise DeviceError(f"device cuda-host:{part}: {rule}")
    compiler()
    return CudaHost(int(seed[0]) if seed else 0, lazy)
