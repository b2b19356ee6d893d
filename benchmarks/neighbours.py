"""Latency of models beside busy processes: ours and peers', in turns.

    python -m benchmarks.neighbours
    python -m benchmarks.neighbours --models mlp --beside 0 1 --peers ort --rounds 20

Each contestant is a process (``benchmarks.served``); a turn is some calls of one, the next turn the
next one's. Beside them run as many processes as a row says, which do nothing but take a core each.
A figure is the median of a contestant's calls, in ms; growth is over its own with none beside it.
``ours 1`` has one thread: what more of them must never be slower than.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from tunegrad.errors import CandidateFailure
from tunegrad.regress.settings import Peer

__all__ = ["main"]

_MODELS, _PEERS = ("resnet18", "encoder", "mlp"), ("ort", "openvino", "torch")
_BEGUN_S = 0.1
"""Until a process spins."""


@contextmanager
def _beside(count: int) -> Iterator[None]:
    """So many processes that spin."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        time.sleep(_BEGUN_S)
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def main(argv: Sequence[str] | None = None) -> int:
    """Print a row for each model and number of busy processes."""
    parser = argparse.ArgumentParser(prog="benchmarks.neighbours", description=__doc__)
    parser.add_argument("--models", nargs="+", default=_MODELS)
    parser.add_argument("--beside", nargs="+", type=int, default=(0, 1, 2))
    parser.add_argument("--peers", nargs="*", default=_PEERS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--turn", type=float, default=0.3, help="seconds of a turn, about")
    options = parser.parse_args(argv)
    for model in options.models:
        with ExitStack() as stack:
            names = [
                ("ours", options.threads),
                ("ours", 1),
                *((p, options.threads) for p in options.peers),
            ]
            served = {}
            for peer, threads in names:
                try:
                    served[f"{peer} {threads}"] = stack.enter_context(Peer(peer, model, threads))
                except CandidateFailure as error:
                    print(error, file=sys.stderr)
            calls = {
                name: max(1, int(options.turn / min(_seconds(s, 5)))) for name, s in served.items()
            }
            quiet: dict[str, float] = {}
            for count in options.beside:
                with _beside(count):
                    found = _turns(served, calls, options.rounds)
                quiet = quiet or found
                cells = (f"{n} {1e3 * s:.3f} ({s / quiet[n]:.2f}x)" for n, s in found.items())
                print(f"{model} beside {count}: {', '.join(cells)}", flush=True)
    return 0


def _seconds(served: Peer, calls: int) -> list[float]:
    """Seconds of each of so many calls."""
    served.samples_s.clear()
    served.take(calls)
    return [*served.samples_s]


def _turns(served: dict[str, Peer], calls: dict[str, int], rounds: int) -> dict[str, float]:
    """The median seconds of a call of each."""
    found: dict[str, list[float]] = {name: [] for name in served}
    for turn in range(rounds):
        for name in list(served)[:: 1 if turn % 2 == 0 else -1]:
            found[name] += _seconds(served[name], calls[name])
    return {name: statistics.median(samples) for name, samples in found.items()}


if __name__ == "__main__":
    sys.exit(main())
