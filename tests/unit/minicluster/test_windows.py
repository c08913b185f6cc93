"""Window operators through the whole runtime: what must not matter does not matter."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common.time import Time
from flinkish.core.window.event_time_session import EventTimeSessionWindows
from flinkish.datastream import ProcessWindowFunction, TimeWindow

from .programs import ListSource, MemorySink, bounded, environment, job_of, run


class Listed(ProcessWindowFunction[Any, Any, Any, TimeWindow]):
    """(key, start, end, the numbers in the window)."""

    def process(
        self, key: Any, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[Any]
    ) -> Iterator[Any]:
        window = context.window()
        yield key, window.start, window.end, [number for _, number, _ in elements]


def sessions(records: list[Any], delay_ms: int, per_epoch: int, parallelism: int) -> list[Any]:
    env = environment(parallelism, 6)
    sink = MemorySink()
    source = env.from_source(ListSource(records), bounded(delay_ms), "records")
    windows = source.key_by(lambda r: r[0]).window(EventTimeSessionWindows.with_gap(Time.milliseconds(3)))
    windows.process(Listed()).sink_to(sink)
    run(job_of(env, source_batch_size=7), per_epoch)
    return sorted(sink.values)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(0, 4), st.integers(1, 3))
def test_the_size_of_epochs_does_not_matter_to_sessions_not_even_to_those_that_touch(
    seed: int, delay_ms: int, grain_ms: int
) -> None:
    chance = random.Random(seed)
    # few different times, so that an element often comes right at the end of a session, and others at the same time
    times = [max(0, serial // 4 + chance.randrange(-delay_ms, 2)) * grain_ms for serial in range(60)]
    records = [(chance.choice("abc"), serial, time) for serial, time in enumerate(times)]
    whole = sessions(records, delay_ms, 1_000, 1)
    assert whole == sessions(records, delay_ms, 1, 1) == sessions(records, delay_ms, 5, 2)
