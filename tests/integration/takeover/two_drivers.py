"""Two drivers on one job directory: trials that show that the older one writes nothing once the newer one has begun.

    python -m tests.integration.takeover.two_drivers --trials 100 [--seed 7] [--folder DIR] [--s3]

A trial: the older driver, a process of its own, is paused whole (SIGSTOP to driver, JVM and Python workers) at a named
phase of a random epoch or checkpoint, or a random moment later. A newer driver takes the job over and works it off, or
takes checkpoints and is stopped half way. Then the older one is continued. What must hold is said by `Trial.check`.
Both drivers take a checkpoint whenever an epoch has ended, the newer one incremental ones.

``--s3``: the job directory lies on an S3 server that the command starts. The sinks stay on the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import socket
import sqlite3
import sys
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyarrow import fs

from flinkish.checkpoint import writer as incremental
from flinkish.checkpoint.manifest import CheckpointDirectory, Savepoint
from flinkish.checkpoint.rows import open_table
from flinkish.error_display import ExitCode
from flinkish.errors import FencedError
from flinkish.jobdir.fencing import last_claim
from flinkish.runtime.epoch.changelog_files import read_parts
from flinkish.runtime.phases import Phase
from tests.integration.engine import counting_job
from tests.integration.engine.counting_job import build, expected, in_database, make_tables, windows_expected
from tests.platforms.s3_server import S3Server, hadoop_aws_jars
from tests.support import faults
from tests.support.processes import REPOSITORY, ProcessGroup, python_path
from tests.support.spark_jars import spark_jars

TIMEOUT_S = 240

#: Where an epoch of the older driver can be when it is paused.
PHASES = [
    Phase.PLANNED,
    Phase.SOURCES_READ,
    Phase.LEVEL_PROCESSED,
    Phase.STATE_WRITTEN,
    Phase.COMMITTABLES_WRITTEN,
    Phase.EPOCH_PREPARED,
    Phase.COMMIT_BEGUN,
    Phase.SINK_COMMITTED,
    Phase.METADATA_COMMITTED,
    Phase.CLEANED_UP,
]

#: Where a checkpoint of the older driver can be when it is paused.
CHECKPOINT_PHASES = [Phase.CHECKPOINT_READ, Phase.CHECKPOINT_WRITTEN, Phase.CHECKPOINT_COMPLETED]

#: Each epoch's end becomes a checkpoint, unless one is still being taken.
CHECKPOINTS = {"execution__checkpointing__interval": "10 ms"}

#: What a driver that is paused while it writes the tables of checkpoints may still leave there: files that no version
#: has, or a version that no checkpoint names. What was there before must stay as it was.
LEFT_BY_CHECKPOINTS = ("job/checkpoints/state/", "job/checkpoints/changes/")

#: Commits that Spark, or this process, has written and not named yet.
_NO_COMMIT_YET = re.compile(r"\.tmp(\.crc)?$|/\.[0-9]{20}\.json\.[0-9a-f]{32}$")

#: Files that drivers write for people and to show that they live; nothing is decided by them.
NOT_OF_THE_JOB = ("owner.json", "history/")


@dataclass(frozen=True)
class Pause:
    """Where the older driver is paused; ``phase`` None: nowhere, it is at work when the newer one comes."""

    phase: Phase | None
    epoch: int = 2
    #: so long after the phase, in seconds
    later_s: float = 0.0
    #: the newer driver takes so many checkpoints and is stopped before the older one is continued; None: it works the
    #: job off, at whose end checkpoints are deleted
    new_checkpoints: int | None = None

    def __str__(self) -> str:
        if self.phase is None:
            return "while it works"
        later = f" and {self.later_s * 1000:.0f} ms" if self.later_s else ""
        return f"at {self.phase.value}{later} of epoch {self.epoch}"


class Place:
    """Where job directories lie, by pyarrow's file system for it: on the disk, below the folder of the trial."""

    #: what the session of a driver needs, and the end of the class path of its JVM
    session: dict[str, str] = {}
    class_path = ""

    def __init__(self) -> None:
        self.system: fs.FileSystem = fs.LocalFileSystem()

    def uri(self, folder: Path) -> str:
        """The job directory of the trial in this folder, as a program names it."""
        return str(folder / "job")

    def path(self, folder: Path) -> str:
        """The same as the file system names it."""
        return str(folder / "job")


