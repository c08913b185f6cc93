"""The source of one's own in docs/connectors.md is one."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from flinkish.core.source import SourceLimits
from tests.support.split_reading import SplitReading

DOCS = Path(__file__).parents[3] / "docs" / "connectors.md"


def test_the_documented_source_gives_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "documented_source.py").write_text(DOCS.read_text().split("```python\n")[1].split("```")[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    source = importlib.import_module("documented_source").Countdowns()
    reading = SplitReading(source, SourceLimits(max_records=4)).run()
    assert reading.ended
    assert reading.by_split == {"3": [3, 2, 1], "5": [5, 4, 3, 2, 1]}
