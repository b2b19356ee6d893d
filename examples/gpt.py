"""Train a small GPT on the pages of this repository, a character at a time, and let it write."""

import sys
from pathlib import Path

import numpy as np

import tunegrad as tg

F, nn = tg.nn.functional, tg.nn
STEPS, BATCH, LENGTH, WIDE, HEADS, LAYERS = 300, 16, 64, 128, 4, 2


class Text:
    """Samples of a text: so many characters, and each one's successor."""

    def __init__(self, codes):
        self.codes = codes

    def __len__(self):
        return len(self.codes) - LENGTH

    def __getitem__(self, i):
        return self.codes[i : i + LENGTH], self.codes[i + 1 : i + LENGTH + 1]


class Block(nn.Module):
    """Attention to what came before, then a network for each place."""

    def __init__(self):
        self.norms = [nn.LayerNorm(WIDE), nn.LayerNorm(WIDE)]
        self.qkv, self.out = nn.Linear(WIDE, 3 * WIDE), nn.Linear(WIDE, WIDE)
        self.wide = nn.Sequential(nn.Linear(WIDE, 4 * WIDE), nn.GELU(), nn.Linear(4 * WIDE, WIDE))

    def forward(self, x):
        apart = x.shape[0], LENGTH, HEADS, WIDE // HEADS
        qkv = self.qkv(self.norms[0](x)).split(WIDE, 2)
        q, k, v = (part.reshape(*apart).transpose(1, 2) for part in qkv)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(*x.shape))
        return x + self.wide(self.norms[1](x))


class GPT(nn.Module):
    """Characters (batch, LENGTH) to scores of the next one (batch, LENGTH, kinds)."""

    def __init__(self, kinds):
        self.tokens, self.places = nn.Embedding(kinds, WIDE), nn.Embedding(LENGTH, WIDE)
        self.blocks = [Block() for _ in range(LAYERS)]
        self.norm, self.head = nn.LayerNorm(WIDE), nn.Linear(WIDE, kinds)

    def forward(self, x):
        x = self.tokens(x) + self.places(tg.arange(LENGTH))
        for block in self.blocks:
            x = tg.checkpoint(block, x)  # its inside is computed again for the gradient
        return self.head(self.norm(x))


def loss(scores, following):
    """The mean surprise at each next character."""
    return F.cross_entropy(scores.reshape(-1, scores.shape[2]), following.reshape(-1))


def main(steps):
    """Train on random places of the text; write on from the beginning of sixteen of them."""
    folder = Path(__file__).parents[1]
    pages = [folder / "README.md", *sorted((folder / "docs").glob("*.md"))]
    letters, codes = np.unique(
        np.array(list("\n".join(p.read_text(encoding="utf-8") for p in pages))),
        return_inverse=True,
    )
    loader = tg.data.Loader(Text(codes), BATCH, shuffle=True, seed=1)
    rate = nn.optim.WarmupLR(nn.optim.CosineLR(3e-3, STEPS), 20)
    step = tg.TrainStep(GPT(len(letters)), loss, nn.optim.AdamW(rate), clip_norm=1.0)
    losses = []
    for _, (x, following) in zip(range(steps), loader, strict=False):
        losses.append(step(x, following))
        if len(losses) % 50 == 0:
            print(f"step {len(losses)}: loss {np.mean(losses[-50:]):.3f}")

    model, rng = tg.load(step.model(), store=False), np.random.default_rng(0)
    x, written = next(iter(loader))[0], []
    for _ in range(200 if steps >= STEPS else 20):
        scores = model(x)[:, -1] / 0.8
        drawn = (scores + rng.gumbel(size=scores.shape)).argmax(1)  # by their probabilities
        written.append(letters[drawn[0]])
        x = np.concatenate([x[:, 1:], drawn[:, None]], 1)
    print("".join(written))
    return np.mean(losses[-50:]) < (2.6 if steps >= STEPS else 2 * np.log(len(letters)))


if __name__ == "__main__":
    sys.exit(not main(int(sys.argv[1]) if sys.argv[1:] else STEPS))
