"""A job is found by its directory, its id, a beginning of that, or its name; what is ambiguous is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkish.jobdir.directory import JobDirectory
from tests.support.certificates import certificate
from tests.support.job_files import get, put
from tests.support.rest_jobs import JOB, OTHER, TOKEN, FakeJobs, job
from tests.support.served_jobs import Served, Told

Command = Callable[..., Told]
Start = Callable[..., Served]
Make = Callable[..., JobDirectory]


def described(flinkish: Command, *arguments: str) -> Any:
    told = flinkish("describe", *arguments, "--json")
    assert told.code == 0, told.err
    return told.json()


@pytest.mark.parametrize("named", [JOB, JOB[:4], "a", "clicks"], ids=["id", "four digits", "a digit", "name"])
def test_a_job_of_a_driver_that_has_announced_itself_is_found(named: str, driver: Start, flinkish: Command) -> None:
    driver(FakeJobs(job(JOB), job(OTHER, name="other")))
    assert described(flinkish, named)["id"] == JOB


def test_a_job_is_found_by_its_directory_and_asked_by_rest(driver: Start, directory: Make, flinkish: Command) -> None:
    jobs = FakeJobs(job(OTHER, name="other"), job(JOB))
    made = directory(JOB, driver(jobs))
    jobs.jobs[JOB] = replace(job(JOB, "RESTARTING"), directory=made.path)
    assert described(flinkish, made.path)["status"] == "RESTARTING"


def test_a_job_that_is_being_submitted_is_found_by_the_directory_that_its_driver_names(
    driver: Start, tmp_path: Path, directory: Make, flinkish: Command
) -> None:
    jobs = FakeJobs()
    made = directory("c" * 32, driver(jobs))
    (tmp_path / "jobs" / "clicks" / "job.json").unlink()
    jobs.jobs[JOB] = replace(job(JOB, "INITIALIZING"), directory=made.path)
    assert described(flinkish, made.path)["id"] == JOB


def test_a_copy_of_a_directory_is_not_taken_for_the_job(driver: Start, directory: Make, flinkish: Command) -> None:
    """Its driver runs the job elsewhere, though the copied files say the same."""
    jobs = FakeJobs()
    copy = directory(JOB, driver(jobs), name="copy")
    jobs.jobs[JOB] = replace(job(JOB), directory=f"{copy.path}-of-which-it-is-a-copy")
    told = flinkish("cancel", copy.path, "--timeout", "0.1")
    assert (told.code, jobs.asked) == (2, [])
    assert "has not answered within 0.1 s" in told.err


def test_the_address_of_a_driver_on_another_machine_is_not_looked_for_on_this_one(
    driver: Start, directory: Make, flinkish: Command
) -> None:
    """Its loopback address is that of another driver here, which must not get the token of the first one."""
    jobs = FakeJobs()
    made = directory(JOB, driver(jobs))
    jobs.jobs[JOB] = replace(job(JOB), directory=made.path)
    assert described(flinkish, made.path)["id"] == JOB
    before = jobs.described
    put(made, "owner.json", {**get(made, "owner.json"), "host": "elsewhere"})
    told = flinkish("describe", made.path, "--timeout", "0.1")
    assert told.code == 2 and "has not answered within 0.1 s" in told.err
    assert jobs.described == before


def test_one_driver_is_asked_by_its_address(driver: Start, flinkish: Command) -> None:
    driver(FakeJobs(job(JOB)))
    other = driver(FakeJobs(job(OTHER)))
    assert described(flinkish, "-m", f"127.0.0.1:{other.port}")["id"] == OTHER
    assert described(flinkish, "-m", other.url, "clicks")["id"] == OTHER
    told = flinkish("describe", "-m", other.url, JOB)
    assert (told.code, told.out) == (2, "")
    assert f"no job '{JOB}' is found" in told.err


def test_what_names_several_jobs_is_refused_with_all_of_them(driver: Start, flinkish: Command) -> None:
    driver(FakeJobs(replace(job("ab" * 16), directory="/data/first")))
    driver(FakeJobs(replace(job("ac" * 16), directory="/data/second")))
    for named in ("clicks", "a"):
        told = flinkish("stop", named)
        assert (told.code, told.out, told.err.count("\n")) == (2, "", 1)
        for part in ("names several jobs", "ab" * 16, "ac" * 16, "/data/first", "/data/second"):
            assert part in told.err
    assert described(flinkish, "ab")["id"] == "ab" * 16


def test_a_job_at_work_comes_before_one_of_its_name_that_has_ended(driver: Start, flinkish: Command) -> None:
    driver(FakeJobs(job("ab" * 16, "FINISHED"), job("ac" * 16)))
    assert described(flinkish, "clicks")["id"] == "ac" * 16
    assert described(flinkish, "ab")["status"] == "FINISHED"


def test_a_job_that_another_driver_has_taken_over_is_one_job(driver: Start, flinkish: Command) -> None:
    driver(FakeJobs(job(JOB, "SUSPENDED")))
    driver(FakeJobs(job(JOB, "RUNNING")))
    driver(FakeJobs(job(JOB, "SUSPENDED")))
    assert described(flinkish, "clicks")["status"] == "RUNNING"


def test_jobs_are_looked_for_below_a_folder(tmp_path: Path, directory: Make, flinkish: Command) -> None:
    made = [directory(JOB), directory(OTHER, name="clicks/jobs/report"), directory("c" * 32, name="team/sums")]
    for one in made:
        put(one, "ended.json", {"status": "FINISHED", "savepoint": "/data/sp"})
        one.release()
    folder = str(tmp_path / "jobs")
    found = flinkish("list", "-a", "--jobs", folder, "--json").json()
    assert sorted(one["directory"] for one in found) == [one.path for one in made]
    assert described(flinkish, "--jobs", folder, OTHER[:6])["directory"] == made[1].path
    assert flinkish("describe", OTHER[:6]).code == 2


def test_a_job_at_work_comes_before_a_directory_of_its_name_that_was_given_back(
    driver: Start, directory: Make, tmp_path: Path, flinkish: Command
) -> None:
    driver(FakeJobs(job(JOB)))
    old = directory(OTHER)
    assert "names several jobs" in flinkish("describe", "clicks", "--jobs", str(tmp_path / "jobs")).err
    old.release("FINISHED", "at its end")
    assert described(flinkish, "clicks", "--jobs", str(tmp_path / "jobs"))["id"] == JOB


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "no job 'nothing' is found"),
        ([], "no job is named"),
        (["-m", "127.0.0.1:1"], "no REST API answers at http://127.0.0.1:1"),
        (["-m", "ftp://x"], "'ftp://x' is no address of a REST API"),
        (["-m", "127.0.0.1:x"], "is no address of a REST API"),
        (["-m", "127.0.0.1:1", "--token-file", "/nowhere"], "there is no token that can be read"),
        (["-m", "https://127.0.0.1:1", "--ca", "/nowhere"], "the certificates cannot be used"),
        (["/no/such/directory"], "no driver runs a job in this directory"),
    ],
)
def test_who_is_not_found_is_said_in_one_line(arguments: list[str], said: str, flinkish: Command) -> None:
    told = flinkish("describe", *arguments)
    assert (told.code, told.out, told.err.count("\n")) == (2, "", 1)
    assert told.err.startswith("flinkish: ") and said in told.err


def test_the_token_comes_from_the_drivers_file_another_file_or_flinks_variable(
    driver: Start, flinkish: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = driver()
    served.token_file.rename(tmp_path / "token")
    refused = flinkish("describe", "-m", served.url)
    assert refused.code == 2 and "the driver's token is missing or wrong" in refused.err
    assert described(flinkish, "-m", served.url, "--token-file", str(tmp_path / "token"))["id"] == JOB
    monkeypatch.setenv("FLINK_REST_CLIENT_HEADERS", f"Cookie: a=b\nAuthorization:Bearer {TOKEN}")
    assert described(flinkish, "-m", served.url)["id"] == JOB


def test_a_driver_with_https_is_asked_if_its_certificate_is_trusted(
    driver: Start, flinkish: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = certificate(tmp_path)
    driver(FakeJobs(), file)
    told = flinkish("list")
    assert told.code == 0 and "is not trusted" in told.err and "--ca" in told.err
    assert described(flinkish, "clicks", "--ca", str(file))["id"] == JOB
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    assert described(flinkish, "clicks")["id"] == JOB


def test_the_file_of_a_killed_driver_is_passed_over(driver: Start, flinkish: Command) -> None:
    driver().stop()
    other = driver(FakeJobs(job(OTHER)))
    (other.token_file.parent / "another-machine-8081.token").write_text("x" * 20)
    told = flinkish("list", "--json")
    assert (told.code, told.err, [one["id"] for one in json.loads(told.out)]) == (0, "", [OTHER])
