"""The shape of the records of a stream, and the texts by which a program makes, reads and changes such records.

A record has the fields ``k`` (key), ``n`` (number) and ``p`` (part); the part has ``a`` (number) and ``c`` (contents).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

#: kind of a structure -> whether its fields can be assigned
KINDS = {
    "dict": True,
    "list": True,
    "Row": True,
    "Plain": True,
    "Slots": True,
    "tuple": False,
    "Named": False,
    "Frozen": False,
}
#: twin: a list that has one list twice
CONTENTS = ("list", "dict", "set", "nested", "twin")
_FIELDS = {"record": ("k", "n", "p"), "part": ("a", "c")}


def _get(kind: str, level: str, variable: str, field: str) -> str:
    if kind in ("list", "tuple"):
        return f"{variable}[{_FIELDS[level].index(field)}]"
    return f'{variable}["{field}"]' if kind in ("dict", "Row") else f"{variable}.{field}"


def _make(kind: str, level: str, values: tuple[str, ...]) -> str:
    named = list(zip(_FIELDS[level], values, strict=True))
    if kind == "dict":
        return "{" + ", ".join(f'"{name}": {value}' for name, value in named) + "}"
    if kind == "Row":
        return "Row(" + ", ".join(f"{name}={value}" for name, value in named) + ")"
    if kind in ("list", "tuple"):
        return ("[{}]" if kind == "list" else "({})").format(", ".join(values))
    return f"{kind}{'Part' if level == 'part' else ''}({', '.join(values)})"


@dataclass(frozen=True)
class Shape:
    """``typed``: whether the stream has a declared type, which is possible for tuples and Rows."""

    record: str
    part: str
    contents: str
    typed: bool

    # --- reading and making -------------------------------------------------------------------------------------

    def k(self, variable: str) -> str:
        return _get(self.record, "record", variable, "k")

    def n(self, variable: str) -> str:
        return _get(self.record, "record", variable, "n")

    def p(self, variable: str) -> str:
        return _get(self.record, "record", variable, "p")

    def a(self, variable: str) -> str:
        return _get(self.part, "part", self.p(variable), "a")

    def c(self, variable: str) -> str:
        return _get(self.part, "part", self.p(variable), "c")

    def make(self, k: str, n: str, p: str) -> str:
        return _make(self.record, "record", (k, n, p))

    def make_part(self, a: str, c: str) -> str:
        return _make(self.part, "part", (a, c))

    def new_contents(self, value: str) -> str:
        return {
            "list": f"[{value}]",
            "dict": f"{{{_bracketed(value)} % 5: {value}}}",
            "set": f"{{{value}}}",
            "nested": f"[[{value}]]",
            "twin": f"[[{value}]] * 2",
        }[self.contents]

    def new(self, k: str, n: str) -> str:
        """A new record that shares nothing."""
        return self.make(k, n, self.make_part("0", self.new_contents(n)))

    def empty(self) -> str:
        """A new record with which others are combined."""
        contents = {"dict": "{}", "set": "set()"}.get(self.contents, "[]")
        return self.make('""', "0", self.make_part("0", contents))

    # --- changing -----------------------------------------------------------------------------------------------

    def changes(self, rng: random.Random, variable: str, value: str) -> list[str]:
        """Statements that change a record in place, at one or more depths."""
        number = _bracketed(value)
        contents = {
            "list": [f"{self.c(variable)}.append({value})", f"{self.c(variable)}.insert(0, {value})"],
            "dict": [f"{self.c(variable)}[{number} % 5] = {value}", f"{self.c(variable)}.pop({number} % 5, None)"],
            "set": [f"{self.c(variable)}.add({value})", f"{self.c(variable)}.discard({value} - 1)"],
            "nested": [f"{self.c(variable)}.append([{value}])", f"{self.c(variable)}[0].append({value})"],
            "twin": [f"{self.c(variable)}[0].append({value})", f"{self.c(variable)}.append({self.c(variable)}[0])"],
        }[self.contents]
        possible = contents * 2
        if KINDS[self.part]:
            possible.append(f"{self.a(variable)} += {value}")
        if KINDS[self.record]:
            possible.append(f"{self.n(variable)} += 1")
            possible.append(f"{self.p(variable)} = {self.make_part(value, self.new_contents(value))}")
        return rng.sample(possible, rng.choice((1, 1, 2, 3)))

    def refilled(self, variable: str, key: str, value: str) -> list[str]:
        """Statements that make ``variable`` a record with other contents, and change all that can be changed of the
        record that it was."""
        contents, fresh = self.c(variable), self.new_contents(value)
        lists = self.contents in ("list", "nested", "twin")
        lines = [f"{contents}[:] = {fresh}"] if lists else [f"{contents}.clear()", f"{contents}.update({fresh})"]
        if KINDS[self.part]:
            lines.append(f"{self.a(variable)} = {value}")
        if KINDS[self.record]:
            return [*lines, f"{self.k(variable)} = {key}", f"{self.n(variable)} = {value}"]
        return [*lines, f"{variable} = {self.make(key, value, self.p(variable))}"]

    def combined(self, into: str, other: str) -> list[str]:
        """Statements that combine two records in place where that is possible; the result is in the variable ``into``.
        Combining is associative."""
        c, d = self.c(into), self.c(other)
        merge = [f"{c}.update({d})"] if self.contents in ("dict", "set") else [f"{c}.extend({d})", f"del {c}[:-8]"]
        if KINDS[self.part]:
            merge.append(f"{self.a(into)} += {self.a(other)}")
            part = self.p(into)
        else:
            part = self.make_part(f"{self.a(into)} + {self.a(other)}", c)
        if not KINDS[self.record]:
            return [*merge, f"{into} = {self.make(self.k(other), self.n(other), part)}"]
        if part != self.p(into):
            merge.append(f"{self.p(into)} = {part}")
        return [*merge, f"{self.k(into)} = {self.k(other)}", f"{self.n(into)} = {self.n(other)}"]

    # --- types --------------------------------------------------------------------------------------------------

    def declared(self) -> str:
        """The declared type, or the one that stands for any Python object."""
        if not self.typed or self.record not in ("Row", "tuple"):
            return "Types.PICKLED_BYTE_ARRAY()"
        contents = {
            "list": "Types.LIST(Types.LONG())",
            "dict": "Types.MAP(Types.LONG(), Types.LONG())",
            "nested": "Types.LIST(Types.LIST(Types.LONG()))",
        }.get(self.contents, "Types.PICKLED_BYTE_ARRAY()")
        part = _declared(self.part, "part", ["Types.LONG()", contents])
        return _declared(self.record, "record", ["Types.STRING()", "Types.LONG()", part])

    def other_record(self, rng: random.Random) -> Shape:
        """The same part in another kind of record."""
        return replace(self, record=rng.choice(list(KINDS)), typed=rng.random() < 0.3)


def _bracketed(value: str) -> str:
    """An expression that can stand before an operator."""
    return f"({value})" if " " in value else value


def _declared(kind: str, level: str, types: list[str]) -> str:
    if kind == "Row":
        names = ", ".join(f'"{name}"' for name in _FIELDS[level])
        return f"Types.ROW_NAMED([{names}], [{', '.join(types)}])"
    return f"Types.TUPLE([{', '.join(types)}])" if kind == "tuple" else "Types.PICKLED_BYTE_ARRAY()"


def random_shape(rng: random.Random) -> Shape:
    """A shape; kinds that everybody uses are more frequent."""
    record = rng.choice([*KINDS, "dict", "tuple", "Row"])
    return Shape(record, rng.choice([*KINDS, "dict"]), rng.choice([*CONTENTS, "list"]), rng.random() < 0.4)
