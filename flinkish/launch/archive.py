"""Makes the zip of flinkish that ``--py-files`` ships to the executors.

Rule: the name of the archive contains a hash of its content. So the same sources are zipped once, two drivers that
start together cannot disturb each other, and a running job keeps the archive that it started with.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
import zipfile
from pathlib import Path

# archives of other contents are removed after this time, when no job can be about to start with them
_KEEP_S = 24 * 3600.0
_SUFFIXES = ("", ".py", ".typed", ".conf", ".properties", ".xml")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # no time stamps of files: the same sources give the same bytes


def archive(package: Path, cache: Path) -> Path:
    """Zip the Python package at ``package`` into the directory ``cache``, unless an archive of the same content exists
    there, and return the path of the archive."""
    sources = sorted(path for path in package.rglob("*") if path.is_file() and path.suffix in _SUFFIXES)
    contents = [(str(path.relative_to(package.parent)), path.read_bytes()) for path in sources]
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
