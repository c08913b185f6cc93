"""Lists of jobs are Flink's, with directories; the live table says what changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import timezone
from typing import Any

import pytest

from flinkish.cli.listed import Listed, list_text, live_table, wanted, watch
from flinkish.cli.targets import Job
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobmanager.job.description import CheckpointDescription, CheckpointsDescription, EpochDescription
from tests.support.described_jobs import NOW_MS
from tests.support.rest_jobs import JOB, OTHER, FakeJobs, job
from tests.support.served_jobs import Served, Told

Command = Callable[..., Told]
START_MS = 1_000


def listed(status: str | None, directory: str | None = None) -> Job:
    return Job(JOB, "clicks", status, START_MS, directory=directory)


LINE = f"01.01.1970 00:00:01 : {JOB} : clicks"
END = "-" * 62

#: The options, and what is listed of a running, a scheduled and two ended jobs.
LISTS = [
    ({}, ["Running/Restarting Jobs", "(RUNNING)", "Scheduled Jobs", "(CREATED)"]),
    ({"running": True}, ["Running/Restarting Jobs", "(RUNNING)"]),
    ({"scheduled": True}, ["Scheduled Jobs", "(CREATED)"]),
    (
        {"every": True},
        [
            *("Running/Restarting Jobs", "(RUNNING)", "Scheduled Jobs", "(CREATED)"),
            *("Terminated Jobs", "(FINISHED)", "(SUSPENDED)"),
        ],
    ),
]


@pytest.mark.parametrize(("options", "parts"), LISTS)
def test_the_options_choose_the_jobs(options: dict[str, bool], parts: list[str]) -> None:
    kinds = wanted(**{"every": False, "running": False, "scheduled": False, **options})
    jobs = [listed(status) for status in ("RUNNING", "CREATED", "FINISHED", "SUSPENDED")]
    found = list_text(jobs, kinds, timezone.utc)
    lines = [line for line in found.splitlines() if line != END]
    assert len(lines) == len(parts)
    assert all(part in line for part, line in zip(parts, lines))


def test_a_job_is_a_line_of_flinks_with_its_directory() -> None:
    found = list_text([listed("RUNNING", "/data/jobs/clicks")], ("running", "scheduled"), timezone.utc)
    assert found.splitlines() == [
        "------------------ Running/Restarting Jobs -------------------",
        f"{LINE} (RUNNING)  /data/jobs/clicks",
        END,
        "No scheduled jobs.",
    ]


def test_where_no_job_is_the_list_says_so() -> None:
    kinds = wanted(every=True, running=False, scheduled=False)
    assert list_text([], kinds).splitlines() == ["No running jobs.", "No scheduled jobs."]


def test_what_is_not_known_of_a_job_is_said() -> None:
    unknown = Job(None, "clicks", None, directory="/data/jobs/clicks")
    assert list_text([unknown], ("running",)).splitlines()[1] == "- : - : clicks (not known)  /data/jobs/clicks"
    assert live_table([Listed(unknown)], NOW_MS).splitlines()[1].split() == [
        *("clicks", "-", "not", "known", "-", "-", "-", "-", "-", "-", "/data/jobs/clicks")
    ]


def test_the_live_table_has_the_rates_of_the_last_minute() -> None:
    epochs = tuple(
        EpochDescription(number, NOW_MS - ago_ms, 1_000, 900, 50, 50, 600, 300, 0)
        for number, ago_ms in enumerate((500_000, 20_000, 10_000))
    )
    described = replace(
        job(),
        times_ms={"RUNNING": NOW_MS - 7_500_000},
        metrics={"epochs": 1_234, "restarts": 2, "watermark_ms": -(2**63)},
        epochs=epochs,
        checkpoints=CheckpointsDescription(latest_completed=CheckpointDescription(1, 1, "COMPLETED", NOW_MS - 12_000)),
    )
    one = Listed(listed("RUNNING", "/data/jobs/clicks"), asdict(described))
    rows = [re.split(r" {2,}", line) for line in live_table([one], NOW_MS, timezone.utc).splitlines()]
    assert rows == [
        ["job", "id", "status", "epochs", "in/s", "out/s", "restarts", "checkpoint", "watermark", "directory"],
        [
            *("clicks", JOB[:8], "RUNNING 2 h 5 min", "1,234", "57", "29", "2"),
            *("12.0 s ago", "none", "/data/jobs/clicks"),
        ],
    ]
    assert live_table([], NOW_MS) == "No jobs."


def interrupted_after(times: int) -> Callable[[float], None]:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == times:
            raise KeyboardInterrupt

    return pause


@pytest.mark.parametrize(("in_place", "between"), [(False, ""), (True, "\x1b[H\x1b[2J")])
def test_a_table_is_drawn_until_it_is_interrupted(
    in_place: bool, between: str, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = iter("abc")
    watch(lambda: next(drawn), 1.0, in_place, interrupted_after(3))
    assert capsys.readouterr().out == "".join(f"{between}{letter}\n" for letter in "abc")


def test_the_command_lists_the_jobs_of_drivers_and_of_a_folder(
    driver: Callable[..., Served], directory: Callable[..., JobDirectory], flinkish: Command, tmp_path: Any
) -> None:
    driver(FakeJobs(replace(job(JOB), directory="/data/jobs/a"), job("c" * 32, "FAILED", "b")))
    gone = directory(OTHER, name="c")
    gone.release("FAILED", "it was too much")
    told = flinkish("list", "-a", "--jobs", str(tmp_path / "jobs"))
    assert (told.code, told.err) == (0, "")
    jobs = re.findall(r" : ([0-9a-f]{32}) : (\w+) \((\w+)\)(?:  (\S+))?$", told.out, re.MULTILINE)
    assert sorted(jobs) == [
        (JOB, "clicks", "RUNNING", "/data/jobs/a"),
        (OTHER, "c", "FAILED", gone.path),
        ("c" * 32, "b", "FAILED", ""),
    ]
    assert [line for line in flinkish("list").out.splitlines() if JOB in line or "c" * 32 in line] == [
        line for line in told.out.splitlines() if JOB in line
    ]


def test_the_list_as_json_has_the_address_of_each_driver(driver: Callable[..., Served], flinkish: Command) -> None:
    served = driver()
    assert flinkish("list", "--json").json() == [
        {
            "id": JOB,
            "name": "clicks",
            "status": "RUNNING",
            "start_time_ms": 1_000,
            "end_time_ms": None,
            "directory": None,
            "rest": served.url,
        }
    ]
    served.stop()
    assert flinkish("list", "--json").json() == []
