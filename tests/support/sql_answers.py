"""The files of recorded answers of Flink SQL (`tests/sql/README.md` describes their form): reading and writing them,
and the texts of values in them.

This module needs nothing but Python: the recording script runs where only PyFlink is installed.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.support import nexmark

FOLDER = Path(__file__).parents[1] / "sql"
_KINDS = ("option", "table", "statement", "query", "expressions")
ERROR = "ERROR: "
ARROW = "  => "


@dataclass
class Record:
    """One part of a file.

    Args:
        kind: option, table, statement, query or expressions.
        words: what stands behind the kind on its first line.
        line: the number of that line.
        text: the lines below, as they are written.
        answer: the lines below ``----``: of a query its columns and rows; of an error its message.
    """

    kind: str
    words: list[str]
    line: int
    text: list[str] = field(default_factory=list)
    answer: list[str] | None = None

    @property
    def fails(self) -> bool:
        """Whether it was recorded that Flink refuses this."""
        return "error" in self.words

    @property
    def sql(self) -> str:
        """The statement or the query."""
        return "\n".join(self.text)

    @property
    def expressions(self) -> list[tuple[str, str | None]]:
        """Each expression with its recorded answer."""
        pairs = [line.partition(ARROW) for line in self.text]
        return [(expression.rstrip(), answer if arrow else None) for expression, arrow, answer in pairs]


def parse(path: Path) -> list[Record | str]:
    """The records of a file, and the lines between them (comments and empty lines)."""
    parts: list[Record | str] = []
    record: Record | None = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.split()
        if record is None and (not words or line.startswith("#")):
            parts.append(line)
        elif record is None:
            if words[0] not in _KINDS:
                raise ValueError(f"{path.name}:{number}: no kind of record: {line!r}; expected one of {_KINDS}")
            record = Record(words[0], words[1:], number)
            parts.append(record)
            if record.kind == "option":
                record = None
        elif not words:
            record = None
            parts.append(line)
        elif line == "----":
            record.answer = []
        elif record.answer is not None:
            record.answer.append(line)
        else:
            record.text.append(line)
    return parts


def records_of(path: Path) -> list[Record]:
    """The records of a file."""
    return [part for part in parse(path) if isinstance(part, Record)]


def written(parts: Iterable[Record | str]) -> str:
    """The text of a file."""
    lines: list[str] = []
    for part in parts:
        if isinstance(part, str):
            lines.append(part)
            continue
        lines += [" ".join([part.kind, *part.words]), *part.text]
        if part.answer is not None:
            lines += ["----", *part.answer]
    return "\n".join(lines) + "\n"


def declared(record: Record, folder: Path) -> str:
    """CREATE TABLE of a ``table`` record, whose rows get written to ``folder`` as lines of JSON."""
    name, *columns = record.words
    target = folder / name
    target.mkdir(parents=True, exist_ok=True)
    given = record.answer or []
    if given and given[0].startswith("nexmark "):
        rows = nexmark.events(int(given[0].split()[1]))
    else:
        rows = [json.loads(line) for line in given]
    if rows:
        objects = [json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) for row in rows]
        (target / "rows.json").write_text("".join(line + "\n" for line in objects))
    options = f"'connector' = 'filesystem', 'path' = '{target}', 'format' = 'json'"
    return f"CREATE TABLE {name} (\n{record.sql}\n) WITH ({options})"


# --- texts of values ------------------------------------------------------------------------------------------------


def text_of(value: Any) -> str:
    """The text of a value as Python holds it: ``NULL``, ``TRUE``, ``1.5``, ``"text"``, ``2024-01-31 12:00:00.5``, with
    ``Z`` behind a moment, ``X'0a'``, ``[1, 2]``, ``{"a": 1}``, ``(1, "a")``.

    >>> text_of([None, True, 1.0, "it's", Decimal("1.50"), b"\\n", datetime.datetime(2024, 1, 31)])
    '[NULL, TRUE, 1.0, "it\\'s", 1.50, X\\'0a\\', 2024-01-31 00:00:00]'
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case str():
            return json.dumps(value, ensure_ascii=False)
        case bytes() | bytearray():
            return f"X'{value.hex()}'"
        case Decimal():
            return f"{value:f}"
        case datetime.datetime() if value.tzinfo is not None:
            return text_of(value.astimezone(datetime.timezone.utc).replace(tzinfo=None)) + "Z"
        case datetime.datetime():
            return time_text(value.isoformat(" "))
        case datetime.time():
            return time_text(value.isoformat())
        case list():
            return "[" + ", ".join(map(text_of, value)) + "]"
        case dict():
            return "{" + ", ".join(sorted(f"{text_of(key)}: {text_of(item)}" for key, item in value.items())) + "}"
        case _ if hasattr(value, "get_row_kind"):
            return "(" + ", ".join(map(text_of, value)) + ")"
        case tuple():
            return "(" + ", ".join(map(text_of, value)) + ")"
        case _ if hasattr(value, "seconds") and hasattr(value, "nanos"):
            whole = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=value.seconds)
            return time_text(f"{whole.isoformat(' ')}.{value.nanos:09}") + "Z"
        case _:
            return str(value)


def time_text(text: str) -> str:
    """A time with its seconds, and their fraction without zeros at the end."""
    text = text.replace("T", " ")
    if text.count(":") == 1:
        text += ":00"
    return text.rstrip("0").rstrip(".") if "." in text else text


def row_text(values: Iterable[Any]) -> str:
    """A row of an answer."""
    return " | ".join(map(text_of, values))


def materialized(changes: Iterable[tuple[int, str]]) -> list[str]:
    """The sorted rows that are left of changes, which are pairs of RowKind's number (0 +I, 1 -U, 2 +U, 3 -D) and text.

    >>> materialized([(0, "1"), (0, "2"), (1, "1"), (2, "3")])
    ['2', '3']
    """
    rows: Counter[str] = Counter()
    for kind, text in changes:
        rows[text] += 1 if kind in (0, 2) else -1
    wrong = [text for text, count in rows.items() if count < 0]
    if wrong:
        raise AssertionError(f"rows are taken back that were never there: {wrong[:3]}")
    return sorted(rows.elements())


def digest(rows: Sequence[str]) -> list[str]:
    """What is recorded of many rows."""
    return [f"{len(rows)} rows, sha256 {hashlib.sha256(chr(10).join(rows).encode()).hexdigest()}"]


def columns_text(columns: Sequence[tuple[str, str]]) -> str:
    """The line of an answer that names the columns and their types."""
    return " | ".join(f"{name} {type_}" for name, type_ in columns)
