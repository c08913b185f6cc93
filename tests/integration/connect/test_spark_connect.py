"""The main job's pipeline under Spark Connect: the driver is a client, and epochs run in processes of the server.

Each driver is a process of its own, because a process has one kind of Spark session. Most of them use one server, which
all tests share: to start one for each driver (`local[2]` as a remote) takes longer than what is done with it.
"""

from __future__ import annotations

import json
import re
import socket
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flinkish.error_display import ExitCode
from flinkish.errors import OperationError
from flinkish.jobmanager.requests import ask
from flinkish.launch import driver
from flinkish.runtime.phases import Phase
from tests.integration.connect.clicks import click, expected
from tests.integration.engine import slow_job, tables_job
from tests.integration.engine.counting_job import expected as expected_counts
from tests.integration.engine.counting_job import in_database, make_tables
from tests.support import faults
from tests.support.connect_server import start_connect_server
from tests.support.processes import ProcessGroup, start_driver, wait_until

#: a remote whose server is a child of the driver and ends with it
LOCAL = "local[2]"
#: where that server listens
PORT = 15002

DRIVER = Path(__file__).with_name("connect_driver.py")
COUNT = 9_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server of its own, which outlives the drivers."""
    process, url = start_connect_server(tmp_path_factory.mktemp("server"))
    with process:
        yield url


@pytest.fixture(params=["a server of its own", pytest.param(LOCAL, marks=pytest.mark.slow)])
def remote(request: pytest.FixtureRequest) -> str:
    """Where the driver's session is."""
    return LOCAL if request.param == LOCAL else str(request.getfixturevalue("server"))


def start(folder: Path, *jobs: dict[str, Any], remote: str = LOCAL, env: dict[str, str] | None = None) -> ProcessGroup:
    shared = {"folder": str(folder / "spark"), "remote": remote}
    described = [{**shared, "job_dir": str(folder / f"job-{number}"), **job} for number, job in enumerate(jobs)]
    arguments = [json.dumps(job) for job in described]
    if remote == LOCAL:
        # the server of the driver before may take a while to go
        wait_until(_port_is_free, 60, f"port {PORT}")
    return start_driver(DRIVER, *arguments, log_file=folder / "driver.log", env=env)


def _port_is_free() -> bool:
    with socket.socket() as port:
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            port.bind(("0.0.0.0", PORT))
            return True
    return False


def counts_in(database: Path) -> dict[str, int]:
    with sqlite3.connect(database) as connection:
        return dict(connection.execute('SELECT "user", n FROM counts').fetchall())


def total(database: Path) -> int:
    return sum(counts_in(database).values())


@pytest.mark.slow
def test_the_job_goes_on_after_a_stop_and_after_a_kill_with_nothing_lost_and_nothing_twice(
    tmp_path: Path, remote: str
) -> None:
    database = new_database(tmp_path)
    job = {"database": str(database), "count": COUNT, "per_epoch": 300}
    everything = sum(expected(COUNT).values())

    with start(tmp_path, job, remote=remote) as driver:
        driver.wait_for(lambda: total(database), 120, "clicks counted")
        driver.stop(timeout_s=60)
        assert "connect: suspended after" in driver.output()
    stopped_at = total(database)
    assert 0 < stopped_at < everything

    with start(tmp_path, job, remote=remote) as driver:
        driver.wait_for(lambda: total(database) > stopped_at, 120, "more clicks counted")
        # with a server of its own, the query goes on there until the next driver takes the job over
        driver.kill()
    killed_at = total(database)
    assert stopped_at < killed_at < everything

    # and with more subtasks
    with start(tmp_path, {**job, "settings": {"parallelism.default": "3"}}, remote=remote) as driver:
        assert "connect: finished after" in driver.succeed(timeout_s=120)
    assert counts_in(database) == expected(COUNT)
    assert_history(tmp_path / "job-0")


def assert_history(job_dir: Path) -> None:
    """The tasks have told where they ran, and the driver has written it down."""
    files = [str(path) for path in (job_dir / "history" / "executions").glob("*.parquet")]
    ends = pq.ParquetDataset(files).read().to_pylist()
    assert {"CANCELED", "FINISHED"} == {end["state"] for end in ends}
    placed = [end for end in ends if end["executor"] is not None]
    assert {(end["executor"], end["attempt"]) for end in placed} == {("driver", 0), ("driver", 2)}
    assert all(end["stage"] is not None and end["task_id"] is not None for end in placed)


