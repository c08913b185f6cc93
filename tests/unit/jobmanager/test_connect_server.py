"""Why a query ended in another process is told through the job directory, whatever becomes of the message."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from flinkish.errors import (
    CorruptStateError,
    FencedError,
    IncompatibleJobError,
    OperationError,
    ProgramError,
    UnsafeStateError,
)
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobmanager import remote
from flinkish.jobmanager.epoch_gate import StopQuery
from flinkish.jobmanager.remote import ReportReader, ServerListener
from flinkish.runtime.epoch.commit import EpochCommit
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.exchange.buffer import BufferHeader, BufferKind, encode
from flinkish.runtime.job.deployment import JobDescriptor, SinkDescriptor, sink_vertex
from flinkish.runtime.operators.source_and_sink import encode_committables
from flinkish.testing import TestingSink
from tests.support.job_files import get, names, put
from tests.unit.runtime.stored.test_unsafe_pickles import GADGETS

JOB = JobDescriptor("0" * 32, "job", (), ())
TIMEOUT_S = 30


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "LOOK_S", 0.01)


def owned(path: Path) -> JobDirectory:
    directory = JobDirectory(str(path))
    directory.claim("job")
    return directory


def server_listener(path: Path, token: str) -> ServerListener:
    return ServerListener(str(path), token, "job")


def test_a_query_that_was_asked_to_end_says_so(tmp_path: Path) -> None:
    directory = owned(tmp_path)
    server = server_listener(tmp_path, directory.token)
    server.before_epoch(4)
    assert ReportReader(directory, JOB).end() is False
    put(directory, "stop.json", {"stop": True})
    with pytest.raises(StopQuery):
        server.before_epoch(5)
    assert ReportReader(directory, JOB).end() is True


@contextmanager
def epoch_of(server: ServerListener) -> Iterator[threading.Event]:
    """Within the block the server is in the midst of an epoch; the event is set when that is interrupted."""
    interrupted = threading.Event()
    server.before_epoch(4)
    with server.can_be_given_up(interrupted.set):
        yield interrupted


def test_an_epoch_is_given_up_when_the_driver_asks_for_it(tmp_path: Path) -> None:
    directory = owned(tmp_path)
    server = server_listener(tmp_path, directory.token)
    with epoch_of(server) as interrupted:
        put(directory, "stop.json", {"stop": True, "now": True})
        assert interrupted.wait(TIMEOUT_S)
    assert server.given_up() and ReportReader(directory, JOB).end() is True
    with pytest.raises(StopQuery):
        server.gate.go_through()


@pytest.mark.parametrize("committing", [False, True], ids=["it is asked to end after it", "its commit has begun"])
def test_an_epoch_goes_on_unless_it_is_asked_to_end_before_its_commit(tmp_path: Path, committing: bool) -> None:
    directory = owned(tmp_path)
    server = server_listener(tmp_path, directory.token)
    with epoch_of(server) as interrupted:
        if committing:
            server.gate.go_through()
        put(directory, "stop.json", {"stop": True, "now": committing})
        assert not interrupted.wait(20 * remote.LOOK_S) and not server.given_up()
    server.gate.go_through()
    with pytest.raises(StopQuery):
        server.before_epoch(5)


def job_with(**sinks: TestingSink) -> JobDescriptor:
    """A job with these sinks, by uid, in their order."""
    described = [
        SinkDescriptor(number, uid, uid, sink, 1, uid_given=True) for number, (uid, sink) in enumerate(sinks.items())
    ]
    return replace(JOB, sinks=tuple(described))


def kept_for_driver(path: Path, job: JobDescriptor, record: str) -> JobDirectory:
    """A directory with the report of an epoch that has a record for the second sink of the job."""
    directory = owned(path)
    server = server_listener(path, directory.token)
    server.before_epoch(4)
    header = BufferHeader(BufferKind.COMMITTABLES, sink_vertex(1), 0, 0, "0/a", 0, 0, 1)
    server.keep(EpochCommit(job, 4, 0, False), [(1, 0, [encode(header, encode_committables(0, [record]))])])
    server.after_epoch(
        EpochReport(4, 0, 1, 1, None, end_of_input=False, sink_records={sink.uid: 0 for sink in job.sinks})
    )
    return directory


def test_what_was_kept_for_the_driver_goes_to_its_sink_wherever_the_program_has_it_now(tmp_path: Path) -> None:
    directory = kept_for_driver(tmp_path, job_with(a=TestingSink(), b=TestingSink()), "for b")
    new, a, b = TestingSink(), TestingSink(), TestingSink()
    (report,) = ReportReader(directory, job_with(b=b, new=new, a=a)).take(None)
    assert (new.values, a.values, b.values) == ([], [], ["for b"])
    assert report.sink_records == {"a": 0, "b": 1}


def test_a_report_whose_file_cannot_be_deleted_is_taken_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_with(a=TestingSink(), b=TestingSink())
    directory = kept_for_driver(tmp_path, job, "for b")
    inbox, b = ReportReader(directory, job), job.sinks[1].sink
    assert isinstance(b, TestingSink)
    with monkeypatch.context() as patched:

        def away(*_: object) -> None:
            raise OperationError("the share is away")

        patched.setattr(directory, "delete", away)
        reports = inbox.take(None)
        assert next(reports).epoch == 4
        with pytest.raises(OperationError, match="the share is away"):
            next(reports)
    assert list(inbox.take(None)) == []
    assert b.values == ["for b"]
    assert not (tmp_path / f"report-{4:010d}.json").exists()


def test_what_was_kept_for_a_sink_that_the_program_does_not_have_is_refused_and_stays(tmp_path: Path) -> None:
    directory = kept_for_driver(tmp_path, job_with(a=TestingSink(), b=TestingSink()), "for b")
    with pytest.raises(IncompatibleJobError, match="epoch 4 is prepared and has output for the sink 'b'"):
        list(ReportReader(directory, job_with(a=TestingSink())).take(None))
    assert names(directory, "report-") == [f"report-{4:010d}.json"]


class OwnError(ProgramError):
    """Of a program."""


@pytest.mark.parametrize(("kind", "what"), [(ProgramError, "wrong " * 1000), (OwnError, "wrong")])
def test_the_error_that_ended_a_query_comes_back_whole_or_as_the_nearest_known_one(
    kind: type[ProgramError], what: str, tmp_path: Path
) -> None:
    directory = owned(tmp_path)
    error = kind(what, where="here")
    error.epoch = 4
    server_listener(tmp_path, directory.token).failed(error)
    end = ReportReader(directory, JOB).end()
    assert isinstance(end, ProgramError)
    assert (type(end), end.what, end.where, end.epoch) == (ProgramError, what, "here", 4)


@pytest.mark.parametrize("gadget", GADGETS)
def test_reports_and_errors_that_somebody_else_has_put_there_execute_nothing(
    gadget: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    directory = owned(tmp_path / "job")
    report = base64.b64encode(bytes((0xF1, 3)) + GADGETS[gadget]).decode()
    put(directory, "far-end.json", {"token": directory.token, "error": report})
    counts = {"epoch": 3, "time_ms": 0, "records_in": 0, "records_out": 0, "watermark_ms": None, "end_of_input": False}
    put(directory, f"report-{3:010d}.json", {"report": {**counts, "tasks": [report]}, "for_driver": []})
    with pytest.raises(CorruptStateError, match="far-end.json"):
        ReportReader(directory, JOB).end()
    with pytest.raises(UnsafeStateError, match="report of a task"):
        list(ReportReader(directory, JOB).take(None))
    assert [path.name for path in tmp_path.iterdir()] == ["job"]


def test_the_end_of_another_drivers_query_is_neither_taken_for_ones_own_nor_written(tmp_path: Path) -> None:
    directory = owned(tmp_path)
    server_listener(tmp_path, "old").failed(FencedError("taken over"))
    assert get(directory, "far-end.json") == {}
    put(directory, "far-end.json", {"token": "another"})
    assert ReportReader(directory, JOB).end() is False
