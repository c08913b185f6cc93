"""``JdbcSource``: reads the rows of a query page by page, in the order of a key.

Rule: a table may change at any time, so rows that were read once are not asked for again: pages are read ahead into the
job directory (``paged_source``), and the cursor is the last key read.
"""

from __future__ import annotations

import base64
import datetime
import math
import re
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any

from flinkish.common.time import Duration, Instant
from flinkish.common.typeinfo import ListTypeInfo, ObjectArrayTypeInfo, RowTypeInfo, TypeInformation, Types
from flinkish.common.typeinfo.basic import DecimalTypeInfo
from flinkish.common.types import Row
from flinkish.connectors.jdbc.database import Failure, failure_of, no_connection, parse_url
from flinkish.connectors.jdbc.options import JdbcConnectionOptions
from flinkish.connectors.jdbc.statement import without_end
from flinkish.connectors.paged_source import Page, PagedSource
from flinkish.errors import (
    ConnectionFailedError,
    FlinkishError,
    OperationError,
    ProgramError,
    SavepointError,
    TypeMismatchError,
)


class JdbcSource(PagedSource):
    """Reads the rows of a query from PostgreSQL, MySQL, MariaDB or SQLite, as Rows in the order of a key column.

    >>> source = JdbcSource(
    ...     "SELECT id, amount FROM orders", Types.ROW_NAMED(["id", "amount"], [Types.LONG(), Types.BIG_DEC()]), "id",
    ...     JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("jdbc:postgresql://localhost/shop").build())
    >>> source.bounded
    True

    Args:
        sql: the query; it may have more columns than the type has fields. PostgreSQL's operator ``?`` is written
            ``??``.
        type_info: a ROW_NAMED whose field names are columns of the query.
        key_column: a column of the query whose values are all different and never NULL; the rows are read in its order.
        connection: the database.
        discovery_interval: how often the source, when it has read all rows, looks for rows with greater keys; None: the
            source is bounded and ends with the last row. A row that becomes visible after a greater key was read is
            never read.
        page_size: rows that one query fetches.

    Raises:
        TypeMismatchError: the type is no ROW.
        ProgramError: ``page_size`` is less than 1; or, when rows are fetched, a key is NULL or comes twice, or the
            query fails.
        ConfigurationError: the URL is not understood.
    """

    def __init__(
        self,
        sql: str,
        type_info: TypeInformation,
        key_column: str,
        connection: JdbcConnectionOptions,
        discovery_interval: Duration | None = None,
        page_size: int = 5_000,
    ) -> None:
        if not isinstance(type_info, RowTypeInfo):
            raise TypeMismatchError(
                f"the rows are declared as {type_info!r}", where="JdbcSource", expected="Types.ROW_NAMED([...], [...])"
            )
        if page_size < 1:
            raise ProgramError(f"page_size={page_size}", where="JdbcSource", expected="at least 1")
        self._type = type_info
        self._location = parse_url(connection.get_db_url(), connection.get_user_name(), connection.get_password())
        self._key = key_column
        self._page_size = page_size
        self._continuous = discovery_interval is not None
        if discovery_interval is not None:
            self.poll_interval_ms = discovery_interval.to_millis()
        dialect = self._location.dialect
        columns = ", ".join(f"q.{dialect.quoted(name)}" for name in [*type_info.get_field_names(), key_column])
        # its last line may be a comment
        self._query = f"SELECT {columns} FROM (\n{without_end(sql, dialect.token)}\n) q"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_decoders"}

    @property
    def bounded(self) -> bool:
        return not self._continuous

    @property
    def produced_type(self) -> TypeInformation:
        return self._type

    def fetch(self, cursor: Any) -> Page:
        """The next page: the rows whose keys are greater than ``cursor[0]``; without a cursor, the first page. It asks
        for one row more than a page has, to find out whether the page is the last one."""
        key = f"q.{self._location.dialect.quoted(self._key)}"
        order = f"ORDER BY {key} LIMIT {self._page_size + 1}"
        before = []
        if not cursor:
            self._check_keys(self._rows(f"{self._query} WHERE {key} IS NULL LIMIT 1", ()))
            rows = self._rows(f"{self._query} {order}", ())
        else:
            before = [_key_of(cursor)]
            rows = self._rows(f"{self._query} WHERE {key} > ? {order}", before)
        self._check_keys(rows, before)
        more, rows = len(rows) > self._page_size, rows[: self._page_size]
        if more and isinstance(rows[-1][-1], str):
            # other texts that the database takes for the same, as with another case, would be neither in this page nor
            # in the next
            self._check_keys(self._rows(f"{self._query} WHERE {key} = ? LIMIT 2", rows[-1][-1:]), same=True)
        after = [_key_in_cursor(rows[-1][-1])] if rows else cursor or _NOTHING_YET
        if not more and not self._continuous:
            after = None
        return Page([[_plain(value) for value in row[:-1]] for row in rows], after)

    def record(self, value: Any) -> Row:
        row = Row(*(decode(_revived(cell)) for decode, cell in zip(self._decoders, value, strict=True)))
        row.set_field_names(self._type.get_field_names())
        return row

    @cached_property
    def _decoders(self) -> list[Callable[[Any], Any]]:
        return [_decoder(name, kind) for name, kind in self._fields()]

    def _fields(self) -> list[tuple[str, TypeInformation]]:
        return list(zip(self._type.get_field_names(), self._type.get_field_types(), strict=True))

    def _check_keys(self, rows: Sequence[Any], before: Sequence[Any] = (), same: bool = False) -> None:
        """Raise ProgramError if a key is NULL, or the same as that before it (``same``: as the database takes all of
        them to be)."""
        keys = [*before, *(row[-1] for row in rows)]
        twice = next((key for key, following in zip(keys, keys[1:]) if same or _same(key, following)), None)
        if twice is not None or None in keys:
            raise ProgramError(
                f"the key column '{self._key}' " + ("is NULL" if twice is None else f"has the value {twice!r} twice"),
                where=f"JdbcSource, {self._location.label}",
                expected="a column whose values are all different and never NULL",
                hint="choose another column, such as the primary key",
            )

    def _rows(self, sql: str, parameters: Sequence[Any]) -> list[Any]:
        location = self._location
        try:
            return location.dialect.select(location, sql, parameters)
        except Exception as error:
            failure = failure_of(location, error)
            if failure is None:
                raise
            refused = no_connection(failure, error, f"JdbcSource, {location.label}")
            if refused is not None:
                raise refused from error
            kinds: dict[Failure, type[FlinkishError]] = {
                Failure.CONNECTION_LOST: ConnectionFailedError,
                Failure.CONFLICT: ConnectionFailedError,
                Failure.OPERATOR: OperationError,
            }
            raise kinds.get(failure, ProgramError)(
                f"the query failed: {str(error).strip()}", where=f"JdbcSource, {location.label}: {sql[:300]}"
            ) from error


