"""The stored state of one subtask without its header: its keyed state and its operator states, each of them encoded."""

from __future__ import annotations

import struct
from typing import NamedTuple

_LENGTH = struct.Struct("<Q")


class TaskBody(NamedTuple):
    """The encoded keyed state and the encoded operator states of a subtask; None: there are none.

    >>> TaskBody.decode(TaskBody(b"keyed", None).encode())
    TaskBody(keyed=b'keyed', operators=None)
    """

    keyed: bytes | None
    operators: bytes | None

    def encode(self) -> bytes | None:
        """Both parts as one binary value; None when both are None."""
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
