"""Latency of models beside busy processes: ours and peers', in turns.

    python -m benchmarks.neighbours
    python -m benchmarks.neighbours --models mlp --beside 0 1 --peers ort --rounds 20

Each contestant is a process (``benchmarks.served``); a turn is some calls of one, the next turn the
next one's. Beside them run as many processes as a row says, which do nothing but take a core each;
in the last row a second process of the same contestant, which calls its model at the same time. A
figure is the median of a contestant's calls, in ms, and their mean; growth is of medians, over its
own with none beside it. ``ours 1`` has one thread: what more of them must never be slower than.
Beside as many processes as there are cores, a call waits for a core or does not, and the median may
be of either kind: the mean is what calls take.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from threading import Thread
from types import MappingProxyType

from tunegrad.errors import CandidateFailure
from tunegrad.regress.settings import Peer

__all__ = ["main"]

_MODELS, _PEERS = ("resnet18", "encoder", "mlp"), ("ort", "openvino", "torch")
Figures = dict[str, tuple[float, float]]
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
    parser.add_argument("--twins", action="store_true", help="and beside a second one of its own")
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
            quiet: Figures = {}
            for count in options.beside:
                with _beside(count):
                    found = _turns(served, calls, options.rounds)
                quiet = quiet or found
                _say(f"{model} beside {count}", found, quiet)
            if options.twins:
                twins = {n: stack.enter_context(Peer(s.name, model, int(n.split()[1])))
                    for n, s in served.items()}  # fmt: skip
                found = _turns(served, calls, options.rounds, twins)
                _say(f"{model} beside its twin", found, quiet or found)
    return 0


def _say(row: str, found: Figures, quiet: Figures) -> None:
    cells = (
        f"{n} {1e3 * s:.3f} ({s / quiet[n][0]:.2f}x), mean {1e3 * mean:.3f}"
        for n, (s, mean) in found.items()
    )
    print(f"{row}: {'; '.join(cells)}", flush=True)


def _seconds(served: Peer, calls: int) -> list[float]:
    """Seconds of each of so many calls."""
    served.samples_s.clear()
    served.take(calls)
    return [*served.samples_s]


def _turns(
    served: dict[str, Peer],
    calls: dict[str, int],
    rounds: int,
    twins: Mapping[str, Peer] = MappingProxyType({}),
) -> Figures:
    """The median and mean seconds of a call of each, while its twin makes as many."""
    found: dict[str, list[float]] = {name: [] for name in served}
    for turn in range(rounds):
        for name in list(served)[:: 1 if turn % 2 == 0 else -1]:
            beside = [Thread(target=twins[n].take, args=[calls[n]]) for n in twins if n == name]
            for thread in beside:
                thread.start()
            found[name] += _seconds(served[name], calls[name])
            for thread in beside:
                thread.join()
    return {n: (statistics.median(s), statistics.fmean(s)) for n, s in found.items()}


if __name__ == "__main__":
    sys.exit(main())
