"""Replays of epochs without Spark: jobs whose first epoch begins with nothing, what is shown, where breakpoints are."""

from __future__ import annotations

import json
import pdb
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flinkish.common import Row, RowKind, Types, WatermarkStrategy
from flinkish.core.functions import ProcessFunction
from flinkish.core.source import DataFrameSource, SourceLimits
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import FinalOperationError, InternalError, UserCodeError
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.layout import Restored
from flinkish.jobmanager.job.settings import job_settings
from flinkish.jobmanager.replay.replay import EpochReplay, Records, end_with_replay
from flinkish.jobmanager.submitted_program import SubmittedProgram, captured
from flinkish.launch.driver import VARIABLE, ReplayRequest, requested_replay
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.exchange.hashes import group_hashes
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.sources.job_enumerator import NOTHING_READ, JobEnumerator
from flinkish.runtime.sources.split_list import SegmentFiles
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.files.rows import RowsBuilder
from flinkish.spark.place import partitions_of
from flinkish.testing import End, Pause, StreamRecord, TestingSink, TestingSource, Watermark
from flinkish.testing.program import restore_savepoint, take_savepoint
from tests.support.programs import new_environment

#: What Spark writes of a batch beside the positions.
TIME = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 78, "conf": {}})

ELEMENTS = [StreamRecord(3, 10), StreamRecord(-4, 20), Watermark(15), "x" * 300, End()]


class Work(ProcessFunction):
    """Doubles; the hook may do more."""

    def __init__(self, hook: Callable[[Any], None] = lambda value: None) -> None:
        self._hook = hook

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        self._hook(value)
        yield value * 2


def environment(
    sink: TestingSink, hook: Callable[[Any], None] = lambda value: None, parallelism: int = 2
) -> StreamExecutionEnvironment:
    env = new_environment(2)
    env.get_config().set_parallelism(parallelism)
    source = TestingSource.of_splits(ELEMENTS, [StreamRecord(100, 1), End()])
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "records").uid("records")
    stream.rebalance().process(Work(hook)).uid("work").sink_to(sink).uid("out")
    return env


def program(sink: TestingSink, hook: Callable[[Any], None] = lambda value: None) -> SubmittedProgram:
    return captured(lambda: environment(sink, hook).execute("a job"))


def graph_of(submitted: SubmittedProgram) -> JobDescriptor:
    generator = JobGraphGenerator(submitted.graph, job_settings(submitted.configuration))
    return generator.generate("a" * 32, "a job")


def planned(directory: JobDirectory, job: JobDescriptor, *restored: Any) -> None:
    """Epoch 0 was planned by Spark in the directory, and nothing more has happened."""
    directory.remember_structure(job, partitions_of(job))
    enumerator = JobEnumerator(job, SegmentFiles(directory.path), ManualClock(77), *restored)
    offsets = Path(directory.path) / "spark" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text(f"v1\n{TIME}\n{json.dumps(enumerator.next_offset(NOTHING_READ))}")


@pytest.fixture
def job_dir(tmp_path: Path) -> str:
    directory = JobDirectory(str(tmp_path / "job"))
    planned(directory, graph_of(program(TestingSink())))
    return directory.path


def no_session() -> Any:
    raise AssertionError("the first epoch needs no state, and so no Spark")


def test_an_epoch_whose_parallelism_was_that_of_the_clusters_slots_runs_again_on_any_machine(tmp_path: Path) -> None:
    submitted = captured(lambda: environment(TestingSink(), parallelism=-1).execute("a job"))
    generator = JobGraphGenerator(submitted.graph, job_settings(submitted.configuration))
    generator.on_slots(23)
    directory = JobDirectory(str(tmp_path / "job"))
    planned(directory, generator.generate("a" * 32, "a job"))
    again = captured(lambda: environment(TestingSink(), parallelism=-1).execute("a job"))
    replay = EpochReplay(again, ReplayRequest(directory.path, 0), no_session)
    assert [vertex.parallelism for vertex in replay.job.vertices] == [23, 23]
    replay.run()
    assert replay.failure is None


