"""docs/api.md says of every public name of PyFlink's what flinkish has of it."""

from __future__ import annotations

from tests.public_names.package_names import Names
from tests.public_names.pyflink_names import listed_modules, read_list
from tests.public_names.table import COMMAND, PAGE, Notes, current, page


def test_the_page_is_what_the_package_and_the_notes_say() -> None:
    text, faults = current()
    assert faults == []
    assert PAGE.read_text() == text, f"docs/api.md is out of date: run '{COMMAND}'"


def test_the_list_holds_the_core_of_the_data_stream_api() -> None:
    modules = listed_modules()
    classes = [listed for module in modules for listed in module.classes]
    assert len(classes) == len({listed.name for listed in classes}) == 278
    assert {base for listed in classes for base in listed.bases} <= {listed.name for listed in classes}


LIST = """
pyflink.a
    def f
    C
        here gone odd idle
"""


def notes(differs: str = "", means_nothing: str = "", beyond: str = "", internal: str = "") -> Notes:
    return Notes.read(
        f"[differs]\n{differs}\n[means_nothing]\n{means_nothing}\n[beyond]\n{beyond}\n[internal]\nnames=[{internal}]"
    )


def names(present: str, missing: str = "", beyond: str = "") -> Names:
    return Names(frozenset(present.split()), frozenset(missing.split()), frozenset(beyond.split()))


def test_a_missing_name_is_not_claimed() -> None:
    said = notes('"C.odd"="why"', '"*.idle"="warns"')
    text = page(read_list(LIST), names("f C C.here C.odd C.idle", "C.gone"), said)
    assert "| `f()` | as in PyFlink |" in text
    assert "| `C`: `here` | as in PyFlink |" in text
    assert "| `C`: `gone` | not there yet |" in text
    assert "| `C`: `odd` | differs: why |" in text
    assert "| `C`: `idle` | means nothing here: warns |" in text


def test_a_note_of_a_missing_name_and_an_undescribed_name_are_faults() -> None:
    said = notes('"C.gone"="why"', beyond='"C.new"="what"', internal='"C.inner*"')
    there = names("C", "C.gone", "C.new C.unknown")
    assert [fault.split(":")[0] for fault in said.faults(there)] == [
        "the note of 'C.gone' is of no name that is there",
        "'C.inner*' is no public name beyond PyFlink's",
        "'C.unknown' is public, and PyFlink has no such name",
    ]
