"""The options with which a driver is started, from those of the user, of a properties file and of the platform."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import ConfigurationError
from flinkish.launch.__main__ import Launch
from flinkish.launch.driver import ReplayRequest
from flinkish.launch.home import Home, settings_variable
from flinkish.launch.options import CommandLine, SparkOptions
from flinkish.launch.spark_command import SparkCommand

pytestmark = pytest.mark.usefixtures("one_archive")

CLASS_PATH = "spark.driver.extraClassPath"
SOCKETS = "spark.python.unix.domain.socket.dir"
YARN = ("--master", "yarn")
CLUSTER = (*YARN, "--deploy-mode", "cluster")


class Platform:
    """An installation of flinkish without packages to resolve, and one of Spark with settings of its own."""

    def __init__(self, folder: Path, of_spark: str = "", of_flinkish: str = "", configuration: str = "") -> None:
        self.file = folder / "conf" / "flinkish.yaml"
        for path, text in (
            (folder / "spark" / "conf" / "spark-defaults.conf", of_spark),
            (folder / "conf" / "spark-defaults.conf", f"spark.jars.packages\n{of_flinkish}"),
            (self.file, configuration),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.environment = {"FLINKISH_HOME": str(folder), "SPARK_HOME": str(folder / "spark")}

    def options(self, *options: str, settings: dict[str, str] | None = None) -> SparkOptions:
        """What spark-submit gets for these options of a user and the settings of the program."""
        environment = {**self.environment, **settings_variable(settings or {}, self.environment)}
        return SparkOptions.parse(SparkCommand(environment, SparkOptions.parse(options)).arguments())


@pytest.mark.parametrize("master", ["local[2]", "yarn", "spark://host:7077"])
@pytest.mark.parametrize(
    ("options", "of_flinkish", "of_spark", "expected"),
    [
        ((), "", "", None),
        ((), "", f"{CLASS_PATH} /s3/*:/x.jar", "/s3/*:/x.jar"),
        (("--driver-class-path", "/mine.jar"), "", f"{CLASS_PATH} /s3/*", "/mine.jar:/s3/*"),
        (("--conf", f"{CLASS_PATH}=/mine.jar"), "", f"{CLASS_PATH} /s3/*", "/mine.jar:/s3/*"),
        (("--conf", f"{CLASS_PATH}=/b.jar", "--driver-class-path", "/a.jar"), "", "", "/a.jar:/b.jar"),
        (
            ("--conf", f"{CLASS_PATH}=/a.jar"),
            f"{CLASS_PATH} /b.jar",
            f"{CLASS_PATH} /s3/*:/a.jar",
            "/a.jar:/b.jar:/s3/*",
        ),
    ],
)
def test_no_class_path_of_the_driver_hides_another_one(
    tmp_path: Path, master: str, options: tuple[str, ...], of_flinkish: str, of_spark: str, expected: str | None
) -> None:
    found = Platform(tmp_path, of_spark, of_flinkish).options("--master", master, *options)
    assert found.value("--driver-class-path") == expected
    assert found.conf(CLASS_PATH) is None, "it would come after the option, and win over it"


@pytest.mark.parametrize(
    ("option", "key"), [("--jars", "spark.jars"), ("--py-files", "spark.submit.pyFiles"), ("--files", "spark.files")]
)
@pytest.mark.parametrize("named", ["option", "key", "file", "platform"])
def test_lists_of_the_user_and_the_platform_are_added_to(tmp_path: Path, option: str, key: str, named: str) -> None:
    line = f"{key} a,b"
    platform = Platform(
        tmp_path, of_spark=line if named == "platform" else "", of_flinkish=line if named == "file" else ""
    )
    users = {"option": (option, "a,b"), "key": ("--conf", f"{key}=a,b")}.get(named, ())
    value = platform.options(*CLUSTER, *users).value(option)
    assert value is not None and value.split(",")[-2:] == ["a", "b"]


@pytest.mark.parametrize(
    ("of_spark", "of_flinkish", "options", "expected"),
    [
        ("", "", (), "local[*]"),
        ("spark.master yarn", "", (), "yarn"),
        ("spark.master yarn", "spark.master local[3]", (), "local[3]"),
        ("spark.master yarn", "", ("--master", "local[2]"), "local[2]"),
    ],
)
def test_the_master_is_that_of_the_platform_unless_somebody_names_another_one(
    tmp_path: Path, of_spark: str, of_flinkish: str, options: tuple[str, ...], expected: str
) -> None:
    platform = Platform(tmp_path, of_spark, of_flinkish)
    assert SparkCommand(platform.environment, SparkOptions.parse(options)).master() == expected
    defaults = platform.options(*options).conf("spark.master")
    assert defaults == (None if of_spark or of_flinkish else "local[*]"), "an option would win over the file"


def test_sockets_of_workers_lie_where_their_paths_are_short_and_on_this_machine_in_the_drivers_folder(
    tmp_path: Path,
) -> None:
    platform = Platform(tmp_path)
    assert platform.options(*YARN).conf(SOCKETS) == platform.options(*CLUSTER).conf(SOCKETS) == "/tmp"
    assert platform.options("--master", "local[2]").conf(SOCKETS) is None
    assert platform.options(*YARN, "--conf", f"{SOCKETS}=/run/user/7").conf(SOCKETS) == "/run/user/7"


def test_a_driver_in_the_cluster_gets_all_settings_of_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = Platform(tmp_path, configuration="parallelism.default: 7\nflinkish.epoch.interval: 3 s\n")
    settings = {"parallelism.default": "5", "flinkish.job.dir": "s3a://jobs/counts"}
    options = platform.options(*CLUSTER, settings=settings)
    shipped, name = (options.value("--files") or "").split("#")
    assert stat.S_IMODE(os.stat(shipped).st_mode) == 0o600
    variable = "FLINKISH_SETTINGS"
    assert options.conf(f"spark.yarn.appMasterEnv.{variable}") == name
    assert options.conf(f"spark.kubernetes.driverEnv.{variable}") == name
    # in the working directory of the driver, where there is nothing else of the launcher's machine
    container = tmp_path / "container"
    container.mkdir()
    Path(shipped).rename(container / name)
    monkeypatch.chdir(container)
    for other in ("FLINKISH_HOME", "FLINKISH_CONF"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(variable, name)
    assert Home(os.environ).settings == {**settings, "flinkish.epoch.interval": "3 s"}
    assert StreamExecutionEnvironment.get_execution_environment().get_parallelism() == 5


def test_a_driver_on_this_machine_has_no_file_of_settings(tmp_path: Path) -> None:
    found = Platform(tmp_path, configuration="parallelism.default: 7\n").options(*YARN, settings={"a": "b"})
    assert found.value("--files") is None and not list(tmp_path.glob(".cache/settings*"))


def test_files_of_settings_that_no_driver_can_wait_for_are_removed(tmp_path: Path) -> None:
    platform = Platform(tmp_path)
    old = Path((platform.options(*CLUSTER).value("--files") or "").partition("#")[0])
    os.utime(old, (0, 0))
    new = Path((platform.options(*CLUSTER).value("--files") or "").partition("#")[0])
    assert new.exists() and not old.exists()


def test_settings_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="FLINKISH_SETTINGS"):
        Home({"FLINKISH_SETTINGS": str(tmp_path / "nothing.json")})
    assert Home({"FLINKISH_SETTINGS": json.dumps({"a": "b"})}).settings == {"a": "b"}


def test_the_log_of_spark_submit_stays_on_the_console_where_the_driver_is_elsewhere(tmp_path: Path) -> None:
    def variables(*options: str) -> dict[str, str]:
        command = SparkCommand(Platform(tmp_path).environment, SparkOptions.parse(options))
        return command.jvm_environment([])

    assert "LOG4J_CONFIGURATION_FILE" in variables(*YARN)
    assert "LOG4J_CONFIGURATION_FILE" not in variables(*CLUSTER)


def test_a_replay_is_not_sent_into_a_cluster_where_it_would_be_a_run(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.touch()
    replay = ReplayRequest("/jobs/counts", epoch=3).variables()
    line = CommandLine.parse([str(program), "--", *CLUSTER])
    with pytest.raises(ConfigurationError, match="a replay runs in a driver on this machine"):
        Launch(line, {**Platform(tmp_path).environment, **replay}).check()
