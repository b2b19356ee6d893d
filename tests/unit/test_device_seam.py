"""Above ``devices/`` nobody names a device, a team of threads, LLVM or an address; beside the
devices nobody does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tunegrad.devices import known

PACKAGE = Path(__file__).parents[2] / "tunegrad"
DEVICES = PACKAGE / "devices"

OWN = ("cpu", "opencl", "cuda", "null", "reference")
"""Folders of one device each."""

BELOW = ("ir", "opts", "render", "devices")
"""What devices are made of; forms and text may say what they are for."""

WORDS = (
    "Team", "BufferTable", "Executable", "compile_llvm", "render_llvm", "workspace_bytes", "llvm",
    "llvmlite",
    "pyopencl", "ctypes", "address", "barrier_address", "host_target", "OPT_LEVEL",
)  # fmt: skip
"""Names of one device's affairs."""

ALLOWED = {
    ("torch.py", "cpu"): "where PyTorch says that a tensor lies",
    ("frontend/torch/graph.py", "cpu"): "where PyTorch says that a tensor lies",
    ("config/environment.py", "cpu"): "the device that is meant where none is named",
    ("explain/machine.py", "opencl"): "the extra of a package",
    ("tuning/machine.py", "cpu"): "a folder of Linux",
    ("tuning/fleet/cluster.py", "address"): "where a cluster, or a machine, is reached",
    ("tuning/fleet/dispatch.py", "address"): "where a machine is reached",
}


def modules(*, beside: bool) -> list[Path]:
    """Modules above ``devices/``; or those that stand in it beside the devices."""
    if beside:
        found = DEVICES.rglob("*.py")
        return sorted(
            p for p in found if p.relative_to(DEVICES).parts[0] not in (*OWN, "host", "registry.py")
        )
    found = PACKAGE.rglob("*.py")
    return sorted(p for p in found if p.relative_to(PACKAGE).parts[0] not in BELOW)


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, identifier) of names, attributes, arguments and imported modules; not of words in
    texts.
    """
    for node in ast.walk(tree):
        match node:
            case (
                ast.Name(id=name)
                | ast.Attribute(attr=name)
                | ast.keyword(arg=str(name))
                | ast.arg(arg=name)
            ):
                yield node.lineno, name
            case ast.Import(names=aliases):
                yield from ((node.lineno, part) for a in aliases for part in a.name.split("."))
            case ast.ImportFrom(module=module, names=aliases):
                yield from ((node.lineno, part) for part in (module or "").split("."))
                yield from ((node.lineno, a.name) for a in aliases)
            case _:
                pass


def literals(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, text) of texts that are no documentation."""
    documentation = {
        id(n.body[0].value)
        for n in ast.walk(tree)
        if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef)
        and n.body
        and isinstance(n.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in documentation
        ):
            yield node.lineno, node.value


def device_imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Imports of one device's folder, or of the host's native code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tunegrad.devices."):
            part = (node.module or "").split(".")[2]
            if part in (*OWN, "host"):
                yield node.lineno, node.module or ""


SPELLED = re.compile(rf"\b({'|'.join((*WORDS, *known()))})\b|tunegrad\.devices\.")
"""Somewhere in each file that breaks a rule: others are not parsed."""


def faults_of(path):
    """What a module above the devices names of one."""
    where = str(path.relative_to(PACKAGE))
    text = path.read_text(encoding="utf-8")
    if SPELLED.search(text) is None:
        return []
    tree = ast.parse(text)
    faults = [
        f"{where}:{line}: {n}"
        for line, n in names(tree)
        if n in WORDS and (where, n) not in ALLOWED
    ]
    faults += [f"{where}:{line}: {module}" for line, module in device_imports(tree)]
    said = [(line, text) for line, text in literals(tree) if text in known()]
    faults += [f"{where}:{line}: {text!r}" for line, text in said if (where, text) not in ALLOWED]
    return faults


def test_nothing_above_devices_or_beside_them_names_one():
    faults = [fault for path in modules(beside=False) for fault in faults_of(path)]
    faults += [
        f"{path.relative_to(DEVICES)}:{line}: {m}"
        for path in modules(beside=True)
        for line, m in device_imports(ast.parse(path.read_text(encoding="utf-8")))
        if m.split(".")[2] != "host"
    ]
    assert not faults, "\n".join(faults)


def test_the_rule_sees_what_it_forbids():
    text = (
        "from tunegrad.devices.cpu.engine import CpuEngine\nx.address = compile_llvm\nif d "
        "!= 'cpu': pass"
    )
    tree = ast.parse(text)
    assert {n for _, n in names(tree)} & set(WORDS) == {"address", "compile_llvm"}
    assert [m for _, m in device_imports(tree)] == ["tunegrad.devices.cpu.engine"]
    assert "cpu" in {t for _, t in literals(tree)}
