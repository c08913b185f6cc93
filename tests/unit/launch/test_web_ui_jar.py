"""The jar of Flink's Web UI is taken from where a resolution has left it, or resolved, and compared with its digest."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkish.errors import EnvironmentVersionError, FinalOperationError
from flinkish.launch.options import SparkOptions
from flinkish.launch.web_ui import PACKAGE, web_ui_jar

NAME = "org.apache.flink_flink-runtime-web-2.3.0.jar"


@pytest.fixture(autouse=True)
def ivy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / ".ivy2" / "jars"
    folder.mkdir(parents=True)
    monkeypatch.setattr("flinkish.launch.web_ui.ivy_folders", lambda: [tmp_path / "none", folder])
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder


def test_a_jar_that_is_not_flinks_is_refused(ivy: Path) -> None:
    (ivy / NAME).write_bytes(b"another one")
    with pytest.raises(FinalOperationError, match="not the file that Flink has published"):
        web_ui_jar({})


def test_the_pages_alone_are_resolved_with_the_repositories_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, SparkOptions, Path]] = []

    def resolve(packages: str, options: SparkOptions, cache: Path) -> list[str]:
        asked.append((packages, options, cache))
        (tmp_path / NAME).write_bytes(b"another one")
        return [f"file://{tmp_path}/other.jar", f"file://{tmp_path}/{NAME}"]

    monkeypatch.setattr("flinkish.launch.web_ui.resolve", resolve)
    submitted = "--repositories http://mirror --conf spark.jars.ivy=/x --jars /a.jar pyspark-shell"
    with pytest.raises(FinalOperationError, match="digest"):
        web_ui_jar({"PYSPARK_SUBMIT_ARGS": submitted})
    ((packages, options, cache),) = asked
    assert packages == PACKAGE
    assert options.value("--repositories") == "http://mirror"
    assert options.conf("spark.jars.ivy") == "/x"
    assert options.value("--jars") is None
    assert "*:flink-runtime," in (options.value("--exclude-packages") or "")
    assert cache.is_relative_to(tmp_path)


def test_without_pyspark_nobody_gets_the_jar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flinkish.launch.web_ui.find_spec", lambda name: None)
    with pytest.raises(EnvironmentVersionError, match="PySpark is not installed"):
        web_ui_jar({})
