"""The function that makes a model: imported by its name, and called with the model's arguments.

A builder is code of the user's. Text that it prints goes to stderr, since stdout is the result of a
command.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from tunegrad.errors import ModelCodeError, ModelError, UserError
from tunegrad.forks import ForkSafeLock

from .tables import nearest
from .values import ModelSpec, Scalar

_lock = ForkSafeLock()
_stdouts: list[TextIO] = []
"""stdout as it was before the first of the builders that run now, once for each of them."""


@contextmanager
def _printing_to_stderr() -> Iterator[None]:
    """stdout is stderr until the last of the builders that run at once, in any threads, is over."""
    with _lock:
        _stdouts.append(_stdouts[0] if _stdouts else sys.stdout)
        sys.stdout = sys.stderr
    try:
        yield
    finally:
        with _lock:
            before = _stdouts.pop()
            if not _stdouts:
                sys.stdout = before


def import_builder(spec: ModelSpec, search_path: Iterable[str] = ()) -> Callable[..., Any]:
    """The function that ``spec.builder`` names, imported; the directories of ``search_path`` are
    looked in last.

    Raises ModelError naming the module or attribute that is not there, or what importing the module
    raised.
    """
    module_name, _, attribute = spec.builder.partition(":")
    extra = [entry for entry in search_path if entry not in sys.path]
    sys.path.extend(extra)
    try:
        with _printing_to_stderr():
            module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name == module_name or module_name.startswith(f"{error.name}."):
            raise ModelError(
                f"model {spec.name}: builder {spec.builder}: no module named {error.name}"
            ) from error
        raise _raised(spec, f"importing {module_name}", error) from error
    except (Exception, SystemExit) as error:  # the user's own module may raise anything
        raise _raised(spec, f"importing {module_name}", error) from error
    finally:
        for entry in extra:
            sys.path.remove(entry)
    builder = getattr(module, attribute, None)
    if not callable(builder):
        raise ModelError(
            f"model {spec.name}: builder {spec.builder}: {module_name} has no function {attribute}"
            f"{nearest(attribute, [n for n, x in vars(module).items() if callable(x)])}"
        )
    found: Callable[..., Any] = builder
    return found


def build_model(spec: ModelSpec, search_path: Iterable[str] = ()) -> Any:
    """Return what the builder gives for ``spec``'s arguments.

    Raises ModelError for an argument that it does not take.
    """
    builder = import_builder(spec, search_path)
    try:
        parameters = inspect.signature(builder).parameters
    except ValueError:
        raise ModelError(f"model {spec.name}: builder {spec.builder} is no function") from None
    arguments: dict[str, Scalar | tuple[Scalar, ...]] = dict(spec.args)
    if "batch" in parameters or spec.batch != 1:
        arguments.setdefault("batch", spec.batch)
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        for name in arguments.keys() - parameters.keys():
            raise ModelError(
                f"model {spec.name}: builder {spec.builder} takes no argument "
                f"{name!r}{nearest(name, parameters)}; "
                f"valid: {', '.join(parameters) or '(none)'}"
            )
    if missing := _missing(parameters.values(), arguments):
        raise ModelError(
            f"model {spec.name}: builder {spec.builder} needs {', '.join(missing)}; say it in "
            "[model.args] of a TOML file, or with --set NAME=VALUE; of a function of tensors, name "
            "one that returns the pair (function, example inputs)"
        )
    try:
        with _printing_to_stderr():
            return builder(**arguments)
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # the user's own code may raise anything
        raise _raised(spec, "it", error) from error


def _missing(parameters: Iterable[inspect.Parameter], given: Iterable[str]) -> list[str]:
    """Parameters without a default that nothing is given for."""
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind not in variadic and p.name not in given
    ]


def _raised(spec: ModelSpec, doing: str, error: BaseException) -> ModelCodeError:
    """The error of a user's own code, with the frames that are theirs."""
    return ModelCodeError(
        f"model {spec.name}: builder {spec.builder}: {doing} raised {type(error).__name__}: "
        f"{error}",
        users_frames(error),
    )


def users_frames(error: BaseException) -> str:
    """The part of a traceback that is in the user's files, below what builds or traces a model: not
    in tunegrad, a package or Python.
    """
    package = Path(__file__).parents[1]
    own = (str(package), str(Path(importlib.__file__).parents[1]), "<frozen")
    builds = (str(package / "frontend"), __file__)
    found = traceback.extract_tb(error.__traceback__)
    at = next((i for i, f in enumerate(found) if f.filename.startswith(builds)), len(found))
    theirs = [
        f for f in found[at:] if not (f.filename.startswith(own) or "site-packages" in f.filename)
    ]
    return "".join(traceback.format_list(theirs)).rstrip()
