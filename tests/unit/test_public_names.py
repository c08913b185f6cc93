"""docs/api.md says of every public name of PyFlink's what flinkish has of it."""

from __future__ import annotations

import importlib
from operator import attrgetter
from typing import Any

import pytest

from flinkish.datastream import KeyedProcessFunction, OutputTag, ProcessWindowFunction, TimerService, TimeWindow
from flinkish.datastream.functions import KeyedStateStore
from flinkish.errors import ProgramError
from tests.public_names.make_list import without
from tests.public_names.package_names import Names, compare
from tests.public_names.pyflink_names import FORMER_LIST, LIST, read_list
from tests.public_names.table import COMMAND, PAGE, Notes, current, page


def test_the_page_is_what_the_package_and_the_notes_say() -> None:
    text, faults = current()
    assert faults == []
    assert PAGE.read_text() == text, f"docs/api.md is out of date: run '{COMMAND}'"


def test_every_listed_name_can_be_imported() -> None:
    names = compare([*read_list(LIST.read_text()), *read_list(FORMER_LIST.read_text())])
    assert names.missing == set()
    assert len(names.present) > 1_700


@pytest.mark.parametrize("module", ["pyflink.datastream.functions", "pyflink.datastream.state"])
def test_what_users_derive_from_asks_for_no_method_that_pyflink_does_not_have(module: str) -> None:
    """So test doubles of contexts and states, written for PyFlink, can be made."""
    classes = {listed.name: listed for found in read_list(LIST.read_text()) for listed in found.classes}

    def members(name: str) -> set[str]:
        return set(classes[name].members).union(*(members(base) for base in classes[name].bases))

    (listed,) = (found for found in read_list(LIST.read_text()) if found.name == module)
    absent = compare([listed]).absent
    asked = {
        f"{found.name}.{method}"
        for found in listed.classes
        if found.name not in ("SourceFunction", "StateDescriptor", *absent)
        for method in getattr(attrgetter(found.name)(importlib.import_module(listed.here)), "__abstractmethods__", ())
        if not method.startswith("_") and method not in members(found.name)
    }
    assert asked == set()


class Context(KeyedProcessFunction.Context):
    """A double as a user of PyFlink writes it."""

    def get_current_key(self) -> str:
        return "a"

    def timer_service(self) -> TimerService:
        raise NotImplementedError

    def timestamp(self) -> int:
        return 7


def test_a_double_of_a_context_may_be_asked_for_a_commit() -> None:
    context = Context()
    context.request_commit()
    assert context.timestamp() == 7


class WindowContext(ProcessWindowFunction.Context[TimeWindow]):
    def window(self) -> TimeWindow:
        return TimeWindow(0, 5)

    def current_processing_time(self) -> int:
        return 0

    def current_watermark(self) -> int:
        return 0

    def window_state(self) -> KeyedStateStore:
        raise NotImplementedError

    def global_state(self) -> KeyedStateStore:
        raise NotImplementedError


def test_a_double_of_a_context_says_which_method_of_flinkish_it_lacks() -> None:
    with pytest.raises(ProgramError, match=r"WindowContext has no output\(\)"):
        WindowContext().output(OutputTag("late"), 1)


def test_the_list_holds_what_pyflink_sets_takes_and_defines() -> None:
    modules = {module.name: module for module in read_list(LIST.read_text())}
    classes = [listed for module in modules.values() for listed in module.classes]
    assert len(classes) > 320
    assert {base for listed in classes for base in listed.bases} <= {listed.name for listed in classes}
    # set at run time; merely imported; a type variable
    assert "FlinkKafkaConsumer" in modules["pyflink.datastream.connectors"].imported
    assert "RuntimeExecutionMode" in modules["pyflink.datastream.stream_execution_environment"].imported
    assert "KEY" in modules["pyflink.datastream.functions"].imported


def test_former_names_are_those_that_the_newest_version_lacks_everywhere() -> None:
    def module(**kinds: Any) -> dict[str, Any]:
        return {"import": [], "var": [], "def": [], "class": {}, **kinds}

    newest = {"a": module(**{"class": {"A": ([], ["kept"])}}), "b": module(**{"class": {"Moved": ([], ["kept"])}})}
    former = {
        "a": module(
            **{"class": {"A": ([], ["kept", "gone"]), "Moved": ([], ["kept"]), "Gone": ([], [])}, "var": ["T"]}
        ),
        "b": module(),
    }
    expected = module(**{"class": {"A": ([], ["gone"]), "Gone": ([], [])}, "import": ["Moved"], "var": ["T"]})
    assert without([former, former], newest) == {"a": expected}


SMALL_LIST = """
pyflink.a
    def f
    C
        here gone odd idle
"""


def notes(differs: str = "", means_nothing: str = "", beyond: str = "", internal: str = "") -> Notes:
    return Notes.read(
        f"[differs]\n{differs}\n[means_nothing]\n{means_nothing}\n[beyond]\n{beyond}\n[internal]\nnames=[{internal}]"
    )


def names(present: str, missing: str = "", beyond: str = "", absent: str = "") -> Names:
    kinds = (frozenset(text.split()) for text in (present, missing, beyond))
    return Names(*kinds, dict.fromkeys(absent.split(), "do otherwise"))


def test_a_missing_name_is_not_claimed() -> None:
    said = notes('"C.odd"="why"', '"*.idle"="warns"')
    text = page(read_list(SMALL_LIST), names("f C C.here C.odd C.idle", "C.gone"), said)
    assert "| `f()` | as in PyFlink |" in text
    assert "| `C`: `here` | as in PyFlink |" in text
    assert "| `C`: `gone` | not there yet |" in text
    assert "| `C`: `odd` | differs: why |" in text
    assert "| `C`: `idle` | means nothing here: warns |" in text


def test_an_absent_name_is_shown_with_what_to_do_and_its_members() -> None:
    text = page(read_list(SMALL_LIST), names("f", absent="C"), notes())
    assert "| **`C`**: `here`, `gone`, `odd`, `idle` | not here: do otherwise |" in text
    assert "1 behave as in PyFlink, 0 differ, 0 mean nothing here, 1 are not here, 0 are not there yet." in text


def test_a_note_of_a_missing_name_and_an_undescribed_name_are_faults() -> None:
    said = notes('"C.gone"="why"', beyond='"C.new"="what"', internal='"C.inner*"')
    there = names("C", "C.gone", "C.new C.unknown")
    assert [fault.split(":")[0] for fault in said.faults(there)] == [
        "the note of 'C.gone' is of no name that is there",
        "'C.inner*' is no public name beyond PyFlink's",
        "'C.unknown' is public, and PyFlink has no such name",
    ]
