"""The TaskManager, method by method, over real files of state."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from flinkish.common.typeinfo import Types
from flinkish.core.state import ValueStateDescriptor
from flinkish.core.time import TimeDomain
from flinkish.errors import CorruptStateError, IllegalTransitionError, OperationError, UserCodeError
from flinkish.runtime.epoch.files import EpochFiles
from flinkish.runtime.job.deployment import REPORT_VERTEX, JobDescriptor, JobSettings, VertexDescriptor
from flinkish.runtime.job.report import TaskReport
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.files import directory
from flinkish.runtime.state.files.directory import OpenFiles, StateDirectory
from flinkish.runtime.task import task_manager as module
from flinkish.runtime.task.stateful_task import StatefulTask
from flinkish.runtime.task.task import TASK_TIMEOUT_MS, TRANSITIONS, EpochStamp, TaskState, next_state
from flinkish.runtime.task.task_manager import StoredTask, TaskManager
from flinkish.runtime.task.tasks import StandbyTask
from tests.support.chains import STORY, Hook, Telling, data, take_story, vertex

#: Of each key's state: with two keys it is too much for what lies with the task.
VALUE_BYTES = 200_000
VERTEX = 1


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is open, or known to be right, and nobody sleeps."""
    _forget_open_files(monkeypatch)
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
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

    def give(self, subtask: int, *elements: Any) -> StatefulTask:
        """The stored state and the input of an epoch, and nothing more."""
        header, body = self.stored.get(subtask, (None, None))
        stamp = EpochStamp(self.epoch, 0)
        decoded = self.manager.header_of(VERTEX, subtask, header)
        self.manager.assign_epoch((VERTEX, subtask), decoded, lambda: body, stamp)
        self.manager.add_records_to_tasks({(VERTEX, subtask): [data(subtask, *elements, sequence=self.epoch)]})
        return self.manager.tasks.active[VERTEX, subtask]

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


def test_needs_initialization_or_restoration_is_true_only_while_a_task_has_something_to_restore(
    executor: Executor,
) -> None:
    assert not executor.manager.needs_initialization_or_restoration()
    executor.give(0, 1)
    assert not executor.manager.needs_initialization_or_restoration(), "it is at the very version that it wrote"
    executor.worker()
    task = executor.give(0, 1)
    assert task.task_state is TaskState.CREATED and executor.manager.needs_initialization_or_restoration()
    assert executor.manager.try_to_complete_restoration(0)
    assert task.task_state is TaskState.RUNNING and not executor.manager.needs_initialization_or_restoration()


