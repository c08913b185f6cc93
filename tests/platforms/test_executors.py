"""A standalone cluster whose two workers have a Python of their own each, with nothing of the driver's: only pandas and
pyarrow. Wherever flinkish comes from, and however the program is started, the executors import the driver's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark
import pytest

from flinkish.error_display import ExitCode
from flinkish.launch.packages import own_archive
from tests.platforms.located_job import COUNT
from tests.support.connect_server import start_connect_server
from tests.support.local_cluster import StandaloneCluster, python_environment
from tests.support.processes import REPOSITORY, ProcessGroup
from tests.support.submit import INHERITED

pytestmark = pytest.mark.platforms

NEEDED = ("pandas", "pyarrow", "numpy", "dateutil", "pytz", "tzdata", "six")
PROGRAM = str(REPOSITORY / "tests" / "platforms" / "located_job.py")
SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
TIMEOUT_S = 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("executors")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[StandaloneCluster]:
    pythons = [python_environment(folder / f"python-{number}", NEEDED) for number in range(2)]
    with StandaloneCluster(folder, 2, pythons) as running:
        yield running


@pytest.fixture(scope="module")
def driver(folder: Path) -> Path:
    """The Python of the driver, which has PySpark and no flinkish."""
    return python_environment(folder / "driver", (*NEEDED, "pyspark", "py4j", "psutil", "yaml")) / "python3"


@pytest.fixture(scope="module")
def packed(folder: Path) -> Path:
    """The archive of an environment that the command of the page on executors makes."""
    page = (REPOSITORY / "docs" / "executors.md").read_text()
    command = re.search(r"^python3 -m venv .*venv-pack -o (\S+)$", page, re.MULTILINE)
    assert command is not None
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(command[0], shell=True, check=True, cwd=folder, env={**os.environ, "PATH": path})
    return folder / command[1]


def run(
    tmp_path: Path, command: list[str], settings: Mapping[str, str], pythons: str, **variables: str
) -> ProcessGroup:
    """Starts a program whose executors run the interpreter `pythons`, in an environment that names nothing else."""
    configuration = tmp_path / "flinkish.yaml"
    settings = {"flinkish.job.dir": str(tmp_path / "job"), "flinkish.prepare": "off", **settings}
    configuration.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in settings.items()))
    names = (*INHERITED, "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV")
    environment = {"FLINKISH_CONF": str(configuration), "PYSPARK_PYTHON": pythons, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= variables
    without = [part for name in names if name in os.environ and name not in environment for part in ("-u", name)]
    return ProcessGroup(["env", *without, *command], tmp_path / "driver.log", environment)


def records(output: str) -> list[tuple[int, str, str]]:
    return [tuple(json.loads(line)) for line in output.splitlines() if re.match(r"\[\d", line)]


def check(output: str, folder: Path) -> None:
    """Each record was processed once, by the workers' Pythons alone, with the flinkish that was shipped to them."""
    found = records(output)
    assert sorted(record for record, _, _ in found) == list(range(COUNT)), output
    for place in {place for _, *places in found for place in places}:
        interpreter, module = place.split(" ")
        assert interpreter.startswith(str(folder / "python-")), place
        assert re.fullmatch(rf"(\.|{folder}/work-)\S*/flinkish-\w+\.zip/flinkish/__init__\.py", module), place


@pytest.mark.parametrize("start", ["flinkish run", "python", "spark-submit", "own session"])
@pytest.mark.parametrize("origin", ["checkout", "zip"])
def test_the_executors_import_the_flinkish_of_the_driver(
    start: str, origin: str, tmp_path: Path, folder: Path, cluster: StandaloneCluster, driver: Path
) -> None:
    path = str(REPOSITORY) if origin == "checkout" else str(own_archive(tmp_path / "zip"))
    variables, settings = {"PYTHONPATH": path}, {}
    command = [str(driver), PROGRAM]
    if start == "flinkish run":
        command = [str(driver), "-m", "flinkish.cli", "run", PROGRAM, "--", "--master", cluster.url]
    elif start == "spark-submit":
        command = [SUBMIT, "--master", cluster.url, PROGRAM]
        variables["PYSPARK_DRIVER_PYTHON"] = str(driver)
    elif start == "own session":
        command += ["--own-session", cluster.url]
    else:
        settings = {"spark.master": cluster.url}
    with run(tmp_path, command, settings, "python3", **variables) as job:
        check(job.succeed(TIMEOUT_S), folder)


