"""The versions that matter, without importing what they are of."""

from __future__ import annotations

import os
import platform
import re
import shutil
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from flinkish import __version__

#: What is shown -> the packages that may be it.
_PACKAGES = {
    "PySpark": ("pyspark", "pyspark-client", "databricks-connect"),
    "Delta Lake": ("delta-spark",),
    "pyarrow": ("pyarrow",),
    "pandas": ("pandas",),
    "uvicorn": ("uvicorn",),
}


def versions() -> dict[str, str | None]:
    """Name -> version; None: it is not there."""
    found = {"flinkish": __version__, "Python": platform.python_version()}
    packages = {shown: next(filter(None, map(_version, names)), None) for shown, names in _PACKAGES.items()}
    return {**found, **packages, "Java": _java()}


def versions_text() -> str:
    """The versions, one in a line."""
    return "\n".join(f"{name} {version or 'is not installed'}" for name, version in versions().items())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _java() -> str | None:
    """The version of the Java that would be started, as the file beside it says, which takes no start of a JVM."""
    home, command = os.environ.get("JAVA_HOME"), shutil.which("java")
    if not home and command is not None:
        home = str(Path(command).resolve().parents[1])
    with suppress(OSError):
        found = re.search(r'^JAVA_VERSION="([^"]*)"', Path(home or "/nowhere", "release").read_text(), re.MULTILINE)
        return found[1] if found is not None else "of an unknown version"
    return None if command is None and not home else "of an unknown version"
