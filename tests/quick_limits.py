"""Preloaded into the workers that tests fork: bandwidth is measured on arrays of 4 MiB, not 32.

Each session of tuning measures it, and sessions of tests are short. As many samples as elsewhere:
the best one counts, and a limit that is too low ends a search.
"""

from __future__ import annotations

from tunegrad.devices.cpu import peak

peak._DRAM_BYTES = 4 << 20
