"""What ONNX's schemas allow an operator, held against what is there: the types of its operands, and
the attributes of every version from opset 7 on.

node test of an operator, one operand in another type   -->   it loads and runs, or why not
nodes of all opsets, attributes that note who asks      -->   those that nothing ever reads
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

import numpy as np

from tunegrad.errors import TunegradError
from tunegrad.frontend.onnx import OPERATORS

from .onnx_cases import cases

__all__ = ["UNREAD", "refused_types", "unread_attributes"]

UNREAD: Mapping[tuple[str, str], str] = {
    ("ConcatFromSequence", "axis"): "of no node test; tests/unit/test_onnx_sequences.py has it",
    ("ConcatFromSequence", "new_axis"): "of no node test; tests/unit/test_onnx_sequences.py has it",
    ("Dropout", "ratio"): "of opsets before 12, which have no training_mode: elements are kept",
    ("GRU", "hidden_size"): "the weights say it",
    ("GroupNormalization", "stash_type"): "it is computed in f32 at least",
    ("LSTM", "hidden_size"): "the weights say it",
    ("Optional", "type"): "the value says it",
    ("RMSNormalization", "stash_type"): "it is computed in f32 at least",
    ("RNN", "hidden_size"): "the weights say it",
    ("SequenceEmpty", "dtype"): "its elements say it",
    ("TfIdfVectorizer", "pool_strings"): "strings are known, and counted when a model is loaded",
    ("TopK", "sorted"): "results are always sorted",
}
"""Attributes that need not be read, or are in tests of ours alone, and why."""


class _Noting(dict[str, Any]):
    """The attributes of a node, which note in ``read`` what is asked for."""

    def __init__(self, given: Mapping[str, Any], read: set[str]) -> None:
        super().__init__(given)
        self.read = read

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.read.add(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)


def _schemas() -> dict[str, list[Any]]:
    """The versions of each operator that is there, which an opset from 7 on has."""
    from onnx import defs

    found = defaultdict(list)
    for s in sorted(defs.get_all_schemas_with_history(), key=lambda s: s.since_version):
        if s.domain in ("", "ai.onnx") and s.name in OPERATORS:
            found[s.name].append(s)
    return {
        name: [s for s, after in zip(versions, [*versions[1:], None], strict=True)
               if after is None or after.since_version > 7]
        for name, versions in found.items()
    }  # fmt: skip


def unread_attributes() -> tuple[int, list[tuple[str, str]]]:
    """How many attributes the schemas have, and those that were read of no node: of ONNX's own
    tests, and of the fuzzer's, two of each operator in each of its opsets. Operators that are
    their definitions read what these do.
    """
    from tests import onnx_fuzzer
    from tests.onnx_backend import outcome
    from tunegrad.frontend.onnx import building
    from tunegrad.frontend.onnx.backend import TunegradBackend
    from tunegrad.frontend.onnx.node import defined

    read, right = defaultdict[str, set[str]](set), building._attributes  # noqa: SLF001

    def noted(build: Any, place: str, node: Any, scope: Any) -> _Noting:
        return _Noting(right(build, place, node, scope), read[node.op_type])

    # Nor is a node computed by onnx's own evaluator, which reads what it likes.
    with (
        mock.patch.object(building, "_attributes", noted),
        mock.patch.object(building, "_folded", return_value=None),
    ):
        for c in cases().values():
            outcome(c)
        for case in onnx_fuzzer.nodes_of_all():
            onnx_fuzzer.ours_of(case)
        for node, *operands in _drawing():
            TunegradBackend.run_node(node, operands)
    said = {
        (op, a)
        for op, versions in _schemas().items()
        for s in versions
        for a in s.attributes
        if OPERATORS[op] is not defined
    }
    return len(said), sorted((op, a) for op, a in said if a not in read[op])


def _drawing() -> Iterator[tuple[Any, ...]]:
    """Nodes, and their operands, of operators that are of no test, since they draw."""
    from onnx import helper

    for op in ("RandomNormal", "RandomUniform"):
        yield (helper.make_node(op, [], ["y"], shape=[2]),)
    for op in ("Multinomial", "RandomNormalLike"):
        yield helper.make_node(op, ["x"], ["y"]), np.zeros((2, 2), np.float32)


def refused_types() -> tuple[int, list[tuple[str, str, str]]]:
    """How often an operand was given a type, and (operator, type, why) of what is refused."""
    tried, refused = 0, []
    for op, model, values, kind in _typed():
        tried += 1
        try:
            _run(model, values)
        except TunegradError as error:
            refused.append((op, kind, str(error).rpartition("): ")[2]))
    return tried, sorted(set(refused))


def _typed() -> Iterator[tuple[str, Any, dict[str, Any], str]]:
    """The first test of each operator, with each type for each operand that may have several."""
    from onnx import TensorProto, defs, helper, numpy_helper

    seen = set[str]()
    for c in cases().values():
        node, *more = c.model.graph.node
        op, opset = node.op_type, max(o.version for o in c.model.opset_import)
        plain = all(isinstance(v, np.ndarray | TensorProto) for v in c.data_sets[0][0])
        # BitCast's types go in pairs of one width.
        if more or op in {*seen, "BitCast"} or op not in OPERATORS or opset < 7 or not plain:
            continue
        seen.add(op)
        given = {
            i.name: numpy_helper.to_array(v) if isinstance(v, TensorProto) else v
            for i, v in zip(c.model.graph.input, c.data_sets[0][0], strict=True)
        }
        schema = defs.get_schema(op, opset, "")
        for t in schema.type_constraints:
            last = len(schema.inputs) - 1
            mine = [
                name for at, name in enumerate(node.input)
                if name and schema.inputs[min(at, last)].type_str == t.type_param_str
            ]  # fmt: skip
            for kind in [k for k in sorted(t.allowed_type_strs) if k in _KINDS and mine]:
                values = {n: _as(v, _KINDS[kind]) if n in mine else v for n, v in given.items()}
                graph = helper.make_graph(
                    [node],
                    op,
                    [
                        helper.make_tensor_value_info(
                            n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape
                        )
                        for n, v in values.items()
                    ],
                    [helper.make_empty_tensor_value_info(o) for o in node.output if o],
                )
                model = helper.make_model(graph, opset_imports=c.model.opset_import)
                yield op, model, values, kind[len("tensor(") : -1]


_KINDS = {
    "tensor(bfloat16)": "bfloat16", "tensor(bool)": "bool", "tensor(double)": "float64",
    "tensor(float)": "float32", "tensor(float16)": "float16",
    **{f"tensor({n})": n for b in (8, 16, 32, 64) for n in (f"int{b}", f"uint{b}")},
}  # fmt: skip


def _as(array: Any, kind: str) -> Any:
    """An array in another type, within what that has."""
    if kind == "bfloat16":
        import ml_dtypes

        return np.asarray(array).astype(np.float32).astype(ml_dtypes.bfloat16)
    if kind.startswith("uint"):
        array = np.abs(array)
    if "int" in kind:
        array = np.clip(np.nan_to_num(np.asarray(array, np.float64)), -100, 100)
    return np.asarray(array).astype(kind)


def _run(model: Any, values: Mapping[str, Any]) -> None:
    """Raises TunegradError where the backend does."""
    from onnx import checker

    from tunegrad.frontend.onnx.backend import TunegradBackend

    with mock.patch.object(checker, "check_model"):  # of what has no type
        rep = TunegradBackend.prepare(model, threads=1, store=False)
    rep.run(list(values.values()))
