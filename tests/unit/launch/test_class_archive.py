"""The archive of the JVM's classes: which file, and when a driver's JVM is told of it."""

from __future__ import annotations

import fcntl
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from flinkish.launch.class_archive import JVM_OPTIONS, options, path_in, short_lived
from flinkish.launch.options import SparkOptions
from flinkish.launch.spark_command import SparkCommand
from tests.support.processes import python_path


def java(folder: Path) -> dict[str, str]:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text("17")
    return {"JAVA_HOME": str(folder)}


def test_without_an_archive_the_options_stay_as_they_are(tmp_path: Path) -> None:
    environment = java(tmp_path / "java")
    assert options(tmp_path, environment) == ""
    assert options(tmp_path, {**environment, JVM_OPTIONS: "-Da=b"}) == "-Da=b"


def test_an_archive_goes_behind_what_the_user_has_set(tmp_path: Path) -> None:
    environment = java(tmp_path / "java")
    archive = path_in(tmp_path, environment)
    archive.touch()
    given = options(tmp_path, {**environment, JVM_OPTIONS: "-Da=b"})
    assert given.startswith("-Da=b ") and given.endswith(f"-XX:SharedArchiveFile={archive}")


@pytest.mark.parametrize("chosen", ["-XX:SharedArchiveFile=/mine.jsa", "-XX:ArchiveClassesAtExit=/mine.jsa"])
def test_an_archive_that_the_user_has_chosen_stays(tmp_path: Path, chosen: str) -> None:
    environment = {**java(tmp_path / "java"), JVM_OPTIONS: chosen}
    path_in(tmp_path, environment).touch()
    assert options(tmp_path, environment) == chosen


def test_another_java_has_another_archive(tmp_path: Path) -> None:
    old, new = java(tmp_path / "old"), java(tmp_path / "new")
    path_in(tmp_path, old).touch()
    assert options(tmp_path, new) == ""
    assert path_in(tmp_path, old) == path_in(tmp_path, dict(old)) != path_in(tmp_path, new)


def test_the_driver_is_told_of_the_archive_and_a_cluster_is_not(tmp_path: Path) -> None:
    environment = {**java(tmp_path / "java"), "FLINKISH_HOME": str(tmp_path)}
    path_in(tmp_path / ".cache", environment).parent.mkdir(exist_ok=True)
    path_in(tmp_path / ".cache", environment).touch()
    here = SparkCommand(environment, SparkOptions(()))
    assert "SharedArchiveFile" in here.jvm_environment([])[JVM_OPTIONS]
    cluster = SparkCommand(environment, SparkOptions((("--deploy-mode", "cluster"),)))
    assert JVM_OPTIONS not in cluster.jvm_environment([])


def test_when_the_jvm_compiles_is_said_with_an_archive_unless_the_user_has(tmp_path: Path) -> None:
    environment = java(tmp_path / "java")
    path_in(tmp_path, environment).touch()
    assert "-XX:Tier4InvocationThreshold=" in options(tmp_path, environment)
    chosen = options(tmp_path, {**environment, JVM_OPTIONS: "-XX:TieredStopAtLevel=1"})
    assert chosen.startswith("-XX:TieredStopAtLevel=1 ") and "Tier4" not in chosen


def test_an_archive_below_a_folder_with_a_space_is_one_option(tmp_path: Path) -> None:
    cache, environment = tmp_path / "my cache", java(tmp_path / "java")
    cache.mkdir()
    archive = path_in(cache, environment)
    archive.touch()
    # Spark's scripts split the options as a shell does
    assert shlex.split(options(cache, environment))[-1] == f"-XX:SharedArchiveFile={archive}"


@pytest.mark.parametrize(
    ("given", "starts_fast"),
    [
        ("", True),
        ("-Xmx2g", True),
        ("-XX:Tier4CompileThreshold=150000 -XX:SharedArchiveFile=/a.jsa", True),
        ("-XX:+UseZGC", False),
        ("-XX:TieredStopAtLevel=4", False),
    ],
)
def test_a_jvm_that_lives_shortly_starts_fast_unless_the_user_has_chosen_its_compiler_or_collector(
    given: str, starts_fast: bool
) -> None:
    options = short_lived(given)
    assert options.startswith(given)
    assert ("TieredStopAtLevel=1" in options, "UseSerialGC" in options) == (starts_fast, starts_fast)


@pytest.mark.parametrize(("archive", "said"), [("missing", 1), ("made", 0), ("being made", 0)])
def test_a_program_that_starts_without_the_archive_says_once_at_its_end_that_it_is_made(
    archive: str, said: int, tmp_path: Path
) -> None:
    environment = {**os.environ, "PYTHONPATH": python_path(), **java(tmp_path / "java")}
    if archive == "made":
        path_in(tmp_path, environment).touch()
    lock = (tmp_path / "classes.lock").open("w")
    if archive == "being made":
        fcntl.flock(lock, fcntl.LOCK_EX)
    program = (
        "import os, pathlib, sys\n"
        "from flinkish.launch.class_archive import make_after_this_program\n"
        "for _ in range(2): make_after_this_program(pathlib.Path(sys.argv[1]), dict(os.environ))\n"
        "print('end of the program', file=sys.stderr)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with lock:
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = result.stderr.splitlines()
    assert lines[0] == "end of the program"
    assert sum("in the background" in line for line in lines) == said
