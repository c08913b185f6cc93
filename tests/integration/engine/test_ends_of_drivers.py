"""With what a driver exits when it is asked to end, cannot end in time, or loses its JVM."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from flinkish.error_display import ExitCode
from flinkish.launch import driver
from tests.integration.engine import endless_job
from tests.support.processes import ProcessGroup, start_driver

RESTARTS = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "9"}


def start(folder: Path, log: str, **options: Any) -> ProcessGroup:
    program = json.dumps({"folder": str(folder), **options})
    return start_driver(Path(driver.__file__), endless_job.__file__, program, log_file=folder / log)


def kill_jvm(job: ProcessGroup) -> None:
    (jvm,) = job.jvms("SparkSubmit")
    jvm.kill()
    psutil.wait_procs([jvm])


@pytest.mark.slow
def test_a_job_that_is_stuck_in_an_epoch_ends_without_it_after_sigterm_and_goes_on_when_it_is_started_again(
    tmp_path: Path,
) -> None:
    stuck_at = 2 * endless_job.PER_EPOCH
    with start(tmp_path, "1.log", stuck_at=stuck_at, settings={"flinkish.shutdown.timeout": "30 s"}) as job:
        job.wait_for_line(r"> sum 45$", 200)
        job.wait_for((tmp_path / "stuck").exists, 60, "the epoch that does not end")
        os.kill(job.pid, signal.SIGTERM)
        job.end_with(ExitCode.STOPPED, 60)
        output = job.output()
    assert "SIGTERM: job 'endless' ends after the running epoch" in output
    assert "has not ended within" not in output
    assert "the program goes on" not in output

    # a task that fails is Spark's business; waiting for execute_async's result, a program is stopped in order as well
    settings = {**RESTARTS, "execution.checkpointing.interval": "1 h"}
    with start(tmp_path, "2.log", fails_once_at=stuck_at + 1, settings=settings) as job:
        job.wait_for_line(rf"> sum {sum(range(3 * endless_job.PER_EPOCH))}$", 200)
        os.kill(job.pid, signal.SIGTERM)
        job.end_with(ExitCode.STOPPED, 120)
        output = job.output()
    assert "the program goes on" not in output and "> sum 45\n" not in output
    assert (tmp_path / "failed").exists() and "failed:" not in output
    assert len(list((tmp_path / "job" / "checkpoints").glob("chk-*/manifest.json"))) == 1


@pytest.mark.nightly
def test_a_driver_whose_jvm_has_died_ends_at_once_for_its_supervisor_to_start_another_one(tmp_path: Path) -> None:
    with start(tmp_path, "1.log", settings=RESTARTS) as job:
        job.wait_for_line(r"> sum 10$", 200)
        kill_jvm(job)
        job.end_with(ExitCode.FAILED_FOR_NOW, 60)
        output = job.output()
    assert "SparkLostError: Spark has gone" in output
    assert "not started again, after 0 restarts: only a new driver can go on" in output
    assert "driver.py" not in output
