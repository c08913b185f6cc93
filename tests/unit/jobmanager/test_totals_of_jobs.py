"""A job counts what it does since it began, over all its drivers."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from flinkish.errors import RetryableError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.layout import TotalsDescription
from flinkish.jobdir.structure import describe_structure, vertex_uids
from flinkish.jobmanager import job_totals
from flinkish.jobmanager.job.description import CheckpointDescription
from flinkish.jobmanager.job_totals import JobTotals, with_epoch
from flinkish.runtime.epoch.steps import EpochReport, sum_up
from flinkish.runtime.job.report import TaskReport
from tests.support.processes import wait_until
from tests.support.programs import job_of
from tests.unit.jobmanager.test_minicluster_jobs import Gate, at_gate, goes_on_until, kept

TIMEOUT_S = 30
JOB = job_of(kept(Path("unused")))
EVENTS, TOTALS = (vertex.id for vertex in JOB.vertices)


def report(epoch: int) -> EpochReport:
    tasks = [TaskReport(EVENTS, 0, 10, 10), TaskReport(TOTALS, 0, 6, 3), TaskReport(TOTALS, 1, 4, 2)]
    return replace(sum_up(JOB, epoch, 0, tasks, {}), records_out=5)


def driver(folder: Path) -> JobTotals:
    return JobTotals(JOB, JobDirectory(str(folder)))


def test_the_directory_of_a_job_knows_whose_records_the_tasks_of_its_program_have_counted() -> None:
    uids = vertex_uids(describe_structure(JOB, 2))
    assert uids == {EVENTS: "events", TOTALS: "totals"}
    assert with_epoch(TotalsDescription(), report(3), uids).vertices["totals"] == {"records_in": 10, "records_out": 5}


def test_the_next_driver_goes_on_with_the_totals(tmp_path: Path) -> None:
    first = driver(tmp_path)
    for epoch in (0, 1):
        first.epoch_done(report(epoch))
    first.checkpoint_ended(CheckpointDescription(1, 1, "COMPLETED", 0))
    first.checkpoint_ended(CheckpointDescription(2, 1, "FAILED", 0, is_savepoint=True))
    first.attempt_failed(RetryableError("the server is away"), 1_000)
    second = driver(tmp_path)
    second.epoch_done(report(1))
    second.epoch_done(report(2))
    second.checkpoint_ended(CheckpointDescription(3, 2, "COMPLETED", 0))
    second.attempt_failed(RetryableError("the server is away for ever"), None)
    assert second.describe() == TotalsDescription(
        *(2, 1, 3, 2, 30, 15),
        checkpoints={"COMPLETED": 2},
        savepoints={"FAILED": 1},
        vertices={
            "events": {"records_in": 30, "records_out": 30},
            "totals": {"records_in": 30, "records_out": 15},
        },
    ), "an epoch that is reported again counts once"
    assert driver(tmp_path).describe() == replace(second.describe(), drivers=3)


@pytest.mark.parametrize(("every_s", "epochs"), [(0.0, 1), (3_600.0, 0)])
def test_a_killed_driver_has_noted_what_it_had_done_some_time_before(
    every_s: float, epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_totals, "NOTED_EVERY_S", every_s)
    killed = driver(tmp_path)
    killed.epoch_done(report(0))
    killed.epoch_committed(0)
    assert driver(tmp_path).describe().epochs == epochs


def test_damaged_totals_begin_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "totals.json").write_text('{"epochs": "many"}')
    with caplog.at_level(logging.WARNING):
        assert driver(tmp_path).describe() == TotalsDescription(drivers=1)
    assert "the totals of the job begin anew: the file totals.json is damaged" in caplog.text


def test_a_job_describes_its_totals_and_how_large_the_state_of_each_subtask_was(tmp_path: Path) -> None:
    settings = {"parallelism": 2, "execution__checkpointing__interval": "1 ms", "flinkish__job__restart": "true"}
    client = at_gate(kept(tmp_path, **settings), 25)
    stopped = client.stop_with_savepoint(False)
    goes_on_until(stopped.done)
    stopped.result(TIMEOUT_S)
    client.run.wait(TIMEOUT_S)
    Gate.close_at(None)
    client = kept(tmp_path, **settings).execute_async("totals")
    wait_until(lambda: client.describe().end_time_ms is not None, TIMEOUT_S, "the end")
    job = client.describe()
    assert (job.totals.drivers, job.totals.records_in, job.totals.records_out) == (2, 60, 60)
    assert job.totals.vertices["totals"] == {"records_in": 60, "records_out": 60}
    assert job.totals.savepoints == {"COMPLETED": 1}
    assert job.metrics["records_in"] < 60, "of this driver"
    assert job.checkpoints.counts["COMPLETED"] == 1 + job.totals.checkpoints["COMPLETED"]
    assert Counter(one.status for one in job.checkpoints.history)["COMPLETED"] < job.checkpoints.counts["COMPLETED"]
    last = job.checkpoints.history[-1]
    assert len(last.subtask_state_bytes["totals"]) == 2
    assert sum(last.subtask_state_bytes["totals"]) == last.state_bytes["totals"] > 0
    assert last.state_rows["totals"] == last.rows_written - last.state_rows.get("events", 0) > 0
