"""Restart strategies with a manual clock: Flink's rules, number by number."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.common import Configuration, RestartStrategies
from flinkish.errors import (
    ConfigurationError,
    FencedError,
    FlinkishError,
    OperationError,
    ProgramError,
    RetryableError,
    SparkLostError,
)
from flinkish.jobmanager.restart import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    Restarts,
    RestartStrategy,
    from_configuration,
    one_line,
)
from flinkish.runtime.phases import ManualClock

FAILURE = RetryableError("lost")
BY_DEFAULT = "exponential-delay: 1 s to 60 s, without end, counted anew after 3600 s without failure"


def exponential(clock: ManualClock, seed: int = 7, **changes: Any) -> ExponentialDelay:
    settings: dict[str, Any] = {
        "initial_ms": 1_000,
        "max_ms": 60_000,
        "multiplier": 2.0,
        "reset_threshold_ms": 3_600_000,
        "jitter_factor": 0.0,
        "attempts_before_reset": None,
        **changes,
    }
    return ExponentialDelay(clock, Random(seed), **settings)


def delays(strategy: RestartStrategy, clock: ManualClock, gaps_ms: list[int]) -> list[int | None]:
    """The answers to failures, each so long after the restart that came before it."""
    answers = []
    for gap_ms in gaps_ms:
        clock.advance(gap_ms)
        answers.append(strategy.delay_after(FAILURE))
        clock.advance(answers[-1] or 0)
    return answers


@pytest.mark.parametrize(("attempts", "expected"), [(0, [None, None]), (2, [500, 500, None, None])])
def test_fixed_delay_restarts_so_often_and_no_more(attempts: int, expected: list[int | None]) -> None:
    strategy = FixedDelay(attempts, 500)
    assert [strategy.delay_after(FAILURE) for _ in expected] == expected


@pytest.mark.parametrize(
    ("gaps_ms", "expected"),
    [
        ([0, 100, 100], [10, 10, None]),
        # the third failure lies at the end of the interval that began with the first, which belongs to it
        ([0, 400, 580], [10, 10, None]),
        ([0, 400, 581], [10, 10, 10]),
        ([0, 900, 900, 50], [10, 10, 10, None]),
    ],
)
def test_failure_rate_counts_the_failures_of_each_interval(gaps_ms: list[int], expected: list[int | None]) -> None:
    clock = ManualClock(50)
    assert delays(FailureRate(clock, 2, 1_000, 10), clock, gaps_ms) == expected


@pytest.mark.parametrize(
    ("changes", "gaps_ms", "expected"),
    [
        ({}, [0] * 8, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]),
        ({"multiplier": 1.5}, [9, 9, 9], [1_000, 1_500, 2_250]),
        # the threshold counts from the restart
        ({"reset_threshold_ms": 5_000}, [0, 4_999, 5_000, 0], [1_000, 2_000, 1_000, 2_000]),
        ({"attempts_before_reset": 2}, [0, 0, 0], [1_000, 2_000, None]),
        (
            {"attempts_before_reset": 2, "reset_threshold_ms": 100},
            [0, 0, 100, 0, 0],
            [1_000, 2_000, 1_000, 2_000, None],
        ),
    ],
)
def test_exponential_delay_grows_until_the_job_has_run_well(
    changes: dict[str, Any], gaps_ms: list[int], expected: list[int | None]
) -> None:
    clock = ManualClock(1_700_000_000_000)
    assert delays(exponential(clock, **changes), clock, gaps_ms) == expected


@given(
    initial_ms=st.integers(1, 10_000),
    above_ms=st.integers(0, 10**7),
    multiplier=st.floats(1, 1e6, exclude_min=True),
    jitter_factor=st.floats(0, 1),
    seed=st.integers(0, 1_000),
    failures=st.integers(1, 400),
)
def test_an_exponential_delay_never_leaves_its_bounds(
    initial_ms: int, above_ms: int, multiplier: float, jitter_factor: float, seed: int, failures: int
) -> None:
    clock = ManualClock()
    bounds = {"initial_ms": initial_ms, "max_ms": initial_ms + above_ms, "reset_threshold_ms": 10**9}
    strategy = exponential(clock, seed, **bounds, multiplier=multiplier, jitter_factor=jitter_factor)
    for delay_ms in delays(strategy, clock, [1] * failures):
        assert delay_ms is not None and initial_ms <= delay_ms <= initial_ms + above_ms


@given(jitter_factor=st.floats(0.01, 1), seed=st.integers(0, 1_000))
def test_jitter_is_a_part_of_the_delay_and_never_more(jitter_factor: float, seed: int) -> None:
    clock = ManualClock()
    strategy = exponential(clock, seed, jitter_factor=jitter_factor, max_ms=10**9)
    for step, delay_ms in enumerate(delays(strategy, clock, [1] * 10)):
        assert delay_ms is not None and abs(delay_ms - 1_000 * 2**step) <= 1_000 * 2**step * jitter_factor


@given(most=st.integers(1, 5), interval_ms=st.integers(1, 1_000), gaps_ms=st.lists(st.integers(0, 500), max_size=60))
def test_failure_rate_gives_up_exactly_when_an_interval_has_seen_too_many(
    most: int, interval_ms: int, gaps_ms: list[int]
) -> None:
    clock = ManualClock()
    strategy = FailureRate(clock, most, interval_ms, 0)
    times: list[int] = []
    for gap_ms in gaps_ms:
        clock.advance(gap_ms)
        times.append(clock.now_ms())
        recent = [time for time in times if times[-1] - time <= interval_ms]
        assert (strategy.delay_after(FAILURE) is None) == (len(recent) > most)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "none"),
        ({"execution.checkpointing.interval": "0 ms"}, "none"),
        ({"execution.checkpointing.interval": "10 s"}, BY_DEFAULT),
        ({"execution.checkpointing.interval": "10 s", "restart-strategy.type": "off"}, "none"),
        ({"flinkish.job.dir": "/data/job"}, BY_DEFAULT),
        ({"flinkish.job.dir": "/data/job", "execution.checkpointing.interval": "0"}, "none"),
        ({"flinkish.job.dir": "/data/job", "restart-strategy.type": "none"}, "none"),
        ({"restart-strategy.type": "disable"}, "none"),
        ({"restart-strategy.type": "fixed-delay"}, "fixed-delay: 1 restarts, 1 s apart"),
        ({"restart-strategy": "failure-rate"}, "failure-rate: at most 1 failures in 60 s"),
        (
            {
                "restart-strategy.type": "exponential-delay",
                "restart-strategy.exponential-delay.attempts-before-reset-backoff": "5",
                "restart-strategy.exponential-delay.max-backoff": "1500 ms",
            },
            "exponential-delay: 1 s to 1.5 s, at most 5 restarts, counted anew after 3600 s without failure",
        ),
    ],
)
def test_the_configuration_says_which_strategy(settings: dict[str, str], expected: str) -> None:
    assert from_configuration(Configuration.from_dict(settings)).describe() == expected


def test_the_objects_of_restart_strategies_mean_the_same() -> None:
    fixed = from_configuration(RestartStrategies.fixed_delay_restart(3, 10).to_configuration())
    assert [fixed.delay_after(FAILURE) for _ in range(4)] == [10, 10, 10, None]
    clock = ManualClock()
    rate = from_configuration(RestartStrategies.failure_rate_restart(1, 500, 20).to_configuration(), clock)
    assert delays(rate, clock, [0, 600, 100]) == [20, 20, None]
    assert from_configuration(RestartStrategies.no_restart().to_configuration()).delay_after(FAILURE) is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"type": "fixed-delay", "fixed-delay.attempts": "-1"}, "attempts -1"),
        ({"type": "failure-rate", "failure-rate.max-failures-per-interval": "0"}, "at least 1 failure"),
        ({"type": "exponential-delay", "exponential-delay.initial-backoff": "2 min"}, "initial-backoff <= max-backoff"),
        ({"type": "exponential-delay", "exponential-delay.backoff-multiplier": "1"}, "backoff-multiplier > 1"),
        ({"type": "exponential-delay", "exponential-delay.jitter-factor": "1.1"}, "jitter-factor <= 1"),
        ({"type": "exponential-delay", "exponential-delay.attempts-before-reset-backoff": "0"}, "attempts-before"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, str], said: str) -> None:
    configuration = Configuration.from_dict({f"restart-strategy.{key}": value for key, value in settings.items()})
    with pytest.raises(ConfigurationError, match=said):
        from_configuration(configuration)


# --- the decision -------------------------------------------------------------------------------------------------


class Always:
    """Restarts at once."""

    limit: int | None = None

    def delay_after(self, failure: FlinkishError) -> int | None:
        return 0

    def describe(self) -> str:
        return "always"


@pytest.mark.parametrize("kind", [ProgramError, ConfigurationError, FencedError, SparkLostError])
def test_a_failure_that_a_restart_cannot_mend_is_final_whatever_the_strategy(kind: type[FlinkishError]) -> None:
    restarts = Restarts(Always())
    assert restarts.delay_after(OperationError("away")) == 0
    failure = kind("wrong", hint="mend it")
    assert restarts.delay_after(failure) is None
    assert str(failure).startswith("wrong; mend it; not started again, after 1 restart: ")
    assert kind.__name__ in str(failure) or "new driver" in str(failure)


def test_the_final_failure_says_how_often_the_job_was_restarted_and_why_no_more() -> None:
    restarts = Restarts(FixedDelay(2, 1_500))
    lines = [restarts.line(one_line(failure), restarts.delay_after(failure) or 0) for failure in two_failures()]
    assert lines == [
        "failed: OperationError: away [epoch 1]; restarting in 1.5 s (restart 1 of 2, restart-strategy fixed-delay)",
        "failed: OperationError: away [epoch 2]; restarting in 1.5 s (restart 2 of 2, restart-strategy fixed-delay)",
    ]
    last = OperationError("away", where="epoch 3")
    assert restarts.delay_after(last) is None
    assert str(last) == (
        "away [epoch 3]; not started again, after 2 restarts: "
        "the restart strategy allows no more (fixed-delay: 2 restarts, 1.5 s apart)"
    )


def two_failures() -> list[FlinkishError]:
    return [OperationError("away", where=f"epoch {epoch}", hint="start the server") for epoch in (1, 2)]


def test_without_a_strategy_each_failure_is_final_and_that_is_not_told() -> None:
    failure = OperationError("away")
    assert Restarts(NoRestart()).delay_after(failure) is NoRestart().delay_after(FAILURE) is None
    assert str(failure) == "away"


def test_the_line_of_a_failure_is_one_line() -> None:
    assert one_line(ProgramError("a\nb  c")) == "ProgramError: a\\nb c"
    assert len(one_line(ProgramError("x" * 10_000))) < 450


def test_restarts_that_are_counted_anew_are_not_told_as_more_than_allowed() -> None:
    clock = ManualClock()
    restarts = Restarts(exponential(clock, attempts_before_reset=1, reset_threshold_ms=10_000))
    lines = []
    for _ in range(3):
        clock.advance(60_000)
        lines.append(restarts.line("", restarts.delay_after(FAILURE) or 0))
    assert [line.rpartition("(")[2].partition(",")[0] for line in lines] == ["restart 1", "restart 2", "restart 3"]


@pytest.mark.parametrize("set_by_s", [-3_600, 3_600], ids=["set back", "set forward"])
@pytest.mark.parametrize("kind", ["exponential-delay", "failure-rate"])
def test_a_clock_that_is_set_changes_no_number_of_restarts(
    kind: str, set_by_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = from_configuration(
        Configuration.from_dict(
            {
                "restart-strategy.type": kind,
                "restart-strategy.failure-rate.max-failures-per-interval": "1",
                "restart-strategy.exponential-delay.attempts-before-reset-backoff": "1",
                "restart-strategy.exponential-delay.reset-backoff-threshold": "10 min",
            }
        )
    )
    assert strategy.delay_after(FAILURE) is not None
    monkeypatch.setattr(time, "time_ns", lambda now=time.time_ns: now() + set_by_s * 1_000_000_000)
    assert strategy.delay_after(FAILURE) is None
