"""What the pages of docs/ show, as something that tests can run.

Blocks of code that a test runs are marked in their first line: ``file=PATH`` is written there (a program or a
configuration), ``tried`` is run, and ``printed`` is what the program before it prints.
"""

from __future__ import annotations

import importlib
import re
import runpy
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```(\w+) (tried|printed|file=(\S+))\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One marked block; ``file``: where it is written to."""

    line: int
    language: str
    mark: str
    file: str | None
    text: str


def blocks(page: Path) -> Iterator[Block]:
    """The marked blocks of a page, in its order."""
    text = page.read_text()
    for match in _BLOCK.finditer(text):
        yield Block(text.count("\n", 0, match.start()) + 1, match[1], match[2], match[3], match[4])


@dataclass(frozen=True)
class Program:
    """A whole program of a page, and what the page says that it prints; None: the page says nothing."""

    name: str
    text: str
    printed: str | None

    def run(self, *arguments: str) -> None:
        """Write the program into the current directory and run it as ``python NAME`` does, in this process. It may have
        the name of a test: then its test functions are called."""
        Path(self.name).write_text(self.text)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [self.name, *arguments])
            patch.setattr(sys, "path", [str(Path.cwd()), *sys.path])
            names = runpy.run_path(self.name, run_name="__main__")
            for name, test in names.items():
                if name.startswith("test_"):
                    test()


def programs(page: str) -> dict[str, Program]:
    """The whole Python programs of a page of docs/, by the names of their files, in its order."""
    result: dict[str, Program] = {}
    for block in blocks(DOCS / page):
        if block.file is not None and block.file.endswith(".py"):
            result[block.file] = Program(block.file, block.text, None)
        elif block.mark == "printed":
            name, program = result.popitem()
            result[name] = Program(name, program.text, block.text)
    return result


def documented(name: str, number: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The unmarked Python block of docs/connectors.md of that number, counted from 1, as a module of that name in a
    folder."""
    text = (DOCS / "connectors.md").read_text().split("```python\n")[number].split("```")[0]
    (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    return importlib.import_module(name)
