"""Values that a release has stored are read, and are stored again byte by byte, wherever their classes are now."""

from __future__ import annotations

import json
import sys

import pytest

from flinkish.runtime.stored.names import DATA_NAMES
from flinkish.runtime.stored.pickles import dumps_all, dumps_data, loads, loads_all, loads_data
from tests.golden.values import PROGRAM, content, of_data, of_program
from tests.golden.write import VALUES

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


@pytest.mark.parametrize("name", FORMS)
def test_a_value_of_a_release_is_read_by_each_reader(name: str) -> None:
    expected = {**of_data(), **of_program()}.get(name)
    if expected is None:
        pytest.skip("this Python does not have it")
    alone, in_a_column = FORMS[name]["alone"], FORMS[name]["in a column"]
    read = [
        loads(b"\xf1\x03" + alone, 3, "a value", classes=PROGRAM),
        loads_data(alone, PROGRAM),
        loads_data(in_a_column, PROGRAM),
        *loads_all([in_a_column], classes=PROGRAM),
    ]
    for value in read:
        assert content(value) == content(expected)


@pytest.mark.parametrize("name", FORMS)
def test_a_value_is_stored_as_a_release_has_stored_it(name: str) -> None:
    value = {**of_data(), **of_program()}.get(name)
    if not (OF_THIS_PYTHON or name.startswith("flinkish.")):
        pytest.skip("it is reduced by Python, or by a library, of another version")
    assert dumps_data(value, PROGRAM) == FORMS[name]["alone"]
    assert dumps_all([value], PROGRAM)[0] == FORMS[name]["in a column"]
