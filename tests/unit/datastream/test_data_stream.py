"""DataStream: operators, ways, ends, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from flinkish.common import Row, RowKind, Types, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import (
    DataStream,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    OutputTag,
    Partitioner,
    ProcessFunction,
)
from flinkish.datastream.connectors.base import StreamTransformer, SupportsPreprocessing
from flinkish.errors import ProgramError, TypeMismatchError
from flinkish.jobmanager.client import JobManager
from flinkish.minicluster import MiniCluster
from flinkish.testing import TestingSink
from tests.support.functions import TimeOf
from tests.support.processes import wait_until
from tests.support.programs import chains_of, job_of, new_environment, results_of

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])


def numbers(parallelism: int = 1, count: int = 4) -> DataStream:
    return new_environment(parallelism).from_collection(range(1, count + 1), Types.INT())


class Double(MapFunction):
    def map(self, value: int) -> int:
        return value * 2


class Repeat(FlatMapFunction):
    def flat_map(self, value: int) -> Iterator[int]:
        yield from [value] * value


class IsOdd(FilterFunction):
    def filter(self, value: int) -> bool:
        return value % 2 == 1


class Split(ProcessFunction):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[Any]:
        if value % 2:
            yield OutputTag("odd"), value
        else:
            yield value


# --- operators ----------------------------------------------------------------------------------------------------


def test_functions_and_callables_do_the_same() -> None:
    assert results_of(numbers().map(Double())) == results_of(numbers().map(lambda n: n * 2)) == [2, 4, 6, 8]
    assert results_of(numbers().filter(IsOdd())) == results_of(numbers().filter(lambda n: n % 2)) == [1, 3]
    assert results_of(numbers(count=2).flat_map(Repeat())) == [1, 2, 2]
    assert results_of(numbers(count=2).flat_map(lambda n: [n] * n)) == [1, 2, 2]


def test_a_result_is_converted_to_the_declared_type() -> None:
    rows = numbers(count=1).map(lambda n: (n, "x"), Types.ROW_NAMED(["n", "s"], [Types.INT(), Types.STRING()]))
    assert results_of(rows) == [Row(n=1, s="x")]
    assert results_of(numbers(count=1).map(lambda n: (n, n), [Types.INT(), Types.INT()])) == [Row(f0=1, f1=1)]


def test_a_result_of_another_type_names_the_operator() -> None:
    with pytest.raises(TypeMismatchError, match="'one'.*results of 'Map'"):
        results_of(numbers().map(lambda n: "one", Types.INT()))


def test_types_are_any_object_the_declared_one_or_that_of_the_input() -> None:
    stream = numbers()
    assert stream.map(lambda n: n).get_type() == Types.PICKLED_BYTE_ARRAY()
    assert stream.map(lambda n: n, Types.LONG()).get_type() == Types.LONG()
    for same in (stream.filter(lambda n: n), stream.rebalance(), stream.union(stream), stream.broadcast()):
        assert same.get_type() == Types.INT()


@pytest.mark.parametrize("method", ["map", "flat_map", "filter"])
def test_what_is_no_function_is_refused(method: str) -> None:
    with pytest.raises(TypeError, match="The input must be a .*Function or a callable function"):
        getattr(numbers(), method)(3)


def test_process_takes_only_the_function_for_streams_without_keys() -> None:
    with pytest.raises(TypeError, match="ProcessFunction is required for DataStream, not the class Keyed"):
        numbers().process(KeyedProcessFunction)  # type: ignore[arg-type]


def test_names_are_those_of_pyflinks_plans() -> None:
    stream = numbers()
    pairs = stream.map(lambda n: ("a", n), PAIR)
    found = [
        stream.map(lambda n: n),
        stream.flat_map(lambda n: [n]),
        stream.filter(lambda n: n),
        stream.process(Split()),
        pairs.project(1),
        stream.assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps()),
        pairs.key_by(lambda p: p[0]).sum(1),
        pairs.key_by(lambda p: p[0]).map(lambda p: p),
    ]
    assert [one.get_name() for one in found] == [
        "Map",
        "FlatMap",
        "Filter",
        "PROCESS",
        "Projection",
        "Timestamps/Watermarks",
        "Reduce",
        "Map",
    ]


def test_project_keeps_fields_and_their_types() -> None:
    pairs = new_environment().from_collection([("a", 1)], PAIR)
    projected = pairs.project(1, 0)
    assert projected.get_type() == Types.TUPLE([Types.INT(), Types.STRING()])
    assert results_of(projected) == [(1, "a")]
    with pytest.raises(ProgramError, match="Only Tuple DataStreams can be projected"):
        numbers().project(0)
    with pytest.raises(ProgramError, match="positions from 0 to 1"):
        pairs.project(2)


def test_side_outputs_are_streams_of_their_tags_type() -> None:
    stream = numbers().process(Split())
    odd = stream.get_side_output(OutputTag("odd", Types.LONG()))
    assert odd.get_type() == Types.LONG()
    assert results_of(odd) == [1, 3]
    with pytest.raises(TypeError, match="expected an OutputTag"):
        stream.get_side_output("odd")  # type: ignore[arg-type]


def test_a_side_output_has_one_type() -> None:
    stream = numbers().process(Split())
    stream.get_side_output(OutputTag("odd", Types.LONG()))
    stream.get_side_output(OutputTag("odd", Types.LONG()))
    with pytest.raises(ProgramError, match="side output 'odd' was already asked for with another type: Long.*String"):
        stream.get_side_output(OutputTag("odd", Types.STRING()))


def test_a_record_with_a_tag_that_nobody_reads_is_dropped() -> None:
    assert results_of(numbers(count=2).process(Split())) == [2]


def test_watermarks_have_the_parallelism_of_what_comes_before() -> None:
    stream = numbers(parallelism=3)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOf(int))
    stream.assign_timestamps_and_watermarks(strategy).map(lambda n: n)
    assert chains_of(stream.get_execution_environment()) == [
        "Source: Collection Source -> Timestamps/Watermarks",
        "Map",
    ]


# --- settings -----------------------------------------------------------------------------------------------------


def test_settings_reach_the_operator() -> None:
    stream = numbers(parallelism=2).map(lambda n: n)
    stream.name("renamed").uid("me").set_parallelism(3).set_max_parallelism(9).set_description("described")
    vertex = job_of(stream.get_execution_environment()).vertices[1]
    assert (vertex.name, vertex.parallelism, vertex.max_parallelism) == ("renamed", 3, 9)
    assert (vertex.head.uid, vertex.head.uid_given) == ("me", True)
    assert "described" in stream.get_execution_environment().get_execution_plan()


def test_minus_one_is_the_environments_parallelism() -> None:
    stream = numbers(parallelism=2).map(lambda n: n).set_parallelism(5).set_parallelism(-1)
    assert job_of(stream.get_execution_environment()).vertices[1].parallelism == 2


def test_force_non_parallel_is_for_good() -> None:
    stream = numbers(parallelism=2).map(lambda n: n).force_non_parallel()
    with pytest.raises(ProgramError, match="must be 1"):
        stream.set_parallelism(2)


@pytest.mark.parametrize(
    ("method", "argument", "message"),
    [
        ("set_parallelism", 0, "a parallelism of at least 1"),
        ("set_max_parallelism", 32769, "a number from 1 to 32768"),
        ("name", "", "a non-empty str"),
        ("uid", None, "a non-empty str"),
        ("set_uid_hash", "short", "32 characters"),
    ],
)
def test_settings_that_cannot_be_name_the_operator(method: str, argument: Any, message: str) -> None:
    with pytest.raises(ProgramError, match=rf"operator 'Map' \(uid map-2\).*{message}"):
        getattr(numbers().map(lambda n: n), method)(argument)


def test_a_way_between_operators_has_no_settings() -> None:
    with pytest.raises(ProgramError, match=r"name\(\) on a stream that is no operator's output .*'Source: Collection"):
        numbers().rebalance().name("rebalanced")
    stream = numbers()
    with pytest.raises(ProgramError, match=r"uid\(\) on .* and .*union and repartitioning are ways"):
        stream.union(stream.map(lambda n: n, Types.INT())).uid("both")
    with pytest.raises(ProgramError, match=r"get_side_output\(\) on a stream"):
        stream.shuffle().get_side_output(OutputTag("x"))


# --- ways ---------------------------------------------------------------------------------------------------------


def test_union_is_of_one_environment_and_type() -> None:
    stream = numbers(count=2)
    assert sorted(results_of(stream.union(stream.map(lambda n: n + 10, Types.INT()), stream))) == [1, 1, 2, 2, 11, 12]
    with pytest.raises(ProgramError, match="different types"):
        stream.union(stream.map(str, Types.STRING()))
    with pytest.raises(ProgramError, match="different environments"):
        stream.union(numbers())


def test_rows_of_a_union_have_the_field_names_of_its_first_stream() -> None:
    numbered = numbers(count=1)
    inner, types = [Types.ROW_NAMED(["x"], [Types.INT()]), Types.ROW_NAMED(["y"], [Types.INT()])], Types.ROW_NAMED
    first = numbered.map(lambda n: Row(n, (n,)), types(["a", "b"], [Types.INT(), inner[0]]))
    other = numbered.map(lambda n: Row.of_kind(RowKind.DELETE, n, Row(y=n)), types(["c", "d"], [Types.INT(), inner[1]]))
    united = first.union(other, other.rebalance())
    assert results_of(united.key_by(lambda row: row.a).map(lambda row: row.b.x)) == [1, 1, 1]
    kinds = {row.get_row_kind() for row in results_of(first.union(other))}
    assert kinds == {RowKind.INSERT, RowKind.DELETE}


def test_every_way_brings_every_record() -> None:
    for way in ("rebalance", "rescale", "shuffle"):
        stream = getattr(numbers(parallelism=3), way)().map(lambda n: n)
        assert sorted(results_of(stream)) == [1, 2, 3, 4], way
    assert sorted(results_of(numbers(parallelism=2, count=2).broadcast().map(lambda n: n))) == [1, 1, 2, 2]


def test_partition_custom_chooses_the_subtask() -> None:
    class ByValue(Partitioner):
        def partition(self, key: int, num_partitions: int) -> int:
            return key % num_partitions

    class Key(KeySelector):
        def get_key(self, value: int) -> int:
            return value

    stream = numbers(parallelism=2).partition_custom(ByValue(), Key())
    printed = stream.map(lambda n: n)
    assert sorted(results_of(printed)) == [1, 2, 3, 4]
    with pytest.raises(TypeError, match="partitioner should be type of Partitioner or a callable"):
        numbers().partition_custom(3, lambda n: n)  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match="the partitioner returned 5.*from 0 to 1"):
        results_of(numbers(parallelism=2).partition_custom(lambda key, count: 5, lambda n: n).map(lambda n: n))


# --- ends ---------------------------------------------------------------------------------------------------------


def test_printed_lines_carry_the_identifier_and_the_subtask(capsys: pytest.CaptureFixture[str]) -> None:
    stream = numbers(parallelism=2, count=2)
    stream.print()
    stream.print("n").set_parallelism(1)
    stream.map(lambda n: Row("a", n), Types.ROW([Types.STRING(), Types.INT()])).set_parallelism(
        1
    ).print().set_parallelism(1)
    stream.get_execution_environment().execute()
    assert sorted(capsys.readouterr().out.split("\n")) == sorted(
        ["1> 1", "2> 2", "n> 1", "n> 2", "+I[a,1]", "+I[a,2]", ""]
    )


def test_a_sink_has_settings_too() -> None:
    stream = numbers()
    stream.print().name("shown").uid("printer").set_parallelism(2).set_description("d").slot_sharing_group("io")
    job = job_of(stream.get_execution_environment())
    assert [(sink.name, sink.uid, sink.parallelism) for sink in job.sinks] == [("Sink: shown", "printer", 2)]


def test_a_sink_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="expected a sink or a function of"):
        numbers().sink_to(3)  # type: ignore[arg-type]


def test_execute_and_collect_gives_as_many_as_asked_for() -> None:
    assert numbers().execute_and_collect("job", 2) == [1, 2]
    assert numbers().execute_and_collect(limit=9) == [1, 2, 3, 4]
    with pytest.raises(ProgramError, match="greater than 0"):
        numbers().execute_and_collect(limit=0)


def test_one_subtask_collects_so_a_collection_comes_back_in_its_order() -> None:
    texts = ["one", "two", "three", "four"]
    results = new_environment(parallelism=2).from_collection(texts, Types.STRING()).execute_and_collect()
    assert list(results) == texts
    mapped = numbers(parallelism=2).map(lambda n: n * 2).execute_and_collect()
    assert sorted(mapped) == [2, 4, 6, 8]


def test_the_iterator_is_at_its_end_after_close() -> None:
    results = numbers().execute_and_collect()
    assert not isinstance(results, list)
    assert next(results) == 1
    results.close()
    results.close()
    assert list(results) == []


def test_closing_the_iterator_ends_a_job_that_would_run_for_ever() -> None:
    env = new_environment()
    before = set(JobManager.get().jobs())
    with env.add_source(DataGeneratorSource(lambda i: i, records_per_epoch=3)).execute_and_collect() as results:
        assert len(set(JobManager.get().jobs()) - before) == 1
        assert not isinstance(results, list)
        assert list(islice(results, 150)) == list(range(150)), "more than the queue holds"
    wait_until(lambda: set(JobManager.get().jobs()) <= before, 30, "the end of the job")
    assert env.add_source(DataGeneratorSource(lambda i: i)).execute_and_collect(limit=2) == [0, 1]


def test_a_failed_job_raises_where_its_results_are_read() -> None:
    results = numbers().map(lambda n: 1 // (n - 1)).execute_and_collect()
    with pytest.raises(ProgramError, match="ZeroDivisionError"):
        list(results)


class _Doubling(StreamTransformer):
    def apply(self, ds: DataStream) -> DataStream:
        return ds.map(lambda n: 2 * n)


class _DoublingSink(TestingSink, SupportsPreprocessing):
    def get_transformer(self) -> StreamTransformer:
        return _Doubling()


def test_a_sink_may_put_operators_before_itself() -> None:
    env, sink = new_environment(), _DoublingSink()
    env.from_collection([1, 2]).sink_to(sink)
    MiniCluster(job_of(env)).run()
    assert sink.values == [2, 4]
