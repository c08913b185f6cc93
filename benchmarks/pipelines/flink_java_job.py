"""Flink's DataStream API in Java (`FlinkJob.java`), on a local cluster of two slots.

It runs with the jars of PyFlink's package and is compiled at each start, so it needs PyFlink's interpreter and a Java
compiler, nothing else. Its settings are the fastest ones: object reuse, state on the heap, no checkpoints. It reads
clicks from files of fixed-width rows, which are written before the first mark and are cheaper to read than Parquet.
Steady: a longer run minus a shorter one, in one process, after a first one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pyflink

from benchmarks import contract
from benchmarks.data import EVENTS_PER_FILE, JITTER_MS
from benchmarks.pipelines.keyed_programs import BOUND_MS

SOURCE = Path(__file__).with_name("FlinkJob.java")
ROW = np.dtype([("user", ">i4"), ("ts", ">i8"), ("amount", ">f8"), ("logged_in", "u1")])
OPENED = ("java.util", "java.lang", "java.time", "java.util.concurrent")
"""Packages of Java whose private fields Flink reads."""


def rows_of(path: Path) -> Path:
    """The file of fixed-width rows with the clicks of a Parquet file, written unless it is there."""
    # not beside the Parquet file, because flinkish's source reads all files of that folder
    dataset = path.parents[1]
    rows = dataset.with_name(f"{dataset.name}-rows") / f"{path.stem}.rows"
    if not rows.exists():
        rows.parent.mkdir(exist_ok=True)
        table = pq.read_table(path, columns=["user_id", "ts", "amount", "logged_in"])
        array = np.empty(len(table), ROW)
        array["user"] = [int(user[1:]) for user in table["user_id"].to_pylist()]
        for name in ("ts", "amount", "logged_in"):
            array[name] = table[name].to_numpy()
        unfinished = rows.with_suffix(f".{os.getpid()}")
        array.tofile(unfinished)
        unfinished.rename(rows)
    return rows


def run(pipeline: str, files: list[Path], classes: str) -> list[dict[str, Any]]:
    """Compile the program and run it over the files: its three marks and its figures."""
    jars = str(Path(pyflink.__file__).parent / "lib" / "*")
    subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", classes, str(SOURCE)], check=True)
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    bound_ms = BOUND_MS.get(pipeline, JITTER_MS)
    command = ["java", *opened, "-cp", os.pathsep.join((classes, jars)), "FlinkJob", pipeline]
    arguments = [str(EVENTS_PER_FILE), str(bound_ms), *map(str, files)]
    done = subprocess.run([*command, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def main() -> None:
    """Run one pipeline and print its figures."""
    options = contract.argument_parser(__doc__ or "").parse_args()
    files = [rows_of(path) for path in contract.files_of(options)]
    meter = contract.Meter()
    classes = tempfile.mkdtemp(prefix="flinkish-benchmark-")
    try:
        *marks, check = run(options.pipeline, files, classes)
    finally:
        shutil.rmtree(classes)
    start, between, end = (contract.Mark(**mark) for mark in marks)
    check = {name: figure if name == "amount" else int(figure) for name, figure in check.items()}
    # the meter watches Python processes, and a JVM takes as much memory as it may
    contract.emit(replace(meter.difference(start, between, end, check), peak_rss_mib=None))


if __name__ == "__main__":
    main()
