"""What a program says of one of its states: name, kind and types. Tasks report it, savepoints carry it, and readers of
savepoints give their columns these types."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class DeclaredState:
    """One state of one operator. Types are Spark's, as DDL text; None: not declared, or one that Spark does not have
    (pickled values)."""

    uid: str
    name: str
    #: value, list, map, reducing, aggregating, operator, broadcast
    kind: str
    #: of the value, the list's elements or the map's values; of an aggregating state: its accumulator
    value_type: str | None = None
    #: of the map's keys
    map_key_type: str | None = None
    #: of the key that the stream is keyed by
    key_type: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As a dict of plain values."""
        return asdict(self)

    @staticmethod
    def from_json(content: dict[str, Any]) -> DeclaredState:
        """The inverse of `to_json`."""
        return DeclaredState(**content)
