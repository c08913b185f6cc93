"""The memory of the Python processes of a job with large records and the default bounds: the workers, and the process
beside the driver that plans epochs.

    python -m benchmarks.source_memory [--records N] [--size BYTES] [--sources text parquet generator collection kafka]

Each source runs in a separate process: source -> keyed count, parallelism 2 on two cores; the keyed task gets the whole
records. Only Linux (through /proc).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import runner
from benchmarks.process_memory import kib_of_processes
from flinkish.common import Configuration, Types, WatermarkStrategy
from flinkish.common.serialization import SimpleStringSchema
from flinkish.connectors.file_system.source import FileSource
from flinkish.connectors.generated import CollectionSource, DataGeneratorSource
from flinkish.core.source import Source

KEYS = 1_000
FILES = 2
TOPIC = "large"
SOURCES = ("text", "parquet", "generator", "collection", "kafka")
#: Number of records of a collection; few, because they are shipped with the job.
COLLECTED = 5_000

_pool = "".join(hashlib.sha256(str(number).encode()).hexdigest() for number in range(16_384))


def record(index: int, size: int) -> str:
    """A string of ``size`` characters that hardly compresses; it begins with its key."""
    offset = index * 7919 % (len(_pool) - size)
    return f"{index % KEYS:06d} {_pool[offset : offset + size - 7]}"


def key_of(text: str) -> str:
    """The key of a record."""
    return text[:6]


class Peaks:
    """The peak memory of each Python process below this one."""

    def __init__(self) -> None:
        self.kib: dict[tuple[str, int], int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            for kind, pid, kib in kib_of_processes(os.getpid(), "status", "VmHWM"):
                if kind != "jvm":
                    self.kib[kind, pid] = max(kib, self.kib.get((kind, pid), 0))

    def end(self) -> dict[str, list[int]]:
        """The peaks in MiB of the processes of each kind, largest first."""
        self._over.set()
        self._thread.join()
        found: dict[str, list[int]] = {"worker": [], "planner": []}
        for (kind, _), kib in self.kib.items():
            found[kind].append(kib // 1024)
        return {kind: sorted(sizes, reverse=True) for kind, sizes in found.items()}


def _made(folder: Path, kind: str, records: int, size: int, write: Callable[[Path, range], None]) -> str:
    directory = folder / f"{kind}-{records}-{size}"
    if not directory.exists():
        hidden = folder / f"{directory.name}.new"
        hidden.mkdir(parents=True, exist_ok=True)
        for part in range(FILES):
            write(hidden / f"{part}.{kind}", range(records * part // FILES, records * (part + 1) // FILES))
        hidden.rename(directory)
    return str(directory)


def _text(folder: Path, records: int, size: int) -> Source:
    def write(path: Path, numbers: range) -> None:
        with path.open("w") as file:
            file.writelines(record(n, size) + "\n" for n in numbers)

    return FileSource.text(_made(folder, "text", records, size, write))


def _parquet(folder: Path, records: int, size: int) -> Source:
    def write(path: Path, numbers: range) -> None:
        schema = pa.schema({"text": pa.string()})
        with pq.ParquetWriter(path, schema) as writer:
            # row groups of 128 MiB, as other engines write them
            rows = max(1, (128 << 20) // size)
            for start in range(numbers.start, numbers.stop, rows):
                texts = [record(n, size) for n in range(start, min(start + rows, numbers.stop))]
                writer.write_table(pa.table({"text": texts}, schema))

    path = _made(folder, "parquet", records, size, write)
    return FileSource.parquet(path, type_info=Types.ROW_NAMED(["text"], [Types.STRING()]))


@contextmanager
def _source(name: str, folder: Path, records: int, size: int) -> Iterator[Source]:
    if name == "kafka":
        from flinkish.connectors.kafka.settings import KafkaOffsetsInitializer
        from flinkish.connectors.kafka.source import KafkaSource
        from tests.support.kafka_broker import KafkaBroker

        with KafkaBroker() as broker:
            broker.create_topic(TOPIC, 2)
            broker.produce(TOPIC, (record(n, size) for n in range(records)))
            builder = KafkaSource.builder().set_bootstrap_servers(broker.bootstrap_servers).set_topics(TOPIC)
            builder = builder.set_bounded(KafkaOffsetsInitializer.latest())
            yield builder.set_value_only_deserializer(SimpleStringSchema()).build()
    elif name == "generator":
        yield DataGeneratorSource(lambda n: record(n, size), records, splits=2)
    elif name == "collection":
        yield CollectionSource([record(n, size) for n in range(min(records, COLLECTED))])
    else:
        yield {"text": _text, "parquet": _parquet}[name](folder, records, size)


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one source, in this process."""
    from benchmarks.pipelines.dict_sink import DictSink, delivered
    from benchmarks.spark_settings import EPOCHS_OF_A_SIZE, session
    from flinkish.datastream import StreamExecutionEnvironment
    from flinkish.datastream.functions import KeyedProcessFunction, RuntimeContext
    from flinkish.datastream.state import ValueStateDescriptor

    class Count(KeyedProcessFunction):
        """Emits (key, records so far)."""

        def open(self, runtime_context: RuntimeContext) -> None:
            self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
            count = (self.count.value() or 0) + 1
            self.count.update(count)
            yield ctx.get_current_key(), count

    with _source(name, options.data, options.records, options.size) as source:
        session("flinkish-source-memory")
        configuration = Configuration()
        configuration.set_string("flinkish.job.dir", tempfile.mkdtemp(prefix="flinkish-source-memory-"))
        configuration.set_string("execution.checkpointing.interval", "0")
        for key, value in EPOCHS_OF_A_SIZE.items():
            configuration.set_string(key, value)
        env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
        texts = env.from_source(source, WatermarkStrategy.no_watermarks(), name)
        keyed = texts.key_by((lambda row: key_of(row[0])) if name == "parquet" else key_of)
        keyed.process(Count()).sink_to(DictSink())
        peaks, begin = Peaks(), time.perf_counter()
        env.execute(f"memory of {name}")
        seconds = time.perf_counter() - begin
    expected = min(options.records, COLLECTED) if name == "collection" else options.records
    assert sum(delivered.values()) == expected, (sum(delivered.values()), expected)
    return {"records": expected, "seconds": round(seconds, 1), **peaks.end()}


def main() -> None:
    """Measure one source after the other, and print one line for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.source_memory", description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=10_000, help="bytes of a record")
    parser.add_argument("--sources", nargs="*", default=list(SOURCES), choices=SOURCES)
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "flinkish-benchmarks")
    parser.add_argument("--timeout-s", type=float, default=460)
    parser.add_argument("--only", choices=SOURCES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measure(options.only, options)))
        return
    arguments = ["--records", str(options.records), "--size", str(options.size), "--data", str(options.data)]
    print(f"{'source':<12}{'records':>10}{'seconds':>9}{'planner':>9}  workers, peak MiB")
    for name in options.sources:
        module = "benchmarks.source_memory"
        found = runner.last_json_line(sys.executable, module, [*arguments, "--only", name], options.timeout_s)
        workers = ", ".join(map(str, found["worker"]))
        planner = max(found["planner"], default=0)
        print(f"{name:<12}{found['records']:>10}{found['seconds']:>9}{planner:>9}  {workers}", flush=True)


if __name__ == "__main__":
    main()
