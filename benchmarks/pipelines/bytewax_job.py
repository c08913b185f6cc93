"""bytewax, one worker process per core, over the same files.

bytewax runs a flow in its cluster's processes; this module starts them (each is this module again, with `--worker`),
once over a short input and once over a longer one. Steady: the difference between the two.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
import pyarrow.parquet as pq
from bytewax._bytewax import cluster_main  # the call behind `python -m bytewax.run`
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

from benchmarks import contract, data
from benchmarks.data import EVENTS, EVENTS_PER_FILE, JITTER_MS
from benchmarks.pipelines import keyed_programs

COLUMNS = {"sum": ("user_id", "logged_in"), "window": ("page", "ts", "amount"), **keyed_programs.COLUMNS}
LONGER_BY = 2
"""Number of additional passes of the longer run."""
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class FilePartition(StatelessSourcePartition[Any]):  # type: ignore[misc]
    """One worker's files, delivered in lists of `batch_size` tuples."""

    def __init__(self, paths: list[Path], columns: tuple[str, ...], batch_size: int) -> None:
        self._batches = (
            list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
            for path in paths
            for batch in pq.read_table(path, columns=list(columns)).combine_chunks().to_batches(batch_size)
        )

    def next_batch(self) -> list[Any]:
        """The next list; StopIteration ends the input."""
        return next(self._batches)


class FileSource(DynamicSource[Any]):  # type: ignore[misc]
    """The files, distributed over the workers in turn."""

    def __init__(self, paths: list[Path], columns: tuple[str, ...], batch_size: int) -> None:
        self._paths, self._columns, self._batch_size = paths, columns, batch_size

    def build(self, step_id: str, worker_index: int, worker_count: int) -> FilePartition:
        """The part of this worker."""
        return FilePartition(self._paths[worker_index::worker_count], self._columns, self._batch_size)


def add(total: int | None, value: int) -> tuple[int, int]:
    """The next running sum, both as state and as output."""
    total = (total or 0) + value
    return total, total


class Delivered(StatelessSinkPartition[Any]):  # type: ignore[misc]
    """Keeps the output of this worker in a dictionary."""

    def __init__(self, found: dict[Any, Any]) -> None:
        self._found = found

    def write_batch(self, items: list[Any]) -> None:
        """Upsert."""
        self._found.update(items)


class DictSink(DynamicSink[Any]):  # type: ignore[misc]
    """A sink that writes to `found`."""

    def __init__(self, found: dict[Any, Any]) -> None:
        self._found = found

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Delivered:
        """The part of this worker."""
        return Delivered(self._found)


def dataflow(pipeline: str, paths: list[Path], batch_size: int, found: dict[Any, Any]) -> Dataflow:
    """The flow of one pipeline."""
    flow = Dataflow(pipeline)
    events = op.input("files", flow, FileSource(paths, COLUMNS[pipeline], batch_size))
    if pipeline == "sum":
        logged_in = op.filter("logged_in", events, lambda event: event[1])
        ones = op.map("one", logged_in, lambda event: (event[0], 1))
        op.output("sink", op.stateful_map("sum", ones, add), DictSink(found))
    else:
        keyed = op.map("page", events, lambda event: (event[0], event))
        clock = win.EventClock(
            lambda event: EPOCH + timedelta(milliseconds=event[1]),
            # The workers' files differ by one file in event time, on top of the jitter in each file.
            wait_for_system_duration=timedelta(milliseconds=JITTER_MS) + timedelta(minutes=6),
        )
        windows = win.fold_window(
            "windows",
            keyed,
            clock,
            windower(pipeline),
            lambda: (0, 0.0),
            lambda w, e: (w[0] + 1, w[1] + e[2]),
            _add_windows,
        )
        op.output("sink", op.map("id", windows.down, lambda kv: ((kv[0], kv[1][0]), kv[1][1])), DictSink(found))
    return flow


