"""Requests to a driver, as files in its job directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flinkish.common.job_status import JobStatus
from flinkish.errors import OperationError
from flinkish.jobmanager.directory.job_directory import JobDirectory
from flinkish.jobmanager.requests import ACTIONS, RequestDesk, ask


def test_who_asks_at_a_wrong_path_makes_no_directory_there(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="no driver runs a job in this directory"):
        ask(str(tmp_path / "typo"), "stop")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [
        '{"action": "stop"',
        '{"action": ' + "[" * 200_000 + "]" * 200_000 + "}",
        "[]",
        "\ud83d".encode("utf-8", "surrogatepass"),
    ],
    ids=["cut off", "nested deeply", "no object", "no UTF-8"],
)
def test_a_damaged_request_keeps_no_other_one_from_being_answered(
    content: str | bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def describe(client: Any, request: dict[str, Any]) -> Any:
        return {"name": "clicks"}

    monkeypatch.setitem(ACTIONS, "describe", describe)
    directory = JobDirectory(str(tmp_path))
    directory.claim("clicks")
    # before all others in the order of names
    (tmp_path / "request-!.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    client: Any = None
    desk = RequestDesk(client, directory)
    desk.attempt_started(0)
    try:
        assert ask(str(tmp_path), "describe", timeout_s=20) == {"name": "clicks"}
    finally:
        desk.job_done(JobStatus.FINISHED)
    assert "damaged" in str((directory.read("answer-!.json") or {})["error"])
    assert not (tmp_path / "request-!.json").exists()
