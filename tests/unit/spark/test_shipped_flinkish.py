"""When flinkish itself is shipped to the executors of a session, and that it is shipped once."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.serializers import CloudPickleSerializer

from flinkish.launch.packages import own_archive
from flinkish.launch.spark_command import ROOT
from flinkish.spark.session import ship_flinkish
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


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of this flinkish's archive, which is made in a folder of the test."""
    monkeypatch.setenv("FLINKISH_HOME", str(tmp_path))
    return own_archive(tmp_path / "other").name


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
