"""Requests to a driver, as files in its job directory."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flinkish.common.completable_future import CompletableFuture
from flinkish.common.job_id import JobID
from flinkish.common.job_status import JobStatus
from flinkish.errors import OperationError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.layout import Answer, StoredRequest
from flinkish.jobmanager import requests
from flinkish.jobmanager.job.operations import Kind, Operations, Request
from flinkish.jobmanager.requests import ACTIONS, MAX_REQUEST_BYTES, RequestHandler, ask, send, sent_before
from flinkish.storage.stored_file import StoredFile
from tests.support import job_files
from tests.support.job_files import get, names
from tests.support.processes import wait_until

TIMEOUT_S, JOB = 20, "ab" * 16


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "POLL_S", 0.02)


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a request for a description is answered with."""
    answer = {"name": "clicks"}
    monkeypatch.setitem(ACTIONS, "describe", lambda *_: CompletableFuture.completed(answer))
    return answer


def request_name(directory: JobDirectory, mark: str) -> str:
    """The name of a request to the driver that owns the directory; marks before the digits come before all others."""
    return f"request-{directory.token}-{mark}.json"


def answer(directory: JobDirectory, mark: str) -> str:
    return str(get(directory, f"answer-{directory.token}-{mark}.json")["error"])


def put(directory: JobDirectory, mark: str, request: dict[str, Any]) -> None:
    """Write a request that holds for a minute."""
    content = {"expires_ms": int((time.time() + 60) * 1000), **request}
    job_files.put(directory, request_name(directory, mark), content)


@contextmanager
def served(directory: JobDirectory, client: Any = None) -> Iterator[None]:
    """Within the block a handler answers the requests of the directory."""
    handler = RequestHandler(client, directory)
    handler.open()
    try:
        yield
    finally:
        handler.job_done(JobStatus.FINISHED)


@pytest.fixture
def carried_out(monkeypatch: pytest.MonkeyPatch) -> list[StoredRequest]:
    """The requests that are carried out; they do nothing else."""
    found: list[StoredRequest] = []

    def carry_out(client: Any, request: StoredRequest, operation: str | None) -> CompletableFuture[Any]:
        found.append(request)
        return CompletableFuture.completed(None)

    for name in ACTIONS:
        monkeypatch.setitem(ACTIONS, name, carry_out)
    return found


def claimed(path: Path) -> JobDirectory:
    directory = JobDirectory(str(path))
    directory.claim("clicks")
    return directory


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
    content: str | bytes, tmp_path: Path, described: dict[str, Any]
) -> None:
    directory = claimed(tmp_path)
    name = request_name(directory, "!")
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with served(directory):
        assert ask(str(tmp_path), "describe", TIMEOUT_S) == described
    assert "damaged" in answer(directory, "!") and name in answer(directory, "!")
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"action": "destroy"}, "unknown request 'destroy'"),
        ({"action": None}, "it.action is None, expected a text"),
        ({"action": ["stop"]}, "it.action is a list of 1, expected a text"),
        ({"action": "stop", "drain": "false"}, "drain"),
        ({"action": "stop", "drain": 1}, "drain"),
        ({"action": "stop", "directory": 7}, "directory"),
        ({"action": "savepoint", "directory": {"a": 1}}, "directory"),
        ({"action": "savepoint", "format": "x"}, "it has an unknown field 'format'"),
        ({"action": "cancel", "expires_ms": 1_000}, "has expired"),
        ({"action": "cancel", "expires_ms": None}, "it.expires_ms is None, expected a whole number"),
        ({"action": "cancel", "expires_ms": "never"}, "it.expires_ms is 'never'"),
    ],
    ids=str,
)
def test_a_request_of_a_wrong_shape_is_answered_with_what_is_wrong_and_not_carried_out(
    request_: dict[str, Any], said: str, tmp_path: Path, carried_out: list[StoredRequest]
) -> None:
    directory = claimed(tmp_path)
    put(directory, "!", request_)
    with served(directory):
        ask(str(tmp_path), "describe", TIMEOUT_S)
    assert said in answer(directory, "!")
    assert [one.action for one in carried_out] == ["describe"]


