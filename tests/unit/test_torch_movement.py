"""Movement, indexing, reductions and products equal PyTorch's in compiled form."""

import numpy as np
import pytest
from torch_cases import check, integers, numbers, on, optional_torch

torch = optional_torch()

X = numbers(2, 6, 4)

MOVED = {
    "view": lambda T, F, x: (x.view(2, 24), x.view(-1, 4), T.reshape(x, (4, 12)), x.view_as(x)),
    "flatten": lambda T, F, x: (x.flatten(), T.flatten(x, 1), x.flatten(0, 1), T.ravel(x)),
    "unflatten": lambda T, F, x: (x.unflatten(1, (2, 3)), T.unflatten(x, -2, (-1, 2))),
    "squeeze": lambda T, F, x: (x[:1].squeeze(0), x.squeeze(0), T.squeeze(x[:, :1]), x.unsqueeze(-1)),
    "transpose": lambda T, F, x: (x.transpose(0, 1), T.transpose(x, 1, 2), x.mT, x[0].t(), x[0].T),
    "permute": lambda T, F, x: (x.permute(0, 2, 1), T.permute(x, (2, 0, 1)), x.permute(dims=(1, 0, 2))),
    "movedim": lambda T, F, x: (x.movedim(0, 2), T.moveaxis(x, (0, 1), (1, 2)), x.swapaxes(0, 2)),
    "flip": lambda T, F, x: (x.flip(0), T.flip(x, (0, 2)), x.flip(1, 2), T.fliplr(x), T.flipud(x)),
    "rot90": lambda T, F, x: (T.rot90(x), T.rot90(x, 2), T.rot90(x, -1, (1, 2))),
    "roll": lambda T, F, x: (T.roll(x, 2, 1), x.roll((1, -1), (0, 2)), T.roll(x, 5), x.roll(-7, 1)),
    "expand": lambda T, F, x: (x[:1].expand(3, -1, -1), x[:, :1].expand_as(x), T.broadcast_to(x, (2, 2, 6, 4))),
    "repeat": lambda T, F, x: (x.repeat(2, 1, 3), x.repeat(2, 1, 1, 2), T.tile(x, (2,)), x.tile(2, 2)),
    "repeat_interleave": lambda T, F, x: (T.repeat_interleave(x, 2, 1), x.repeat_interleave(3)),
    "narrow": lambda T, F, x: (x.narrow(1, 2, 3), T.narrow(x, -1, 0, 2), x.select(1, -1), T.select(x, 0, 1)),
    "split": lambda T, F, x: (x.split(4, 1), T.split(x, [1, 2, 3], dim=1), T.chunk(x, 4, 1), x.chunk(3, dim=-1)),
    "tensor_split": lambda T, F, x: (T.tensor_split(x, 4, 1), T.tensor_split(x, (1, 4), 1)),
    "unbind": lambda T, F, x: (x.unbind(1), T.unbind(x)),
    "unfold": lambda T, F, x: (x.unfold(1, 3, 2), x.unfold(-1, 2, 1)),
    "diagonal": lambda T, F, x: (T.diagonal(x), x.diagonal(1, 1, 2), x.diagonal(-2, 1, 2), x.diagonal(9, 1, 2)),
    "diag": lambda T, F, x: (T.diag(x[0]), T.diag(x[0, 0]), T.diag(x[0, 0], 1), T.diag(x[0, 0], -2)),
    "diag_embed": lambda T, F, x: (T.diag_embed(x), T.diag_embed(x, 1)),
    "tril": lambda T, F, x: (x.tril(), T.triu(x), T.tril(x, 1), x.triu(-1), T.trace(x[0])),
    "cat": lambda T, F, x: (T.cat([x, x], 1), T.concat((x, x)), T.cat([x, x[:, :2]], dim=1)),
    "stack": lambda T, F, x: (T.stack([x, x], 1), T.stack((x, x), dim=-1)),
    "stacks": lambda T, F, x: (T.hstack([x, x]), T.vstack([x[0], x[1]]), T.dstack([x, x]), T.column_stack([x[0, 0], x[0, 1]])),
    "pad": lambda T, F, x: (F.pad(x, (1, 2)), F.pad(x, (1, 0, 2, 1), value=1.5), F.pad(x, (-1, 2, 0, -2))),
    "pad reflect": lambda T, F, x: (F.pad(x, (2, 1), mode="reflect"), F.pad(x, (2, 3), mode="replicate"), F.pad(x, (2, 1), mode="circular")),
    "pad 2d": lambda T, F, x: (F.pad(x[None], (1, 2, 3, 1), "reflect"), F.pad(x[None], (1, 2, 3, 1), "replicate")),
    "meshgrid": lambda T, F, x: T.meshgrid(x[0, 0], x[0, 1, :3], indexing="xy"),
    "broadcast": lambda T, F, x: T.broadcast_tensors(x, x[:1, :, :1]),
    "atleast": lambda T, F, x: (T.atleast_2d(x[0, 0]), T.atleast_3d(x[0]), T.atleast_1d(x[0, 0, 0])),
}  # fmt: skip

