"""The main job from Kafka: flinkish with texts and ``json.loads`` and with ``JsonRowDeserializationSchema``, Spark's
own count, and a plain Python loop, over the same topics in one run; then the latency at 2,000 clicks/s.

    python -m benchmarks.kafka_job [--before CHECKOUT] [--engines NAME ...] [--clicks MILLIONS ...] [--users N ...]
        [--no-latency] [--runs N]

The broker runs on the same machine. From the time and the processor time of each run those of a run with 10,000 clicks
are subtracted. Processor time is that of all processes of the engine, those that have ended included. With ``--before``
the programs run with the flinkish of another checkout as well, over the fewest clicks. Only Linux (through /proc).
"""

from __future__ import annotations

import argparse
import bisect
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from benchmarks import contract, data
from benchmarks.kafka_source import produce
from tests.support.ivy import Coordinate, JarSet, resolve_jars
from tests.support.kafka_broker import KafkaBroker

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "benchmarks" / "pipelines" / "kafka_programs.py"
PARTITIONS = 4
START_UP = 10_000
ENGINES = ("flinkish_rows", "flinkish_json_row", "spark", "loop_json", "loop_msgspec")
FOLLOWERS = ("flinkish_rows", "spark")
PER_S = 2_000
WARM_UP_S, MEASURED_S = 120, 60
SAMPLE_S = 0.1
TIMEOUT_S = 600


@dataclass(frozen=True)
class Expected:
    """What a run over a topic must give."""

    users: int
    clicks: int


@dataclass(frozen=True)
class Run:
    """Seconds from the start of the program to its end, processor seconds, and the peak of all proportional sizes."""

    wall_s: float
    cpu_s: float
    peak_mib: float


class Processes:
    """The processor time and memory of a program and of all processes below it, also of those that have ended."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._ticks: dict[int, int] = {}
        self.peak_mib = 0.0

    def sample(self, memory: bool) -> None:
        """Look at all processes."""
        sizes = 0
        for pid in contract.process_tree(self._root):
            try:
                fields = contract.stat_fields(Path(f"/proc/{pid}/stat"))
                text = Path(f"/proc/{pid}/smaps_rollup").read_text() if memory else ""
            except OSError:
                continue
            if not fields:
                continue
            self._ticks[pid] = max(self._ticks.get(pid, 0), int(fields[11]) + int(fields[12]))
            sizes += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
        self.peak_mib = max(self.peak_mib, sizes / 1024)

    @property
    def cpu_s(self) -> float:
        """User and system time so far, in seconds."""
        return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")


def texts(users: int, all_logged_in: bool = False) -> Iterator[tuple[str, str, bool]]:
    """(text, user, logged in) of two million clicks of some 120 bytes; users by Zipf's law."""
    table = data.generate(users)
    flags = [True] * table.num_rows if all_logged_in else table.column("logged_in").to_pylist()
    columns = (table.column(name).to_pylist() for name in ("user_id", "page", "ts"))
    for user, page, ts, flag in zip(*columns, flags, strict=True):
        text = f'{{"user_id": "{user}", "logged_in": {str(flag).lower()}, "page": "{page}", "ts": {ts}, "agent": '
        yield text + f'"{"Mozilla/5.0 (X11; Linux x86_64)":.32}"}}', user, flag


def fill(servers: str, topic: str, clicks: int, users: int) -> Expected:
    """Write so many clicks evenly to all partitions."""
    all_texts = list(texts(users))
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 500_000})
    counted, seen = 0, set()
    for index in range(clicks):
        text, user, logged_in = all_texts[index % len(all_texts)]
        if logged_in:
            counted += 1
            seen.add(user)
        produce(producer, topic, text, index % PARTITIONS)
    if producer.flush(60):
        raise RuntimeError("the broker does not take the clicks within 60 s")
    return Expected(len(seen), counted)


