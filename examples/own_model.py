"""A model of your own: tune it, then run it with the winners of the store."""

import sys

import numpy as np

import tunegrad as tg
from tunegrad import nn

STORE = "example.db"


class Classifier(nn.Module):
    """Two linear layers; attributes have the names of PyTorch's ``state_dict``."""

    def __init__(self):
        self.body = nn.Sequential(nn.Linear(64, 32), nn.ReLU())
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        """Return the scores (batch, 10) of rows of 64 numbers."""
        return self.head(self.body(x))


def model():
    """Return the model; on the command line it is ``own_model:model``."""
    return tg.Model.of("classifier", Classifier, [tg.InputSpec("x", (8, 64))])


def main(budget_s):
    """Tune, load, and compare the tuned model with its default schedules."""
    report = tg.tune(model(), budget_s=budget_s, max_trials=40, store=STORE)
    print(f"{len(report.rows)} kernels tuned into {STORE}")

    x = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    tuned = tg.load(model(), store=STORE)  # weights drawn from a seed; weights= takes yours
    default = tg.load(model(), store=False)
    np.testing.assert_allclose(tuned(x), default(x), atol=1e-5)
    for row in tuned.report():  # hit: a stored winner; miss: the default schedule, and why
        print(row.kernel, row.outcome, *row.differs)


if __name__ == "__main__":  # the processes that measure import this file
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
