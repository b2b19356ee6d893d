"""Tests touch no network: a socket of this process that reaches for another machine fails the test
that opened it.

Python tells every audit hook of what a socket is about to do. What processes that a test starts do
is not seen.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
from functools import cache

import psutil

__all__ = ["NetworkUsed", "reached", "refuse"]

_EVENTS = frozenset(
    (
        "socket.connect",
        "socket.sendto",
        "socket.sendmsg",
        "socket.getaddrinfo",
        "socket.gethostbyname",
    )
)

reached: list[str] = []
"""What was refused in the running test; it fails for it, even where the code under test caught
the error.
"""


class NetworkUsed(RuntimeError):
    """A test reached for another machine."""


def refuse() -> None:
    """From now on this process reaches no other machine. A hook can not be taken back."""
    sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if event not in _EVENTS:
        return
    if event in {"socket.getaddrinfo", "socket.gethostbyname"}:
        host = arguments[0]
    else:
        this, address = arguments
        assert isinstance(this, socket.socket)
        # connecting UDP sends nothing: it is how a program asks for the machine's own address
        silent = event == "socket.connect" and this.type == socket.SOCK_DGRAM
        if (
            silent
            or this.family not in {socket.AF_INET, socket.AF_INET6}
            or not isinstance(address, tuple)
        ):
            return
        host = address[0]
    name = host.decode() if isinstance(host, bytes) else host
    if name is None or (isinstance(name, str) and _is_here(name)):
        return
    reached.append(f"{event} {name}")
    raise NetworkUsed(f"{event}: {name} is another machine; tests touch no network")


@cache
def _own() -> frozenset[str]:
    """Names and addresses of this machine."""
    found = {a.address for addresses in psutil.net_if_addrs().values() for a in addresses}
    return frozenset(found | {"", "localhost", socket.gethostname(), socket.getfqdn()})


def _is_here(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host in _own()
    return address.is_loopback or address.is_unspecified or host in _own()
