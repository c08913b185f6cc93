"""What the facts mean that ``flinkish doctor`` has collected."""

from __future__ import annotations

from typing import Any

import pytest

from flinkish.doctor.findings import (
    Executor,
    Finding,
    Level,
    Trial,
    Versions,
    exit_code,
    looked_at,
    of_clock,
    of_executors,
    of_mode,
    of_slots,
    of_trials,
    of_versions,
    shown,
    summed_up,
)
from flinkish.errors import ConfigurationError

GOOD = {"python": "3.11.7", "java": "17.0.15", "pyspark": "4.2.0", "pyarrow": "26.0.1", "pandas": "2.3.3"}


def levels(findings: list[Finding]) -> dict[str, str]:
    """Those that are not OK."""
    return {one.name: one.level.value for one in findings if one.level is not Level.OK}


@pytest.mark.parametrize(
    ("changed", "wrong", "says"),
    [
        ({}, {}, ""),
        ({"python": "3.9.18"}, {"Python": "FAIL"}, "Python 3.9.18 is too old"),
        ({"java": "1.8.0_392"}, {"Java": "FAIL"}, "Java 1.8.0_392 is too old"),
        ({"java": "11.0.2"}, {"Java": "FAIL"}, "Java 11.0.2 is too old"),
        ({"java": None}, {"Java": "FAIL"}, "there is none, and Spark is started here"),
        ({"java": None, "needs_java": False}, {}, ""),
        ({"java": "11", "needs_java": False}, {"Java": "WARN"}, "Java 11 is too old"),
        ({"pyspark": "3.5.1"}, {"PySpark": "FAIL", "Delta Lake": "WARN"}, "PySpark 3.5.1 is too old"),
        ({"pyspark": None}, {"PySpark": "FAIL", "Delta Lake": "FAIL"}, "PySpark is not installed"),
        ({"pyspark": "4.3.0"}, {"Delta Lake": "WARN"}, "none for PySpark 4.3.0: no checkpoints"),
        ({"pyspark": "4.0.2"}, {"pyarrow": "FAIL"}, "PySpark 4.0.2 does not work with pyarrow 26.0.1"),
        ({"pyspark": "4.0.2", "pyarrow": "25.0.0"}, {}, ""),
        ({"pyarrow": None}, {"pyarrow": "FAIL"}, "it is not installed"),
        ({"pandas": None}, {"pandas": "FAIL"}, "it is not installed"),
    ],
)
def test_versions_fit_flinkish_and_each_other(changed: dict[str, Any], wrong: dict[str, str], says: str) -> None:
    found = of_versions(Versions(**{**GOOD, **changed}))
    assert levels(found) == wrong
    assert says in "; ".join(one.text for one in found if one.level is not Level.OK)
    assert all(one.hint for one in found if one.level is not Level.OK)


@pytest.mark.parametrize(
    ("executors", "wrong", "says"),
    [
        ([("a", "3.11.2", "0.1.0", 105.0), ("b", "3.11.7", "0.1.0", 106.0)], {}, "2 task slots on a, b"),
        ([], {"Executors": "FAIL"}, "none has answered"),
        ([("a", "3.10.1", "0.1.0", 105.0)], {"Python of executors": "FAIL"}, "3.10.1 on a, and 3.11.7 in the driver"),
        ([("a", "3.11.7", "0.0.9", 105.0)], {"flinkish of executors": "FAIL"}, "0.0.9 on a, and 0.1.0 in the driver"),
        (
            [("a", "3.11.7", "0.1.0", 105.0), ("late", "3.11.7", "0.1.0", 90.0)],
            {"Clock of late": "WARN"},
            "10.0 s behind the driver's",
        ),
    ],
)
def test_executors_have_the_drivers_python_flinkish_and_time(
    executors: list[tuple[str, str, str, float]], wrong: dict[str, str], says: str
) -> None:
    found = of_executors([Executor(*one) for one in executors], "3.11.7", "0.1.0", 100.0, 110.0)
    assert levels(found) == wrong
    assert says in "; ".join(one.text for one in found)


