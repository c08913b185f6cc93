"""What a dry run says of a start, as text for people and as JSON."""

from __future__ import annotations

import json

import pytest

from flinkish.checkpoint.compatibility import CompatibilityReport, StateCompatibility, StateStatus
from flinkish.jobmanager.dry_run import StartKind, StartReport
from flinkish.launch.driver import DRY_RUN_FORMAT

STATES = (
    StateCompatibility("counts", "n", "value", StateStatus.RESTORED, 7),
    StateCompatibility("gone", "n", "value", StateStatus.DROPPED, 3, "the program has no operator with that uid"),
)
SHOWN = "the state of epoch 17 in /data/job"


def report(allowed: bool) -> StartReport:
    found = CompatibilityReport(SHOWN, "shop", False, STATES, (), allowed, own_state=True)
    return StartReport(StartKind.UPGRADES, "/data/job", found, ("operator 'gone' is gone",), 17)


@pytest.mark.parametrize(("allowed", "verdict"), [(True, "compatible"), (False, "NOT compatible")])
def test_an_upgrade_is_told_with_what_differs_and_each_state(allowed: bool, verdict: str) -> None:
    lines = report(allowed).text().splitlines()
    assert lines[:5] == [
        "directory /data/job: the job goes on with a changed program",
        "changed: operator 'gone' is gone",
        "first: epoch 17, which is prepared, is committed",
        SHOWN,
        f"job 'shop': {verdict}",
    ]
    assert [line.split()[:5] for line in lines[6:8]] == [
        ["counts", "n", "value", "7", "restored"],
        ["gone", "n", "value", "3", "dropped"],
    ]
    assert report(allowed).possible is allowed
    assert ("to do: give the operator its old uid" in report(allowed).text()) is not allowed


def test_the_same_as_json_if_the_command_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DRY_RUN_FORMAT, "json")
    found = json.loads(report(False).shown())
    assert (found["outcome"], found["possible"], found["from"]) == ("upgrades", False, SHOWN)
    assert (found["differences"], found["prepared_epoch"]) == (["operator 'gone' is gone"], 17)
    assert found["states"][1] == {
        "uid": "gone",
        "state": "n",
        "kind": "value",
        "status": "dropped",
        "rows": 3,
        "reason": "the program has no operator with that uid",
    }
    assert len(found["problems"]) == len(found["hints"]) == 1


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (
            StartReport(StartKind.ENDED, "/job", None, end="cancelled"),
            "directory /job: nothing would run: the job was cancelled",
        ),
        (StartReport(StartKind.DRAINS, "/job", None), "directory /job: the drain of the job is completed"),
    ],
)
def test_a_start_that_looks_at_no_state_is_one_line(found: StartReport, text: str) -> None:
    assert found.text() == text and found.possible
