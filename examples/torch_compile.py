"""A module of PyTorch through ``torch.compile``, with the winners that a tune has stored."""

import sys

import torch

import tunegrad as tg

STORE = "example.db"


def make():
    """Return a module in eval mode and an input of it."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU()
    )
    return module.eval(), torch.randn(1, 3, 16, 16)


def main(budget_s):
    """Tune the module, compile it, and compare it with PyTorch."""
    module, x = make()
    tg.tune((module, x), budget_s=budget_s, max_trials=40, store=STORE)

    fast = torch.compile(module, backend="tunegrad", options={"store": STORE})
    with torch.inference_mode():
        y = fast(x)  # the first call compiles, and is compared with PyTorch
        torch.testing.assert_close(y, module(x), atol=1e-5, rtol=1e-5)
    print(tuple(y.shape), "as PyTorch computes it")


if __name__ == "__main__":  # the processes that measure import this file
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
