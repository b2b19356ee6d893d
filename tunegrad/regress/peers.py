"""Peers beside a sweep: other libraries on the same model, each in a process of its own, between
the turns of ours.

They come with a checkout (``benchmarks/``) and the ``bench`` extra. What they take is a row of the
history, for the reader: it is no regression of ours.
"""

from __future__ import annotations

import select
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from tunegrad.errors import CandidateCrashed, CandidateFailure, CandidateTimeout

__all__ = ["PEERS", "Peer"]

PEERS = ("torch", "inductor", "ort", "openvino")
"""Those that run models (``benchmarks/peers.py``)."""

_ROOT = Path(__file__).parents[2]
_START_S, _CALL_S = 300.0, 60.0
_REST_S = 0.1
"""Until threads that wait for the next call by spinning have gone to sleep."""

_WARM = 1


class Peer:
    """One peer on one model while it is being timed. Mutable.

    Every method raises CandidateFailure where the peer is not there, ends or hangs.
    """

    def __init__(self, name: str, model: str, threads: int) -> None:
        self.name = name
        self.samples_s: list[float] = []
        if not (_ROOT / "benchmarks" / "served.py").is_file():
            raise CandidateFailure("peers come with a checkout of tunegrad, not with its package")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.served", name, model, str(threads)],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        try:
            self._line(_START_S)
        except BaseException:
            self.close()
            raise

    def take(self, calls: int) -> None:
        """Time so many calls more, after one that warms the caches, and rest."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"%d\n" % (calls + _WARM))
        except OSError as error:
            raise CandidateCrashed(f"peer {self.name}: it ended") from error
        found = msgspec.json.decode(self._line(_CALL_S), type=list[float])
        self.samples_s += found[_WARM:]
        time.sleep(_REST_S)

    def close(self) -> None:
        """End its process, and wait for that."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _line(self, limit_s: float) -> bytes:
        out = self._process.stdout
        assert out is not None
        if not select.select([out], [], [], limit_s)[0]:
            raise CandidateTimeout(f"peer {self.name}: over {limit_s:g} s")
        line = out.readline()
        if not line:
            said = self._process.communicate()[1].decode("utf-8", "replace").strip()
            last = said.splitlines()[-1] if said else "no word"
            raise CandidateCrashed(f"peer {self.name}: it ended: {last}")
        return line
