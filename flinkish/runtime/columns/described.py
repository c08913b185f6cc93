"""What the planner says of the operators on columns: plain data that travels with the job graph.

An operator never evaluates an expression of SQL itself: what it needs is a column of its input, which a `Calc` before
it has computed. So keys, arguments and filters are names of columns here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


class Evaluator(Protocol):
    """Computes a column of the columns of a batch. It can be pickled by reference to `flinkish`."""

    def __call__(self, columns: pa.RecordBatch, now_ms: int) -> pa.Array | pa.Scalar:
        """The values of the rows, or the one value that all of them have. ``now_ms``: the epoch's processing time."""


@dataclass(frozen=True)
class AggregateCall:
    """A call of an aggregate function.

    Args:
        function: COUNT, SUM, AVG, MIN, MAX, FIRST_VALUE, LAST_VALUE, STDDEV_POP, STDDEV_SAMP, VAR_POP, VAR_SAMP or
            LISTAGG.
        name: the column of the result, and the field of the state, such as ``SUM(amount)``.
        column: the column of the argument; None: COUNT(*).
        result: the type of the result.
        distinct: whether equal values count once.
        condition: a BOOLEAN column: rows in which it is not true do not count; None: all count.
        separator: of LISTAGG.
    """

    function: str
    name: str
    column: str | None
    result: pa.DataType
    distinct: bool = False
    condition: str | None = None
    separator: str = ","


@dataclass(frozen=True)
class WindowAssigner:
    """The windows of a table. Behind it, rows have the columns ``window_start``, ``window_end`` and ``window_time`` of
    their window, as numbers of milliseconds.

    Args:
        kind: TUMBLE, HOP, CUMULATE or SESSION.
        size_ms: the size (of CUMULATE: the greatest one; of SESSION: the gap).
        step_ms: the slide of HOP, the step of CUMULATE; 0: none.
        offset_ms: by which windows are shifted.
        time: the column of the event time, a TIMESTAMP; None: processing time.
        zone: the time zone in whose local time windows begin, if the time is a TIMESTAMP_LTZ; None: the time is local.
    """

    kind: str
    size_ms: int
    step_ms: int = 0
    offset_ms: int = 0
    time: str | None = None
    zone: str | None = None
