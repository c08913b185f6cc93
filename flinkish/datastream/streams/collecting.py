"""``execute_and_collect`` and ``show``: run a job with one more sink, which returns its records to the program."""

from __future__ import annotations

import uuid
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from flinkish.common.text import PRINT_ROW_SEPARATOR, text_writer
from flinkish.connectors.results import NAMED, CollectSink, register_collector, unregister_collector
from flinkish.datastream.streams.closeable_iterator import CloseableIterator, CollectedRows
from flinkish.datastream.streams.sinks import add_sink
from flinkish.errors import ArgumentValueError

if TYPE_CHECKING:
    from flinkish.datastream.streams.data_stream import DataStream


def execute_and_collect(stream: DataStream, job_name: str | None, limit: int | None) -> CloseableIterator | list[Any]:
    """See `DataStream.execute_and_collect`."""
    if limit is not None and limit <= 0:
        raise ArgumentValueError(
            f"execute_and_collect with the limit {limit}",
            where="DataStream.execute_and_collect()",
            expected="Limit must be greater than 0",
            hint="leave it out to get all records through an iterator",
        )
    rows = CollectedRows()
    # the sink finds its collector by this name, since the job's id is not known before the job runs
    collector = uuid.uuid4().hex
    # one subtask, as in Flink: the records of several would come back in the order in which they happen to commit
    add_sink(stream, CollectSink(collector)).set_parallelism(1)
    register_collector(collector, NAMED, rows.put)
    forget = partial(unregister_collector, collector, NAMED)
    try:
        client = stream.get_execution_environment().execute_async(job_name or "DataStream Collect")
    except BaseException:
        forget()
        raise
    results = CloseableIterator(rows, client, forget)
    if limit is None:
        return results
    with results:
        return list(islice(results, limit))


def show(stream: DataStream, count: int) -> None:
    """See `DataStream.show`."""
    with stream.get_execution_environment()._apart():
        records = list(execute_and_collect(stream, "DataStream Show", count))
    text = text_writer(stream._type, PRINT_ROW_SEPARATOR)
    for record in records:
        print(text(record))
    if len(records) == count:
        print(f"the first {count} records; show({10 * count}) shows more")
