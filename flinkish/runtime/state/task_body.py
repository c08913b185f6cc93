"""The stored state of one subtask besides its header: its keyed state and the states of its operators, each encoded."""

from __future__ import annotations

import struct
from typing import NamedTuple

_LENGTH = struct.Struct("<Q")


class TaskBody(NamedTuple):
    """Both parts as they were encoded; None: there is nothing.

    >>> TaskBody.decode(TaskBody(b"keyed", None).encode())
    TaskBody(keyed=b'keyed', operators=None)
    """

    keyed: bytes | None
    operators: bytes | None

    def encode(self) -> bytes | None:
        """As one binary value; None when both are empty."""
        if self.keyed is None and self.operators is None:
            return None
        operators = self.operators or b""
        return b"".join((_LENGTH.pack(len(operators)), operators, self.keyed or b""))

    @staticmethod
    def decode(data: bytes | None) -> TaskBody:
        """The inverse of `encode`."""
        if not data:
            return TaskBody(None, None)
        (length,) = _LENGTH.unpack_from(data)
        end = _LENGTH.size + length
        return TaskBody(data[end:] or None, data[_LENGTH.size : end] or None)
