"""A table with a column of each kind, for each database, and its rows as they are to be read."""

from __future__ import annotations

import datetime
from decimal import Decimal

from flinkish.common.time import Instant
from flinkish.common.typeinfo import Types
from flinkish.common.types import Row

FIELDS = {
    "id": Types.LONG(),
    "name": Types.STRING(),
    "price": Types.BIG_DEC(),
    "weight": Types.DOUBLE(),
    "sold": Types.BOOLEAN(),
    "day": Types.SQL_DATE(),
    "moment": Types.SQL_TIMESTAMP(),
    "at": Types.INSTANT(),
    "raw": Types.PRIMITIVE_ARRAY(Types.BYTE()),
}
ITEM = Types.ROW_NAMED(list(FIELDS), list(FIELDS.values()))
CREATE = (
    "CREATE TABLE items (id BIGINT, name TEXT, price NUMERIC(9, 2), weight DOUBLE PRECISION, sold BOOLEAN, day DATE,"
    ' moment TIMESTAMP, "at" TIMESTAMP WITH TIME ZONE, raw {bytes})'
)
CREATE_IN_MYSQL = (
    "CREATE TABLE items (id BIGINT, name VARCHAR(20), price NUMERIC(9, 2), weight DOUBLE, sold BOOLEAN, day DATE,"
    " moment DATETIME(6), `at` TIMESTAMP NULL, raw BLOB)"
)


def insert(first: int, count: int, blob: str, at: str = "2024-02-29 12:00:00+02:00") -> str:
    """A statement that adds items. ``blob``: the text of two bytes in that database; ``at``: that of a moment."""
    rows = ", ".join(
        f"({n}, 'item {n}', {n}.50, {n}.25, {'TRUE' if n % 2 else 'FALSE'}, '2024-02-29', '2024-02-29 12:00:01.5',"
        f" '{at}', {blob})"
        for n in range(first, first + count)
    )
    return f"INSERT INTO items VALUES {rows}"


def item(n: int) -> Row:
    """The item of that id."""
    return Row(
        id=n,
        name=f"item {n}",
        price=Decimal(f"{n}.50"),
        weight=n + 0.25,
        sold=bool(n % 2),
        day=datetime.date(2024, 2, 29),
        moment=datetime.datetime(2024, 2, 29, 12, 0, 1, 500_000),
        at=Instant(1709200800, 0),
        raw=b"\x00\xff",
    )


#: What a query may end and begin with, and be made of.
QUERIES = [
    "SELECT * FROM items -- all of them",
    "SELECT * FROM items; -- all of them?\n",
    "\n\tSELECT * FROM items /* all; of 'them */ ;\n ; \n",
    "-- all of them;\nSELECT * FROM items",
    "SELECT * FROM items WHERE name <> ';--' -- ;",
    "WITH few AS (SELECT * FROM items) SELECT * FROM few ORDER BY id DESC --",
    "SELECT q.* FROM items AS q",
    "SELECT q.* FROM items q LIMIT 100;--",
]
