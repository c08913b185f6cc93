"""What a session is checked for, and what is shipped to its executors under which names: flinkish itself only once."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.serializers import CloudPickleSerializer

from flinkish.common import Configuration
from flinkish.errors import EnvironmentVersionError, OperationError
from flinkish.interpreter import ROOT
from flinkish.launch.packages import own_archive
from flinkish.spark.dependencies import ship
from flinkish.spark.session import check_versions, installed_java, ship_flinkish
from flinkish.spark.split_source import SourceQuery, source_rows
from flinkish.spark.worker import Deployment


class Session:
    """A classic session as far as files are shipped to its executors."""

    def __init__(self, master: str, py_files: list[str], executors_path: str = "") -> None:
        self.conf, self.sparkContext = {"spark.master": master, "spark.executorEnv.PYTHONPATH": executors_path}, self
        self._python_includes = list(py_files)
        self.added: list[str] = []

    def addPyFile(self, path: str) -> None:
        with zipfile.ZipFile(path) as packed:
            assert "flinkish/runtime/operators/__init__.py" in packed.namelist()
        self.added.append(os.path.basename(path))
        self._python_includes.append(os.path.basename(path))


class Connected:
    """The same of a session of Spark Connect."""

    def __init__(self, master: str) -> None:
        self.conf = {"spark.master": master}
        self.added: list[str] = []
        self.sources: list[Any] = []
        self.dataSource = SimpleNamespace(register=self.sources.append)
        self.readStream = MagicMock()

    def addArtifacts(self, path: str, pyfile: bool) -> None:
        assert pyfile
        self.added.append(os.path.basename(path))


Connected.__module__ = "pyspark.sql.connect.session"

OWN = "its archive"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of this flinkish's archive, which is made once, in a folder of these tests."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as within:
        within.setenv("FLINKISH_HOME", str(folder))
        yield own_archive(folder / "other").name


@pytest.mark.parametrize(
    ("master", "python_path", "py_files", "expected"),
    [
        ("spark://host:7077", ROOT, [], 1),
        ("yarn", "", ["pricing.zip"], 1),
        ("spark://host:7077", "", [OWN], 0),
        ("local[2]", ROOT, [], 0),
        ("local[2]", "/elsewhere", [], 1),
        ("local[2]", "/elsewhere", [OWN], 0),
    ],
)
def test_flinkish_is_shipped_once_where_the_executors_would_not_find_it(
    master: str, python_path: str, py_files: list[str], expected: int, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", python_path)
    session: Any = Session(master, [home if name == OWN else name for name in py_files])
    for _ in range(2):
        ship_flinkish(session)
    assert session.added == [home] * expected


@pytest.mark.parametrize(("master", "expected"), [("spark://host:7077", 1), ("local[2]", 0)])
def test_a_server_of_spark_connect_on_a_cluster_gets_it_as_an_artifact(master: str, expected: int, home: str) -> None:
    session: Any = Connected(master)
    for _ in range(2):
        ship_flinkish(session)
    assert session.added == [home] * expected


def test_it_is_not_shipped_where_the_session_names_its_folder_to_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    session: Any = Session("local[2]", [], ROOT)
    ship_flinkish(session)
    assert session.added == []


#: Unpickles what a task of a data source gets, in a process whose Spark keeps files in a folder.
_TASK = """
import sys
from pyspark import SparkFiles
from pyspark.serializers import CloudPickleSerializer
SparkFiles._root_directory, SparkFiles._is_running_on_worker = sys.argv[1], True
source, reader = CloudPickleSerializer().loads(sys.stdin.buffer.read())
import flinkish
print(source.name(), type(reader).__name__, flinkish.__file__)
"""


def test_under_spark_connect_a_task_of_a_data_source_finds_it_in_the_folder_of_a_session(tmp_path: Path) -> None:
    packed = own_archive(tmp_path / "session")
    session: Any = Connected("spark://host:7077")
    source_rows(session, SourceQuery(Deployment("job", 0, 1, b""), str(tmp_path), archive=packed.name))
    (made,) = [of_query({}) for of_query in session.sources]
    pickled = CloudPickleSerializer().dumps((made, made.streamReader(None)))
    command = [sys.executable, "-c", _TASK, str(tmp_path)]
    task = subprocess.run(command, input=pickled, capture_output=True, check=True, cwd=tmp_path)
    assert task.stdout.decode().split() == ["flinkish-job", "SourceStreamReader", f"{packed}/flinkish/__init__.py"]


class Archives:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.archives: dict[str, list[str]] = {}

    def addArtifacts(self, path: str, archive: bool = False) -> None:
        packed, _, name = path.partition("#")
        assert archive and name not in self.archives
        with tarfile.open(packed) as content:
            self.archives[name] = content.getnames()


def test_two_modules_of_the_same_content_are_both_shipped(tmp_path: Path) -> None:
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text("")
    configuration, session = Configuration(), Archives()
    configuration.set_string("python.files", f"{tmp_path / 'one.py'},{tmp_path / 'two.py'}")
    folders = ship(session, configuration).modules
    assert [session.archives[folder] for folder in folders] == [["one.py"], ["two.py"]]
    assert ship(session, configuration).modules == folders


JAVA = "Java {} is too old; expected Java 17 or newer; install a newer Java and set JAVA_HOME to it"
PYTHON = (
    "Python {} is too old; expected Python 3.10 or newer; install a newer Python and create the virtual environment "
    "with it"
)


@pytest.mark.parametrize(
    ("what", "versions", "said"),
    [
        ("java_version", ["1.8.0_392", "11.0.22", "16", "9-ea"], JAVA),
        ("python_version", [(3, 9, 18), (3, 8), (2, 7, 18)], PYTHON),
    ],
)
def test_a_java_and_a_python_that_are_too_old_are_refused(what: str, versions: list[Any], said: str) -> None:
    for version in versions:
        with pytest.raises(EnvironmentVersionError) as caught:
            check_versions(**{what: version})
        assert str(caught.value) == said.format(version if isinstance(version, str) else ".".join(map(str, version)))
        assert isinstance(caught.value, OperationError)


def test_those_that_are_new_enough_are_taken() -> None:
    for java in ("17", "17.0.9", "21.0.2", "25-ea", "1.17.0"):
        check_versions(java_version=java)
    for python in ((3, 10), (3, 10, 0), (3, 13, 1), (4, 0)):
        check_versions(python_version=python)


def test_the_java_of_java_home_is_the_one_that_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    # JAVA_TOOL_OPTIONS makes it say one thing more, first
    java.write_text(
        "#!/bin/sh\necho 'Picked up JAVA_TOOL_OPTIONS: -Xmx1g' >&2\necho 'openjdk version \"11.0.2\"' >&2\n"
    )
    os.chmod(java, 0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert installed_java() == "11.0.2"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    assert installed_java() is None
