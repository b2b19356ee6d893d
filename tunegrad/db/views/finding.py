"""Kernels of a store by the names that users give them."""

from __future__ import annotations

from difflib import get_close_matches

from tunegrad.db.contents import Contents
from tunegrad.db.rows import key_of
from tunegrad.errors import StoreError

__all__ = ["find_kernel"]

_SHOWN = 8
_SHORTEST_PREFIX = 4


def find_kernel(contents: Contents, wanted: str) -> tuple[str, str]:
    """(text, name) of the kernel with this name, key, start of a key (four digits), or text.

    Raises StoreError: for a name or prefix of several, which lists them; for an unknown one, with
    the nearest names.
    """
    found = [k for k in contents.kernels if wanted in (k[1], k[0], k[0].strip(), key_of(k[0]))]
    if not found and len(wanted) >= _SHORTEST_PREFIX:
        found = [k for k in contents.kernels if key_of(k[0]).startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        keys = ", ".join(f"{key_of(text)} {name}".strip() for text, name in found[:_SHOWN])
        raise StoreError(
            f"kernel {wanted!r}: is the name or prefix of {len(found)}: {keys}; give one key"
        )
    names = sorted({name for _, name in contents.kernels if name})
    close = get_close_matches(wanted, names, n=_SHOWN, cutoff=0.4)
    close = [n for n in names if wanted.lower() in n.lower()][:_SHOWN] or close
    if not contents.kernels:
        advice = "the store is empty"
    elif close:
        advice = f"nearest names: {', '.join(close)}"
    else:
        some = names or [key_of(text) for text, _ in contents.kernels]
        more = f" and {len(some) - _SHOWN} more" if len(some) > _SHOWN else ""
        advice = f"it knows {', '.join(some[:_SHOWN])}{more}"
    raise StoreError(
        f"kernel {wanted!r}: unknown to this store: no name, key or text like it; {advice}"
    )
