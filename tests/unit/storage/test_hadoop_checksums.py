"""The checksum files of Hadoop's local file system."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from flinkish.storage.sealed import checksum_path, write_checksums


@pytest.mark.parametrize(("length", "blocks"), [(0, 0), (1, 1), (512, 1), (513, 2), (5_000, 10)])
def test_there_is_a_checksum_for_each_block_of_512_bytes(tmp_path: Path, length: int, blocks: int) -> None:
    data = bytes(number % 251 for number in range(length))
    file = tmp_path / "part-0.parquet"
    file.write_bytes(data)
    write_checksums(str(file))
    written = (tmp_path / ".part-0.parquet.crc").read_bytes()
    assert checksum_path(str(file)) == str(tmp_path / ".part-0.parquet.crc")
    assert written[:8] == b"crc\0" + struct.pack(">i", 512)
    assert struct.unpack(f">{blocks}I", written[8:]) == tuple(
        zlib.crc32(data[begin : begin + 512]) for begin in range(0, length, 512)
    )
