"""Who owns a job: the newest claim in the log of the fencing table, whatever else lies there; and claims that the
driver's process commits to that table itself, without Spark."""

from __future__ import annotations

import errno
import json
import os
import pickle
import random
import shutil
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from flinkish.error_display import exit_code_of
from flinkish.errors import FencedError, FinalOperationError, JobDirectoryError, OperationError
from flinkish.jobdir import fencing
from flinkish.jobdir.fencing import Claim, DeltaFence, FencingLog, commit_claim, last_claim


class Table:
    """A fencing table's log, written as Delta writes it."""

    def __init__(self, job_dir: Path) -> None:
        self.path = job_dir / "fencing"
        self.log = self.path / "_delta_log"
        self.log.mkdir(parents=True)

    def commit(self, claim: Claim | None = None, **info: Any) -> int:
        version = 1 + max((int(file.stem) for file in self.log.glob("*.json")), default=-1)
        if claim is not None:
            info["userMetadata"] = json.dumps(claim.__dict__)
        lines = [json.dumps({"commitInfo": {"operation": "WRITE", **info}}), json.dumps({"add": {"path": "part-0"}})]
        (self.log / f"{version:020d}.json").write_text("\n".join(lines) + "\n")
        return version

    def claim(self, owner: str) -> DeltaFence:
        token = self.commit(claim_of(owner))
        return DeltaFence(FencingLog(str(self.path)), token, owner, "shop")

    def clean(self, *versions: int, checkpoint: int | None = None) -> None:
        """Drop these versions, of which there may be a checkpoint."""
        if checkpoint is not None:
            (self.log / f"{checkpoint:020d}.checkpoint.parquet").write_text("")
        for version in versions:
            (self.log / f"{version:020d}.json").unlink()


