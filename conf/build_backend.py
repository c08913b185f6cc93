"""The build backend of the package: setuptools in a copy of the checkout, so that what it leaves beside the sources
(``build/``, ``*.egg-info``) is deleted with the copy. Only an editable installation, which is a checkout in use, is
built in place."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from setuptools import build_meta

_FILES = ("LICENSE", "README.md", "pyproject.toml", "setup.cfg")

build_editable = build_meta.build_editable
get_requires_for_build_editable = build_meta.get_requires_for_build_editable
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable


@contextmanager
def _copy() -> Iterator[None]:
    """The current directory is a copy of what the package is made of, until the context ends."""
    checkout = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="flinkish-build-") as folder:
        # links are followed: the examples are those of jobs/
        shutil.copytree(checkout / "flinkish", Path(folder, "flinkish"), ignore=shutil.ignore_patterns("__pycache__"))
        for name in _FILES:
            shutil.copy(checkout / name, folder)
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(checkout)


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """What setuptools needs for a wheel."""
    with _copy():
        return build_meta.get_requires_for_build_wheel(config_settings)


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any = None) -> str:
    """Write the metadata of the wheel; returns the name of its folder."""
    target = os.path.abspath(metadata_directory)
    with _copy():
        return build_meta.prepare_metadata_for_build_wheel(target, config_settings)


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build the wheel; returns its name."""
    target = os.path.abspath(wheel_directory)
    metadata = None if metadata_directory is None else os.path.abspath(metadata_directory)
    with _copy():
        return build_meta.build_wheel(target, config_settings, metadata)
