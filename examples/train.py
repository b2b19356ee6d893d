"""Train a network to tell ten kinds of small images apart, and use it."""

import sys

import numpy as np

import tunegrad as tg

F = tg.nn.functional
LEAST = 0.95


def drawn(count, seed):
    """Return images (count, 1, 8, 8) of ten patterns, moved and noisy, and their kinds."""
    patterns = np.random.default_rng(0).random((10, 8, 8)) > 0.5
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 10, count)
    moved = [np.roll(patterns[k], tuple(rng.integers(-1, 2, 2)), (0, 1)) for k in kinds]
    images = np.stack(moved)[:, None] + 0.3 * rng.standard_normal((count, 1, 8, 8))
    return images.astype(np.float32), kinds


def main():
    """Train in steps that are one compiled program each, then count right answers."""
    nn = tg.nn
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    (images, kinds), batch, epochs = drawn(6400, 1), 64, 3
    rate = nn.optim.OneCycleLR(0.05, epochs * len(images) // batch)
    step = tg.TrainStep(model, F.cross_entropy, nn.optim.SGD(rate, momentum=0.9))
    for epoch in range(epochs):
        for at in range(0, len(images), batch):
            loss = step(images[at : at + batch], kinds[at : at + batch])
        print(f"epoch {epoch}: loss {loss:.3f}")

    others, wanted = drawn(batch, 2)
    answers = tg.load(step.model())(others)
    right = float((answers.argmax(1) == wanted).mean())
    print(f"right on other images: {right:.1%}")
    return right


if __name__ == "__main__":
    sys.exit(0 if main() >= LEAST else 1)
