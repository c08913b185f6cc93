"""The names of data stay in stored values wherever their classes are."""

from __future__ import annotations

from flinkish.common import typeinfo
from flinkish.common.typeinfo import TypeInformation
from flinkish.runtime.stored.names import DATA_NAMES, NOW_IN, NamesOfData, data_name
from flinkish.runtime.stored_names import CONSTRUCTORS, OWN


class Moved:
    """A class that was elsewhere once."""

    class Inner:
        """A class in it."""


class Stayed:
    """A class of the same module that was always here."""


def test_a_class_that_was_moved_is_found_and_stored_under_its_first_name() -> None:
    names = NamesOfData({"shop.model:Moved", "shop.model:Moved.Inner"}, {"shop.model": __name__})
    for name, kind in (("shop.model:Moved", Moved), ("shop.model:Moved.Inner", Moved.Inner)):
        assert names.lookup(name) is kind
        assert names.name_of(kind) == name


def test_a_class_that_was_renamed_is_found_and_stored_under_its_first_name() -> None:
    names = NamesOfData(
        {"shop.model:Old", "shop.model:Moved"}, {"shop.model:Old": f"{__name__}:Stayed", "shop.model": __name__}
    )
    assert names.lookup("shop.model:Old") is Stayed and names.name_of(Stayed) == "shop.model:Old"
    assert names.name_of(Moved) == "shop.model:Moved"


def test_a_class_that_is_not_in_the_table_has_no_name_of_data() -> None:
    names = NamesOfData({"shop.model:Moved"}, {"shop.model": __name__})
    assert names.name_of(Stayed) is None
    namesake = type("Moved", (), {"__module__": __name__, "__qualname__": "Moved"})
    assert names.name_of(namesake) is None


def test_each_module_in_names_of_flinkish_has_a_row() -> None:
    modules = {name.partition(":")[0] for name in DATA_NAMES if name.startswith("flinkish.")}
    assert modules == {name.partition(":")[0] for name in NOW_IN}


def test_each_type_of_the_api_has_a_name() -> None:
    kinds = [kind for kind in vars(typeinfo).values() if isinstance(kind, type) and issubclass(kind, TypeInformation)]
    assert len(kinds) > 10 and all(map(data_name, kinds))


def test_the_constructors_are_where_pickles_look_for_them() -> None:
    assert {constructor.__module__ for constructor in CONSTRUCTORS} == {OWN}
