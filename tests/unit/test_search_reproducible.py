"""The same seed takes the same decisions, in another process with another hash seed too."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from random import Random

from search_surface import Surface, separable

from tunegrad.search import Proposal, make_searcher, searcher_names
from tunegrad.trial import Status


def asked(name: str) -> list[str]:
    """72 texts that a searcher asks for, on a surface with failures."""
    space, surface = separable(Random(11))
    surface = Surface(surface.factors, fails={("d1", 3): Status.TIMED_OUT, ("d4", 2): Status.WRONG})
    searcher = make_searcher(name, space, Random(5))
    default = space.defaults()[0]
    searcher.tell(Proposal(default, "default"), surface.measure(default))
    texts: list[str] = []
    while len(texts) < 72:
        for proposal in searcher.ask(8):
            texts.append(proposal.schedule.text)
            searcher.tell(proposal, surface.measure(proposal.schedule))
    return texts


def everything() -> dict[str, list[str]]:
    """What every searcher asks for."""
    return {name: asked(name) for name in searcher_names()}


def elsewhere(hash_seed: str) -> dict[str, list[str]]:
    """The same in a process of its own."""
    code = (
        "import json, sys; from test_search_reproducible import everything; "
        "json.dump(everything(), sys.stdout)"
    )
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path])
    env = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def test_search_asks_alike_in_another_process_and_leaves_the_global_random_state_alone():
    """With another hash seed, as that of this process is drawn."""
    before = random.getstate()
    mine = everything()
    assert random.getstate() == before
    assert elsewhere("4242") == mine
