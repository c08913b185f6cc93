"""The types of columns as SQL writes them: ``DECIMAL(10, 2)``, ``ROW<a INT, b ARRAY<STRING>>``, ``DOUBLE ARRAY``."""

from __future__ import annotations

from flinkish.table.logical_types import INTERVAL_DAY, INTERVAL_MONTH, MAX_LENGTH, MAX_PRECISION, NULL, LogicalType
from flinkish.table.tokens import Tokens

#: spelling -> (type, sizes if none are given, least and greatest first size)
_TYPES: dict[str, tuple[str, tuple[int, ...], int, int]] = {
    **{word: (word, (), 0, 0) for word in "BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE DATE".split()},
    "INTEGER": ("INT", (), 0, 0),
    "STRING": ("VARCHAR", (MAX_LENGTH,), 0, 0), "BYTES": ("VARBINARY", (MAX_LENGTH,), 0, 0),
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC"), ("DECIMAL", (10, 0), 1, MAX_PRECISION)),
    **dict.fromkeys(("CHAR", "CHARACTER"), ("CHAR", (1,), 1, MAX_LENGTH)),
    **{word: (word, (1,), 1, MAX_LENGTH) for word in ("VARCHAR", "BINARY", "VARBINARY")},
    "TIME": ("TIME", (0,), 0, 9), "TIMESTAMP": ("TIMESTAMP", (6,), 0, 9),
    "TIMESTAMP_LTZ": ("TIMESTAMP_LTZ", (6,), 0, 9),
}  # fmt: skip
MONTHS = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}
MILLISECONDS = {"WEEK": 604_800_000, "DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000, "SECOND": 1_000}


def read_type(tokens: Tokens) -> LogicalType:
    """The type that comes next. NOT NULL and NULL behind it are read and have no effect.

    Raises:
        ProgramError: there is no such type.
    """
    tokens.enter()
    kind = _simple(tokens)
    while True:
        tokens.accept("NOT NULL", "NULL")
        if not (collection := tokens.accept("ARRAY", "MULTISET")):
            break
        tokens.rise()
        kind = LogicalType(collection, (), (kind,))
    tokens.depth -= 1
    return kind


def _simple(tokens: Tokens) -> LogicalType:
    start, word = tokens.next, tokens.accept("ARRAY", "MULTISET", "MAP", "ROW", "INTERVAL", "NULL", *_TYPES)
    if word in ("ARRAY", "MULTISET", "MAP"):
        tokens.expect("<")
        parts = tokens.listed(lambda: read_type(tokens))
        tokens.expect(">")
        if len(parts) != 1 + (word == "MAP"):
            raise tokens.error(f"{word} of {len(parts)} types", start.start, "MAP<key, value>, ARRAY<element>")
        return LogicalType(word, (), parts)
    if word == "ROW":
        return _row(tokens)
    if word == "INTERVAL":
        return INTERVAL_MONTH if qualifier(tokens)[0] in MONTHS else INTERVAL_DAY
    if word == "NULL":
        return NULL
    if not word:
        tokens.unexpected("a type of SQL, such as INT, STRING, DECIMAL(10, 2), TIMESTAMP(3), ROW<a INT>")
    varying = word in ("CHAR", "CHARACTER") and tokens.accept("VARYING")
    root, sizes, least, greatest = _TYPES["VARCHAR" if varying else word]
    tokens.accept("PRECISION" if word == "DOUBLE" else "")
    if greatest and tokens.next.upper == "(":
        given = tokens.in_brackets(lambda: tokens.number("a number"))
        first, second = (*given, 0)[:2]
        if len(given) > len(sizes) or not least <= first <= greatest or second > first:
            scale = ", and a scale of 0 to the precision" if root == "DECIMAL" else ""
            expected = f"{root} with {least} to {greatest:,}{scale}"
            raise tokens.error(f"the type {word}({', '.join(map(str, given))})", start.start, expected)
        sizes = (*given, 0)[: len(sizes)]
    if root in ("TIME", "TIMESTAMP"):
        zone = tokens.accept("WITHOUT TIME ZONE", "WITH LOCAL TIME ZONE", "WITH TIME ZONE")
        if zone == "WITH TIME ZONE":
            tokens.refused("zoned")
        root = "TIMESTAMP_LTZ" if zone == "WITH LOCAL TIME ZONE" else root
    return LogicalType(root, sizes)


def _row(tokens: Tokens) -> LogicalType:
    """The fields of a ROW in < > or ( ), each with an optional comment."""

    def field() -> tuple[str, LogicalType]:
        name, kind = tokens.name("the name of a field"), read_type(tokens)
        if tokens.next.kind == "text":
            tokens.text("a comment")
        return name, kind

    if tokens.accept("<>"):
        return LogicalType("ROW")
    end = ">" if tokens.expect("<", "(") == "<" else ")"
    fields = tokens.listed(field)
    tokens.expect(end)
    return LogicalType("ROW", (), tuple(kind for _, kind in fields), tuple(name for name, _ in fields))


def qualifier(tokens: Tokens) -> tuple[str, str]:
    """The units of an interval: ``DAY(2) TO SECOND(3)``; the second one is empty if there is one only."""

    def unit() -> str:
        found = tokens.accept(*MONTHS, *MILLISECONDS, *(f"{name}S" for name in (*MONTHS, *MILLISECONDS)))
        if tokens.next.upper == "(" and found:
            tokens.in_brackets(lambda: tokens.number("a number of digits"))
        return found.removesuffix("S") or tokens.unexpected("a unit: YEAR, MONTH, DAY, HOUR, MINUTE or SECOND")

    first = unit()
    return first, unit() if tokens.accept("TO") else ""
