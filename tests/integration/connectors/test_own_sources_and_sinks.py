"""On Spark: sources and sinks of one's own, sources one after the other, and sources that are aligned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common import Duration, Types
from flinkish.datastream.connectors.datagen import DataGeneratorSource
from flinkish.datastream.connectors.file_system import FileSource
from flinkish.datastream.connectors.hybrid_source import HybridSource
from tests.integration.engine.collecting import by_field, collecting, environment
from tests.support.documented import documented
from tests.support.http_orders import order_server


class FailsOnce:
    """Raises at the orders of these ids, once each."""

    def __init__(self, folder: Path, ids: list[int]) -> None:
        self._folder = str(folder)
        self._ids = ids

    def __call__(self, order: Any) -> Any:
        mark = Path(self._folder) / f"failed-{order.id}"
        if order.id in self._ids and not mark.exists():
            mark.touch()
            raise RuntimeError("a bad day")
        return order


@pytest.mark.slow
def test_the_documented_api_and_sink_work_exactly_once_over_failures_and_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    orders = documented("documented_orders_api", 2, tmp_path, monkeypatch).Orders
    files = documented("documented_json_sink", 3, tmp_path, monkeypatch).JsonFiles
    with order_server(60) as server:

        def run() -> list[dict[str, Any]]:
            """All that is there now, in a driver that goes on in the job directory."""
            env = environment(
                tmp_path / "job",
                execution__trigger="available-now",
                restart_strategy__type="fixed-delay",
                restart_strategy__fixed_delay__attempts="5",
                restart_strategy__fixed_delay__delay="1 ms",
                flinkish__epoch__max_records_per_source="25",
            )
            for module in ("documented_orders_api", "documented_json_sink"):
                env.add_python_file(str(tmp_path / f"{module}.py"))
            stream = env.add_source(orders(server.url), "orders").uid("orders")
            stream.map(FailsOnce(tmp_path, [7, 41, 70]), orders.produced_type).sink_to(files(str(out))).uid("files")
            env.execute("orders")
            return [order for file in out.glob("*.json") for order in json.loads(file.read_text())]

        assert sorted(order["id"] for order in run()) == list(range(1, 61))
        server.count = 85
        found = sorted(run(), key=lambda order: int(order["id"]))
        assert [order["id"] for order in found] == list(range(1, 86))
        assert [order["amount"] for order in found] == [server.amounts[number][0] for number in range(1, 86)]
        assert len(list(tmp_path.glob("failed-*"))) == 3


@pytest.mark.slow
def test_files_and_then_generated_records_are_one_stream(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in "ab":
        (tmp_path / "in" / name).write_text("".join(f"{name}{n}\n" for n in range(5)))
    first = FileSource.text(str(tmp_path / "in"))
    then = DataGeneratorSource(lambda n: f"c{n}", 7, Types.STRING(), splits=3)
    with collecting() as collected:
        env = environment(tmp_path / "job", flinkish__epoch__max_records_per_source="4")
        env.add_source(HybridSource.builder(first).add_source(then).build()).sink_to(collected.sink())
        env.execute("hybrid")
        rows = collected.rows["out"]
    assert sorted(rows[:10]) == [f"{name}{n}" for name in "ab" for n in range(5)]
    assert sorted(rows[10:]) == [f"c{n}" for n in range(7)]


@pytest.mark.slow
def test_sources_of_one_group_are_held_back_by_what_spark_s_log_says(spark: SparkSession, tmp_path: Path) -> None:
    kind = Types.TUPLE([Types.STRING(), Types.LONG()])
    slow = DataGeneratorSource(lambda n: ("slow", n * 10), 120, kind, splits=2)
    fast = DataGeneratorSource(lambda n: ("fast", n * 100), 60, kind)
    strategy = by_field(1).with_watermark_alignment("group", Duration.of_millis(200))
    with collecting() as collected:
        env = environment(tmp_path / "job", flinkish__source__batch_size="10")
        one = env.from_source(slow, strategy, "slow").uid("slow")
        one.union(env.from_source(fast, strategy, "fast").uid("fast")).sink_to(collected.sink())
        env.execute("aligned")
        rows = collected.rows["out"]
    assert sorted(rows) == sorted([("slow", n * 10) for n in range(120)] + [("fast", n * 100) for n in range(60)])
    (log,) = (path for path in tmp_path.rglob("offsets") if (path / "0").exists())
    logged = sorted((path for path in log.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))
    offsets = [json.loads(path.read_text().splitlines()[2]) for path in logged]
    held = 0
    for offset in offsets:
        streams = [
            (-1 if entry[0] is None else entry[0], entry[1])
            for source in offset["watermarks"].values()
            for entry in source.values()
        ]
        lowest = min((watermark_ms for watermark_ms, _ in streams), default=0)
        assert all(watermark_ms <= lowest + 200 for watermark_ms, records in streams if records)
        held += sum(not records for _, records in streams)
    assert len(offsets) > 5 and held
