"""Runs a program with flinkish and with the model, and compares what the sinks get."""

from __future__ import annotations

import copy
import functools
import itertools
import operator
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flinkish.datastream as datastream
from flinkish.common import Configuration, DeserializationSchema, JobStatus, Row, Time, Types, WatermarkStrategy
from flinkish.common.watermark_strategy import TimestampAssigner, WatermarkGenerator, WatermarkOutput
from flinkish.connectors.file_system.enumerator import StreamFormat
from flinkish.connectors.file_system.source import FileSource
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.connectors.paged_source import Page, PagedSource
from flinkish.connectors.results import NAMED, CollectSink, register_collector, unregister_collector
from flinkish.core.sink import SinkWriter
from flinkish.core.source import SplitSource
from flinkish.datastream import DataStream, StreamExecutionEnvironment, functions, state, window
from flinkish.errors import FlinkishError
from flinkish.testing import (
    End,
    Pause,
    Phase,
    ProgramTestHarness,
    SimulatedCrash,
    StreamRecord,
    TestingSink,
    TestingSource,
    Watermark,
)
from tests.random_programs import model
from tests.random_programs.kinds import Order
from tests.random_programs.program import PHASES
from tests.random_programs.records import CLASSES
from tests.support.epoch_reports import execute_observed, reports_of
from tests.support.processes import wait_until

Results = dict[str, list[Any]]

#: processing time of the first epoch, and from one epoch to the next, in ms
START_MS, EPOCH_MS = 1_000_000, 1_000

_SINK = re.compile(r'sink\("(\w+)", [^#]*\)  # order: (\w+), key: (.+)')


def time_of_epoch(number: int) -> int:
    return START_MS + EPOCH_MS * number


def expected(source: str) -> Results:
    """What the model says that each sink gets."""
    # what fails behind the last phase before the commit goes on with the next epoch
    restarts = {epoch + (phase == "EPOCH_PREPARED") for phase, epoch in _restarts(source)}
    return model.results_of(source, time_of_epoch, restarts)


def _restores(source: str) -> dict[int, int]:
    """Epoch -> the parallelism of the job that goes on from a savepoint before it."""
    return {epoch: int(phase[8:]) for phase, epoch in _restarts(source) if phase.startswith("RESTORE_")}


def _restarts(source: str) -> list[tuple[str, int]]:
    line = re.search(r"# restarts: (.+)", source)
    return [(phase, int(epoch)) for phase, epoch in re.findall(r"(\w+) (\d+)", line[1])] if line else []


def names() -> dict[str, Any]:
    """The names that a program finds, when flinkish runs it."""
    found: dict[str, Any] = {"__name__": "__main__", **CLASSES}
    for module in (functions, state, window, datastream):
        found.update({name: getattr(module, name) for name in module.__all__})
    found.update(At=lambda time_ms, value: StreamRecord(value, time_ms), Mark=Watermark, Pause=Pause, Idle=model.Idle)
    found.update(PagedSource=PagedSource, Page=Page, DeserializationSchema=DeserializationSchema)
    return {**found, "Row": Row, "Time": Time, "Types": Types, "functools": functools, "operator": operator}


class MarksIdleness(WatermarkGenerator):
    """The watermark is the time of the last record. ``idle``: the records after which the source is idle."""

    def __init__(self, idle: frozenset[Any]) -> None:
        self._idle = idle

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(event_timestamp)
        if plain(event) in self._idle:
            output.mark_idle()


class _Sources:
    """The sources that a program can have. ``folder``: for files."""

    def __init__(self, env: StreamExecutionEnvironment, folder: Path) -> None:
        self._env, self._folder = env, folder

    def marks(self, name: str, elements: list[Any], declared: Any) -> DataStream:
        return self._of(TestingSource(*elements, End(), type_info=declared), WatermarkStrategy.no_watermarks(), name)

    bare = marks

    def splits(self, name: str, splits: list[list[Any]], declared: Any) -> DataStream:
        source = TestingSource.of_splits(*([*elements, End()] for elements in splits), type_info=declared)
        return self._of(source, WatermarkStrategy.no_watermarks(), name)

    def idle(self, name: str, elements: list[Any], declared: Any) -> DataStream:
        pairs = itertools.pairwise(elements)
        idle = frozenset(plain(one.value) for one, other in pairs if isinstance(other, model.Idle))
        kept = [element for element in elements if not isinstance(element, model.Idle)]
        strategy = WatermarkStrategy.for_generator(functools.partial(MarksIdleness, idle))
        return self._of(TestingSource(*kept, End(), type_info=declared), strategy, name)

    def generated(self, name: str, function: Any, count: int, per_epoch: int, time: Any, declared: Any) -> DataStream:
        source = DataGeneratorSource(function, count, declared, records_per_epoch=per_epoch)
        return self._of(source, _times(time), name)

    def paged(self, name: str, source: PagedSource, time: Any, declared: Any) -> DataStream:
        source.poll_interval_ms = 0
        return self._of(source, _times(time), name)

    def lines(self, name: str, schema: DeserializationSchema, lines: list[str], time: Any, declared: Any) -> DataStream:
        file = self._folder / f"{name}.txt"
        file.write_text("".join(f"{line}\n" for line in lines))
        return self._of(FileSource(StreamFormat(schema), [str(file)]), _times(time), name)

    def _of(self, source: SplitSource, strategy: WatermarkStrategy, name: str) -> DataStream:
        return self._env.from_source(source, strategy, name).uid(name)


