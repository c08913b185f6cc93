"""StopIteration in user code is an error: it must not end the batch, which would lose the records behind it."""

from __future__ import annotations

from typing import Any

import pytest

from flinkish.errors import ProgramError
from flinkish.runtime.operator import OperatorFactory
from flinkish.runtime.operators.filter import FilterFactory
from flinkish.runtime.operators.flat_map import FlatMapFactory
from flinkish.runtime.operators.map import MapFactory
from flinkish.runtime.operators.timestamps_and_watermarks import TimestampsAndWatermarksFactory
from flinkish.testing import OneInputStreamOperatorTestHarness as Harness


def first_of(value: list[int], *_: Any) -> Any:
    return next(iter(value))


@pytest.mark.parametrize("timestamps", [None, [1, 2, 3]])
@pytest.mark.parametrize(
    "factory",
    [
        MapFactory(first_of),
        FilterFactory(first_of),
        FlatMapFactory(lambda value: [first_of(value)]),
        TimestampsAndWatermarksFactory(first_of, 0),
    ],
    ids=lambda factory: type(factory).__name__,
)
def test_a_function_that_raises_stop_iteration_fails(factory: OperatorFactory, timestamps: list[int] | None) -> None:
    with Harness(factory) as harness, pytest.raises((ProgramError, StopIteration)):
        harness.process_elements([[1], [], [2]], timestamps)
