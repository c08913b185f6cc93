"""The windows of rows: TUMBLE, HOP and CUMULATE as table functions, which repeat each row for each of its windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flinkish.core.column_batch import ColumnBatch, epoch_ms
from flinkish.runtime.columns.described import WindowAssigner
from flinkish.runtime.job.operator import OperatorFactoryBase, StreamOperator, Values

Times = npt.NDArray[np.int64]


def local_ms(moments: pa.Array, zone: str | None) -> Times:
    """The milliseconds of local time of a column of moments without nulls. ``zone``: of a TIMESTAMP_LTZ."""
    if zone is not None:
        moments = pc.local_timestamp(moments.cast(pa.timestamp(moments.type.unit, zone)))
    return epoch_ms(moments)


def windows_of(window: WindowAssigner, times_ms: Times) -> tuple[Times, Times, Times]:
    """The windows of rows with these times: the positions of the rows, and the start and the end of each window, in
    the order in which Flink assigns them: of HOP the latest comes first, of CUMULATE the shortest."""
    size, step, rows = window.size_ms, window.step_ms or window.size_ms, np.arange(len(times_ms))
    if window.kind == "CUMULATE":
        starts = times_ms - (times_ms - window.offset_ms) % size
        first = (times_ms - starts) // step + 1
        counts = size // step - first + 1
        positions = np.repeat(rows, counts)
        ends = starts[positions] + (first[positions] + _numbers(counts)) * step
        return positions, starts[positions], ends
    last = times_ms - (times_ms - window.offset_ms) % step
    # windows that began after time - size
    counts = np.maximum((last - (times_ms - size) + step - 1) // step, 0)
    positions = np.repeat(rows, counts)
    starts = last[positions] - _numbers(counts) * step
    return positions, starts, starts + size


def _numbers(counts: Times) -> Times:
    """0, 1, ... for each count.

    >>> _numbers(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    begins = np.cumsum(counts) - counts
    numbers: Times = np.arange(int(counts.sum())) - np.repeat(begins, counts)
    return numbers


class ExpandOperator(StreamOperator):
    """Repeats each row for each of its windows, whose columns follow its own. Rows without a time have no window."""

    def __init__(self, window: WindowAssigner) -> None:
        self._window = window

    def process_batch(self, values: Values, timestamps: list[int] | None, input_index: int = 0) -> None:
        """Emit the rows of a batch, with their windows."""
        for part in values.parts():
            self._expand(part)

    def _expand(self, batch: ColumnBatch) -> None:
        window, columns = self._window, batch.columns
        if window.time is None:
            now = pa.array([self.context.epoch.processing_time_ms]).cast(pa.timestamp("ms", "UTC"))
            times_ms = np.repeat(local_ms(now, window.zone or "UTC"), len(batch))
        else:
            moments = columns.column(window.time)
            if moments.null_count:
                batch = batch.take(np.flatnonzero(moments.is_valid().to_numpy(zero_copy_only=False)))
                columns, moments = batch.columns, batch.columns.column(window.time)
            times_ms = local_ms(moments, window.zone)
        positions, starts, ends = windows_of(window, times_ms)
        if not len(positions):
            return
        found = batch if len(positions) == len(batch) else batch.take(positions)
        arrays = [*found.columns.columns, pa.array(starts), pa.array(ends), pa.array(ends - 1)]
        names = [*columns.schema.names, "window_start", "window_end", "window_time"]
        self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(arrays, names=names), found.kinds), None)


@dataclass(frozen=True)
class ExpandFactory(OperatorFactoryBase):
    """Makes the operators of a window table function that no aggregate follows."""

    window: WindowAssigner
    reads_timestamps: bool = False

    def create(self) -> ExpandOperator:
        """A fresh operator."""
        return ExpandOperator(self.window)
