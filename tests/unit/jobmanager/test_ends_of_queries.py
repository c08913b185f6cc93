"""A query of Spark's that does not end holds no job for ever."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flinkish.common import Configuration
from flinkish.common.job_id import JobID
from flinkish.errors import EpochTimeoutError, SparkLostError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobmanager import attempt as query_attempt
from flinkish.jobmanager.attempt import AttemptPlan, QueryAttempt
from flinkish.jobmanager.epoch_gate import StateReaders
from flinkish.jobmanager.job.settings import driver_settings
from flinkish.jobmanager.job_run import JobRun
from flinkish.jobmanager.query_inputs import QueryRun
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.spark.plan import PlanOptions

TIMEOUT_S = 30


class Hung:
    """A query in whose epoch something hangs that nobody can interrupt. Spark says at once that it is not active."""

    runId = "1"
    isActive = True
    status = {"isTriggerActive": True, "message": "Processing new data"}

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def stop(self) -> None:
        self.isActive = False
        self.let_go.wait(TIMEOUT_S)

    def awaitTermination(self, timeout_s: float | None = None) -> bool:
        return self.let_go.wait(TIMEOUT_S if timeout_s is None else timeout_s)


@pytest.mark.parametrize("how", ["cancelled", "given up, and the job must go on"])
def test_a_query_whose_thread_hangs_is_left_after_the_timeout_of_cancellations(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Attempt(QueryAttempt):
        def _start(self, run: Any, deployment: Any) -> Any:
            if how == "cancelled":
                observer.request_stop()
            else:
                self.fail(EpochTimeoutError("it takes too long"))
            return query

        def _runs(self) -> list[QueryRun]:
            return [QueryRun(PlanOptions(), False, 0)]

    monkeypatch.setattr(query_attempt, "check_committed", lambda *_: None)
    monkeypatch.setattr(query_attempt, "deploy", lambda *_: SimpleNamespace(secret="", version="0-00000000"))
    monkeypatch.setattr(query_attempt, "epochs_that_do_not_run", lambda spark: nullcontext())
    query, observer, directory = Hung(), JobRun(JobID(), "clicks"), JobDirectory(str(tmp_path))
    directory.claim("clicks")
    plan = AttemptPlan(JobDescriptor("ab" * 16, "clicks", (), ()), {}, PlanOptions())
    settings = replace(driver_settings(Configuration()), cancellation_timeout_s=0.2)
    attempt = Attempt(None, plan, settings, directory, observer, observer.wishes, StateReaders())
    attempt.begin()
    try:
        if how == "cancelled":
            attempt.run_query()
        else:
            with pytest.raises(SparkLostError, match="Spark has not ended the query within 0.2 s"):
                attempt.run_query()
    finally:
        query.let_go.set()
        attempt.close()
