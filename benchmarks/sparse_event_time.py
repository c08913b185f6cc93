"""What a record costs in a keyed process function if few records lie between two watermarks, as in backfills of sparse
event time: the keyed stage alone, in one process and without Spark, of this checkout and of another one in turns.

``python -m benchmarks.sparse_event_time [--against DIRECTORY] [--only visits connected] [--users 1000 200000]`` prints
microseconds of processor time a record (the least of the repeats) of the receivers of `keyed_programs`: decoding
buffers, the gate, the operator with a state and an event-time timer for every record, and the barriers with state in
files. Two sources send to two receivers `PER_INTERVAL` records in `INTERVAL_MS` of event time, the interval at which
sources emit watermarks; so a receiver gets about 13 records between two watermarks. With ``--against``, all that the
receivers send must be the same.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import tempfile
import time
from collections import defaultdict
from typing import Any

import numpy as np

from benchmarks.data import JITTER_MS, SEED, ZIPF_EXPONENT
from benchmarks.hand_over import printed_elsewhere
from benchmarks.pipelines import keyed_programs
from flinkish.common import Configuration, Types, WatermarkStrategy
from flinkish.connectors.generated import NumberSequenceSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.jobmanager.job.settings import job_settings
from flinkish.jobmanager.submitted_program import captured
from flinkish.runtime.epoch.files import EpochFiles
from flinkish.runtime.exchange.buffer import decode
from flinkish.runtime.job.deployment import REPORT_VERTEX, JobDescriptor
from flinkish.runtime.task.source_task import SourceInput, SplitBatch
from flinkish.runtime.task.task import EpochStamp
from flinkish.runtime.task.task_manager import StoredTask, TaskManager
from flinkish.spark.worker import THRESHOLD

SUBTASKS, SOURCE, KEYED = 2, 0, 1
PER_INTERVAL, INTERVAL_MS = 55, 200
#: Records of all sources in an epoch, and the number of epochs, of which the first one is not counted.
RECORDS, EPOCHS, WARM_UP = 400_000, 3, 1
BATCH = 1_000
PROGRAMS = ("visits", "connected")
CLICK = Types.TUPLE([Types.STRING(), Types.LONG(), Types.DOUBLE(), Types.BOOLEAN()])


def job_of(pipeline: str) -> JobDescriptor:
    """The job graph of one of the programs, whose results go to another vertex."""

    def program() -> None:
        env = StreamExecutionEnvironment.get_execution_environment(Configuration())
        env.set_parallelism(SUBTASKS)
        numbers = env.from_source(
            NumberSequenceSource(0, 2**40, SUBTASKS), WatermarkStrategy.no_watermarks(), "numbers"
        )
        # `measure` supplies the input of the subtasks
        clicks = numbers.map(lambda click: click, CLICK)
        bound_ms = keyed_programs.BOUND_MS[pipeline]
        keyed_programs.add("flinkish", pipeline, clicks, bound_ms).key_by(lambda result: result[0]).reduce(max).print()
        env.execute(pipeline)

    submitted = captured(program)
    generator = JobGraphGenerator(submitted.graph, job_settings(submitted.configuration), submitted.chaining)
    return generator.generate(pipeline, submitted.name)


def _clicks(users: int, epoch: int, sender: int) -> list[SplitBatch]:
    """The records of a sender in an epoch: (user, time, amount, logged in)."""
    random = np.random.default_rng((SEED, epoch, sender))
    count = RECORDS // SUBTASKS
    weights = 1 / np.arange(1, users + 1) ** ZIPF_EXPONENT
    drawn = random.choice(users, size=count, p=weights / weights.sum()).tolist()
    order = np.arange(epoch * count, (epoch + 1) * count) * SUBTASKS * INTERVAL_MS // PER_INTERVAL
    times = (order + random.integers(0, JITTER_MS, count)).tolist()
    logged_in = (random.random(count) < 0.5).tolist()
    records = [(f"u{user}", at_ms, 1.5, flag) for user, at_ms, flag in zip(drawn, times, logged_in, strict=True)]
    return [SplitBatch(str(sender), records[begin : begin + BATCH], None) for begin in range(0, count, BATCH)]


def measure(pipeline: str, users: int) -> tuple[float, str]:
    """Microseconds of processor time a record of the receivers, and a digest of all that they send."""
    gc.set_threshold(THRESHOLD, 20, 20)
    job, used_s, digest = job_of(pipeline), 0.0, hashlib.sha256()
    stored: dict[int, tuple[bytes, bytes | None]] = {}
    with tempfile.TemporaryDirectory(prefix="flinkish-sparse-") as directory:
        files = EpochFiles(f"{directory}/prepared", f"{directory}/changelog", f"{directory}/keyed-state")
        manager = TaskManager(job, files)
        for epoch in range(EPOCHS):
            arrived: dict[int, list[bytes]] = defaultdict(list)
            stamp = EpochStamp(epoch, epoch)
            for sender in range(SUBTASKS):
                for rows in manager.run_source(SOURCE, sender, SourceInput(_clicks(users, epoch, sender)), stamp):
                    for vertex, subtask, data in rows:
                        if vertex == KEYED:
                            arrived[subtask].append(data)
            for subtask, datas in sorted(arrived.items()):
                header, body = stored.get(subtask, (None, None))
                datas.sort()
                gc.collect()
                gc.freeze()
                begin_s = time.process_time()
                task = StoredTask(header, lambda body=body: body)
                result, rows = manager.run_task(KEYED, subtask, task, map(decode, datas), stamp)
                assert result is not None
                encoded = result.header.encode(job.classes)
                if epoch >= WARM_UP:
                    used_s += time.process_time() - begin_s
                stored[subtask] = encoded, result.body if result.body_written else body
                for vertex, target, data in rows:
                    if vertex != REPORT_VERTEX:
                        digest.update(repr((vertex, target)).encode() + data)
        manager.dispose()
    return used_s / (RECORDS * (EPOCHS - WARM_UP)) * 1e6, digest.hexdigest()


def measure_elsewhere(directory: str, pipeline: str, users: int) -> tuple[float, str]:
    """`measure` with the flinkish of another checkout."""
    call = f"json.dumps(measure({pipeline!r}, {users}))"
    used_us, digest = json.loads(printed_elsewhere(directory, "sparse_event_time", call))
    return used_us, digest


def main() -> None:
    """Measure, and print a line per program and number of users."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", metavar="DIRECTORY", help="another checkout, measured in turns with this one")
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--users", type=int, nargs="+", default=[1_000, 200_000], metavar="N")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for pipeline in options.only:
        for users in options.users:
            measured: dict[str, list[Any]] = defaultdict(list)
            for _ in range(options.repeats):
                for directory in filter(None, (here, options.against)):
                    measured[directory].append(measure_elsewhere(directory, pipeline, users))
            if len({digest for runs in measured.values() for _, digest in runs}) > 1:
                raise SystemExit(f"{pipeline}, {users:,} users: the receivers have not always sent the same")
            best = [min(used_us for used_us, _ in runs) for runs in measured.values()]
            ratio = f" {best[0] / best[1]:6.2f}x" if options.against else ""
            print(f"{pipeline:10} {users:8,} " + " ".join(f"{figure:6.2f}" for figure in best) + ratio, flush=True)


if __name__ == "__main__":
    main()
