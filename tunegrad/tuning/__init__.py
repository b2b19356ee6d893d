"""The parts of a tuning session; ``tunegrad.tune`` is their front door."""
