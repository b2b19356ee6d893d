"""Settings of a sweep: a TOML file, read strictly.

[regress]
models = ["mlp", "resnet18"]       # as `tunegrad tune` takes them
devices = ["cpu"]
turns = 24                         # of the winners, the default schedules and the yardsticks
quiet = "warn"                     # or "require": exit 1 on a busy machine
# store = "nightly.db"             # beside this file; else as for the other commands
# threads = 2
# dtype = "bf16"
# numerics = "contract"
# peers = ["ort"]                  # with the [bench] extra, and benchmarks/ of a checkout

Peers are other libraries on the same model, each in a process of its own, between the turns of
ours. They come with a checkout (``benchmarks/``) and the ``bench`` extra. What they take is a row
of the history, for the reader: it is no regression of ours.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from errno import ENOENT
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from tunegrad.config import (
    DEFAULT_DEVICE,
    ModelDtype,
    Numerics,
    TuneSettings,
    check_keys,
    configs_dir,
    convert_table,
    default_store,
    nearest,
    read_toml,
    resolve_model,
    resolve_settings,
)
from tunegrad.devices import check_name
from tunegrad.errors import (
    CandidateCrashed,
    CandidateFailure,
    CandidateTimeout,
    ConfigError,
    DeviceError,
)

PEERS = ("torch", "inductor", "ort", "openvino")
"""Those that run models (``benchmarks/peers.py``)."""

_ROOT = Path(__file__).parents[2]

_START_S, _CALL_S = 300.0, 60.0

_REST_S = 0.1
"""Until threads that wait for the next call by spinning have gone to sleep."""

_WARM = 1


class Served:
    """A process that answers each line on its stdin by one on its stdout. Mutable.

    Every method raises CandidateFailure where the process ends or hangs. ``ready`` is its first
    line.
    """

    def __init__(
        self, name: str, command: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self._label = name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # a pipe that is full blocks it
        self._process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
        )
        try:
            self.ready = self._line(_START_S)
        except BaseException:
            self.close()
            raise

    def ask(self, line: bytes) -> bytes:
        """The answer to a line."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + b"\n")
        except OSError as error:
            raise CandidateCrashed(f"{self._label}: it ended") from error
        return self._line(_CALL_S)

    def close(self) -> None:
        """End its process, and wait for that."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _line(self, limit_s: float) -> bytes:
        out = self._process.stdout
        assert out is not None
        if not select.select([out], [], [], limit_s)[0]:
            raise CandidateTimeout(f"{self._label}: over {limit_s:g} s")
        line = out.readline()
        if not line:
            self._process.communicate()
            self._errors.seek(0)
            said = self._errors.read().decode("utf-8", "replace").strip()
            last = said.splitlines()[-1] if said else "no word"
            raise CandidateCrashed(f"{self._label}: it ended: {last}")
        return line


class Peer(Served):
    """One peer on one model while it is being timed; it may be absent. Mutable."""

    def __init__(self, name: str, model: str, threads: int) -> None:
        self.name = name
        self.samples_s: list[float] = []
        if not (_ROOT / "benchmarks" / "served.py").is_file():
            raise CandidateFailure("peers come with a checkout of tunegrad, not with its package")
        command = [sys.executable, "-m", "benchmarks.served", name, model, str(threads)]
        super().__init__(f"peer {name}", command, _ROOT)

    def take(self, calls: int) -> None:
        """Time so many calls more, after one that warms the caches, and rest."""
        found = msgspec.json.decode(self.ask(b"%d" % (calls + _WARM)), type=list[float])
        self.samples_s += found[_WARM:]
        time.sleep(_REST_S)


Quiet = Literal["warn", "require"]
"""The action on a machine that others keep busy: say so and go on, or measure nothing."""


@dataclass(frozen=True, slots=True)
class SweepSettings:
    """A sweep, resolved. ``threads``: None for all processors; ``folder`` is its file's."""

    models: tuple[str, ...]
    devices: tuple[str, ...] = (DEFAULT_DEVICE,)
    store: Path = Path("store.db")
    turns: int = 24
    quiet: Quiet = "warn"
    threads: int | None = None
    dtype: ModelDtype | None = None
    numerics: Numerics = "contract"
    peers: tuple[str, ...] = ()
    folder: Path = Path()

    def of(self, device: str, model: str, **more: Any) -> TuneSettings:
        """One of its models on one of its devices, as a tune has it; ``more`` of its settings."""
        return resolve_settings(
            model,
            device=device,
            threads=self.threads,
            store=self.store,
            numerics=self.numerics,
            dtype=self.dtype,
            **more,
        )

    def record(self) -> dict[str, object]:
        """Settings that two sweeps have in common that are one, interrupted: as JSON."""
        return {
            "models": list(self.models),
            "devices": list(self.devices),
            "turns": self.turns,
            "threads": self.threads,
            "dtype": self.dtype,
            "numerics": self.numerics,
            "peers": list(self.peers),
        }


