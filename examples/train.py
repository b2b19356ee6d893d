"""Train a network to tell ten kinds of small images apart: one compiled program is a step."""

import sys

import numpy as np

import tunegrad as tg

F = tg.nn.functional
LEAST = 0.97


def drawn(count, seed):
    """Return images (count, 1, 8, 8) of ten patterns, moved and noisy, and their kinds."""
    patterns = np.random.default_rng(0).random((10, 8, 8)) > 0.5
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 10, count)
    moved = [np.roll(patterns[k], tuple(rng.integers(-1, 2, 2)), (0, 1)) for k in kinds]
    images = np.stack(moved)[:, None] + 0.3 * rng.standard_normal((count, 1, 8, 8))
    return images.astype(np.float32), kinds


def main():
    """Train by plain descent with momentum, then count right answers on other images."""
    model = tg.nn.Sequential(
        tg.nn.Conv2d(1, 16, 3, padding=1), tg.nn.ReLU(), tg.nn.MaxPool2d(2),
        tg.nn.Flatten(), tg.nn.Linear(256, 64), tg.nn.ReLU(), tg.nn.Linear(64, 10),
    )  # fmt: skip
    model.load(seed=0)
    names, parameters = zip(*model.state_dict().items(), strict=True)
    speeds = [np.zeros_like(p) for p in parameters]
    (images, kinds), batch, many = drawn(6400, 1), 64, len(names)

    def step(x, kind, *state):
        def loss(parameters):
            return F.cross_entropy(tg.nn.functional_call(model, parameters, x), kind)

        value, slopes = tg.value_and_grad(loss)(dict(zip(names, state[:many], strict=True)))
        faster = [0.9 * v + slopes[n] for n, v in zip(names, state[many:], strict=True)]
        return [value, *(p - 0.05 * v for p, v in zip(state, faster, strict=False)), *faster]

    compiled = tg.compile(step, images[:batch], kinds[:batch], *parameters, *speeds)
    state = [*parameters, *speeds]
    for epoch in range(6):
        for at in range(0, len(images), batch):
            value, *state = compiled(images[at : at + batch], kinds[at : at + batch], *state)
        print(f"epoch {epoch}: loss {float(value):.3f}")

    others, wanted = drawn(500, 2)
    answers = tg.nn.functional_call(model, dict(zip(names, state, strict=False)), tg.Tensor(others))
    right = float((answers.numpy().argmax(1) == wanted).mean())
    print(f"right on other images: {right:.1%}")
    return right


if __name__ == "__main__":
    sys.exit(0 if main() >= LEAST else 1)