def start(engine: str, checkout: Path, servers: str, topic: str, *options: str) -> subprocess.Popen[str]:
    """Start the program with the flinkish of a checkout."""
    command = [sys.executable, str(PROGRAM), engine, servers, topic, *options]
    if engine == "spark":
        command += ["--jars", ",".join(map(str, spark_jars()))]
    log = Path(tempfile.gettempdir(), f"flinkish-kafka-job-{engine}.log").open("w")
    with log:
        where = contract.in_checkout(checkout)
        return subprocess.Popen(command, **where, stdout=subprocess.PIPE, stderr=log, text=True)


def spark_jars() -> list[Path]:
    """Spark's Kafka connector."""
    import pyspark

    coordinate = Coordinate("org.apache.spark", "spark-sql-kafka-0-10_2.13", pyspark.__version__)
    return resolve_jars(JarSet("spark-kafka", (coordinate,), ("hadoop-client-runtime", "hadoop-client-api")))


def measure(engine: str, checkout: Path, servers: str, topic: str, expected: Expected) -> Run:
    """One run to the end of a topic; raises RuntimeError if its result is not the expected one."""
    started = time.perf_counter()
    with start(engine, checkout, servers, topic) as program:
        processes = Processes(program.pid)
        samples = 0
        while program.poll() is None:
            processes.sample(memory=samples % 20 == 0)
            samples += 1
            if time.perf_counter() - started > TIMEOUT_S:
                program.kill()
                raise RuntimeError(f"{engine} is not at the end of {topic} after {TIMEOUT_S} s")
            time.sleep(SAMPLE_S)
        wall_s = time.perf_counter() - started
        output = program.stdout.read() if program.stdout else ""
    if program.returncode:
        raise RuntimeError(f"{engine} ended with {program.returncode}; see its log in {tempfile.gettempdir()}")
    found = Expected(**json.loads(output.strip().splitlines()[-1]))
    if found != expected:
        raise RuntimeError(f"{engine} over {topic}: {found} instead of {expected}")
    return Run(wall_s, processes.cpu_s, processes.peak_mib)