def test_the_first_epoch_runs_again_without_spark_and_without_a_word_to_the_sink(job_dir: str) -> None:
    sink = TestingSink()
    replay = EpochReplay(program(sink), ReplayRequest(job_dir, 0), no_session)
    replay.run()
    assert replay.failure is None and not replay.retained.committed and sink.commits == {}
    described = replay.describe()
    assert described["time_ms"] == 78 and described["epoch"] == 0 and described["job"] == "a job"
    shown = {
        record["value"]
        for one in described["operators"]
        if one["uid"] == "out"
        for given in one["received"]
        for record in given["records"]
    }
    assert {"6", "-8", "200"} < shown
    assert max(map(len, shown)) < 210, "long values are cut"
    text = replay.text()
    assert "records/0  'Source: records' of Source: records (1/2)" in text
    assert "    3 @ 10\n" in text and "watermarks: " in text


def test_the_program_ends_with_the_replay_and_with_what_the_epoch_fails_with(
    job_dir: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit) as ended:
        end_with_replay(program(TestingSink()), ReplayRequest(job_dir, 0, json=True))
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["failure"] is None

    def fails(value: Any) -> None:
        if value == 100:
            raise KeyError("no hundreds")

    opened: list[Any] = []
    monkeypatch.setattr(pdb, "post_mortem", opened.append)
    with pytest.raises(UserCodeError, match="no hundreds"):
        end_with_replay(program(TestingSink(), fails), ReplayRequest(job_dir, 0, pdb=True))
    assert "it has failed" in capsys.readouterr().out
    place = opened[0]
    while place.tb_next is not None:
        place = place.tb_next
    assert place.tb_frame.f_code is fails.__code__ and place.tb_frame.f_locals["value"] == 100


