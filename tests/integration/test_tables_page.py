"""docs/tables.md is true: its programs run, and write what the page says. They run in the minicluster, which the
configuration of the process names; Kafka is a real broker."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import pytest

from tests.support.documented import DOCS, Block, Program, blocks
from tests.support.kafka_broker import KafkaBroker

PROGRAMS = [block for block in blocks(DOCS / "tables.md") if block.mark == "tried"]
KAFKA, WINDOWS, PANDAS, MIXED, SET = PROGRAMS


@pytest.fixture(autouse=True)
def _minicluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"{Path(os.environ['FLINKISH_CONF']).read_text()}\nexecution.target: minicluster\n")
    monkeypatch.setenv("FLINKISH_CONF", str(settings))
    monkeypatch.chdir(tmp_path)


def run(block: Block, **replaced: str) -> None:
    text = block.text
    for old, new in replaced.items():
        text = text.replace({"broker": "localhost:9092", "topic": "'topic' = 'orders'"}[old], new)
    Program("program.py", text, None).run()


def rows_of(database: str, query: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(database) as connection:
        return connection.execute(query).fetchall()


def test_orders_from_kafka_are_counted_and_summed_in_a_database(kafka: KafkaBroker) -> None:
    orders = [("ann", "2.50", 2), ("bob", "1.00", 1), ("ann", "0.10", 0), ("ann", "4.00", 1)]
    messages = [
        json.dumps({"id": number, "customer": customer, "price": price, "quantity": quantity, "other": [1]})
        for number, (customer, price, quantity) in enumerate(orders)
    ]
    kafka.create_topic("orders-of-tables")  # other tests of the broker have a topic "orders"
    kafka.produce("orders-of-tables", [message.encode() for message in messages])
    with sqlite3.connect("shop.db") as connection:
        connection.execute("CREATE TABLE revenue (customer TEXT PRIMARY KEY, orders INTEGER, total NUMERIC)")
    run(KAFKA, broker=kafka.bootstrap_servers, topic="'topic' = 'orders-of-tables'")
    assert rows_of("shop.db", "SELECT customer, orders, CAST(total AS REAL) FROM revenue ORDER BY 1") == [
        ("ann", 2, 9.0),
        ("bob", 1, 1.0),
    ]


def test_clicks_are_counted_by_minute(capsys: pytest.CaptureFixture[str]) -> None:
    run(WINDOWS)
    found = sorted(line.replace(" ", "") for line in capsys.readouterr().out.splitlines() if "| +I |" in line)
    assert [line.split("|")[3:5] for line in found] == [["ann", "1"], ["bob", "1"], ["ann", "2"], ["bob", "1"]]


def test_a_pandas_function_computes_columns(capsys: pytest.CaptureFixture[str]) -> None:
    run(PANDAS)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert sorted(line[1:] for line in lines if line[-1:] in (["30.0"], ["10.0"])) == [
        ["cellar", "10.0"],
        ["kitchen", "30.0"],
    ]


def test_a_stream_becomes_a_table_and_its_changes_a_stream(capsys: pytest.CaptureFixture[str]) -> None:
    run(MIXED)
    # with several subtasks each line begins with the number of its subtask
    assert sorted(line.rpartition("> ")[2] for line in capsys.readouterr().out.splitlines() if "INSERT" in line) == [
        "INSERT be 2",
        "INSERT not 1",
        "INSERT or 1",
        "INSERT to 2",
    ]


def test_a_statement_set_reads_its_source_once() -> None:
    import pyarrow.parquet as parquet

    with sqlite3.connect("sums.db") as connection:
        connection.execute("CREATE TABLE sums (odd BOOLEAN PRIMARY KEY, total INTEGER)")
    run(SET)
    assert sorted(parquet.read_table("even").column("n").to_pylist()) == list(range(2, 1001, 2))
    assert rows_of("sums.db", "SELECT odd, total FROM sums ORDER BY 1") == [(0, 250_500), (1, 250_000)]
