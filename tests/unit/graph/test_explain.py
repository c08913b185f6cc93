"""``explain`` shows operators, vertices, levels and subtasks."""

from __future__ import annotations

from flinkish.common import WatermarkStrategy
from flinkish.connectors.generated import NumberSequenceSource
from flinkish.datastream import OutputTag, ProcessFunction, StreamExecutionEnvironment
from tests.support.programs import new_environment


class Pass(ProcessFunction):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> list[int]:
        return [value]


def columns(env: StreamExecutionEnvironment) -> list[list[str]]:
    """The cells of the table, without the lines above."""
    lines = env.explain().splitlines()
    starts = [i for i in range(len(lines[1])) if lines[1][i] == "-" and (i == 0 or lines[1][i - 1] == " ")]
    return [[line[a:b].rstrip() for a, b in zip(starts, [*starts[1:], None], strict=True)] for line in lines[2:]]


def test_the_table_leads_from_operator_to_vertex_level_and_subtasks() -> None:
    env = new_environment(parallelism=2)
    source = env.from_source(NumberSequenceSource(1, 9), WatermarkStrategy.no_watermarks(), "numbers")
    source.map(lambda n: n).uid("same").key_by(lambda n: n % 3).sum().set_max_parallelism(6).print()
    assert columns(env) == [
        ["Source: numbers", "(source-numbers-1)", "0", "0", "2", "-", "Source Task 0, Source Task 1", "-"],
        ["  Map", "same", "0", "", "", "", "", "HASH -> 1"],
        ["Reduce", "(reduce-3)", "1", "1", "2", "6", "Task 1.0, Task 1.1", "-"],
        ["  Sink: Print to Std. Out", "(sink-print-to-std-out-4)", "1", "", "", "", "", "-"],
    ]


def test_source_tasks_are_counted_over_all_sources_and_many_subtasks_are_shown_by_their_ends() -> None:
    env = new_environment()
    env.from_collection([1]).union(env.from_collection([2])).map(lambda n: n)
    assert [cells[6] for cells in columns(env)] == ["Source Task 0", "Source Task 1", "Task 2.0"]
    env = new_environment(parallelism=10)
    env.from_collection([1]).map(lambda n: n)
    assert columns(env)[1][6] == "Task 1.0, Task 1.1, ..., Task 1.9"


def test_side_outputs_are_shown_with_their_tags() -> None:
    env = new_environment(parallelism=2)
    env.from_collection([1]).process(Pass()).get_side_output(OutputTag("late")).set_parallelism(1)
    assert columns(env)[1][7] == "REBALANCE -> 2 [late]"
