"""Preloaded into the workers that tests fork: what the machine can do is measured in fewer samples.

Each session of tuning measures it; sessions of tests are short, and none asks for its third digit.
"""

from __future__ import annotations

from tunegrad.devices.cpu import peak

peak._SAMPLES, peak._DRAM_BYTES = 2, 4 << 20
