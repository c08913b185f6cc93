"""On S3, where each look is a request, a fence looks for the next claim, and now and then at the whole log."""

from __future__ import annotations

import json
import pickle
from uuid import uuid4

import pytest

from flinkish.delta import fence as delta_fence
from flinkish.delta.fence import Claim, DeltaFence, FencingLog
from flinkish.errors import FencedError, OperationError
from flinkish.storage.stores import S3_SETTINGS, storage_of
from tests.support.s3_server import S3Server


@pytest.fixture
def s3(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    monkeypatch.setenv(S3_SETTINGS, server.settings)
    return server


@pytest.fixture
def log(s3: S3Server) -> FencingLog:
    return FencingLog(f"s3a://jobs/{uuid4().hex}/fencing")


def claim(log: FencingLog, version: int, owner: str) -> DeltaFence:
    text = json.dumps(Claim(owner, "shop", f"host-{owner}", 17, "2026-01-01 00:00:00+00:00").__dict__)
    action = json.dumps({"commitInfo": {"operation": "WRITE", "userMetadata": text}})
    storage_of(log.table).write(log.file(version), f"{action}\n".encode())
    return DeltaFence(log, version, owner, "shop")


def test_a_check_is_one_look_for_the_next_version_also_of_a_fence_that_was_sent_to_a_task(
    s3: S3Server, log: FencingLog
) -> None:
    fence = claim(log, 0, "a")
    fence.check()
    s3.requests.clear()
    for _ in range(3):
        pickle.loads(pickle.dumps(fence)).check()
    assert s3.requests == [f"HEAD /{log.file(1).removeprefix('s3a://')}"] * 3


def test_the_next_claim_fences_at_once(log: FencingLog) -> None:
    fence = claim(log, 0, "a")
    fence.check()
    newer = claim(log, 1, "b")
    with pytest.raises(FencedError, match="on host-b"):
        fence.check()
    newer.check()


def test_a_log_that_was_deleted_is_noticed_by_the_next_look_at_the_whole(
    log: FencingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence = claim(log, 0, "a")
    monkeypatch.setattr(delta_fence, "WHOLE_LOOK_S", 0.0)
    fence.check()
    storage_of(log.table).delete(log.file(0))
    with pytest.raises(OperationError, match="has lost this driver's claim"):
        fence.check()


def test_a_process_begins_with_a_look_at_the_whole_log(log: FencingLog) -> None:
    with pytest.raises(OperationError, match="has lost this driver's claim"):
        DeltaFence(log, 3, "a", "shop").check()
