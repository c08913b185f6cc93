"""What the ordinary run leaves to the night is noticed by a test that stays: tests/NIGHTLY.md says by which one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import COLLECTED

TESTS = Path(__file__).resolve().parents[2]

_TEST = re.compile(r"`(test_\w+\.py)::(test_\w+)`")

#: Marks of tests that the ordinary run leaves out.
LEFT_OUT = {"nightly", "slow", "platforms"}

#: File name and function.
Name = tuple[str, str]


@dataclass(frozen=True)
class Left:
    """A row of the table: a test, or some rows of it, and the tests that notice what it does."""

    test: Name
    stays: tuple[Name, ...]
    why: str


@pytest.fixture(scope="module")
def table() -> list[Left]:
    lines = [line for line in (TESTS / "NIGHTLY.md").read_text().splitlines() if line.startswith("| `")]
    found = []
    for line in lines:
        left, stays, why = (cell.strip() for cell in line.strip("|").split("|"))
        ((file, name),) = _TEST.findall(left)
        found.append(Left((file, name), tuple(_TEST.findall(stays)), why))
    return found


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    """The text of all test files by file name; files of one name follow each other."""
    found: dict[str, str] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        found[path.name] = found.get(path.name, "") + "\n" + path.read_text()
    return found


@pytest.fixture(scope="module")
def marks(request: pytest.FixtureRequest) -> dict[Name, list[set[str]]]:
    """The marks of each row of each test that this run has found, those that it does not run included."""
    found: dict[Name, list[set[str]]] = {}
    for item in request.config.stash[COLLECTED]:
        name = (item.path.name, item.name.partition("[")[0])
        found.setdefault(name, []).append({mark.name for mark in item.iter_markers()} & LEFT_OUT)
    return found


def test_each_test_that_is_left_to_the_night_is_in_the_table(
    table: list[Left], marks: dict[Name, list[set[str]]]
) -> None:
    nightly = {name for name, rows in marks.items() if any("nightly" in row for row in rows)}
    assert nightly - {row.test for row in table} == set()


def test_each_test_of_the_table_is_left_to_the_night(
    table: list[Left], marks: dict[Name, list[set[str]]], sources: dict[str, str]
) -> None:
    assert len(table) == len({row.test for row in table}) > 50
    for row in table:
        file, name = row.test
        assert f"def {name}(" in sources.get(file, ""), row.test
        assert "mark.nightly" in sources[file], row.test
        assert any("nightly" in of_row for of_row in marks.get(row.test, [{"nightly"}])), row.test


def test_each_test_that_stays_is_there_and_in_each_ordinary_run(
    table: list[Left], marks: dict[Name, list[set[str]]], sources: dict[str, str]
) -> None:
    for row in table:
        assert row.stays and row.why, row.test
        for file, name in row.stays:
            assert f"def {name}(" in sources.get(file, ""), (file, name)
            decorators = re.search(rf"((?:^@.*\n|^[ \])].*\n)*)^ *(?:async )?def {name}\(", sources[file], re.MULTILINE)
            assert decorators is not None
            whole = re.findall(r"^@pytest\.mark\.(\w+)$", decorators.group(1), re.MULTILINE)
            assert LEFT_OUT.isdisjoint(whole), (file, name)
            assert not all(marks.get((file, name), [set()])), (file, name)