@dataclass(frozen=True)
class _Table:
    models: list[str]
    devices: list[str] = field(default_factory=lambda: [DEFAULT_DEVICE])
    store: str | None = None
    turns: int = 24
    quiet: Quiet = "warn"
    threads: int | None = None
    dtype: ModelDtype | None = None
    numerics: Numerics = "contract"
    peers: list[str] = field(default_factory=list)


def load_sweep(config: str | Path, store: str | Path | None = None) -> SweepSettings:
    """The sweep of a file, or of one that ships under a name such as ``nightly``.

    ``store`` is not the file's. A store and model files that the file names stand beside it. Raises
    ConfigError for a file that can not be read or breaks a rule, a device or a peer of an unknown
    name among them, ModelError for an unknown model.
    """
    path = _path(config)
    if not path.exists():
        near = nearest(str(config), _shipped())
        raise ConfigError(f"{path}: {os.strerror(ENOENT)}{near}")
    document = read_toml(path)
    check_keys(document, ("regress",), str(path))
    table = convert_table(_Table, document.get("regress"), f"{path}: regress")
    for name, listed in (("models", table.models), ("devices", table.devices)):
        if not listed or len(set(listed)) != len(listed):
            raise ConfigError(f"{path}: regress.{name} = {listed} must name some, each once")
    if table.turns < _LEAST_TURNS:
        raise ConfigError(f"{path}: regress.turns = {table.turns} is below {_LEAST_TURNS}")
    if table.threads is not None and table.threads < 1:
        raise ConfigError(f"{path}: regress.threads = {table.threads} is not positive")
    _check_names(path, table)
    models = tuple(_beside(path, m) if m.endswith(".toml") else m for m in table.models)
    for model in models:
        resolve_model(model)
    place = store or (_beside(path, table.store) if table.store else default_store())
    return SweepSettings(
        models,
        tuple(table.devices),
        Path(place).expanduser(),
        table.turns,
        table.quiet,
        table.threads,
        table.dtype,
        table.numerics,
        tuple(table.peers),
        path.resolve().parent,
    )


_LEAST_TURNS = 6
"""Below that no interval has 95 %."""


def _path(config: str | Path) -> Path:
    """A file, or the name of one that ships."""
    path = Path(config).expanduser()
    shipped = configs_dir() / f"{config}.toml"
    return shipped if not path.exists() and shipped.is_file() else path


def _shipped() -> list[str]:
    """The names of the sweeps that ship."""
    files = configs_dir().glob("*.toml")
    return [f.stem for f in files if "[regress]" in f.read_text(encoding="utf-8")]


def _check_names(path: Path, table: _Table) -> None:
    """Raise ConfigError for no name of a device or peer. One not here fails in the sweep."""
    for device in table.devices:
        try:
            check_name(device)
        except DeviceError as error:
            raise ConfigError(f"{path}: regress.devices: {error}") from error
    for peer in table.peers:
        if peer not in PEERS:
            raise ConfigError(
                f"{path}: regress.peers: peer {peer!r} is unknown{nearest(peer, PEERS)}; valid: "
                f"{', '.join(PEERS)}"
            )


def _beside(path: Path, name: str) -> str:
    return str(path.parent / Path(name).expanduser())
