"""Streams with ``on_error``, and sinks of their results and dead letters."""

from __future__ import annotations

from typing import Any

from flinkish.common import WatermarkStrategy
from flinkish.datastream import OnError, OutputTag, StreamExecutionEnvironment
from flinkish.testing import TestingSink

from .programs import bounded, list_source

DEAD = OutputTag("dead")
LOOSE = OnError.dead_letter(DEAD, max_failures=1_000_000)


def stream_of(env: StreamExecutionEnvironment, *splits: list[Any], times: bool = False) -> Any:
    strategy = bounded() if times else WatermarkStrategy.no_watermarks()
    return env.from_source(list_source(*splits), strategy, "source").uid("source")


def results(stream: Any, tag: OutputTag | None = DEAD) -> tuple[TestingSink, TestingSink]:
    """Sinks of the main output and of the dead letters."""
    main, dead = TestingSink(), TestingSink()
    stream.sink_to(main)
    if tag is not None:
        stream.get_side_output(tag).sink_to(dead)
    return main, dead
