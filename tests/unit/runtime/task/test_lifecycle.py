"""What happens to the operators of a task, and in which order; what a failure does to them."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from flinkish.core.time import MAX_WATERMARK_MS
from flinkish.errors import CorruptStateError, InternalError, UserCodeError
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.job.report import TaskHeader
from flinkish.runtime.task import task_manager as module
from flinkish.runtime.task import task_manager as task_manager_module
from flinkish.runtime.task.task_manager import TaskManager, task_manager
from tests.support.chains import STORY, Telling, Worker, sent, take_story, vertex

END = ("wm", MAX_WATERMARK_MS)


@pytest.fixture(autouse=True)
def _clear() -> None:
    STORY.clear()


def only(story: list[Any], *events: str) -> list[Any]:
    return [(name, event) for name, event in story if (event if isinstance(event, str) else event[0]) in events]


def test_a_task_lives_as_in_flink() -> None:
    worker = Worker(vertex("a", "b", "c"))
    assert sent(worker.run(0, 1, ("wm", 5), 2, END)) == [1, 2]
    assert take_story() == [
        *[(name, "setup") for name in "cba"],
        *[(name, event) for name in "cba" for event in ("initialize_state", "open")],
        *[(name, ("begin_epoch", 0)) for name in "abc"],
        *[(name, ("process", [1])) for name in "abc"],
        *[(name, ("watermark", 5)) for name in "abc"],
        *[(name, ("process", [2])) for name in "abc"],
        *[(name, ("watermark", MAX_WATERMARK_MS)) for name in "abc"],
        *[(name, "finish") for name in "abc"],
        *[(name, "snapshot") for name in "abc"],
        *[(name, "close") for name in "cba"],
        *[(name, "dispose") for name in "cba"],
    ]


def test_one_instance_serves_a_subtask_in_all_its_epochs() -> None:
    worker = Worker(vertex("a", keyed=True))
    for number in range(3):
        worker.run(0, number)
        worker.next_epoch()
    story = take_story()
    assert only(story, "setup", "open", "close", "dispose") == [("a", "setup"), ("a", "open")]
    assert [e[1] for _, e in only(story, "begin_epoch")] == [0, 1, 2]


def test_functions_are_closed_when_the_task_has_finished() -> None:
    worker = Worker(vertex("a", keyed=True, max_parallelism=2))
    worker.run(0, END)
    assert only(take_story(), "finish", "close", "dispose") == [("a", "finish"), ("a", "close"), ("a", "dispose")]
    worker.manager.dispose()
    assert take_story() == []


def test_a_finished_task_is_not_run_again() -> None:
    worker = Worker(vertex("a", parallelism=1))
    worker.run(0, END)
    worker.next_epoch()
    STORY.clear()
    assert worker.run(0, END) == []
    assert take_story() == []
    with pytest.raises(InternalError, match="1 records came after the end of all input.*uid-a"):
        worker.run(0, "lost")


def boom(operator: Telling, event: str, detail: Any) -> None:
    if detail == ["boom"]:
        raise ValueError("boom")


def test_a_task_that_fails_goes_straight_to_dispose_and_sends_nothing() -> None:
    worker = Worker(vertex("a", "b", hooks={"b": boom}))
    worker.run(0, "fine")
    worker.next_epoch()
    STORY.clear()
    with pytest.raises(UserCodeError):
        worker.run(0, "boom")
    assert only(take_story(), "snapshot", "finish", "close", "dispose") == [("b", "dispose"), ("a", "dispose")]
    assert sent(worker.run(0, "again")) == ["again"]
    assert only(take_story(), "setup", "open") == [("b", "setup"), ("a", "setup"), ("b", "open"), ("a", "open")]


def test_an_error_at_dispose_does_not_hide_the_first_error_nor_keep_others_from_it() -> None:
    def also(operator: Telling, event: str, detail: Any) -> None:
        boom(operator, event, detail)
        if event == "dispose":
            raise RuntimeError("at dispose")

    worker = Worker(vertex("a", "b", hooks={"a": also}))
    with pytest.raises(UserCodeError, match="boom"):
        worker.run(0, "boom")
    assert only(take_story(), "dispose") == [("b", "dispose"), ("a", "dispose")]


def test_an_open_that_fails_is_an_error_of_that_operator_and_all_are_disposed_of() -> None:
    def refuse(operator: Telling, event: str, detail: Any) -> None:
        if event == "open":
            raise OSError("no connection")

    worker = Worker(vertex("a", "b", hooks={"a": refuse}))
    with pytest.raises(UserCodeError, match="OSError in user code: no connection.*uid-a"):
        worker.run(0, 1)
    assert only(take_story(), "dispose") == [("b", "dispose"), ("a", "dispose")]


def test_a_close_that_raises_at_the_end_of_the_attempt_is_logged_and_the_others_are_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def at_dispose(operator: Telling, event: str, detail: Any) -> None:
        if event == "dispose":
            raise SystemExit("not now")

    worker = Worker(vertex("a", "b", parallelism=2, hooks={"b": at_dispose}))
    worker.run(0, 1)
    worker.run(1, 1)
    STORY.clear()
    worker.manager.dispose()
    assert only(take_story(), "dispose") == [("b", "dispose"), ("a", "dispose")] * 2
    assert [message for message in caplog.messages if "could not be closed" in message] == [
        f"a -> b ({number}/2) could not be closed: SystemExit: not now" for number in (1, 2)
    ]


def test_the_lifecycle_is_traced_if_that_is_wanted() -> None:
    worker = Worker(vertex("a", "b"))
    worker.run(0, 1)
    assert worker.manager.trace is None
    settings = replace(worker.job.settings, trace_lifecycle=True)
    worker.manager = TaskManager(replace(worker.job, settings=settings))
    worker.run(0, 1, END)
    assert worker.manager.trace is not None
    calls = ["setup", "initialize_state", "open", "finish", "snapshot_state", "close", "dispose"]
    in_order = {"setup": "ba", "close": "ba", "dispose": "ba"} | dict.fromkeys(("finish", "snapshot_state"), "ab")
    expected = [(name, call) for call in calls if call in in_order for name in in_order[call]]
    opened = [(name, call) for name in "ba" for call in ("initialize_state", "open")]
    assert [(call.operator, call.call) for call in worker.manager.trace] == [*expected[:2], *opened, *expected[2:]]
    assert {(call.task, call.pid) for call in worker.manager.trace} == {("a -> b (1/1)", os.getpid())}
    assert {call.epoch for call in worker.manager.trace if call.call in ("snapshot_state", "close")} == {0}


def test_an_epoch_that_fails_elsewhere_leaves_nothing_in_memory() -> None:
    """The state store still has the version before: the one in memory must not be trusted."""
    worker = Worker(vertex("a"))
    worker.run(0, 1)
    worker.next_epoch()
    worker.run(0, 2, commit=False)
    STORY.clear()
    worker.run(0, 2)
    assert only(take_story(), "close", "dispose", "setup", "open") == [("a", "dispose"), ("a", "setup"), ("a", "open")]


def test_a_task_that_was_elsewhere_in_between_is_made_anew() -> None:
    here = Worker(vertex("a"))
    here.run(0, 1)
    there = Worker(vertex("a"), stored=here.stored, epoch=1)
    there.run(0, 2)
    STORY.clear()
    here.epoch = 2
    here.run(0, 3)
    assert only(take_story(), "dispose", "open") == [("a", "dispose"), ("a", "open")]


def test_the_last_epoch_can_be_run_again_after_its_functions_were_closed() -> None:
    worker = Worker(vertex("a"))
    worker.run(0, 1, END, commit=False)
    STORY.clear()
    assert sent(worker.run(0, 1, END)) == [1]
    assert only(take_story(), "open", "finish", "close") == [("a", "open"), ("a", "finish"), ("a", "close")]


def test_tasks_beyond_the_limit_make_room_closed_clean_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_manager_module, "MAX_TASKS", 1)
    worker = Worker(vertex("a", parallelism=2))
    worker.run(0, 1)
    STORY.clear()
    worker.next_epoch()
    worker.run(1, 1)
    assert only(take_story(), "close", "dispose", "open") == [("a", "close"), ("a", "dispose"), ("a", "open")]
    worker.next_epoch()
    assert sent(worker.run(0, 2)) == [2]


def test_a_new_attempt_disposes_of_the_tasks_of_the_old_one() -> None:
    worker = Worker(vertex("a"))
    old = task_manager("job-of-attempts", 0, lambda: worker.job)
    assert task_manager("job-of-attempts", 0, lambda: worker.job) is old
    worker.manager = old
    worker.run(0, 1)
    STORY.clear()
    new = task_manager("job-of-attempts", 1, lambda: worker.job)
    assert new is not old
    assert take_story() == [("a", "dispose")]
    new.dispose()


def test_a_header_that_cannot_be_read_is_corrupt_state() -> None:
    worker = Worker(vertex("a"), stored={0: (b"junk", None)})
    with pytest.raises(CorruptStateError, match="cannot be decoded.*job 'a job', vertex 'a', subtask 0"):
        worker.run(0, 1)


def test_siblings_in_a_chain_get_the_same_records_in_the_order_of_the_program() -> None:
    def change(operator: Telling, event: str, detail: Any) -> None:
        if event == "process":
            operator.output = Changing(operator.output)

    class Changing:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def collect(self, values: Any, timestamps: Any) -> None:
            for value in values:
                value.append("changed")

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

    worker = Worker(vertex("a", "b", "c", parents={"c": "a"}, hooks={"b": change}))
    assert sent(worker.run(0, ["x"], ["y"])) == [["x"], ["y"]]
    assert [name for name, _ in only(take_story(), "process")] == ["a", "b", "c"]


def test_operators_behind_one_that_changes_watermarks_begin_an_epoch_where_they_were() -> None:
    """A generator in the middle sends other watermarks than it gets."""
    seen: dict[str, list[int]] = {}

    def halve(operator: Telling, event: str, detail: Any) -> None:
        if event == "watermark":
            operator.output.emit_watermark(detail // 2)
            raise_over = operator.output
            operator.output = Mute(raise_over)
        elif event == "snapshot" and isinstance(operator.output, Mute):
            operator.output = operator.output.inner

    class Mute:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def emit_watermark(self, watermark_ms: int) -> None:
            pass

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    def look(operator: Telling, event: str, detail: Any) -> None:
        if event == "begin_epoch":
            seen.setdefault(operator.name, []).append(operator.context.epoch.watermark_ms)

    worker = Worker(vertex("a", "b", "c", "d", hooks={"b": halve, "a": look, "c": look, "d": look}))
    worker.run(0, ("wm", 100))
    worker.next_epoch()
    worker.run(0, 1)
    assert {name: marks[-1] for name, marks in seen.items()} == {"a": 100, "c": 50, "d": 50}
    restarted = Worker(worker.vertex, stored=worker.stored, epoch=2)
    restarted.run(0, 1)
    assert {name: marks[-1] for name, marks in seen.items()} == {"a": 100, "c": 50, "d": 50}


def raise_for_key(operator: Telling, event: str, detail: Any) -> None:
    if event == "process" and operator.context.keyed_state is not None:
        operator.context.keyed_state.current_key = "the key"
        helper(detail)


def helper(values: list[Any]) -> None:
    raise KeyError("missing")


def test_an_error_of_user_code_names_the_operator_the_key_and_the_epoch_behind_the_users_traceback() -> None:
    worker = Worker(vertex("a", "b", keyed=True, hooks={"a": raise_for_key}), epoch=7)
    with pytest.raises(UserCodeError) as caught:
        worker.run(0, 1)
    text = str(caught.value)
    assert text.startswith("Traceback (most recent call last):\n")
    trace, _, message = text.partition("\n\n")
    assert "helper" in trace
    assert "task_manager.py" not in trace
    assert trace.endswith("KeyError: 'missing'")
    for part in ("task 'a -> b (1/1)'", "operator 'a' (uid uid-a)", "key 'the key'", "epoch 7"):
        assert part in message
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_error_in_an_object_that_answers_no_questions_is_told_as_any_other() -> None:
    class Shut:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("the connection is closed")

        def call(self) -> None:
            raise KeyError("the first error")

    def use(operator: Telling, event: str, detail: Any) -> None:
        if event == "process":
            Shut().call()

    worker = Worker(vertex("a", hooks={"a": use}))
    with pytest.raises(UserCodeError, match="KeyError in user code: 'the first error'.*operator 'a'"):
        worker.run(0, 1)


def test_the_users_traceback_keeps_what_user_code_called_of_ours() -> None:
    def misuse(operator: Telling, event: str, detail: Any) -> None:
        if event == "process":
            TaskHeader.decode(b"no header")

    worker = Worker(vertex("a", hooks={"a": misuse}))
    with pytest.raises(CorruptStateError) as caught:
        worker.run(0, 1)
    assert "operator 'a' (uid uid-a), epoch 0" in str(caught.value)


# --- Which task managers a worker holds -----------------------------------------------------------------------------


def _job(job_id: str) -> JobDescriptor:
    return JobDescriptor(job_id, "job", (), ())


def test_the_task_manager_of_a_version_is_kept() -> None:
    first = module.task_manager("a", "0-1", lambda: _job("a"))
    assert module.task_manager("a", "0-1", lambda: pytest.fail("loaded twice")) is first


def test_another_program_or_attempt_of_a_job_gets_tasks_of_its_own() -> None:
    first = module.task_manager("a", "0-1", lambda: _job("a"))
    assert module.task_manager("a", "0-2", lambda: _job("a")) is not first
    assert module.task_manager("a", "0-1", lambda: _job("a")) is not first, "it was disposed of"


def test_the_job_used_longest_ago_makes_room() -> None:
    managers = [module.task_manager(str(number), "0-1", lambda: _job("x")) for number in range(module.MAX_JOBS)]
    module.task_manager("0", "0-1", lambda: pytest.fail("loaded twice"))
    module.task_manager("new", "0-1", lambda: _job("new"))
    for number in (0, *range(2, module.MAX_JOBS)):
        kept = module.task_manager(str(number), "0-1", lambda: pytest.fail("loaded twice"))
        assert kept is managers[number]
    assert module.task_manager("1", "0-1", lambda: _job("x")) is not managers[1]
