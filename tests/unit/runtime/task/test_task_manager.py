"""The TaskManager of a worker, over real files of state."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flinkish.common.typeinfo import Types
from flinkish.core.state import ValueStateDescriptor
from flinkish.core.time import MAX_WATERMARK_MS, TimeDomain
from flinkish.errors import CorruptStateError, IllegalTransitionError, OperationError
from flinkish.runtime.epoch.files import EpochFiles
from flinkish.runtime.job.deployment import REPORT_VERTEX, JobDescriptor, JobSettings, VertexDescriptor
from flinkish.runtime.job.report import TaskHeader, TaskReport
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.files import directory
from flinkish.runtime.state.files.directory import OpenFiles, StateDirectory
from flinkish.runtime.task import task_manager as module
from flinkish.runtime.task.open_functions import TaskOwners
from flinkish.runtime.task.stateful_task import StatefulTask
from flinkish.runtime.task.task import TASK_TIMEOUT_MS, TRANSITIONS, EpochStamp, TaskState, next_state
from flinkish.runtime.task.task_manager import StoredTask, TaskManager
from tests.support.chains import STORY, Hook, Telling, data, take_story, vertex

#: Of each key's state: with two keys it is too much for what lies with the task.
VALUE_BYTES = 200_000
VERTEX = 1
END = ("wm", MAX_WATERMARK_MS)


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is open, or known to be right, and nobody sleeps."""
    _forget_open_files(monkeypatch)
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=lambda _: None))
    STORY.clear()
    yield
    STORY.clear()


def _forget_open_files(monkeypatch: pytest.MonkeyPatch, opened: OpenFiles | None = None) -> OpenFiles:
    """As in a process that has just begun, or in the one that has ``opened`` these; returns the files that it opens."""
    opened = opened or OpenFiles()
    monkeypatch.setattr(StateDirectory.__init__, "__defaults__", (None, opened))
    return opened


def keep(operator: Telling, event: str, detail: Any) -> None:
    """Keep a large value per key, and send how many there were of the key."""
    if event != "process":
        return
    backend = operator.context.keyed_state
    assert isinstance(backend, KeyedStateBackend)
    state = backend.partitioned_state(ValueStateDescriptor("kept", Types.PICKLED_BYTE_ARRAY()))
    detail_counts = []
    backend.prefetch(detail)
    for key in detail:
        backend.current_key = key
        count = (state.value() or (0, b""))[0] + 1  # type: ignore[attr-defined]
        state.update((count, random.Random(key).randbytes(VALUE_BYTES)))  # type: ignore[attr-defined]
        detail_counts.append((key, count))
    COUNTS.extend(detail_counts)


def keep_beside_keys(operator: Telling, event: str, detail: Any) -> None:
    """As `keep`, in operator state: a broadcast state of all keys."""
    if event != "process":
        return
    state = operator.context.operator_state
    kept = state.broadcast("kept")
    for key in detail:
        kept[key] = kept.get(key, (0, b""))[0] + 1, random.Random(key).randbytes(VALUE_BYTES)
        COUNTS.append((key, kept[key][0]))
    state.mark_broadcast("kept")


#: What `keep` has counted.
COUNTS: list[tuple[Any, int]] = []


