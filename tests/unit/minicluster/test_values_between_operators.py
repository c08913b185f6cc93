"""What passes between chained operators as it is, and what is refused where it leaves them: None and values of other
types than the declared one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.common.types import Row
from flinkish.datastream import DataStream, OnError, OutputTag
from flinkish.errors import FlinkishError, TypeMismatchError
from flinkish.testing import TestingSink

from .programs import bounded, environment, job_of, list_source, run

ROW = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])


def outcome(build: Callable[[DataStream], DataStream], *values: Any, chaining: bool = True) -> list[Any]:
    """What a program with one subtask makes of the values; they come in two epochs."""
    env, sink = environment(1), TestingSink()
    build(env.add_source(list_source(list(values)))).sink_to(sink)
    run(job_of(env, chaining), per_epoch=2)
    return sink.values


def none_of_odd(value: int) -> Any:
    return None if value % 2 else value


def is_there(value: Any) -> bool:
    return value is not None


@pytest.mark.parametrize("declared", [None, Types.INT(), Types.STRING(), Types.LIST(Types.INT())], ids=str)
def test_a_map_may_return_none_for_a_filter_to_drop(declared: TypeInformation | None) -> None:
    texts = declared == Types.STRING()
    lists = isinstance(declared, type(Types.LIST(Types.INT())))
    made: Callable[[int], Any] = str if texts else (lambda n: [n]) if lists else int

    def build(numbers: DataStream) -> DataStream:
        return numbers.map(lambda n: None if n % 2 else made(n), declared).filter(is_there)

    assert outcome(build, 1, 2, 3, 4) == [made(2), made(4)]


def test_none_of_a_map_without_a_type_travels_to_other_tasks_and_sinks() -> None:
    assert outcome(lambda ds: ds.map(none_of_odd).rebalance().map(lambda n: (n,)), 1, 2) == [(None,), (2,)]
    assert outcome(lambda ds: ds.map(none_of_odd), 1, 2) == [None, 2]


def test_a_map_may_serve_as_a_sink() -> None:
    env, seen = environment(1), list[int]()
    env.add_source(list_source([1, 2, 3])).map(lambda n: seen.append(n), Types.STRING())
    run(job_of(env, share_functions=True))
    assert seen == [1, 2, 3]


LEAVES = {
    "to a sink": lambda ds: ds,
    "to another subtask": lambda ds: ds.rebalance().map(str),
    "by its key": lambda ds: ds.key_by(lambda n: 0).map(str),
    "behind a filter": lambda ds: ds.filter(lambda n: True).rebalance().map(str),
    "behind a filter to a sink": lambda ds: ds.filter(lambda n: True),
    "behind filters": lambda ds: ds.filter(lambda n: True).name("second").filter(lambda n: True),
    "behind watermarks": lambda ds: ds.assign_timestamps_and_watermarks(bounded().with_timestamp_assigner(Zero())),
    "to columns": lambda ds: ds.map_batches(lambda batch: batch, Types.ROW_NAMED(["value"], [Types.INT()])),
}


class Zero:
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return 0


@pytest.mark.parametrize("wrong", [None, 1.5, "text"], ids=str)
@pytest.mark.parametrize("leave", LEAVES.values(), ids=LEAVES)
def test_what_does_not_fit_is_refused_where_it_leaves(leave: Callable[[DataStream], DataStream], wrong: Any) -> None:
    def build(numbers: DataStream) -> DataStream:
        return leave(numbers.map(lambda n: wrong if n == 3 else n, Types.INT()).name("parse"))

    said = r"(?s)does not fit the declared type Integer.*'parse'"
    with pytest.raises(FlinkishError, match=said) as caught:
        outcome(build, 1, 2, 3, 4)
    if wrong is None:
        assert "filter" in str(caught.value)


def test_print_shows_rows_whatever_their_fields_are(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(record: Any, declared: TypeInformation) -> str:
        env = environment(1)
        env.add_source(list_source([1])).map(lambda n: record, declared).print()
        run(job_of(env))
        return capsys.readouterr().out

    assert printed(Row("a", 1.5), ROW) == "+I[a,1.5]\n"
    with pytest.raises(FlinkishError, match="the record None is of type NoneType .*print"):
        printed(None, ROW)
    with pytest.raises(FlinkishError, match="does not fit the declared type Integer"):
        printed(1.5, Types.INT())


def test_an_operator_in_a_task_of_its_own_gets_only_what_fits() -> None:
    with pytest.raises(FlinkishError, match="does not fit the declared type Integer"):
        outcome(lambda ds: ds.map(none_of_odd, Types.INT()).filter(is_there), 1, 2, chaining=False)


def test_values_pass_between_chained_operators_as_they_are_and_those_that_fit_are_converted() -> None:
    odd = {1: "a text", 2: 1.5, 3: (1, 2, 3), 4: Row(1), 5: 2**32 + 7, 6: {"a": [1]}}
    assert outcome(lambda ds: ds.map(odd.get, Types.INT()).map(lambda v: v), *odd) == [
        "a text",
        1.5,
        (1, 2, 3),
        Row(1),
        7,
        {"a": [1]},
    ]


def test_rows_that_fit_are_converted_beside_those_that_do_not() -> None:
    odd = {1: ("a", 1), 2: ("b", "no number"), 3: None}
    results = outcome(lambda ds: ds.map(odd.get, ROW).map(lambda v: v.name if isinstance(v, Row) else v), *odd)
    assert results == ["a", ("b", "no number"), None]


def test_what_a_function_changes_later_is_not_seen_in_what_it_has_given_before() -> None:
    kept: list[int] = []

    def remember(n: int) -> Any:
        kept.append(n)
        return kept

    assert outcome(lambda ds: ds.map(remember, Types.STRING()).map(lambda v: v), 1, 2) == [[1], [1, 2]]


def test_one_consumer_behind_a_shuffle_is_enough_to_refuse() -> None:
    env, sink = environment(1), TestingSink()
    parsed = env.add_source(list_source([1, 2])).map(none_of_odd, Types.INT())
    parsed.filter(is_there).sink_to(sink)
    parsed.rebalance().map(str).sink_to(TestingSink())
    with pytest.raises(FlinkishError, match="does not fit the declared type Integer"):
        run(job_of(env))


def test_a_side_output_beside_chained_consumers_takes_nothing_from_them() -> None:
    tag, sink, odd = OutputTag("odd", Types.INT()), TestingSink(), TestingSink()
    env = environment(1)
    parsed = env.add_source(list_source([1, 2, 3])).map(lambda n: (tag, n) if n == 1 else none_of_odd(n), Types.INT())
    parsed.filter(is_there).sink_to(sink)
    parsed.get_side_output(tag).sink_to(odd)
    run(job_of(env))
    assert (sink.values, odd.values) == ([2], [1])


def test_an_operator_with_on_error_checks_its_own_results() -> None:
    env, dead, sink, letters = environment(1), OutputTag("dead"), TestingSink(), TestingSink()
    parsed = env.add_source(list_source([1, 2])).map(none_of_odd, Types.INT()).on_error(OnError.dead_letter(dead))
    parsed.filter(is_there).sink_to(sink)
    parsed.get_side_output(dead).sink_to(letters)
    run(job_of(env))
    assert sink.values == [2]
    assert [(letter.record, letter.error_type) for letter in letters.values] == [(1, TypeMismatchError.__name__)]