def claim_of(owner: str) -> Claim:
    return Claim(owner, "shop", f"host-{owner}", 17, "2026-01-01 00:00:00+00:00")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def test_a_machine_that_does_not_have_the_directory_of_the_driver_ends_the_job_with_its_name(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = pickle.dumps(table.claim("a"))
    fence = pickle.loads(shipped)
    monkeypatch.setattr(socket, "gethostname", lambda: "worker-2")
    fence.check()
    shutil.rmtree(table.path)
    with pytest.raises(FinalOperationError, match="the machine worker-2 does not have the job directory of the driver"):
        pickle.loads(shipped).check()


def assert_fenced(fence: DeltaFence) -> str:
    with pytest.raises(FencedError) as caught:
        fence.check()
    return str(caught.value)


def test_the_loser_is_told_who_has_won_and_since_when(table: Table) -> None:
    old = table.claim("a")
    old.check()
    new = table.claim("b")
    message = assert_fenced(old)
    assert "the driver of process 17 on host-b (since 2026-01-01 00:00:00+00:00) has taken over" in message
    assert "its fencing token is 1, that of this driver 0" in message
    assert f"[job 'shop', directory {table.path.parent}]" in message
    new.check()
    assert (old.token, new.token) == (0, 1)


def test_of_several_newer_drivers_the_last_one_is_named(table: Table) -> None:
    old = table.claim("a")
    table.claim("b")
    table.commit(operation="OPTIMIZE")
    table.claim("c")
    table.commit(operation="OPTIMIZE")
    assert "on host-c" in assert_fenced(old)


def test_in_whatever_order_drivers_claim_and_look_one_is_left_and_it_is_the_newest(tmp_path: Path) -> None:
    for seed in range(100):
        dice = random.Random(seed)
        table = Table(tmp_path / str(seed))
        fences: list[DeltaFence] = []
        alive: set[int] = set()
        while len(fences) < 4 or dice.random() < 0.8:
            if len(fences) < 4 and dice.random() < 0.4:
                fences.append(table.claim(str(len(fences))))
                alive.add(len(fences) - 1)
                continue
            for number in dice.sample(sorted(alive), min(len(alive), 1)):
                try:
                    fences[number].check()
                except FencedError:
                    alive.discard(number)
                else:
                    assert number == len(fences) - 1, "only the newest passes"
        for number in alive - {len(fences) - 1}:
            assert_fenced(fences[number])
        fences[-1].check()


def test_commits_that_are_no_claims_fence_nobody_also_in_another_process(table: Table) -> None:
    fence = table.claim("a")
    table.commit(operation="OPTIMIZE")
    table.commit(operation="VACUUM START", userMetadata="nightly")
    elsewhere = pickle.loads(pickle.dumps(fence))
    for one in (fence, fence, elsewhere):
        one.check()
    table.claim("b")
    for one in (fence, elsewhere):
        assert_fenced(one)


@pytest.mark.parametrize(
    ("newer", "cleaned", "said"),
    [("bcd", (0, 1), "on host-d"), ("bc", (0, 1, 2), "another driver has taken over")],
    ids=["the last claim is there", "only a checkpoint of later versions is"],
)
def test_a_driver_that_was_paused_until_the_log_was_cleaned_is_fenced(
    table: Table, newer: str, cleaned: tuple[int, ...], said: str
) -> None:
    fence = table.claim("a")
    for owner in newer:
        table.claim(owner)
    table.clean(*cleaned, checkpoint=2)
    assert said in assert_fenced(fence)


def test_a_log_that_is_cleaned_while_it_is_read_fences_all_the_same(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence = table.claim("a")
    newer = [table.claim(owner).token for owner in "bc"]
    read = FencingLog.claim

    def cleaned_behind_it(log: FencingLog, version: int) -> Claim | None:
        claim = read(log, version)
        if version == newer[0]:
            table.clean(*newer, checkpoint=newer[1])
        return claim

    monkeypatch.setattr(FencingLog, "claim", cleaned_behind_it)
    with pytest.raises(FencedError, match="another driver has taken over"):
        fence.check()


def test_the_newest_driver_survives_a_cleaned_log(table: Table) -> None:
    table.claim("a")
    fence = table.claim("b")
    table.clean(0, 1, checkpoint=1)
    fence.check()
    (table.log / f"{2:020d}.json").write_text(
        json.dumps({"commitInfo": {"userMetadata": json.dumps(claim_of("c").__dict__)}}) + "\n"
    )
    assert "on host-c" in assert_fenced(fence)


def test_a_table_that_is_gone_or_put_back_stops_the_driver_and_is_named(table: Table) -> None:
    table.claim("a")
    fence = table.claim("b")
    table.clean(1)
    with pytest.raises(JobDirectoryError, match="has lost this driver's claim") as caught:
        fence.check()
    assert exit_code_of(caught.value) == 77 and not caught.value.retryable, "the job would begin anew"
    shutil.rmtree(table.path)
    with pytest.raises(JobDirectoryError, match="has lost this driver's claim"):
        fence.check()


def test_a_directory_that_was_deleted_and_is_used_again_is_not_that_of_its_first_driver(tmp_path: Path) -> None:
    first = Table(tmp_path).claim("a")
    first.check()
    shutil.rmtree(tmp_path / "fencing")
    second = Table(tmp_path).claim("b")
    assert second.token == first.token == 0
    second.check()
    for fence in (first, pickle.loads(pickle.dumps(first))):
        with pytest.raises(JobDirectoryError, match="has lost this driver's claim"):
            fence.check()


def test_a_claim_whose_file_was_copied_is_the_same_claim(table: Table) -> None:
    fence = table.claim("a")
    (file,) = table.log.iterdir()
    copy = file.with_suffix(".copy")
    shutil.copy(file, copy)
    copy.rename(file)
    fence.check()


def test_a_check_reads_no_file_and_lists_nothing(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner in "abcdefghijkl":
        fence = table.claim(owner)
    monkeypatch.setattr(FencingLog, "versions", None)
    monkeypatch.setattr(FencingLog, "claim", None)
    fence.check()


def test_the_last_claim_can_be_looked_up(table: Table, tmp_path: Path) -> None:
    assert last_claim(str(tmp_path)) is None
    table.claim("a")
    table.claim("b")
    table.commit(operation="OPTIMIZE")
    assert last_claim(str(tmp_path)) == (1, claim_of("b"))


def test_two_that_create_the_table_at_once_both_get_a_version(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    monkeypatch.setattr(fencing, "commit_claim", lambda log, mine: None)

    def append(spark: Any, path: str, mine: Claim) -> None:
        tried.append(mine.owner)
        if len(tried) == 1:
            table.claim("other")
            raise RuntimeError("[DELTA_CONCURRENT_WRITE] io.delta.exceptions.ConcurrentWriteException")
        table.commit(mine)

    monkeypatch.setattr(fencing, "append_claim", append)
    fence = fencing.claim(None, str(table.path.parent), claim_of("mine"))
    assert (fence.token, tried) == (1, ["mine", "mine"])


def test_who_is_overtaken_while_he_claims_notices_at_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(log: FencingLog, mine: Claim) -> int:
        token = table.commit(mine)
        table.claim("quicker")
        return token

    monkeypatch.setattr(fencing, "commit_claim", commit)
    with pytest.raises(FencedError, match="on host-quicker"):
        fencing.claim(None, str(table.path.parent), claim_of("mine"))


def log_of(job_dir: Path) -> FencingLog:
    return FencingLog(str(job_dir / "fencing"))


def files(job_dir: Path) -> set[str]:
    return {str(path.relative_to(job_dir)) for path in job_dir.rglob("*") if path.is_file()}


@pytest.fixture
def by_spark(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The owners whose claims were left to Spark."""
    owners: list[str] = []

    def append(spark: Any, table: str, mine: Claim) -> None:
        owners.append(mine.owner)
        log = FencingLog(table)
        Path(log.file(0)).parent.mkdir(parents=True, exist_ok=True)
        info = {"commitInfo": {"userMetadata": json.dumps(mine.__dict__)}}
        version = max(log.versions(), default=-1) + 1
        Path(log.file(version)).write_text(json.dumps(info) + "\n")

    monkeypatch.setattr(fencing, "append_claim", append)
    return owners


def test_claims_follow_each_other_and_each_is_one_row(tmp_path: Path, by_spark: list[str]) -> None:
    from pyarrow import parquet

    fences = [fencing.claim(None, str(tmp_path), claim_of(owner)) for owner in "abc"]
    assert [fence.token for fence in fences] == [0, 1, 2]
    assert last_claim(str(tmp_path)) == (2, claim_of("c"))
    fences[2].check()
    with pytest.raises(FencedError, match="on host-c"):
        fences[0].check()
    added = [action["add"] for version in range(3) for action in log_of(tmp_path).actions(version) if "add" in action]
    rows = [parquet.read_table(tmp_path / "fencing" / add["path"]).to_pylist() for add in added]
    assert rows == [[claim_of(owner).__dict__] for owner in "abc"]
    assert [os.path.getsize(tmp_path / "fencing" / add["path"]) for add in added] == [add["size"] for add in added]
    assert by_spark == []


def test_of_many_that_claim_at_once_each_has_a_version_of_its_own_and_the_last_one_is_left(tmp_path: Path) -> None:
    tokens: dict[str, int | None] = {}
    together = threading.Barrier(8)

    def claim(owner: str) -> None:
        together.wait()
        tokens[owner] = commit_claim(log_of(tmp_path), claim_of(owner))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(claim, map(str, range(8))))
    assert sorted(tokens.values(), key=str) == list(range(8))
    for owner, token in tokens.items():
        assert token is not None and log_of(tmp_path).claim(token) == claim_of(owner)
        fence = DeltaFence(log_of(tmp_path), token, owner, "shop")
        if token == 7:
            fence.check()
        else:
            with pytest.raises(FencedError):
                fence.check()
    # what those have left who were second is gone
    assert len(files(tmp_path)) == 2 * 8


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_file_system_without_hard_links_is_left_to_spark(
    tmp_path: Path, by_spark: list[str], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def link(source: str, target: str) -> None:
        raise OSError(number, "no links")

    monkeypatch.setattr(os, "link", link)
    fence = fencing.claim(None, str(tmp_path), claim_of("a"))
    assert (fence.token, by_spark) == (0, ["a"])
    assert files(tmp_path) == {"fencing/_delta_log/00000000000000000000.json"}


def test_a_table_that_asks_more_of_its_writers_is_left_to_spark(tmp_path: Path, by_spark: list[str]) -> None:
    log = log_of(tmp_path)
    assert commit_claim(log, claim_of("a")) == 0
    assert commit_claim(log, claim_of("b")) == 1
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": ["rowTracking"]}}
    Path(log.file(2)).write_text(json.dumps(protocol) + "\n")
    assert fencing.claim(None, str(tmp_path), claim_of("c")).token == 3
    assert by_spark == ["c"]


def test_a_table_of_which_only_a_checkpoint_is_left_is_left_to_spark(tmp_path: Path, by_spark: list[str]) -> None:
    log = log_of(tmp_path)
    assert commit_claim(log, claim_of("a")) == 0
    os.rename(log.file(0), log.file(0).replace(".json", ".checkpoint.parquet"))
    assert fencing.claim(None, str(tmp_path), claim_of("b")).token == 1
    assert by_spark == ["b"]


def test_a_claim_that_cannot_be_written_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OperationError, match="the job directory cannot be claimed: .*no space left") as refused:
        fencing.claim(None, str(tmp_path), claim_of("a"))
    assert files(tmp_path) == set()
    assert exit_code_of(refused.value, environment={}) == 75, "space may be made meanwhile"


@pytest.mark.parametrize("place", ["fencing", "fencing/_delta_log"])
def test_a_file_in_the_place_of_the_table_is_an_error_and_is_not_tried_for_ever(tmp_path: Path, place: str) -> None:
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("")
    with pytest.raises(JobDirectoryError, match="cannot be claimed: cannot write ") as refused:
        fencing.claim(None, str(tmp_path), claim_of("one"))
    assert exit_code_of(refused.value, environment={}) == 77
