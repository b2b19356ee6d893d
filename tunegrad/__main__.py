"""``python -m tunegrad``: the ``tunegrad`` command where no script is installed."""

from __future__ import annotations

from tunegrad.cli import main

if __name__ == "__main__":
    main()
