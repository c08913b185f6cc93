"""What is seen of a task while it runs: records, watermarks, calls that do not return, and the files that say so."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkish.common import Time, WatermarkStrategy
from flinkish.common.typeinfo import Types
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.datastream import (
    DataStream,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    OnError,
    ProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
)
from flinkish.datastream.state import ValueStateDescriptor
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.errors import RetryableError
from flinkish.jobmanager.epochs import ProgressWatch, explained
from flinkish.minicluster import MiniCluster
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.job.report import TaskPlace
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.task.progress import (
    EpochProgress,
    ProgressFiles,
    ProgressReporter,
    SlowCall,
    TaskProgress,
    WorkerProgress,
)
from flinkish.testing import TestingSink
from tests.unit.minicluster.programs import bounded, environment, job_of, list_source

#: The record at which the functions of these tests do not return for long.
SLOW = 7
LIMIT_S = 30.0


class Watch:
    """A reporter whose clock and looks the functions of the program steer."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.published: list[WorkerProgress] = []
        self._reporter: ProgressReporter | None = None

    def reporter(self, job: JobDescriptor, every_s: float = 0.0) -> ProgressReporter:
        self._reporter = ProgressReporter(job, self.published.append, every_s, lambda: self.now_s)
        return self._reporter

    def look(self, after_s: float = 0.0) -> None:
        assert self._reporter is not None
        self.now_s += after_s
        self._reporter.look()

    def called(self, slow: bool) -> None:
        """To be called by the function under test: each call is seen once, the slow one for 31 seconds."""
        self.look(after_s=20)
        if slow:
            self.look(after_s=LIMIT_S + 1)

    def slow_calls(self) -> list[SlowCall]:
        found = [task.slow_call for worker in self.published for task in worker.tasks]
        return [call for call in found if call is not None]


WATCH = Watch()


@pytest.fixture(autouse=True)
def watch() -> Watch:
    WATCH.__init__()  # type: ignore[misc]
    return WATCH


def run(stream: DataStream, watch: Watch, every_s: float = 0.0, sink: bool = True) -> JobDescriptor:
    if sink:
        stream.sink_to(TestingSink()).uid("sink")
    job = job_of(stream.get_execution_environment(), share_functions=True)
    MiniCluster(job, ManualClock(), progress=watch.reporter(job, every_s)).run()
    return job


def numbers(count: int = 10) -> DataStream:
    """(key, number, time), of two keys, in one subtask."""
    source = list_source([(f"key-{number % 2}", number, number) for number in range(count)])
    return environment(1).from_source(source, bounded(), "numbers").uid("numbers")


def plain(value: Any) -> Any:
    WATCH.called(value[1] == SLOW)
    return value