def windower(pipeline: str) -> Any:
    """The windows of a pipeline. bytewax has no event-time timers: a visit is a session window instead."""
    if pipeline == "sliding":
        length, offset = timedelta(milliseconds=keyed_programs.SLIDING_MS), timedelta(milliseconds=contract.WINDOW_MS)
        return win.SlidingWindower(length=length, offset=offset, align_to=EPOCH)
    gaps = {"session": keyed_programs.SESSION_GAP_MS, "visits": keyed_programs.VISIT_GAP_MS}
    if pipeline in gaps:
        return win.SessionWindower(gap=timedelta(milliseconds=gaps[pipeline]))
    return win.TumblingWindower(length=timedelta(milliseconds=contract.WINDOW_MS), align_to=EPOCH)


def _add_windows(left: tuple[int, float], right: tuple[int, float]) -> tuple[int, float]:
    return left[0] + right[0], left[1] + right[1]


def run_worker(options: argparse.Namespace, paths: list[Path]) -> None:
    """Run one process of the cluster to the end of the input, and save what its sink received."""
    found: dict[Any, Any] = {}
    flow = dataflow(options.pipeline, paths, options.batch_size, found)
    cluster_main(flow, options.addresses, options.worker, epoch_interval=timedelta(seconds=10))
    counts = list(found.values())
    if options.pipeline == "sum":
        figures: dict[str, Any] = contract.sum_check(found)
    else:
        figures = contract.window_check(len(counts), sum(c for c, _ in counts), sum(a for _, a in counts))
        figures = keyed_programs.checked(options.pipeline, figures)
    # The operating system knows the exact peak only at the end.
    figures["peak_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    Path(options.report).write_text(json.dumps(figures))


def run_cluster(options: argparse.Namespace, passes: int) -> dict[str, Any]:
    """Run all processes over `passes` passes of the data; returns the figures of all of them together."""
    with tempfile.TemporaryDirectory() as directory:
        addresses = [f"127.0.0.1:{port}" for port in _free_ports(options.processes)]
        reports = [Path(directory) / str(number) for number in range(options.processes)]
        command = [sys.executable, "-m", "benchmarks.pipelines.bytewax_job", "--pipeline", options.pipeline]
        command += ["--users", str(options.users), "--data", str(options.data), "--passes", str(passes)]
        command += ["--files", str(files_per_run(options, passes)), "--batch-size", str(options.batch_size)]
        command += ["--addresses", *addresses]
        processes = [
            subprocess.Popen([*command, "--worker", str(number), "--report", str(report)])
            for number, report in enumerate(reports)
        ]
        codes = [process.wait() for process in processes]
        if any(codes):
            raise RuntimeError(f"bytewax's processes ended with {codes}, expected zeros: see the output above")
        figures = [json.loads(report.read_text()) for report in reports]
    merged = {name: sum(figure[name] for figure in figures) for name in figures[0]}
    for name in ("highest", "peak_rss_mib"):
        if name in merged:
            merged[name] = max(figure[name] for figure in figures)
    return merged


def files_per_run(options: argparse.Namespace, passes: int) -> int:
    """`--files` is per pass here: fewer files make the input shorter, and are not read repeatedly."""
    return passes * (options.files or EVENTS // EVENTS_PER_FILE)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


def main() -> None:
    """Run one pipeline and print its figures."""
    parser = contract.argument_parser(__doc__ or "")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=50_000)
    parser.add_argument("--worker", type=int, help="internal: run as this process of the cluster")
    parser.add_argument("--addresses", nargs="*", help="internal: of all processes of the cluster")
    parser.add_argument("--report", help="internal: where this process leaves its figures")
    options = parser.parse_args()
    if options.worker is not None:
        run_worker(options, contract.files_of(options))
        return
    data.ensure(options.users, options.passes + LONGER_BY, options.data)
    meter = contract.Meter()
    marks = [meter.mark(0)]
    for passes in (options.passes, options.passes + LONGER_BY):
        check = run_cluster(options, passes)
        marks.append(meter.mark(marks[-1].events + files_per_run(options, passes) * EVENTS_PER_FILE))
    peak_rss_mib = check.pop("peak_rss_mib")
    result = meter.difference(marks[0], marks[1], marks[2], check)
    contract.emit(replace(result, peak_rss_mib=round(peak_rss_mib, 1)))


if __name__ == "__main__":
    main()
