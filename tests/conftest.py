"""What every test shares.

``benchmarks/`` can be imported, and an installed tunegrad wins over the checkout's. On a busy machine drawing examples
may be slow; that is no fault of a test.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

# Last on the path, not first: where the wheel is installed, the wheel is what is tested.
sys.path.append(str(Path(__file__).parents[1]))

settings.register_profile("tunegrad", suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tunegrad")
