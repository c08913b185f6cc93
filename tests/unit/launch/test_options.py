"""The launcher's command line, without starting anything."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from flinkish.errors import ConnectionFailedError
from flinkish.launch import packages, spark_version
from flinkish.launch.__main__ import Launch
from flinkish.launch.options import CommandLine, SparkOptions, comma_list, read_properties
from flinkish.launch.packages import archive, own_archive
from flinkish.launch.spark_command import SparkCommand

DELTA = f"io.delta:delta-spark_4.2_2.13:{version('delta-spark')}"


def command(*argv: str, environment: Mapping[str, str] | None = None) -> SparkCommand:
    return SparkCommand(environment or {}, CommandLine.parse(["job.py", *argv]).spark)


def test_only_the_first_two_dashes_split_the_command_line() -> None:
    line = CommandLine.parse(["job.py", "a", "--", "--conf", "x=--", "--", "b"])
    assert line.job_options == ("a",)
    assert line.spark.tokens() == ["--conf", "x=--", "--", "b"]


def test_an_option_with_an_equals_sign_is_the_same_as_one_with_a_blank() -> None:
    assert SparkOptions.parse(["--master=local[2]"]) == SparkOptions.parse(["--master", "local[2]"])


def test_the_last_of_several_options_counts_as_it_does_for_spark() -> None:
    options = SparkOptions.parse(["--conf", "a=1", "-c", "a=2=3", "--master", "x", "--master", "y"])
    assert options.conf("a") == "2=3"
    assert options.value("--master") == "y"
    assert options.value("--jars") is None


def test_an_option_wins_over_its_configuration_key() -> None:
    options = SparkOptions.parse(["--master", "yarn", "--conf", "spark.master=local"])
    assert options.either("--master", "spark.master") == "yarn"


def test_a_flag_takes_no_value() -> None:
    assert SparkOptions.parse(["--verbose", "--master", "x"]).value("--master") == "x"


@pytest.mark.parametrize("text", ["a b c", "a=b c", "  a   b c  ", "a = b c", "# no\n\na\tb c"])
def test_properties_are_read_as_spark_reads_them(text: str) -> None:
    assert read_properties(text) == {"a": "b c"}


@pytest.mark.parametrize("end", ["\u2028", "\x85", "\x0c", "\x1c"], ids=ascii)
def test_a_value_of_a_property_is_no_other_line(end: str) -> None:
    found = read_properties(f"spark.app.name a{end}spark.master=x\r\nspark.a=1\n")
    assert found == {"spark.app.name": f"a{end}spark.master=x", "spark.a": "1"}


def test_lists_are_merged_without_doubles_and_blanks() -> None:
    assert comma_list("a, b,,", None, ["c", "a"]) == "a,b,c"


def test_kafka_needs_no_package_of_sparks() -> None:
    assert command("--bootstrap-servers", "h:1").packages() == DELTA


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ["/own"]),
        (("--py-files", "/lib/a.zip,/lib/b.py,/lib/c.py,file:/d%20e.egg"), ["/lib/a.zip", "/lib", "/d e.egg", "/own"]),
        (("--conf", "spark.submit.pyFiles=a.zip"), [os.path.abspath("a.zip"), "/own"]),
        (("--py-files", "s3a://bucket/a.zip,local:///opt/b.zip"), ["/own"]),
        (("--deploy-mode", "cluster", "--master", "yarn", "--py-files", "/lib/a.zip"), ["/own"]),
    ],
)
def test_a_program_imports_the_users_python_files_as_under_spark_submit(
    options: tuple[str, ...], expected: list[str]
) -> None:
    launch = Launch(CommandLine.parse(["job.py", "--", *options]), {"PYTHONPATH": "/own"})
    assert launch.driver_environment([])["PYTHONPATH"].split(os.pathsep) == expected


def test_the_users_packages_are_added() -> None:
    assert command("--", "--packages", "a:b:1").packages() == f"{DELTA},a:b:1"
    assert command("--", "--conf", "spark.jars.packages=a:b:1").packages() == f"{DELTA},a:b:1"


def test_the_same_sources_give_the_same_archive_and_others_another(tmp_path: Path) -> None:
    package = tmp_path / "thing"
    package.mkdir()
    (package / "__init__.py").write_text("x = 1\n")
    first = archive(package, tmp_path / "cache")
    written_ns = first.stat().st_mtime_ns
    assert archive(package, tmp_path / "cache") == first
    assert first.stat().st_mtime_ns == written_ns
    (package / "__init__.py").write_text("x = 2\n")
    assert archive(package, tmp_path / "cache") != first
    assert first.exists()  # a job that runs may still need it


def test_a_process_that_imports_flinkish_from_a_zip_with_other_packages_archives_flinkish_alone(tmp_path: Path) -> None:
    expected = own_archive(tmp_path / "cache")
    mixed = tmp_path / "libraries.zip"
    with zipfile.ZipFile(expected) as flinkish, zipfile.ZipFile(mixed, "w") as written:
        for name in flinkish.namelist():
            written.writestr(name, flinkish.read(name))
        written.writestr("other.py", "")
    program = f"""
