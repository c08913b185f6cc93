"""Programs with tables, written for PyFlink, print here what they print there: only their imports say ``flinkish``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.documented import Program

FOLDER = Path(__file__).parent / "programs"
PRINTED: dict[str, list[str]] = json.loads((FOLDER / "printed.json").read_text())


def test_each_program_has_its_output() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {"__init__", "record", *PRINTED}


@pytest.mark.parametrize("name", PRINTED)
def test_a_program_with_tables_prints_what_it_prints_in_pyflink(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {"execution.target": "minicluster", "flinkish.progress": "never"}
    monkeypatch.setenv("FLINKISH_SETTINGS", json.dumps(settings))
    capfd.readouterr()
    Program(f"{name}.py", (FOLDER / f"{name}.py").read_text(), None).run()
    assert sorted(line for line in capfd.readouterr().out.splitlines() if line) == PRINTED[name]