def test_a_request_in_the_environment_is_carried_out_in_place_of_the_job(
    job_dir: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    request = ReplayRequest(job_dir, 0, "work/1", limit=3)
    assert requested_replay(request.variables()) == request and requested_replay({}) is None
    monkeypatch.setenv(VARIABLE, request.variables()[VARIABLE])
    with pytest.raises(SystemExit):
        environment(TestingSink()).execute("a job")
    shown = capsys.readouterr().out
    assert "work/1" in shown and "out/1" in shown and "work/0" not in shown and "records/" not in shown


def test_the_jobs_before_the_one_whose_epoch_is_asked_for_do_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = ReplayRequest(str(tmp_path / "jobs" / "report"), 0)
    monkeypatch.setenv(VARIABLE, request.variables()[VARIABLE])
    env = new_environment()
    sink = TestingSink()
    env.from_collection([1]).sink_to(sink)
    assert env.execute("load").get_all_accumulator_results() == {}
    assert sink.values == []
    env.from_collection([1]).sink_to(sink)
    with pytest.raises(FinalOperationError, match="jobs/report is not the directory of a job"):
        env.execute("report")


def test_breakpoints_hold_only_in_the_task_that_was_named(job_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Any] = []
    monkeypatch.setattr(pdb.Pdb, "set_trace", lambda self, frame: held.append(frame.f_locals["value"]))

    def stop(value: Any) -> None:
        breakpoint()

    of_task = []
    for subtask in (0, 1):
        held.clear()
        EpochReplay(program(TestingSink(), stop), ReplayRequest(job_dir, 0, f"work/{subtask}"), no_session).run()
        of_task.append(list(held))
    assert sorted(map(str, of_task[0] + of_task[1])) == sorted(["3", "-4", "x" * 300, "100"])
    assert of_task[0] and of_task[1]


def sums() -> SubmittedProgram:
    env = new_environment(2)
    elements = [StreamRecord(("a", 1), 1), StreamRecord(("b", 2), 2), Pause(), StreamRecord(("a", 5), 3), End()]
    stream = env.from_source(TestingSource(*elements), WatermarkStrategy.no_watermarks(), "s").uid("s")
    stream.key_by(lambda value: value[0]).sum(1).uid("sums").sink_to(TestingSink()).uid("out")
    return captured(lambda: env.execute("a job"))


def test_the_first_epoch_of_a_job_that_began_with_a_savepoint_takes_it_in(tmp_path: Path) -> None:
    job = graph_of(sums())
    before = StateStore()
    MiniCluster(job, ManualClock(5), before).run(1)
    savepoint, restored = take_savepoint(job, before), StateStore()
    restore_savepoint(savepoint, job, {}, False, restored)
    directory = JobDirectory(str(tmp_path / "job"))
    directory.write(Restored("s", rows="restore-1", sources=savepoint.positions))
    rows = [*restored.restored, (-1000, 0, b"what was found")]
    columns = {name: [row[place] for row in rows] for place, name in enumerate(("vertex", "subtask", "buffer"))}
    (tmp_path / "job" / "restore-1").mkdir()
    pq.write_table(pa.table({"address": [0] * len(rows), **columns}), tmp_path / "job" / "restore-1" / "part-0.parquet")
    (tmp_path / "job" / "restore-1" / "_SUCCESS").touch()
    planned(directory, job, restored.positions)
    replay = EpochReplay(sums(), ReplayRequest(directory.path, 0), no_session)
    replay.run()
    received = [given for one in replay.describe()["operators"] if one["uid"] == "out" for given in one["received"]]
    assert [record["value"] for given in received for record in given["records"]] == ["('a', 6)"]


@pytest.mark.parametrize(
    ("query", "epoch", "said"),
    [
        ("spark-drain", 7, "a job whose query retains epochs"),
        ("minicluster", 0, "an epoch that has run in the minicluster cannot be replayed"),
    ],
)
def test_an_epoch_of_a_drain_and_one_of_the_minicluster_are_refused(
    job_dir: str, query: str, epoch: int, said: str
) -> None:
    JobDirectory(job_dir).move_query(query, epoch)
    with pytest.raises(FinalOperationError, match=said):
        EpochReplay(program(TestingSink()), ReplayRequest(job_dir, epoch), no_session)


class ReadBySpark(DataFrameSource):
    """A source such as Delta's."""

    bounded = True
    produced_type = Types.LONG()

    def load(self, spark: Any, limits: SourceLimits, start: str | None) -> Any:
        raise AssertionError

    def decoder(self) -> Any:
        return None


def test_a_source_that_spark_reads_is_refused_by_its_name(job_dir: str) -> None:
    env = new_environment()
    env.from_source(ReadBySpark(), WatermarkStrategy.no_watermarks(), "table").print()
    with pytest.raises(FinalOperationError, match="'Source: table.* is read by Spark"):
        EpochReplay(captured(lambda: env.execute("a job")), ReplayRequest(job_dir, 0), no_session)


def test_records_beyond_the_limit_are_counted() -> None:
    records = Records()
    records.add([1, 2], [5, 6], 3)
    records.add(["a", "b"], None, 3)
    assert records.lines("emitted") == [
        "  emitted: 4 records",
        "    1 @ 5",
        "    2 @ 6",
        "    'a'",
        "    ... and 1 more",
    ]


def test_records_that_change_rows_say_how() -> None:
    before, after = Row(n=1), Row(n=2)
    before.set_row_kind(RowKind.UPDATE_BEFORE)
    after.set_row_kind(RowKind.UPDATE_AFTER)
    records = Records()
    records.add([Row(n=0), before, after], None, 3)
    assert records.lines("emitted")[1:] == ["    Row(n=0)", "    -U Row(n=1)", "    +U Row(n=2)"]


def test_files_of_state_that_are_only_read_stay(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("x")
    directory = StateDirectory(str(tmp_path), read_only=True)
    directory.delete(["kept"])
    assert (tmp_path / "kept").exists()
    builder = RowsBuilder()
    builder.put("count", group_hashes("count", None, ["a"]), [b"a"], [b"1"])
    with pytest.raises(InternalError, match="only read"):
        directory.write(builder.build(), 1)