import sys, pathlib
sys.path.insert(0, {str(mixed)!r})
from flinkish.launch import packages as archive
assert archive.__file__.startswith({str(mixed)!r})
print(archive.own_archive(pathlib.Path({str(tmp_path / "other")!r})).name)"""
    # -S: neither an installed flinkish nor an editable one can be imported
    command = [sys.executable, "-S", "-c", program]
    result = subprocess.run(command, cwd="/", env={}, capture_output=True, text=True, timeout=60)
    assert result.stdout.strip() == expected.name, result.stderr


@pytest.mark.parametrize("as_uri", [False, True])
def test_jars_below_a_folder_with_a_space_are_remembered_and_on_the_class_path(
    as_uri: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "my jars" / "a.jar"
    jar.parent.mkdir()
    jar.touch()
    found = jar.as_uri() if as_uri else str(jar)
    monkeypatch.setattr(packages, "resolved_by_spark", lambda *_: [found])
    assert packages.resolve("io.delta:delta", SparkOptions(()), tmp_path) == [found]
    monkeypatch.setattr(packages, "resolved_by_spark", lambda *_: pytest.fail("it is resolved again"))
    remembered = packages.resolve("io.delta:delta", SparkOptions(()), tmp_path)
    assert [packages.path_of(path) for path in remembered] == [str(jar)]


def test_what_a_resolution_has_found_is_remembered_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "a.jar"
    jar.touch()
    written: list[Path] = []
    write = Path.write_text

    def killed(path: Path, text: str) -> int:
        written.append(path)
        write(path, text[:3])
        raise KeyboardInterrupt

    monkeypatch.setattr(packages, "resolved_by_spark", lambda *_: [str(jar)])
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", killed)
        with pytest.raises(KeyboardInterrupt):
            packages.resolve("io.delta:delta", SparkOptions(()), tmp_path)
    assert len(written) == 1 and not list(tmp_path.glob("packages-*.json"))
    assert packages.resolve("io.delta:delta", SparkOptions(()), tmp_path) == [str(jar)]
    (known,) = tmp_path.glob("packages-*.json")
    assert json.loads(known.read_text()) == [str(jar)]


def test_packages_that_spark_cannot_resolve_are_named_with_what_it_says_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(command: list[str], stdout: Any, **_: Any) -> subprocess.CompletedProcess[bytes]:
        stdout.write(b"\t:: UNRESOLVED DEPENDENCIES ::\n\t:: io.nowhere#nothing;1.0: not found\nat org.apache\n")
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", fails)
    with pytest.raises(ConnectionFailedError) as caught:
        packages.resolve("io.nowhere:nothing:1.0", SparkOptions(()), tmp_path)
    said = str(caught.value)
    assert "Spark could not resolve io.nowhere:nothing:1.0: " in said and "io.nowhere#nothing;1.0: not found [" in said
    assert "org.apache" not in said and "--repositories" in said


def jar(path: Path, *names: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"")
    return str(path)


@pytest.mark.parametrize(
    ("option", "has_delta"),
    [
        (("--jars", "{jars}/other.jar,{jars}/renamed.jar"), True),
        (("--conf", "spark.jars={jars}/renamed.jar"), True),
        (("--jars", "s3://bucket/delta-spark_2.13-4.0.1.jar"), True),
        (("--driver-class-path", "/x/conf:{jars}/renamed.jar"), True),
        (("--conf", "spark.driver.extraClassPath={jars}/platform/*"), True),
        (("--packages", "a:b:1,io.delta:delta-spark_2.13:4.0.1"), True),
        (("--jars", "{jars}/other.jar"), False),
        (("--driver-class-path", "{jars}/none/*"), False),
    ],
)
def test_a_delta_that_the_user_names_is_the_only_one(tmp_path: Path, option: tuple[str, str], has_delta: bool) -> None:
    jar(tmp_path / "other.jar", "a/B.class")
    jar(tmp_path / "renamed.jar", "io/delta/sql/DeltaSparkSessionExtension.class")
    jar(tmp_path / "platform/delta-spark.jar", "io/delta/sql/DeltaSparkSessionExtension.class")
    found = command("--", option[0], option[1].format(jars=tmp_path)).packages().split(",")
    assert (DELTA in found) is not has_delta


@pytest.mark.parametrize(
    ("platform", "extensions", "catalog"),
    [
        ("", "io.delta.sql.DeltaSparkSessionExtension", "org.apache.spark.sql.delta.catalog.DeltaCatalog"),
        (
            "spark.sql.extensions org.iceberg.Extensions\nspark.sql.catalog.spark_catalog org.iceberg.Catalog\n",
            "org.iceberg.Extensions,io.delta.sql.DeltaSparkSessionExtension",
            None,
        ),
    ],
)
def test_a_platforms_delta_is_used_and_its_catalog_and_extensions_stay(
    tmp_path: Path, platform: str, extensions: str, catalog: str | None
) -> None:
    jar(tmp_path / "spark/jars/delta-spark_2.13-4.0.1.jar")
    (tmp_path / "spark/conf").mkdir()
    (tmp_path / "spark/conf/spark-defaults.conf").write_text(platform)
    (tmp_path / "home").mkdir()
    environment = {"SPARK_HOME": str(tmp_path / "spark"), "FLINKISH_HOME": str(tmp_path / "home")}
    options = SparkOptions.parse(command("--", "--master", "yarn", environment=environment).arguments())
    assert (options.value("--jars"), options.value("--packages")) == (None, None)
    assert options.conf("spark.sql.extensions") == extensions
    assert options.conf("spark.sql.catalog.spark_catalog") == catalog


def test_where_delta_has_no_package_none_of_its_classes_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_version, "pyspark_version", lambda: "4.3.0")
    options = SparkOptions.parse(command(environment={"FLINKISH_HOME": str(tmp_path)}).arguments())
    assert not re.search(r"io\.delta|sql\.delta|delta-spark", " ".join(options.tokens()))
