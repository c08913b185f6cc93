"""InputFormat: what ``StreamExecutionEnvironment.create_input`` takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from flinkish.common.no_effect import supply_names

__all__ = ["InputFormat"]

supply_names(__name__)


class InputFormat(ABC):
    """A bounded input. A format of flinkish provides the source that reads it; formats written in Java do not exist."""

    @abstractmethod
    def _source(self) -> Any:
        """The source that reads the input."""
