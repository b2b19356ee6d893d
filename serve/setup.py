"""The wheel of `tunegrad-serve`: packages of ../tunegrad that running a saved model may import."""

import runpy
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = (
    "cli", "data", "db", "devices.verifying", "explain", "frontend", "models", "nn", "opts.actions",
    "opts.lowering", "opts.sketches", "regress", "render", "search", "tune", "tuning",
)  # fmt: skip

setup(
    version=runpy.run_path(str(ROOT / "tunegrad" / "version.py"))["__version__"],
    packages=find_packages(
        str(ROOT),
        include=["tunegrad", "tunegrad.*"],
        exclude=[pattern for p in LEFT_OUT for pattern in (f"tunegrad.{p}", f"tunegrad.{p}.*")],
    ),
    package_dir={"tunegrad": "../tunegrad"},
    package_data={"tunegrad": ["py.typed"]},
)
