"""What every test shares.

``benchmarks/`` can be imported, and an installed tunegrad wins over the checkout's. On a busy
machine drawing an example, and a test of it, may be slow; that is no fault of a test. No test
touches the network, and what fails now and then is on a list.
"""

from __future__ import annotations

import gc
import inspect
import os
import signal
import sys
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# Last on the path, not first: where the wheel is installed, the wheel is what is tested.
sys.path.append(str(Path(__file__).parents[1]))

SLOW_TIMEOUT_S = 900
"""Slow tests take up to two minutes of a core; on a machine that does much else they get a
fraction of one.
"""

TIMING_TIMEOUT_S = 300
"""Of tests with budgets and limits of their own: these tests try again with more of them."""

MOST_MEMORY_BYTES = 4 << 30
"""Of one process, the tests' own or one that they start."""

# A shell ignores Ctrl-C for what it starts in the background, nohup a closed terminal, and what
# ignores a signal hands that on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

settings.register_profile(
    "tunegrad",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=os.environ.get("TUNEGRAD_FUZZ_ANEW") != "1",
)
settings.load_profile("tunegrad")
# What Hypothesis draws follows from the test alone, not from numbers in the sources of whatever is
# imported by then, which it would read in every process.
providers._get_local_constants = lambda: providers._local_constants

from tests import fuzzing, no_network, peaks, quarantine  # noqa: E402  # found by the path above
from tunegrad.db import connection  # noqa: E402
from tunegrad.devices.processes.isolated import preload, start_fork_server  # noqa: E402
from tunegrad.tune.sessions import WORKER_MODULES  # noqa: E402

no_network.refuse()
# No test cuts the power: waiting for the disk took a third of the time of tests of stores.
connection.SYNCHRONOUS = "OFF"
fuzzing.fix_seed()
# One process forks the workers of all tests, whichever needs the first one: what they would import
# once each, it has.
preload((*WORKER_MODULES, "tests.quick_limits"))


def pytest_xdist_auto_num_workers() -> int:
    """Return half as many processes again as there are cores: a third of what tests take is
    waiting for processes that they started, for limits and for budgets.
    """
    return -(-len(os.sched_getaffinity(0)) * 3 // 2)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before any are deselected, so that every name of a collected file is known."""
    quarantine.apply(
        items, quarantine.entries(), whole_files=not any("::" in a for a in config.args)
    )
    for item in items:
        if item.get_closest_marker("timeout"):
            continue
        for marker, seconds in (("slow", SLOW_TIMEOUT_S), ("timing", TIMING_TIMEOUT_S)):
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.timeout(seconds))
                break


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Spare the collector what lives as long as the run: tests, modules and their parameters."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # Forms make few cycles: with Python's own 700 the collector took 2 % of what tests take.
        gc.set_threshold(50_000, 20, 20)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Put each layer's smallest tests first, after pytest-randomly shuffled and before pytest-xdist
    tells its controller the order; and start what forks the workers, in the environment of the run,
    not in that of the first test that needs one.
    """
    session.items.sort(key=lambda item: item.get_closest_marker("smoke") is None)
    if "PYTEST_XDIST_WORKER" in os.environ:
        start_fork_server()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Set generators back for fixtures of the module, as ``_draws_the_same`` does for the test."""
    _set_back(item)


@pytest.fixture(autouse=True)
def _draws_the_same(request: pytest.FixtureRequest) -> None:
    """Seed PyTorch where it is loaded, and set the generators of the test's module back: what a
    test draws is what it draws alone, in any order.
    """
    if torch := sys.modules.get("torch"):
        torch.default_generator.manual_seed(0)  # torch.manual_seed writes a traceback for each GPU
    _set_back(request.node)


def _set_back(item: pytest.Item) -> None:
    if isinstance(item, pytest.Function):
        for generator, state in _generators(item.module):
            generator.bit_generator.state = state


@cache
def _generators(module: ModuleType) -> list[tuple[np.random.Generator, Any]]:
    """Generators of a module, each with its state before the first test of the module."""
    found = [g for g in vars(module).values() if isinstance(g, np.random.Generator)]
    return [(g, g.bit_generator.state) for g in found]


@pytest.fixture(autouse=True)
def no_kept_plans(request: pytest.FixtureRequest) -> Iterator[pytest.MonkeyPatch]:
    """A test that patches something finds no plan of what is not patched, and keeps none for other
    tests; ``undo`` lets it.
    """
    with pytest.MonkeyPatch.context() as patch:
        test = request.node.obj if isinstance(request.node, pytest.Function) else None
        if test and "monkeypatch" in inspect.signature(test).parameters:
            from tunegrad.compiling import Compiler

            patch.setattr(Compiler, "plan", lambda *_: None)
            patch.setattr(Compiler, "keep", lambda *_: None)
        yield patch


@pytest.fixture(autouse=True)
def _no_network() -> Iterator[None]:
    no_network.reached.clear()
    yield
    found = [*no_network.reached]
    no_network.reached.clear()
    assert not found, f"the test reached for another machine: {', '.join(found)}"


@pytest.fixture(autouse=True)
def _bounded_memory() -> Iterator[None]:
    """Each test in which this process takes too much fails. Of processes that tests start, the
    first one that does fails its test; a later one only where it takes more than that.
    """
    peaks.forget()
    before = peaks.of_children_bytes()
    yield
    after = peaks.of_children_bytes()
    for who, peak in (("this process", peaks.own_bytes()), ("a child", after * (after > before))):
        assert peak <= MOST_MEMORY_BYTES, f"{who} took {peak >> 20} MiB"


def pytest_report_header() -> str:
    """Return the seed that repeats what the fuzzers of this run draw."""
    return f"TUNEGRAD_FUZZ_SEED={fuzzing.seed()}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the schedules of the run came to, where there were any: how many were compared, and
    how.
    """
    checks = sys.modules.get("tests.schedule_checks")
    for what, n in sorted(checks.TOTALS.items()) if checks else ():
        terminalreporter.write_line(f"schedules: {n} {what}")
