"""With which options, variables and files a program starts its JVM."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from flinkish.launch.options import SparkOptions, read_properties
from flinkish.launch.spark_command import (
    SUBMIT_ARGUMENTS,
    SparkCommand,
    local_settings,
    submit_arguments,
    submitted_options,
)
from flinkish.spark.driver_jvm import submit_variables

pytestmark = pytest.mark.usefixtures("one_archive")

SOCKETS = "spark.python.unix.domain.socket.dir"


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_LOCAL_IP", "PYTHONSAFEPATH", SUBMIT_ARGUMENTS):
        monkeypatch.delenv(name, raising=False)


def started(monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    """Makes the environment that of a program that the launcher has started with these options."""
    monkeypatch.setenv(SUBMIT_ARGUMENTS, submit_arguments(list(options)))


def file_in_force() -> Path:
    file = submitted_options(os.environ).value("--properties-file")
    assert file is not None
    return Path(file)


def settings_in_force() -> Mapping[str, str]:
    return read_properties(file_in_force().read_text())


def test_settings_are_in_a_file_of_this_user_alone_while_the_jvm_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    started(monkeypatch, "--master", "local[1]", "--conf", "spark.a.password=SECRET", "--jars", "x.jar")
    before = os.environ[SUBMIT_ARGUMENTS]
    with submit_variables({"spark.b.password": "SECRET"}):
        assert "SECRET" not in os.environ[SUBMIT_ARGUMENTS]
        assert submitted_options(os.environ).value("--jars") == "x.jar"
        file = file_in_force()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert {settings_in_force()[key] for key in ("spark.a.password", "spark.b.password")} == {"SECRET"}
    assert not file.exists()
    assert os.environ[SUBMIT_ARGUMENTS] == before


def test_settings_of_the_program_are_above_those_of_its_start_and_these_above_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    named = tmp_path / "own.conf"
    named.write_text("spark.x file\nspark.y file\nspark.z file\n")
    conf = ("--conf", "spark.y=start", "--conf", "spark.z=start")
    started(monkeypatch, "--properties-file", str(named), "--master", "local[1]", *conf)
    with submit_variables({"spark.z": "program"}):
        found = settings_in_force()
    assert [found[key] for key in ("spark.x", "spark.y", "spark.z")] == ["file", "start", "program"]


def test_the_jvm_of_a_cluster_has_nothing_of_a_local_master(monkeypatch: pytest.MonkeyPatch) -> None:
    local = [word for key, value in local_settings("local[*]", {}).items() for word in ("--conf", f"{key}={value}")]
    started(monkeypatch, *local, "--conf", "spark.kept=yes")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    with submit_variables({"spark.master": "spark://host:7077"}):
        found = {key: value for key, value in settings_in_force().items() if key != "spark.flinkish.launched"}
        assert found == {"spark.kept": "yes", "spark.master": "spark://host:7077"}
        assert not {"SPARK_LOCAL_IP", "PYTHONSAFEPATH"} & os.environ.keys()
    assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("environment", "file", "options", "host"),
    [
        ({}, "", (), "127.0.0.1"),
        ({"SPARK_LOCAL_IP": "10.0.0.1"}, "", (), None),
        ({}, "spark.driver.host 10.0.0.1\n", (), None),
        ({}, "spark.master spark://host:7077\n", (), None),
        ({}, "", (("--master", "spark://host:7077"),), None),
        ({}, "", (("--conf", "spark.driver.host=10.0.0.1"),), "10.0.0.1"),
    ],
)
def test_a_local_master_listens_on_the_loopback_address_unless_the_user_names_another_one(
    environment: dict[str, str],
    file: str,
    options: tuple[tuple[str, str], ...],
    host: str | None,
    tmp_path: Path,
) -> None:
    named = tmp_path / "own.conf"
    named.write_text(f"spark.jars.packages\n{file}")
    home = tmp_path / "conf/spark-defaults.conf"
    home.parent.mkdir()
    home.write_text("spark.jars.packages\n")
    environment = {"FLINKISH_HOME": str(tmp_path), **environment}
    spark = SparkOptions((("--properties-file", str(named)), *options))
    arguments = SparkOptions.parse(SparkCommand(environment, spark).arguments())
    assert arguments.conf("spark.driver.host") == host


@pytest.fixture
def folders() -> Iterator[list[Path]]:
    """Folders of sockets: of a driver that lives, and of one that was killed."""
    made = [Path(tempfile.mkdtemp(prefix="flinkish-driver-", dir="/tmp")) for _ in range(2)]
    lock = os.open(made[0], os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (made[1] / ".x.sock").touch()
    yield made
    os.close(lock)
    for folder in made:
        shutil.rmtree(folder, ignore_errors=True)


def test_the_settings_of_a_driver_that_was_killed_during_its_start_are_removed_at_the_next_one(tmp_path: Path) -> None:
    begin = (
        "import os, signal\n"
        "from flinkish.launch.spark_command import SUBMIT_ARGUMENTS, submit_arguments\n"
        "from flinkish.spark.driver_jvm import submit_variables\n"
        "os.environ[SUBMIT_ARGUMENTS] = submit_arguments(['--master', 'spark://host:7077'])\n"
        "with submit_variables({'spark.secret': 'hidden'}):\n"
        "    words = os.environ[SUBMIT_ARGUMENTS].split()\n"
        "    print(words[words.index('--properties-file') + 1], flush=True)\n"
    )
    # a folder of its own: the driver of another test would remove them, too
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3]), "TMPDIR": str(tmp_path)}

    def start(end: str) -> Path:
        command = [sys.executable, "-c", begin + end]
        result = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=60)
        assert result.stdout, result.stderr
        return Path(result.stdout.splitlines()[-1])

    left = start("    os.kill(os.getpid(), signal.SIGKILL)\n")
    assert "hidden" in left.read_text()
    assert left.stat().st_mode & 0o777 == 0o600 and left.parent.stat().st_mode & 0o777 == 0o700
    assert not start("").exists()
    assert not left.parent.exists()


def test_the_sockets_of_killed_drivers_are_removed_at_the_next_start(tmp_path: Path, folders: list[Path]) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os\n"
        "from flinkish.launch.spark_command import SUBMIT_ARGUMENTS, submit_arguments\n"
        "from flinkish.spark.driver_jvm import submit_variables\n"
        "os.environ[SUBMIT_ARGUMENTS] = submit_arguments(['--master', 'local[1]'])\n"
        "with submit_variables({}):\n"
        "    words = os.environ[SUBMIT_ARGUMENTS].split()\n"
        "    print(open(words[words.index('--properties-file') + 1]).read())\n"
        "    print(os.environ['PYTHONSAFEPATH'], os.environ['PYTHONPATH'])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    command = [sys.executable, str(program)]
    result = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert [folder.exists() for folder in folders] == [True, False]
    own = read_properties(result.stdout)[SOCKETS]
    assert own.startswith("/tmp/flinkish-driver-") and not os.path.exists(own)
    assert result.stdout.splitlines()[-1] == f"1 {environment['PYTHONPATH']}{os.pathsep}{tmp_path}"
