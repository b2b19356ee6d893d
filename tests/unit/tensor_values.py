"""The value of a tensor by the graph's numpy meaning, for the tests of the front end."""

import numpy as np

from tunegrad.frontend import joined
from tunegrad.ir.evaluate import evaluate
from tunegrad.ir.graph import GraphOp, topological


def value(tensor):
    assert evaluate((tensor.node,), tensor.bindings)[0].shape == tensor.shape
    return evaluate((tensor.node,), tensor.bindings)[0]


def values(tensors, inputs=None):
    return evaluate(tuple(t.node for t in tensors), {**joined(tensors), **(inputs or {})})


def same(tensor, expected, tolerance=1e-6, dtype=None):
    """Equal shape, dtype and values, NaN equal to NaN."""
    got = value(tensor)
    expected = np.asarray(expected)
    assert got.shape == expected.shape
    assert got.dtype == (expected.dtype if dtype is None else np.dtype(dtype))
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def nodes(tensor, op):
    return [n for n in topological((tensor.node,)) if n.op is op]


def numbers(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def reduces(tensor):
    return len(nodes(tensor, GraphOp.REDUCE))
