"""The checksum file that Hadoop keeps beside each file on a local file system.

    <directory>/.<name>.crc    "crc", a zero byte, the length of a block (4 bytes), then the CRC-32 of each block

Where it is there, Spark refuses to read a file that was damaged since.
"""

from __future__ import annotations

import os
import struct
import zlib

_BLOCK_BYTES = 512


def checksum_path(path: str) -> str:
    """The path of the checksum file of a file.

    >>> checksum_path("/data/part-0.parquet")
    '/data/.part-0.parquet.crc'
    """
    parent, name = os.path.split(path)
    return os.path.join(parent, f".{name}.crc")


def write_checksums(path: str) -> None:
    """Create the checksum file of a local file."""
    with open(path, "rb") as file, open(checksum_path(path), "wb") as checksums:
        checksums.write(b"crc\0" + struct.pack(">i", _BLOCK_BYTES))
        while block := file.read(_BLOCK_BYTES):
            checksums.write(struct.pack(">I", zlib.crc32(block)))
