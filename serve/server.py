"""Serve saved models: POST /NAME of an .npy array gives an .npy array; GET /metrics."""

import io
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import numpy as np

import tunegrad as tg
from tunegrad.errors import UserError

MODELS = {}


class Handler(BaseHTTPRequestHandler):
    """Answer by the models of the command line."""

    timeout = 60  # seconds that a request may take to arrive

    def do_GET(self):
        """Give what Prometheus reads."""
        first, *others = MODELS.values()
        found = self.path == "/metrics"
        self.reply(200 if found else 404, first.metrics(*others).encode() if found else b"")

    def do_POST(self):
        """Run the model of the path on the array that was sent."""
        try:
            sent = self.rfile.read(int(self.headers["Content-Length"]))
            given = np.lib.format.read_array(io.BytesIO(sent), allow_pickle=False)
            answer = io.BytesIO()
            np.save(answer, MODELS[unquote(self.path[1:])](given))
            self.reply(200, answer.getvalue())
        except (KeyError, MemoryError, TypeError, ValueError, UserError) as error:
            self.reply(400, str(error).encode())

    def reply(self, code, body):
        """Send an answer."""
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    MODELS.update((m.name, m) for m in map(tg.load, sys.argv[1:]))
    for model in MODELS.values():
        model.metrics()  # calls count from here on
    ThreadingHTTPServer(("", 8000), Handler).serve_forever()
