"""What it costs that what a function emits is what the next one gets: processor time a record of whole programs, in one
process and without Spark, of this checkout and of another one in turns.

``python -m benchmarks.hand_over [--against DIRECTORY] [--records 20000] [--repeats 9] [--only NAME ...]`` prints
microseconds a record (the least of the repeats) for each program and, with ``--against``, those of the other checkout
and the ratio. Buffers between tasks are pickled, as on Spark; what Spark itself costs is not in it, so a ratio on Spark
is nearer to 1.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from flinkish.common import Configuration, Row, Types, WatermarkStrategy
from flinkish.connectors.generated import CollectionSource
from flinkish.datastream import KeyedProcessFunction, MapFunction, StreamExecutionEnvironment
from flinkish.datastream.state import ValueStateDescriptor
from flinkish.testing import TestingSink

KEYS = 500
#: runs in each process, of which the first ones warm it up
RUNS = 4
PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
FIELDS = Types.ROW_NAMED(
    ["user", "page", "at", "amount", "count"],
    [Types.STRING(), Types.STRING(), Types.LONG(), Types.DOUBLE(), Types.INT()],
)


class Records(CollectionSource):
    """The values of a collection, which is read once only, so that they need not be copied when they are read."""

    def values(self, split: int, start: int, stop: int) -> list[Any]:
        """The values themselves."""
        return self._values[start:stop]


class CountedMap(MapFunction):
    """A map function whose code does not show that it keeps nothing, since it counts its calls."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self._calls = 0

    def map(self, value: Any) -> Any:
        """The result of the function."""
        self._calls += 1
        return self._function(value)


