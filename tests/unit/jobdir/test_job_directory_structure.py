"""A program that no longer fits the state in its job directory is refused, with what differs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkish.checkpoint.compatibility import write_states
from flinkish.common import Configuration, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.connectors.results import PrintSink
from flinkish.datastream import MapFunction, OnError, StreamExecutionEnvironment
from flinkish.datastream.functions import CheckpointedFunction
from flinkish.errors import IncompatibleJobError
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.layout import JobEnd
from flinkish.jobdir.structure import describe_program
from flinkish.jobmanager.job.settings import job_settings
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.state.state_rows import DeclaredState
from flinkish.spark.place import partitions_of
from tests.support.job_files import get, put


def job(
    uid: str = "counts",
    source_uid: str = "events",
    parallelism: int = 2,
    max_parallelism: int = 4,
    more: bool = False,
    function: Callable[[Any], Any] = abs,
    sinks: tuple[str, ...] = ("sink",),
    partitions: int | None = None,
) -> JobDescriptor:
    configuration = Configuration()
    if partitions is not None:
        configuration.set_integer("flinkish.spark.partitions", partitions)
    configuration.set_string("parallelism.default", str(parallelism))
    configuration.set_string("pipeline.max-parallelism", str(max_parallelism))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    source = DataGeneratorSource(function, 10)
    events = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").uid(source_uid)
    counts = events.map(function).uid("mapped").key_by(function).sum(0).uid(uid)
    if more:
        counts = counts.key_by(function).sum(0).uid("again")
    counts.print()
    for sink_uid in sinks:
        counts.sink_to(PrintSink()).uid(sink_uid)
    graph = env.get_stream_graph()
    return JobGraphGenerator(graph, job_settings(configuration), True).generate("00" * 16, "shop")


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what is remembered of the program."""
    directory = JobDirectory(str(folder))
    written = get(directory, "job.json")
    assert written is not None
    change(written)
    put(directory, "job.json", written)


def check(folder: Path, found: JobDescriptor) -> bool:
    """As at each start: compare, then remember."""
    directory = JobDirectory(str(folder))
    first = directory.check_compatible(found, partitions_of(found))
    directory.remember_structure(found, partitions_of(found))
    return first


def test_the_first_program_is_remembered_and_the_same_one_goes_on(tmp_path: Path) -> None:
    assert check(tmp_path, job()) is True
    assert check(tmp_path, job()) is False
    assert JobDirectory(str(tmp_path)).job_id() == "00" * 16