class Executor:
    """Workers on one executor, and the job directory. Each `worker` is a process of its own but for open files."""

    def __init__(self, folder: Path, hook: Hook = keep, copies: str | None = "disk", parallelism: int = 3) -> None:
        self.folder = folder
        keyed = hook is not keep_beside_keys
        described = vertex("a", hooks={"a": hook}, keyed=keyed, operator_state=not keyed, parallelism=parallelism)
        filler = VertexDescriptor(0, "source", 0, (), 1, 1)
        self.job = JobDescriptor("job", "a job", (filler, described), (), JobSettings())
        self.files = EpochFiles(str(folder / "prepared"), str(folder / "changelog"), str(folder / "keyed-state"))
        self.copies = None if copies is None else folder / copies
        self.clock = ManualClock(0)
        self.stored: dict[int, tuple[bytes, bytes | None]] = {}
        self.epoch = 0
        self.reports: list[TaskReport] = []
        self.manager = self.worker()

    def worker(self, copies: str | None = None) -> TaskManager:
        """A new one; ``copies``: of another executor."""
        folder = self.folder / copies if copies is not None else self.copies
        self.manager = TaskManager(self.job, self.files, None if folder is None else str(folder), self.clock)
        return self.manager

    def run(self, subtask: int, *elements: Any, time_ms: int = 0) -> list[tuple[Any, int]]:
        """A task in the next epoch; what it has counted."""
        COUNTS.clear()
        header, body = self.stored.get(subtask, (None, None))
        stamp = EpochStamp(self.epoch, time_ms)
        given = [data(subtask, *elements, sequence=self.epoch)]
        self.epoch += 1
        result, rows = self.manager.run_task(VERTEX, subtask, StoredTask(header, lambda: body), given, stamp)
        assert result is not None
        self.stored[subtask] = (result.header.encode(), result.body if result.body_written else body)
        self.reports = [TaskReport.decode(row[2]) for row in rows if row[0] == REPORT_VERTEX]
        return list(COUNTS)

    def given(self, subtask: int, *elements: Any) -> StatefulTask:
        """A new task with the stored state and the input of an epoch, and nothing more."""
        header, body = self.stored[subtask]
        self.manager.tasks.close_dirty((VERTEX, subtask))
        task = self.manager.tasks.create((VERTEX, subtask))
        task.assign(TaskHeader.decode(header, "a test", self.job.classes), lambda: body, EpochStamp(self.epoch, 0))
        task.add_records([data(subtask, *elements, sequence=self.epoch)])
        return task

    def names(self, subtask: int) -> list[Path]:
        return sorted((self.folder / "keyed-state" / str(VERTEX) / str(subtask)).glob("*.arrow"))

    def copied(self, subtask: int, copies: str = "disk") -> list[Path]:
        return sorted((self.folder / copies / str(VERTEX) / str(subtask)).glob("*.arrow"))


@pytest.fixture
def executor(tmp_path: Path) -> Executor:
    """Its subtask 0 has state in a file."""
    made = Executor(tmp_path)
    made.run(0, 1, 2)
    assert made.names(0)
    return made


def ids(*subtasks: int) -> set[tuple[int, int]]:
    return {(VERTEX, subtask) for subtask in subtasks}


# ---------------------------------------------------------------------------------------------------- the state machine


def test_a_task_goes_from_created_to_closed_and_nowhere_else() -> None:
    way = list(TaskState)
    assert all(next_state(before, after, "a") is after for before, after in zip(way, way[1:]))
    illegal = [(before, after) for before in TaskState for after in TaskState if after not in TRANSITIONS[before]]
    assert (TaskState.CREATED, TaskState.RUNNING) in illegal and (TaskState.CLOSED, TaskState.CREATED) in illegal
    for before, after in illegal:
        with pytest.raises(IllegalTransitionError, match=f"from {before.name} to {after.name}.*task 'a'"):
            next_state(before, after, "a")


# ---------------------------------------------------------------------------------------------------- restoration


def test_a_task_is_restored_only_if_it_is_not_at_the_version_that_the_worker_wrote(executor: Executor) -> None:
    held = executor.manager.tasks.active[VERTEX, 0]
    executor.run(0, 1)
    assert executor.manager.tasks.active[VERTEX, 0] is held, "it is at the very version that it wrote"
    executor.worker()
    task = executor.given(0, 1)
    assert task.task_state is TaskState.CREATED and task.needs_restoration
    task.restore()
    assert task.task_state is TaskState.RUNNING and not task.needs_restoration


