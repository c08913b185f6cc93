"""What the processes of a local job show to others on the machine: ports, command lines, files, imported modules. And
how a program ends whose Spark session is stopped under its job."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from flinkish.error_display import ExitCode
from tests.support.processes import POLL_S, python_path

PROGRAM = """
import contextlib, logging, os, sys, time
import beside
from flinkish.common import Configuration, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import StreamExecutionEnvironment

logging.basicConfig(level=logging.INFO)
settings = Configuration()
settings.set_string("flinkish.job.dir", sys.argv[1])
settings.set_string("parallelism.default", "2")
settings.set_string("spark.ui.enabled", "true")
settings.set_string("spark.hadoop.fs.a.secret.key", "SECRET-of-the-program")
env = StreamExecutionEnvironment.get_execution_environment(settings)
env.from_collection([1, 2]).map(beside.double).print()
env.execute("job")

import psutil
from pyspark.sql import SparkSession

me = psutil.Process()
for process in [me, *me.children(recursive=True)]:
    with contextlib.suppress(psutil.NoSuchProcess):
        for each in process.net_connections("inet"):
            if each.status == psutil.CONN_LISTEN:
                print("listens", process.name(), each.laddr.ip)
conf = SparkSession.getActiveSession().sparkContext.getConf()
folder = conf.get("spark.python.unix.domain.socket.dir")
print("sockets", folder, oct(os.stat(folder).st_mode), len(os.listdir(folder)))
for key in ("spark.authenticate", "spark.hadoop.fs.a.secret.key", "spark.hadoop.fs.b.secret.key"):
    print("setting", key, conf.get(key), flush=True)

# without a directory, and so without restarts
env = StreamExecutionEnvironment.get_execution_environment(Configuration())
source = DataGeneratorSource(lambda index: index, records_per_second=20.0)
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
numbers.filter(lambda number: False).print()
client = env.execute_async("endless")
while not client.describe().metrics["epochs"]:
    time.sleep(0.1)
print("stops the session", file=sys.stderr, flush=True)
SparkSession.getActiveSession().stop()
client.get_job_execution_result().result()
"""

#: Modules of the standard library that Python, PySpark or flinkish import.
SHADOWED = (
    *("calendar", "queue", "random", "tempfile", "socketserver", "shlex", "uuid", "copy", "json", "decimal"),
    *("argparse", "runpy", "collections", "sitecustomize", "usercustomize", "pyspark", "flinkish", "pandas"),
)

#: The most lines that are told of one mistake.
SCREEN = 24


@dataclass
class Ended:
    """A job that has ended, and what was seen of its processes."""

    folder: Path
    #: the words of each line of its standard output
    lines: list[list[str]]
    errors: str
    command_lines: set[str]

    def having(self, word: str) -> list[list[str]]:
        return [words[1:] for words in self.lines if words[:1] == [word]]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("job")
    for name in ("program", "elsewhere", "temporary"):
        (folder / name).mkdir()
    (folder / "program/main.py").write_text(PROGRAM)
    (folder / "program/beside.py").write_text("def double(n):\n    print('doubles', n)\n    return 2 * n\n")
    for name in SHADOWED:
        marker = f"open({str(folder / 'marker')!r}, 'a').write(__name__ + ' ')\nraise ImportError(__name__)\n"
        (folder / "elsewhere" / f"{name}.py").write_text(marker)
    secrets = folder / "flinkish.yaml"
    secrets.write_text("spark.hadoop.fs.b.secret.key: SECRET-of-the-file\nflinkish.prepare: 'off'\n")
    secrets.chmod(0o600)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    own = {"PYTHONPATH": python_path(), "FLINKISH_CONF": str(secrets), "TMPDIR": str(folder / "temporary")}
    command = [sys.executable, str(folder / "program/main.py"), str(folder / "job")]
    seen: set[str] = set()
    errors = folder / "errors"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            command,
            cwd=folder / "elsewhere",
            env={**inherited, **own},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        watching = threading.Thread(target=_watch, args=(process, seen))
        watching.start()
        output = process.communicate(timeout=300)[0]
        watching.join()
    assert process.returncode == ExitCode.FAILED_FOR_NOW, output + errors.read_text()
    return Ended(folder, [line.split() for line in output.splitlines()], errors.read_text(), seen)


def _watch(process: subprocess.Popen[str], seen: set[str]) -> None:
    """Collect the command lines of a process and all that it starts, until it ends."""
    while process.poll() is None:
        try:
            root = psutil.Process(process.pid)
            for each in [root, *root.children(recursive=True)]:
                seen.add(" ".join(each.cmdline()))
        except psutil.NoSuchProcess:
            continue
        time.sleep(POLL_S)


def test_a_local_job_listens_on_the_loopback_address_only(job: Ended) -> None:
    listening = job.having("listens")
    assert len(listening) >= 3, "the driver, its blocks, its web page"
    assert {words[-1].removeprefix("::ffff:") for words in listening} == {"127.0.0.1"}


def test_the_ports_of_a_local_job_ask_for_a_secret(job: Ended) -> None:
    assert ["spark.authenticate", "true"] in job.having("setting")


def test_the_sockets_of_workers_lie_in_a_folder_of_the_driver_alone_that_goes_with_it(job: Ended) -> None:
    ((folder, mode, count),) = job.having("sockets")
    assert stat.S_IMODE(int(mode, 8)) == 0o700
    assert int(count) > 0
    assert not os.path.exists(folder)


def test_secrets_reach_spark_but_no_command_line_and_no_file_that_stays(job: Ended) -> None:
    settings = dict(job.having("setting"))
    assert settings["spark.hadoop.fs.a.secret.key"] == "SECRET-of-the-program"
    assert settings["spark.hadoop.fs.b.secret.key"] == "SECRET-of-the-file"
    assert any("SparkSubmit" in line for line in job.command_lines)
    assert [line for line in job.command_lines if "SECRET" in line] == []
    files = [path for name in ("job", "temporary") for path in (job.folder / name).rglob("*") if path.is_file()]
    assert [path for path in files if b"SECRET" in path.read_bytes()] == []


def test_no_process_imports_modules_of_the_directory_in_which_it_is_started(job: Ended) -> None:
    marker = job.folder / "marker"
    assert not marker.exists(), marker.read_text()


def test_what_functions_print_is_on_the_standard_output_of_the_program(job: Ended) -> None:
    assert sorted(job.having("doubles")) == [["1"], ["2"]]
    assert "doubles" not in job.errors


def test_a_program_that_logs_at_info_has_the_console_for_its_own_lines(job: Ended) -> None:
    told = job.errors.split("stops the session\n")[0]
    assert "py4j" not in told and "assignment" not in told


def test_a_session_that_is_stopped_under_a_job_is_told_in_one_line_within_a_screen(job: Ended) -> None:
    wanted = (
        "flinkish.errors.SparkLostError: Spark has gone: its JVM or its server has ended, or the session was stopped "
        "[job 'endless'"
    )
    told = job.errors.split("stops the session\n")[1]
    lines = told.splitlines()
    assert [line for line in lines if line.startswith(wanted)], job.errors
    assert len(lines) <= SCREEN and "\tat " not in told, job.errors