def test_try_to_complete_restoration_goes_on_in_bounded_steps(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in range(3, 8):
        executor.run(0, key, key + 10)
    files = len(KeyedFiles(executor).referenced)
    assert files > 1
    _forget_open_files(monkeypatch)
    monkeypatch.setattr(module, "RESTORE_STEP_BYTES", 1)
    executor.worker("another-disk")
    task = executor.give(0, 1)
    steps = 1
    while not executor.manager.try_to_complete_restoration(0):
        assert task.task_state is TaskState.RESTORING
        steps += 1
    assert steps == files == len(executor.copied(0, "another-disk"))


class KeyedFiles:
    """The names that the stored state of subtask 0 refers to."""

    def __init__(self, executor: Executor) -> None:
        backend = executor.manager.tasks.active[VERTEX, 0].keyed_state
        assert backend is not None
        self.referenced = {file.name for file in backend.files()}


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
    executor.worker("third-disk").place(set(), ids(0), executor.epoch)
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
    executor.give(0, 1)
    assert executor.manager.try_to_complete_restoration(0) and not opened


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
    executor.give(0, 3)
    assert executor.manager.try_to_complete_restoration(0)
    assert newer.exists(), "no epoch has cleaned up yet"
    assert len(opened) == 1, "the older one is still in use"


def test_a_task_waits_for_storage_that_cannot_be_reached_up_to_its_timeout(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    _forget_open_files(monkeypatch)
    executor.worker("another-disk")
    task = executor.give(0, 1)

    def unreachable(path: str) -> NoReturn:
        raise OperationError("the storage is away")

    with monkeypatch.context() as away:
        away.setattr(directory, "storage_of", unreachable)
        assert not executor.manager.try_to_complete_restoration(0)
        assert task.is_waiting and task.task_state is TaskState.RESTORING
        with pytest.raises(OperationError, match="is away"):
            executor.manager.try_to_complete_restoration(TASK_TIMEOUT_MS)
    assert executor.manager.try_to_complete_restoration(1)
    assert not task.is_waiting, "clear_task_timeout"


# ---------------------------------------------------------------------------------------------------- corruption


@pytest.mark.parametrize("hook", [keep, keep_beside_keys])
@pytest.mark.parametrize("harm", ["flipped", "truncated", "deleted"])
def test_handle_corruption_a_damaged_copy_is_fetched_again(
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
def test_handle_corruption_damage_of_the_files_themselves_is_raised_by_name(
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


def test_handle_corruption_wipes_revives_and_commits_the_healthy_first(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor.give(1, 5)
    executor.manager.try_to_complete_restoration(0)
    healthy = executor.manager.tasks.active[VERTEX, 1]
    healthy.begin()
    executor.manager.handle_rebalance_complete()
    while executor.manager.process(10, 0):
        pass
    assert healthy.commit_needed
    corrupted = executor.give(0, 1)
    executor.manager.handle_rebalance_complete()
    executor.manager.handle_corruption(ids(0))
    assert (VERTEX, 1) in executor.manager.committed and not healthy.commit_needed
    assert corrupted.task_state is TaskState.CLOSED and not executor.copied(0) and executor.names(0)
    revived = executor.manager.tasks.active[VERTEX, 0]
    assert revived is not corrupted and revived.task_state is TaskState.CREATED
    assert executor.manager.try_to_complete_restoration(0), "with the stored state that the other one was given"
    assert revived.task_state is TaskState.RUNNING and executor.copied(0)


# ---------------------------------------------------------------------------------------------------- assignment


def test_handle_assignment_creates_keeps_closes_and_tells(executor: Executor, caplog: pytest.LogCaptureFixture) -> None:
    kept = executor.manager.tasks.active[VERTEX, 0]
    executor.run(2, 9)
    gone = executor.manager.tasks.active[VERTEX, 2]
    take_story()
    with caplog.at_level(logging.DEBUG, "flinkish.TaskManager"):
        executor.manager.handle_assignment(ids(0, 1))
    assert executor.manager.tasks.active[VERTEX, 0] is kept and set(executor.manager.tasks.active) == ids(0, 1)
    assert gone.task_state is TaskState.CLOSED
    assert [event for event in take_story() if event[1] != "setup"] == [("a", "close"), ("a", "dispose")]
    assert caplog.messages[-1] == (
        "Handle new assignment with:\n\tNew active tasks: [a (2/3)]\n\tNew standby tasks: []\n"
        "\tExisting active tasks: [a (1/3)]\n\tExisting standby tasks: []"
    )


def test_handle_assignment_recycles_a_standby_with_what_it_has_copied(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    _forget_open_files(monkeypatch)
    manager = executor.worker("another-disk")
    manager.handle_assignment(set(), ids(0))
    assert isinstance(manager.tasks.standby[VERTEX, 0], StandbyTask)
    assert manager.update_standby_tasks() == executor.names(0)[0].stat().st_size
    directory = manager.tasks.standby[VERTEX, 0].directory
    manager.handle_assignment(ids(0))
    assert manager.tasks.active[VERTEX, 0].directory is directory and not manager.tasks.standby
    assert executor.run(0, 1) == [(1, 2)]
    assert executor.reports[0].restored_bytes == 0, "there was nothing to fetch"


def test_handle_assignment_recycles_an_active_task_and_keeps_its_files(executor: Executor) -> None:
    task, copies = executor.manager.tasks.active[VERTEX, 0], executor.copied(0)
    executor.manager.handle_assignment(set(), ids(0))
    assert executor.manager.tasks.standby[VERTEX, 0].directory is task.directory and task.task_state is TaskState.CLOSED
    assert executor.copied(0) == copies
    executor.manager.handle_assignment(set(), set())
    assert not executor.copied(0), "a standby that is not needed any more leaves nothing behind"


def test_handle_assignment_goes_on_after_a_failed_close_and_raises_the_first_error(tmp_path: Path) -> None:
    def fail(operator: Telling, event: str, detail: Any) -> None:
        if event == "close":
            raise OSError(f"subtask {operator.context.subtask} cannot be closed")

    executor = Executor(tmp_path, fail)
    for subtask in range(3):
        executor.run(subtask, 1)
    tasks = list(executor.manager.tasks.active.values())
    with pytest.raises(OSError, match="subtask 0 cannot be closed"):
        executor.manager.handle_assignment(set())
    assert not executor.manager.tasks.active
    assert all(task.task_state is TaskState.CLOSED for task in tasks)
    assert [event for event in take_story() if event[1] == "dispose"] == [("a", "dispose")] * 3


# ---------------------------------------------------------------------------------------------------- rebalance


def test_handle_rebalance_start_and_complete_nothing_commits_in_between(executor: Executor) -> None:
    manager = executor.manager
    task = executor.give(0, 1)
    task.begin()
    while manager.process(10, 0):
        pass
    manager.handle_rebalance_start()
    assert manager.commit([task]) == -1
    assert manager.maybe_commit_active_tasks_per_user_requested() == -1
    assert task.commit_needed
    manager.handle_rebalance_complete()
    assert manager.commit([task]) == 1 and not task.commit_needed


def test_a_rebalance_lasts_from_a_new_placement_until_the_moved_tasks_are_restored(executor: Executor) -> None:
    manager = executor.manager
    manager.place(ids(0), set(), 5)
    assert not manager.rebalance_in_progress, "it was here before"
    manager.place(ids(1), set(), 5)
    assert manager.rebalance_in_progress and set(manager.tasks.active) == ids(0, 1)
    executor.run(1, 7)
    assert not manager.rebalance_in_progress


def test_a_rebalance_begins_with_a_stale_token(executor: Executor) -> None:
    here = executor.manager
    executor.worker()
    executor.run(0, 1)
    executor.manager = here
    stale = here.tasks.active[VERTEX, 0]
    executor.give(0, 1)
    assert here.rebalance_in_progress and stale.task_state is TaskState.CLOSED
    assert here.tasks.active[VERTEX, 0] is not stale


def test_handle_revocation_suspends_and_a_task_that_did_not_move_goes_on_with_its_memory(executor: Executor) -> None:
    manager = executor.manager
    task = manager.tasks.active[VERTEX, 0]
    manager.place(ids(0), set(), 1)
    manager.place(ids(1), set(), 2)
    assert task.task_state is TaskState.SUSPENDED
    take_story()
    assert executor.run(0, 1) == [(1, 2)]
    assert manager.tasks.active[VERTEX, 0] is task and task.task_state is TaskState.RUNNING
    assert ("a", "open") not in take_story()


def test_handle_revocation_leaves_a_task_at_work_alone(executor: Executor) -> None:
    task = executor.give(0, 1)
    executor.manager.handle_revocation(ids(0))
    assert task.task_state is TaskState.RUNNING


def test_handle_lost_all_closes_dirty_and_ends_a_rebalance(executor: Executor) -> None:
    executor.manager.handle_assignment(ids(0), ids(1))
    executor.manager.handle_rebalance_start()
    take_story()
    executor.manager.handle_lost_all()
    assert not executor.manager.tasks.active and not executor.manager.tasks.standby
    assert not executor.manager.rebalance_in_progress
    assert take_story() == [("a", "dispose")]


# ---------------------------------------------------------------------------------------------------- work


def begun(executor: Executor, *subtasks: int, **elements: Any) -> list[StatefulTask]:
    """Tasks at work on three records each."""
    tasks = [executor.give(subtask, *range(10 * subtask, 10 * subtask + 3)) for subtask in subtasks]
    executor.manager.try_to_complete_restoration(0)
    executor.manager.handle_rebalance_complete()
    for task in tasks:
        task.begin()
    return tasks


def test_add_records_to_tasks_refuses_records_of_a_task_that_is_not_here(executor: Executor) -> None:
    with pytest.raises(Exception, match=r"a \(3/3\), which is no task of this worker"):
        executor.manager.add_records_to_tasks({(VERTEX, 2): [data(2, 1)]})


def test_process_goes_round_the_tasks_and_counts(executor: Executor) -> None:
    begun(executor, 0, 1, 2)
    assert executor.manager.process(100, 0) == 9
    assert executor.manager.process(100, 0) == 0
    assert executor.manager.commit(list(executor.manager.tasks.active.values())) == 3


def test_process_names_the_task_that_fails(tmp_path: Path) -> None:
    def fail(operator: Telling, event: str, detail: Any) -> None:
        if event == "process" and operator.context.subtask == 1:
            raise ValueError("no such thing")

    executor = Executor(tmp_path, fail)
    begun(executor, 0, 1)
    with pytest.raises(UserCodeError, match=r"no such thing.*task 'a \(2/3\)', operator 'a' \(uid uid-a\)") as raised:
        executor.manager.process(100, 0)
    assert raised.value.task == "a (2/3)"


def timers(operator: Telling, event: str, detail: Any) -> None:
    """A processing-time timer at 10 and an event-time timer at 20 for each key; fires those that are due."""
    backend = operator.context.keyed_state
    assert isinstance(backend, KeyedStateBackend)
    if event == "process":
        for key in detail:
            backend.timers("t").register(TimeDomain.PROCESSING_TIME, 10, key)
            backend.timers("t").register(TimeDomain.EVENT_TIME, 20, key)
    if event == "watermark":
        list(backend.due("t", TimeDomain.EVENT_TIME, detail))


def test_punctuate_says_how_many_timers_of_stream_and_system_time_have_fired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def advance(self: Telling, time_ms: int) -> None:
        list(self.context.keyed_state.due("t", TimeDomain.PROCESSING_TIME, time_ms))  # type: ignore[union-attr]

    monkeypatch.setattr(Telling, "advance_processing_time", advance, raising=False)
    executor = Executor(tmp_path, timers)
    task = executor.give(0, 1, 2, ("wm", 25))
    executor.manager.try_to_complete_restoration(0)
    task.begin()
    assert executor.manager.punctuate() == 0
    executor.manager.process(100, 0)
    assert executor.manager.punctuate() == 2, "those of stream time"
    executor.manager.handle_rebalance_complete()
    executor.manager.commit([task])
    result, _ = executor.manager.committed.pop((VERTEX, 0))
    executor.stored[0] = result.header.encode(), result.body
    task = executor.give(0, 3)
    task.share.stamp = EpochStamp(1, 10)
    assert executor.manager.punctuate() == 2, "those of system time"


def test_commit_takes_those_that_need_it_and_says_how_many(executor: Executor) -> None:
    working, idle = begun(executor, 0, 1)
    working.process(100)
    assert (working.commit_needed, idle.commit_needed) == (True, False)
    working.maybe_init_task_timeout_or_throw(0, OSError())
    assert executor.manager.commit([working, idle]) == 1
    assert not working.is_waiting and not working.commit_needed
    assert set(executor.manager.committed) == ids(0)
    assert executor.manager.commit([working]) == 0


def test_maybe_commit_active_tasks_per_user_requested_commits_those_that_have_asked(executor: Executor) -> None:
    asking, other = begun(executor, 0, 1)
    assert executor.manager.maybe_commit_active_tasks_per_user_requested() == 0
    asking.chain.operators[0].context.epoch.commit_requested = True
    assert executor.manager.maybe_commit_active_tasks_per_user_requested() == 0, "its input is not consumed"
    executor.manager.process(100, 0)
    assert executor.manager.maybe_commit_active_tasks_per_user_requested() == 1
    _, rows = executor.manager.committed[VERTEX, 0]
    assert [TaskReport.decode(row[2]).commit_requested for row in rows if row[0] == REPORT_VERTEX] == [True]
    assert other.commit_needed


# ---------------------------------------------------------------------------------------------------- standby


def test_update_standby_tasks_is_bounded_and_follows_what_is_there(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor.run(0, 3, 4)
    source, files = executor.manager, len(executor.names(0))
    assert files > 1
    standby = executor.worker("another-disk")
    standby.handle_assignment(set(), ids(0))
    standby.update_standby_tasks(1)
    assert len(executor.copied(0, "another-disk")) == 1
    assert standby.tasks.standby[VERTEX, 0].task_state is TaskState.RESTORING
    while standby.update_standby_tasks(1):
        pass
    assert [path.name for path in executor.copied(0, "another-disk")] == [path.name for path in executor.names(0)]
    assert standby.tasks.standby[VERTEX, 0].task_state is TaskState.RUNNING
    executor.names(0)[0].unlink()
    standby.update_standby_tasks()
    assert len(executor.copied(0, "another-disk")) == files - 1
    source.dispose()


def test_a_worker_that_keeps_no_copies_has_no_standby_tasks(tmp_path: Path) -> None:
    executor = Executor(tmp_path, copies=None)
    executor.manager.place(ids(0), ids(1), 0)
    assert not executor.manager.tasks.standby
