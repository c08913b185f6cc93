"""Writes the golden files, each into a place of its own below this folder:

    python -m tests.golden.write [values] [positions] [minicluster] [spark]

Files that are there stay: they are what a release has stored, and a later one must read them. Whoever changes a stored
format raises its version, and adds files of the new one (docs/formats.md).
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flinkish.runtime.stored_pickle import dumps_all, dumps_data
from tests.golden.values import PROGRAM, of_data, of_program

FOLDER = Path(__file__).parent
VALUES = FOLDER / "values.json"


def stored_values() -> dict[str, Any]:
    """Name -> the forms of its value: on its own, and as one of a column; and the version of Python."""
    found = {
        name: {"alone": dumps_data(value, PROGRAM).hex(), "in a column": dumps_all([value], PROGRAM)[0].hex()}
        for name, value in sorted({**of_data(), **of_program()}.items())
    }
    return {"python": list(sys.version_info[:2]), "values": found}


def _values() -> None:
    _write(VALUES, stored_values())


def _write(path: Path, content: Any) -> None:
    data = (json.dumps(content, indent=1) + "\n").encode()
    if not path.exists():
        path.write_bytes(data)
    print(path.name, "now", hashlib.sha256(data).hexdigest(), "stored", hashlib.sha256(path.read_bytes()).hexdigest())


WRITERS: dict[str, Callable[[], None]] = {"values": _values}


if __name__ == "__main__":
    for name in sys.argv[1:] or WRITERS:
        WRITERS[name]()
