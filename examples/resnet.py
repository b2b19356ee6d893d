"""Train a residual network on images of 32 x 32 bytes, stop in the middle of an epoch, go on."""

import sys

import numpy as np

import tunegrad as tg

F, nn = tg.nn.functional, tg.nn
EPOCHS, BATCH, COUNT = 6, 32, 512


def drawn(count, seed):
    """Return images (count, 3, 32, 32) of uint8: waves of ten directions, under noise."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 10, count)
    turn = kinds[:, None, None] * np.pi / 10
    y, x = np.mgrid[:32, :32]
    wave = np.sin(0.7 * (x * np.cos(turn) + y * np.sin(turn)) + 6 * rng.random((count, 1, 1)))
    noisy = 128 + 50 * wave[:, None] + 30 * rng.standard_normal((count, 3, 32, 32))
    return noisy.clip(0, 255).astype(np.uint8), kinds


class Block(nn.Module):
    """Two convolutions beside a way around them."""

    def __init__(self, inner, outer, stride):
        self.first = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norms = [nn.BatchNorm2d(outer), nn.BatchNorm2d(outer)]
        self.around = nn.Conv2d(inner, outer, 1, stride, bias=False) if stride > 1 else None

    def forward(self, x):
        y = self.norms[1](self.second(self.norms[0](self.first(x)).relu()))
        return (y + (self.around(x) if self.around else x)).relu()


class ResNet(nn.Module):
    """Three blocks of 16, 32 and 64 channels."""

    def __init__(self):
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.blocks = [Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2)]
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        x = self.stem((x.float() - 128) / 64).relu()  # bytes are read by the first kernel
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


def main(epochs):
    """Train; after some batches, save all and go on from the file, as another process would."""
    images, kinds = drawn(COUNT, 1)
    settings = {"shuffle": True, "seed": 3, "drop_last": True}
    loader = tg.data.Loader((images, kinds), BATCH, **settings)
    rate = nn.optim.CosineLR(0.1, EPOCHS * len(loader))
    step = tg.TrainStep(ResNet(), F.cross_entropy, nn.optim.SGD(rate, momentum=0.9))
    for at, (x, kind) in enumerate(loader):
        step(x, kind)
        if at == 4:
            break
    step.save("resnet.safetensors", {"loader": loader.state()})

    more = step.load("resnet.safetensors")
    loader = tg.data.Loader((images, kinds), BATCH, **settings, state=more["loader"])
    losses = []
    for epoch in range(loader.epoch, epochs):
        losses.append(np.mean([step(x, kind) for x, kind in loader]))
        print(f"epoch {epoch}: loss {losses[-1]:.3f}")

    model = tg.load(step.model(), store=False)
    others = tg.data.Loader(drawn(4 * BATCH, 2), BATCH)
    right = np.mean([model(x).argmax(1) == kind for x, kind in others])
    print(f"right on other images: {right:.1%}")
    return losses[-1] < losses[0] and (right > 0.9 or epochs < EPOCHS)


if __name__ == "__main__":
    sys.exit(not main(int(sys.argv[1]) if sys.argv[1:] else EPOCHS))