KEYS = {
    "basic": lambda T, F, x: (x[0], x[-1, 2], x[:, 1:4], x[..., ::2], x[None, :, None], x[0, 1, 2]),
    "lists": lambda T, F, x: (x[[1, 0, 1]], x[:, [0, 2, 5, 1]], x[..., [-1, 0]]),
    "pairs": lambda T, F, x: (x[[0, 1], [2, 3]], x[:, [0, 1], [2, 3]], x[[0, 1], :, [2, 3]]),
    "grid": lambda T, F, x: (x[:, np.array([[0], [4]]), np.array([1, 3])],),
    "with ints": lambda T, F, x: (x[0, [1, 2]], x[0, :, [1, 2]], x[[0, 1], 2:4, 1]),
    "mask": lambda T, F, x: (x[np.array([True, False])], x[:, np.arange(6) % 2 == 0]),
    "mask of two": lambda T, F, x: (x[np.arange(12).reshape(2, 6) % 3 == 0],),
}

BY_TENSOR = {
    "x[i]": lambda T, F, x, i: (x[i], x[:, i], x[..., i % 4], x[i, i]),
    "index_select": lambda T, F, x, i: (T.index_select(x, 1, i), x.index_select(0, i)),
    "take": lambda T, F, x, i: (T.take(x, i * 3),),
    "embedding": lambda T, F, x, i: (F.embedding(i, x[0]), F.embedding(i.reshape(1, -1), x[1])),
    "index_fill": lambda T, F, x, i: (x.index_fill(1, i, 7.0), T.index_add(x, 1, i, x[:, :3])),
}

