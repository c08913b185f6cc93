"""How a driver becomes the owner of a job directory: first the claim, then anything else."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from flinkish.errors import FencedError, FinalOperationError
from flinkish.jobdir import fencing
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.fencing import is_earlier_attempt
from flinkish.jobdir.layout import Attempts, JobEnd, Origin, Owner, Restored, RestoredByFallback
from flinkish.jobdir.ownership import NEWEST, REFUSE, Renewal, sweep, take_ownership
from flinkish.storage.stores import LocalStorage, storage_of
from tests.support.job_files import get, put
from tests.support.processes import wait_until


@pytest.fixture(autouse=True)
def _watches_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fencing, "POLL_S", 0.02)


def take(folder: Path, takeover: str = REFUSE, silence_s: float = 0.1) -> JobDirectory:
    directory = JobDirectory(str(folder))
    take_ownership(None, directory, "shop", takeover, silence_s)
    return directory


def change_owner(folder: Path, **changes: str) -> None:
    entry = get(JobDirectory(str(folder)), "owner.json") or {}
    (folder / "owner.new").write_text(json.dumps({**entry, **changes, "version": 1}))
    (folder / "owner.new").rename(folder / "owner.json")


def takes_the_query_away(folder: Path, **how: Any) -> None:
    heir = take(folder, **how)
    assert heir.query_location().path == str(folder / "spark-owner-1")
    heir.release()


def test_one_driver_after_the_other_gets_growing_tokens_and_the_query_stays_where_it_is(tmp_path: Path) -> None:
    for token in range(3):
        directory = take(tmp_path)
        assert directory.fence.token == token
        assert get(directory, "owner.json")["fencing_token"] == token
        assert directory.query_location().path == str(tmp_path / "spark")
        directory.release()


def test_by_default_a_living_owner_is_left_alone_and_no_claim_is_made(tmp_path: Path) -> None:
    first = take(tmp_path)
    with pytest.raises(FencedError, match="another driver .* runs a job in this directory"):
        take(tmp_path)
    first.check_owner("shop")
    assert first.fence.token == 0
    first.release()


def test_the_newest_takes_a_job_over_and_its_query_away(tmp_path: Path) -> None:
    first = take(tmp_path)
    (tmp_path / "spark" / "offsets").mkdir(parents=True)
    second = take(tmp_path, NEWEST)
    with pytest.raises(FencedError, match="has taken over this job directory"):
        first.check_owner("shop")
    with pytest.raises(FencedError):
        first.write(JobEnd())
    first.release()
    assert second.query_location().path == str(tmp_path / "spark-owner-1")
    assert (tmp_path / "spark-owner-1" / "offsets").is_dir() and (tmp_path / "spark").is_file()
    assert not get(second, "owner.json").get("released")
    second.release()


def test_the_query_is_taken_away_from_an_owner_on_another_machine_that_only_seems_dead(tmp_path: Path) -> None:
    take(tmp_path).released.set()
    (tmp_path / "spark").mkdir()
    change_owner(tmp_path, host="elsewhere")
    takes_the_query_away(tmp_path)


def test_the_query_of_a_driver_that_died_is_taken_away_if_it_runs_in_a_server(tmp_path: Path) -> None:
    first = take(tmp_path)
    first.remote = True
    first.write_owner()
    first.released.set()
    (tmp_path / "spark").mkdir()
    change_owner(tmp_path, started="1")
    takes_the_query_away(tmp_path)


def test_a_driver_whose_unfinished_file_a_newer_one_has_swept_is_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = JobDirectory(str(tmp_path)), JobDirectory(str(tmp_path))
    take_ownership(None, older, "shop", NEWEST)
    move = LocalStorage.move

    def overtaken(storage: LocalStorage, path: str, target: str) -> None:
        monkeypatch.setattr(LocalStorage, "move", move)
        take_ownership(None, newer, "shop", NEWEST)
        move(storage, path, target)

    monkeypatch.setattr(LocalStorage, "move", overtaken)
    with pytest.raises(FencedError):
        older.write(Attempts(1))
    newer.release()


def test_of_many_that_come_at_once_one_is_left(tmp_path: Path) -> None:
    left: list[JobDirectory] = []
    fenced: list[FencedError] = []
    gate = threading.Barrier(8)

    def come(_: int) -> None:
        directory = JobDirectory(str(tmp_path))
        gate.wait()
        try:
            take_ownership(None, directory, "shop", NEWEST)
        except FencedError as error:
            fenced.append(error)
        else:
            left.append(directory)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(come, range(8)))
    # who came through before a later one claimed learns it at its next step
    passing = []
    for directory in left:
        try:
            directory.check_owner("shop")
        except FencedError as error:
            fenced.append(error)
        else:
            passing.append(directory)
    assert (len(passing), len(fenced)) == (1, 7)
    assert passing[0].fence.token == 7
    for directory in left:
        directory.release()


def test_a_claim_is_renewed_until_it_is_given_back(tmp_path: Path) -> None:
    directory = JobDirectory(str(tmp_path))
    directory.claim("shop")
    Renewal(directory, "shop", 0.01).start()

    def renewals() -> int:
        return int(get(directory, "owner.json")["renewals"])

    wait_until(lambda: renewals() >= 4, 30, "renewals")
    directory.release()
    directory.renew("shop")
    assert get(directory, "owner.json").get("released") is True, "it does not take the directory back"


def test_a_driver_that_has_lost_renews_nothing(tmp_path: Path) -> None:
    first = take(tmp_path)
    second = take(tmp_path, NEWEST)
    owner = get(second, "owner.json")
    Renewal(first, "a job that was lost", 0.01).start()
    for thread in [one for one in threading.enumerate() if one.name.endswith("a job that was lost")]:
        thread.join(30)
        assert not thread.is_alive()
    assert get(second, "owner.json") == owner
    second.release()


def test_a_claim_that_fails_half_way_leaves_the_directory_free_for_the_same_process(tmp_path: Path) -> None:
    take(tmp_path).release()
    (tmp_path / "query-location.json").write_text("damaged")
    with pytest.raises(FinalOperationError, match=r"query-location\.json is damaged"):
        take(tmp_path)
    (tmp_path / "query-location.json").unlink()
    take(tmp_path).release()


def test_threads_of_a_driver_may_write_the_same_file_at_once(tmp_path: Path) -> None:
    directory = JobDirectory(str(tmp_path))

    def write(_: int) -> None:
        for number in range(200):
            directory.write(Attempts(number))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert [path.name for path in tmp_path.iterdir()] == ["attempts.json"]


HEX = "0123456789abcdef" * 2


def make(folder: Path, *paths: str) -> None:
    """Make these files; a path with a slash at its end is a directory with a file in it."""
    for path in paths:
        whole = folder / path / "rows.parquet" if path.endswith("/") else folder / path
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.write_text("{}")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_next_driver_deletes_what_killed_ones_and_commands_have_left_and_nothing_else(tmp_path: Path) -> None:
    first = take(tmp_path)
    put(first, "restored.json", {"savepoint": "/s", "path": "/s", "rows": "restore-1"})
    left = (
        *(f"request-{HEX}-1.json", "request-1.json", f"answer-{HEX}-2.json", f".answer-{HEX}-2.json.{HEX}"),
        *(f".owner.json.{HEX}", f".attempts.json.{HEX}", f"checkpoints/chk-3/.manifest.json.{HEX}"),
        *(f"accumulators/.4.{HEX}", f"spark/prepared/.7.{HEX}", "wait.json"),
        *("restore/", "restore-2/", "restore-epoch-9/", f"changelog.deleted-{HEX}/"),
    )
    kept = (
        *("checkpoints/chk-3/manifest.json", "accumulators/4", "spark/prepared/7", "spark/offsets/7", "restore-1/"),
        *("keyed-state/1/", "restored.json", "notes.txt", ".hidden", "spark-17/offsets/3"),
    )
    make(tmp_path, *left, *(path for path in kept if path != "restored.json"))
    first.released.set()
    first.release()
    heir = take(tmp_path)
    # a command that writes its request in the moment of the claim
    make(tmp_path, f"request-{heir.token}-3.json", f".request-{heir.token}-4.json.{HEX}")
    sweep(heir)
    assert [path for path in left if (tmp_path / path).exists()] == []
    assert [path for path in kept if not (tmp_path / path).exists()] == []
    assert names(tmp_path) >= {f"request-{heir.token}-3.json", f".request-{heir.token}-4.json.{HEX}"}
    heir.release()


@pytest.mark.parametrize("commits", [(), ("spark-17/commits/0",)], ids=["no epoch yet", "an epoch is committed"])
def test_what_an_upgrade_has_left_behind_goes_once_its_query_has_committed_an_epoch(
    tmp_path: Path, commits: tuple[str, ...]
) -> None:
    first = take(tmp_path)
    first.write(Restored("/s", "/s", "restore-1"))
    began = Origin("spark-9", 9, 16, 1, "keyed-state-9")
    first.write(RestoredByFallback(rows="restore-epoch-17", upgraded=True, upgraded_from=began), 17)
    first.move_query("spark-17", 17, "keyed-state-17")
    earlier = ("spark/offsets/3", "spark-9/offsets/0", "keyed-state/1/", "keyed-state-9/1/", "restore-1/")
    kept = ("spark-17/offsets/0", "keyed-state-17/1/", "restore-epoch-17/", "changelog/", "checkpoints/state/")
    make(tmp_path, *earlier, *kept, *commits)
    sweep(first)
    assert {(tmp_path / path).exists() for path in earlier} == {not commits}
    assert all((tmp_path / path).exists() for path in kept)
    first.release()


def test_names_of_unfinished_files_are_those_that_writers_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that is killed between its two steps leaves such a file."""

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    directory = take(tmp_path)
    before = names(tmp_path)
    with monkeypatch.context() as patched:
        # neither the second step is taken, nor what would be done after an error
        for step in ("link", "replace", "rename", "unlink"):
            patched.setattr(os, step, killed)
        for write in (
            lambda: storage_of(str(tmp_path)).create(str(tmp_path / "one"), b""),
            lambda: storage_of(str(tmp_path)).replace(str(tmp_path / "two"), b""),
        ):
            with pytest.raises(Killed):
                write()
    assert len(names(tmp_path) - before) == 2
    sweep(directory)
    assert names(tmp_path) == before
    directory.release()