@dataclass(frozen=True)
class _Time(TimestampAssigner):
    """Takes the time of a record by a function of the program."""

    function: Callable[[Any], int]

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return self.function(value)


def _times(function: Callable[[Any], int]) -> WatermarkStrategy:
    return WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Time(function))


def build(
    source: str,
    env: StreamExecutionEnvironment,
    sink: Callable[[str, bool], Any],
    folder: Path,
    parallelism: int | None = None,
) -> None:
    """Build a program in an environment.

    Args:
        parallelism: None: that of the program.
        sink: makes the sink of a name; whether it changes the records that it gets.
        folder: for files of sources.
    """
    found = re.search(r"# parallelism: (\d+)", source)
    env.set_parallelism(parallelism or (int(found[1]) if found else 1))
    namespace = names()
    exec(compile(source, "<program>", "exec"), namespace)

    def add_sink(name: str, stream: DataStream, changes: bool = False) -> None:
        stream.sink_to(sink(name, changes)).name(f"sink {name}").uid(f"sink {name}")

    namespace["build"](_Sources(env, folder), add_sink)


class ChangingSink(TestingSink):
    """Keeps the records as they came, and then changes them, as sinks may."""

    def create_writer(self) -> SinkWriter:
        return _ChangingWriter(super().create_writer())


class _ChangingWriter(SinkWriter):
    def __init__(self, inner: SinkWriter) -> None:
        self._inner = inner

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        self._inner.write(copy.deepcopy(values), timestamps)
        for value in values:
            change_all(value)
        return []

    def prepare_commit(self) -> list[Any]:
        return self._inner.prepare_commit()


def change_all(value: Any) -> None:
    """Change whatever can be changed of a record, at every depth."""
    if isinstance(value, dict):
        for one in value.values():
            change_all(one)
        value.clear()
    elif isinstance(value, (list, tuple)):
        for one in value:
            change_all(one)
        if isinstance(value, list):
            value.append(-1)
    elif isinstance(value, set):
        value.add(-1)
    elif isinstance(value, Row) or hasattr(value, "__dataclass_fields__"):
        for one in value if isinstance(value, Row) else map(value.__getattribute__, value.__dataclass_fields__):
            change_all(one)


def in_minicluster(source: str) -> Results:
    """What each sink gets from flinkish in this process."""
    # functions are those of single operators and subtasks, as on Spark
    configuration = Configuration().set_string("flinkish.minicluster.share-functions", "false")
    kinds = {False: TestingSink, True: ChangingSink}
    found: Results = defaultdict(list)
    savepoint, epochs = None, 0
    runs = [*sorted(_restores(source).items()), (None, None)]
    with tempfile.TemporaryDirectory() as folder:
        for (until, _), parallelism in zip(runs, [None, *(parallelism for _, parallelism in runs)]):
            env = StreamExecutionEnvironment.get_execution_environment(configuration)
            sinks: dict[str, TestingSink] = {}
            made = functools.partial(_made, sinks, kinds)
            build(source, env, made, Path(folder), parallelism)
            harness = ProgramTestHarness(env, restored=savepoint)
            try:
                epochs += _run(harness, _restarts(source), epochs, until)
                savepoint = None if harness.finished else harness.savepoint()
            finally:
                harness.close()
            for name, sink in sinks.items():
                found[name] += sink.values
            if savepoint is None:
                break
    return found


def _made(sinks: dict[str, TestingSink], kinds: dict[bool, type[TestingSink]], name: str, changes: bool) -> TestingSink:
    return sinks.setdefault(name, kinds[changes]())