class OnS3(Place):
    """A bucket of a server that was started."""

    def __init__(self, server: S3Server) -> None:
        self.system = server.file_system()
        self.session = server.spark_settings()
        self.class_path = ":".join(map(str, [*spark_jars(), *hadoop_aws_jars()]))
        server.create_bucket("jobs")

    def uri(self, folder: Path) -> str:
        return f"s3a://{self.path(folder)}"

    def path(self, folder: Path) -> str:
        return f"jobs/{folder.name}"


class Trial:
    """One trial in a folder of its own."""

    def __init__(self, folder: Path, pause: Pause, place: Place) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        make_tables(folder)
        self.folder = folder
        self.pause = pause
        self.job, self._system, self._path = place.uri(folder), place.system, place.path(folder)
        self._plan = folder / "plan.json"
        if pause.phase is not None:
            faults.plan_fault(self._plan, pause.phase, "wait", epoch=pause.epoch)
        options = {
            "folder": str(folder),
            "delta": True,
            "slow_s": 0.3 if pause.phase is None else 0,
            "settings": CHECKPOINTS,
            "job": self.job,
            "session": place.session,
        }
        environment = {"PYTHONPATH": python_path(), "PYTHONUNBUFFERED": "1", "PYSPARK_PYTHON": sys.executable}
        if place.class_path:
            environment["PYSPARK_SUBMIT_ARGS"] = f"--driver-class-path {place.class_path} pyspark-shell"
        command = [
            sys.executable,
            "-m",
            "flinkish.launch.driver",
            str(Path(counting_job.__file__)),
            json.dumps(options),
        ]
        self.old = ProcessGroup(command, folder / "old.log", {**environment, **faults.environment(self._plan)})

    # ------------------------------------------------------------------ steps

    def pause_old(self) -> None:
        """Wait for the moment, then pause the older driver."""
        if self.pause.phase is None:
            self.old.wait_for_line(r"epochs [1-9]", TIMEOUT_S)
            return
        self.old.wait_for(lambda: faults.happened(self._plan), TIMEOUT_S, f"the phase {self.pause.phase.value}")
        if self.pause.later_s:
            faults.go_on(self._plan)
            time.sleep(self.pause.later_s)
        self.old.pause()
        faults.go_on(self._plan)
        # a paused process keeps the lock of SQLite's one writer, and no other can tell it from one that is slow
        while self._locked():
            self.old.resume()
            time.sleep(0.01)
            self.old.pause()

    def _locked(self) -> bool:
        with closing(sqlite3.connect(self.folder / "out.db", timeout=0.2, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
            except sqlite3.OperationalError:
                return True
        return False

    def run_new(self, takeover: str) -> None:
        """The newer driver, in this process, works the job off, or some of it."""
        enough = self.pause.new_checkpoints
        with patch.object(incremental, "SMALL_STATE_ROWS", 0):
            env = build(
                self.folder,
                self.job,
                delta=True,
                slow_s=0 if enough is None else 0.5,
                flinkish__job__takeover=takeover,
                **CHECKPOINTS,
            )
            client = env.execute_async("counting")
            while enough is not None and not client.run.has_ended:
                done = [taken for taken in client.run.checkpoints.describe() if taken.status == "COMPLETED"]
                if len(done) >= enough:
                    client.run.stop_from_outside("the trial")
                    break
                time.sleep(0.01)
            client.get_job_execution_result().result(TIMEOUT_S)

    def check_refused(self) -> None:
        """A newer driver that may not take over ends at once and names the one that is there."""
        try:
            self.run_new("refuse")
        except FencedError as error:
            assert f"another driver (process {self.old.pid} on {socket.gethostname()})" in str(error), error
        else:
            raise AssertionError("a second driver was not refused")

    def check(self) -> None:
        """The newer driver has come to the end: the results are right, and stay as they are, file by file, when the
        older one is continued; that ends with its own code and names the winner. So do the checkpoints of a newer
        driver that was stopped half way; and the next one works the job off."""
        finished = f"{self._path}/ended.json" in {info.path for info in self._infos()}
        if finished:
            self.check_results()
        before, state = self.listing(), self._checkpointed()
        assert finished or state, "the newer driver has left no checkpoint"
        claimed = last_claim(self.job)
        assert claimed is not None
        self.old.resume()
        status = self.old.wait(TIMEOUT_S)
        output = self.old.output()
        assert status == ExitCode.FENCED, f"it ended with {status}:\n{output[-4000:]}"
        winner = (
            rf"the driver of process {os.getpid()} on {re.escape(socket.gethostname())} \(since [^)]+\) has taken over"
        )
        assert re.search(winner, output), output[-4000:]
        assert f"its fencing token is {claimed[0]}" in output, output[-4000:]
        after = [entry for entry in self.listing() if entry in before or not entry[0].startswith(LEFT_BY_CHECKPOINTS)]
        before = [entry for entry in before if not self._is_taken_back(entry[0])]
        assert after == before, sorted(set(after) ^ set(before))
        assert self._checkpointed() == state
        if not finished:
            build(self.folder, self.job, delta=True, **CHECKPOINTS).execute("counting")
        self.check_results()

    def _is_taken_back(self, path: str) -> bool:
        """Whether it is of a checkpoint that the older driver was about to look at again when it was paused: it takes
        it back as a whole. The newest one is the newer driver's."""
        found = re.match(r"job/checkpoints/(chk-[0-9]+)/", path)
        return found is not None and not self._infos(f"checkpoints/{found[1]}")

    def _checkpointed(self) -> list[tuple[Any, ...]]:
        """The rows of the newest checkpoint."""
        from pyspark.sql import SparkSession

        directory = CheckpointDirectory(f"{self.job}/checkpoints")
        numbers = directory.completed()
        if not numbers:
            return []
        spark, path = SparkSession.Builder().getOrCreate(), directory.checkpoint(numbers[-1])
        return sorted((tuple(row) for row in open_table(spark, Savepoint.open(path)).collect()), key=repr)

    def check_results(self) -> None:
        """All three tables are right."""
        assert in_database(self.folder) == expected()
        assert in_database(self.folder, "windows") == windows_expected()
        assert self._delta_rows() == expected()

    def _delta_rows(self) -> list[tuple[int, int]]:
        from pyspark.sql import SparkSession

        table = SparkSession.Builder().getOrCreate().read.format("delta").load(str(self.folder / "table"))
        return sorted((row["k"], row["n"]) for row in table.collect())

    def listing(self) -> list[tuple[str, int, int]]:
        """(path, size, time of the last change in ns) of all files of the job and of its Delta sink's log, and all rows
        of the database with the epochs that wrote them."""
        found = [(self._named(info), info.size, info.mtime_ns) for info in self._infos()]
        found = [entry for entry in found if not entry[0].removeprefix("job/").startswith(NOT_OF_THE_JOB)]
        for path in (self.folder / "table" / "_delta_log").rglob("*"):
            if path.is_file():
                found.append((str(path.relative_to(self.folder)), path.stat().st_size, path.stat().st_mtime_ns))
        ignored = (self._of_no_version, self._of_no_list, self._checksum_of_the_sink)
        found = [entry for entry in found if not any(ignores(entry[0]) for ignores in ignored)]
        with closing(sqlite3.connect(self.folder / "out.db")) as connection:
            marks = connection.execute("SELECT sink_uid, subtask, epoch FROM flinkish_epochs").fetchall()
        return sorted(found + [(f"{uid}/{subtask}", epoch, 0) for uid, subtask, epoch in marks])

    def _of_no_version(self, path: str) -> bool:
        """Whether it is a file of a table of checkpoints that no version has: a data file that a driver has not written
        to its end, perhaps, or a commit that Spark has not named yet, and removes if the name is taken."""
        table = next((table for table in LEFT_BY_CHECKPOINTS if path.startswith(table)), None)
        if table is None or not path.endswith((".parquet", ".parquet.crc")):
            return table is not None and _NO_COMMIT_YET.search(path) is not None
        name = path.rpartition("/")[2].removeprefix(".").removesuffix(".crc")
        logs = (info.path for info in self._infos(f"{table.removeprefix('job/')}_delta_log"))
        commits = (path for path in logs if path.endswith(".json"))
        return all(name.encode() not in self._system.open_input_stream(path).read() for path in commits)

    def _of_no_list(self, path: str) -> bool:
        """Whether it is a part of the changelog that is valid for no driver: a task that was paused while it wrote the
        part writes it to its end."""
        if not (path.startswith("job/changelog/") and path.endswith(".parquet")):
            return False
        _, *directories, epoch, name = path.split("/")
        valid = read_parts("/".join([self.job, *directories]), int(epoch.removeprefix("epoch=")))
        return "/".join([self.job, *directories, epoch, name]) not in valid

    def _checksum_of_the_sink(self, path: str) -> bool:
        """Whether Delta or Hadoop derives the file from a commit that is there: a driver that was paused within a
        commit writes it afterwards."""
        log, _, name = path.rpartition("/")
        commit = self.folder / log / f"{name.lstrip('.')[:20]}.json"
        return log == "table/_delta_log" and name.endswith((".crc", ".tmp")) and ".crc" in name and commit.exists()

    def _infos(self, part: str = "") -> list[fs.FileInfo]:
        """The files in a part of the job directory."""
        selector = fs.FileSelector(f"{self._path}/{part}".rstrip("/"), allow_not_found=True, recursive=True)
        return [info for info in self._system.get_file_info(selector) if info.is_file]

    def _named(self, info: fs.FileInfo) -> str:
        return f"job{info.path.removeprefix(self._path)}"

    def end(self) -> None:
        """Nothing is left running."""
        with suppress(Exception):
            self.old.resume()
        self.old.kill()


def taken_over(folder: Path, pause: Pause, place: Place | None = None) -> None:
    """A whole trial: refused, then taken over."""
    trial = Trial(folder, pause, place or Place())
    try:
        trial.pause_old()
        if pause.phase is not None:
            trial.check_refused()
        trial.run_new("newest")
        trial.check()
    finally:
        trial.end()


def refused(folder: Path, pause: Pause, place: Place | None = None) -> None:
    """A whole trial: the newer driver is refused, and has done no harm to the older one."""
    trial = Trial(folder, pause, place or Place())
    try:
        trial.pause_old()
        trial.check_refused()
        trial.old.resume()
        trial.old.succeed(TIMEOUT_S)
        trial.check_results()
    finally:
        trial.end()


def random_pause(dice: random.Random) -> Pause:
    """Any phase, and often some moment after it."""
    later_s = dice.choice([0.0, dice.uniform(0, 0.02), dice.uniform(0, 0.3)])
    phase = dice.choice(dice.choice([PHASES, CHECKPOINT_PHASES]))
    # of a checkpoint it is not known which epochs have one, but that the first ones have
    epoch = dice.randrange(1, 6) if phase in PHASES else 0
    return Pause(phase, epoch, later_s, dice.choice([None, 1, 3]))


def main(arguments: list[str] | None = None) -> int:
    """The command. Returns how many trials failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--folder", type=Path, default=None, help="keeps what failed trials leave")
    parser.add_argument("--s3", action="store_true", help="the job directory lies on an S3 server")
    options = parser.parse_args(arguments)
    from tests.support.class_archive import set_java_options

    # each trial starts a JVM that lives for seconds
    set_java_options()
    seed = options.seed if options.seed is not None else random.randrange(10**6)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="two-drivers-"))
    os.chdir(REPOSITORY)
    print(f"seed {seed}, folder {folder}", flush=True)
    if options.s3:
        with S3Server() as server:
            failed = _all_tried(folder, options.trials, seed, OnS3(server))
    else:
        failed = _all_tried(folder, options.trials, seed, Place())
    print(f"{options.trials} trials, {failed} failed", flush=True)
    return failed


def _all_tried(folder: Path, trials: int, seed: int, place: Place) -> int:
    """Carry out so many trials; returns how many failed."""
    from tests.support.spark_session import start_session

    if place.class_path:
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-class-path {place.class_path} pyspark-shell"
    spark = start_session(folder / "spark", extra=place.session)
    pauses = [random_pause(random.Random(seed * 1000 + number)) for number in range(trials)]
    failed = [not _tried(folder / f"trial-{number}", pause, number, place) for number, pause in enumerate(pauses)]
    spark.stop()
    return sum(failed)


def _tried(folder: Path, pause: Pause, number: int, place: Place) -> bool:
    began = time.monotonic()
    run: Any = refused if number % 5 == 4 else taken_over
    try:
        run(folder, pause, place)
    except Exception as error:
        print(f"{number}: {run.__name__} {pause}: FAILED: {type(error).__name__}: {error}", flush=True)
        return False
    print(f"{number}: {run.__name__} {pause}: right ({time.monotonic() - began:.0f} s)", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    return True


if __name__ == "__main__":
    sys.exit(min(main(), 100))
