"""Modules of modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..tensor import Tensor
from .module import Layer, Module, Parameter

__all__ = ["Identity", "ModuleDict", "ModuleList", "ParameterList", "Sequential"]


class Identity(Layer):
    """Returns its input; arguments are ignored."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        del args, kwargs

    def forward(self, x: Tensor) -> Tensor:
        """Its input."""
        return x


class ModuleDict(Module):
    """Modules by name."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        self.items_: dict[str, Module] = dict(modules or {})

    def named(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """Every parameter and its dotted name."""
        for name, module in self.items_.items():
            yield from module.named(f"{prefix}{name}.")

    def __getitem__(self, name: str) -> Any:
        return self.items_[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self.items_[name] = module

    def __len__(self) -> int:
        return len(self.items_)

    def __iter__(self) -> Iterator[str]:
        return iter(self.items_)

    def items(self) -> Any:
        """Names and modules."""
        return self.items_.items()

    def keys(self) -> Any:
        """Names."""
        return self.items_.keys()

    def values(self) -> Any:
        """Modules."""
        return self.items_.values()


class ModuleList(Module):
    """Modules in a list."""

    def __init__(self, modules: Sequence[Module] = ()) -> None:
        self.list_: list[Module] = list(modules)

    def named(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """Every parameter and its dotted name: the place in the list, then the module's own."""
        for i, module in enumerate(self.list_):
            yield from module.named(f"{prefix}{i}.")

    def append(self, module: Module) -> None:
        """One more at the end."""
        self.list_.append(module)

    def extend(self, modules: Sequence[Module]) -> None:
        """Several more at the end."""
        self.list_.extend(modules)

    def __getitem__(self, index: Any) -> Any:
        return self.list_[index]

    def __len__(self) -> int:
        return len(self.list_)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.list_)


class ParameterList(Module):
    """Parameters in a list."""

    def __init__(self, values: Sequence[Parameter] = ()) -> None:
        self.list_ = list(values)

    def named(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """Every parameter and its place."""
        return ((f"{prefix}{i}", p) for i, p in enumerate(self.list_))

    def append(self, value: Parameter) -> None:
        """One more at the end."""
        self.list_.append(value)

    def __getitem__(self, index: int) -> Parameter:
        return self.list_[index]

    def __len__(self) -> int:
        return len(self.list_)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.list_)


class Sequential(Module):
    """Modules one after the other: several arguments, or a dict of them by name."""

    def __init__(self, *modules: Module | Mapping[str, Module]) -> None:
        first = modules[0] if len(modules) == 1 else None
        named = first if isinstance(first, Mapping) else {str(i): m for i, m in enumerate(modules)}
        self.steps: dict[str, Any] = dict(named)

    def named(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """Every parameter and its dotted name: the module's place or name, then its own."""
        for name, module in self.steps.items():
            yield from module.named(f"{prefix}{name}.")

    def forward(self, x: Any) -> Any:
        """The last module's output."""
        for module in self.steps.values():
            x = module(x)
        return x

    def __getitem__(self, index: int | slice) -> Any:
        listed = list(self.steps.values())[index]
        return Sequential(*listed) if isinstance(listed, list) else listed

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.steps.values())
