"""Values that a release has stored are read, and are stored again byte by byte, wherever their classes are now."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from flinkish.runtime.stored.names import DATA_NAMES
from flinkish.runtime.stored.pickles import dumps_all, dumps_data, loads, loads_all
from flinkish.runtime.stored.reader import read_value
from tests.golden.values import PROGRAM, content, of_data, of_program
from tests.golden.write import VALUES
from tests.support.processes import python_path
from tests.support.rows import hold

STORED = json.loads(VALUES.read_bytes())
FORMS: dict[str, dict[str, bytes]] = {
    name: {form: bytes.fromhex(data) for form, data in forms.items()} for name, forms in STORED["values"].items()
}
#: Each version of Python, and of its libraries, reduces what is theirs in its own way.
OF_THIS_PYTHON = list(sys.version_info[:2]) == STORED["python"]
#: The one name that nothing is stored under: a Row is stored by the function that makes it.
NEVER_WRITTEN = "flinkish.common.types:Row"


def test_each_name_of_data_has_a_value_whose_bytes_have_it() -> None:
    lacks = {name for name in DATA_NAMES - set(FORMS) if name.startswith("flinkish.") or OF_THIS_PYTHON}
    assert not lacks, "a new name needs a value in tests/golden/values.py, and bytes in values.json"
    for name, forms in FORMS.items():
        if ":" in name and name != NEVER_WRITTEN:
            assert all(name.partition(":")[2].encode() in data for data in forms.values()), name


def test_a_name_that_was_stored_once_stays_a_name_of_data() -> None:
    assert {name for name in FORMS if ":" in name and name.startswith("flinkish.")} <= DATA_NAMES


def test_a_value_of_a_release_is_read_by_each_reader() -> None:
    def check(name: str) -> None:
        alone, in_a_column = FORMS[name]["alone"], FORMS[name]["in a column"]
        read = [
            loads(b"\xf1\x03" + alone, 3, "a value", classes=PROGRAM),
            read_value(alone, PROGRAM),
            read_value(in_a_column, PROGRAM),
            *loads_all([in_a_column], classes=PROGRAM),
        ]
        for value in read:
            assert content(value) == content(expected[name])

    expected = {name: value for name, value in {**of_data(), **of_program()}.items() if value is not None}
    # what this Python does not have is left out
    there = [(name,) for name in FORMS if name in expected]
    assert len(there) > 100
    hold(check, there)


def test_a_value_is_stored_as_a_release_has_stored_it() -> None:
    def check(name: str) -> None:
        assert dumps_data(values.get(name), PROGRAM) == FORMS[name]["alone"]
        assert dumps_all([values.get(name)], PROGRAM)[0] == FORMS[name]["in a column"]

    values = {**of_data(), **of_program()}
    # what else there is, Python or a library of another version reduces in its own way
    hold(check, ((name,) for name in FORMS if OF_THIS_PYTHON or name.startswith("flinkish.")))


# --- Random chains of opcodes change nothing in the process that reads them -----------------------------------------


@pytest.mark.parametrize("seconds", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_random_values_find_nothing_that_reading_changes(seconds: int) -> None:
    """In a process of its own, which a wrong value may end."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.fuzz_stored_values", "--seconds", str(seconds)],
        env={**os.environ, "PYTHONPATH": python_path()},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "0 of " in done.stdout
