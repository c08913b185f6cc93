"""How a run moves its job from status to status, whatever comes when."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from flinkish.common import Configuration, WatermarkStrategy
from flinkish.common.job_id import JobID
from flinkish.common.job_status import JobStatus
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import FencedError, FlinkishError, InternalError, OperationError
from flinkish.jobmanager.decision import Attempt
from flinkish.jobmanager.history import NoHistory
from flinkish.jobmanager.job.description import JobObserver
from flinkish.jobmanager.job.lifecycle import Event
from flinkish.jobmanager.job_run import JobRun
from flinkish.jobmanager.restart import FixedDelay, Restarts
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.testing import TestingSource
from tests.support.epoch_reports import execute_observed, reports_of

TIMEOUT_S = 30


class Run(JobRun):
    """Its attempts are functions, called one after the other."""

    def __init__(self, *attempts: Callable[[Run], None], delay_ms: int = 0, taken_over: str = "") -> None:
        super().__init__(JobID(), "clicks", restarts=Restarts(FixedDelay(10, delay_ms)))
        self.taken_over = taken_over
        self._script = iter(attempts)
        self._queries = 0

    def has_more_queries(self) -> bool:
        return self._queries > 0

    def make_attempt(self, which: Attempt) -> None:
        self._queries = 1

    def run_query(self, again: bool) -> None:
        self._queries -= 1
        next(self._script)(self)

    def ended(self) -> list[str]:
        """Run it to its end; the statuses after CREATED."""
        self.start()
        self.wait(TIMEOUT_S)
        assert self.result.done()
        assert self.machine.terminal
        return [event.after for event in self.machine.story.events][2:]


def attempt(*moves: Any, error: type[FlinkishError] | None = None) -> Callable[[Run], None]:
    """An attempt whose query starts, which somebody asks for these ends in turn, and which fails at last."""

    def run_it(run: Run) -> None:
        run.query_started()
        for move in moves:
            ask(run, move)
        if error is not None:
            raise error("the server is away")

    return run_it


CANCEL, SIGNAL, STOP = "cancel", "signal", JobStatus.FINISHED


def ask(run: Run, move: Any) -> None:
    if move == SIGNAL:
        run.stop_from_outside("SIGTERM")
    else:
        run.request_stop(*([] if move == CANCEL else [move]))


def asked_while_it_waits(move: Any) -> Callable[[Run], None]:
    """The attempt fails; while the job waits for its restart, somebody asks for this end."""

    def come(run: Run) -> None:
        while run.status is not JobStatus.RESTARTING:
            pass
        ask(run, move)

    def attempt(run: Run) -> None:
        run.query_started()
        threading.Thread(target=come, args=(run,)).start()
        raise OperationError("the server is away")

    return attempt


def fail_before_the_query(run: Run) -> None:
    raise OperationError("the directory cannot be read")


def jump(run: Run) -> None:
    run.machine.to(JobStatus.FINISHED)


HOUR_MS = 3_600_000
FAILS = ("RUNNING", "FAILING", "RESTARTING")
CANCELED = ("CANCELLING", "CANCELED")
work, fail = attempt(), attempt(error=OperationError)

LIVES: dict[str, tuple[list[Callable[[Run], None]], list[str]]] = {
    "it works": ([work], ["RUNNING", "FINISHED"]),
    "it is started again after failures": (
        [fail, fail_before_the_query, work],
        [*FAILS, "FAILING", "RESTARTING", "RUNNING", "FINISHED"],
    ),
    "a failure of ours is final": ([jump], ["FAILING", "FAILED"]),
    "cancelled": ([attempt(CANCEL)], ["RUNNING", *CANCELED]),
    "stopped, it runs until it has finished": ([attempt(STOP)], ["RUNNING", "FINISHED"]),
    "another driver will go on with it": ([attempt(JobStatus.SUSPENDED)], ["RUNNING", "SUSPENDED"]),
    "another driver has taken it": ([attempt(error=FencedError)], ["RUNNING", "SUSPENDED"]),
    "who cancels is obeyed although a stop was asked for before": ([attempt(STOP, CANCEL)], ["RUNNING", *CANCELED]),
    "a stop after a cancellation changes nothing": ([attempt(CANCEL, STOP)], ["RUNNING", *CANCELED]),
    "a signal after a cancellation changes nothing": ([attempt(CANCEL, SIGNAL)], ["RUNNING", *CANCELED]),
    "who cancels is obeyed although a signal came before": ([attempt(SIGNAL, CANCEL)], ["RUNNING", *CANCELED]),
    "cancelled while it waits for its restart": ([asked_while_it_waits(CANCEL)], [*FAILS, *CANCELED]),
    "stopped while it waits for its restart": ([asked_while_it_waits(STOP)], [*FAILS, "RUNNING", "FINISHED"]),
    "cancelled before its query starts": ([lambda run: run.request_stop()], [*CANCELED]),
    "it fails while it is cancelled": (
        [attempt(CANCEL, error=OperationError)],
        ["RUNNING", "CANCELLING", "FAILING", "FAILED"],
    ),
}


@pytest.mark.parametrize(("attempts", "statuses"), LIVES.values(), ids=LIVES)
def test_the_statuses_of_a_job(attempts: list[Callable[[Run], None]], statuses: list[str]) -> None:
    waits = any(one.__qualname__.startswith("asked_while_it_waits") for one in attempts)
    assert Run(*attempts, delay_ms=HOUR_MS if waits else 0).ended() == statuses


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        (jump, InternalError, "a job cannot go from CREATED to FINISHED"),
        (attempt(error=FencedError), FencedError, "the server is away"),
        (attempt(CANCEL, error=OperationError), OperationError, "the server is away"),
    ],
)
def test_the_failure_that_ends_a_job_is_its_result_and_tells_its_story(
    how: Callable[[Run], None], error: type[FlinkishError], words: str
) -> None:
    run = Run(how)
    run.ended()
    with pytest.raises(error, match=words) as raised:
        run.result.result()
    # an illegal transition has told it before it was one
    assert error is InternalError or raised.value.story == str(run.machine.story)


def test_a_driver_that_takes_a_job_over_reconciles_it_first() -> None:
    assert Run(work, taken_over="an earlier driver").ended() == ["RECONCILING", "RUNNING", "FINISHED"]
    assert Run(lambda run: None, taken_over="it had finished").ended() == ["RECONCILING", "FINISHED"]


class Told(JobObserver):
    """Writes down what it is told, and can break at one of it."""

    def __init__(self, breaks_at: str = "") -> None:
        self._breaks_at = breaks_at
        self.told: list[str] = []

    def _tell(self, what: str) -> None:
        self.told.append(what)
        if what == self._breaks_at:
            raise ZeroDivisionError(what)

    def status_changed(self, event: Event) -> None:
        self._tell(event.after)

    def query_started(self) -> None:
        self._tell("query started")

    def attempt_started(self, attempt: int) -> None:
        self._tell("attempt started")

    def epoch_done(self, report: EpochReport) -> None:
        self._tell("epoch done")

    def epoch_committed(self, epoch: int) -> None:
        self._tell("epoch committed")

    def attempt_failed(self, failure: FlinkishError, restart_delay_ms: int | None) -> None:
        self._tell("attempt failed")

    def job_done(self, status: JobStatus) -> None:
        self._tell("job done")


WHAT_OBSERVERS_ARE_TOLD = (
    *("attempt started", "RUNNING", "query started", "FAILING", "RESTARTING", "attempt failed", "attempt started"),
    *("RUNNING", "query started", "epoch done", "epoch committed", "FINISHED", "job done"),
)


@pytest.mark.parametrize("breaks_at", sorted(set(WHAT_OBSERVERS_ARE_TOLD)))
def test_an_observer_that_breaks_keeps_neither_the_job_nor_the_other_observers_from_going_on(
    breaks_at: str, caplog: pytest.LogCaptureFixture
) -> None:
    def epoch(run: Run) -> None:
        run.query_started()
        run.epoch_done(EpochReport(0, 0, 0, 0, None, True))
        run.epoch_committed(0)

    run, before, broken, after = Run(fail, epoch), Told(), Told(breaks_at), Told()
    run.observers += [before, broken, after]
    assert run.ended()[-1] == "FINISHED"
    assert run.result.exception() is None
    assert before.told == broken.told == after.told == list(WHAT_OBSERVERS_ARE_TOLD)
    # not the text, whose form is that of whichever session of Spark has set up logging in this process
    told = [(record.getMessage(), record.exc_info) for record in caplog.records]
    assert any(
        "Told has failed" in line and how and repr(how[1]) == repr(ZeroDivisionError(breaks_at)) for line, how in told
    )


def test_a_history_that_cannot_be_closed_and_what_cannot_be_given_back_end_no_wait() -> None:
    class Broken(NoHistory):
        def close(self) -> None:
            raise ZeroDivisionError

    class Stuck(Run):
        def _give_back(self) -> None:
            raise OSError("the share is away")

    run = Stuck(work)
    run.history = Broken()
    assert run.ended() == ["RUNNING", "FINISHED"]
    assert run.result.exception() is None


def test_epochs_that_read_nothing_become_rare_in_the_minicluster_and_a_cancel_does_not_wait_for_the_next() -> None:
    settings = {"execution.target": "minicluster", "flinkish.progress": "never", "flinkish.heartbeat.interval": "1 h"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.from_source(TestingSource.of_splits([1, 2]), WatermarkStrategy.no_watermarks(), "endless").print()
    client = execute_observed(env, "idle")
    assert not client.run.over.wait(0.3)
    assert 2 <= len(reports_of(client.run)) < 20, "without pauses, hundreds of epochs a second"
    client.cancel().result(TIMEOUT_S)
    assert client.run.over.wait(TIMEOUT_S)
