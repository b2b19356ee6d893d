"""The value of a tensor by the graph's numpy meaning, for the tests of the front end.

``value`` and ``same`` also compile the tensor and run it: each case of these tests holds for
generated code, too.
"""

import numpy as np

from tunegrad.frontend import bf16_values, joined
from tunegrad.ir.graph import GraphOp, topological
from tunegrad.ir.interpret.evaluate import evaluate

ROUNDINGS = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 1e-5, "f64": 1e-12}
"""How far compiled code may be from numpy, relative: two roundings of a 16-bit result, else the
sums' order.
"""


def value(tensor):
    """By numpy; what the compiled kernels give must be that, too."""
    (expected,) = evaluate((tensor.node,), tensor.bindings)
    assert expected.shape == tensor.shape
    found = tensor.numpy()
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    close = ROUNDINGS.get(tensor.dtype.name, 0.0)
    as_numbers = bf16_values if tensor.dtype.name == "bf16" else np.asarray
    np.testing.assert_allclose(
        as_numbers(found), as_numbers(expected), rtol=close, atol=close, err_msg="compiled"
    )
    return expected


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
