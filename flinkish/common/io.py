"""InputFormat: what ``StreamExecutionEnvironment.create_input`` takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

__all__ = ["InputFormat"]


class InputFormat(ABC):
    """Bounded input. Formats of flinkish know a source that reads it; there are no formats written in Java."""

    @abstractmethod
    def _source(self) -> Any:
        """The source."""
