"""Tests touch no network: a socket of this process that reaches for another machine fails the test
that opened it.

The ways out are methods of ``socket.socket`` and functions of its module. What processes that a
test starts do is not seen. (A hook for audits would see more, and be called at every ``id``.)
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import psutil

__all__ = ["NetworkUsed", "reached", "refuse"]

reached: list[str] = []
"""What was refused in the running test; it fails for it, even where the code under test caught
the error.
"""


class NetworkUsed(RuntimeError):
    """A test reached for another machine."""


def refuse() -> None:
    """From now on this process reaches no other machine. Twice is once."""
    for name, place in (("connect", 0), ("connect_ex", 0), ("sendto", -1), ("sendmsg", 3)):
        _guard(socket.socket, name, place, method=True)
    for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex"):
        _guard(socket, name, 0, method=False)


def _guard(owner: Any, name: str, place: int, *, method: bool) -> None:
    """Ask before a function is called whether its argument at ``place`` is this machine."""
    function = getattr(owner, name)
    if hasattr(function, "__wrapped__"):
        return

    @wraps(function)
    def guarded(*arguments: Any, **named: Any) -> Any:
        this, given = (arguments[0], arguments[1:]) if method else (None, arguments)
        if place < len(given):
            address = given[place]
        else:
            address = named.get("host" if name == "getaddrinfo" else "address")
        _refuse_others(name, this, address)
        return function(*arguments, **named)

    called: Callable[..., Any] = guarded
    setattr(owner, name, called)


def _refuse_others(name: str, this: socket.socket | None, address: Any) -> None:
    if this is not None:
        # connecting UDP sends nothing: it is how a program asks for the machine's own address
        silent = name.startswith("connect") and this.type == socket.SOCK_DGRAM
        internet = this.family in {socket.AF_INET, socket.AF_INET6}
        if silent or not internet or not isinstance(address, tuple):
            return
        address = address[0]
    host = address.decode() if isinstance(address, bytes) else address
    if host is None or (isinstance(host, str) and _is_here(host)):
        return
    reached.append(f"{name} {host}")
    raise NetworkUsed(f"{name}: {host} is another machine; tests touch no network")


@cache
def _own() -> frozenset[str]:
    """Names and addresses of this machine."""
    found = {a.address for addresses in psutil.net_if_addrs().values() for a in addresses}
    name = socket.gethostname()
    return frozenset(found | {"", "localhost", name, socket.getfqdn(name)})


def _is_here(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host in _own()
    return address.is_loopback or address.is_unspecified or host in _own()
