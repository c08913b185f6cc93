"""The functions of joins that users write; Java Flink's names and methods (PyFlink has no joins of streams)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from flinkish.core.functions import Function

if TYPE_CHECKING:
    from flinkish.core.output_tag import OutputTag


class JoinFunction(Function):
    """One result for each pair of records of the same key and window."""

    @abstractmethod
    def join(self, first: Any, second: Any) -> Any:
        """The result; never None."""


class FlatJoinFunction(Function):
    """Any number of results for each pair of records of the same key and window."""

    @abstractmethod
    def join(self, first: Any, second: Any) -> Iterable[Any] | None:
        """The results."""


class CoGroupFunction(Function):
    """Evaluated over the records of both streams of one key and window; one of the streams may have none."""

    @abstractmethod
    def co_group(self, first: list[Any], second: list[Any]) -> Iterable[Any] | None:
        """The results."""


class ProcessJoinFunction(Function):
    """Evaluated over each pair of records that an interval join finds."""

    class Context(ABC):
        """The times of the pair. Only valid during the call."""

        @abstractmethod
        def get_left_timestamp(self) -> int:
            """Timestamp of the left record in ms."""

        @abstractmethod
        def get_right_timestamp(self) -> int:
            """Timestamp of the right record in ms."""

        @abstractmethod
        def get_timestamp(self) -> int:
            """Timestamp of the results: the greater one of both."""

        @abstractmethod
        def output(self, output_tag: OutputTag, value: Any) -> None:
            """Emit to a side output, as Java's ``Context.output`` does; ``yield tag, value`` does the same."""

    @abstractmethod
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Iterable[Any] | None:
        """The results."""
