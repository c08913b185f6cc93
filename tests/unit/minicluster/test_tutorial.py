"""The programs of docs/tutorial.md print what the page says, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.documented import programs

TUTORIAL = programs("tutorial.md")
ON_SPARK = "savepoint.py"


def test_the_tutorial_has_seven_steps_and_says_what_each_program_prints() -> None:
    assert (len(TUTORIAL), list(TUTORIAL)[-1]) == (7, ON_SPARK)
    assert [name for name, program in TUTORIAL.items() if program.printed is None] == ["test_carts.py"]


@pytest.mark.parametrize("name", [name for name in TUTORIAL if name != ON_SPARK])
def test_a_step_prints_what_the_page_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLINKISH_SETTINGS", json.dumps({"execution.target": "minicluster"}))
    # a later step may import an earlier one
    for program in TUTORIAL.values():
        Path(program.name).write_text(program.text)
    TUTORIAL[name].run()
    printed = capfd.readouterr().out
    # what the program of a test prints is not shown: pytest keeps it
    assert TUTORIAL[name].printed in (printed, None)
