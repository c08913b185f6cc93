"""Makes the zip of flinkish that is shipped to the executors, from wherever this process imports flinkish.

Rule: the name of the archive contains a hash of its content. So the same sources are zipped once, two drivers that
start together cannot disturb each other, and a running job keeps the archive that it started with.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Traversable

# archives of other contents are removed after this time, when no job can be about to start with them
_KEEP_S = 24 * 3600.0
_SUFFIXES = ("", ".py", ".typed", ".conf", ".properties", ".xml")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # no time stamps of files: the same sources give the same bytes


def own_archive(cache: Path) -> Path:
    """The archive of the flinkish that this process has imported: from a folder (site-packages, a checkout), or from a
    zip that may hold other packages as well."""
    return archive(files(__name__.partition(".")[0]), cache)


def archive(package: Traversable, cache: Path) -> Path:
    """Zip a Python package into the directory ``cache``, unless an archive of the same content exists there, and return
    the path of the archive."""
    contents = sorted(_sources(package, f"{package.name}/"))
    digest = hashlib.sha256()
    for name, data in contents:
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    target = cache / f"{package.name}-{digest.hexdigest()[:16]}.zip"
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        _remove_old(cache, package.name)
        _write(target, contents)
    return target


def _sources(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sources(entry, f"{prefix}{entry.name}/")
        elif Path(entry.name).suffix in _SUFFIXES:
            yield prefix + entry.name, entry.read_bytes()


def _write(target: Path, contents: list[tuple[str, bytes]]) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, suffix=".tmp")
    with os.fdopen(descriptor, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, data in contents:
            zipped.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
    os.chmod(temporary, 0o644)  # mkstemp's 0600 would hide it from executors that run as another user
    os.replace(temporary, target)


def _remove_old(cache: Path, name: str) -> None:
    for path in cache.glob(f"{name}-*.zip"):
        if time.time() - path.stat().st_mtime > _KEEP_S:
            path.unlink(missing_ok=True)
