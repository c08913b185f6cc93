"""How Python is started: each such process gets its command here, so that none imports modules of the directory in
which it happens to be started (`tests/unit/test_started_pythons.py` finds all starts)."""

from __future__ import annotations

import sys
from pathlib import Path

import flinkish

#: The folder, or the zip, from which flinkish is imported.
ROOT = str(Path(flinkish.__file__).resolve().parents[1])
#: ``-c`` and ``-m`` put the current directory first on the path. Python 3.10 has no ``-P`` against it, ``-I`` ignores
#: PYTHONPATH, and PYTHONSAFEPATH would reach the programs that the process starts. ``sys`` itself is built in.
_FIRST = "import sys\nsys.path[: not getattr(sys.flags, 'safe_path', False)] = {!r}\n"
#: The command line ``flinkish``.
FLINKISH = "from flinkish.cli import main\nsys.exit(main())"


def python_command(code: str, *arguments: str, own: bool = True) -> list[str]:
    """The command that runs code, which finds ``sys`` imported, without the current directory on its path. ``own``:
    this very installation of flinkish is found before all others."""
    return [sys.executable, "-c", _FIRST.format([ROOT] if own else []) + code, *arguments]
