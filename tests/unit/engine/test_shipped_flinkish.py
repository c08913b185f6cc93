"""When flinkish itself is shipped to the executors of a session, and that it is shipped once."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from flinkish.launch.archive import own_archive
from flinkish.launch.spark_command import ROOT
from flinkish.spark.session import ship_flinkish


class Session:
    """A classic session as far as files are shipped to its executors."""

    def __init__(self, master: str, py_files: list[str], executors_path: str = "") -> None:
        self.conf, self.sparkContext = {"spark.master": master, "spark.executorEnv.PYTHONPATH": executors_path}, self
        self._python_includes = list(py_files)
        self.added: list[str] = []

    def addPyFile(self, path: str) -> None:  # noqa: N802 - Spark's name
        with zipfile.ZipFile(path) as packed:
            assert "flinkish/runtime/operators/__init__.py" in packed.namelist()
        self.added.append(os.path.basename(path))
        self._python_includes.append(os.path.basename(path))


class Connected:
    """The same of a session of Spark Connect."""

    def __init__(self, master: str) -> None:
        self.conf = {"spark.master": master}
        self.added: list[str] = []

    def addArtifacts(self, path: str, pyfile: bool) -> None:  # noqa: N802 - Spark's name
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
