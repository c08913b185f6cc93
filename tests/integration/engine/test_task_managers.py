"""On real clusters, an executor that joins, is killed and is decommissioned is seen by who asks by REST: with its
figures, threads and log, and as an event of the job's story and history."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from pyarrow import parquet

from flinkish.delta.log import DeltaLog
from flinkish.jobmanager.history_tables import history_path
from tests.integration.engine import managed_job
from tests.support.local_cluster import StandaloneCluster, executor_pids
from tests.support.processes import ProcessGroup, start_driver
from tests.support.rest_drivers import fetched

pytestmark = pytest.mark.nightly

TIMEOUT_S = 300


class Managed:
    """The job's driver, asked by REST."""

    def __init__(self, driver: ProcessGroup, pids: Callable[[], list[int]]) -> None:
        self.driver, self._pids = driver, pids
        found = driver.wait_for_line(r"REST API and Web UI at (\S+) \(token: (\S+)\)", TIMEOUT_S)
        self._url, self._token = found[1], Path(found[2]).read_text().strip()
        running = self.wait(lambda: self.ask("/jobs/overview")["jobs"] or None, "a job")
        self.job_id = running[0]["jid"]

    def ask(self, path: str, code: int = 200) -> Any:
        found, value = fetched(self._url + path, self._token)
        assert found == code, (path, found, value)
        return value

    def text(self, path: str) -> tuple[int, str]:
        """Code and text of an answer that need not be JSON."""
        request = urllib.request.Request(self._url + path, headers={"Authorization": f"Bearer {self._token}"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def wait(self, condition: Callable[[], Any], what: str) -> Any:
        return self.driver.wait_for(condition, TIMEOUT_S, what)

    def described(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(f"/jobs/{self.job_id}/description")["job"]
        return found

    def managers(self, status: str = "REGISTERED") -> dict[str, dict[str, Any]]:
        """Spark's id -> the task managers with this status."""
        return {one["executor"]: one for one in self.described()["task_managers"] if one["status"] == status}

    def age_ms(self, executor: str) -> int:
        """How long ago an executor was heard of, by the driver's clock."""
        found = self.ask(f"/jobs/{self.job_id}/description")
        (manager,) = [one for one in found["job"]["task_managers"] if one["executor"] == executor]
        return int(found["now_ms"] - manager["heartbeat_ms"])

    def events(self) -> list[tuple[str, str, str]]:
        """(task manager, its status, cause) of the story."""
        story = self.described()["story"]
        found = [(re.fullmatch(r"task manager '(.*)'", one["subject"]), one) for one in story]
        return [(match[1], one["after"], one["cause"]) for match, one in found if match is not None]

    def pid_of(self, executor: str) -> int:
        """The process of an executor."""
        for pid in self._pids():
            command = psutil.Process(pid).cmdline()
            if command[command.index("--executor-id") + 1] == executor:
                return pid
        raise AssertionError(f"there is no executor {executor}")


@contextmanager
def on_local_cluster(folder: Path) -> Iterator[Managed]:
    options = json.dumps({"folder": str(folder), "executors": 2})
    with start_driver(Path(managed_job.__file__), options, log_file=folder / "driver.log") as driver:
        yield Managed(driver, lambda: executor_pids(driver))


@contextmanager
def on_standalone_cluster(folder: Path) -> Iterator[Managed]:
    with StandaloneCluster(folder / "cluster") as cluster:
        options = json.dumps({"folder": str(folder), "master": cluster.url, "cores": 2})
        with start_driver(Path(managed_job.__file__), options, log_file=folder / "driver.log") as driver:
            yield Managed(driver, lambda: [one.pid for one in cluster.executors()])


@pytest.mark.parametrize("cluster", [on_local_cluster, on_standalone_cluster])
def test_executors_are_seen_when_they_join_are_killed_and_are_decommissioned(tmp_path: Path, cluster: Any) -> None:
    with cluster(tmp_path) as job:
        # those that are there: their figures, their subtasks, their Python processes
        job.wait(lambda: job.described()["metrics"]["epochs"] >= 2, "two epochs")
        there = job.wait(lambda: found if len(found := job.managers()) == 2 else None, "two executors")
        assert {(one["cores"], one["slots"]) for one in there.values()} == {(1, 1)}
        assert sum(one["holds"] for one in there.values()) == 4
        for executor, one in there.items():
            jvm = psutil.Process(job.pid_of(executor))
            below = {process.pid for process in jvm.children(recursive=True)}
            assert {worker["pid"] for worker in one["workers"]} <= below
            assert one["memory"]["physical"] <= psutil.virtual_memory().total
        with_peak = job.wait(
            lambda: [one for one in job.managers().values() if one["memory"]["heap_peak"]], "Spark's figures of memory"
        )
        memory = with_peak[0]["memory"]
        assert 0 < memory["heap_used"] <= memory["heap_committed"] <= memory["heap_max"]
        assert 0 < memory["heap_peak"] < memory["heap_max"]
        views_are_answered(job, there)
        # one stands still, and goes on: it is heard of by its heartbeats
        first, second = sorted(there)
        job.wait(lambda: job.age_ms(first) < 11_000, "a heartbeat")
        os.kill(job.pid_of(first), signal.SIGSTOP)
        job.wait(lambda: job.age_ms(first) > 15_000, "the silence of an executor that stands still")
        assert set(job.managers()) == {first, second}
        os.kill(job.pid_of(first), signal.SIGCONT)
        job.wait(lambda: job.age_ms(first) < 11_000, "its next heartbeat")
        # a Python process dies: it is gone, and so is its memory
        pid = job.wait(lambda: job.managers()[second]["workers"], "a Python process")[0]["pid"]
        os.kill(pid, signal.SIGKILL)
        job.wait(lambda: pid not in {one["pid"] for one in job.managers()[second]["workers"]}, "its end")
        retried = [one["task"] for one in job.described()["exceptions"] if "Python worker" in one["what"]]
        assert [task for task in retried if not re.search(r"\(\d/\d\)$", task or "")] == [], "they have a number"
        print("tasks of the process:", retried)
        # one is killed, and another one joins
        os.kill(job.pid_of(first), signal.SIGKILL)
        lost = job.wait(lambda: job.managers("LOST").get(first), "the loss")
        assert "code 137" in lost["reason"]
        joined = job.wait(lambda: set(job.managers()) - {first, second}, "another executor").pop()
        # one is decommissioned
        os.kill(job.pid_of(second), signal.SIGPWR)
        gone = job.wait(lambda: job.managers("LOST").get(second), "the decommissioning")
        assert "decommission" in gone["reason"].lower()
        epochs = job.described()["metrics"]["epochs"]
        job.wait(lambda: job.described()["metrics"]["epochs"] > epochs, "another epoch")
        events = job.events()
        for executor, status in ((first, "LOST"), (second, "LOST"), (joined, "REGISTERED")):
            assert [after for name, after, _ in events if name.endswith(f"-{executor}")][-1] == status
        job.ask(f"/taskmanagers/{lost['id']}", 404)
        # the history has it all
        history = history_path(str(tmp_path / "job"), "task_managers")
        job.wait(lambda: len(rows_of(history)) >= len(events) or None, "the history")
        told = {(row["id"], row["status"]) for row in rows_of(history)}
        assert {(name, after) for name, after, _ in events} <= told


def views_are_answered(job: Managed, there: dict[str, dict[str, Any]]) -> None:
    """Each GET below /taskmanagers is answered, with what is there."""
    overview = job.ask("/overview")
    assert (overview["taskmanagers"], overview["slots-total"]) == (2, 2)
    for one in there.values():
        path = f"/taskmanagers/{one['id']}"
        assert job.ask(path)["metrics"]["heapMax"] == one["memory"]["heap_max"]
        assert {"Status.JVM.Memory.Heap.Max", "numSlots"} <= {each["id"] for each in job.ask(f"{path}/metrics")}
        threads = {each["threadName"] for each in job.ask(f"{path}/thread-dump")["threadInfos"]}
        assert any(name.startswith("dispatcher-Executor") for name in threads), threads
        files = job.wait(partial(answered, job, f"{path}/logs"), "the list of logs")
        assert {each["name"] for each in json.loads(files)["logs"]} == {"stderr", "stdout"}
        assert "CoarseGrainedExecutorBackend" in job.wait(partial(answered, job, f"{path}/log"), "the log")
        job.ask(f"{path}/logs/passwd", 404)


def answered(job: Managed, path: str) -> str | None:
    """The text of an answer; None: the executor is busy, which is said in a sentence."""
    code, text = job.text(path)
    assert code == 200 or (code == 503 and "ask again" in text), (code, text)
    return text if code == 200 else None


def rows_of(table: str) -> list[dict[str, Any]]:
    """The rows of a Delta table; none before it is there."""
    if not Path(table).exists():
        return []
    return [row for file in DeltaLog(table).data_files() for row in parquet.read_table(file).to_pylist()]
