"""``docs/api.md``: every public name of PyFlink's DataStream API, and what it does here.

Rule upheld here: nothing in the page is claimed by hand that can be seen. Whether a name is there is looked up in the
package; the notes only say how one that is there differs, and a note of a name that is not there is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import tomllib

from tests.public_names.package_names import Names, compare
from tests.public_names.pyflink_names import FORMER_LIST, LIST, ListedModule, read_list

NOTES = Path(__file__).with_name("notes.toml")
PAGE = Path(__file__).parents[2] / "docs" / "api.md"
COMMAND = "python -m tests.public_names"

_HEAD = f"""# PyFlink's names

Every public name of PyFlink 2.3's DataStream API, module by module, and then those of 1.15 to 1.20 that 2.3 does not
have: replace `pyflink` by `flinkish` in the imports. What is true of the whole engine, such as epochs, stands in
[semantics.md](semantics.md).

* **as in PyFlink**: same arguments, same behaviour, but for what semantics.md says of the whole engine.
* **differs**: how, and why.
* **means nothing here**: the name exists so that programs import and run. What the call does is said; it warns or
  fails, and is never silent. The warning of a setting is given once, when the job is started: one line names all
  settings that have no effect.
* **not here**: the name can be imported and stand in annotations. Its use raises `UnsupportedOperationError`, with what
  to do instead.
* **not there yet**.

This page is written by `{COMMAND}` from the package itself, the lists of PyFlink's names
(`tests/public_names/pyflink_2_3.txt` and `pyflink_1_x.txt`, which `{COMMAND}.make_list` makes by importing PyFlink)
and notes (`notes.toml` beside them). A test fails while it is out of date.
"""


@dataclass(frozen=True)
class Notes:
    """What is to be said of names. The keys of the first three are patterns of names with their texts."""

    differs: dict[str, str]
    means_nothing: dict[str, str]
    beyond: dict[str, str]
    #: Patterns of public names that only the engine uses.
    internal: list[str]

    @staticmethod
    def read(text: str) -> Notes:
        """From TOML."""
        tables = tomllib.loads(text)
        return Notes(tables["differs"], tables["means_nothing"], tables["beyond"], tables["internal"]["names"])

    def of(self, name: str) -> tuple[str, str] | None:
        """(kind, text) of a listed name, if there is something to say. Of a name that a module takes from another one
        the same is true as of that name."""
        plain = name.partition(":")[2] or name
        for kind, notes in (("means nothing here", self.means_nothing), ("differs", self.differs)):
            for pattern, text in notes.items():
                if fnmatchcase(plain, pattern):
                    return kind, text
        return None

    def faults(self, names: Names) -> list[str]:
        """What is wrong with the notes: each says something of names that are there, and every public name that
        PyFlink does not have is described or the engine's."""
        faults = [
            f"the note of {pattern!r} is of no name that is there"
            for pattern in [*self.differs, *self.means_nothing]
            if not _matching(pattern, names.present)
        ]
        faults += [
            f"{pattern!r} is no public name beyond PyFlink's"
            for pattern in [*self.beyond, *self.internal]
            if not _matching(pattern, names.beyond)
        ]
        return faults + [
            f"{name!r} is public, and PyFlink has no such name: describe it under [beyond], or add it to [internal]"
            for name in sorted(names.beyond)
            if not any(fnmatchcase(name, pattern) for pattern in [*self.beyond, *self.internal])
        ]


def current() -> tuple[str, list[str]]:
    """(the page as it should be, faults of the notes)."""
    modules, former = read_list(LIST.read_text()), read_list(FORMER_LIST.read_text())
    names, notes = compare([*modules, *former]), Notes.read(NOTES.read_text())
    return page(modules, names, notes, former), notes.faults(names)


def page(modules: list[ListedModule], names: Names, notes: Notes, former: Sequence[ListedModule] = ()) -> str:
    """The page's text."""
    lines = [_HEAD, _counts(names, notes)]
    for title, listed in (("`{}`", modules), ("`{}` in PyFlink 1.15 to 1.20", former)):
        for module in listed:
            lines += [f"\n## {title.format(module.here)}\n", "| name | here |", "| --- | --- |"]
            lines += [f"| {name} | {text} |" for name, text in _rows(module, names, notes)]
    lines += ["\n## Not in PyFlink\n", "| name | what it is |", "| --- | --- |"]
    lines += [f"| `{name}` | {text} |" for name, text in sorted(notes.beyond.items())]
    return "\n".join(lines) + "\n"


def _counts(names: Names, notes: Notes) -> str:
    kinds = [(notes.of(name) or ("", ""))[0] for name in names.present]
    differ, nothing = kinds.count("differs"), kinds.count("means nothing here")
    listed = len(names.present) + len(names.missing) + len(names.absent)
    return (
        f"Of {listed} names {kinds.count('')} behave as in PyFlink, {differ} differ, {nothing} mean nothing here, "
        f"{len(names.absent)} are not here, {len(names.missing)} are not there yet.\n"
    )


def _rows(module: ListedModule, names: Names, notes: Notes) -> Iterator[tuple[str, str]]:
    taken = [(f"{module.here}:{name}", name) for name in module.imported]
    yield from _group("names from its modules", taken, names, notes)
    yield from _group("", [(name, f"{name}()") for name in module.functions], names, notes)
    for listed in module.classes:
        yield (
            f"**`{listed.name}`**{_members(listed.members) if _is_gone(listed.name, names) else ''}",
            _text(listed.name, names, notes),
        )
        if not _is_gone(listed.name, names):
            members = [(f"{listed.name}.{name}", name) for name in listed.members]
            yield from _group(f"`{listed.name}`", members, names, notes)


def _is_gone(name: str, names: Names) -> bool:
    return name in names.missing or name in names.absent


def _members(members: list[str]) -> str:
    return ": " + ", ".join(f"`{name}`" for name in members) if members else ""


def _text(name: str, names: Names, notes: Notes) -> str:
    if name in names.missing:
        return "not there yet"
    if name in names.absent:
        return f"not here: {names.absent[name]}"
    note = notes.of(name)
    return "as in PyFlink" if note is None else f"{note[0]}: {note[1]}"


def _group(title: str, members: list[tuple[str, str]], names: Names, notes: Notes) -> Iterator[tuple[str, str]]:
    """Members of which the same is to be said are one row."""
    rows: dict[str, list[str]] = {}
    for name, shown in members:
        rows.setdefault(_text(name, names, notes), []).append(shown)
    for text, shown_names in rows.items():
        yield (title + _members(shown_names)).removeprefix(": "), text


def _matching(pattern: str, names: frozenset[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)
