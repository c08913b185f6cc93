"""TypeSerializer: how a window, or a value of a user's own type, is written to bytes and read back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from io import BytesIO
from typing import Generic, TypeVar

__all__ = ["TypeSerializer"]

T = TypeVar("T")

void = b""


class TypeSerializer(ABC, Generic[T]):
    """Writes and reads elements of one type. Serializers are equal if they have the same class and equal attributes."""

    @abstractmethod
    def serialize(self, element: T, stream: BytesIO) -> None:
        """Write ``element`` to ``stream``."""

    @abstractmethod
    def deserialize(self, stream: BytesIO) -> T:
        """Read one element from ``stream``."""

    def to_bytes(self, element: T) -> bytes:
        """The bytes of one element."""
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
    """The serializer of the void namespace, for state without one: it writes nothing."""

    def serialize(self, element: bytes, stream: BytesIO) -> None:
        return None

    def deserialize(self, stream: BytesIO) -> bytes:
        return void
