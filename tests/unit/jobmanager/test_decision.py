"""What a job does next, in every combination of what may be known of it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from flinkish.jobmanager.decision import Outcome, decide
from tests.support.decision_table import (
    COMMAND,
    PAGE,
    TABLE,
    VALUES,
    WISHES,
    becomes,
    combinations,
    others,
    page,
    step_of,
)


@pytest.mark.parametrize("outcome", Outcome, ids=lambda outcome: outcome.value)
def test_each_step_is_that_of_the_table(outcome: Outcome) -> None:
    differences = [(facts, step) for facts in combinations(outcome) if str(step := decide(facts)) != step_of(facts)]
    assert differences == []


@pytest.mark.parametrize("outcome", Outcome, ids=lambda outcome: outcome.value)
def test_what_the_table_does_not_name_does_not_matter(outcome: Outcome) -> None:
    for facts in combinations(outcome):
        step = str(decide(facts))
        for name in others(outcome):
            assert {str(decide(replace(facts, **{name: value}))) for value in VALUES[name]} == {step}, name


def test_every_row_decides_something() -> None:
    for outcome, rows in TABLE.items():
        decides = [next(row for row in rows if row.fits(facts)) for facts in combinations(outcome)]
        assert [row for row in rows if row not in decides] == []
    assert sum(1 for outcome in Outcome for _ in combinations(outcome)) >= 250


@pytest.mark.parametrize(
    ("phase", "wish", "steps"),
    [(phase, wish, told.steps) for phase, wishes in WISHES.items() for wish, told in wishes.items()],
)
def test_what_becomes_of_a_wish(phase: str, wish: str, steps: str) -> None:
    assert becomes(phase, wish) == steps


def test_the_page_shows_the_table() -> None:
    assert PAGE.read_text() == page(PAGE.read_text()), f"run {COMMAND}"


def test_deciding_needs_neither_spark_nor_threads() -> None:
    script = "import sys, flinkish.jobmanager.decision; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pyspark", "py4j", "flinkish.jobmanager.job_run"} & set(loaded)
