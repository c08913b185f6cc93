"""The declaration of one state of a program: name, kind and types. Tasks report it, savepoints carry it, and readers of
savepoints give their columns these types."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class DeclaredState:
    """The declaration of one state of one operator. Types are Spark SQL types as DDL text; None: not declared, or a
    type that Spark does not have (pickled values)."""

    uid: str
    name: str
    #: value, list, map, reducing, aggregating, operator, broadcast, operator_list or operator_union_list
    kind: str
    #: type of the value, of the list's elements or of the map's values; of aggregating state, of its accumulator
    value_type: str | None = None
    #: type of the map's keys
    map_key_type: str | None = None
    #: type of the key that the stream is keyed by
    key_type: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The declaration as a dict of plain values."""
        return asdict(self)

    @staticmethod
    def from_json(content: dict[str, Any]) -> DeclaredState:
        """The inverse of `to_json`."""
        return DeclaredState(**content)
