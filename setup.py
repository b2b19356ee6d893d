"""The facts of the build that pyproject.toml can not say: configs/ ships inside the wheel as
tunegrad/configs, and the recorded spaces of the tests as tunegrad/spaces.
"""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["tunegrad", "tunegrad.*"]), "tunegrad.configs", "tunegrad.spaces",
    ],
    package_dir={"tunegrad.configs": "configs", "tunegrad.spaces": "tests/data/spaces"},
    package_data={
        "tunegrad": ["py.typed"],
        "tunegrad.configs": ["*.toml"],
        "tunegrad.spaces": ["*.jsonl.gz"],
    },
)  # fmt: skip
