"""Windows over PROCTIME: a row lies in the windows of the processing time of its epoch, q12 of Nexmark among them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from flinkish.common import Row, Types, WatermarkStrategy
from flinkish.table import EnvironmentSettings, StreamTableEnvironment
from flinkish.testing import End, Pause, ProgramTestHarness, TestingSink, TestingSource
from tests.support.programs import new_environment

ROW = Types.ROW_NAMED(["auction", "bidder"], [Types.LONG(), Types.LONG()])
NOON = datetime(2024, 1, 1, 12)
EPOCH = datetime(1970, 1, 1)
#: (seconds after noon, bidders): an epoch each
EPOCHS = [(0, [1, 2, 1]), (4, [2]), (9, [1]), (10, [3, 3]), (17, []), (18, [1]), (31, [2, 2]), (60, []), (200, [])]
VIEW = "CREATE VIEW b AS SELECT *, PROCTIME() AS p_time FROM bid"
Q12 = """SELECT bidder, COUNT(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM TABLE({window}) GROUP BY bidder, window_start, window_end"""
OLD = """SELECT bidder, COUNT(*) AS bid_count, TUMBLE_START(p_time, INTERVAL '10' SECOND) AS s,
TUMBLE_END(p_time, INTERVAL '10' SECOND) AS e FROM b GROUP BY bidder, TUMBLE(p_time, INTERVAL '10' SECOND)"""
CASES = {
    "q12": (Q12.format(window="TUMBLE(TABLE b, DESCRIPTOR(p_time), INTERVAL '10' SECOND)"), "tumble"),
    "hop": (Q12.format(window="HOP(TABLE b, DESCRIPTOR(p_time), INTERVAL '5' SECOND, INTERVAL '10' SECOND)"), "hop"),
    "cumulate": (
        Q12.format(window="CUMULATE(TABLE b, DESCRIPTOR(p_time), INTERVAL '5' SECOND, INTERVAL '10' SECOND)"),
        "cumulate",
    ),
    "session": (
        Q12.format(window="SESSION(TABLE b PARTITION BY bidder, DESCRIPTOR(p_time), INTERVAL '6' SECOND)"),
        "session",
    ),
    "group window": (OLD, "tumble"),
}


def windows_of(kind: str, bidder: int, second: int) -> list[tuple[int, int]]:
    """The windows of a row, in seconds."""
    ten, five = second - second % 10, second - second % 5
    if kind == "hop":
        return [(five - 5, five + 5), (five, five + 10)]
    if kind == "cumulate":
        return [(ten, end) for end in (ten + 5, ten + 10) if end > second]
    if kind == "tumble":
        return [(ten, ten + 10)]
    times = [at for at, bidders in EPOCHS if bidder in bidders]
    start = end = second
    while earlier := [at for at in times if start - 6 <= at < start]:
        start = min(earlier)
    while later := [at for at in times if end < at <= end + 6]:
        end = max(later)
    return [(start, end + 6)]


def wanted(kind: str) -> list[tuple[Any, ...]]:
    found: dict[tuple[int, int, int], int] = {}
    for second, bidders in EPOCHS:
        for bidder in bidders:
            for start, end in windows_of(kind, bidder, second):
                found[bidder, start, end] = found.get((bidder, start, end), 0) + 1
    moments = {at: NOON + timedelta(seconds=at) for key in found for at in key[1:]}
    return sorted((bidder, count, moments[start], moments[end]) for (bidder, start, end), count in found.items())


@pytest.mark.parametrize("case", CASES)
def test_a_window_of_processing_time_holds_the_rows_of_its_epochs(case: str) -> None:
    query, kind = CASES[case]
    env = new_environment(2)
    t_env = StreamTableEnvironment.create(env, EnvironmentSettings.in_streaming_mode())
    t_env.get_config().set("table.local-time-zone", "UTC")
    elements: list[Any] = []
    for number, (_, bidders) in enumerate(EPOCHS):
        elements += [Row(auction=number, bidder=bidder) for bidder in bidders]
        elements.append(Pause())
    source = TestingSource(*elements, End(), type_info=ROW)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "bid")
    t_env.create_temporary_view("bid", t_env.from_data_stream(stream))
    t_env.execute_sql(VIEW)
    sink = TestingSink()
    t_env.to_data_stream(t_env.sql_query(query)).sink_to(sink).uid("out")
    with ProgramTestHarness(env) as harness:
        for second, _ in EPOCHS:
            harness.set_processing_time(int((NOON - EPOCH).total_seconds() + second) * 1_000)
            harness.run_epoch()
            harness.crash()
    assert sorted(tuple(row) for row in sink.values) == wanted(kind)