def test_a_directory_with_state_of_an_earlier_format_is_refused_at_the_start(tmp_path: Path) -> None:
    check(tmp_path, job())
    for said, change in (
        ("format version 1, which may hold code", lambda written: written.pop("state_format")),
        ("format version 9", lambda written: written.update(state_format=9)),
    ):
        edit(tmp_path, change)
        with pytest.raises(
            IncompatibleJobError, match=f"{said}.*expected format version 3 to 4; start in a new job dir"
        ):
            check(tmp_path, job())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"uid": "sums"}, "operator 'counts' is gone; operator 'sums' is new"),
        ({"more": True}, "operator 'again' is new"),
        ({"max_parallelism": 8}, "max_parallelism of 'counts' was 4 and is 8"),
        ({"parallelism": 1}, "parallelism of 'counts' was 2 and is 1"),
        ({"partitions": 1}, "the number of Spark partitions (flinkish.spark.partitions) was 2 and is 1"),
        ({"source_uid": "clicks"}, "the sources were ['events"),
        ({"sinks": ()}, "sink 'sink' is gone"),
        ({"sinks": ("renamed",)}, "sink 'sink' is gone; sink 'renamed' is new"),
    ],
)
def test_an_incompatible_change_is_named(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    check(tmp_path, job())
    with pytest.raises(IncompatibleJobError) as caught:
        check(tmp_path, job(**changes))
    message = str(caught.value)
    assert message.startswith("the program differs from the one that wrote this job directory: ")
    assert said in message
    assert f"[job 'shop', directory {tmp_path}]" in message
    assert "take a savepoint with the old program and start the new one from it" in message
    assert check(tmp_path, job()) is False, "what was remembered is still there"


def test_as_many_spark_partitions_as_there_are_subtasks_are_those_of_a_job_that_does_not_set_them(
    tmp_path: Path,
) -> None:
    for changes in ({}, {"partitions": 2}, {"partitions": 100}, {"function": str}):
        # nor are other functions another structure
        assert check(tmp_path, job(**changes)) is (not changes)


def test_a_sink_may_be_added_and_then_belongs_to_the_structure(tmp_path: Path) -> None:
    check(tmp_path, job())
    assert check(tmp_path, job(sinks=("new", "sink"))) is False
    with pytest.raises(IncompatibleJobError, match="sink 'new' is gone"):
        check(tmp_path, job())
    assert check(tmp_path, job(sinks=("sink", "new"))) is False, "their order does not matter"


def test_a_directory_that_does_not_say_which_sinks_there_were_takes_those_of_the_program(tmp_path: Path) -> None:
    check(tmp_path, job())
    edit(tmp_path, lambda written: written["structure"].pop("sinks"))
    assert check(tmp_path, job(sinks=("other",))) is False
    with pytest.raises(IncompatibleJobError, match="sink 'other' is gone"):
        check(tmp_path, job())


class Counting(MapFunction, CheckpointedFunction):
    def initialize_state(self, context: Any) -> None:
        pass

    def snapshot_state(self, context: Any) -> None:
        pass

    def map(self, value: Any) -> Any:
        return value


def chained(*operators: str, ignore: bool = False, apart: tuple[str, ...] = (), sinks: int = 1) -> JobDescriptor:
    """``rebalance -> head -> operators``, which are ``what=uid``; without a uid it is generated. ``apart``: the same
    behind another rebalance."""
    configuration = Configuration()
    configuration.set_string("parallelism.default", "2")
    configuration.set_boolean("execution.state-recovery.ignore-unclaimed-state", ignore)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    source = env.from_source(DataGeneratorSource(abs, 10), WatermarkStrategy.no_watermarks(), "events").uid("events")
    for head, chain in (("head", operators), *((("other", apart),) if apart else ())):
        stream = source.rebalance().map(abs).uid(head)
        for operator in chain:
            what, _, uid = operator.partition("=")
            stream = stream.map(Counting() if what == "counting" else abs)
            if what == "guarded":
                stream = stream.on_error(OnError.skip())
            if uid:
                stream = stream.uid(uid)
        for _ in range(sinks):
            stream.print()
    return JobGraphGenerator(env.get_stream_graph(), job_settings(configuration), True).generate("00" * 16, "shop")


GONE = r"operator '{}' \(Map\), which has state, is gone from the task of 'head'"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (["counting=op"], ["counting=renamed"], GONE.format("op")),
        (["counting=op"], [], GONE.format("op")),
        (["counting=op"], ["map", "map"], GONE.format("op")),
        (["guarded=op"], ["guarded=renamed"], GONE.format("op")),
        (["told=op"], ["told=renamed"], GONE.format("op")),
        (["counting=a", "told=op"], ["counting=b"], f"{GONE.format('a')}; {GONE.format('op')}"),
        (["counting"], ["map=new", "counting"], GONE.format("map-3")),
        (["counting"], ["map", "counting"], r"were \['map-3'\] and are \['map-3', 'map-4'\].*uid\('map-3'\)"),
        (["counting", "counting"], ["counting"], "operator 'map-4'"),
    ],
)
def test_an_operator_with_state_behind_the_head_of_its_task_must_stay(
    tmp_path: Path, before: list[str], after: list[str], said: str
) -> None:
    check(tmp_path, chained(*before))
    if "told=op" in before:
        # as the tasks have reported
        write_states(JobDirectory(str(tmp_path)), (DeclaredState("op", "n", "operator"),))
    with pytest.raises(IncompatibleJobError, match=said):
        check(tmp_path, chained(*after))
    assert check(tmp_path, chained(*before)) is False, "what was remembered is still there"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["map=a"], ["map=b"]),
        (["map"], ["map", "map"]),
        (["counting=op"], ["map", "counting=op", "map"]),
        (["counting"], ["counting"]),
        (["counting"], ["map=first", "counting=map-3"]),
        (["counting=op"], ["guarded=new", "counting=op"]),
    ],
)
def test_operators_without_state_may_come_and_go_behind_the_head_of_a_task(
    tmp_path: Path, before: list[str], after: list[str]
) -> None:
    check(tmp_path, chained(*before))
    assert check(tmp_path, chained(*after, sinks=2)) is False


