"""Runs the unit tests of what was touched: ``python .ci/touched_tests.py FILE...``, with paths from the checkout.

    a module of the package                   its room's folder: flinkish/<room>/x.py -> tests/unit/<room>
    a module without a room, or without       the tests of its name, tests/unit/test_x.py, as far as there are any
      such a folder
    a test, or what a folder of tests shares  the test; the folder
    a page, or the package's metadata         the tests of pages

The deepest room that has a folder counts, and the folders that test it as well (``ALSO``). Whatever is touched in the
package also runs the test of the architecture. Integration tests, which need Spark, are left to ``./run-tests.sh``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Set
from pathlib import Path, PurePosixPath

CHECKOUT = Path(__file__).resolve().parents[1]
UNIT = PurePosixPath("tests/unit")

#: Folders that test a room beside its own: what user code is given is tested with the operators that call it.
ALSO = {
    "core": "runtime/operators",
    "core/window": "runtime/operators/window",
    "examples": "jobs",
    "spark": "engine",
}

ARCHITECTURE = "tests/unit/test_architecture.py"
PAGES = "tests/unit/test_pages.py"


def tests_of(file: str, there: Set[str]) -> set[str]:
    """The tests of one touched file: files and folders, of those that are ``there``.

    >>> sorted(tests_of("flinkish/formats/csv.py", {"tests/unit/formats"}))
    ['tests/unit/formats', 'tests/unit/test_architecture.py']
    """
    path = PurePosixPath(file)
    if path.suffix == ".md" or path.name in ("setup.cfg", "mkdocs.yml"):
        return {PAGES}
    if path.suffix == ".py" and path.parts[0] == "flinkish":
        return {*_tests_of_module(path, there), ARCHITECTURE}
    if path.suffix == ".py" and path.is_relative_to(UNIT):
        found = file if path.name.startswith("test_") else str(path.parent)
        return {found} & there - {str(UNIT)}
    return set()


def _tests_of_module(path: PurePosixPath, there: Set[str]) -> set[str]:
    rooms = path.parts[1:-1]
    for depth in range(len(rooms), 0, -1):
        room = "/".join(rooms[:depth])
        found = {str(UNIT / room), str(UNIT / ALSO.get(room, room))} & there
        if found:
            return found
    return {str(UNIT / f"test_{path.stem}.py")} & there


def all_tests() -> set[str]:
    """The unit tests that there are: files and folders, as paths from the checkout."""
    return {path.relative_to(CHECKOUT).as_posix() for path in (CHECKOUT / UNIT).rglob("*")}


def touched_tests(files: Iterable[str], there: Set[str]) -> list[str]:
    """The tests of all touched files, without those that are in a folder that is run anyway."""
    found = set().union(*(tests_of(file, there) for file in files))
    return sorted(test for test in found if found.isdisjoint(map(str, PurePosixPath(test).parents)))


def main(files: list[str]) -> int:
    """Run the tests of these files; returns the exit code of pytest, 0 if there is nothing to run."""
    tests = touched_tests(files, all_tests())
    if not tests:
        return 0
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *tests], cwd=CHECKOUT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
