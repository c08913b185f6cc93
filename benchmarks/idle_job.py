"""The cost of an unbounded job while no data arrives: milliseconds of CPU per second, of the driver (its Java process
and its own), of the process that plans epochs, and of the workers.

    python -m benchmarks.idle_job [--seconds N] [--sources directory kafka] [--connect]

A source is polled several times per second. A job whose operators need no calls without data has no epochs during
that time. With ``--connect`` the driver is a client of Spark Connect, and its requests to the server are counted. Only
Linux (through /proc).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import contract
from flinkish.common import Configuration, WatermarkStrategy
from flinkish.common.serialization import SimpleStringSchema
from flinkish.common.time import Duration
from flinkish.connectors.file_system.enumerator import StreamFormat
from flinkish.connectors.file_system.source import FileSource
from flinkish.core.source import Source

SOURCES = ("directory", "kafka")
TOPIC = "idle"
SETTLE_S = 8.0


def main() -> None:
    """Run a job for each source, and print one line for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle_job", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--sources", nargs="*", default=list(SOURCES), choices=SOURCES)
    parser.add_argument("--connect", action="store_true")
    options = parser.parse_args()
    from benchmarks.pipelines.dict_sink import DictSink
    from benchmarks.spark_settings import session
    from flinkish.datastream import StreamExecutionEnvironment

    for name in options.sources:
        known = set(contract.process_tree(os.getpid()))
        with _source(name) as source:
            # the broker is not part of the job
            others = set(contract.process_tree(os.getpid())) - known
            if options.connect:
                _connect()
            else:
                session("flinkish-idle")
            configuration = Configuration()
            configuration.set_string("flinkish.job.dir", tempfile.mkdtemp(prefix="flinkish-idle-"))
            configuration.set_string("execution.checkpointing.interval", "0")
            env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
            texts = env.from_source(source, WatermarkStrategy.no_watermarks(), name)
            pairs = texts.map(lambda text: (text, 1)).key_by(lambda pair: pair[0])
            pairs.reduce(lambda left, right: (left[0], left[1] + right[1])).sink_to(DictSink())
            client = env.execute_async(f"idle {name}")
            while not client.get_job_execution_result().done() and "last_epoch" not in client.describe().metrics:
                time.sleep(0.1)
            time.sleep(SETTLE_S)
            requests = _requests()
            before, begin = _cpu_s(others), time.perf_counter()
            time.sleep(options.seconds)
            after, seconds = _cpu_s(others), time.perf_counter() - begin
            asked = len(requests) / seconds
            client.cancel().result()
            client.get_job_execution_result().result()
            spent = {kind: 1000 * (after[kind] - before.get(kind, 0.0)) / seconds for kind in sorted(after)}
            told = ", ".join(f"{kind} {ms:.0f}" for kind, ms in spent.items())
            shown = f", {asked:.2f} requests to the server per second" if options.connect else ""
            print(f"{name}: {sum(spent.values()):.0f} ms of CPU per second ({told}){shown}", flush=True)


def _connect() -> None:
    """A session of Spark Connect, whose server is a child of this process."""
    from pyspark.sql import SparkSession

    from tests.support.spark_session import session_settings

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.remote("local[2]")
    for key, value in session_settings(Path(tempfile.mkdtemp(prefix="flinkish-idle-spark-"))).items():
        builder = builder.config(key, value)
    builder.getOrCreate()


def _requests() -> list[str]:
    """The names of the requests that gRPC sends from now on; it grows while they are sent."""
    found: list[str] = []
    try:
        from grpc import _channel
    except ImportError:
        return found

    def counted(kind: type) -> None:
        call = kind.__call__

        def counting(self: Any, *arguments: Any, **named: Any) -> Any:
            found.append(str(self._method))
            return call(self, *arguments, **named)

        kind.__call__ = counting

    for name in ("_UnaryUnaryMultiCallable", "_UnaryStreamMultiCallable", "_SingleThreadedUnaryStreamMultiCallable"):
        counted(getattr(_channel, name))
    return found


@contextmanager
def _source(name: str) -> Iterator[Source]:
    """A source with one record, which stays open but gets no others."""
    if name == "directory":
        folder = Path(tempfile.mkdtemp(prefix="flinkish-idle-input-"))
        (folder / "one.txt").write_text("one\n")
        builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(folder))
        yield builder.monitor_continuously(Duration.of_seconds(1)).build()
        return
    from flinkish.connectors.kafka.source import KafkaSource
    from tests.support.kafka_broker import KafkaBroker

    with KafkaBroker() as broker:
        broker.create_topic(TOPIC, 4)
        broker.produce(TOPIC, ["one"])
        builder = KafkaSource.builder().set_bootstrap_servers(broker.bootstrap_servers).set_topics(TOPIC)
        yield builder.set_value_only_deserializer(SimpleStringSchema()).build()


def _cpu_s(others: set[int]) -> dict[str, float]:
    """CPU seconds so far, by kind of process."""
    found: dict[str, float] = defaultdict(float)
    for pid in contract.process_tree(os.getpid()):
        if pid in others:
            continue
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if pid == os.getpid():
            kind = "driver"
        elif "python_streaming_source_runner" in command:
            kind = "planner"
        else:
            kind = "Java" if "java" in command.split(" ", 1)[0] else "workers"
        found[kind] += sum(int(field) for field in fields[11:13]) / os.sysconf("SC_CLK_TCK")
    return found


if __name__ == "__main__":
    main()
