"""The functions of ``pyflink.table.expressions``: columns, literals, and functions of SQL that begin an expression."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

from flinkish.common.arguments import check_instance
from flinkish.common.no_effect import supply_names
from flinkish.errors import ArgumentTypeError
from flinkish.table import syntax
from flinkish.table.expression import Expression, calling, logical_type, node_of
from flinkish.table.expression import call as _call
from flinkish.table.refusals import refusing
from flinkish.table.sql import parse_expression

__all__ = [
    *("and_", "array", "atan2", "call", "call_sql", "coalesce", "col", "concat", "concat_ws", "convert_tz"),
    *("current_date", "current_time", "current_timestamp", "current_watermark", "date_format", "e", "from_unixtime"),
    *("if_then_else", "json_array", "json_object", "json_string", "lit", "local_time", "local_timestamp", "log"),
    *("map_", "map_from_arrays", "negative", "not_", "null_of", "or_", "pi", "rand", "rand_integer", "range_", "row"),
    *("row_interval", "source_watermark", "timestamp_diff", "to_date", "to_timestamp", "to_timestamp_ltz"),
    *("unix_timestamp", "uuid", "with_all_columns", "with_columns", "without_columns"),
]


def col(name: str) -> Expression:
    """A column, by its name; ``*``: all columns."""
    check_instance(name, str, "the name of the column is", "col()", "such as col('a')")
    return Expression(syntax.Star() if name == "*" else syntax.Column((name,)))


def lit(v: Any, data_type: Any = None) -> Expression:
    """A value, of the type that its class has, or of a declared one."""
    if isinstance(v, Expression):
        raise ArgumentTypeError(f"the literal {v}", where="lit()", expected="a value of Python")
    if data_type is None:
        return Expression(node_of(v))
    kind, node = logical_type(data_type), node_of(v)
    is_plain = isinstance(node, syntax.Literal) and (v is None or kind.root in ("VARCHAR", node.type.root))
    return Expression(syntax.Literal(v, kind) if is_plain else syntax.Cast(node, kind))


def call(f: Any, *args: Any) -> Expression:
    """A call of a function: of SQL or a registered one by its name, or of what `udf` has made."""
    found: Expression = _call(f, *args) if isinstance(f, str) else f(*args)
    return found


def call_sql(sql_expression: str) -> Expression:
    return Expression(parse_expression(sql_expression))


def _chain(name: str, first: Any, second: Any, *others: Any) -> Expression:
    found: Expression = reduce(partial(_call, name), (second, *others), first)
    return found


and_: Callable[..., Expression] = partial(_chain, "AND")
or_: Callable[..., Expression] = partial(_chain, "OR")


def null_of(data_type: Any) -> Expression:
    return Expression(syntax.Literal(None, logical_type(data_type)))


def log(v: Any, base: Any = None) -> Expression:
    return _call("LN", v) if base is None else _call("LOG", base, v)


def with_all_columns() -> Expression:
    return Expression(syntax.Star())


def _function(name: str, least: int = 0, most: int | None = -1) -> Callable[..., Expression]:
    """What calls a function of SQL with ``least`` to ``most`` arguments (None: any number; -1: not more)."""
    return calling(name.lower(), name, least, least if most == -1 else most)


not_ = _function("NOT", 1)
negative = _function("NEG", 1)
current_date = _function("CURRENT_DATE")
current_time = _function("CURRENT_TIME")
current_timestamp = _function("CURRENT_TIMESTAMP")
current_watermark = _function("CURRENT_WATERMARK", 1)
local_time = _function("LOCALTIME")
local_timestamp = _function("LOCALTIMESTAMP")
source_watermark = _function("SOURCE_WATERMARK")
to_date = _function("TO_DATE", 1, 2)
to_timestamp = _function("TO_TIMESTAMP", 1, 2)
to_timestamp_ltz = _function("TO_TIMESTAMP_LTZ", 1, 3)
date_format = _function("DATE_FORMAT", 2)
convert_tz = _function("CONVERT_TZ", 3)
from_unixtime = _function("FROM_UNIXTIME", 1, 2)
unix_timestamp = _function("UNIX_TIMESTAMP", 0, 2)
array = _function("ARRAY", 1, None)
row = _function("ROW", 1, None)
map_ = _function("MAP", 2, None)
map_from_arrays = _function("MAP_FROM_ARRAYS", 2)
pi = _function("PI")
e = _function("E")
rand = _function("RAND", 0, 1)
rand_integer = _function("RAND_INTEGER", 1, 2)
json_object = _function("JSON_OBJECT", 0, None)
json_array = _function("JSON_ARRAY", 0, None)
atan2 = _function("ATAN2", 2)
concat = _function("CONCAT", 1, None)
concat_ws = _function("CONCAT_WS", 2, None)
uuid = _function("UUID")
coalesce = _function("COALESCE", 1, None)
json_string = _function("JSON_STRING", 1)
if_then_else = _function("CASE", 3)
timestamp_diff = _function("TIMESTAMPDIFF", 3)
row_interval = refusing("rows", "row_interval()")
range_, with_columns, without_columns = (
    refusing("ranges", f"{name}()") for name in ("range_", "with_columns", "without_columns")
)

supply_names(__name__)