def test_rows_stay_where_the_file_that_names_them_is_missing(tmp_path: Path) -> None:
    take(tmp_path).release()
    make(tmp_path, "spark/offsets/0", "restore-1/")
    take(tmp_path).release()
    assert (tmp_path / "restore-1").exists()


def test_of_the_copies_that_takeovers_make_of_the_query_only_the_last_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as on an object store, which cannot rename
    monkeypatch.setattr(LocalStorage, "renames_directories", False)
    make(tmp_path, "spark/offsets/0", "spark/state/0/1")
    directories = [take(tmp_path, NEWEST) for _ in range(4)]
    assert {path.name for path in tmp_path.iterdir() if path.name.startswith("spark")} == {"spark-owner-3"}
    assert (tmp_path / "spark-owner-3" / "offsets" / "0").exists()
    for directory in directories:
        directory.release()


@pytest.mark.parametrize(
    ("theirs", "ours", "is_earlier"),
    [
        ("container_e17_1410901177871_0001_01_000001", "container_e17_1410901177871_0001_02_000001", True),
        ("container_1410901177871_0001_01_000001", "container_1410901177871_0001_12_000007", True),
        ("container_1410901177871_0001_02_000001", "container_1410901177871_0001_01_000001", False),
        ("container_1410901177871_0002_01_000001", "container_1410901177871_0001_02_000001", False),
        ("container_1410901177871_0001_01_000001", "", False),
        ("", "container_1410901177871_0001_02_000001", False),
        (None, "container_1410901177871_0001_02_000001", False),
    ],
)
def test_earlier_attempts_are_those_of_the_same_application_of_yarn(
    theirs: str | None, ours: str, is_earlier: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTAINER_ID", ours)
    assert (
        is_earlier_attempt(None if theirs is None else Owner(token="t", host="h", pid=1, container=theirs))
        == is_earlier
    )


def test_the_next_attempt_of_an_application_of_yarn_watches_nobody_and_takes_the_query_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTAINER_ID", "container_1410901177871_0001_01_000001")
    take(tmp_path).released.set()
    change_owner(tmp_path, host="elsewhere")
    monkeypatch.setenv("CONTAINER_ID", "container_1410901177871_0001_02_000001")
    # it would be watched for longer than a test may take
    takes_the_query_away(tmp_path, silence_s=10_000.0)
