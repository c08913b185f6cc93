"""What can be looked at without Spark: the versions of this machine, the configuration, jars, files with secrets, the
job directory as this process sees it, and the REST API of the job that runs there.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from flinkish import __version__
from flinkish.common.config_file import load_yaml
from flinkish.common.configuration import Configuration
from flinkish.common.options import rest
from flinkish.doctor.directory import storage_clock, trial_folder, tried
from flinkish.doctor.findings import (
    Finding,
    Level,
    Versions,
    looked_at,
    of_clock,
    of_mode,
    of_trials,
    of_versions,
    ok,
)
from flinkish.errors import ConnectionFailedError, FlinkishError, is_secret
from flinkish.interpreter import ROOT
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.fencing import Liveness, liveness_of
from flinkish.jobdir.layout import Owner
from flinkish.launch.__main__ import Launch
from flinkish.launch.home import SETTINGS, Home
from flinkish.launch.options import CommandLine, read_properties
from flinkish.launch.spark_version import pyspark_version
from flinkish.rest.access import default_token_file
from flinkish.rest.client import RestClient, token_in
from flinkish.spark.session import installed_java
from flinkish.storage.files import is_directory
from flinkish.storage.paths import check_private, is_local, local_path

#: How long a REST API is waited for, and the driver that looks at Spark.
_REST_TIMEOUT_S, _SPARK_TIMEOUT_S = 5.0, 300.0
#: So many lines of a driver that has failed are shown.
_LAST_LINES = 3


def configuration_of_programs(environment: Mapping[str, str] = os.environ) -> Configuration:
    """The configuration with which a program begins.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    home = Home(environment)
    configuration = load_yaml(home.configuration_file) if home.configuration_file else Configuration()
    return configuration.add_all(Configuration.from_dict(home.settings))


def launch_of_spark(file: str, job_dir: str | None, spark: list[str], environment: Mapping[str, str]) -> Launch:
    """The start of the driver that looks at Spark."""
    driver = str(resources.files("flinkish.doctor").joinpath("spark.py"))
    options = ["--", *spark] if spark else []
    return Launch(CommandLine.parse([driver, file, *([job_dir] if job_dir else []), *options]), environment)


def findings(
    job_dir: str | None, spark: list[str], with_spark: bool, environment: Mapping[str, str]
) -> Iterator[Finding]:
    """All findings, each when it is known.

    Args:
        job_dir: the job directory that is tried out; None: none.
        spark: options for Spark, as behind ``--``.
        with_spark: whether Spark is started.
        environment: the environment variables of the driver.
    """
    local = None if job_dir is None else local_path(job_dir)
    made = local is not None and not os.path.exists(local)
    try:
        yield from _findings(job_dir, spark, with_spark, environment)
    finally:
        if made and local is not None:
            # only this look has made it, if there is nothing in it
            with suppress(OSError):
                os.rmdir(local)


def _findings(
    job_dir: str | None, spark: list[str], with_spark: bool, environment: Mapping[str, str]
) -> Iterator[Finding]:
    with tempfile.TemporaryDirectory(prefix="flinkish-doctor-") as folder:
        file = os.path.join(folder, "findings.json")
        launch = launch_of_spark(file, job_dir, spark, environment)
        yield ok("flinkish", f"{__version__} ({ROOT})")
        found = _versions(launch)
        yield from found
        yield looked_at("Configuration", lambda: _configuration(environment))
        yield from _secrets(environment)
        if job_dir is not None:
            yield from _directory(job_dir)
            yield from _driver(job_dir)
        if not with_spark:
            return
        if any(one.level is Level.FAIL for one in found):
            yield Finding("Spark", Level.FAIL, "not started: see above", "mend what has failed first")
            return
        yield from _of_spark(launch, file)


def _versions(launch: Launch) -> list[Finding]:
    elsewhere = (launch.command.remote() or "").startswith("sc:")
    found = Versions(
        platform.python_version(),
        installed_java(),
        pyspark_version(),
        _version("pyarrow"),
        _version("pandas"),
        not elsewhere,
    )

    def home() -> str:
        launch.check()
        return os.environ.get("SPARK_HOME") or "that of PySpark"

    spark = [looked_at("Spark's installation", home)] if found.pyspark is not None else []
    return [*of_versions(found), *spark]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _configuration(environment: Mapping[str, str]) -> str:
    configuration = configuration_of_programs(environment)
    configuration.validate()
    without = configuration.without_effect()
    file = Home(environment).configuration_file or "no file (FLINKISH_CONF)"
    return file + (f"; without effect: {', '.join(sorted(without))}" if without else "")


# ------------------------------------------------------------------------------------------------ files


def _secrets(environment: Mapping[str, str]) -> Iterator[Finding]:
    """The modes of the files with secrets, and of the directory whose content decides what runs."""
    home = Home(environment)

    def cache() -> str:
        return str(home.cache)

    yield looked_at("flinkish's cache", cache)
    for path in sorted(set(_files_with_secrets(home, environment))):
        with suppress(FileNotFoundError):
            found = path.stat()
            yield of_mode(str(path), found.st_mode, found.st_uid, os.geteuid())


