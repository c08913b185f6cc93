"""Functions as timestamp assigners: PyFlink ignores the assigner of a source's strategy, so programs give anything."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from flinkish.common import WatermarkStrategy, no_effect
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.core.time import MIN_TIMESTAMP_MS
from flinkish.datastream import ProcessFunction
from flinkish.errors import ArgumentTypeError
from flinkish.testing import TestingSink

from .programs import environment, job_of, list_source, run

RECORDS = [("a", 30), ("b", 20)]


class Stamp(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield value[0], ctx.timestamp()


class Times:
    def of(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


def seconds(unit_ms: int, value: Any, record_timestamp: int) -> int:
    return int(value[1]) * unit_ms


def stamped(assigner: Any, at_source: bool) -> list[Any]:
    env, sink = environment(1), TestingSink()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(assigner)
    if at_source:
        stream = env.from_source(list_source(RECORDS), strategy, "records")
    else:
        stream = env.add_source(list_source(RECORDS)).assign_timestamps_and_watermarks(strategy)
    stream.process(Stamp()).sink_to(sink)
    run(job_of(env))
    return sink.values


@pytest.mark.parametrize("at_source", [True, False])
@pytest.mark.parametrize(
    ("assigner", "unit_ms"),
    [
        (lambda value, timestamp: value[1], 1),
        (lambda *arguments: arguments[0][1], 1),
        (Times().of, 1),
        (functools.partial(seconds, 1_000), 1_000),
    ],
    ids=["lambda", "any arguments", "method", "partial"],
)
def test_a_function_of_value_and_timestamp_gives_the_time(assigner: Any, unit_ms: int, at_source: bool) -> None:
    assert stamped(assigner, at_source) == [("a", 30 * unit_ms), ("b", 20 * unit_ms)]


def generator(value: Any, timestamp: int) -> Iterator[int]:
    yield value[1]


class Generating(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> Any:
        yield value[1]


class WithoutTimestamp(TimestampAssigner):
    def extract_timestamp(self, value: Any) -> int:  # type: ignore[override]
        return int(value[1])


@pytest.mark.parametrize(
    "assigner",
    [lambda value: value[1], generator, Generating(), WithoutTimestamp()],
    ids=["one argument", "generator", "generating method", "method of one argument"],
)
def test_another_function_has_no_effect_at_a_source_and_says_so_once(
    assigner: Any, caplog: pytest.LogCaptureFixture
) -> None:
    no_effect.forget_reports()
    with caplog.at_level(logging.WARNING, "flinkish.JobManager"):
        assert stamped(assigner, True) == stamped(assigner, True) == [("a", MIN_TIMESTAMP_MS), ("b", MIN_TIMESTAMP_MS)]
    (said,) = [record.getMessage() for record in caplog.records if "timestamp assigner" in record.getMessage()]
    assert said.startswith("the timestamp assigner of from_source() has no effect")
    with pytest.raises(ArgumentTypeError, match="a function of \\(value, record timestamp\\)"):
        stamped(assigner, False)