def test_what_is_fetched_is_counted_and_reported_once(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (executor.reports[0].restored_files, executor.reports[0].restored_bytes) == (0, 0)
    size = sum(path.stat().st_size for path in executor.names(0))
    _forget_open_files(monkeypatch)
    executor.worker("another-disk")
    assert executor.run(0, 1) == [(1, 2)]
    assert (executor.reports[0].restored_files, executor.reports[0].restored_bytes) == (1, size)
    executor.run(0, 1)
    assert executor.reports[0].restored_bytes == 0


def test_files_of_operator_state_are_fetched_before_the_task_runs_and_a_standby_task_copies_them_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = Executor(tmp_path, keep_beside_keys)
    executor.run(0, 1, 2)
    (file,) = executor.names(0)
    body = executor.stored[0][1]
    assert body is not None and len(body) < 1_000 < VALUE_BYTES < executor.reports[0].state_bytes
    _forget_open_files(monkeypatch)
    executor.worker("another-disk")
    assert executor.run(0, 1) == [(1, 2)]
    assert (executor.reports[0].restored_files, executor.reports[0].restored_bytes) == (1, file.stat().st_size)
    _forget_open_files(monkeypatch)
    executor.worker("third-disk").keep_standby(ids(0))
    copied = executor.manager.update_standby_tasks()
    assert copied == sum(path.stat().st_size for path in executor.names(0))
    assert executor.run(0, 1) == [(1, 3)]
    assert executor.reports[0].restored_files == 0, "the standby task has fetched them"


def test_a_worker_on_the_same_executor_fetches_nothing(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [path.name for path in executor.copied(0)] == [path.name for path in executor.names(0)]
    _forget_open_files(monkeypatch)
    executor.worker()
    assert executor.run(0, 1) == [(1, 2)]
    assert executor.reports[0].restored_files == 0


def test_without_a_folder_for_copies_nothing_is_read_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = Executor(tmp_path, copies=None)
    executor.run(0, 1, 2)
    _forget_open_files(monkeypatch)
    executor.worker()
    opened: list[str] = []
    real = StateDirectory.open
    monkeypatch.setattr(StateDirectory, "open", lambda self, file: opened.append(file.name) or real(self, file))
    executor.given(0, 1).restore()
    assert not opened


def test_files_that_another_worker_has_replaced_are_closed_when_the_task_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = Executor(tmp_path, copies=None)
    executor.run(0, 1, 2)
    executor.run(0, 1, 2)
    _, newer = executor.names(0)
    opened = _forget_open_files(monkeypatch)
    first = executor.worker()
    assert executor.run(0, 1, 2) == [(1, 3), (2, 3)]
    assert len(opened) == 2
    _forget_open_files(monkeypatch)
    executor.worker()
    for _ in range(4):
        executor.run(0, 1, 2)
    _forget_open_files(monkeypatch, opened)
    executor.manager = first
    executor.given(0, 3).restore()
    assert newer.exists(), "no epoch has cleaned up yet"
    assert len(opened) == 1, "the older one is still in use"


@pytest.mark.parametrize(("away_ms", "fails"), [(0, False), (TASK_TIMEOUT_MS // 2, False), (TASK_TIMEOUT_MS, True)])
def test_a_task_waits_for_storage_that_cannot_be_reached_up_to_its_timeout(
    executor: Executor, monkeypatch: pytest.MonkeyPatch, away_ms: int, fails: bool
) -> None:
    _forget_open_files(monkeypatch)
    executor.worker("another-disk")
    real, tries = directory.storage_of, list[int]()

    def unreachable(path: str) -> Any:
        if executor.clock.now_ms() >= away_ms and len(tries) > 1 and not fails:
            return real(path)
        tries.append(executor.clock.now_ms())
        raise OperationError("the storage is away")

    monkeypatch.setattr(directory, "storage_of", unreachable)
    monkeypatch.setattr(module.time, "sleep", lambda _: executor.clock.advance(TASK_TIMEOUT_MS // 2))
    if fails:
        with pytest.raises(OperationError, match="is away"):
            executor.run(0, 1)
        assert tries[-1] - tries[0] == TASK_TIMEOUT_MS
    else:
        assert executor.run(0, 1) == [(1, 2)]
    assert len(tries) > 1


# ---------------------------------------------------------------------------------------------------- corruption


@pytest.mark.parametrize("hook", [keep, keep_beside_keys])
@pytest.mark.parametrize("harm", ["flipped", "truncated", "deleted"])
def test_a_damaged_copy_is_fetched_again(
    tmp_path: Path, hook: Hook, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = Executor(tmp_path, hook)
    executor.run(0, 1, 2)
    (copy,) = executor.copied(0)
    _harm(copy, harm)
    _forget_open_files(monkeypatch)
    executor.worker()
    assert executor.run(0, 1) == [(1, 2)]
    assert executor.reports[0].restored_files == 1


def _harm(path: Path, harm: str) -> None:
    content = bytearray(path.read_bytes())
    if harm == "deleted":
        path.unlink()
        return
    content[len(content) // 2] ^= 4
    path.write_bytes(content if harm == "flipped" else content[: len(content) // 2])


@pytest.mark.parametrize("hook", [keep, keep_beside_keys])
@pytest.mark.parametrize("copies", [None, "disk"])
@pytest.mark.parametrize("harm", ["flipped", "truncated", "deleted"])
def test_damage_of_the_files_themselves_is_raised_by_name(
    tmp_path: Path, harm: str, copies: str | None, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = Executor(tmp_path, hook, copies=copies)
    executor.run(0, 1, 2)
    executor.run(1, 3)
    (file,) = executor.names(0)
    _harm(file, harm)
    _forget_open_files(monkeypatch)
    executor.worker("another-disk" if copies else None)
    with pytest.raises(CorruptStateError) as raised:
        executor.run(0, 1)
    assert raised.value.file == str(file) and raised.value.task == "a (1/3)"
    assert (VERTEX, 0) not in executor.manager.tasks.active
    # the others go on
    assert executor.run(1, 3) == [(3, 2)]


# ------------------------------------------------------------------------------------------- which tasks are here


def test_a_task_that_ran_elsewhere_in_between_is_another_object(executor: Executor) -> None:
    here = executor.manager
    executor.worker()
    executor.run(0, 1)
    executor.manager = here
    stale = here.tasks.active[VERTEX, 0]
    take_story()
    assert executor.run(0, 1) == [(1, 3)]
    assert stale.task_state is TaskState.CLOSED and here.tasks.active[VERTEX, 0] is not stale
    assert [event for _, event in take_story() if event in ("dispose", "open")] == ["dispose", "open"]


def test_a_worker_closes_what_another_worker_of_the_executor_has_opened_since(tmp_path: Path) -> None:
    executor = Executor(tmp_path)
    owners = TaskOwners(str(tmp_path / "owners"))
    executor.manager.owners = owners
    executor.run(0, 1)
    executor.run(1, 1)
    take_story()
    executor.manager.close_lost()
    assert take_story() == [], "nobody else has opened any"
    (tmp_path / "owners" / f"{VERTEX}-1").write_text(str(os.getppid()))
    assert owners.have_changed()
    executor.manager.close_lost()
    assert take_story() == [("a", "dispose")] and set(executor.manager.tasks.active) == ids(0)
    assert executor.run(1, 1) == [(1, 2)], "it may come back"
    assert owners.lost(ids(0, 1)) == []


def test_what_does_not_fit_makes_room_in_the_order_of_use_and_not_what_runs_in_the_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_TASKS", 2)

    def fail(operator: Telling, event: str, detail: Any) -> None:
        if event == "close":
            raise OSError("it cannot be closed")

    executor = Executor(tmp_path, fail)
    for subtask in (0, 1, 2):
        executor.run(subtask, 1)
    assert set(executor.manager.tasks.active) == ids(1, 2), "0 was closed, though with an error"
    executor.epoch -= 1
    executor.run(0, 1)
    executor.epoch -= 1
    executor.run(1, 1)
    assert set(executor.manager.tasks.active) == ids(0, 1, 2), "2, 0 and 1 have run in one epoch"


# ---------------------------------------------------------------------------------------------------- timers


def timers(operator: Telling, event: str, detail: Any) -> None:
    """A processing-time timer at 10 and an event-time timer at the end for each key; the latter registers one more of
    processing time."""
    backend = operator.context.keyed_state
    assert isinstance(backend, KeyedStateBackend)
    if event == "process":
        for key in detail:
            backend.timers("t").register(TimeDomain.PROCESSING_TIME, 10, key)
            backend.timers("t").register(TimeDomain.EVENT_TIME, MAX_WATERMARK_MS, key)
    if event == "watermark":
        for _, key, *_ in list(backend.due("t", TimeDomain.EVENT_TIME, detail)):
            backend.timers("t").register(TimeDomain.PROCESSING_TIME, 9, key)


@pytest.mark.parametrize(
    ("elements", "fired"),
    [
        ((1, 2), [10, 10]),
        ((1, ("wm", 25)), [10]),
        # those that records have registered fire before the end of the input, and none that a timer registers at it
        ((1, END), [10]),
    ],
)
def test_processing_time_timers_are_quiesced_at_the_end_of_the_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elements: tuple[Any, ...], fired: list[int]
) -> None:
    found: list[int] = []

    def advance(self: Telling, time_ms: int) -> None:
        backend = self.context.keyed_state
        assert isinstance(backend, KeyedStateBackend)
        found.extend(timestamp for timestamp, *_ in backend.due("t", TimeDomain.PROCESSING_TIME, time_ms))

    monkeypatch.setattr(Telling, "advance_processing_time", advance, raising=False)
    Executor(tmp_path, timers).run(0, *elements, time_ms=10)
    assert found == fired


# ---------------------------------------------------------------------------------------------------- standby


def test_standby_tasks_copy_bounded_amounts_and_follow_what_is_there(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor.run(0, 3, 4)
    files = len(executor.names(0))
    assert files > 1
    standby = executor.worker("another-disk")
    standby.keep_standby(ids(0))
    standby.update_standby_tasks(1)
    assert len(executor.copied(0, "another-disk")) == 1
    assert standby.tasks.standby[VERTEX, 0].task_state is TaskState.RESTORING
    while standby.update_standby_tasks(1):
        pass
    assert [path.name for path in executor.copied(0, "another-disk")] == [path.name for path in executor.names(0)]
    assert standby.tasks.standby[VERTEX, 0].task_state is TaskState.RUNNING
    executor.run(1, 9)
    assert executor.reports[0].standby == {(VERTEX, 0): files}, "the driver is told by the tasks at work there"
    executor.names(0)[0].unlink()
    standby.update_standby_tasks()
    assert len(executor.copied(0, "another-disk")) == files - 1


def test_a_standby_task_leaves_the_task_that_replaces_it_what_it_has_copied(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    _forget_open_files(monkeypatch)
    manager = executor.worker("another-disk")
    manager.keep_standby(ids(0))
    assert manager.update_standby_tasks() == executor.names(0)[0].stat().st_size
    directory = manager.tasks.standby[VERTEX, 0].directory
    assert executor.run(0, 1) == [(1, 2)]
    assert manager.tasks.active[VERTEX, 0].directory is directory and not manager.tasks.standby
    assert executor.reports[0].restored_bytes == 0, "there was nothing to fetch"
    manager.keep_standby(ids(0))
    assert not manager.tasks.standby, "it runs here"


def test_a_worker_that_keeps_no_copies_has_no_standby_tasks(tmp_path: Path) -> None:
    executor = Executor(tmp_path, copies=None)
    executor.manager.keep_standby(ids(1))
    assert not executor.manager.tasks.standby
