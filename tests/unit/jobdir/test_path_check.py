"""Spark's reader of state cannot read below every path: such job directories are refused before anything runs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from flinkish.common import Configuration
from flinkish.errors import ConfigurationError
from flinkish.jobmanager.job.settings import directory_of_job, driver_settings, may_be_directory_of, temporary_directory


def job_dir_of(path: str) -> str | None:
    return driver_settings(Configuration.from_dict({"flinkish.job.dir": path})).job_dir


@pytest.mark.parametrize(
    "name", ["a b", "50%", "q?", "c#", "[1]", "{x}", "tab\t", "a%20b", 'quo"te', "a|b", "a*", "a\u00a0b", "a\\b"]
)
def test_a_path_that_spark_would_escape_is_refused_with_the_character(name: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        job_dir_of(f"/data/{name}/job")
    assert "flinkish.job.dir" in raised.value.where and f"/data/{name}/job" in raised.value.where
    assert "cannot read state" in raised.value.what


def test_a_relative_path_and_a_url_of_a_file_are_refused_for_the_directory_that_they_lie_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my files").mkdir()
    monkeypatch.chdir(tmp_path / "my files")
    with pytest.raises(ConfigurationError, match="my files"):
        job_dir_of("job")
    with pytest.raises(ConfigurationError, match="character ' '"):
        job_dir_of("file:///data/a b")
    assert driver_settings(Configuration()).job_dir is None, "no directory is no mistake"


@pytest.mark.parametrize("path", ["/data/jobs/a-b_c.d~e", "/data/größe", "/data/a,b;c:d@e&f=g+h!(i)'$", "s3a://b/job"])
def test_other_paths_are_taken_as_they_are(path: str) -> None:
    assert job_dir_of(path) == path


@pytest.mark.parametrize(
    ("name", "directory"),
    [
        ("report", "report"),
        ("Flink Streaming Job", "Flink-Streaming-Job-09696be6"),
        ("../report", "report-2eb058fb"),
        ("größe\\%", "gr-e-7ed8dad9"),
        ("...", "ab5df625"),
        ("n" * 300, "n" * 60 + "-230b0774"),
    ],
)
def test_a_further_job_of_a_program_has_a_directory_that_is_named_after_it(
    tmp_path: Path, name: str, directory: str
) -> None:
    given = str(tmp_path / "job")
    assert directory_of_job(given, "load") == given
    assert directory_of_job(given, name) == directory_of_job(given + "/", name) == f"{given}/jobs/{directory}"
    assert directory_of_job(given, "load") == given, "a job that is executed again goes on in its directory"
    assert may_be_directory_of(f"{given}/jobs/{directory}", name)
    assert not may_be_directory_of(f"{given}/jobs/{directory}", "load")
    assert may_be_directory_of(given, "load")


def test_a_job_whose_directory_is_below_the_given_one_keeps_it_when_it_is_executed_first(tmp_path: Path) -> None:
    (tmp_path / "jobs" / "report").mkdir(parents=True)
    assert directory_of_job(str(tmp_path), "report") == str(tmp_path / "jobs" / "report")
    assert directory_of_job(str(tmp_path), "load") == str(tmp_path)


def test_a_temporary_directory_is_made_only_where_state_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert Path(temporary_directory()).parent == tmp_path
    (tmp_path / "my files").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "my files"))
    with pytest.raises(ConfigurationError, match="character ' '") as raised:
        temporary_directory()
    assert raised.value.where.startswith("TMPDIR = ") and "flinkish.job.dir" in raised.value.hint
    assert list((tmp_path / "my files").iterdir()) == []
