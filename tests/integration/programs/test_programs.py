"""Programs as people write them for PyFlink print the same in the minicluster, on Spark and in PyFlink.

Each module beside this one is such a program. It uses nothing but names of PyFlink, in the style of the programs that
one finds in public: only its imports say ``flinkish``. What it prints is what PyFlink 1.20 prints where that could be
tried (`database` needs a JDBC driver and the two Kafka programs a broker there).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.testing import ProgramTestHarness
from tests.support.documented import Program
from tests.support.kafka_broker import KafkaBroker

FOLDER = Path(__file__).parent
MINICLUSTER = {"execution.target": "minicluster"}
ON_SPARK = {"flinkish.progress": "never", "flinkish.history.enabled": "false"}

#: What each program prints; the lines are compared without their order, which PyFlink does not promise.
PRINTED = {
    "broadcast_rules": ["a: 5 > 4", "a: 1 is fine", "a: 9 > 4", "b: 7 > 6", "b: 2 is fine"],
    "collected": ["55", "Row(name='ANN', age=4)", "Row(name='BOB', age=5)", "['a', 'b']"],
    "connected_streams": [
        "1: book paid by cash",
        "2: no payment for pen",
        "3: cup paid by card",
        "4: no order for card",
        "number 1",
        "number 2",
        "text x",
    ],
    "count_windows": ["(hi,4)", "(hello,6)", "(hello,12)", "1+2+3", "4+5+6"],
    "database": ["1 PEN 1.25", "2 BOOK 20.0"],
    "files": ["(a,1)", "(b,3)", "(c,1)"],
    "fraud_detection": [
        "alert for 1: 510.0",
        "alert for 3: 800.0",
        "1 is quiet at 90000",
        "2 is quiet at 140000",
        "3 is quiet at 152000",
    ],
    "hot_items": ["up to 5: a=2 b=1", "up to 10: a=2 b=1", "up to 15: b=2 a=1", "up to 20: b=2 a=1"],
    "json_rows": [
        '+I[1,{"name": "Flink", "tel": 124, "addr": {"country": "Germany", "city": "Berlin"}}]',
        '+I[2,{"name": "hello", "tel": 136, "addr": {"country": "China", "city": "Shanghai"}}]',
        '+I[3,{"name": "world", "tel": 125, "addr": {"country": "USA", "city": "NewYork"}}]',
        "(False, 0.25, 'Berlin')",
        "(True, 0.5, 'Shanghai')",
        "(True, 0.75, 'NewYork')",
        "+I[1000000000000,True,10000000000.0,['x']]",
        "+I[1000000000000,False,20000000000.0,['x', 'y']]",
        "+I[1000000000000,True,30000000000.0,['x', 'y']]",
    ],
    "kinds_of_state": [
        "s1 None [3] {3: 1} 3 3.0",
        "s1 3 [9, 3] {3: 1, 9: 1} 9 6.0",
        "s2 None [5] {5: 1} 5 5.0",
        "s1 9 [9, 4, 3] {3: 1, 4: 1, 9: 1} 9 5.333333333333333",
        "s1 4 [9, 9, 4] {3: 1, 4: 1, 9: 2} 9 6.25",
        "('s1', 6)",
        "('s1', 6)",
    ],
    "metrics": ["5 is the lookup number 1", "7 is the lookup number 2"],
    "minima": [
        "('min', 'a', 3, 'x')",
        "('min', 'a', 1, 'x')",
        "('min', 'b', 5, 'z')",
        "('min', 'a', 1, 'x')",
        "('min', 'a', 1, 'x')",
        *["('max_by', 'a', 3, 'x')"] * 4,
        "('max_by', 'b', 5, 'z')",
        "('min_by', 'a', 3, 'x')",
        *["('min_by', 'a', 1, 'y')"] * 3,
        "('min_by', 'b', 5, 'z')",
        "('sum', 'a', 3, 'x')",
        "('sum', 'a', 4, 'x')",
        "('sum', 'b', 5, 'z')",
        "('sum', 'a', 6, 'x')",
        "('sum', 'a', 7, 'x')",
    ],
    "none_is_filtered": ["ann: 3.00", "ann: 7.50"],
    "older_names": ["a=1", "b=2", "a=4"],
    "partitions": [
        "1 in task 1",
        "2 in task 0",
        "3 in task 1",
        "10 in task 0",
        "20 in task 0",
        "400 in task 0",
        "(0, 432)",
        "(1, 432)",
        "(2, 432)",
        "(3, 432)",
    ],
    "running_count": ["(hello,1)", "(flink,1)", "(hello,2)", "(spark,1)", "(hello,3)"],
    "sensor_windows": [
        "(s1,1547718060000,1547718120000,35.5)",
        "(s6,1547718060000,1547718120000,15.25)",
        "(s1,1547718120000,1547718180000,36.5)",
        "(s1,1547718180000,1547718240000,30.0)",
    ],
    "session_windows": ["(hi,1,14,6)", "(hi,15,20,1)", "(dynamic,1,30,7)"],
    "side_outputs": ["(s1,35.5)", "(s3,20.0)", "s1 is hot: 35.5", "1 fields: s2", "3 fields: s1,1.0,x"],
    "word_count": [
        *["(to,3)", "(the,2)", "(be,,1)", "(or,1)", "(not,1)", "(be,--that,1)", "(is,1)", "(question:--,1)"],
        *["(whether,1)", "('tis,1)", "(nobler,1)", "(in,1)", "(mind,1)", "(suffer,1)"],
    ],
}
KAFKA = {
    "kafka_json": [
        (b'{"user":"ann"}', b'{"user":"ann","total":3.0}'),
        (b'{"user":"ann"}', b'{"user":"ann","total":83.5}'),
    ],
    "kafka_older": [
        (None, b"ann ordered for 3"),
        (None, b"bob ordered for 7"),
        (None, b"ann ordered for 80.5"),
    ],
}
ORDERS = [
    b'{"user": "ann", "price": 3, "paid": true}',
    b"no json",
    b'{"user": "bob", "price": 7, "paid": false}',
    b'{"user": "ann", "price": 80.5, "paid": true}',
]


def program(name: str) -> Program:
    return Program(f"{name}.py", (FOLDER / f"{name}.py").read_text(), None)


def test_each_program_has_its_output_here() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {"__init__", "test_programs", *PRINTED, *KAFKA}


@pytest.mark.parametrize("name", PRINTED)
def test_a_program_prints_in_the_minicluster_what_it_prints_in_pyflink(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _prints(name, MINICLUSTER, tmp_path, monkeypatch, capfd)


#: What these do on Spark, other programs here and the tests of the engine do there: only the slow tests run them there.
SLOW_ON_SPARK = {
    *("count_windows", "fraud_detection", "hot_items", "json_rows", "minima", "none_is_filtered", "older_names"),
    *("running_count", "sensor_windows", "side_outputs", "word_count"),
}


#: What these do on Spark, tests of the engine do there, and the minicluster prints here.
NIGHTLY_ON_SPARK = {
    *("broadcast_rules", "connected_streams", "database", "kinds_of_state", "metrics", "partitions", "session_windows")
}


def on_spark() -> list[Any]:
    """The programs, with who runs them on Spark."""
    marks = dict.fromkeys(SLOW_ON_SPARK, pytest.mark.slow)
    marks |= dict.fromkeys(NIGHTLY_ON_SPARK, pytest.mark.nightly)
    return [pytest.param(name, marks=marks.get(name, ())) for name in PRINTED]


@pytest.mark.parametrize("name", on_spark())
def test_a_program_prints_on_spark_what_it_prints_in_pyflink(
    name: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _prints(name, ON_SPARK, tmp_path, monkeypatch, capfd)


def _prints(
    name: str,
    settings: dict[str, str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("FLINKISH_SETTINGS", json.dumps(settings))
    capfd.readouterr()
    program(name).run()
    assert sorted(capfd.readouterr().out.splitlines()) == sorted(PRINTED[name])


@pytest.mark.parametrize(
    "name",
    [pytest.param("kafka_json", marks=pytest.mark.nightly), pytest.param("kafka_older", marks=pytest.mark.slow)],
)
def test_a_program_of_kafka_writes_the_same_in_the_minicluster_and_on_spark(
    name: str, spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # the older consumer has no end of its own: it is run up to the end of what is there
    monkeypatch.setenv("FLINKISH_SETTINGS", json.dumps({**ON_SPARK, "execution.trigger": "available-now"}))
    kafka.create_topic(f"{name}-in")
    kafka.produce(f"{name}-in", ORDERS)
    for out, run in ((f"{name}-minicluster", _run_until_nothing_is_read), (f"{name}-spark", Program.run)):
        kafka.create_topic(out)
        run(program(name), kafka.bootstrap_servers, f"{name}-in", out)
        assert [(record.key, record.value) for record in kafka.consume(out)] == KAFKA[name]


def _run_until_nothing_is_read(program: Program, *arguments: str) -> None:
    with ProgramTestHarness(lambda: program.run(*arguments)) as harness:
        harness.run()
