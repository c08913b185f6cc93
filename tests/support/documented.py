"""The examples of docs/connectors.md as modules that can be imported."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

_DOCS = Path(__file__).parents[2] / "docs" / "connectors.md"


def documented(name: str, number: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example of that number, counted from 1, as a module of that name in a folder."""
    (folder / f"{name}.py").write_text(_DOCS.read_text().split("```python\n")[number].split("```")[0])
    monkeypatch.syspath_prepend(str(folder))
    return importlib.import_module(name)
