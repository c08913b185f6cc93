"""Requests to a driver, as files in its job directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from flinkish.common.job_status import JobStatus
from flinkish.errors import OperationError
from flinkish.jobmanager.directory.job_directory import JobDirectory
from flinkish.jobmanager.requests import ACTIONS, MAX_REQUEST_BYTES, RequestDesk, ask


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
        '{"action": "describe", "directory": "' + "x" * MAX_REQUEST_BYTES + '"}',
        '{"action": ' + "1" * 5_000 + "}",
    ],
    ids=["cut off", "nested deeply", "no object", "no UTF-8", "too long", "a long number"],
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
    answer = str((directory.read("answer-!.json") or {})["error"])
    assert "damaged" in answer and "request-!.json" in answer
    assert not (tmp_path / "request-!.json").exists()


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"action": "destroy"}, "unknown request 'destroy'"),
        ({"action": None}, "unknown request None"),
        ({"action": ["stop"]}, "unknown request"),
        ({"action": "stop", "drain": "false"}, "drain"),
        ({"action": "stop", "drain": 1}, "drain"),
        ({"action": "stop", "directory": 7}, "directory"),
        ({"action": "savepoint", "directory": {"a": 1}}, "directory"),
        ({"action": "savepoint", "format": "x"}, "format"),
    ],
    ids=str,
)
def test_a_request_of_a_wrong_shape_is_answered_with_what_is_wrong_and_not_carried_out(
    request_: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried_out: list[Any] = []
    for name in ACTIONS:
        monkeypatch.setitem(ACTIONS, name, lambda client, request: carried_out.append(request))
    directory = JobDirectory(str(tmp_path))
    directory.claim("clicks")
    directory.write("request-!.json", request_)
    client: Any = None
    desk = RequestDesk(client, directory)
    desk.attempt_started(0)
    try:
        ask(str(tmp_path), "describe", timeout_s=20)
    finally:
        desk.job_done(JobStatus.FINISHED)
    assert said in str((directory.read("answer-!.json") or {})["error"])
    assert [one["action"] for one in carried_out] == ["describe"]


def test_what_is_no_file_and_what_cannot_be_deleted_keep_no_request_from_being_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Directory(JobDirectory):
        def delete(self, name: str) -> None:
            if name == "request-!.json":
                raise OSError("a share that does not let it go")
            super().delete(name)

    carried_out: list[Any] = []
    monkeypatch.setitem(ACTIONS, "describe", lambda client, request: carried_out.append(request.get("directory")))
    directory = Directory(str(tmp_path))
    directory.claim("clicks")
    directory.write("request-!.json", {"action": "describe", "directory": "first"})
    (tmp_path / "request-#.json").mkdir()
    os.mkfifo(tmp_path / "request-$.json")
    client: Any = None
    desk = RequestDesk(client, directory)
    desk.attempt_started(0)
    try:
        ask(str(tmp_path), "describe", timeout_s=20)
    finally:
        desk.job_done(JobStatus.FINISHED)
    assert carried_out == [None]