#: The cursor of a continuous source whose query has no rows yet: the first page is asked for again.
_NOTHING_YET: list[Any] = []
#: The only key of the JSON object that stands for bytes in a page or cursor, or for a decimal in a cursor.
_BYTES, _DECIMAL = "$bytes", "$decimal"


def _plain(value: Any) -> Any:
    """The value of a column, as a value of JSON's types."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (bytes, memoryview)):
        return {_BYTES: base64.b64encode(value).decode()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (Decimal, uuid.UUID)):
        return str(value)
    return value


def _revived(value: Any) -> Any:
    """The inverse of `_plain` for bytes, so that they are neither read nor compared as texts."""
    return (
        base64.b64decode(value[_BYTES], validate=True)
        if isinstance(value, dict) and value.keys() == {_BYTES}
        else value
    )


def _key_in_cursor(key: Any) -> Any:
    # a database may compare a number with a text in floating point
    return {_DECIMAL: str(key)} if isinstance(key, Decimal) else _plain(key)


def _same(key: Any, following: Any) -> bool:
    """Whether keys are the same. One from a cursor is a text if the database's class of it has none in JSON."""
    return bool(key == following or isinstance(key, str) and key == _plain(following))


def _key_of(cursor: Any) -> Any:
    """The last key that was read, from a cursor, which may come from a savepoint that somebody else has written."""
    try:
        if not isinstance(cursor, list) or len(cursor) != 1:
            raise ValueError("it is no list of one value")
        key = cursor[0]
        return Decimal(key[_DECIMAL]) if isinstance(key, dict) and key.keys() == {_DECIMAL} else _revived(key)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise SavepointError(
            f"the cursor {str(cursor)[:200]} cannot be read: {error}",
            where="JdbcSource",
            expected="a list of the last key that was read",
            hint="use another savepoint",
        ) from None


def _moment(text: str) -> datetime.datetime:
    found = datetime.datetime.fromisoformat(text)
    return found if found.tzinfo is None else found.astimezone(datetime.timezone.utc).replace(tzinfo=None)


