"""The process in which rows of a GPU session are made: a fault of the GPU, or a hang, ends it and
not the session.

    session --(step, row)--> child: the row's function --> a dict, as JSON
                             dies, hangs --> killed; the next row starts another

After a row that failed, the next one runs in a fresh process: nothing works in one that met a
fault. The child's output goes to a file.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

import tests.cuda_host  # noqa: F401  # adds the device on which a session is rehearsed
from tunegrad import devices
from tunegrad.devices.processes.confine import obey_parent
from tunegrad.errors import InternalError

__all__ = ["Asked", "Child", "Named", "Row", "rows_of"]

Row = dict[str, Any]
Named = tuple[str, Callable[[], Row]]
_START_S, _END_S = 120.0, 10.0
"""Longest times for a child to start, and to be gone once it was killed."""
_TOLD = 1000
"""Letters of what a child printed that are kept of one that died."""


@dataclass(frozen=True)
class Asked:
    """Options of a command. ``rows`` names ``function(step, asked)``, which gives a step's rows;
    ``models`` are the seconds of search of each model that is tuned, ``record_s`` those of a turn
    of a space.
    """

    device: str
    out: str
    small: bool = False
    models: Mapping[str, float] = field(default_factory=dict)
    dtype: str = "f16"
    record_s: float = 60.0
    rows: str = "tools.gpu_steps:rows_of"


def rows_of(step: str, asked: Asked) -> Iterator[Named]:
    """A step's rows by name, none of which has been made."""
    module, _, name = asked.rows.partition(":")
    made: Iterator[Named] = getattr(importlib.import_module(module), name)(step, asked)
    return made


class Child:
    """One process at a time. Mutable: it starts with the first row."""

    def __init__(self, asked: Asked, log: Path) -> None:
        self._asked, self._log = asked, log
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Connection | None = None

    def make(self, step: str, name: str, limit_s: float) -> Row:
        """The row, or why there is none: ``error``, and ``hung`` where the time was over."""
        row = self._asked_for(step, name, limit_s)
        if "error" in row:
            self.close()
        return row

    def close(self) -> None:
        """End the process, whatever it does. Raises InternalError where it can not be ended."""
        process, self._process = self._process, None
        if self._channel is not None:
            self._channel.close()
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            raise InternalError(
                f"process {process.pid} is still there {_END_S:g} s after it was killed: the "
                "driver does not let go of it, and the GPU may need a reset"
            ) from None

    def _asked_for(self, step: str, name: str, limit_s: float) -> Row:
        printed = self._log.stat().st_size if self._log.exists() else 0
        try:
            if self._process is None:
                self._start()
                if self._receive(_START_S) is None:
                    return {"error": f"no process was ready within {_START_S:g} s"}
            assert self._channel is not None
            self._channel.send_bytes(json.dumps([step, name]).encode())
            row = self._receive(limit_s)
        except (EOFError, OSError):
            return {"error": self._death(), "printed": self._tail(printed)}
        if row is None:
            return {"error": f"over {limit_s:g} s: its process was killed", "hung": True}
        return row

    def _receive(self, limit_s: float) -> Row | None:
        assert self._channel is not None
        if not self._channel.poll(limit_s):
            return None
        found: Row = json.loads(self._channel.recv_bytes())
        return found

    def _start(self) -> None:
        here, there = Pipe()
        words = ["-m", "tools.gpu_child", str(there.fileno()), json.dumps(asdict(self._asked))]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *words], cwd=Path(__file__).parents[1], stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, pass_fds=[there.fileno()], start_new_session=True,
            )  # fmt: skip
        there.close()
        self._channel = here

    def _death(self) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return "its process does not answer"
        named = {s.value: s.name for s in signal.Signals}
        return f"its process died: {named.get(-code, f'exit code {code}')}"

    def _tail(self, start: int) -> str:
        with self._log.open("rb") as log:
            log.seek(start)
            return log.read().decode(errors="replace")[-_TOLD:]


def _serve(channel: Connection, asked: Asked) -> None:
    """Serve the session until it is gone. The device is open all the time: rows that open it again
    need not wait for its context.
    """

    @cache
    def known(step: str) -> Mapping[str, Callable[[], Row]]:
        return dict(rows_of(step, asked))

    with devices.running(asked.device).open():
        channel.send_bytes(b"{}")
        while True:
            step, name = json.loads(channel.recv_bytes())
            try:
                row = known(step)[name]()
            except Exception as error:  # noqa: BLE001  # one bad row never ends a step
                where = traceback.format_exc(limit=-3)
                row = {"error": f"{type(error).__name__}: {error}", "where": where}
            channel.send_bytes(json.dumps(row, default=str).encode())


if __name__ == "__main__":
    obey_parent()
    os.set_inheritable(int(sys.argv[1]), False)
    with suppress(EOFError):
        _serve(Connection(int(sys.argv[1])), Asked(**json.loads(sys.argv[2])))
