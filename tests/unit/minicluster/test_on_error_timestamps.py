"""Operators with ``on_error`` whose results and dead letters have timestamps in part."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flinkish.common import Time, WatermarkStrategy
from flinkish.core.time import MIN_TIMESTAMP_MS
from flinkish.datastream import AsyncDataStream, AsyncFunction, DeadLetter, OnError, OutputTag
from flinkish.datastream.functions import ProcessWindowFunction
from flinkish.datastream.window import TumblingProcessingTimeWindows
from flinkish.runtime.phases import ManualClock
from flinkish.testing import Pause, TestingSink
from tests.support.functions import AtTimestamp

from .programs import bounded, environment, job_of, list_source, run

DEAD = OutputTag("dead")
LOOSE = OnError.dead_letter(DEAD, max_failures=1_000_000)


class Waits(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        await asyncio.sleep(0.05)
        return [(*value, 1 // value[1])]


@pytest.mark.parametrize("timed_first", [False, True])
def test_calls_for_records_with_timestamps_and_without_may_end_together(timed_first: bool) -> None:
    env, results, dead = environment(1), TestingSink(), TestingSink()
    values = [0, 1, 0, 2]
    timed = env.from_source(list_source([("timed", n, 5 + n) for n in values]), bounded(), "timed")
    bare = env.from_source(list_source([("bare", n) for n in values]), WatermarkStrategy.no_watermarks(), "bare")
    both = timed.union(bare) if timed_first else bare.union(timed)
    called = AsyncDataStream.ordered_wait(both, Waits(), Time.seconds(30), 50).on_error(LOOSE)
    called.process(AtTimestamp()).sink_to(results)
    called.get_side_output(DEAD).process(AtTimestamp()).sink_to(dead)
    run(job_of(env))
    expected = [("bare", n, MIN_TIMESTAMP_MS) for n in (1, 2)] + [("timed", n, 5 + n) for n in (1, 2)]
    assert sorted((*value[:2], timestamp) for value, timestamp in results.values) == expected
    letters = sorted((letter.record, timestamp) for letter, timestamp in dead.values)
    assert letters == [(("bare", 0), MIN_TIMESTAMP_MS)] * 2 + [(("timed", 0, 5), 5)] * 2


class TellsAndFails(ProcessWindowFunction):
    """Gives each window to the tag of the dead letters, too; those of odd keys then fail."""

    def process(self, key: int, context: ProcessWindowFunction.Context, elements: Any) -> Any:
        yield DEAD, key
        yield 1 // (1 - key % 2)


def test_dead_letters_of_windows_of_processing_time_may_share_a_tag_with_the_results() -> None:
    env, dead, clock = environment(1), TestingSink(), ManualClock(1_000)
    source = list_source([0, 1, 2, 3, Pause(2), 4])
    keyed = env.from_source(source, WatermarkStrategy.no_watermarks(), "s").key_by(lambda v: v)
    windows = keyed.window(TumblingProcessingTimeWindows.of(Time.milliseconds(10))).process(TellsAndFails())
    windows.on_error(LOOSE).get_side_output(DEAD).process(AtTimestamp()).sink_to(dead)
    run(job_of(env), clock=clock, on_epoch=lambda: clock.advance(10))
    told = [
        (value.key, "failed", timestamp) if isinstance(value, DeadLetter) else (value, "told", timestamp)
        for value, timestamp in dead.values
    ]
    times = {"failed": MIN_TIMESTAMP_MS, "told": 1_009}
    assert told[:4] == [(key, what, times[what]) for key, what in enumerate(["told", "failed"] * 2)]
