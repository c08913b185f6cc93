"""The number of executors changes nothing in the results of a job."""

from __future__ import annotations

import pytest

from benchmarks.executors import measure


@pytest.mark.slow
def test_keyed_state_timers_and_windows_give_the_same_on_one_executor_and_on_two() -> None:
    one, two = measure(1, 1_000), measure(2, 1_000)
    assert (one["used"], two["used"]) == (1, 2)
    assert min(one["results"].values()) > 0
    assert (one["digest"], one["results"]) == (two["digest"], two["results"])