def test_under_spark_connect_the_executors_import_the_flinkish_that_the_client_ships(
    tmp_path: Path, folder: Path, cluster: StandaloneCluster
) -> None:
    server, url = start_connect_server(tmp_path / "server", cluster.url)
    variables = {"PYTHONPATH": str(REPOSITORY), "SPARK_REMOTE": url}
    with server, run(tmp_path, [sys.executable, PROGRAM], {}, "python3", **variables) as job:
        check(job.succeed(TIMEOUT_S), folder)


@pytest.mark.parametrize("start", ["flinkish run", "spark-submit"])
def test_a_packed_environment_runs_the_executors_and_files_of_py_files_are_found_by_the_planner_too(
    start: str, tmp_path: Path, folder: Path, cluster: StandaloneCluster, driver: Path, packed: Path
) -> None:
    pricing = tmp_path / "pricing.zip"
    with zipfile.ZipFile(pricing, "w") as modules:
        modules.writestr("pricing.py", "def price(record):\n    return 3 * record\n")
    options = ["--master", cluster.url, "--archives", f"{packed}#environment", "--py-files", str(pricing)]
    command = [str(driver), "-m", "flinkish.cli", "run", PROGRAM, "--", *options]
    variables = {"PYTHONPATH": str(REPOSITORY), "PYSPARK_DRIVER_PYTHON": str(driver)}
    if start == "spark-submit":
        command = [SUBMIT, *options, PROGRAM]
    with run(tmp_path, command, {}, "./environment/bin/python", **variables) as job:
        found = records(job.succeed(TIMEOUT_S))
    assert sorted(record for record, _, _ in found) == [3 * number for number in range(COUNT)]
    places = {place for _, *places in found for place in places}
    assert all(place.startswith(str(folder / "work-")) and "/environment/bin/python " in place for place in places)


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        (("pyarrow", "numpy"), "lacks packages: {python} on host [^ ]+: Pandas >= [^ ]+ must be installed"),
        (None, "does not have the Python that the executors are to run: .*{python}"),
    ],
    ids=["no pandas", "no Python"],
)
def test_what_an_executor_lacks_is_said_before_the_first_epoch(
    packages: tuple[str, ...] | None,
    expected: str,
    tmp_path: Path,
    cluster: StandaloneCluster,
    driver: Path,
) -> None:
    python = tmp_path / "lacking" / "bin" / "python3"
    if packages is not None:
        python_environment(tmp_path / "lacking", packages)
    command = [str(driver), "-m", "flinkish.cli", "run", PROGRAM, "--", "--master", cluster.url]
    with run(tmp_path, command, {}, str(python), PYTHONPATH=str(REPOSITORY)) as job:
        said = job.end_with(ExitCode.FAILED, TIMEOUT_S)
    (line,) = [line for line in said.splitlines() if "EnvironmentVersionError" in line]
    assert re.search(expected.format(python=python), line), said
    assert not (tmp_path / "job").exists()


def test_a_job_directory_that_the_executors_do_not_share_is_refused_in_one_line_and_stays_empty(
    tmp_path: Path, cluster: StandaloneCluster, driver: Path
) -> None:
    hidden, python = tmp_path / "hidden", tmp_path / "elsewhere"
    hidden.mkdir()
    # the workers run in a mount namespace of their own, in which the folder is another one, as on another machine
    python.write_text(
        f'#!/bin/sh\nexec unshare -rm sh -c \'mount -t tmpfs none {hidden} && exec python3 "$@"\' - "$@"\n'
    )
    python.chmod(0o755)
    settings = {"flinkish.job.dir": str(hidden / "job")}
    command = [str(driver), "-m", "flinkish.cli", "run", PROGRAM, "--", "--master", cluster.url]
    with run(tmp_path, command, settings, str(python), PYTHONPATH=str(REPOSITORY)) as job:
        said = job.end_with(ExitCode.FAILED, TIMEOUT_S)
    (line,) = [line for line in said.splitlines() if "ConfigurationError" in line]
    assert "do not have the job directory of the driver" in line and "flinkish.job.dir" in line, said
    assert list((hidden / "job").iterdir()) == []
