"""A place of a task is read from the text that errors have of it."""

from __future__ import annotations

import pytest

from flinkish.runtime.job.report import TaskPlace


@pytest.mark.parametrize(
    "place", [TaskPlace("host-1.example", "driver", 7, 2, 0, 0, 4711), TaskPlace("10.0.0.1", "12", 0, 0, 3, 0, 1)]
)
def test_a_place_is_what_its_text_says(place: TaskPlace) -> None:
    assert TaskPlace.parsed(str(place)) == place


@pytest.mark.parametrize("text", ["", "executor 1", "executor 1 on host, stage x, partition 0, try 0, process 1"])
def test_another_text_is_no_place(text: str) -> None:
    assert TaskPlace.parsed(text) is None
