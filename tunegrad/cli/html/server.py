"""The server of ``tunegrad watch``: the report of a session while it runs, for a browser on this
machine.

browser   GET / every two seconds, with the version that it has   -->   304, or the page again
server    the store's files changed?   -->   its rows are read, as any reader does

Nothing is written. Only this machine reaches the server, and only by its own name: a page of
another host, whose name was made to mean this machine, is refused.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import field
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from tunegrad.errors import ConfigError, UserError
from tunegrad.lazy import dataclass
from tunegrad.tuning import gather

from .page import judgement, notice_html, report_html
from .sections import no_code

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer

LOOPBACK = "127.0.0.1"

_SHARE, _LONGEST_S = 0.05, 20.0
"""The part of one CPU that making pages may take, as a search measures beside it; and the longest
that a page waits for that.
"""


@dataclass(slots=True)
class Watched:
    """The newest page of a session (of the last one, without ``session``), for several threads."""

    store: Path
    session: str = ""
    clock: Callable[[], float] = time.monotonic
    used: Callable[[], float] = time.thread_time
    version: str = ""
    page: bytes = b""
    _next_s: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    def newest(self) -> tuple[str, bytes]:
        """A version and its page: the one that is there until the store has changed, and time has
        gone by in proportion to the CPU time that it took to make.
        """
        with self._lock:
            begun_s, version = self.used(), self._stamp()
            if version != self.version and self.clock() >= self._next_s:
                self.version, self.page = version, self._made(version)
                waits_s = min(_LONGEST_S, (self.used() - begun_s) / _SHARE)
                self._next_s = self.clock() + waits_s
            return self.version, self.page

    def _stamp(self) -> str:
        """The version of the store's files."""
        found = []
        for suffix in ("", "-wal"):
            with suppress(OSError):
                at = os.stat(f"{self.store}{suffix}")  # noqa: PTH116  the path is text with a suffix
                found.append(f"{at.st_ino} {at.st_size} {at.st_mtime_ns}")
        return blake2b(" ".join(found).encode(), digest_size=8).hexdigest()

    def _made(self, version: str) -> bytes:
        from tunegrad.explain import code_of

        try:
            found = gather(self.store, self.session or "last", (), judgement)
        except UserError as error:
            return notice_html(str(error), version).encode()
        ended = found.pages[0].line.seconds is not None
        return report_html(found, code_of if ended else no_code, version).encode()


def server_of(watched: Watched, port: int) -> ThreadingHTTPServer:
    """A server of the page on the loopback address. Raises ConfigError for a port that is taken."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        """Answers GET of the page; whatever else is asked for is refused."""

        def do_GET(self) -> None:
            """The page, or 304 where the browser has it."""
            at = self.connection.getsockname()[1]
            if self.headers.get("Host") not in (f"{LOOPBACK}:{at}", f"localhost:{at}"):
                self.send_error(403, "another host")
                return
            if self.path != "/":
                self.send_error(404)
                return
            version, page = watched.newest()
            known = self.headers.get("If-None-Match") == version
            self.send_response(304 if known else 200)
            self.send_header("ETag", version)
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("X-Frame-Options", "DENY")
            self.send_header("Cross-Origin-Resource-Policy", "same-origin")
            if not known:
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            if not known:
                with suppress(ConnectionError):
                    self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            """Nothing: the terminal belongs to the user."""

    try:
        return ThreadingHTTPServer((LOOPBACK, port), Handler)
    except OSError as error:
        raise ConfigError(
            f"watch: port {port} can not be used: {error.strerror}; 0 is any free one"
        ) from error
