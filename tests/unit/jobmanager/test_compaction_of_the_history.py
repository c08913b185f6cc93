"""Which days of a history table are written anew: what it rewrites does not grow with the age of the job."""

from __future__ import annotations

import json

import pytest

from flinkish.delta.actions import AddedFile
from flinkish.jobmanager.history_tables import DAY_MS, MAX_FILES, days_to_compact, first_days

MANY = MAX_FILES + 1


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ([], []),
        ([7] * MAX_FILES, []),
        ([7] * (MAX_FILES + 1), []),
        ([7] * (MANY + 1), [7]),
        (list(range(400)), []),
        ([*range(400), *[400] * MANY], []),
        ([*range(400), *[400] * (MANY + 1)], [400]),
        ([*range(400), *[400] * 12, *[401] * 12], [400, 401]),
        ([3, 4, 4, 5, *[6] * MANY], [4, 5, 6]),
    ],
    ids=[
        "no files",
        "a few files",
        "one file and as many as may be",
        "one more",
        "a file a day for more than a year",
        "and a few of today",
        "too many of today",
        "too many since yesterday",
        "a day behind one with two files, which may have rows of it",
    ],
)
def test_a_day_is_written_anew_when_there_are_too_many_files_more_than_days(
    days: list[int], expected: list[int]
) -> None:
    assert days_to_compact(days) == expected


def test_a_driver_of_a_year_rewrites_no_more_on_its_last_day_than_on_its_second() -> None:
    days: list[int] = []
    rewritten: dict[int, int] = {}
    for day in range(365):
        for batch in range(144):
            days.append(day)
            if batch % 10 == 0:
                due = days_to_compact(days)
                rewritten[day] = rewritten.get(day, 0) + sum(days.count(one) for one in due)
                days = sorted([one for one in days if one not in due] + due)
    assert len(set(rewritten.values()) - {rewritten[0]}) == 1
    assert len(days) <= 365 + MAX_FILES + 10


def test_the_day_of_a_file_is_that_of_its_first_row_if_its_statistics_tell() -> None:
    stats = [{"minValues": {"time_ms": 3 * DAY_MS + 5}}, {"minValues": {"job_id": "a"}}, {"numRecords": 1}]
    files = [AddedFile("a", stats=json.dumps(one)) for one in stats]
    assert first_days([*files, AddedFile("b")]) == [3]