class Latest(KeyedProcessFunction):
    """Keeps what ``change`` makes of the state and the record, and emits what ``emit`` makes of it."""

    def __init__(self, change: Callable[[Any, Any], Any], emit: Callable[[Any, Any], Any]) -> None:
        self._change = change
        self._emit = emit

    def open(self, runtime_context: Any) -> None:
        """Get the state."""
        self._state = runtime_context.get_state(ValueStateDescriptor("latest", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        """Update the state, and emit."""
        state = self._change(self._state.value(), value)
        self._state.update(state)
        yield self._emit(state, value)


def _pairs(n: int) -> list[Any]:
    return [(f"user{i * 7919 % KEYS}", i) for i in range(n)]


def _rows(n: int) -> list[Any]:
    return [Row(f"user{i * 7919 % KEYS}", f"page{i % 10}", i, i / 7, 1) for i in range(n)]


def _texts(n: int) -> list[Any]:
    return [json.dumps({"user": f"user{i * 7919 % KEYS}", "page": f"page{i % 10}", "at": i, "n": 1}) for i in range(n)]


def _nested(n: int) -> list[Any]:
    return [
        json.dumps({"user": f"user{i * 7919 % KEYS}", "tags": ["a", "b"], "at": {"day": i, "h": [i]}, "n": 1})
        for i in range(n)
    ]


def _marked(record: Any) -> Any:
    record["seen"] = True
    return record


def _next_pair(record: Any) -> Any:
    return record[0], record[1] + 1


def _records(env: Any, values: list[Any], declared: Any = None) -> Any:
    return env.from_source(Records(values, declared), WatermarkStrategy.no_watermarks(), "records")


def _counting(env: Any, values: list[Any], counted: bool, declared: bool) -> Any:
    pairs = _records(env, values, PAIR if declared else None)
    mapped = pairs.map(CountedMap(_next_pair) if counted else _next_pair, PAIR if declared else None)
    return mapped.key_by(lambda r: r[0]).sum(1)


def _reducing(env: Any, values: list[Any]) -> Any:
    mapped = _records(env, values).map(_next_pair)
    return mapped.key_by(lambda r: r[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))


def _with_state(stream: Any, key: Any) -> Any:
    return stream.key_by(lambda r: r[key]).process(
        Latest(lambda state, r: (state or 0) + 1, lambda state, r: (r[key], state))
    )


def _of_rows(env: Any, values: list[Any], declared: bool) -> Any:
    def with_one_more(row: Any) -> Any:
        return Row(row[0], row[1], row[2], row[3], row[4] + 1)

    rows = _records(env, values, FIELDS if declared else None)
    return _with_state(rows.map(with_one_more, FIELDS if declared else None), 0)


def _of_texts(env: Any, values: list[Any], counted: bool) -> Any:
    parsed = _records(env, values).map(CountedMap(json.loads) if counted else json.loads)
    return _with_state(parsed.map(CountedMap(_marked) if counted else _marked), "user")


#: name -> (records, program)
PROGRAMS: dict[str, tuple[Callable[[int], list[Any]], Callable[[Any, list[Any]], Any]]] = {
    "tuples, map, sum": (_pairs, lambda env, v: _counting(env, v, False, False)),
    "tuples, map, reduce": (_pairs, _reducing),
    "tuples, counting map, sum": (_pairs, lambda env, v: _counting(env, v, True, False)),
    "declared tuples, map, sum": (_pairs, lambda env, v: _counting(env, v, False, True)),
    "declared tuples, counting map, sum": (_pairs, lambda env, v: _counting(env, v, True, True)),
    "tuples, state": (_pairs, lambda env, v: _with_state(_records(env, v), 0)),
    "declared Rows, map, state": (_rows, lambda env, v: _of_rows(env, v, True)),
    "Rows, map, state": (_rows, lambda env, v: _of_rows(env, v, False)),
    "JSON, map in place, state": (_texts, lambda env, v: _of_texts(env, v, False)),
    "nested JSON, map in place, state": (_nested, lambda env, v: _of_texts(env, v, False)),
    "nested JSON, counting maps, state": (_nested, lambda env, v: _of_texts(env, v, True)),
}


def measure(name: str, records: int) -> float:
    """Microseconds of processor time a record of the fastest of some runs of a program."""
    make, program = PROGRAMS[name]
    configuration = Configuration()
    configuration.set_string("execution.target", "minicluster")
    used: list[float] = []
    for _ in range(RUNS):
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        program(env, make(records)).sink_to(TestingSink()).uid("out")
        gc.collect()
        begin = time.process_time()
        env.execute(name)
        used.append(time.process_time() - begin)
    return min(used) / records * 1e6


def measure_elsewhere(directory: str, name: str, records: int) -> float:
    """`measure` with the flinkish of another checkout."""
    return float(printed_elsewhere(directory, "hand_over", f"measure({name!r}, {records})"))


def printed_elsewhere(directory: str, module: str, expression: str) -> str:
    """The value of an expression in one of these modules, in a process of its own with the flinkish of another
    checkout: the last line that it prints."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = os.pathsep.join((os.path.abspath(directory), here))
    # this checkout's benchmarks are used for both
    own = os.path.join(here, "benchmarks")
    code = (
        f"import benchmarks; benchmarks.__path__.insert(0, {own!r}); from benchmarks.{module} import *; import json; "
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{code}print({expression})"],
        env={**os.environ, "PYTHONPATH": paths},
        cwd=directory,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.splitlines()[-1]


def main() -> None:
    """Measure, and print a line per program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", metavar="DIRECTORY", help="another checkout, measured in turns with this one")
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only", nargs="+", choices=list(PROGRAMS), metavar="NAME", default=list(PROGRAMS))
    options = parser.parse_args()
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name in options.only:
        mine, theirs = [], []
        for _ in range(options.repeats):
            mine.append(measure_elsewhere(here, name, options.records))
            if options.against:
                theirs.append(measure_elsewhere(options.against, name, options.records))
        line = f"{name:36} {min(mine):6.2f}"
        if theirs:
            line += f" {min(theirs):6.2f} {min(mine) / min(theirs):6.2f}x"
        print(line, flush=True)


if __name__ == "__main__":
    main()
