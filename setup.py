"""The fact of the build that pyproject.toml can not say: configs/ ships inside the wheel as
tunegrad/configs.
"""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["tunegrad", "tunegrad.*"]), "tunegrad.configs"],
    package_dir={"tunegrad.configs": "configs"},
    package_data={"tunegrad": ["py.typed"], "tunegrad.configs": ["*.toml"]},
)
