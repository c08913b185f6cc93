"""The files that workers need, as the configuration names them."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import zipfile
from pathlib import Path

import pytest

from flinkish.common import Configuration, Types, no_effect
from flinkish.common.dependencies import CachedFile, Dependencies, dependencies_of
from flinkish.core.functions import MapFunction, RuntimeContext
from flinkish.errors import ConfigurationError, ProgramError
from tests.support.programs import configuration_of, new_environment, results_of


def test_the_environment_writes_pyflinks_keys_and_they_read_back() -> None:
    env = new_environment()
    env.add_python_file("a.py")
    env.add_python_file("a.py")
    env.add_python_archive("data.zip")
    env.add_python_archive("/archives/venv.tar.gz", "env")
    env.set_python_requirements("requirements.txt", "wheels")
    env.register_cached_file("hdfs:///words.txt", "words")
    env.register_cached_file("/bin/tool", "tool", True)
    env.add_jars("one.jar", "two.jar")
    env.add_classpaths("file:///three.jar")
    assert dependencies_of(configuration_of(env)) == Dependencies(
        python_files=("a.py",),
        archives=(("data.zip", "data.zip"), ("/archives/venv.tar.gz", "env")),
        requirements="requirements.txt",
        requirements_cache="wheels",
        cached_files=(CachedFile("words", "hdfs:///words.txt"), CachedFile("tool", "/bin/tool", True)),
        jars=("one.jar", "two.jar", "file:///three.jar"),
    )


@pytest.mark.parametrize(
    ("jar", "way"),
    [
        ("file:///opt/flink/lib/flink-sql-connector-kafka-3.1.0-1.18.jar", "add_classpaths"),
        ("flink-connector-jdbc-3.1.2-1.17.jar", "add_jars"),
        ("flink-connector-jdbc-3.1.2-1.17.jar", "add_classpaths"),
        ("/jars/kafka-clients-3.4.0.jar", "pipeline.jars"),
        ("https://example.org/flink-json-1.18.1.jar", "add_jars"),
    ],
)
def test_jars_of_flink_are_not_needed_and_need_not_exist(jar: str, way: str, caplog: pytest.LogCaptureFixture) -> None:
    no_effect.forget_reports()
    env = new_environment()
    if way == "add_jars":
        env.add_jars(jar)
    elif way == "add_classpaths":
        env.add_classpaths(jar if "://" in jar else f"file://{jar}")
    else:
        env.configure(Configuration.from_dict({"pipeline.jars": f"{jar};/own.jar"}))
    assert dependencies_of(configuration_of(env)).jars == (("/own.jar",) if way == "pipeline.jars" else ())
    with caplog.at_level(logging.INFO, "flinkish.JobManager"):
        for _ in range(2):
            assert results_of(env.from_collection([1], Types.INT())) == [1]
    lines = [record.getMessage() for record in caplog.records if "not needed here" in record.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith(f"not needed here: {jar.rpartition('/')[2]} (")
    warnings = [record.getMessage() for record in caplog.records if "the minicluster has no JVM" in record.getMessage()]
    assert len(warnings) == (way == "pipeline.jars")


def test_keys_of_a_configuration_file_are_read_as_flink_writes_them() -> None:
    configuration = Configuration.from_dict(
        {
            "python.files": "a.py, b.zip",
            "python.archives": "data.zip#stuff",
            "python.pythonpath": "/one:/two",
            "pipeline.cached-files": "name:words,path:/words.txt",
            "pipeline.jars": "[a.jar, b.jar]",
        }
    )
    configuration.validate()
    assert dependencies_of(configuration) == Dependencies(
        python_files=("a.py", "b.zip"),
        archives=(("data.zip", "stuff"),),
        cached_files=(CachedFile("words", "/words.txt"),),
        jars=("a.jar", "b.jar"),
        python_path=("/one", "/two"),
    )


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("python.archives", "data.zip#/etc", "cannot be unpacked to '/etc'"),
        ("python.archives", "data.zip#../other", "cannot be unpacked to '../other'"),
        ("pipeline.cached-files", "words.txt", "names no cached file.*name:NAME,path:PATH"),
    ],
)
def test_texts_that_cannot_be_meant_are_refused(key: str, value: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        dependencies_of(Configuration().set_string(key, value))


def test_two_cached_files_of_one_name_and_a_class_path_without_a_protocol_are_refused() -> None:
    env = new_environment()
    env.register_cached_file("a.txt", "words")
    with pytest.raises(ConfigurationError, match="'words' exists already"):
        env.register_cached_file("b.txt", "words")
    with pytest.raises(ProgramError, match="a URL with a protocol"):
        env.add_classpaths("three.jar")


class Words(MapFunction):
    def __init__(self, name: str) -> None:
        self.name = name

    def open(self, runtime_context: RuntimeContext) -> None:
        self.words = Path(runtime_context.get_distributed_cache().get_file(self.name)).read_text()

    def map(self, value: int) -> str:
        return self.words


def test_functions_find_cached_files_by_name_however_their_paths_are_written(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("some words")
    env = new_environment()
    for name, begin in (("words", ""), ("by scheme", "file:"), ("by url", "file://")):
        env.register_cached_file(f"{begin}{tmp_path}/words.txt", name)
        assert results_of(env.from_collection([1]).map(Words(name))) == ["some words"]
    with pytest.raises(ProgramError, match="no cached file 'others'.*one of .*words"):
        results_of(env.from_collection([1]).map(Words("others")))


class Place(MapFunction):
    def map(self, value: int) -> tuple[str, str]:
        return Path("stuff/data.txt").read_text(), os.getcwd()


@pytest.mark.parametrize("fails", [False, True])
def test_functions_in_the_minicluster_run_beside_the_archives_and_the_program_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.writestr("data.txt", "a")
    monkeypatch.chdir(tmp_path)
    env = new_environment()
    env.add_python_archive("data.zip", "stuff" if not fails else "other")
    found = env.from_collection([1]).map(Place())
    if fails:
        with pytest.raises(ProgramError, match="No such file.*stuff/data.txt"):
            results_of(found)
    else:
        ((text, place),) = results_of(found)
        assert (text, place != str(tmp_path)) == ("a", True)
    assert os.getcwd() == str(tmp_path)


def test_what_a_job_in_the_minicluster_lacks_is_said_before_it_starts(tmp_path: Path) -> None:
    env = new_environment()
    env.add_python_file(str(tmp_path / "absent.py"))
    with pytest.raises(ConfigurationError, match="the Python file '.*absent.py' is not there"):
        results_of(env.from_collection([1]))


@pytest.mark.parametrize("kind", ["file", "folder", "zip"])
def test_python_files_are_importable_in_the_minicluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    module = f"shipped_as_{kind}"
    (tmp_path / f"{module}.py").write_text("VALUE = 7\n")
    (tmp_path / "neighbour_of_shipped.py").write_text("")
    if kind == "zip":
        with zipfile.ZipFile(tmp_path / "modules.zip", "w") as archive:
            archive.write(tmp_path / f"{module}.py", f"{module}.py")
    given = {"file": tmp_path / f"{module}.py", "folder": tmp_path, "zip": tmp_path / "modules.zip"}[kind]
    env = new_environment()
    env.add_python_file(str(given))
    assert results_of(env.from_collection([1]).map(lambda _: __import__(module).VALUE)) == [7]
    assert (importlib.util.find_spec("neighbour_of_shipped") is None) == (kind != "folder")
