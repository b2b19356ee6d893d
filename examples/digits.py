"""Train a network to read digits: scikit-learn's, or drawn patterns where it is not installed."""

import sys

import numpy as np

import tunegrad as tg

EPOCHS, BATCH, LEAST = 30, 64, 0.97


def digits():
    """Return images (count, 8, 8) of uint8 up to 16, and their kinds."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:  # ten patterns, moved and noisy
        rng = np.random.default_rng(0)
        patterns = rng.random((10, 8, 8)) > 0.5
        kinds = rng.integers(0, 10, 1797)
        moved = [np.roll(patterns[k], tuple(rng.integers(-1, 2, 2)), (0, 1)) for k in kinds]
        images = 11 * np.stack(moved) + 4 * np.abs(rng.standard_normal((1797, 8, 8)))
        return images.clip(0, 16).astype(np.uint8), kinds
    found = load_digits()
    return found.images.astype(np.uint8), found.target


class Reader(tg.nn.Module):
    """A small convolutional network; it takes bytes, which its first kernel scales."""

    def __init__(self):
        nn = tg.nn
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Dropout(0.3), nn.Linear(512, 10),
        )  # fmt: skip

    def forward(self, x):
        return self.layers(x.float().unsqueeze(1) / 16 - 0.5)


def main(epochs):
    """Train, then count right answers on images that were left out."""
    images, kinds = digits()
    left_out = 6 * BATCH
    loader = tg.data.Loader(
        (images[left_out:], kinds[left_out:]), BATCH, shuffle=True, seed=1, drop_last=True
    )
    rate = tg.nn.optim.OneCycleLR(3e-3, epochs * len(loader))
    step = tg.TrainStep(Reader(), tg.nn.functional.cross_entropy, tg.nn.optim.AdamW(rate))
    for epoch in range(epochs):
        losses = [step(x, kind) for x, kind in loader]
        print(f"epoch {epoch}: loss {np.mean(losses):.3f}")

    model = tg.load(step.model(), store=False)
    others = tg.data.Loader((images[:left_out], kinds[:left_out]), BATCH)
    right = [model(x).argmax(1) == kind for x, kind in others]
    print(f"right on other images: {np.mean(right):.1%}")
    return np.mean(right) >= (LEAST if epochs >= EPOCHS else 0.5)


if __name__ == "__main__":
    sys.exit(not main(int(sys.argv[1]) if sys.argv[1:] else EPOCHS))
