"""One peer on one model, in a process of its own, timed when it is asked to be.

    python -m benchmarks.served ort resnet18 2

Says ``ready`` when it is compiled; answers every line of stdin, a number of calls, by the seconds
of each of them, as JSON; ends with stdin. Of several contestants the fastest of three calls stands
for the peer. ``tunegrad regress`` asks it between its own turns. ``ours`` is our model, untuned,
as it is called.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence

from benchmarks.ours import untuned
from benchmarks.peers import PEERS
from benchmarks.rows import CALLED
from benchmarks.workloads import select

__all__ = ["main"]

_FIRST_CALLS = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Serve; 1 for a peer or a model that there is not, in one line."""
    name, model, threads = sys.argv[1:] if argv is None else argv
    if name not in ("ours", *PEERS):
        print(f"peer {name!r} is unknown; valid: ours, {', '.join(PEERS)}", file=sys.stderr)
        return 1
    try:
        (workload,) = select("models", [model])
        if name == "ours":
            each = untuned(workload, int(threads), ("nchw",))
            contestants = [c for c in each if c.peer == CALLED]
        else:
            peer = PEERS[name]
            factory = getattr(importlib.import_module(peer.module), peer.factory)
            contestants = list(factory(workload, int(threads)))
    except (ImportError, ValueError) as error:
        print(f"peer {name} of model {model}: {error}", file=sys.stderr)
        return 1
    fastest = min(contestants, key=lambda c: min(c.time(_FIRST_CALLS)))
    del contestants
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(list(fastest.time(int(line)))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
