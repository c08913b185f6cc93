"""Restarts end to end, in the minicluster: the job goes on with its state, in functions that are opened anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flinkish.common import RestartStrategies
from flinkish.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from flinkish.errors import InvalidKeyError, UserCodeError
from tests.support.programs import new_environment

OPENED: list[int] = []
FAILURES: list[int] = []


class FailsSometimes(MapFunction):
    """Fails at a number as often as FAILURES says it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        OPENED.append(runtime_context.get_index_of_this_subtask())

    def map(self, value: int) -> int:
        if value in FAILURES:
            FAILURES.remove(value)
            raise OSError(f"the server is away at {value}")
        return value


@pytest.fixture(autouse=True)
def _fresh() -> None:
    OPENED.clear()
    FAILURES.clear()


def environment(restarts: int | None = None, **settings: str) -> StreamExecutionEnvironment:
    env = new_environment(flinkish__epoch__max_records_per_source="2", **settings)
    if restarts is not None:
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(restarts, 1))
    return env


def sums(env: StreamExecutionEnvironment) -> Any:
    """The running sum of 1 to 6."""
    numbers = env.from_collection([1, 2, 3, 4, 5, 6]).map(FailsSometimes())
    return numbers.key_by(lambda number: 0).reduce(lambda left, right: left + right)


def test_a_job_that_fails_is_restarted_and_goes_on_where_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    FAILURES[:] = [4, 5, 5]
    env = environment(restarts=3)
    with sums(env).execute_and_collect("sums") as results:
        assert list(results) == [1, 3, 6, 10, 15, 21]
    assert len(OPENED) == 4
    lines = [line for line in capfd.readouterr().err.splitlines() if "attempt" in line]
    failed = "UserCodeError: OSError in user code: the server is away at"
    assert [line.partition(" [")[0].partition(";")[0] for line in lines] == [
        f"sums: attempt 1 failed: {failed} 4",
        f"sums: attempt 2 failed: {failed} 5",
        "sums: attempt 3 failed: the same error, 2 times in a row",
    ]
    assert lines[0].endswith("; restarting in 0.001 s (restart 1 of 3, restart-strategy fixed-delay)")


def test_without_checkpoints_a_job_is_not_restarted() -> None:
    FAILURES[:] = [4]
    env = environment()
    sums(env).print()
    with pytest.raises(UserCodeError) as caught:
        env.execute()
    assert "started again" not in str(caught.value)


@pytest.mark.parametrize("key", ["flinkish__job__dir", "execution__checkpointing__interval"])
def test_with_checkpoints_as_with_a_directory_it_is(key: str, tmp_path: Path) -> None:
    FAILURES[:] = [4]
    settings = {key: str(tmp_path / "job") if key.endswith("dir") else "1 s"}
    settings["restart_strategy__exponential_delay__initial_backoff"] = "1 ms"
    with sums(environment(**settings)).execute_and_collect() as results:
        assert list(results) == [1, 3, 6, 10, 15, 21]


def test_a_failure_that_does_not_go_away_by_itself_is_not_retried() -> None:
    env = environment(restarts=5)
    numbers = env.from_collection([1, 2, 3]).map(FailsSometimes())
    numbers.key_by(lambda number: float("nan")).reduce(max).print()
    with pytest.raises(InvalidKeyError, match="not started again, after 0 restarts: InvalidKeyError does not go away"):
        env.execute()
    assert len(OPENED) == 1


def test_a_repeated_failure_is_one_line_with_a_count_and_one_that_has_passed_is_followed_by_so(
    capfd: pytest.CaptureFixture[str],
) -> None:
    FAILURES[:] = [4, 4, 4, 6]
    env = environment(restarts=4)
    with sums(env).execute_and_collect("sums") as results:
        assert list(results) == [1, 3, 6, 10, 15, 21]
    lines = capfd.readouterr().err.splitlines()
    assert lines.count("Traceback (most recent call last):") == 2, "one for each failure that is another one"
    told = [line for line in lines if line.startswith("sums: ")]
    begins = [line.partition(" failed: ")[2].partition(";")[0] for line in told if "attempt" in line]
    assert begins[1:3] == ["the same error, 2 times in a row", "the same error, 3 times in a row"]
    recovered = [line for line in told if "recovered" in line]
    assert [line.partition("recovered after ")[2].partition(" s: ")[2] for line in recovered] == [
        "epoch 1 is done",
        "epoch 2 is done",
    ]
    assert told.index(recovered[0]) < told.index(recovered[1]) == len(told) - 1
