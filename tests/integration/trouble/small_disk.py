"""A file system of a few megabytes that can be filled up or made read-only. Only root may mount one."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SIZE_MB = 8
_BLOCK = b"x" * 4096


class SmallDisk:
    """Mounted at ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Leave not a single block."""
        descriptor = os.open(self._ballast, os.O_WRONLY | os.O_CREAT)
        with contextlib.suppress(OSError):
            while True:
                os.write(descriptor, _BLOCK)
        os.close(descriptor)

    def make_space(self) -> None:
        self._ballast.unlink()

    def remount(self, how: str) -> None:
        """``ro`` or ``rw``."""
        subprocess.run(["mount", "-o", f"remount,{how}", str(self.path)], check=True)


@contextmanager
def small_disk(path: Path) -> Iterator[SmallDisk]:
    """Mounted within; skips the test where this may not be done."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted: {done.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        # lazily: a file that is still open must not keep the test from ending
        subprocess.run(["umount", "-l", str(path)], check=True)