def test_state_moves_to_no_other_task_and_to_no_operator_that_has_got_the_generated_uid(tmp_path: Path) -> None:
    check(tmp_path / "a", chained("counting=op", apart=("map",)))
    with pytest.raises(IncompatibleJobError, match="'op'.*was in the task of 'head' and is in that of 'other'"):
        check(tmp_path / "a", chained(apart=("map", "counting=op")))
    check(tmp_path / "b", chained("counting"))
    with pytest.raises(IncompatibleJobError, match=r"give that operator uid\('map-3'\)"):
        check(tmp_path / "b", chained("map", "counting", ignore=True))


def test_state_of_operators_that_are_gone_is_given_up_by_name_if_that_is_allowed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    check(tmp_path, chained("counting=op", "counting=kept"))
    with caplog.at_level("WARNING"):
        assert check(tmp_path, chained("counting=new", "counting=kept", ignore=True)) is False
    assert "job 'shop': state is given up: operator 'op' (Map), which has state, is gone" in caplog.text
    directory = JobDirectory(str(tmp_path))
    assert directory.given_up() == ("op",)
    assert check(tmp_path, chained("counting=new", "counting=kept")) is False, "once is enough"
    check(tmp_path, chained("counting=op", "counting=new", "counting=kept"))
    assert directory.given_up() == (), "it has state again"
    with pytest.raises(IncompatibleJobError, match="operator 'op'"):
        check(tmp_path, chained("counting=new", "counting=kept"))


def test_a_directory_of_an_earlier_version_remembers_only_the_heads_of_tasks(tmp_path: Path) -> None:
    check(tmp_path, chained("counting=op"))
    states = (DeclaredState("op", "n", "operator"), DeclaredState("long gone", "n", "operator"))
    write_states(JobDirectory(str(tmp_path)), states)
    edit(tmp_path, lambda written: [vertex.pop("operators") for vertex in written["structure"]["vertices"]])
    edit(tmp_path, lambda written: written.pop("given_up"))
    assert check(tmp_path, chained("counting=op")) is False
    with pytest.raises(IncompatibleJobError, match="operator 'op'"):
        check(tmp_path, chained())


@pytest.mark.parametrize(
    ("name", "changes", "difference"),
    [
        ("shop", {}, None),
        ("shop", {"parallelism": 4, "function": str}, None),
        ("stall", {}, "its job was 'shop' and is 'stall'"),
        ("shop", {"uid": "sums"}, "operator 'counts' (Sum) is gone; operator 'sums' (Sum)"),
    ],
)
def test_another_program_than_the_one_that_has_finished_in_a_directory_is_refused(
    tmp_path: Path, name: str, changes: dict[str, Any], difference: str | None
) -> None:
    directory, now = JobDirectory(str(tmp_path)), replace(job(**changes), name=name)
    directory.check_finished_by(now)
    directory.write(JobEnd(program=describe_program(job())))
    if difference is None:
        directory.check_finished_by(now)
        return
    with pytest.raises(IncompatibleJobError) as raised:
        directory.check_finished_by(now)
    assert difference in raised.value.what
    assert "give this program a directory of its own (flinkish.job.dir)" in raised.value.hint


def test_of_a_program_that_an_earlier_version_has_finished_only_the_name_is_known(tmp_path: Path) -> None:
    check(tmp_path, job())
    directory = JobDirectory(str(tmp_path))
    put(directory, "finished.json", {"last_epoch": 3})
    directory.check_finished_by(job(uid="other"))
    with pytest.raises(IncompatibleJobError, match="its job was 'shop' and is 'stall'"):
        directory.check_finished_by(replace(job(), name="stall"))