class Mapped(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def map(self, value: Any) -> Any:
        return plain(value)


class Keeping(MapFunction):
    def __init__(self) -> None:
        self.kept: list[Any] = []

    def map(self, value: Any) -> Any:
        self.kept.append(value)
        return plain(value)


class Chosen(FilterFunction):
    def filter(self, value: Any) -> bool:
        return bool(plain(value))


class Flattened(FlatMapFunction):
    def flat_map(self, value: Any) -> Iterator[Any]:
        plain(value)
        yield from ()


class Processed(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        plain(value)


class KeyedProcessed(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        plain(value)


class Timed(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        ctx.timer_service().register_event_time_timer(value[2])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        WATCH.called(timestamp == SLOW)


class InWindow(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        WATCH.called(any(value[1] == SLOW for value in elements))
        return ()


class Opened(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        WATCH.called(True)

    def map(self, value: Any) -> Any:
        return value


class Operand:
    """What a function whose code keeps nothing of its argument calculates with."""

    def __init__(self, record: Any) -> None:
        self.record = record

    def __add__(self, other: int) -> int:
        plain(self.record)
        return other

    def __gt__(self, other: int) -> bool:
        return bool(plain(self.record))

    def __repr__(self) -> str:
        return repr(self.record)


class TimeOf(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(plain(value)[2])


def slowly_timed() -> WatermarkStrategy:
    return WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOf())


RECORD = repr(("key-1", SLOW, SLOW))
OF_KEY = ", key 'key-1'"


def key_of(value: Any) -> Any:
    return value[0]


@pytest.mark.parametrize(
    ("program", "record", "details"),
    [
        pytest.param(lambda s: s.map(plain), RECORD, "", id="map"),
        pytest.param(lambda s: s.map(Keeping()), RECORD, "", id="map that keeps records"),
        pytest.param(lambda s: s.map(Operand).map(lambda v: v + 1), RECORD, "", id="map that keeps nothing"),
        pytest.param(lambda s: s.map(Operand).filter(lambda v: v > 1), RECORD, "", id="filter that keeps nothing"),
        pytest.param(lambda s: s.key_by(key_of).map(Mapped()), RECORD, OF_KEY, id="map with state"),
        pytest.param(lambda s: s.map(lambda v: v).map(Keeping()), RECORD, "", id="second of a chain"),
        pytest.param(lambda s: s.filter(Chosen()), RECORD, "", id="filter"),
        pytest.param(lambda s: s.filter(lambda v: plain(v) is not None), RECORD, "", id="filter by a lambda"),
        pytest.param(lambda s: s.flat_map(Flattened()), RECORD, "", id="flat map that yields nothing"),
        pytest.param(lambda s: s.process(Processed()), RECORD, "", id="process"),
        pytest.param(lambda s: s.key_by(key_of).process(KeyedProcessed()), RECORD, OF_KEY, id="keyed process"),
        pytest.param(lambda s: s.key_by(key_of).process(Timed()), f"timer {SLOW}", OF_KEY, id="timer"),
        pytest.param(lambda s: s.key_by(key_of).reduce(lambda a, b: plain(b)), RECORD, OF_KEY, id="reduce"),
        pytest.param(lambda s: s.map(plain).on_error(OnError.skip(5)), RECORD, "", id="guarded map"),
        pytest.param(
            lambda s: s.key_by(key_of).window(TumblingEventTimeWindows.of(Time.milliseconds(2))).process(InWindow()),
            f"timer {SLOW}",
            OF_KEY,
            id="window function",
        ),
        pytest.param(lambda s: s.map(Opened()), None, "", id="open"),
        pytest.param(lambda s: s.assign_timestamps_and_watermarks(slowly_timed()), RECORD, "", id="timestamp assigner"),
    ],
)
def test_a_call_that_does_not_return_is_named_and_calls_that_do_are_not(
    program: Callable[[DataStream], DataStream], record: str | None, details: str, watch: Watch
) -> None:
    run(program(numbers()).uid("called"), watch)
    assert [(call.uid, call.warnings) for call in watch.slow_calls()] == [("called", 1)]
    call = watch.slow_calls()[0]
    assert (call.running_ms, call.record, call.details) == ((LIMIT_S + 1) * 1000, record, details)
    outermost = call.stack.splitlines()[0]
    assert __file__ in outermost
    assert "WATCH.called(" in call.stack or "plain(" in call.stack


def test_a_key_selector_that_does_not_return_is_that_of_the_operator_that_sends(watch: Watch) -> None:
    sends = numbers().map(lambda value: value).uid("sends")
    run(sends.key_by(lambda value: plain(value)[0]).map(lambda value: value), watch)
    assert [(call.uid, call.record) for call in watch.slow_calls()] == [("sends", RECORD)]


def test_a_call_is_warned_of_again_each_time_that_it_has_taken_twice_as_long(watch: Watch) -> None:
    def slow(value: Any) -> Any:
        for _ in range(250 if value[1] == SLOW else 1):
            watch.look(after_s=1)
        return value

    run(numbers().map(slow), watch)
    calls = watch.slow_calls()
    first = {call.warnings: call.running_ms for call in reversed(calls)}
    assert first == {1: 30_000, 2: 60_000, 3: 120_000, 4: 240_000}
    assert len({call.number for call in calls}) == 1
    assert calls[-1].running_ms == 249_000


def test_slow_calls_are_not_looked_for_if_the_limit_is_0(watch: Watch) -> None:
    stream = numbers().map(plain)
    stream.sink_to(TestingSink())
    job = job_of(stream.get_execution_environment(), share_functions=True, slow_call_warning_ms=0)
    MiniCluster(job, ManualClock(), progress=watch.reporter(job)).run()
    assert watch.published
    assert watch.slow_calls() == []


class Hostile:
    def __init__(self, number: int, text: str) -> None:
        self.number = number
        self.text = text

    def __repr__(self) -> str:
        if not self.text:
            raise RuntimeError
        return self.text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("a\n2026-01-01 ERROR \x1b[2J", "a\\n2026-01-01 ERROR \\x1b[2J", id="control characters"),
        pytest.param("{'password': 'hunter2'}", "{'password': ******}", id="a secret"),
        pytest.param("x" * 10_000, "x" * 180 + "..." + "x" * 15, id="a long text"),
        pytest.param("", "<a Hostile without a text: RuntimeError>", id="a text that fails"),
    ],
)
def test_the_record_of_a_slow_call_is_quoted_as_errors_quote_it(text: str, shown: str, watch: Watch) -> None:
    def slow(value: Hostile) -> int:
        watch.called(value.number == SLOW)
        return value.number

    run(numbers().map(lambda value: Hostile(value[1], text)).map(slow), watch)
    assert [call.record for call in watch.slow_calls()] == [shown]


def test_records_and_watermark_of_the_running_epoch_grow_within_a_batch(watch: Watch) -> None:
    seen: list[EpochProgress] = []

    def looked_at(value: Any) -> Any:
        watch.look(after_s=1)
        if watch.published:
            seen.append(EpochProgress.of(job, [watch.published[-1]]))
        return value

    stream = numbers(1_000).filter(lambda value: value[1] % 2 == 0).map(looked_at)
    stream.sink_to(TestingSink())
    job = job_of(stream.get_execution_environment(), share_functions=True, source_batch_size=500)
    MiniCluster(job, ManualClock(), progress=watch.reporter(job)).run()
    assert [progress.epoch for progress in seen] == [0] * 500
    records = [progress.records_in for progress in seen]
    # every second record passes the filter
    assert records[:3] == [0, 2, 4]
    assert records == sorted(records)
    assert records[249] < 500 <= records[250]
    assert [seen[0].running_ms, seen[-1].running_ms] == [1_000, 500_000]
    assert {task.done for task in seen[-1].tasks} == {False}
    # the watermark behind the first batch, which is that of a split of the source and none of the job
    assert [progress.tasks[0].watermark_ms for progress in (seen[0], seen[-1])] == [None, 498]
    assert {progress.watermark_ms for progress in seen} == {None}


class LookedAt(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        WATCH.look(after_s=1)


def test_records_and_watermark_of_the_running_epoch_grow_within_a_stretch(watch: Watch) -> None:
    run(numbers(100).key_by(key_of).process(LookedAt()), watch)
    looks = [worker.tasks[-1] for worker in watch.published if worker.tasks[-1].vertex == 1]
    # a watermark follows each record
    assert [(task.records_in, task.watermark_ms) for task in looks[:4]] == [(0, None), (1, -1), (2, 0), (3, 1)]
    assert [task.records_in for task in looks] == list(range(100))


def test_a_task_that_is_done_keeps_its_figures_while_later_tasks_of_the_epoch_run(watch: Watch) -> None:
    stream = numbers().key_by(key_of).map(Mapped())
    job = run(stream, watch)
    last = EpochProgress.of(job, [watch.published[-1]])
    source, mapped = last.tasks
    assert (source.done, source.records_in, source.records_out, source.sink_records) == (True, 10, 10, 0)
    assert (mapped.done, mapped.subtask) == (False, 0)
    assert last.records_in == 10


def test_an_epoch_shorter_than_the_interval_is_not_published_and_a_longer_one_once_per_interval(watch: Watch) -> None:
    def takes(seconds: float) -> Callable[[Any], Any]:
        def call(value: Any) -> Any:
            watch.look(after_s=seconds)
            return value

        return call

    run(numbers(20).map(takes(0.04)), watch, every_s=1.0)
    assert watch.published == []
    run(numbers(20).map(takes(0.25)), watch, every_s=1.0)
    assert [worker.running_ms for worker in watch.published] == [1_000, 2_000, 3_000, 4_000, 5_000]


def test_a_publication_that_fails_does_not_harm_the_job_and_is_not_tried_at_once(watch: Watch) -> None:
    tries: list[float] = []

    def refuse(worker: WorkerProgress) -> None:
        tries.append(worker.running_ms)
        raise OSError("no space left")

    def looked_at(value: Any) -> Any:
        clock[0] += 10
        reporter.look()
        return value

    clock = [0.0]
    stream = numbers(20).map(looked_at)
    stream.sink_to(TestingSink())
    job = job_of(stream.get_execution_environment(), share_functions=True)
    reporter = ProgressReporter(job, refuse, 1.0, lambda: clock[0])
    MiniCluster(job, ManualClock(), progress=reporter).run()
    assert tries == [10_000, 70_000, 130_000, 190_000]


def test_the_thread_of_a_reporter_looks_by_itself_and_ends_when_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flinkish.runtime.task.progress.LOOK_S", 0.02)
    monkeypatch.setattr("flinkish.runtime.task.progress.IDLE_S", 0.05)
    published = threading.Event()

    def waits(value: Any) -> Any:
        assert published.wait(30)
        return value

    stream = numbers().map(waits)
    stream.sink_to(TestingSink())
    job = job_of(stream.get_execution_environment(), share_functions=True)
    MiniCluster(job, ManualClock(), progress=ProgressReporter(job, lambda worker: published.set(), 0.05)).run()
    deadline = time.monotonic() + 30
    while any(thread.name == "flinkish-progress" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


# ---------------------------------------------------------------------- the sum of workers


def place(attempt: int, pid: int = 4711) -> TaskPlace:
    return TaskPlace("host", "1", 3, 0, attempt, 17, pid)


def worker(*tasks: TaskProgress, epoch: int = 4, running_ms: int = 1_000, attempt: int = 0) -> WorkerProgress:
    return WorkerProgress(attempt, epoch, running_ms, tasks)


@pytest.fixture(scope="module")
def job() -> JobDescriptor:
    stream = numbers().key_by(key_of).map(Mapped())
    stream.sink_to(TestingSink())
    return job_of(stream.get_execution_environment(), share_functions=True)


def test_workers_are_summed_up_and_the_last_try_of_a_task_counts(job: JobDescriptor) -> None:
    progress = EpochProgress.of(
        job,
        [
            worker(TaskProgress(0, 0, 500, 500, 0, 90, place=place(0)), TaskProgress(1, 0, 7, 5, 5, 30)),
            worker(TaskProgress(0, 0, 20, 20, 0, 50, place=place(1)), TaskProgress(0, 1, 3, 3), running_ms=4_000),
        ],
    )
    assert (progress.epoch, progress.running_ms) == (4, 4_000)
    assert (progress.records_in, progress.records_out, progress.watermark_ms) == (23, 5, 30)
    assert [(task.vertex, task.subtask) for task in progress.tasks] == [(0, 0), (0, 1), (1, 0)]


# ---------------------------------------------------------------------- files

CALL = SlowCall(3, 1, "Map", "called", "'a'", ", key 'a'", 31_000, '  File "job.py", line 1, in slow')
FULL = worker(TaskProgress(0, 0, 500, 400, 300, 90, True, place(0), CALL), TaskProgress(1, 1))


def test_a_file_gives_what_was_written_and_nobody_else_can_read_it(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        files = ProgressFiles(str(tmp_path / "spark"))
        files.prepare()
        files.write(worker())
        files.write(FULL)
    finally:
        os.umask(before)
    ((name, found),) = ProgressFiles(str(tmp_path / "spark")).read().items()
    assert found == FULL
    path = tmp_path / "spark" / "progress" / name
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path.parent, path)] == [0o700, 0o600]
    assert os.listdir(path.parent) == [name]
    files.delete(name)
    assert files.read() == {}
    files.delete(name)


def test_a_worker_that_outlives_its_attempt_leaves_no_file(tmp_path: Path) -> None:
    files = ProgressFiles(str(tmp_path))
    files.prepare()
    files.write(FULL)
    files.clear()
    with pytest.raises(FileNotFoundError):
        files.write(FULL)
    assert list(tmp_path.iterdir()) == []


NAME = "0" * 32 + ".json"


def a_pipe(path: Path) -> None:
    os.mkfifo(path / NAME)


def a_link_out(path: Path) -> None:
    files = ProgressFiles(str(path.parent.parent / "elsewhere"))
    files.prepare()
    files.write(FULL)
    (written,) = (path.parent.parent / "elsewhere" / "progress").iterdir()
    (path / NAME).symlink_to(written)


def with_text(change: Callable[[str], str], name: str = NAME) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        (written,) = path.iterdir()
        text = written.read_text()
        (path / name).write_text(change(text))

    return make


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(with_text(lambda text: ""), id="empty"),
        pytest.param(with_text(lambda text: text[: len(text) // 2]), id="half written"),
        pytest.param(with_text(lambda text: text.replace("500", "501")), id="another number"),
        pytest.param(with_text(lambda text: "[" * 100_000), id="nested"),
        pytest.param(with_text(lambda text: '{"attempt": "x", "version": 1}'), id="another type"),
        pytest.param(with_text(lambda text: text + " " * 5_000_000), id="too long"),
        pytest.param(with_text(lambda text: text, "other.json"), id="another name"),
        pytest.param(lambda path: (path / NAME).mkdir(), id="a directory"),
        pytest.param(a_pipe, id="a pipe"),
        pytest.param(a_link_out, id="a link that leads out"),
    ],
)
def test_a_damaged_file_counts_as_missing(damage: Callable[[Path], None], tmp_path: Path) -> None:
    files = ProgressFiles(str(tmp_path / "spark"))
    files.prepare()
    files.write(FULL)
    damage(tmp_path / "spark" / "progress")
    assert list(files.read().values()) == [FULL]
    files.clear()
    assert list((tmp_path / "spark").iterdir()) == []


# ---------------------------------------------------------------------- the driver


def eventually(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_driver_follows_the_running_epoch_and_leaves_nothing_behind(job: JobDescriptor, tmp_path: Path) -> None:
    reported, told = [-1], list[EpochProgress]()

    def tell(progress: EpochProgress) -> None:
        told.append(progress)
        raise RuntimeError("an observer that fails does not end the watch")

    left = ProgressFiles(str(tmp_path))
    left.prepare()
    left.write(FULL)
    watch = ProgressWatch(job, str(tmp_path), lambda: reported[0], tell, every_s=0.01)
    watch.start()
    assert list((tmp_path / "progress").iterdir()) == []
    first, second, other = (ProgressFiles(str(tmp_path)) for _ in range(3))
    other.write(worker(TaskProgress(0, 0, 99), epoch=0, attempt=5))
    first.write(worker(TaskProgress(0, 0, 5), epoch=0))
    eventually(lambda: told and told[-1].records_in == 5)
    second.write(worker(TaskProgress(0, 1, 7), epoch=0, running_ms=600_000))
    eventually(lambda: told[-1].records_in == 12)
    assert told[-1].running_ms >= 600_000
    reported[0] = 0
    eventually(lambda: list((tmp_path / "progress").iterdir()) == [])
    first.write(worker(TaskProgress(0, 0, 3), epoch=1))
    eventually(lambda: told[-1].epoch == 1)
    assert told[-1].records_in == 3
    assert told[-1].running_ms < 600_000
    watch.close()
    assert list(tmp_path.iterdir()) == []
    assert replace(told[0], running_ms=0).records_in in (5, 12)


@pytest.mark.parametrize("length", [3, 5_000])
def test_a_task_whose_worker_has_died_is_told_once_with_its_number_however_long_its_name_is(
    tmp_path: Path, length: int
) -> None:
    files, tasks = ProgressFiles(str(tmp_path)), [f"{'x' * length} ({number}/2)" for number in (1, 2)]
    files.prepare()
    files.note("a task with a longer name, which runs here and lives")
    files.note("it lives (1/1)")
    for task in tasks:
        with subprocess.Popen(["true"]) as ended:
            files.note(task, ended.pid)
    found = [explained(RetryableError("a Python worker was lost"), None, str(tmp_path)) for _ in range(3)]
    assert sorted(one.task for one in found[:2]) == tasks
    assert all(one.task in one.what for one in found)
    assert (found[2].task, found[2].what) == ("", "a Python worker was lost"), "it has died once"
    assert files.noted() == {os.getpid(): "it lives (1/1)"}