class OnSpark:
    """Runs programs in the Spark session of this process.

    Args:
        folder: for the job directories.
    """

    _programs = itertools.count()

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, source: str) -> Results:
        """What each sink gets."""
        number = next(self._programs)
        folder = self._folder / f"program-{number}"
        folder.mkdir()
        found: Results = {}
        epochs = [0, *sorted(_restores(source))]
        lengths = [until - begun for begun, until in itertools.pairwise(epochs)]
        goes_on: dict[str, str] | None = {}
        for begun, length in itertools.zip_longest(epochs, lengths):
            if goes_on is not None:
                goes_on = self._run(source, number, folder, _restores(source).get(begun), length, goes_on, found)
        return found

    def _run(
        self,
        source: str,
        number: int,
        folder: Path,
        parallelism: int | None,
        epochs: int | None,
        more: dict[str, str],
        found: Results,
    ) -> dict[str, str] | None:
        """Run a job to its end, or for some epochs. Returns how the next one goes on: in the directory of this job, or
        in another one from a savepoint; None: the job has ended."""
        configuration = Configuration()
        settings = {
            "pipeline.max-parallelism": "4",
            "flinkish.job.dir": str(folder / "job"),
            "execution.checkpointing.interval": "0 s",
            # functions keep objects within an epoch only: the input is one, however long it takes
            "flinkish.epoch.target-duration": "0 s",
            "flinkish.progress": "never",
            "flinkish.history.enabled": "false",
            **more,
        }
        for key, value in settings.items():
            configuration.set_string(key, value)
        env = StreamExecutionEnvironment.get_execution_environment(configuration)

        def sink(name: str, changes: bool) -> CollectSink:
            full = f"random-{number}-{name}"
            register_collector(full, NAMED, found.setdefault(name, []).extend)
            return CollectSink(full)

        try:
            build(source, env, sink, folder, parallelism)
            if epochs is None:
                env.execute("random program")
                return None
            client = execute_observed(env, "random program")
            run, directory = client.run, settings["flinkish.job.dir"]
            wait_until(lambda: run.result.done() or len(reports_of(run)) >= epochs, 120, f"{epochs} epochs")
            try:
                if epochs % 2:
                    path = client.stop_with_savepoint(False, str(folder / "savepoints")).result(120)
                    return {"flinkish.job.dir": f"{directory}-", "execution.state-recovery.path": path}
                run.request_stop(JobStatus.SUSPENDED, "a signal")
                client.get_job_execution_result().result(120)
            except FlinkishError:
                # it has ended before that
                client.get_job_execution_result().result(120)
            ended = client.get_job_status().result(120) is JobStatus.FINISHED
            return None if ended else {"flinkish.job.dir": directory}
        finally:
            for name in found:
                unregister_collector(f"random-{number}-{name}", NAMED)


def _run(harness: ProgramTestHarness, restarts: list[tuple[str, int]], begun: int, until: int | None) -> int:
    """Run a job until the end, or until an epoch. ``begun``: how many epochs those before it have run. Returns how many
    this one has."""
    for phase, epoch in restarts:
        if phase in PHASES and phase != "BETWEEN":
            harness.crash_at(Phase[phase], epoch=epoch)
    while not harness.finished and begun + harness.next_epoch != until:
        epoch = begun + harness.next_epoch
        harness.set_processing_time(time_of_epoch(epoch))
        if ("BETWEEN", epoch) in restarts:
            harness.crash()
        with suppress(SimulatedCrash):
            harness.run_epoch()
            if ("EPOCH_PREPARED", epoch) in restarts:
                # an epoch that leaves nothing to commit is never prepared
                harness.crash()
    return harness.next_epoch


def differences(source: str, found: Results, wanted: Results) -> list[str]:
    """What is wrong: nothing, if each sink has got the same in every order that Flink fixes."""
    wrong = []
    for name, order, key in _SINK.findall(source):
        select = eval(f"lambda r: {key}")
        views = [_view(results[name], Order[order], select) for results in (found, wanted)]
        if views[0] != views[1]:
            wrong.append(f"sink {name} ({order}):\n{_first_difference(*views)}")
    return wrong


def _view(values: list[Any], order: Order, key: Callable[[Any], Any]) -> list[Any]:
    if order is Order.TOTAL:
        return [plain(value) for value in values]
    if order is Order.NONE:
        return sorted((plain(value) for value in values), key=repr)
    lists: dict[Any, list[Any]] = defaultdict(list)
    for value in values:
        lists[key(value)].append(plain(value))
    return sorted(lists.items())


def _first_difference(found: list[Any], wanted: list[Any]) -> str:
    for index in range(max(len(found), len(wanted))):
        pair = [values[index] if index < len(values) else "nothing" for values in (found, wanted)]
        if pair[0] != pair[1]:
            return (
                f"  number {index} of {len(found)}, expected {len(wanted)}\n  found    {pair[0]}\n  expected {pair[1]}"
            )
    return ""


def plain(value: Any) -> Any:
    """A record as nested tuples that begin with the names of its classes."""
    kind = type(value).__name__
    if isinstance(value, (int, str)) or value is None:
        return value
    if kind == "Row":
        values = value.as_dict() if hasattr(value, "as_dict") else vars(value)
        return (kind, *((name, plain(one)) for name, one in values.items()))
    if isinstance(value, dict):
        return (kind, *((plain(one), plain(other)) for one, other in value.items()))
    if isinstance(value, (set, frozenset)):
        return (kind, *sorted(map(plain, value)))
    if isinstance(value, (list, tuple)):
        return (kind, *map(plain, value))
    return (kind, *(plain(getattr(value, name)) for name in type(value).__dataclass_fields__))
