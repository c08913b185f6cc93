"""A job whose driver is gone: its directory says how it has ended, when, with which savepoint, and what starts it
again."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from flinkish.errors import FinalOperationError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobmanager.job.description import ExceptionDescription
from flinkish.rest.client import RestClient
from tests.support.job_files import get, put
from tests.support.rest_jobs import JOB, FakeJobs, job
from tests.support.served_jobs import Served, Told

Command = Callable[..., Told]
Make = Callable[..., JobDirectory]

HERE = "-D flinkish.job.dir=DIR PROGRAM.py"
RUN = f"flinkish run {HERE}"
UNKNOWN = "it was suspended, or has failed: its driver's output says which"
RESTART = f"flinkish run --restart {HERE}"
ANOTHER = "flinkish run -s /sp -D flinkish.job.dir=ANOTHER PROGRAM.py, or in its own directory: "
NOTHING = "nothing is left to run; for new input, start the program in another directory"
#: ended.json, the arguments of the release, and the status, how the job has ended, and what starts it again.
ENDS: list[tuple[dict[str, Any] | None, tuple[str, ...], tuple[str, str, str]]] = [
    ({"status": "FINISHED", "done": True}, (), ("FINISHED", "finished", NOTHING)),
    (
        {"status": "FINISHED", "done": True, "savepoint": "/sp"},
        (),
        ("FINISHED", "finished with the savepoint /sp", NOTHING),
    ),
    (
        {"status": "FINISHED", "done": False, "savepoint": "/sp"},
        ("FINISHED", "stopped"),
        ("FINISHED", "stopped with the savepoint /sp", ANOTHER + RESTART),
    ),
    (
        {"status": "CANCELED", "done": False, "savepoint": "/sp"},
        (),
        ("CANCELED", "cancelled with the savepoint /sp", ANOTHER + RESTART),
    ),
    ({"status": "CANCELED", "done": False}, ("CANCELED", ""), ("CANCELED", "cancelled", RESTART)),
    (None, ("SUSPENDED", "a signal"), ("SUSPENDED", "it was suspended: a signal", RUN)),
    (None, ("FAILED", "no space left"), ("FAILED", "it has failed: no space left", RUN)),
    (
        None,
        (),
        ("SUSPENDED", "it was suspended, or has failed: its driver's output says which", f"flinkish run {HERE}"),
    ),
]


@pytest.mark.parametrize(("end", "released", "expected"), ENDS)
def test_a_directory_tells_how_its_job_has_ended(
    end: dict[str, Any] | None, released: tuple[str, ...], expected: tuple[str, str, str], directory: Make,
    flinkish: Command,
) -> None:  # fmt: skip
    made = directory(JOB)
    if end is not None:
        put(made, "ended.json", end)
    made.release(*released)
    told = flinkish("describe", made.path, "--json").json()
    assert (told["status"], told["how"], told["again"].replace(made.path, "DIR")) == expected
    assert (told["id"], told["name"], told["directory"]) == (JOB, "clicks", made.path)
    assert told["savepoint"] == (end or {}).get("savepoint")
    as_text = flinkish("describe", made.path)
    assert as_text.code == 0
    assert re.match(rf"clicks \({JOB}\): {expected[0]}\n  ended +\d{{4}}-\S+ \S+ \S+ \(.* ago\)", as_text.out)
    assert as_text.out.count(expected[1]) >= 1


def test_a_driver_that_has_died_is_told(directory: Make, flinkish: Command) -> None:
    made = directory(JOB)
    owner = get(made, "owner.json")
    assert owner is not None
    put(made, "owner.json", {**owner, "started": "never"})
    told = flinkish("describe", made.path, "--json").json()
    assert (told["status"], told["how"]) == (
        "SUSPENDED",
        f"its driver has died (process {owner['pid']} on {owner['host']})",
    )


def test_a_job_that_has_ended_under_a_driver_that_goes_on_says_what_starts_it_again(
    driver: Callable[..., Served], directory: Make, flinkish: Command
) -> None:
    made = directory(JOB)
    put(made, "ended.json", {"status": "FINISHED", "done": False, "savepoint": "/sp"})
    made.release()
    driver(FakeJobs(replace(job(status="FINISHED"), directory=made.path, end_time_ms=5)))
    told = flinkish("describe", "clicks")
    assert "how          stopped with the savepoint /sp" in told.out
    assert "to go on     flinkish run -s /sp" in told.out


def test_a_directory_without_a_job_is_refused(flinkish: Command, tmp_path: Any) -> None:
    told = flinkish("describe", str(tmp_path))
    assert (told.code, told.out) == (2, "") and "no driver runs a job in this directory" in told.err


def test_where_no_log_is_reached_the_command_says_where_it_is(directory: Make, flinkish: Command) -> None:
    made = directory(JOB)
    told = flinkish("logs", made.path)
    owner = get(made, "owner.json")
    assert owner is not None and told.code == 2
    assert f"on the standard error of the process {owner['pid']} on {owner['host']}, and Spark's in" in told.err


def test_a_job_whose_archive_is_shown_says_how_it_has_ended(
    driver: Callable[..., Served], flinkish: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session process has Flink's views of it, and no description."""
    failure = ExceptionDescription(2_000, 1, "UserCodeError", "the author of the job", False, "it failed")
    driver(FakeJobs(replace(job(status="FAILED"), end_time_ms=5_000, exceptions=(failure,))))
    get = RestClient.get

    def without_descriptions(client: RestClient, path: str, /, **query: str) -> Any:
        if path.endswith("/description"):
            raise FinalOperationError("Not found")
        return get(client, path, **query)

    monkeypatch.setattr(RestClient, "get", without_descriptions)
    told = flinkish("describe", "clicks")
    assert told.code == 0, told.err
    assert told.out.startswith(f"clicks ({JOB}): FAILED\n  ended        1970-01-01")
    assert "how          flinkish.errors.UserCodeError: it failed" in told.out
    assert "its archive is shown at http://127.0.0.1:" in told.out
    assert flinkish("describe", "clicks", "--json").json()["status"] == "FAILED"