def throughput(servers: str, options: argparse.Namespace) -> None:
    """Print a row per engine, users and clicks."""
    print("| users | clicks | engine | events/s | µs of processors | of the further clicks | peak, MiB | start-up, s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for users in options.users:
        sizes = sorted(round(millions * 1e6) for millions in options.clicks)
        expected = {}
        for clicks in (START_UP, *sizes):
            topic = topic_of(users, clicks)
            options.broker.create_topic(topic, PARTITIONS)
            expected[clicks] = fill(servers, topic, clicks, users)
        for engine, version, checkout in versions(options):
            runs: dict[int, Run] = {}
            # the version before is compared with the fewest clicks only
            for clicks in (START_UP, *(sizes[:1] if version else sizes)):
                all_runs = []
                for _ in range(options.runs):
                    topic = topic_of(users, clicks)
                    all_runs.append(measure(engine, checkout, servers, topic, expected[clicks]))
                runs[clicks] = min(all_runs, key=lambda run: run.cpu_s)
            fewer = None
            for clicks in filter(runs.__contains__, sizes):
                further = None if fewer is None else (runs[clicks], runs[fewer], clicks - fewer)
                tell(users, clicks, engine + version, runs[START_UP], runs[clicks], further)
                fewer = clicks


def topic_of(users: int, clicks: int) -> str:
    """The topic with so many clicks of so many users."""
    return f"clicks-{users}-{clicks}"


def versions(options: argparse.Namespace) -> Iterator[tuple[str, str, Path]]:
    """Each engine, flinkish also as it was before: (engine, remark, checkout)."""
    for engine in options.engines:
        yield engine, "", ROOT
        if options.before and engine.startswith("flinkish"):
            yield engine, " before", options.before


def tell(users: int, clicks: int, name: str, start_up: Run, run: Run, further: tuple[Run, Run, int] | None) -> None:
    """Print one row."""
    events_per_s = clicks / max(run.wall_s - start_up.wall_s, 1e-3)
    cpu_us = (run.cpu_s - start_up.cpu_s) / clicks * 1e6
    more = f"{(further[0].cpu_s - further[1].cpu_s) / further[2] * 1e6:.2f}" if further else ""
    row = f"{events_per_s:,.0f} | {cpu_us:.2f} | {more} | {run.peak_mib:,.0f} | {start_up.wall_s:.1f}"
    print(f"| {users:,} | {clicks:,} | {name} | {row} |", flush=True)


def latency(servers: str, engine: str, broker: KafkaBroker) -> None:
    """Print the latency of the clicks that are produced from two to three minutes after the first one is seen."""
    topic = f"latency-{engine}"
    broker.create_topic(topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 1})
    clicks = [text for text, _, _ in texts(1_000, all_logged_in=True)]
    seen = Path(tempfile.mkdtemp(), "seen")
    with start(engine, ROOT, servers, topic, "--follow", str(seen)) as program:
        try:
            processes = Processes(program.pid)
            produced: list[float] = []
            began = measured_from = cpu_from = None
            while began is None or time.time() < began + WARM_UP_S + MEASURED_S:
                due = len(produced) if not produced else int((time.time() - produced[0]) * PER_S)
                for index in range(len(produced), due + 1):
                    produced.append(time.time())
                    produce(producer, topic, clicks[index % len(clicks)], index % PARTITIONS)
                producer.poll(0)
                if began is None and seen.exists() and seen.stat().st_size:
                    began = time.time()
                if began and cpu_from is None and time.time() >= began + WARM_UP_S:
                    processes.sample(memory=False)
                    measured_from, cpu_from = len(produced), processes.cpu_s
                time.sleep(0.001)
                if program.poll() is not None:
                    raise RuntimeError(f"{engine} ended with {program.returncode}")
            processes.sample(memory=False)
            producer.flush(5)
            time.sleep(3)
        finally:
            for pid in contract.process_tree(program.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    lines = [line.split() for line in seen.read_text().splitlines()]
    totals = [int(total) for _, total in lines]
    delays = []
    for index in range(measured_from or 0, len(produced)):
        line = bisect.bisect_left(totals, index + 1)  # the first line that counts this click
        if line < len(lines):
            delays.append((float(lines[line][0]) - produced[index]) * 1e3)
    cuts = statistics.quantiles(delays, n=100)
    row = f"{cuts[49]:,.0f} | {cuts[89]:,.0f} | {cuts[98]:,.0f} | {max(delays):,.0f}"
    print(f"| {engine} | {row} | {(processes.cpu_s - (cpu_from or 0.0)) / MEASURED_S:.2f} |", flush=True)


def main() -> None:
    """Run what the options say."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kafka_job", description=__doc__)
    parser.add_argument("--before", type=Path, help="a checkout of an earlier version")
    parser.add_argument("--engines", nargs="*", choices=ENGINES, default=list(ENGINES), metavar="NAME")
    parser.add_argument("--clicks", nargs="*", type=float, default=[3.0, 9.0], help="millions")
    parser.add_argument("--users", nargs="*", type=int, default=list(data.USERS))
    parser.add_argument(
        "--runs", type=int, default=1, help="of each, of which the one with the least processor time counts"
    )
    parser.add_argument("--no-latency", action="store_true")
    options = parser.parse_args()
    with KafkaBroker() as broker:
        options.broker = broker
        throughput(broker.bootstrap_servers, options)
        if not options.no_latency:
            print(f"\nlatency at {PER_S:,} clicks/s, produced to in the sink, ms")
            print("| engine | median | 90 % | 99 % | longest | cores used |\n| --- | --- | --- | --- | --- | --- |")
            for engine in FOLLOWERS:
                latency(broker.bootstrap_servers, engine, broker)


if __name__ == "__main__":
    main()