FOLDED = {
    "sum": lambda T, F, x: (x.sum(), T.sum(x, 1), x.sum((0, 2)), x.sum(dim=-1, keepdim=True)),
    "sum dtype": lambda T, F, x: (x.sum(dtype=T.float64), x.sum(1, dtype=T.int64)),
    "mean": lambda T, F, x: (x.mean(), T.mean(x, (0, 1)), x.mean(2, True), x.mean(axis=1)),
    "prod": lambda T, F, x: (x.prod(), T.prod(x, 1)),
    "var": lambda T, F, x: (x.var(), T.var(x, 1), x.var(0, unbiased=False), x.var((1, 2), keepdim=True)),
    "std": lambda T, F, x: (x.std(), T.std(x, 1, correction=0), x.std(2, False), T.std_mean(x, 1)),
    "max": lambda T, F, x: (x.max(), T.max(x, 1), x.max(dim=2, keepdim=True), x.amax((0, 1)), T.aminmax(x)),
    "min": lambda T, F, x: (x.min(), T.min(x, 0), x.min(-1)[0], x.min(-1)[1], x.amin(1, True)),
    "max unpacked": lambda T, F, x: [t * 2 for t in x.max(1)],
    "arg": lambda T, F, x: (x.argmax(), T.argmax(x, 1), x.argmin(dim=-1, keepdim=True), T.argmin(x)),
    "logsumexp": lambda T, F, x: (T.logsumexp(x, 1), T.logsumexp(x * 100, (0, 2), True)),
    "norm": lambda T, F, x: (x.norm(), T.norm(x, 1), x.norm(3, 1), T.norm(x, dim=(1, 2)), x.norm(float("inf"), 1, True)),
    "any": lambda T, F, x: ((x > 2).any(), (x > -2).all(1), T.any(x > 2, dim=2, keepdim=True), T.all(x)),
    "count": lambda T, F, x: (T.count_nonzero(x > 0), T.count_nonzero(x > 0, dim=1)),
    "nan": lambda T, F, x: (T.nansum(x / (x > 0)), T.nanmean(x.where(x > 0, float("nan")), 1)),
    "normalize": lambda T, F, x: (F.normalize(x), F.normalize(x, p=1, dim=2)),
    "cosine": lambda T, F, x: (F.cosine_similarity(x, x + 1), F.cosine_similarity(x, x * x, dim=-1)),
    "cdist": lambda T, F, x: (T.cdist(x, x + 1), F.pairwise_distance(x[0], x[1])),
}  # fmt: skip

PRODUCTS = {
    "matmul": lambda T, F, a, b: (a @ b, T.matmul(a, b), a[0] @ b[0, :, 0], a[0, 0] @ b[0]),
    "mm": lambda T, F, a, b: (T.mm(a[0], b[0]), T.bmm(a, b), T.mv(a[0], b[0, :, 1])),
    "addmm": lambda T, F, a, b: (T.addmm(a[0] @ b[0], a[0], b[0], beta=0.5, alpha=2), T.baddbmm(a @ b, a, b), T.addbmm(a[0] @ b[0], a, b)),
    "addmv": lambda T, F, a, b: (T.addmv(a[0, :, 0], a[0], b[0, :, 0]), T.addr(a[0], a[0, :, 0], a[0, 0])),
    "dot": lambda T, F, a, b: (T.dot(a[0, 0], b[0, :, 0]), T.inner(a, a), T.outer(a[0, 0], b[0, 0]), T.vdot(a[0, 0], a[0, 1])),
    "tensordot": lambda T, F, a, b: (T.tensordot(a, b, dims=([2], [1])), T.tensordot(a[0], b[0], 1)),
    "kron": lambda T, F, a, b: (T.kron(a[0], b[0]),),
    "power": lambda T, F, a, b: (T.matrix_power(a[0] @ a[0].T * 0.1, 3),),
    "cross": lambda T, F, a, b: (T.cross(a[..., :3], a[..., 1:4] + 1, dim=-1),),
    "linear": lambda T, F, a, b: (F.linear(a, b[0].T), F.linear(a, b[0].T, b[0, 0])),
    "bilinear": lambda T, F, a, b: (F.bilinear(a, a + 1, T.stack([a[0].T @ a[0], a[1].T @ a[1]])),),
    "chain": lambda T, F, a, b: (T.chain_matmul(a[0], b[0]) if hasattr(T, "chain_matmul") else a @ b,),
}  # fmt: skip

