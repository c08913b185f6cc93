"""TypeSerializer: how a window or a value of the user's own kind is written to bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from io import BytesIO
from typing import Generic, TypeVar

__all__ = ["TypeSerializer"]

T = TypeVar("T")

void = b""


class TypeSerializer(ABC, Generic[T]):
    """Writes and reads elements of one type. Serializers of one class with the same attributes are equal."""

    @abstractmethod
    def serialize(self, element: T, stream: BytesIO) -> None:
        """Write ``element`` to ``stream``."""

    @abstractmethod
    def deserialize(self, stream: BytesIO) -> T:
        """Read one element from ``stream``."""

    def to_bytes(self, element: T) -> bytes:
        """The element alone, as bytes."""
        stream = BytesIO()
        self.serialize(element, stream)
        return stream.getvalue()

    def from_bytes(self, data: bytes) -> T:
        """The inverse of :meth:`to_bytes`."""
        return self.deserialize(BytesIO(data))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeSerializer) and type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class VoidNamespaceSerializer(TypeSerializer[bytes]):
    """For state without a namespace: nothing is written."""

    def serialize(self, element: bytes, stream: BytesIO) -> None:
        return None

    def deserialize(self, stream: BytesIO) -> bytes:
        return void
