"""Runs each engine's pipeline in its own interpreter and reads the one line of JSON that it prints.

Rule of this file: engines know nothing of each other. If one is absent or fails, only its own row lacks figures; the
table gives the reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from benchmarks.contract import BASIC_PIPELINES, KEYED_PIPELINES, PIPELINES, Result

ROOT = Path(__file__).resolve().parent.parent
FLINKISH = "benchmarks.pipelines.flinkish_job"
_PYFLINK = "benchmarks.pipelines.pyflink_job"
_WITHOUT_JOIN = tuple(pipeline for pipeline in PIPELINES if pipeline != "interval_join")
"""PyFlink's DataStream API has no interval join."""
QUICK_FILES = 3
"""Files of events that every engine gets in a quick run."""


@dataclass(frozen=True)
class Engine:
    """How to run one engine: its module, the package that shows that it is installed, and its amount of data.

    `files` is per (pipeline, users), 0 for all; `arguments` are the module's own options; `pipelines` are those that
    the module implements.
    """

    name: str
    module: str
    package: str
    python: str = sys.executable
    arguments: tuple[str, ...] = ()
    files: tuple[tuple[tuple[str, int], int], ...] = ()
    pipelines: tuple[str, ...] = PIPELINES
    #: files of events for the keyed pipelines; 0: all
    keyed_files: int = 0
    #: where its module and its packages lie
    checkout: Path = ROOT
    #: how many times as long the longer of the engine's two runs is; its results are those of the longer run
    repeats: int = 1

    @property
    def quick_arguments(self) -> tuple[str, ...]:
        """The module's options in a quick run: small epochs if the engine has epochs, and each event once."""
        if self.module == FLINKISH:
            return "--epoch-records", "100000", "--warm-up-epochs", "1"
        return () if "--passes" in self.arguments else self.arguments

    def files_for(self, pipeline: str, users: int) -> int:
        """The number of files of events that this engine gets for one comparison."""
        return dict(self.files).get((pipeline, users), self.keyed_files if pipeline in KEYED_PIPELINES else 0)


@dataclass(frozen=True)
class Row:
    """One line of the table: figures, or the reason why there are none."""

    engine: str
    pipeline: str
    users: int
    result: Result | None
    reason: str = ""


def engines(pyflink_python: str, bytewax_python: str, before: Path | None = None) -> list[Engine]:
    """All engines, flinkish first. Slow ones get part of the data, so that the whole command ends within minutes.

    Args:
        pyflink_python: an interpreter that has PyFlink.
        bytewax_python: an interpreter that has bytewax.
        before: the checkout of an earlier version of flinkish, which is then the second engine.
    """
    flinkish = Engine(
        "flinkish",
        FLINKISH,
        "pyspark",
        arguments=("--passes", "14"),
        files=((("interval_join", 1_000), 60), (("connected", 1_000), 60), (("session", 200_000), 40)),
    )
    return [
        flinkish,
        *([replace(flinkish, name="flinkish before", checkout=before.absolute())] if before else []),
        Engine(
            "per key by hand",
            "benchmarks.pipelines.spark_per_key",
            "pyspark",
            files=_files(8, 3, 20),
            pipelines=BASIC_PIPELINES,
        ),
        Engine(
            "transformWithState",
            "benchmarks.pipelines.spark_transform_with_state",
            "google.protobuf",  # PySpark needs it for this operator only
            arguments=("--passes", "3"),
            pipelines=("sum",),
        ),
        Engine("Python loop", "benchmarks.pipelines.python_loop", "pyarrow"),
        *_with_pyflink(pyflink_python),
        Engine(
            "bytewax",
            "benchmarks.pipelines.bytewax_job",
            "bytewax",
            bytewax_python,
            files=_files(10, 10, 5),
            # no event-time timers and no interval join; visits are session windows
            pipelines=(*BASIC_PIPELINES, "user_window", "visits", "sliding", "session"),
            keyed_files=3,
            repeats=3,
        ),
    ]


def _with_pyflink(python: str) -> list[Engine]:
    """PyFlink, and Flink in Java with the jars of PyFlink's package."""
    return [
        Engine(
            "PyFlink process",
            _PYFLINK,
            "pyflink",
            python,
            ("--mode", "process"),
            (*_files(9, 4, 6), (("session", 200_000), 2)),
            _WITHOUT_JOIN,
            4,
        ),
        Engine(
            "PyFlink thread",
            _PYFLINK,
            "pyflink",
            python,
            ("--mode", "thread"),
            _files(12, 12, 6),
            _WITHOUT_JOIN,
            4,
        ),
        Engine(
            "Flink Java",
            "benchmarks.pipelines.flink_java_job",
            "pyflink",  # for its jars
            python,
            ("--passes", "6"),
            pipelines=("sum", "user_window", "visits"),
        ),
    ]


def _files(sum_few_users: int, sum_many_users: int, window: int) -> tuple[tuple[tuple[str, int], int], ...]:
    return (("sum", 1_000), sum_few_users), (("sum", 200_000), sum_many_users), (("window", 1_000), window)


def is_installed(python: str, module: str, package: str, checkout: Path = ROOT) -> bool:
    """Whether the engine's interpreter can import its package, and its module exists."""
    if not Path(checkout, *module.split(".")).with_suffix(".py").exists():
        return False
    find = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    try:
        return subprocess.run([python, "-c", find], check=False).returncode == 0
    except OSError:
        return False


def run_pipeline(engine: Engine, pipeline: str, users: int, data: Path, timeout_s: float, quick: bool = False) -> Row:
    """Run one pipeline on one engine. With ``quick``, over few events, the same for each engine.

    Example: `run_pipeline(engines("", "")[2], "sum", 1_000, data.default_directory(), 600.0).result.events_per_s`.
    """
    if pipeline not in engine.pipelines:
        return Row(engine.name, pipeline, users, None, "not measured")
    if not is_installed(engine.python, engine.module, engine.package, engine.checkout):
        return Row(engine.name, pipeline, users, None, "not installed")
    arguments = ["--pipeline", pipeline, "--users", str(users), "--data", str(data)]
    if quick:
        arguments += ["--files", str(QUICK_FILES // engine.repeats), *engine.quick_arguments]
    else:
        arguments += ["--files", str(engine.files_for(pipeline, users)), *engine.arguments]
    try:
        fields = last_json_line(engine.python, engine.module, arguments, timeout_s, engine.checkout)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return Row(engine.name, pipeline, users, None, str(error))
    return Row(engine.name, pipeline, users, Result(**fields))


def last_json_line(python: str, module: str, arguments: list[str], timeout_s: float, checkout: Path = ROOT) -> Any:
    """Run `python -m module` from the root of a checkout; the last line of its standard output, parsed as JSON."""
    process = start(python, module, arguments, checkout=checkout)
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        raise
    lines = output.strip().splitlines()
    if process.returncode != 0 or not lines:
        last = (errors.strip().splitlines() or ["no output"])[-1]
        raise RuntimeError(f"{module} ended with code {process.returncode}: {last[:200]}")
    return json.loads(lines[-1])


def start(
    python: str, module: str, arguments: list[str], errors: int | IO[str] = subprocess.PIPE, checkout: Path = ROOT
) -> subprocess.Popen[str]:
    """Start `python -m module` from the root of a checkout; its standard error goes to ``errors``.

    It gets its own session, so that a run which takes too long can be ended with all the processes it started.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout), os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen(
        [python, "-m", module, *arguments],
        cwd=checkout,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        start_new_session=True,
    )
