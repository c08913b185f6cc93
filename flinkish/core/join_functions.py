"""The functions of joins that users write, with Java Flink's names and methods (PyFlink has no joins of streams)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from flinkish.core.functions import Function

if TYPE_CHECKING:
    from flinkish.core.output_tag import OutputTag


class JoinFunction(Function):
    """Joins each pair of records of the same key and window to one result."""

    @abstractmethod
    def join(self, first: Any, second: Any) -> Any:
        """The result for a pair of records; never None."""


class FlatJoinFunction(Function):
    """Joins each pair of records of the same key and window to any number of results."""

    @abstractmethod
    def join(self, first: Any, second: Any) -> Iterable[Any] | None:
        """The results for a pair of records."""


class CoGroupFunction(Function):
    """Evaluated over the records of both streams for one key and window; one of the streams may have none."""

    @abstractmethod
    def co_group(self, first: list[Any], second: list[Any]) -> Iterable[Any] | None:
        """The results for the records of the first and of the second stream."""


class ProcessJoinFunction(Function):
    """Evaluated over each pair of records that an interval join finds."""

    class Context(ABC):
        """The timestamps of the pair, and side outputs; only valid during the call."""

        @abstractmethod
        def get_left_timestamp(self) -> int:
            """The timestamp of the left record in ms."""

        @abstractmethod
        def get_right_timestamp(self) -> int:
            """The timestamp of the right record in ms."""

        @abstractmethod
        def get_timestamp(self) -> int:
            """The timestamp of the results in ms: the greater one of both."""

        @abstractmethod
        def output(self, output_tag: OutputTag, value: Any) -> None:
            """Emit to a side output, as Java's ``Context.output`` does; ``yield tag, value`` does the same."""

    @abstractmethod
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Iterable[Any] | None:
        """The results for a pair of records."""
