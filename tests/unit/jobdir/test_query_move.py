"""A newer driver takes the query's files to where the older one does not write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyarrow import fs

from flinkish.core.sink import NoFence
from flinkish.errors import FencedError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.layout import Attempts
from flinkish.jobdir.ownership import finish_move, move_query_away
from flinkish.storage.stores import LocalStorage
from tests.support.job_files import get, put


class Token(NoFence):
    """A fence with a number, which can fall."""

    def __init__(self, token: int) -> None:
        self.token = token
        self.fallen = False

    def check(self) -> None:
        if self.fallen:
            raise FencedError("overtaken")


def owned(folder: Path, token: int) -> JobDirectory:
    directory = JobDirectory(str(folder))
    directory.fence = Token(token)
    return directory


def make_query(folder: Path, name: str = "spark", batches: int = 2) -> None:
    for part in ("offsets", "commits", "state/0/1"):
        (folder / name / part).mkdir(parents=True)
        for batch in range(batches):
            (folder / name / part / str(batch)).write_text(f"{part} {batch}")


@pytest.fixture(params=["renamed", "copied"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "copied":
        monkeypatch.setattr(LocalStorage, "renames_directories", False)
    return str(request.param)


def test_the_query_is_found_at_its_new_place_with_its_numbers(tmp_path: Path, kind: str) -> None:
    make_query(tmp_path)
    directory = owned(tmp_path, 5)
    directory.move_query("spark", 7)
    move_query_away(directory)
    location = directory.query_location()
    assert (location.path, location.first_epoch) == (str(tmp_path / "spark-owner-5"), 7)
    for part in ("offsets", "commits", "state/0/1"):
        assert (tmp_path / "spark-owner-5" / part / "1").read_text() == f"{part} 1"
    assert set(get(directory, "query-location.json")) == {"version", "name", "first_epoch"}


def test_the_old_place_cannot_be_written_any_more_and_what_the_old_driver_had_open_is_dropped(tmp_path: Path) -> None:
    make_query(tmp_path)
    for name in (".2.delta.5f1c.tmp", "..2.delta.5f1c.tmp.crc"):
        (tmp_path / "spark/state/0/1" / name).write_text("half")
    move_query_away(owned(tmp_path, 5))
    with pytest.raises(OSError, match="Not a directory|Cannot create"):
        fs.LocalFileSystem().create_dir(str(tmp_path / "spark" / "state"), recursive=True)
    assert json.loads((tmp_path / "spark").read_text())["moved_to"] == "spark-owner-5"
    assert sorted(path.name for path in (tmp_path / "spark-owner-5/state/0/1").iterdir()) == ["0", "1"]


@pytest.mark.parametrize("had_one", [True, False])
def test_a_query_is_taken_over_again_and_again_and_begins_at_the_new_place_if_there_was_none(
    tmp_path: Path, kind: str, had_one: bool
) -> None:
    if had_one:
        make_query(tmp_path)
    for token in (3, 8, 21):
        directory = owned(tmp_path, token)
        move_query_away(directory)
        assert directory.query_location().path == str(tmp_path / f"spark-owner-{token}")
        assert (tmp_path / f"spark-owner-{token}" / "commits" / "1").exists() is had_one


@pytest.mark.parametrize("renamed", [False, True])
def test_a_move_that_was_interrupted_is_finished_by_the_next_driver(tmp_path: Path, renamed: bool) -> None:
    make_query(tmp_path)
    put(owned(tmp_path, 5), "query-location.json", {"name": "spark-owner-5", "first_epoch": 0, "moved_from": "spark"})
    if renamed:
        (tmp_path / "spark").rename(tmp_path / "spark-owner-5")
    heir = owned(tmp_path, 6)
    finish_move(heir)
    assert (tmp_path / "spark-owner-5" / "commits" / "1").exists()
    assert (tmp_path / "spark").is_file()
    assert heir.query_location().path == str(tmp_path / "spark-owner-5")


def test_a_copy_has_the_state_of_each_epoch_that_it_has_a_commit_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older driver goes on while the newer one copies: what it commits then is not in the copy."""
    make_query(tmp_path)
    copied: list[str] = []

    class Busy(LocalStorage):
        """A storage in which the old driver commits an epoch after each file that is copied."""

        def copy(self, path: str, target: str) -> None:
            super().copy(path, target)
            copied.append(path)
            batch = len(copied) + 1
            for part in ("offsets", "state/0/1", "commits"):
                (tmp_path / "spark" / part / str(batch)).write_text(f"{part} {batch}")

    monkeypatch.setattr(LocalStorage, "renames_directories", False)
    directory = owned(tmp_path, 5)
    directory.storage = Busy("/", fs.LocalFileSystem())
    move_query_away(directory)

    def names(part: str) -> set[str]:
        return {path.name for path in (tmp_path / "spark-owner-5" / part).iterdir()}

    assert names("commits") <= names("offsets") and names("commits") <= names("state/0/1")
    assert "0" in names("commits")


def test_a_driver_that_is_overtaken_moves_nothing(tmp_path: Path) -> None:
    make_query(tmp_path)
    directory = owned(tmp_path, 5)
    directory.fence.fallen = True  # type: ignore[attr-defined]
    with pytest.raises(FencedError):
        move_query_away(directory)
    assert (tmp_path / "spark" / "commits" / "1").exists()
    assert not (tmp_path / "query-location.json").exists()


def test_a_driver_that_is_overtaken_writes_no_file_and_leaves_none(tmp_path: Path) -> None:
    directory = owned(tmp_path, 5)
    directory.write(Attempts(7))
    directory.fence.fallen = True  # type: ignore[attr-defined]
    with pytest.raises(FencedError):
        directory.write(Attempts(1))
    with pytest.raises(FencedError):
        directory.delete(Attempts)
    directory.release()
    assert [path.name for path in tmp_path.iterdir()] == ["attempts.json"]
    assert directory.read(Attempts) == Attempts(7)