EINSUMS = [
    ("ij,jk->ik", [(3, 4), (4, 5)]), ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]), ("ii->i", [(4, 4)]), ("ii", [(4, 4)]),
    ("ij->ji", [(3, 4)]), ("ij->", [(3, 4)]), ("i,j->ij", [(3,), (4,)]), ("i,i", [(3,), (3,)]),
    ("ij,ij->i", [(3, 4), (3, 4)]), ("...ij,...jk->...ik", [(2, 3, 4), (4, 5)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]), ("bij,bj->bi", [(2, 3, 4), (2, 4)]),
    ("abc,cd->abd", [(2, 3, 4), (4, 5)]), ("ijk,jil->kl", [(2, 3, 4), (3, 2, 5)]),
    ("bn,anm,bm->ba", [(2, 5), (3, 5, 4), (2, 4)]), ("b...->...b", [(2, 3, 4)]),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_movement_equals_torch(dtype):
    check(on(MOVED, [X]), torch, dtype)


def test_keys_equal_torch():
    check(on(KEYS, [X]), torch)
    check(on(BY_TENSOR, [X, integers(3, low=0, high=2)]), torch)


def test_gather_and_scatter_equal_torch():
    i = integers(2, 3, 4, low=0, high=6)
    cases = {
        "gather": lambda T, F, x, i, s: (T.gather(x, 1, i), T.take_along_dim(x, i, 1)),
        "scatter": lambda T, F, x, i, s: (x.scatter(1, i[:, :1], s[:, :1]), x.scatter(1, i[:, :1], 2.0)),
        "scatter_add": lambda T, F, x, i, s: (T.scatter_add(x, 1, i, s),),
        "scatter_reduce": lambda T, F, x, i, s: (T.scatter_reduce(x, 1, i, s, "amax"), x.scatter_reduce(1, i, s, reduce="prod")),
        **{
            f"scatter_reduce {reduce} {own}": lambda T, F, x, i, s, reduce=reduce, own=own: (
                x.scatter_reduce(1, i, s, reduce, include_self=own),
                T.scatter_reduce(i, 1, i[:, :2] % 3, i[:, :2] * 7 - 8, reduce, include_self=own),
            )
            for reduce in ("sum", "prod", "amax", "amin", "mean")
            for own in (False, True)
        },
    }  # fmt: skip
    check(on(cases, [X, i, numbers(2, 3, 4, seed=3)]), torch)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_reductions_equal_torch(dtype):
    check(on(FOLDED, [X], *([[numbers(3, 1, 5)]] if dtype == "f32" else [])), torch, dtype, 1e-4)


def test_products_equal_torch():
    check(on(PRODUCTS, [numbers(2, 3, 4), numbers(2, 4, 4)]), torch, close=1e-4)


def test_einsum_equals_torch():
    cases = {
        text: (lambda T, F, *x, text=text: T.einsum(text, *x), [numbers(*s, seed=i) for i, s in enumerate(shapes)])
        for text, shapes in EINSUMS
    }  # fmt: skip
    check(cases, torch, close=1e-4)


def test_creation_equals_torch():
    cases = {
        "zeros": lambda T, F: (T.zeros(2, 3), T.zeros((2, 3)), T.ones(2, dtype=T.int64), T.ones([1, 2])),
        "full": lambda T, F: (T.full((2, 2), 1.5), T.full((2,), 3), T.full(size=(1,), fill_value=True)),
        "like": lambda T, F: (T.zeros_like(T.ones(2)), T.ones_like(T.ones(2)), T.full_like(T.ones(2), 3)),
        "arange": lambda T, F: (T.arange(5), T.arange(1, 8, 3), T.arange(0, 1, 0.25), T.arange(5, 0, -2)),
        "linspace": lambda T, F: (T.linspace(0, 1, 5), T.linspace(-3, 7, 11), T.linspace(2, 2, 1), T.logspace(0, 2, 3)),
        "eye": lambda T, F: (T.eye(3), T.eye(2, 4)),
        "tensor": lambda T, F: (T.tensor([1.0, 2.0]), T.tensor([[1, 2]]), T.tensor(True), T.as_tensor([1.5])),
        "indices": lambda T, F: (T.tril_indices(3, 4), T.triu_indices(3, 3, 1)),
    }  # fmt: skip
    check(on(cases, []), torch)
