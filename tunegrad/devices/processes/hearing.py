"""The last import of the process that workers are forked from: a Ctrl-C that came meanwhile is
forgotten, and what is forked from it, also by others, hears the next one.

``fork_server`` starts that process with SIGINT held back.
"""

from __future__ import annotations

import signal

__all__: list[str] = []

_handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
signal.signal(signal.SIGINT, _handler)
