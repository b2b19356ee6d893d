"""Cumulative folds, sorting, medians and quantiles equal PyTorch's in compiled form."""

import pytest
from torch_cases import check, integers, numbers, on, optional_torch

torch = optional_torch()

ORDERED = {
    "cumsum": lambda T, F, x: (x.cumsum(1), T.cumsum(x, dim=0), T.cumprod(x, -1)),
    "cummax": lambda T, F, x: (T.cummax(x, 1), x.cummin(2)),
    "logcumsumexp": lambda T, F, x: T.logcumsumexp(x, 1),
    "sort": lambda T, F, x: (T.sort(x), x.sort(1, descending=True), x.argsort(0), T.msort(x)),
    "sorted values": lambda T, F, x: (x.sort(dim=1).values, x.sort(dim=1)[1]),
    "topk": lambda T, F, x: (T.topk(x, 2), x.topk(3, 1, largest=False)),
    "kthvalue": lambda T, F, x: (T.kthvalue(x, 2, 1), x.kthvalue(1, keepdim=True)),
    "median": lambda T, F, x: (T.median(x), T.median(x, 1), x.median(dim=2, keepdim=True)),
    "quantile": lambda T, F, x: (
        T.quantile(x, 0.3),
        T.quantile(x, 0.7, dim=1),
        T.quantile(x, 0.5, 1, True),
    ),
    "searchsorted": lambda T, F, x: (
        T.searchsorted(x.sort(-1).values, x),
        T.searchsorted(x.sort(-1)[0], x, right=True),
    ),
    "bucketize": lambda T, F, x: (
        T.bucketize(x, T.arange(-2.0, 3.0)),
        T.bucketize(x, T.arange(-2.0, 3.0), right=True),
    ),
    "diff": lambda T, F, x: (T.diff(x), x.diff(n=2, dim=1)),
    "cov": lambda T, F, x: (T.cov(x[0]), T.cov(x[0, 0]), T.corrcoef(x[0])),
}


@pytest.mark.parametrize("shape", [(2, 6, 4), (1, 40, 3)], ids=str)
def test_ordering_equals_torch(shape):
    check(on(ORDERED, [numbers(*shape)]), torch, close=1e-4)


def test_quantiles_of_several_parts_equal_torch():
    x = numbers(5, 7)

    def quantiles(T, F, x):
        return x.quantile(torch.tensor([0.1, 0.9]) if T is torch else (0.1, 0.9), 0)

    check({"quantile": (quantiles, [x])}, torch)


def test_ordering_of_integers_equals_torch():
    cases = {
        "sums": lambda T, F, x: (x.cumsum(0), T.cumprod(x % 3, 0)),
        "order": lambda T, F, x: (x.sort(stable=True), x.argmax(1), x.median()),
    }
    check(on(cases, [integers(4, 6)]), torch)
