"""Claims that the driver's process commits to the fencing table itself, without Spark."""

from __future__ import annotations

import errno
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from flinkish.error_display import exit_code_of
from flinkish.errors import FencedError, JobDirectoryError, OperationError
from flinkish.jobdir import fencing
from flinkish.jobdir.fencing import Claim, DeltaFence, FencingLog, commit_claim, last_claim


def claim_of(owner: str) -> Claim:
    return Claim(owner, "shop", f"host-{owner}", 17, "2026-01-01 00:00:00+00:00")


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
