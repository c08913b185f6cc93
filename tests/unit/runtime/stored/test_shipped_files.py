"""A worker finds the files of its job: modules, archives below the working directory, cached files by name."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flinkish.runtime.stored import classes as shipped_files
from flinkish.runtime.stored.classes import NO_FILES, ShippedFiles


@pytest.fixture(autouse=True)
def _the_process_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before, path = os.getcwd(), list(sys.path)
    monkeypatch.setattr(shipped_files, "_HOME", before)
    monkeypatch.setattr(shipped_files, "_entered", set())
    yield
    os.chdir(before)
    sys.path[:] = path


def folder_with(tmp_path: Path, *names: str) -> str:
    for name in names:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "data.txt").write_text(name)
    return str(tmp_path)


def test_relative_paths_lead_into_the_archives_of_the_job_that_runs(tmp_path: Path) -> None:
    folder, home = folder_with(tmp_path, "one", "two"), os.getcwd()
    first, second = ShippedFiles(archives=(("stuff", "one"),)), ShippedFiles(archives=(("stuff/inner", "two"),))
    for _ in range(2):
        first.enter(folder)
        assert Path("stuff/data.txt").read_text() == "one"
        second.enter(folder)
        assert Path("stuff/inner/data.txt").read_text() == "two"
    NO_FILES.enter(folder)
    assert os.getcwd() == home


def test_a_process_whose_jobs_have_no_archives_is_left_where_it_is(tmp_path: Path) -> None:
    os.chdir(tmp_path)
    NO_FILES.enter(str(tmp_path))
    assert os.getcwd() == str(tmp_path)


def test_modules_of_the_job_come_first_and_folders_of_the_node_last(tmp_path: Path) -> None:
    shipped = ShippedFiles(modules=("one", "two"), python_path=("/on/the/node",))
    for _ in range(2):
        shipped.install(folder_with(tmp_path) if (tmp_path / "one").exists() else folder_with(tmp_path, "one", "two"))
    assert sys.path[:2] == [str(tmp_path / "one"), str(tmp_path / "two")]
    assert sys.path.count("/on/the/node") == 1
    assert sys.path[-1] == "/on/the/node"


def test_files_are_found_in_the_folder_of_a_session_too(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "session-1/words")
    assert ShippedFiles(cached=(("w", "words"),)).cached_files(folder) == {"w": str(tmp_path / "session-1" / "words")}


def test_a_relative_folder_is_that_of_the_beginning(tmp_path: Path) -> None:
    home = os.getcwd()
    os.chdir(tmp_path)
    assert shipped_files.at_home("./files") == os.path.join(home, "files")