def test_what_is_no_file_and_what_cannot_be_deleted_keep_no_request_from_being_answered(
    tmp_path: Path, carried_out: list[StoredRequest]
) -> None:
    class Directory(JobDirectory):
        def delete(self, kind: type[StoredFile], *parts: object) -> None:
            if parts[1:] == ("!",):
                raise OSError("a share that does not let it go")
            super().delete(kind, *parts)

    directory = Directory(str(tmp_path))
    directory.claim("clicks")
    put(directory, "!", {"action": "describe", "directory": "first"})
    (tmp_path / request_name(directory, "#")).mkdir()
    os.mkfifo(tmp_path / request_name(directory, "$"))
    with served(directory):
        ask(str(tmp_path), "describe", TIMEOUT_S)
    assert [one.directory for one in carried_out] == [None]


@pytest.mark.parametrize(
    ("action", "details", "asked"),
    [
        ("stop", {"drain": True, "directory": "/data/sp"}, Request(Kind.STOP, JOB, "/data/sp", drain=True)),
        ("stop", {}, Request(Kind.STOP, JOB)),
        ("savepoint", {"directory": None}, Request(Kind.SAVEPOINT, JOB)),
        ("checkpoint", {"full": True}, Request(Kind.CHECKPOINT, JOB, full=True)),
        ("cancel", {}, Request(Kind.CANCEL, JOB)),
    ],
)
def test_what_a_request_says_is_what_is_asked_for(
    action: str, details: dict[str, Any], asked: Request, tmp_path: Path
) -> None:
    class Client:
        """Does nothing but remember what it is asked for."""

        run = SimpleNamespace(job_id=JobID(JOB))
        found: list[Request] = []
        operations = Operations(lambda request: Client.found.append(request) or CompletableFuture.completed("done"))

    with served(claimed(tmp_path), Client()):
        assert ask(str(tmp_path), action, TIMEOUT_S, **details) == "done"
    assert Client.found == [asked]


def test_a_request_to_an_earlier_driver_is_not_carried_out_by_the_next_one(
    tmp_path: Path, carried_out: list[StoredRequest]
) -> None:
    hung = claimed(tmp_path)
    # whoever asked was killed as well: nobody withdraws the request
    put(hung, "!", {"action": "cancel"})
    # as earlier versions ask
    job_files.put(hung, "request-0.json", {"action": "cancel"})
    hung.release()
    with served(claimed(tmp_path)):
        ask(str(tmp_path), "describe", TIMEOUT_S)
    assert [one.action for one in carried_out] == ["describe"]


def test_who_waits_for_a_driver_that_another_one_has_replaced_is_told(tmp_path: Path) -> None:
    hung = claimed(tmp_path)

    def replaced() -> None:
        wait_until(lambda: bool(names(hung, "request-")), TIMEOUT_S, "the request")
        JobDirectory(str(tmp_path)).write_owner()

    thread = threading.Thread(target=replaced)
    thread.start()
    with pytest.raises(OperationError, match="has ended without an answer.*another driver runs the job by now"):
        ask(str(tmp_path), "cancel", TIMEOUT_S)
    thread.join()
    assert names(hung, "request-") == []


def test_who_waits_for_a_stop_whose_driver_died_learns_of_a_savepoint_that_is_whole(tmp_path: Path) -> None:
    died = claimed(tmp_path / "job")
    (tmp_path / "savepoint").mkdir()
    (tmp_path / "savepoint" / "manifest.json").touch()
    job_files.put(died, "saving-1.json", {"path": str(tmp_path / "savepoint"), "of_stop": True})
    threading.Timer(0.5, died.release).start()
    said = f"has ended without an answer, but the savepoint of its stop is whole: {tmp_path}/savepoint"
    with pytest.raises(OperationError, match=said):
        ask(str(tmp_path / "job"), "stop", TIMEOUT_S)


