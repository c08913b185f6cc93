"""Enrichment by asynchronous I/O: an HTTP service is asked for the country of each user, with many calls in flight.

    ./spark-submit.sh jobs/sales_by_country.py                     # with a service in the driver's process
    COUNTRY_SERVICE=host:port ./spark-submit.sh jobs/sales_by_country.py --job-dir /shared/sales \\
        -- --master spark://host:7077

The table ``sales_by_country`` holds the sum of amounts per country. Users that the service does not know are counted
under ``unknown``. A call that the service rejects as busy (503) is retried.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import nullcontext
from functools import partial
from typing import Any

from flinkish.common import Time, Types, WatermarkStrategy
from flinkish.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    DataStream,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from flinkish.datastream.async_retry_predicates import exception_type_predicate
from flinkish.datastream.connectors import Sink
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from flinkish.examples.clicks import AMOUNT, USER_ID
from flinkish.examples.country_service import CountryService
from flinkish.examples.options import parse, run_sql, text_table

CREATE_TABLE = "CREATE TABLE IF NOT EXISTS sales_by_country (country TEXT PRIMARY KEY, amount BIGINT NOT NULL)"


class ServiceBusy(Exception):
    """The service answered 503 (busy)."""


class Countries(AsyncFunction[Any, Any]):
    """Click -> (country, amount in cents). Each subtask asks for each user once."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._countries: dict[str, str] = {}

    async def async_invoke(self, value: Any) -> list[Any]:
        user = value[USER_ID]
        if user not in self._countries:
            self._countries[user] = await self._ask(user)
        return [(self._countries[user], round(value[AMOUNT] * 100))]

    async def _ask(self, user: str) -> str:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(f"GET /users/{user} HTTP/1.0\r\n\r\n".encode())
            head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        finally:
            writer.close()
        status = head.split(" ")[1]
        if status == "503":
            raise ServiceBusy
        return str(json.loads(body)["country"]) if status == "200" else "unknown"


def build(clicks: DataStream, address: str, sink: Sink) -> None:
    """The pipeline: ``clicks`` (as in `flinkish.examples.clicks`) -> running (country, cents) -> ``sink``."""
    busy = partial(exception_type_predicate, expected_error_type=ServiceBusy)
    retries = AsyncRetryStrategy.exponential_backoff(5, 10, 1_000, 2.0, None, busy)
    sales = AsyncDataStream.unordered_wait_with_retry(
        clicks, Countries(address), Time.seconds(30), retries, 100, Types.TUPLE([Types.STRING(), Types.LONG()])
    )
    (sales.uid("countries").key_by(lambda sale: sale[0]).sum(1).uid("sum").sink_to(sink).uid("sales-by-country"))


def sales_sink(database: JdbcConnectionOptions) -> JdbcSink:
    """Keeps one row per country up to date."""
    columns = Types.ROW_NAMED(["country", "amount"], [Types.STRING(), Types.LONG()])
    return JdbcSink.upsert("sales_by_country", ["country"], columns, database)


def show(database: JdbcConnectionOptions) -> None:
    """Print the table."""
    rows = run_sql(database, "SELECT country, amount FROM sales_by_country ORDER BY amount DESC")
    print(text_table(["country", "cents"], rows))


def main() -> None:
    """Run the job and show its results."""
    options = parse("sales-by-country", "Sums the amounts of clicks per country of the user.")
    run_sql(options.database, CREATE_TABLE)
    env = StreamExecutionEnvironment.get_execution_environment(options.configuration)
    clicks = env.from_source(options.source, WatermarkStrategy.no_watermarks(), "clicks").uid("clicks")
    given = os.environ.get("COUNTRY_SERVICE")
    with CountryService() if given is None else nullcontext() as service:
        build(clicks, given if service is None else service.address, sales_sink(options.database))
        env.execute("sales-by-country")
    show(options.database)


if __name__ == "__main__":
    main()
