"""The schemas of tables, and the SQL statements that declare tables and copy one to another.

Rule upheld here: there is no SQL engine. SQL is parsed by sqlglot (extra ``table``), and whatever would need an engine
is refused in words that say what to do instead. A schema is pure data, so that workers need no sqlglot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

from flinkish.common.arguments import check_instance
from flinkish.common.typeinfo import RowTypeInfo, TypeInformation, Types
from flinkish.errors import EnvironmentVersionError, ProgramError
from flinkish.table.types import DataTypes

__all__ = ["Schema"]

#: sqlglot's names of types -> the types of columns
_TYPES: dict[str, TypeInformation] = {
    **dict.fromkeys(("TEXT", "VARCHAR", "CHAR"), Types.STRING()),
    **dict.fromkeys(("BINARY", "VARBINARY"), Types.PRIMITIVE_ARRAY(Types.BYTE())),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPNTZ"), Types.SQL_TIMESTAMP()),
    "BOOLEAN": Types.BOOLEAN(), "TINYINT": Types.BYTE(), "SMALLINT": Types.SHORT(), "INT": Types.INT(),
    "BIGINT": Types.LONG(), "FLOAT": Types.FLOAT(), "DOUBLE": Types.DOUBLE(),
    "DATE": Types.SQL_DATE(), "TIME": Types.SQL_TIME(), "TIMESTAMPLTZ": Types.INSTANT(),
}  # fmt: skip
_COMPUTED = re.compile(r'PROCTIME\(\)|TO_TIMESTAMP\("?(\w+)"?\)|TO_TIMESTAMP_LTZ\("?(\w+)"?, ([03])\)', re.IGNORECASE)
_WATERMARK = re.compile(r"""("?)\w+\1(?: - INTERVAL '([\d.]+) (SECOND|MINUTE|HOUR|DAY)S?')?""", re.IGNORECASE)
_UNITS_MS = {"SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000}


def no_table_api(what: str, where: str) -> ProgramError:
    """The error for what would need the Table API or an SQL engine."""
    return ProgramError(
        f"there is no Table API: {what}",
        where=where,
        expected="a table that is only the source or the sink: CREATE TABLE, CREATE VIEW v AS SELECT * FROM t, "
        "INSERT INTO sink SELECT * FROM t, DROP",
        hint="write the query with the DataStream API after to_data_stream(...), or in Spark SQL: "
        "env.from_spark(spark.sql(...)) reads its result as a stream",
    )


class Column(NamedTuple):
    """A column of a table. ``size``: the parameters of its type, such as a length. One with a ``function`` is computed
    from the column ``argument``; ``digits`` are the decimal places of a second that the argument has."""

    name: str
    type: TypeInformation
    size: tuple[int, ...] = ()
    function: str = ""
    argument: str | None = None
    digits: int = 3


@dataclass(frozen=True)
class Schema:
    """The columns of a table, its event time and its primary key (``pyflink.table.Schema``). The watermark is
    ``delay_ms`` behind the greatest value of the column ``rowtime``.

    Example::

        Schema.new_builder().column("id", DataTypes.BIGINT()).column("ts", "TIMESTAMP(3)").watermark(
            "ts", "ts - INTERVAL '5' SECOND").build()
    """

    columns: tuple[Column, ...] = ()
    rowtime: str | None = None
    delay_ms: int = 0
    primary_key: tuple[str, ...] = ()

    @staticmethod
    def new_builder() -> Schema.Builder:
        return Schema.Builder()

    @property
    def row_type(self) -> RowTypeInfo:
        """The type of the rows."""
        return Types.ROW_NAMED([column.name for column in self.columns], [column.type for column in self.columns])

    def checked(self, where: str) -> Schema:
        """This schema.

        Raises:
            ProgramError: a column comes twice, a column that is named is none, or the event time is no TIMESTAMP.
        """
        types = {column.name: column.type for column in self.columns}
        named = [self.rowtime, *self.primary_key, *(column.argument for column in self.columns)]
        faults = [f"no column '{name}'" for name in named if name not in (None, *types)]
        faults += ["no column, or two of one name"] * (len(types) < max(1, len(self.columns)))
        if not faults and self.rowtime and types[self.rowtime] not in (Types.SQL_TIMESTAMP(), Types.INSTANT()):
            faults = [f"the watermark is for '{self.rowtime}', no TIMESTAMP (declare ts AS TO_TIMESTAMP_LTZ(ms, 3))"]
        if faults:
            raise ProgramError(f"{faults[0]} among the columns {list(types)}", where=where)
        return self

    class Builder:
        """Builder of :class:`Schema`. Types are DataTypes or their SQL texts; expressions are SQL texts."""

        def __init__(self) -> None:
            self._schema = Schema()

        def column(self, column_name: str, data_type: TypeInformation | str) -> Schema.Builder:
            if isinstance(data_type, str):
                return self._with(_elements(f"`{column_name}` {data_type}"))
            return self._with(Schema((Column(column_name, data_type),)))

        def column_by_expression(self, column_name: str, expr: str) -> Schema.Builder:
            return self._with(_elements(f"`{column_name}` AS {expr}"))

        def watermark(self, column_name: str, watermark_expr: str) -> Schema.Builder:
            return self._with(_elements(f"WATERMARK FOR `{column_name}` AS {watermark_expr}"))

        def build(self) -> Schema:
            """The schema. Raises ProgramError if its parts do not fit together."""
            return self._schema.checked("Schema.new_builder()")

        def _with(self, part: Schema) -> Schema.Builder:
            self._schema = _joined(self._schema, part)
            return self


def _joined(schema: Schema, part: Schema) -> Schema:
    times = part if part.rowtime is not None else schema
    key = part.primary_key or schema.primary_key
    return Schema((*schema.columns, *part.columns), times.rowtime, times.delay_ms, key)


@dataclass(frozen=True)
class TableDescriptor:
    """A table without its name: its schema, and the options of its connector. Options may be passwords."""

    schema: Schema
    options: Mapping[str, str] = field(repr=False)


class Statement(NamedTuple):
    """A statement. ``verb``: CREATE TABLE, CREATE VIEW, INSERT, DROP or SELECT; ``name``: what it creates, drops or
    writes to; ``source``: the table that it reads; ``tolerant``: whether IF [NOT] EXISTS or OR REPLACE is said."""

    verb: str
    name: str = ""
    table: TableDescriptor | None = None
    source: str = ""
    tolerant: bool = False


def parse(sql: str) -> Statement:
    """Read one statement.

    Raises:
        ProgramError: it is none of those above, or cannot be read.
        EnvironmentVersionError: sqlglot is missing.
    """
    check_instance(sql, str, "the statement is", "execute_sql()", "give SQL as a text")
    tree, where = _tree(sql), f"SQL: {sql.strip()[:300]}"
    exp, args, kind = _sqlglot().exp, tree.args, tree.args.get("kind")
    tolerant = bool(args.get("exists") or args.get("replace"))
    if isinstance(tree, exp.Create) and kind == "TABLE" and isinstance(tree.this, exp.Schema) and not tree.expression:
        table = TableDescriptor(_schema(tree.this).checked(where), _options(args.get("properties"), where))
        return Statement("CREATE TABLE", name_of(tree.this.this), table, tolerant=tolerant)
    if isinstance(tree, exp.Create) and kind == "VIEW" and isinstance(tree.this, exp.Table):
        return Statement("CREATE VIEW", name_of(tree.this), None, _source(tree.expression, where), tolerant=tolerant)
    if isinstance(tree, exp.Insert) and isinstance(tree.this, exp.Table) and not args.get("overwrite"):
        return Statement("INSERT", name_of(tree.this), None, _source(args.get("source") or tree.expression, where))
    if isinstance(tree, exp.Drop) and kind in ("TABLE", "VIEW"):
        return Statement("DROP", name_of(tree.find(exp.Table)), tolerant=tolerant)
    return Statement("SELECT", "", None, _source(tree, where))


def name_of(table: Any) -> str:
    """The name of a table without Flink's default catalog and database. Takes sqlglot's table, or a path as text."""
    parts = table.split(".") if isinstance(table, str) else [part.name for part in table.parts]
    return ".".join(parts).replace("`", "").removeprefix("default_catalog.").removeprefix("default_database.")


def _source(tree: Any, where: str) -> str:
    """The table of ``SELECT * FROM table`` or ``TABLE table``."""
    exp, table = _sqlglot().exp, tree
    if isinstance(tree, exp.Select) and {key for key, value in tree.args.items() if value} == {"expressions", "from_"}:
        table = tree.args["from_"].this if [type(column) for column in tree.expressions] == [exp.Star] else None
    if not isinstance(table, exp.Table) or table.args.get("joins"):
        raise no_table_api("the statement needs an SQL engine", where)
    return name_of(table)


def _options(properties: Any, where: str) -> dict[str, str]:
    exp, entries = _sqlglot().exp, properties.expressions if properties else []
    other = [entry for entry in entries if type(entry) is not exp.Property]
    if any(not isinstance(entry, (exp.TemporaryProperty, exp.SchemaCommentProperty)) for entry in other):
        raise no_table_api(f"a table with {other[-1].sql()}", where)
    return {entry.name: entry.args["value"].name for entry in entries if entry not in other}


def _schema(tree: Any) -> Schema:
    """The schema of a list of columns, watermarks and keys, as sqlglot has parsed it."""
    exp, schema = _sqlglot().exp, Schema()
    for element in tree.expressions:
        # CONSTRAINT name PRIMARY KEY (...) has the key inside
        element = element.expressions[0] if isinstance(element, exp.Constraint) else element
        watermark = isinstance(element, exp.WatermarkColumnConstraint)
        match = _WATERMARK.fullmatch(element.expression.sql("risingwave")) if watermark else None
        if match is not None:
            delay_ms = int(Fraction(match[2] or 0) * _UNITS_MS[(match[3] or "SECOND").upper()])
            schema = _joined(schema, Schema(rowtime=element.this.name, delay_ms=delay_ms))
        elif isinstance(element, exp.PrimaryKey):
            schema = _joined(schema, Schema(primary_key=tuple(column.name for column in element.expressions)))
        elif isinstance(element, exp.ColumnDef):
            kinds = {type(constraint.kind): constraint.kind for constraint in element.constraints}
            key = (element.name,) if exp.PrimaryKeyColumnConstraint in kinds else ()
            column = _column(element, kinds.get(exp.ComputedColumnConstraint))
            schema = _joined(schema, Schema((column,), primary_key=key))
        else:
            raise no_table_api(f"{element.sql()}, other than a column - INTERVAL '5' SECOND", "CREATE TABLE")
    return schema


def _column(element: Any, computed: Any) -> Column:
    if computed is None:
        size = [part.name for part in element.kind.expressions if isinstance(part, _sqlglot().exp.DataTypeParam)]
        return Column(element.name, _type(element.kind), tuple(map(int, size)))
    text = computed.this.sql("risingwave")
    match = _COMPUTED.fullmatch(text)
    if match is None:
        known = "PROCTIME(), TO_TIMESTAMP(column) and TO_TIMESTAMP_LTZ(column, 0 or 3)"
        raise no_table_api(f"the computed column {element.name} AS {text}, other than {known}", "CREATE TABLE")
    function = text.partition("(")[0].upper()
    result = Types.SQL_TIMESTAMP() if function == "TO_TIMESTAMP" else Types.INSTANT()
    return Column(element.name, result, (), function, match[1] or match[2], int(match[3] or 3))


def _type(kind: Any) -> TypeInformation:
    name, parts = kind.this.name, kind.expressions
    if name == "ARRAY":
        return Types.LIST(_type(parts[0]))
    if name == "MAP":
        return Types.MAP(*map(_type, parts))
    if name == "STRUCT":
        return Types.ROW_NAMED([field.name for field in parts], [_type(field.kind) for field in parts])
    if name == "DECIMAL":
        precision, scale = [*([int(part.name) for part in parts] or [10]), 0][:2]
        return DataTypes.DECIMAL(precision, scale)
    if name not in _TYPES:
        raise no_table_api(f"a column of type {kind.sql()}", "CREATE TABLE")
    return _TYPES[name]


def _elements(text: str) -> Schema:
    """The schema that consists of this part of a CREATE TABLE."""
    return _schema(_tree(f"CREATE TABLE t ({text})").this)


def _tree(sql: str) -> Any:
    """The statement as sqlglot's tree."""
    sqlglot, where = _sqlglot(), f"SQL: {sql.strip()[:300]}"
    try:
        tokens = _dialect()().tokenize(sql)
        # others are refused here, because sqlglot warns of what it does not know
        if not tokens or tokens[0].text.upper() not in ("CREATE", "INSERT", "DROP", "SELECT"):
            raise no_table_api("the statement needs an SQL engine", where)
        trees = [tree for tree in sqlglot.parse(sql, read=_dialect()) if tree is not None]
    except sqlglot.errors.SqlglotError as error:
        # its own text quotes the statement from some place on, so that a secret may stand there without its key
        found = [f"{entry['description']}, line {entry['line']}, column {entry['col']}" for entry in _faults(error)]
        raise no_table_api(": ".join(("the statement cannot be read", *found)), where) from None
    if len(trees) != 1:
        raise ProgramError(f"{len(trees)} statements", where=where, expected="one", hint="call execute_sql() for each")
    return trees[0]


def _faults(error: Exception) -> list[dict[str, Any]]:
    """The first fault that sqlglot's parser has found in a statement; none if it has found no words."""
    found: list[dict[str, Any]] = getattr(error, "errors", [])
    return found[:1]


def _sqlglot() -> Any:
    try:
        import sqlglot
    except ImportError:
        raise EnvironmentVersionError(
            "the package sqlglot is missing, which reads SQL",
            where="flinkish.table",
            expected="sqlglot where the program is started",
            hint="pip install 'sqlglot>=30.30,<31'",
        ) from None
    return sqlglot


@cache
def _dialect() -> Any:
    """Flink's dialect: that of RisingWave, which has watermarks too, with Flink's quotes and names of types. Its parser
    is taken as it is, since a compiled one (sqlglotc) cannot be subclassed."""
    from sqlglot.dialects.risingwave import RisingWave
    from sqlglot.tokenizer_core import TokenType
    from sqlglot.tokens import Tokenizer as PlainTokenizer

    dialect: Any = RisingWave
    tokenizer: Any = PlainTokenizer

    class Flink(dialect):  # type: ignore[misc]
        class Tokenizer(tokenizer):  # type: ignore[misc]
            IDENTIFIERS = ["`"]
            KEYWORDS = {**tokenizer.KEYWORDS, "ROW": TokenType.STRUCT, "BYTES": TokenType.VARBINARY}

    return Flink
