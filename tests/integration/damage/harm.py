"""What can happen to a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def flip(path: Path) -> None:
    """One bit of a byte in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x04
    path.write_bytes(data)


def truncate(path: Path) -> None:
    """The second half is gone."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    """All of it is gone but the name."""
    path.write_bytes(b"")


HARMS: dict[str, Callable[[Path], None]] = {
    "flipped": flip,
    "truncated": truncate,
    "deleted": Path.unlink,
    "emptied": empty,
}
