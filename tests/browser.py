"""A headless Chromium that is spoken to through pipes: pages as they are seen, and what they say.

The DevTools protocol over ``--remote-debugging-pipe``: JSON messages, each ended by a zero byte.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

from tunegrad.cli.html import Watched, server_of

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip

_START = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def chromium() -> str | None:
    """Where a Chromium is, if anywhere."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for n in names if (path := shutil.which(n))), None)


@dataclass
class Browser:
    """An open browser; ``said`` are its events so far."""

    read: int
    write: int
    session: str = ""
    number: int = 0
    rest: bytes = b""
    said: list[dict[str, Any]] = field(default_factory=list)

    def call(self, method: str, within_s: float = 60.0, /, **params: Any) -> dict[str, Any]:
        """The answer to a call."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + within_s
        while True:
            found = self._next(end)
            if found.get("id") == self.number:
                assert "error" not in found, f"{method}: {found}"
                return dict(found["result"])
            self.said.append(found)

    def _next(self, end: float) -> dict[str, Any]:
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.read], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser did not answer"
            part = os.read(self.read, 1 << 20)
            assert part, "the browser ended"
            self.rest += part
        message, _, self.rest = self.rest.partition(b"\0")
        return dict(json.loads(message))

    def open(self, page: Path | str, width: int, dark: bool, height: int = 900) -> None:
        """Show a file, or what an address serves, at a width, light or dark."""
        if not self.session:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            found = self.call("Target.attachToTarget", targetId=target, flatten=True)
            self.session = str(found["sessionId"])
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
            deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        address = page if isinstance(page, str) else page.resolve().as_uri()
        self.value("window.before = true")
        self.call("Page.navigate", url=address)
        self.wait("!window.before && document.readyState == 'complete'")

    def value(self, expression: str) -> Any:
        """What an expression is in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, expression: str, within_s: float = 60.0) -> None:
        """Until an expression is true in the page."""
        end = time.monotonic() + within_s
        while not self.value(expression):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.05)

    def press(self, key: str) -> None:
        """Press and leave a key."""
        text = {"Enter": "\r"}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=text,
                windowsVirtualKeyCode={"Enter": 13, "ArrowRight": 39}[key])  # fmt: skip

    def violations(self, axe: Path) -> list[str]:
        """Names of the rules that axe finds broken in the page, all of it unfolded, with a place of
        each; ``axe`` is its script.
        """
        self.value("for (const d of document.querySelectorAll('details')) d.open = true")
        self.value(f"{axe.read_text(encoding='utf-8')}; 0")
        self.value("window.found = null; axe.run().then(r => { window.found = r.violations; }); 0")
        self.wait("window.found !== null", 240.0)
        return list(self.value("window.found.map(v => `${v.id}: ${v.nodes[0].html}`)"))

    def picture(self, to: Path, height: int = 0, top: int = 0) -> None:
        """Write a picture of the page, or of the part that begins at ``top``."""
        width = self.value("innerWidth")
        tall = height or self.value("document.documentElement.scrollHeight")
        clip = {"x": 0, "y": top, "width": width, "height": tall, "scale": 1}
        found = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        to.write_bytes(base64.b64decode(found["data"]))

    def complaints(self) -> list[str]:
        """What the console and the log hold."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(e["params"]) for e in self.said if e.get("method") in kinds]

    def requests(self) -> list[str]:
        """Every address that was asked for."""
        asked = [e for e in self.said if e.get("method") == "Network.requestWillBeSent"]
        return [e["params"]["request"]["url"] for e in asked]


@contextmanager
def served(watched: Watched) -> Iterator[int]:
    """The port of this machine at which a watched page is served, until the end of the block."""
    with server_of(watched, 0) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def browser(path: str, folder: Path) -> Iterator[Browser]:
    """A browser with an empty profile in ``folder``, which must be new."""
    (folder / "profile").mkdir(parents=True)
    out_read, out_write = os.pipe()
    in_read, in_write = os.pipe()
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (in_read, out_write)]
    for fd in (in_read, out_write):
        os.close(fd)
    command = [sys.executable, "-c", _START, *map(str, high), path, *FLAGS,
        f"--user-data-dir={folder / 'profile'}", "about:blank"]  # fmt: skip
    with (folder / "stderr").open("wb") as log:
        process = subprocess.Popen(
            command, pass_fds=high, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    for fd in high:
        os.close(fd)
    try:
        yield Browser(out_read, in_write)
    finally:
        os.close(in_write)  # the browser ends with its pipe
        try:
            process.wait(10.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(out_read)
