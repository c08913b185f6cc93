"""The plan of a query: a tree of resolved relations, each with its columns, their types, and how its rows change.

SQL text and the calls of the Table API make the same trees (`planner`); `translate` makes operators of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow as pa

from flinkish.common.typeinfo import RowTypeInfo, Types
from flinkish.runtime.columns.described import AggregateCall, WindowAssigner
from flinkish.table.logical_types import LogicalType

if TYPE_CHECKING:
    from flinkish.datastream import DataStream
    from flinkish.table.resolved import Node
    from flinkish.table.schema import TableDescriptor


T = TypeVar("T")


def parts_first(roots: Iterable[T], parts: Callable[[T], Sequence[T]]) -> list[T]:
    """The roots and all that they are made of, each once, behind its parts. They may be deeper than Python's stack."""
    found: dict[int, T] = {}
    work = [(root, False) for root in roots]
    while work:
        one, ready = work.pop()
        if ready:
            found.setdefault(id(one), one)
        elif id(one) not in found:
            work.append((one, True))
            work += [(part, False) for part in reversed(parts(one))]
    return list(found.values())


class TimeAttribute(Enum):
    """What the time of a column is: event time with watermarks, or processing time."""

    ROWTIME = "ROWTIME"
    PROCTIME = "PROCTIME"


class Field(NamedTuple):
    name: str
    type: LogicalType
    time: TimeAttribute | None = None

    @property
    def shown(self) -> str:
        """Its type with its time attribute, as Flink writes it."""
        return str(self.type) if self.time is None else f"{self.type} *{self.time.value}*"


def schema_of(fields: Sequence[Field]) -> pa.Schema:
    return pa.schema([(field.name, field.type.arrow) for field in fields])


def row_type_of(fields: Sequence[Field]) -> RowTypeInfo:
    return Types.ROW_NAMED([field.name for field in fields], [field.type.info for field in fields])


class Changes(Enum):
    """How the rows of a relation change: only inserts, or +I -U +U -D."""

    INSERT = "insert"
    RETRACT = "retract"


@dataclass(frozen=True)
class Relation:
    """The base of the nodes of a plan.

    Args:
        fields: its columns.
        changes: how its rows change.
        unique_key: columns of which each value is there once; () if there are none.
        bounded: whether all its sources end by themselves.
    """

    fields: tuple[Field, ...]
    changes: Changes
    unique_key: tuple[str, ...]
    bounded: bool

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return ()

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    @cached_property
    def of(self) -> dict[str, Field]:
        """The columns by their names."""
        return {field.name: field for field in self.fields}


@dataclass(frozen=True)
class OfOne(Relation):
    """The base of the nodes that are computed from one other."""

    input: Relation

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Scan(Relation):
    """A table of a connector. ``name``: of the table. Its fields are the physical columns and those of metadata
    that the query uses. A `Calc` behind it makes the computed columns, and `Watermarks` behind that the watermarks."""

    name: str
    table: TableDescriptor


@dataclass(frozen=True)
class Watermarks(OfOne):
    """WATERMARK FOR ``time`` AS ``time`` - ``delay_ms``, or AS the expression ``watermark``."""

    time: str
    delay_ms: int = 0
    watermark: Node | None = None


@dataclass(frozen=True)
class StreamScan(Relation):
    """A stream of the DataStream API, as a table. ``positions``: of the columns among the fields of its records;
    ``time``: the column that gets the timestamps of the records (None: no column does); ``key``: of a stream whose
    updates come without the row that they replace, the columns of its primary key and their positions."""

    stream: DataStream
    positions: tuple[int, ...]
    time: str | None = None
    key: tuple[tuple[Field, int], ...] = ()


@dataclass(frozen=True)
class Rows(Relation):
    """The rows of VALUES, of `from_elements` or of `from_pandas`."""

    columns: pa.Table


@dataclass(frozen=True)
class Calc(OfOne):
    """A selection and a projection: the rows of which ``condition`` is true, and a column for each field."""

    condition: Node | None
    outputs: tuple[Node, ...]


@dataclass(frozen=True)
class Expand(OfOne):
    """The rows of a window table function that no aggregate follows: a row for each of its windows, with the columns
    window_start, window_end and window_time (as those of `Aggregate`). ``partition``: the columns by which SESSION is
    partitioned."""

    window: WindowAssigner
    partition: tuple[str, ...] = ()


@dataclass(frozen=True)
class Aggregate(OfOne):
    """GROUP BY. ``keys``: columns of the input; the fields are those of the keys, then one for each call, then, with a
    window, window_start, window_end and window_time (BIGINT, milliseconds of local time; a Calc behind makes times).
    Without a window its rows change; if they do not (`Changes.INSERT`), only final ones are emitted, as in batch mode.
    """

    keys: tuple[str, ...]
    calls: tuple[AggregateCall, ...]
    window: WindowAssigner | None


@dataclass(frozen=True)
class Union(Relation):
    """UNION ALL of queries whose columns have the same names and types."""

    queries: tuple[Relation, ...]

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return self.queries


@dataclass(frozen=True)
class Limit(OfOne):
    """The first rows of a bounded relation."""

    count: int


@dataclass(frozen=True)
class Sink:
    """An INSERT: the rows of ``input``, whose columns are those that the table ``name`` stores, in their order."""

    name: str
    table: TableDescriptor
    input: Relation
    options: Any = None