def test_user_code_that_fails_is_seen_with_its_traceback_first_and_the_mended_job_goes_on(
    tmp_path: Path, server: str
) -> None:
    table = tmp_path / "table"
    job = {"sink": "delta", "table": str(table), "count": 800, "per_epoch": 400, "job_dir": str(tmp_path / "job")}
    with start(tmp_path, {**job, "break_at": 501}, job, remote=server) as driver:
        message, then = driver.end_with(3, 240).split("BEGIN ", 1)[1].split("\nEND", 1)
    assert "connect: finished after" in then
    # the server's executor is known from what its tasks report, and is not this driver
    ((executor, status, in_driver, holds, workers),) = json.loads(re.findall(r"^task managers (.*)$", then, re.M)[0])
    assert (executor, status, in_driver, holds) == ("driver", "REGISTERED", False, 4)
    assert workers >= 1
    kind, first, *_ = message.splitlines()
    assert (kind, first) == ("UserCodeError", "Traceback (most recent call last):")
    assert "ValueError: click 501 cannot be counted" in message
    assert "connect_driver.py" in message and "in one" in message and "source_task.py" not in message
    assert "uid ones" in message and "epoch 1" in message

    rows = rows_of(table)
    assert Counter(user for user, _ in rows) == expected(800)
    assert dict(sorted(rows, key=lambda row: row[1])) == expected(800)


@pytest.mark.nightly
def test_queries_go_on_after_a_kill_with_the_results_of_one_that_was_not(tmp_path: Path, server: str) -> None:
    tables_job.make(tmp_path)
    script, options = Path(tables_job.__file__), json.dumps({"folder": str(tmp_path), "remote": server})
    with start_driver(script, options, log_file=tmp_path / "driver.log") as driver:
        driver.wait_for_line(r": epoch [1-3] at ", 240)
        driver.kill()
    with start_driver(script, options, log_file=tmp_path / "driver.log") as driver:
        driver.succeed(240)
    assert (tables_job.totals(tmp_path), tables_job.windows(tmp_path)) == tables_job.expected()


@pytest.mark.slow
def test_files_are_read_and_what_is_printed_or_collected_comes_back_to_the_program(tmp_path: Path) -> None:
    clicks = list(map(click, range(300)))
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "clicks.txt").write_text("".join(json.dumps(record) + "\n" for record in clicks))
    (tmp_path / "columns").mkdir()
    users, logged_in, _ = zip(*clicks)
    pq.write_table(pa.table({"user": users, "logged_in": logged_in}), tmp_path / "columns" / "clicks.parquet")
    collected = {"source": "text", "files": str(tmp_path / "lines"), "sink": "collect"}
    printed = {"source": "parquet", "files": str(tmp_path / "columns"), "sink": "print"}
    with start(tmp_path, collected, printed) as driver:
        output = driver.succeed(timeout_s=150)
    running = [f"{user},{n}" for user, total in expected(300).items() for n in range(1, total + 1)]
    lines = output.splitlines()
    came_back = {word: [line for line in lines if line.startswith(word)] for word in ("collected", "printed")}
    assert sorted(line.split("> ", 1)[1] for line in came_back["collected"]) == sorted(running)
    assert sorted(line.split("> +I[", 1)[1].rstrip("]") for line in came_back["printed"]) == sorted(running)


@pytest.mark.slow
def test_user_code_that_asks_for_a_commit_does_not_wait_for_the_interval(tmp_path: Path, server: str) -> None:
    database = new_database(tmp_path)
    # by its interval it would take hours
    settings = {"flinkish.epoch.interval": "1 h"}
    job = {"database": str(database), "count": 40, "per_epoch": 10, "asks": True, "settings": settings}
    with start(tmp_path, job, remote=server) as driver:
        assert "connect: finished after" in driver.succeed(timeout_s=120)
    assert counts_in(database) == expected(40)


