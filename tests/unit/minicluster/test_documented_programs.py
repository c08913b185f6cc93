"""The programs of the first pages of docs/ print what the pages say, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.documented import Program, programs

TUTORIAL = programs("tutorial.md")
ON_SPARK = "savepoint.py"
WITHOUT_SPARK = [program for name, program in TUTORIAL.items() if name != ON_SPARK]
for page in ("index.md", "from-pyflink.md", "from-structured-streaming.md", "semantics.md"):
    WITHOUT_SPARK += programs(page).values()


def test_the_tutorial_has_seven_steps_and_says_what_each_program_prints() -> None:
    assert (len(TUTORIAL), list(TUTORIAL)[-1]) == (7, ON_SPARK)
    assert [name for name, program in TUTORIAL.items() if program.printed is None] == ["test_carts.py"]


@pytest.mark.parametrize("program", WITHOUT_SPARK, ids=[program.name for program in WITHOUT_SPARK])
def test_a_program_prints_what_the_page_says(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLINKISH_SETTINGS", json.dumps({"execution.target": "minicluster"}))
    # a later step may import an earlier one
    for step in TUTORIAL.values():
        Path(step.name).write_text(step.text)
    program.run()
    printed = capfd.readouterr().out
    # what the program of a test prints is not shown: pytest keeps it
    assert program.printed in (printed, None)
