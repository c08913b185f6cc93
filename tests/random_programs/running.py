"""Runs a program with flinkish and with the model, and compares what the sinks get."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import flinkish.datastream as datastream
from flinkish.common import Configuration, Row, Time, Types, WatermarkStrategy
from flinkish.datastream import StreamExecutionEnvironment, functions, state, window
from flinkish.testing import End, Pause, ProgramTestHarness, StreamRecord, TestingSink, TestingSource, Watermark
from tests.random_programs import model
from tests.random_programs.kinds import Order
from tests.random_programs.records import CLASSES

Results = dict[str, list[Any]]

#: processing time of the first epoch, and from one epoch to the next, in ms
START_MS, EPOCH_MS = 1_000_000, 1_000

_SINK = re.compile(r'sink\("(\w+)", \w+\)  # order: (\w+), key: (.+)')


def time_of_epoch(number: int) -> int:
    return START_MS + EPOCH_MS * number


def expected(source: str) -> Results:
    """What the model says that each sink gets."""
    return model.results_of(source, time_of_epoch)


def names() -> dict[str, Any]:
    """The names that a program finds, when flinkish runs it."""
    found: dict[str, Any] = {"__name__": "__main__", **CLASSES}
    for module in (functions, state, window, datastream):
        found.update({name: getattr(module, name) for name in module.__all__})
    found.update(At=lambda time_ms, value: StreamRecord(value, time_ms), Mark=Watermark, Pause=Pause)
    return {**found, "Row": Row, "Time": Time, "Types": Types}


def build(source: str, env: StreamExecutionEnvironment, sink: Callable[[str], Any], pauses: bool = True) -> None:
    """Build a program in an environment. ``sink``: the sink of a name. ``pauses``: whether there may be more than one
    epoch."""
    found = re.search(r"# parallelism: (\d+)", source)
    env.set_parallelism(int(found[1]) if found else 1)
    namespace = names()
    exec(compile(source, "<program>", "exec"), namespace)

    def add_source(name: str, elements: list[Any], declared: Any) -> Any:
        kept = [element for element in elements if pauses or not isinstance(element, Pause)]
        read = TestingSource(*kept, End(), type_info=declared)
        return env.from_source(read, WatermarkStrategy.no_watermarks(), name)

    namespace["build"](add_source, lambda name, stream: stream.sink_to(sink(name)).name(f"sink {name}"))


def in_minicluster(source: str) -> Results:
    """What each sink gets from flinkish in this process."""
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    sinks: dict[str, TestingSink] = {}
    build(source, env, lambda name: sinks.setdefault(name, TestingSink()))
    with ProgramTestHarness(env) as harness:
        while not harness.finished:
            harness.set_processing_time(time_of_epoch(harness.next_epoch))
            harness.run_epoch()
    return {name: sink.values for name, sink in sinks.items()}


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