@pytest.mark.slow
def test_a_job_starts_from_a_checkpoint_whose_last_changes_lie_in_a_table_of_their_own(tmp_path: Path) -> None:
    database = new_database(tmp_path)
    settings = {
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    users = 25_000
    job = {"database": str(database), "count": 1_000_000, "per_epoch": 300, "users": users, "settings": settings}
    job_dir = tmp_path / "job-0"
    with start(tmp_path, job) as driver:
        driver.wait_for(lambda: changes_of(job_dir), 240, "an incremental checkpoint")
        driver.stop(timeout_s=120)
    stopped_at = total(database) - users
    count = next(count for count in range(stopped_at, 1_000_000) if sum(expected(count).values()) == stopped_at)

    more = {"execution.state-recovery.path": changes_of(job_dir)[-1], **settings}
    again = {**job, "count": count + 600, "job_dir": str(tmp_path / "other"), "settings": more}
    with start(tmp_path, again) as driver:
        assert "connect: finished after" in driver.succeed(timeout_s=240)
    counts = counts_in(database)
    assert {user: n for user, n in counts.items() if not user.startswith("other-")} == expected(count + 600)
    assert sum(n for user, n in counts.items() if user.startswith("other-")) == users


@pytest.mark.slow
def test_restarts_checkpoints_savepoints_and_drain_are_those_of_other_sessions(tmp_path: Path) -> None:
    database = new_database(tmp_path)
    settings = {
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1",
        "restart-strategy.fixed-delay.delay": "100 ms",
    }
    job = {"database": str(database), "count": 1_000_000, "per_epoch": 300, "settings": settings}
    job_dir = tmp_path / "job-0"
    fails = {"break_at": 901, "fails_once": str(tmp_path / "failed")}
    plan = tmp_path / "plan.json"
    with start(tmp_path, {**job, **fails}, env=faults.environment(plan)) as driver:
        driver.wait_for(lambda: total(database) > sum(expected(901).values()), 120, "clicks counted behind the failure")
        driver.wait_for(lambda: whole_checkpoints(job_dir), 120, "a checkpoint")
        described = ask(str(job_dir), "describe", 60)
        faults.plan_fault(plan, Phase.SAVEPOINT_WRITTEN, "raise")
        with pytest.raises(OperationError, match="the driver could not stop: .*injected at"):
            ask(str(job_dir), "stop", 120, directory=str(tmp_path / "savepoints"))
        faults.no_fault(plan)
        before = total(database)
        driver.wait_for(lambda: total(database) > before, 120, "clicks counted behind the failed stop")
        assert whole_checkpoints(job_dir)
        drained = ask(str(job_dir), "stop", 120, directory=str(tmp_path / "savepoints"), drain=True)
        assert "connect: finished after" in driver.succeed(timeout_s=120)
    assert [exception["error_class"] for exception in described["exceptions"]] == ["UserCodeError"]
    stopped_at = total(database)
    count = next(count for count in range(stopped_at, 1_000_000) if sum(expected(count).values()) == stopped_at)
    assert counts_in(database) == expected(count)

    more = {"execution.state-recovery.path": drained, **settings}
    with start(tmp_path, {**job, "count": count + 600, "job_dir": str(tmp_path / "other"), "settings": more}) as driver:
        assert "connect: finished after" in driver.succeed(timeout_s=120)
    assert counts_in(database) == expected(count + 600)


@pytest.mark.slow
def test_what_is_prepared_is_committed_by_the_client_before_a_changed_program_goes_on(tmp_path: Path) -> None:
    plan, table = tmp_path / "plan", tmp_path / "table"
    job = {"sink": "delta", "table": str(table), "count": 1_200, "per_epoch": 400, "job_dir": str(tmp_path / "job")}
    changed = {**job, "settings": {"parallelism.default": "3"}}
    faults.plan_fault(plan, Phase.EPOCH_PREPARED, "raise", epoch=1)
    with start(tmp_path, job, changed, env=faults.environment(plan)) as driver:
        assert "connect: finished after" in driver.end_with(3, 240).split("\nEND", 1)[1]
    assert faults.happened(plan)
    rows = rows_of(table)
    assert Counter(user for user, _ in rows) == expected(1_200)
    assert dict(sorted(rows, key=lambda row: row[1])) == expected(1_200)


@pytest.mark.slow
def test_a_damaged_state_is_taken_from_the_last_checkpoint_and_nothing_is_lost_or_repeated(tmp_path: Path) -> None:
    database = new_database(tmp_path)
    settings = {"execution.checkpointing.interval": "1 s"}
    job = {"database": str(database), "count": COUNT, "per_epoch": 300, "settings": settings}
    with start(tmp_path, job) as driver:
        driver.wait_for(lambda: total(database), 120, "clicks counted")
        driver.stop(timeout_s=60)
        assert "connect: suspended after" in driver.output()
    stopped_at = total(database)
    assert 0 < stopped_at < sum(expected(COUNT).values())
    versions = (tmp_path / "job-0" / "spark" / "state" / "0" / "0").glob("*.delta")
    lost = max(versions, key=lambda path: int(path.stem))
    lost.unlink()

    with start(tmp_path, job) as driver:
        output = driver.succeed(timeout_s=180)
    assert str(lost) in output
    assert re.search(r"goes on from the checkpoint \S+/chk-\d+ of epoch \d+; nothing is repeated", output)
    assert counts_in(database) == expected(COUNT)


@pytest.mark.slow
def test_a_delta_table_is_merged_by_key_over_a_stop(tmp_path: Path, server: str) -> None:
    table = tmp_path / "table"
    job = {"sink": "merge", "table": str(table), "count": 1_200, "per_epoch": 200}
    broken = {**job, "break_at": 901}
    with start(tmp_path, broken, remote=server) as driver:
        driver.end_with(3, 120)
    assert rows_of(table)
    with start(tmp_path, job, remote=server) as driver:
        assert "connect: finished after" in driver.succeed(timeout_s=120)
    assert sorted(rows_of(table)) == sorted(expected(1_200).items())


def changes_of(job_dir: Path) -> list[str]:
    """The completed checkpoints a part of which lies in the table of changes, the latest one last."""
    manifests = sorted(job_dir.glob("checkpoints/chk-*/manifest.json"), key=lambda path: int(path.parent.name[4:]))
    found = [(path, json.loads(path.read_text())) for path in manifests]
    return [str(path.parent) for path, manifest in found if manifest.get("changes")]


def whole_checkpoints(job_dir: Path) -> int:
    counts: dict[str, int] = ask(str(job_dir), "describe", 60)["checkpoints"]["counts"]
    return counts.get("COMPLETED", 0)


def new_database(folder: Path) -> Path:
    database = folder / "counts.db"
    with sqlite3.connect(database) as connection:
        connection.execute('CREATE TABLE counts ("user" TEXT PRIMARY KEY, n INTEGER)')
    return database


def rows_of(table: Path) -> list[tuple[str, int]]:
    """The rows of the files that the Delta log of the table names."""
    files = set()
    for log in sorted((table / "_delta_log").glob("*.json")):
        for line in log.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                files.add(action["add"]["path"])
            if "remove" in action:
                files.discard(action["remove"]["path"])
    return [tuple(row.values()) for file in files for row in pq.read_table(table / file).to_pylist()]


@pytest.mark.slow
def test_a_cancel_ends_an_epoch_that_takes_for_ever_on_the_server(server: str, tmp_path: Path) -> None:
    make_tables(tmp_path)
    limit = {"flinkish__epoch__max_records_per_source": slow_job.FAST}
    options = json.dumps({"folder": str(tmp_path), "slow_s": 600, "remote": server, "settings": limit})
    launched = Path(driver.__file__), slow_job.__file__, options
    with start_driver(*launched, log_file=tmp_path / "driver.log") as job:
        working = job.wait_for(lambda: list(tmp_path.glob("working-*")), 200, "the slow epoch")
        ask(str(tmp_path / "job"), "cancel", 120)
        job.end_with(ExitCode.STOPPED, 120)
    assert in_database(tmp_path) == expected_counts(slow_job.FAST)
    pids = [int(path.name.split("-")[1]) for path in working]
    wait_until(lambda: not any(map(psutil.pid_exists, pids)), 60, "the end of the workers")