def _files_with_secrets(home: Home, environment: Mapping[str, str]) -> Iterator[Path]:
    yield from default_token_file(0).parent.glob("*.token")
    configuration = Configuration()
    with suppress(FlinkishError):
        configuration = configuration_of_programs(environment)
        for option in (rest.TOKEN_FILE,):
            if (named := configuration.get(option)) is not None and named != "none":
                yield Path(named)
    if home.configuration_file and any(map(is_secret, configuration.key_set())):
        yield Path(home.configuration_file)
    if (named := environment.get(SETTINGS, "")) and not named.startswith("{"):
        yield Path(named)
    platform_file = Path(environment.get("SPARK_CONF_DIR") or os.devnull, "spark-defaults.conf")
    for file in filter(None, (home.own_spark_settings, platform_file)):
        if file.is_file() and any(map(is_secret, read_properties(file.read_text(errors="replace")))):
            yield file


def _directory(job_dir: str) -> Iterator[Finding]:
    """The job directory from this process."""
    there = looked_at("Job directory", lambda: "there" if is_directory(job_dir) else "it is made by the first start")
    yield there
    if there.level is not Level.OK:
        return
    folder = trial_folder(job_dir)
    trials = tried(folder, exclusively=is_local(job_dir))
    yield of_trials("Directory from here", trials)
    if not any(one.error for one in trials):
        clock = storage_clock(folder)
        if clock is not None:
            yield of_clock("Clock of the storage", *clock)
    local = local_path(job_dir)
    if local is not None:
        yield looked_at("Mode of the directory", lambda: _private(local))
        yield _space(local)


def _private(path: str) -> str:
    check_private(path, "the job directory")
    return "nobody else can write to it"


def _space(path: str) -> Finding:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    free = shutil.disk_usage(path).free
    text = f"{free / 2**30:.1f} GiB free"
    return Finding("Space", Level.WARN, text, "make space") if free < 2**30 else ok("Space", text)


# ------------------------------------------------------------------------------------------------ a running job


def _driver(job_dir: str) -> Iterator[Finding]:
    """The driver that owns the directory, and its REST API."""
    try:
        owner = JobDirectory(job_dir).read(Owner)
    except FlinkishError as error:
        yield Finding("Driver", Level.FAIL, error.what, error.hint or error.expected)
        return
    liveness = liveness_of(owner)
    if owner is None or liveness is Liveness.GONE:
        yield ok("Driver", "no driver runs a job here")
        return
    yield ok(
        "Driver", f"process {owner.pid} on {owner.host}, {'alive' if liveness is Liveness.ALIVE else liveness.value}"
    )
    if not owner.rest:
        hint = "pip install uvicorn starlette, or set flinkish.rest.enabled: true; commands reach it through files"
        yield Finding("REST API", Level.WARN, "the driver has none", hint)
        return
    yield _rest(owner.rest, liveness is Liveness.ALIVE)


def _rest(url: str, here: bool) -> Finding:
    name = "REST API"
    try:
        client = RestClient(url, timeout_s=_REST_TIMEOUT_S)
        RestClient(url, token_in(default_token_file(client.port)), timeout_s=_REST_TIMEOUT_S).get("/config")
        return ok(name, f"{url} answers")
    except ConnectionFailedError as error:
        hint = (
            "the driver hangs or is ending" if here else "it listens to its own machine alone, unless rest.bind-address"
        )
        return Finding(name, Level.FAIL if here else Level.WARN, error.what, hint)
    except FlinkishError as error:
        return Finding(name, Level.WARN, error.what, error.hint)


# ------------------------------------------------------------------------------------------------ Spark


def _of_spark(launch: Launch, file: str) -> Iterator[Finding]:
    """What the driver finds that is started for it."""
    if launch.command.in_cluster_mode():
        text = "not started: deploy mode cluster"
        yield Finding("Spark", Level.WARN, text, "look at it in client mode: flinkish doctor -- --deploy-mode client")
        return
    try:
        arguments = launch.command.arguments()
    except FlinkishError as error:
        yield Finding("Jars", Level.FAIL, error.what, error.hint or error.expected)
        return
    yield ok("Jars", launch.command.packages() or "none of Maven's: Spark has Delta Lake")
    try:
        ended = subprocess.run(
            launch.words(),
            env=launch.driver_environment(arguments),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SPARK_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        hint = f"look at {launch.command.home.spark_log}, and whether the master has free cores"
        yield Finding("Spark", Level.FAIL, f"it did not come up within {_SPARK_TIMEOUT_S:.0f} s", hint)
        return
    try:
        yield from map(Finding.from_json, json.loads(Path(file).read_text()))
    except (OSError, ValueError):
        said = " / ".join([line for line in ended.stderr.split("\n") if line[:1].strip()][-_LAST_LINES:])
        hint = f"look at {launch.command.home.spark_log}"
        yield Finding("Spark", Level.FAIL, f"its driver has ended with exit code {ended.returncode}: {said}", hint)