def _instant(text: str) -> Instant:
    since = _moment(text).replace(tzinfo=datetime.timezone.utc) - _EPOCH
    return Instant(since.days * 86_400 + since.seconds, since.microseconds * 1_000)


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


#: The text of a whole number of a numeric column.
_WHOLE = re.compile(r"([+-]?\d+)(\.0*)?", re.ASCII)


def _whole(bits: int | None) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        text = _WHOLE.fullmatch(value) if isinstance(value, str) else None
        number = int(value if text is None else text[1])
        # beyond 2**53, a float stands for several whole numbers
        if text is None and (number != value or isinstance(value, float) and abs(value) > 1 << 53):
            raise ValueError("not a whole number")
        if bits is not None and not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise ValueError(f"not a number of {bits} bits")
        return number

    return read


def _real(value: Any, digits: int = 53) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError("not a float")
    if isinstance(value, int) and abs(value) > 1 << digits:
        raise ValueError("a float holds some digits of it only")
    return float(value)


def _float32(value: Any) -> float:
    # a database gives the shortest text of a float of 32 bits, which is another number in 64 bits
    number = _real(value, 24)
    if math.isfinite(number) and abs(number) > _FLOAT32_MAX:
        raise ValueError("more than a float of 32 bits holds")
    return number


_FLOAT32_MAX = 3.4028235677973366e38


def _decimal(value: Any) -> Decimal:
    # SQLite stores a number of a NUMERIC column as a float, whose shortest text is the number that was written
    number = Decimal(str(value))
    if isinstance(value, bool) or not number.is_finite():
        raise ValueError("not a finite number")
    return number


def _fitting(declared: DecimalTypeInfo) -> Callable[[Any], Decimal]:
    def read(value: Any) -> Decimal:
        number = _decimal(value)
        rounded = declared.rounded(number)
        if rounded != number or rounded is None:
            raise ValueError("more digits than the type has")
        return rounded

    return read


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _binary(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("not bytes")
    return value


def _truth(value: Any) -> bool:
    # SQLite has no truth values
    if not isinstance(value, int) or value not in (0, 1):
        raise ValueError("neither true nor false")
    return bool(value)


_DECODERS: list[tuple[TypeInformation, Callable[[Any], Any]]] = [
    (Types.SQL_DATE(), lambda text: datetime.date.fromisoformat(text)),
    (Types.SQL_TIME(), lambda text: datetime.time.fromisoformat(text)),
    (Types.SQL_TIMESTAMP(), _moment),
    (Types.INSTANT(), _instant),
    (Types.BIG_DEC(), _decimal),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), _binary),
    (Types.DOUBLE(), _real),
    (Types.FLOAT(), _float32),
    (Types.BOOLEAN(), _truth),
    (Types.STRING(), _text),
    (Types.BYTE(), _whole(8)),
    (Types.SHORT(), _whole(16)),
    (Types.INT(), _whole(32)),
    (Types.LONG(), _whole(64)),
    (Types.BIG_INT(), _whole(None)),
]


def _decoder(name: str, kind: TypeInformation) -> Callable[[Any], Any]:
    """The function that converts a column's value, as it is kept in a page, to the declared type of the field. No value
    becomes another one, as in the conversions of columns (``common/typeinfo/lossless.py``).

    Raises:
        TypeMismatchError: when the function is called, if a value is not of the declared type.
    """
    found = _reader_of(kind)
    if found is None:
        convert = kind.batch_converter(f"column '{name}' of JdbcSource")
        return lambda value: None if value is None else (value if convert is None else convert([value])[0])

    def decoded(value: Any) -> Any:
        try:
            return None if value is None else found(value)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise TypeMismatchError(
                f"the column '{name}' has the value {value!r:.200}",
                where="JdbcSource",
                expected=f"a value of {kind!r}",
                hint="declare the type that the column has",
            ) from error

    return decoded


def _reader_of(kind: TypeInformation) -> Callable[[Any], Any] | None:
    if isinstance(kind, DecimalTypeInfo):
        return _fitting(kind)
    element = _reader_of(kind.elem_type) if isinstance(kind, (ListTypeInfo, ObjectArrayTypeInfo)) else None
    if element is not None:
        read = element
        return lambda values: [None if value is None else read(_revived(value)) for value in _items(values)]
    return next((decode for one, decode in _DECODERS if one == kind), None)


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("not an array")
    return value