@pytest.mark.parametrize(
    ("time_s", "text"),
    [
        (100.0, "as the driver's"),
        (98.1, "as the driver's"),
        (102.9, "as the driver's"),
        (97.5, "2.5 s behind the driver's"),
        (104.0, "3.0 s ahead of the driver's"),
    ],
)
def test_a_clock_may_differ_by_two_seconds_from_when_it_was_read(time_s: float, text: str) -> None:
    assert of_clock("Clock", time_s, 100.0, 101.0).text == text


@pytest.mark.parametrize(
    ("slots", "parallelism", "level"),
    [(4, 4, "OK"), (4, 5, "WARN"), (4, None, "OK"), (None, 100, "OK")],
)
def test_there_is_a_slot_for_each_subtask(slots: int | None, parallelism: int | None, level: str) -> None:
    assert of_slots(slots, parallelism).level.value == level


@pytest.mark.parametrize(
    ("trials", "level", "text"),
    [
        ([Trial("write", 0.002), Trial("list", 0.0004)], "OK", "write, list (at most 2 ms)"),
        ([Trial("write", 0.1), Trial("link", 0.1, "no links")], "FAIL", "cannot link: no links"),
        ([Trial("write", 3.21), Trial("list", 0.1)], "WARN", "write takes 3.2 s"),
        ([], "OK", " (at most 0 ms)"),
    ],
)
def test_a_directory_does_what_is_asked_of_it_in_time(trials: list[Trial], level: str, text: str) -> None:
    found = of_trials("Directory", trials)
    assert (found.level.value, found.text) == (level, text)


@pytest.mark.parametrize(
    ("mode", "owner", "level", "hint"),
    [
        (0o100600, 7, "OK", ""),
        (0o100400, 0, "OK", ""),
        (0o100640, 7, "WARN", "chmod 600 /home/me/x"),
        (0o100604, 7, "WARN", "chmod 600 /home/me/x"),
        (0o100600, 8, "WARN", "chown 7 /home/me/x"),
    ],
)
def test_a_file_with_secrets_is_this_users_alone(mode: int, owner: int, level: str, hint: str) -> None:
    found = of_mode("/home/me/x", mode, owner, 7)
    assert (found.level.value, found.hint) == (level, hint)


def test_a_look_that_raises_is_a_failure_with_what_to_do() -> None:
    def look() -> str:
        raise ConfigurationError("no such key", hint="correct it")

    def broken() -> str:
        raise OSError("no disk")

    assert looked_at("A", look) == Finding("A", Level.FAIL, "no such key", "correct it")
    assert looked_at("B", broken, Level.WARN) == Finding("B", Level.WARN, "OSError: no disk")
    assert looked_at("C", lambda: "fine") == Finding("C", Level.OK, "fine")


def test_findings_are_lines_with_what_to_do_below_and_a_sum_and_decide_the_exit_code() -> None:
    found = [
        Finding("Java", Level.OK, "17", "not shown"),
        Finding("Clock", Level.WARN, "late", "set it"),
        Finding("Storage", Level.FAIL, "cannot write to s3://me:hunter2@b", "let it"),
    ]
    assert [shown(one).split("\n") for one in found] == [
        ["OK    Java                        17"],
        ["WARN  Clock                       late", "                                  set it"],
        [
            "FAIL  Storage                     cannot write to s3://me:******@b",
            "                                  let it",
        ],
    ]
    assert summed_up(found) == "failed: 1, warnings: 1, fine: 1"
    assert (exit_code(found), exit_code(found[:2]), exit_code([])) == (1, 0, 0)
    assert [Finding.from_json(one.to_json()) for one in found[:2]] == found[:2]
    assert "hunter2" not in str(found[2].to_json())