def test_requests_are_answered_while_a_slow_one_is_being_carried_out(
    tmp_path: Path, described: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping: CompletableFuture[str] = CompletableFuture()
    monkeypatch.setitem(ACTIONS, "stop", lambda *_: stopping)
    directory = claimed(tmp_path)
    with served(directory):
        put(directory, "!", {"action": "stop"})
        assert ask(str(tmp_path), "describe", TIMEOUT_S) == described
        assert not list(tmp_path.glob("answer-*-!.json"))
        stopping.complete("/savepoints/savepoint-1")
    # the end of the job: the answer is there before anything else happens
    assert json.loads((tmp_path / f"answer-{directory.token}-!.json").read_text())["value"] == "/savepoints/savepoint-1"


def test_storage_that_is_away_is_told_once_and_so_is_its_return(
    tmp_path: Path, described: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(requests, "POLL_S", 0.005)
    looks_s: list[float] = []

    class Directory(JobDirectory):
        def kept(self, kind: type[StoredFile]) -> list[tuple[str, ...]]:
            looks_s.append(time.monotonic())
            if len(looks_s) <= 5:
                raise OSError("the share is away")
            return super().kept(kind)

    directory = Directory(str(tmp_path))
    directory.claim("clicks")
    with caplog.at_level(logging.INFO, "flinkish.JobManager"), served(directory):
        assert ask(str(tmp_path), "describe", TIMEOUT_S) == described
    told = [record.getMessage() for record in caplog.records]
    away = "requests cannot be read, it is tried again and again: the share is away"
    assert told == [away, "requests can be read again"]
    # each look that fails doubles the time to the next one: a computation of pauses, not of speed
    pauses_s = [after - before for before, after in zip(looks_s, looks_s[1:6], strict=False)]
    assert all(pause_s >= requests.POLL_S * 2**n for n, pause_s in enumerate(pauses_s, 1))


@pytest.mark.usefixtures("carried_out")
def test_an_answer_that_nobody_fetches_is_deleted_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "ANSWER_KEPT_S", 0.1)
    directory = claimed(tmp_path)
    put(directory, "!", {"action": "cancel"})
    with served(directory):
        wait_until(lambda: not names(directory, "request-"), TIMEOUT_S, "the answer")
        wait_until(lambda: not names(directory, "answer-"), TIMEOUT_S, "its deletion")


def test_an_operation_is_found_again_by_the_id_of_its_request(tmp_path: Path) -> None:
    outcome: CompletableFuture[str] = CompletableFuture()
    operations = Operations(lambda request: outcome)
    run = SimpleNamespace(job_id=JobID.from_hex_string(JOB))
    with served(claimed(tmp_path), SimpleNamespace(operations=operations, run=run)):
        sent = send(str(tmp_path), "savepoint", TIMEOUT_S)
        wait_until(sent.is_taken, TIMEOUT_S, "the request")
        assert (sent.answer(), sent_before(str(tmp_path), sent.id)) == (None, None)
        found = ask(str(tmp_path), "operation", TIMEOUT_S, operation=sent.id)
        assert (found["kind"], found["completed"], found["failure"]) == ("savepoint", False, None)
        outcome.complete("/sp")
        found = ask(str(tmp_path), "operation", TIMEOUT_S, operation=sent.id)
        assert (found["completed"], found["location"]) == (True, "/sp")
        assert ask(str(tmp_path), "operation", TIMEOUT_S, operation="f" * 32) is None
    again = sent_before(str(tmp_path), sent.id)
    assert again is not None and again.answer() == sent.answer()
    assert sent.answer() == Answer("/sp")
    sent.withdraw()
    assert sent_before(str(tmp_path), sent.id) is None
    assert sent_before(str(tmp_path / "typo"), sent.id) is None
