"""A clock that was set back is noticed once; one that runs, or is set forward, is not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flinkish.common import Configuration
from flinkish.common.job_status import JobStatus
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobmanager import attempt as query_attempt
from flinkish.jobmanager import epoch_gate as epoch_listeners
from flinkish.jobmanager.attempt import AttemptPlan, QueryAttempt
from flinkish.jobmanager.epoch_gate import StateReaders, StopQuery
from flinkish.jobmanager.job.description import JobObserver
from flinkish.jobmanager.job.settings import driver_settings
from flinkish.jobmanager.query_inputs import QueryRun
from flinkish.jobmanager.wishes import Wishes
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.phases import ClockWatch, ManualClock
from flinkish.spark.plan import PlanOptions

HOUR_MS = 3_600_000


class Machine:
    def __init__(self) -> None:
        self.clock, self.uptime = ManualClock(10 * HOUR_MS), ManualClock()
        self.watch = ClockWatch(self.clock, self.uptime.now_ms)

    def run(self, elapsed_ms: int, set_by_ms: int = 0) -> int:
        self.uptime.advance(elapsed_ms)
        self.clock.advance(elapsed_ms + set_by_ms)
        return self.watch.set_back_ms()


@pytest.mark.parametrize(
    ("passed", "set_back_ms"),
    [
        ([(0, 0), (5, 0), (HOUR_MS, 0)], [0, 0, 0]),
        ([(100, -HOUR_MS), (100, 0), (100, -HOUR_MS)], [HOUR_MS, 0, HOUR_MS]),
        ([(100, HOUR_MS), (100, -HOUR_MS)], [0, HOUR_MS]),
        ([(100, -400)] * 3, [0, 0, 1_200]),
    ],
    ids=["time that passes", "a jump back, told once", "a jump forward and the way back", "small corrections add up"],
)
def test_a_jump_back_is_told_once_by_its_length(passed: list[tuple[int, int]], set_back_ms: list[int]) -> None:
    machine = Machine()
    assert [machine.run(*step) for step in passed] == set_back_ms


class Query:
    """A query that waits for its next epoch, and begins one right after somebody has looked what it does."""

    def __init__(self, begin_epoch: Callable[[], None]) -> None:
        self._begin_epoch = begin_epoch
        self._ended = threading.Event()
        self.told: list[str] = []

    @property
    def status(self) -> dict[str, Any]:
        if self._ended.is_set():
            return {"isTriggerActive": False, "message": "Stopped"}
        try:
            self._begin_epoch()
        except StopQuery:
            self.told.append("no epoch begins")
        else:
            self.told.append("an epoch has begun")
        return {"isTriggerActive": False, "message": "Waiting for next trigger"}

    def stop(self) -> None:
        if not self._ended.is_set():
            self.told.append("stopped")
        self._ended.set()

    @property
    def isActive(self) -> bool:
        return not self._ended.is_set()

    def awaitTermination(self, timeout_s: float | None = None) -> None:
        self._ended.wait(timeout_s)


def test_a_query_is_not_stopped_in_an_epoch_that_has_just_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Attempt(QueryAttempt):
        def _start(self, run: Any, deployment: Any) -> Any:
            queries.append(Query(lambda: self.before_epoch(1)))
            if len(queries) == 1:
                # the clock is set back by an hour while the query waits for its next epoch
                self.clock_watch = jumped
            else:
                wishes.ask(JobStatus.FINISHED)
            return queries[-1]

        def _runs(self) -> list[QueryRun]:
            return [QueryRun(PlanOptions(), False, HOUR_MS)]

    machine, queries, wishes = Machine(), list[Query](), Wishes()
    jumped = machine.watch
    machine.clock.advance(-HOUR_MS)
    monkeypatch.setattr(query_attempt, "LOOK_S", 0.0)
    monkeypatch.setattr(epoch_listeners, "connection_of_this_thread", lambda spark: None)
    monkeypatch.setattr(query_attempt, "check_committed", lambda *_: None)
    monkeypatch.setattr(query_attempt, "deploy", lambda *_: SimpleNamespace(secret="", version="0-00000000"))
    monkeypatch.setattr(query_attempt, "epochs_that_do_not_run", lambda spark: nullcontext())
    directory = JobDirectory(str(tmp_path))
    directory.claim("clicks")
    plan = AttemptPlan(JobDescriptor("ab" * 16, "clicks", (), ()), {}, PlanOptions())
    attempt = Attempt(None, plan, driver_settings(Configuration()), directory, JobObserver(), wishes, StateReaders())
    attempt.begin()
    attempt.run_query()
    assert attempt.set_back
    attempt.run_query(again=True)
    attempt.close()
    assert [query.told for query in queries] == [["no epoch begins", "stopped"]] * 2
