"""What user functions log travels to the driver's log, with its task and epoch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from flinkish.common import Time
from flinkish.core.async_function import AsyncFunction
from flinkish.core.functions import KeyedProcessFunction, MapFunction
from flinkish.datastream import AsyncDataStream
from flinkish.errors import UserCodeError
from flinkish.jobmanager.progress import TaskLogs
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.job import log as task_log
from flinkish.runtime.job.log import MAX_LINES, TaskLog, TaskLogHandler, log_in_driver
from flinkish.runtime.phases import ManualClock
from flinkish.testing import TestingSink
from tests.unit.minicluster.programs import bounded, environment, job_of, list_source

SHOP = logging.getLogger("shop.cleaning")


@pytest.fixture(autouse=True)
def _as_in_a_worker() -> Iterator[None]:
    root, handler = logging.getLogger(), TaskLogHandler(also_here=False)
    root.addHandler(handler)
    SHOP.setLevel(logging.INFO)
    yield
    root.removeHandler(handler)
    SHOP.setLevel(logging.NOTSET)
    task_log.enter(None)


class LoggingMap(MapFunction):
    def map(self, value: Any) -> Any:
        SHOP.info("mapped %s", value[1])
        if value[1] == 13:
            SHOP.warning("this is too much")
            raise ValueError("thirteen")
        return value


class LoggingCalls(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        await asyncio.sleep(0)
        SHOP.info("called %s", value[1])
        return [value]


class LoggingProcess(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        SHOP.info("processed %s", value[1])
        yield value


def cluster_of(numbers: list[int]) -> MiniCluster:
    env = environment(2)
    source = list_source([("a", number, number) for number in numbers])
    stream = env.from_source(source, bounded(), "s").map(LoggingMap())
    called = AsyncDataStream.unordered_wait(stream, LoggingCalls(), Time.seconds(30))
    called.key_by(lambda value: value[0]).process(LoggingProcess()).name("Process").sink_to(TestingSink())
    return MiniCluster(job_of(env), ManualClock(), StateStore(), 2)


def test_each_line_has_the_task_and_the_epoch_that_it_belongs_to(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_of([1, 2, 3])
    reports = cluster.run()
    caplog.clear()
    logs = TaskLogs(cluster.job)
    for report in reports:
        logs.epoch_done(report)
    lines = [(record.name, record.levelname, record.getMessage()) for record in caplog.records]
    source = "Source: s -> Timestamps/Watermarks -> Map -> async wait operator (1/2)"
    (keyed,) = {text[13:-10] for _, _, text in lines if text.startswith("processed")}
    assert keyed.startswith("Process -> Sink: ")
    epochs = {1: 0, 2: 0, 3: 1}
    assert sorted(lines) == sorted(
        ("shop.cleaning", "INFO", f"{what} {number} [{task}, epoch {epoch}]")
        for number, epoch in epochs.items()
        for what, task in (("mapped", source), ("called", source), ("processed", keyed))
    )


def test_what_a_failing_task_has_logged_comes_with_its_error(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_of([12, 13])
    with pytest.raises(UserCodeError) as failure:
        cluster.run()
    caplog.clear()
    TaskLogs(cluster.job).attempt_failed(failure.value, None)
    texts = [record.getMessage() for record in caplog.records if "called" not in record.getMessage()]
    assert [text.partition(" [Source: s")[0] for text in texts] == ["mapped 12", "mapped 13", "this is too much"]
    assert all(text.endswith("(1/2), epoch 0]") for text in texts)


def test_lines_beyond_the_limit_are_counted() -> None:
    log = TaskLog()
    for number in range(MAX_LINES + 7):
        log.add((1.0, logging.INFO, "shop", f"line {number}"))
    lines = log.take()
    assert lines[MAX_LINES - 1][3] == f"line {MAX_LINES - 1}"
    assert lines[MAX_LINES:] == ((lines[-1][0], logging.WARNING, "flinkish.Task", lines[-1][3]),)
    assert lines[-1][3].startswith("7 more lines")
    assert log.take() == ()


def test_a_level_that_the_driver_does_not_show_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    SHOP.setLevel(logging.WARNING)
    log_in_driver([(5.25, logging.INFO, "shop.cleaning", "no"), (5.25, logging.ERROR, "shop.cleaning", "yes")], "T", 3)
    (record,) = caplog.records
    assert (record.getMessage(), record.created, record.msecs) == ("yes [T, epoch 3]", 5.25, 250.0)
    assert (vars(record)["task"], vars(record)["epoch"]) == ("T", 3)


def test_exceptions_that_are_logged_travel_with_their_traceback() -> None:
    log = TaskLog()
    task_log.enter(log)
    try:
        raise KeyError("lost")
    except KeyError:
        SHOP.exception("looking for it")
    logging.getLogger("flinkish.Task").warning("of the engine itself")
    ((_, level, name, message),) = log.take()
    assert (level, name) == (logging.ERROR, "shop.cleaning")
    assert message.startswith("looking for it\nTraceback")
    assert message.endswith("KeyError: 'lost'")
