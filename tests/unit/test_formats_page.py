"""``docs/formats.md`` names the version of each stored format as the code has it."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from flinkish.jobdir.formats import LAYOUT
from tests.support.documented import DOCS
from tests.support.sources import name_of, trees
from tests.support.stored_formats import COMMAND, page

PAGE = (DOCS / "formats.md").read_text()
ROWS = re.findall(r"^\| (.+?) \| .+? \| (\d+) \| `([\w/]+\.py): (\w+)` \|", PAGE, re.MULTILINE)
#: A constant that is the version of a format, by its name, and its value.
_VERSION = re.compile(r"^_?(?:\w+_)?(?:VERSION|VERSION_WITH_\w+)$")
#: Versions that no stored file of flinkish has: those of Spark and Delta, and of what lives as long as a process.
_OTHERS = {
    "delta/actions.py: PLAIN_WRITER_VERSION",
    "runtime/exchange/buffer.py: WIRE_VERSION",
    "runtime/job/failure.py: ERROR_FORMAT_VERSION",
}


@cache
def versions() -> dict[str, int]:
    """The constants of the package that are versions, by their module and name."""
    return {
        f"{name_of(path)}: {target.id}": node.value.value
        for path, tree in trees().items()
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and type(node.value.value) is int
        for target in node.targets
        if isinstance(target, ast.Name) and _VERSION.match(target.id)
    }


@pytest.mark.parametrize(("what", "version", "module", "constant"), ROWS)
def test_a_format_has_the_version_that_the_page_names(what: str, version: str, module: str, constant: str) -> None:
    assert versions()[f"{module}: {constant}"] == int(version), what


def test_the_page_names_each_version_of_a_stored_format() -> None:
    assert len(ROWS) > 12
    assert set(versions()) - _OTHERS == {f"{module}: {constant}" for _, _, module, constant in ROWS}
    assert set(versions()) > _OTHERS


def test_the_table_of_files_is_what_the_list_says() -> None:
    assert page(PAGE) == PAGE, f"docs/formats.md is out of date: run '{COMMAND}'"
    assert all(
        f"`{re.sub('{.*?}', '*', kind.NAME)}`" in PAGE or f"/{re.sub('{.*?}', '*', kind.NAME)}`" in PAGE
        for kind in LAYOUT
    )
