"""What every test shares: ``benchmarks/`` can be imported, and an installed tunegrad wins over the checkout's."""

from __future__ import annotations

import sys
from pathlib import Path

# Last on the path, not first: where the wheel is installed, the wheel is what is tested.
sys.path.append(str(Path(__file__).parents[1]))
