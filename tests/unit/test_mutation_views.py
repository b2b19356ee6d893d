"""Writes to tensors and views mean what they mean in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tests.gradient_cases import CASES
from tests.gradients import drawn
from tests.mutation_fuzzer import Program, agrees, shrunk

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

RESULTS = [
    # views
    "a[...]", "a[None, 1]", "a[:, ::2, -1]", "a.T", "a.mT", "a.t() if a.dim() < 3 else a[0].t()",
    "a.reshape(6, 4)", "a.view(-1)", "a.ravel()", "a.flatten(1)", "a.unflatten(1, (1, 3))",
    "a.unsqueeze(1)", "a[:1].squeeze()", "a.transpose(0, 2)", "a.permute(2, 0, 1)",
    "a.expand_as(a)",
    "a.movedim(0, 1)", "a.swapaxes(0, 1)", "a.narrow(1, 1, 2)", "a.select(2, 1)", "a.unbind()[0]",
    "a.split(1)[1]", "a.chunk(2, 2)[0]", "T.tensor_split(a, 2)[0]", "a.diagonal(1, 1, 2)",
    "a.unfold(2, 2, 2)", "a.detach()", "a.contiguous()", "T.broadcast_to(a, (2, 3, 4))", "+a",
    "a.float()", "a.to(a.dtype)", "a.type_as(a)", "a.cpu()", "T.as_tensor(a)", "T.atleast_1d(a)",
    "T.broadcast_tensors(a)[0]", "T.positive(a)",
    # copies
    "a.clone()", "a.mT.reshape(-1)", "a.mT.contiguous()", "a[:, 1:].ravel()", "a[[0, 1]]",
    "a[:, [0]]", "a.flip(0)", "a.rot90(4)", "a.roll(0, 0)", "a.repeat(1, 1, 1)", "a.tile(1)",
    "T.cat([a])", "a.round()", "a.trunc()", "a.clamp(-99, 99)", "a.tril(9)", "a[:1].sum(0)",
    "a[:1].amax(0)", "a[:1].cumsum(0)", "a[:1].sort(0)[0]", "a[0, 0, 0].sum()", "F.pad(a, (0, 0))",
    "F.avg_pool1d(a, 1)", "T.einsum('ijk->ijk', a)", "a * 1", "a.double()",
    "T.tensor(a)", "a.masked_fill(a > 99, 0)", "T.where(a > -99, a, 0)", "a.index_select(0, i)",
    "T.diag(a[0, :, :3])", "a.gather(0, T.zeros_like(a).long())", "F.dropout(a, 0.5, False)",
]  # fmt: skip


@pytest.mark.parametrize("line", RESULTS)
@pytest.mark.parametrize("kind", ["float32", "int64"])
@pytest.mark.filterwarnings("ignore")
def test_write_to_a_result_reaches_the_operand_as_in_pytorch(line: str, kind: str) -> None:
    torch = pytest.importorskip("torch")
    seen = []
    for lib in (torch, tg):
        a = lib.tensor(X.astype(kind))
        names = {"T": lib, "F": lib.nn.functional, "a": a, "i": lib.tensor([0, 1])}
        y = eval(line, names)  # noqa: S307
        y.fill_(50)
        seen.append(a.numpy().copy())
        a += 1
        seen.append(y.numpy().copy())
    assert np.array_equal(seen[0], seen[2])
    assert np.array_equal(seen[1], seen[3])


PROGRAMS = {
    "slices that overlap": "v0[0, 1:] = fresh(v0[0, :-1])\nv0[:, :2] += fresh(v0[:, 1:])",
    "a transpose": "v1 = v0[0, :, :3]\nv1 += fresh(v1.T)\nv0[1, :, :3] -= fresh(v1)",
    "views of views": "v1 = v0[:, 1:].mT\nv2 = v1[0].reshape(2, 4)\nv3 = v1[1:, ::2]\nv3 += 3",
    "rows by a list": "v0[[1, 0], [-1, 2]] = 7\nv0[:, [0, 2]] *= 2\nv0[0, :, [1, 3]] = 9",
    "a mask": "v0[v0 > 7] = 0\nv0[v0[:, :, 0] < 3] = -1\nv0.masked_fill_(v0 == 5, 2)",
    "a copy stays": "v1 = v0.mT.reshape(-1)\nv2 = v1[:3]\nv0 += 1\nv2.zero_()\nv0[0] = 1",
    "a base is replaced": "v1 = v0[1]\nv0.copy_(fresh(v0.flip(0)))\nv1 += 1\nv0.fill_(2)",
    "no elements": "v1 = v0[:, 3:]\nv1 += 1\nv0[2:] = 5\nv2 = v0.diagonal(9)\nv2 += 1",
    "no elements, moved": (
        "v1 = v0.unfold(1, 2, 2)[:, 1:]\nv2 = fresh(v1[None])\nv3 = v2.diagonal(0, 4, 0)\n"
        "w4 = v2.expand(2, 1, 2, 0, 4, 2)\nv3 += 3"
    ),
    "a diagonal": "v1 = v0.diagonal(-1, 1, 2)\nv1 += 5\nv0.diagonal(0, 0, 2)[1] = 8",
    "windows": "v1 = v0.unfold(2, 1, 3)\nv1 += 4\nv2 = v0.flatten().unfold(0, 2, 5)\nv2 *= 2",
    "one more dimension": "v0[0] = fresh(v0[1][None])\nv0[:, 0, 0] = fresh(v0[0, 0, :1])",
}


@pytest.mark.parametrize("looked", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_of_writes_is_pytorchs(name: str, looked: bool) -> None:
    pytest.importorskip("torch")
    program = Program({"v0": X.astype(np.int64)}, tuple(PROGRAMS[name].split("\n")))
    assert agrees(program, looked) == ""


IN_PLACE = [
    "add_(2)", "add_(b, alpha=3)", "sub_(b)", "mul_(b)", "div_(4)", "pow_(2)", "remainder_(3)",
    "neg_()", "abs_()", "sqrt_()", "exp_()", "relu_()", "sigmoid_()", "tanh_()", "clamp_(2, 5)",
    "clamp_min_(3)", "copy_(b)", "fill_(3)", "zero_()", "lerp_(b, 0.25)", "addcmul_(b, b, value=2)",
    "addcdiv_(b, b + 1)", "masked_fill_(b > 1, 4)", "index_fill_(1, i, 9)", "tril_()", "triu_(1)",
    "index_add_(1, i, b.expand(2, 4)[:, :2])", "scatter_(1, i.expand(2, 2), 5)", "gt_(b)",
    "floor_divide_(2)", "logical_not_()", "reciprocal_()", "round_()", "floor_()", "eq_(2)",
]  # fmt: skip


@pytest.mark.parametrize("call", IN_PLACE)
def test_method_in_place_is_pytorchs(call: str) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for lib in (torch, tg):
        a = lib.tensor(np.linspace(0.5, 4, 8, dtype=np.float32).reshape(2, 4))
        view = a[:, 1:]
        names = {"a": a, "b": lib.tensor([1.0, 2, 0, 4]), "i": lib.tensor([0, 2])}
        assert eval(f"a.{call} is a", names)  # noqa: S307
        found.append((a.numpy(), view.numpy()))
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-6)


def test_every_operator_with_equals_changes_the_tensor_itself() -> None:
    x = tg.tensor([5, 6, 7])
    same, view, before = x, x[1:], x + 0
    x += 3
    x -= 1
    x *= 2
    x //= 3
    x **= 2
    x %= 7
    x |= 8
    x &= 12
    x ^= 1
    x <<= 2
    x >>= 1
    y = np.arange(5, 8)
    y = (((((y + 3 - 1) * 2) // 3) ** 2 % 7 | 8) & 12 ^ 1) << 2 >> 1
    assert same is x
    assert x.tolist() == y.tolist()
    assert view.tolist() == y[1:].tolist()
    assert before.tolist() == [5, 6, 7]


REFUSED: list[tuple[str, str, type[Exception], str]] = [
    ("float32", "x.add_(T.ones(4, 3, 4))", ValueError, r"result has shape \(4, 3, 4\)|broadcast"),
    ("float32", "x[0].add_(x)", RuntimeError, r"the tensor that is changed has \(3, 4\)"),
    ("int64", "x.add_(1.5)", RuntimeError, "a result of f32 can not be kept in i64"),
    ("int64", "x.div_(2)", RuntimeError, "a result of f32 can not be kept in i64"),
    ("float32", "x[:1].expand(2, 3, 4).add_(1)", RuntimeError, r"several elements are one; clone"),
    ("float32", "x[0, 0, 0] = T.ones(2)", ValueError, r"shape \(2,\) does not broadcast to \(\)"),
    ("float32", "x[3] = 1", IndexError, "index 3 is out of range for extent 2"),
    ("float32", "x[[0, 2]] = 1", IndexError, "index 2 is out of range"),
    ("float32", "x.fill_(T.ones(2))", RuntimeError, r"a value of shape \(2,\)"),
]


@pytest.mark.parametrize(("kind", "line", "error", "said"), REFUSED)
def test_write_that_pytorch_refuses_is_refused(
    kind: str, line: str, error: type[Exception], said: str
) -> None:
    x = tg.tensor(X.astype(kind))
    with pytest.raises(error, match=said):
        exec(line, {"x": x, "T": tg})  # noqa: S102
    assert np.array_equal(x.numpy(), X)


def test_assign_takes_shape_and_dtype_as_they_are() -> None:
    x = tg.zeros(2)
    view = x[:1]
    assert x.assign(tg.ones(2)) is x
    assert view.tolist() == [1.0]
    with pytest.raises(RuntimeError, match=r"assign: i64\[2\] to f32\[2\]"):
        x.assign([1, 2])
    with pytest.raises(RuntimeError, match=r"assign: f32\[1\] to f32\[2\]"):
        x.assign(tg.ones(1))


def test_slice_with_a_negative_step_is_a_view_as_in_numpy() -> None:
    x, y = tg.tensor(X), X.copy()
    x[:, ::-2][0] = 7
    y[:, ::-2][0] = 7
    assert np.array_equal(x.numpy(), y)


def test_write_of_a_slice_is_one_kernel() -> None:
    def written(x: Any, y: Any) -> Any:
        z = x * 2
        z[1:, ::2] += y
        z.mT[0] *= 3
        return z

    program = tg.compile(written, X[0], X[0, 1:, ::2], store=False)
    assert len(program.profile_s(1)) == 1


def test_added_transpose_is_the_sum_of_both() -> None:
    a = tg.tensor(X[0, :, :3])
    a += a.T
    assert np.array_equal(a.numpy(), X[0, :, :3] + X[0, :, :3].T)


def test_write_that_is_lost_is_found_and_cut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from tunegrad.frontend.aliasing import Aliased

    lines = ("v1 = v0[1:]", "v2 = fresh(v0 + 1)", "v0 += 2", "v2 *= 3")
    program = Program({"v0": X.astype(np.int64)}, lines)
    assert agrees(program) == ""
    monkeypatch.setattr(Aliased, "_renew", lambda view: setattr(view, "seen", view.root.node))
    assert shrunk(program, lambda p: bool(agrees(p))).lines == ("v1 = v0[1:]", "v0 += 2")


@pytest.mark.filterwarnings("ignore")
def test_results_of_every_family_are_views_where_pytorchs_are() -> None:
    torch = pytest.importorskip("torch")
    compared = 0
    for line, shapes, *_ in CASES:
        arrays = drawn(shapes, line)
        changed = []
        for lib in (torch, tg):
            given = [lib.tensor(a) for a in arrays]
            names = {**vars(lib.nn.functional), **dict(zip("abcde", given, strict=False))}
            names |= {"T": lib, "F": lib.nn.functional, "i": lib.tensor([0, 1, 2, 1, 0, 2])}
            try:
                eval(line, names).fill_(50)  # noqa: S307
            except (RuntimeError, AttributeError):  # elements that are one, several results
                changed.append(None)
                continue
            pairs = zip(given, arrays, strict=True)
            changed.append([not _same(x, a) for x, a in pairs])
        if None not in changed:
            assert changed[0] == changed[1], line
            compared += 1
    assert compared > 250


def _same(x: Any, a: Any) -> bool:
    """True if a tensor still has these elements; ours is its own array until it is written to."""
    known = x.node.op == "input" if isinstance(x, tg.Tensor) else False
    return known or np.array_equal(x.numpy(), a)
