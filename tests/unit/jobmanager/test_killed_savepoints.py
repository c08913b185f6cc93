"""What a driver that was killed -9 has left of a savepoint is swept by the next one, which tells of a stop whose
savepoint was whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flinkish.checkpoint.manifest import Savepoint
from flinkish.errors import OperationError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobmanager.client import RunClient
from flinkish.runtime.phases import Phase, hooked
from tests.support.job_files import names, put
from tests.unit.jobmanager.test_minicluster_jobs import (
    PLAIN,
    Gate,
    at_gate,
    crash_at,
    environment,
    goes_on_until,
    kept,
    written,
)

TIMEOUT_S = 60

KILLED = """
import os, signal
from pathlib import Path
from flinkish.runtime.phases import Phase, set_hook
from tests.unit.jobmanager import test_minicluster_jobs as program

def kill(phase, details):
    if phase.name == {phase!r}:
        os.kill(os.getpid(), signal.SIGKILL)

set_hook(kill)
client = program.at_gate(program.kept(Path({folder!r})), 25)
future = client.{asked}
program.goes_on_until(future.done)
future.result({timeout_s})
"""


def killed_in(folder: Path, phase: Phase, asked: str) -> None:
    """Kill a driver -9 in a phase of what was asked of it."""
    code = KILLED.format(phase=phase.name, folder=str(folder), asked=asked, timeout_s=TIMEOUT_S)
    root = str(Path(__file__).parents[3])
    environ = {**os.environ, "PYTHONPATH": root}
    killed = subprocess.run([sys.executable, "-c", code], cwd=root, env=environ, timeout=TIMEOUT_S, check=False)
    assert killed.returncode == -signal.SIGKILL


def left(folder: Path) -> tuple[list[Path], list[str]]:
    """The savepoints of the job, and the files that tell of those in work."""
    savepoints = folder / "job" / "savepoints"
    return sorted(savepoints.iterdir()), names(JobDirectory(str(folder / "job")), "saving-")


@pytest.mark.parametrize("asked", ["trigger_savepoint()", "stop_with_savepoint(False)"], ids=["savepoint", "stop"])
def test_the_part_of_a_savepoint_is_removed_by_the_next_start(asked: str, tmp_path: Path) -> None:
    killed_in(tmp_path, Phase.SAVEPOINT_WRITTEN, asked)
    (part,), (note,) = left(tmp_path)
    assert not (part / "manifest.json").exists() and (part / "state").exists(), note
    kept(tmp_path).execute("totals")
    assert left(tmp_path) == ([], [])
    assert written(tmp_path) == PLAIN


def test_a_stop_whose_savepoint_was_whole_when_the_driver_died_is_told_of(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    killed_in(tmp_path, Phase.SAVEPOINT_COMPLETED, "stop_with_savepoint(False)")
    (path,), _ = left(tmp_path)
    assert Savepoint.open(str(path)).manifest.epoch == 2
    capfd.readouterr()
    client = at_gate(kept(tmp_path), 45)
    assert isinstance(client, RunClient)
    (warning,) = client.describe().warnings
    said = f"the driver before was to stop the job with the savepoint {path}, and has died when that was whole"
    assert warning.startswith(said) and "the job goes on" in warning
    assert capfd.readouterr().err.splitlines()[0] == f"totals: {warning}"
    Gate.go.set()
    client.run.wait(TIMEOUT_S)
    assert left(tmp_path) == ([path], []) and written(tmp_path) == PLAIN
    kept(tmp_path).execute("totals")
    assert "the driver before was to stop" not in capfd.readouterr().err, "once"
    environment(tmp_path / "other", execution__state_recovery__path=path).execute("from the savepoint")
    assert sum(written(tmp_path / "other").values()) == 30


@pytest.mark.parametrize("asked", ["trigger_savepoint", "stop_with_savepoint"])
def test_a_savepoint_that_is_whole_leaves_nothing_to_be_told(
    asked: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    client = at_gate(kept(tmp_path), 25)
    future = client.trigger_savepoint() if asked == "trigger_savepoint" else client.stop_with_savepoint(False)
    goes_on_until(future.done)
    Gate.go.set()
    path = Path(future.result(TIMEOUT_S))
    client.run.wait(TIMEOUT_S)
    assert left(tmp_path) == ([path], [])
    kept(tmp_path, flinkish__job__restart="true").execute("totals")
    assert "the driver before" not in capfd.readouterr().err and left(tmp_path) == ([path], [])


def test_a_stop_that_fails_behind_its_savepoint_leaves_nothing_to_be_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    client = at_gate(kept(tmp_path), 25)
    with hooked(crash_at(Phase.SAVEPOINT_COMPLETED, 2)):
        stop = client.stop_with_savepoint(False)
        Gate.go.set()
        with pytest.raises(OperationError, match="as the test wants it"):
            stop.result(TIMEOUT_S)
    client.run.wait(TIMEOUT_S)
    (path,), notes = left(tmp_path)
    assert (path / "manifest.json").exists() and notes == []
    assert written(tmp_path) == PLAIN


@pytest.mark.parametrize("path", ["/", "{folder}/data", "{folder}/../savepoint-abcdef-0123456789ab/.."])
def test_a_note_that_names_anything_else_removes_nothing(path: str, tmp_path: Path) -> None:
    (tmp_path / "data" / "state").mkdir(parents=True)
    directory = JobDirectory(str(tmp_path / "job"))
    put(directory, "saving-1.json", {"path": path.format(folder=tmp_path), "of_stop": False})
    kept(tmp_path).execute("totals")
    assert (tmp_path / "data" / "state").exists() and written(tmp_path) == PLAIN
