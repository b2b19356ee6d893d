"""The same seed takes the same decisions, in another process with another hash seed too."""

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from search_surface import Surface, separable

from tunegrad.search import BeamSearcher, Proposal, RandomSearcher
from tunegrad.trial import Status

SEARCHERS = {"beam": BeamSearcher, "random": RandomSearcher}


def asked(name: str) -> list[str]:
    """120 texts that a searcher asks for, on a surface with failures."""
    space, surface = separable(Random(11))
    surface = Surface(surface.factors, fails={("d1", 3): Status.TIMED_OUT, ("d4", 2): Status.WRONG})
    searcher = SEARCHERS[name](space, Random(5))
    default = space.defaults()[0]
    searcher.tell(Proposal(default, "default"), surface.measure(default))
    texts = []
    while len(texts) < 120:
        for proposal in searcher.ask(8):
            texts.append(proposal.schedule.text)
            searcher.tell(proposal, surface.measure(proposal.schedule))
    return texts


@pytest.mark.parametrize("name", sorted(SEARCHERS))
def test_search_asks_alike_in_another_process_with_another_hash_seed(name):
    code = f"import sys; from test_search_reproducible import asked; sys.stdout.write('\\n'.join(asked({name!r})))"
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path])
    mine = "\n".join(asked(name))
    for hash_seed in ("1", "4242"):
        env = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
        theirs = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        assert theirs.stdout == mine


def test_search_leaves_the_global_random_state_alone():
    import random

    random.seed(3)
    before = random.getstate()
    asked("beam")
    asked("random")
    assert random.getstate() == before
