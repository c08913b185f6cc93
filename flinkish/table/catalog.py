"""The catalog of a table environment: the tables, views and functions of its program, by their names.

Names are those without Flink's default catalog and database. Names of functions may be in capital letters or not.
All tables belong to the program, whether they are temporary or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from flinkish.common.no_effect import supply_names
from flinkish.errors import ProgramError
from flinkish.table.plan import Relation
from flinkish.table.schema import TableDescriptor, like
from flinkish.table.syntax import TableDefinition
from flinkish.table.tokens import where_of

if TYPE_CHECKING:
    from flinkish.table.udf import UserFunction

__all__: list[str] = []

_WHERE = "the table environment"


def name_of(path: str) -> str:
    """The name of a table, view or function without Flink's default catalog and database.

    >>> name_of("`default_catalog`.`default_database`.`t`")
    't'
    """
    return path.replace("`", "").removeprefix("default_catalog.").removeprefix("default_database.")


def nearest(name: str, names: Iterable[str], kind: str = "a column") -> tuple[str, str]:
    """What was expected where a name is unknown, and the hint with the nearest ones."""
    known = list(dict.fromkeys(names))
    folded = [each for each in known if each.lower() == name.lower()]
    near = folded or get_close_matches(name, known, 3, 0.6)
    shown = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
    return f"{kind}: {shown or 'there is none'}", f"did you mean {' or '.join(near)}?" if near else ""


@dataclass
class Catalog:
    """What names mean in the queries of a program.

    Args:
        zone: gives the time zone of the session (``table.local-time-zone``).
        is_batch: gives whether the program is a batch one, whose aggregates have only their last results.
        tables: a view is its relation.
        temporary: the names of temporary tables and views; all belong to the program, whether they are or not.
    """

    zone: Callable[[], str]
    is_batch: Callable[[], bool]
    tables: dict[str, TableDescriptor | Relation] = field(default_factory=dict)
    functions: dict[str, UserFunction] = field(default_factory=dict)
    temporary: set[str] = field(default_factory=set)

    def table(self, name: str) -> TableDescriptor | Relation | None:
        return self.tables.get(name_of(name))

    def function(self, name: str) -> UserFunction | None:
        """The function that the program has registered under that name."""
        return self.functions.get(name_of(name).lower())

    def name_for(self, relation: Relation) -> str:
        """The name under which a relation is registered, or is from now on: ``UnnamedTable$0`` and so on."""
        unnamed = [name for name in self.tables if name.startswith("UnnamedTable$")]
        name = next((name for name in unnamed if self.tables[name] is relation), f"UnnamedTable${len(unnamed)}")
        self.add_table(name, relation, tolerant=True, temporary=True)
        return name

    def known(self, name: str, where: str = _WHERE) -> TableDescriptor | Relation:
        """The table or view of that name. Raises ProgramError, with the nearest names, if there is none."""
        found = self.table(name)
        if found is None:
            expected, hint = nearest(name, self.tables, "a table")
            raise ProgramError(f"there is no table '{name_of(name)}'", where=where, expected=expected, hint=hint)
        return found

    def with_base(self, definition: TableDefinition, statement: str) -> TableDefinition:
        """The definition of a table that may be LIKE another one."""
        if definition.like is None:
            return definition
        where = where_of(statement)
        base = self.known(definition.like, where)
        if isinstance(base, Relation):
            raise ProgramError(f"'{definition.like}' is a view", where=where, expected="LIKE a table of CREATE TABLE")
        return like(definition, base.definition, where)

    def add_table(
        self, path: str, entry: TableDescriptor | Relation, tolerant: bool = False, temporary: bool = False
    ) -> None:
        """Register a table or view. Raises ProgramError if the name is taken, unless ``tolerant``."""
        self._add("table", self.tables, name_of(path), entry, tolerant)
        self.temporary |= {name_of(path)} if temporary else set()

    def add_function(self, path: str, function: UserFunction, tolerant: bool = False) -> None:
        """Register a function. Raises ProgramError if the name is taken, unless ``tolerant``."""
        self._add("function", self.functions, name_of(path).lower(), function, tolerant)

    @staticmethod
    def _add(kind: str, entries: dict[str, Any], name: str, entry: Any, tolerant: bool) -> None:
        if name in entries and not tolerant:
            raise ProgramError(f"the {kind} '{name}' exists", where=_WHERE, expected="another name")
        entries.setdefault(name, entry)

    def remove(self, name: str) -> None:
        self.tables.pop(name, None)
        self.temporary.discard(name)

    def drop(self, kind: str, path: str, tolerant: bool) -> bool:
        """Remove what is a TABLE, VIEW or FUNCTION. Returns whether it was there.

        Raises:
            ProgramError: it is not there, unless ``tolerant``.
        """
        name = name_of(path)
        if kind == "FUNCTION":
            if name.lower() not in self.functions and not tolerant:
                raise ProgramError(f"there is no function '{name}'", where=_WHERE)
            return self.functions.pop(name.lower(), None) is not None
        entry = self.table(name) if tolerant else self.known(path)
        fits = entry is not None and kind == ("VIEW" if isinstance(entry, Relation) else "TABLE")
        if fits:
            self.remove(name)
        elif not tolerant:
            hint = "DROP TABLE" if kind == "VIEW" else "DROP VIEW"
            raise ProgramError(f"'{name}' is no {kind.lower()}", where=_WHERE, hint=hint)
        return fits


# this is also the path of PyFlink's catalogs
supply_names(__name__, "table.table_result")
