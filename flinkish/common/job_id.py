"""JobID: 128 random bits, shown as 32 hexadecimal digits as Flink shows them."""

from __future__ import annotations

import re
import uuid

from flinkish.errors import ArgumentValueError

__all__ = ["JobID"]

_HEX = re.compile(r"[0-9a-f]{32}")


class JobID:
    """The identifier of a job; two are equal if their digits are.

    Args:
        hex_digits: 32 hexadecimal digits; None for a new random identifier.

    Raises:
        ValueError: ``hex_digits`` is anything else.
    """

    __slots__ = ("_hex",)

    def __init__(self, hex_digits: str | None = None) -> None:
        text = uuid.uuid4().hex if hex_digits is None else hex_digits.lower()
        if not _HEX.fullmatch(text):
            raise ArgumentValueError(
                f"the job id is {hex_digits!r}",
                where="JobID",
                expected="32 hexadecimal digits",
                hint="leave it out for a new one",
            )
        self._hex = text

    @staticmethod
    def from_hex_string(hex_digits: str) -> JobID:
        return JobID(hex_digits)

    def to_hex_string(self) -> str:
        return self._hex

    def __str__(self) -> str:
        return self._hex

    def __repr__(self) -> str:
        return f"JobID('{self._hex}')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobID) and self._hex == other._hex

    def __hash__(self) -> int:
        return hash(self._hex)
