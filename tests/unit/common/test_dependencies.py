"""The files that workers need, as the configuration names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkish.common import Configuration
from flinkish.common.dependencies import CachedFile, Dependencies, dependencies_of
from flinkish.core.functions import MapFunction, RuntimeContext
from flinkish.errors import ConfigurationError, ProgramError
from flinkish.jobmanager.settings import job_settings
from tests.support.programs import new_environment, results_of


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
    assert dependencies_of(env._configuration) == Dependencies(
        python_files=("a.py",),
        archives=(("data.zip", "data.zip"), ("/archives/venv.tar.gz", "env")),
        requirements="requirements.txt",
        requirements_cache="wheels",
        cached_files=(CachedFile("words", "hdfs:///words.txt"), CachedFile("tool", "/bin/tool", True)),
        jars=("one.jar", "two.jar", "file:///three.jar"),
    )


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


def test_two_cached_files_of_one_name_are_refused() -> None:
    env = new_environment()
    env.register_cached_file("a.txt", "words")
    with pytest.raises(ConfigurationError, match="'words' exists already"):
        env.register_cached_file("b.txt", "words")


def test_a_class_path_needs_a_protocol() -> None:
    with pytest.raises(ProgramError, match="a URL with a protocol"):
        new_environment().add_classpaths("three.jar")


class Words(MapFunction):
    def __init__(self, name: str) -> None:
        self.name = name

    def open(self, runtime_context: RuntimeContext) -> None:
        self.words = Path(runtime_context.get_distributed_cache().get_file(self.name)).read_text()

    def map(self, value: int) -> str:
        return self.words


def test_functions_find_cached_files_by_name(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("some words")
    env = new_environment()
    env.register_cached_file(str(tmp_path / "words.txt"), "words")
    assert results_of(env.from_collection([1]).map(Words("words"))) == ["some words"]
    with pytest.raises(ProgramError, match="no cached file 'others'.*one of words"):
        results_of(env.from_collection([1]).map(Words("others")))


@pytest.mark.parametrize("begin", ["", "file:", "file://"])
def test_a_cached_file_is_found_in_the_minicluster_however_its_path_is_written(tmp_path: Path, begin: str) -> None:
    (tmp_path / "words.txt").write_text("a")
    env = new_environment()
    env.register_cached_file(f"{begin}{tmp_path}/words.txt", "words")
    assert job_settings(env._configuration).cached_files == {"words": f"{tmp_path}/words.txt"}
