"""Expressions of the Table API: what `col`, `lit` and the functions of `expressions` give, with operators, methods and
properties under PyFlink's names. They make the nodes of `syntax`, as SQL text does.

Rule upheld here: the tables below say which function of SQL a method or property stands for. Whether there is such a
function, and which types it takes, is known to the planner alone.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from enum import Enum
from typing import Any, NoReturn

from flinkish.common.arguments import check_instance
from flinkish.common.no_effect import supply_names
from flinkish.common.time import Duration, Instant
from flinkish.common.typeinfo import TypeInformation
from flinkish.common.types import Row
from flinkish.errors import ArgumentTypeError, ProgramError, UnsupportedOperationError
from flinkish.table import logical_types as types
from flinkish.table import syntax
from flinkish.table.logical_types import LogicalType
from flinkish.table.refusals import refusing
from flinkish.table.sql import parse_type
from flinkish.table.sql_expressions import MILLISECONDS, MONTHS

__all__ = ["Expression", "TimeIntervalUnit", "TimePointUnit"]

_WHERE = "an expression"
#: Properties of which the name is that of the function; those behind "=" have another one.
_PROPERTIES = """
    exp log10 log2 ln cosh sinh sin cos tan cot asin acos atan tanh degrees radians sqrt abs sign bin hex unhex ascii
    chr reverse cardinality element char_length upper_case=UPPER lower_case=LOWER init_cap=INITCAP from_base64 to_base64
    md5 sha1 sha224 sha256 sha384 sha512 map_keys map_values map_entries flatten
    sum sum0=$SUM0 min max count avg first_value last_value stddev_pop stddev_samp var_pop var_samp collect array_agg
    is_null=IS_NULL is_not_null=IS_NOT_NULL is_true=IS_TRUE is_false=IS_FALSE is_not_true=IS_NOT_TRUE
    is_not_false=IS_NOT_FALSE asc desc start end rowtime proctime
"""
#: Methods, with the number of their arguments: the least, and the greatest if it is another one ("+": any). A last
#: argument that is None is left out.
_METHODS = """
    round:1 concat:1 between:2 if_null=IFNULL:1 list_agg=LISTAGG:0-1 percentile:1-2
    truncate:0-1 starts_with=STARTSWITH:1 ends_with=ENDSWITH:1 substring:1-2 substr:1-2 replace:2 translate:2 like:1-2
    similar=SIMILAR_TO:1 lpad:2 rpad:2 overlay:2-3 regexp:1 regexp_count:1 regexp_replace:2 regexp_extract:1-2
    regexp_extract_all:1-2 regexp_instr:1 regexp_substr:1 decode:1 encode:1 left:1 right:1 instr:1 locate:1-2
    url_decode:0 url_encode:0 inet_aton:0 inet_ntoa:0 parse_url:1-2 printf:0+ ltrim:0-1 rtrim:0-1 btrim:0-1 repeat:1
    split_index:2 split:1 str_to_map:0-2 elt:1+ at=ITEM:1 array_append:1 array_contains:1 array_distinct:0
    array_position:1 array_prepend:1 array_remove:1 array_reverse:0 array_slice:1-2 array_sort:0-2 array_union:1
    array_concat:0+ array_max:0 array_min:0 array_join:1-2 array_except:1 array_intersect:1 map_union:0+ sha2:1
    json_quote:0 json_unquote:0 json_exists:1 json_query:1 is_json=IS_JSON:0 in_=IN:1+ then=CASE:2 position:1 extract:1
    floor:0-1 ceil:0-1 trim=BTRIM:0-1 trim_leading=LTRIM:0-1 trim_trailing=RTRIM:0-1
"""
#: Operators, with the functions that they call. The first six have no form with the operands swapped.
_OPERATORS = "lt < gt > le <= ge >= eq = ne <> and AND or OR add PLUS sub - mul * truediv / mod % pow POWER".split()
_TYPES_OF_TEXTS = {"to_date": types.DATE, "to_time": types.time(0), "to_timestamp": types.timestamp(3)}


TimeIntervalUnit = Enum(
    "TimeIntervalUnit",
    "YEAR YEAR_TO_MONTH QUARTER MONTH WEEK DAY DAY_TO_HOUR DAY_TO_MINUTE DAY_TO_SECOND HOUR SECOND HOUR_TO_MINUTE "
    "HOUR_TO_SECOND MINUTE MINUTE_TO_SECOND",
    start=0,
)
TimePointUnit = Enum(
    "TimePointUnit", "YEAR MONTH DAY HOUR MINUTE SECOND QUARTER WEEK MILLISECOND MICROSECOND", start=0
)  # fmt: skip


def logical_type(data_type: Any) -> LogicalType:
    """The type of SQL of one of `DataTypes`, or of a text such as ``DECIMAL(10, 2)``.

    Raises:
        ProgramError: it is neither.
    """
    if isinstance(data_type, str):
        return parse_type(data_type)
    hint = "import DataTypes from flinkish.table"
    check_instance(data_type, TypeInformation, "the type is", _WHERE, hint, "such as DataTypes.INT(), or 'INT'")
    return types.of_type_info(data_type)


def literal(value: Any) -> syntax.Expression:
    """The literal of a Python value, of the type that PyFlink gives it.

    Raises:
        ArgumentTypeError: there is none for values of its class.
    """
    match value:
        case None:
            kind = types.NULL
        case bool():
            kind = types.BOOLEAN
        case int() if -(1 << 63) <= value < 1 << 63:
            kind = types.INT if -(1 << 31) <= value < 1 << 31 else types.BIGINT
        case float():
            kind = types.DOUBLE
        case str():
            kind = types.char(len(value))
        case Enum():
            value, kind = value.name, types.char(len(value.name))
        case Decimal() if value.is_finite():
            _, digits, exponent = value.as_tuple()
            scale = max(0, -int(exponent))
            kind = types.decimal(max(len(digits), scale, 1), scale)
        case bytes() | bytearray():
            value, kind = bytes(value), LogicalType("BINARY", (len(value),))
        case datetime.datetime(tzinfo=None):
            kind = types.timestamp(6 if value.microsecond % 1_000 else 3)
        case datetime.datetime():
            kind = types.timestamp_ltz(6 if value.microsecond % 1_000 else 3)
            value = Instant.of_epoch_milli(int(value.timestamp() * 1_000))
        case Instant():
            kind = types.timestamp_ltz(9 if value.nanos % 1_000_000 else 3)
        case datetime.date():
            kind = types.DATE
        case datetime.time():
            kind = types.time(0)
        case datetime.timedelta():
            value, kind = value // datetime.timedelta(milliseconds=1), types.INTERVAL_DAY
        case Duration():
            value, kind = value.to_millis(), types.INTERVAL_DAY
        case list() | Row():
            return syntax.Call("ROW" if isinstance(value, Row) else "ARRAY", tuple(map(node_of, value)))
        case dict():
            return syntax.Call("MAP", tuple(node_of(part) for item in value.items() for part in item))
        case _:
            raise ArgumentTypeError(
                f"there is no literal for {value!r:.100}, an instance of {type(value).__name__}",
                where=_WHERE,
                expected="an Expression, or a bool, number, text, bytes, time, date, datetime, timedelta, list or dict",
                hint="name a column with col('name')",
            )
    return syntax.Literal(value, kind)


def node_of(value: Any) -> syntax.Expression:
    """The syntax of an Expression, or of a Python value as a literal."""
    return value._node if isinstance(value, Expression) else literal(value)


def call(name: str, *args: Any, function: Any = None) -> Expression:
    return Expression(syntax.Call(name, tuple(map(node_of, args)), function))


def calling(name: str, function: str, least: int = 0, most: int | None = 0, own: int = 0) -> Callable[..., Expression]:
    """What calls a function of SQL with ``least`` to ``most`` arguments (None: any number) behind ``own`` ones."""

    def called(*args: Any) -> Expression:
        while len(args) > least + own and args[-1] is None:
            args = args[:-1]
        given = len(args) - own
        if given < least or most is not None and given > most:
            expected = f"{least} to {'any number of' if most is None else most} arguments"
            raise ArgumentTypeError(f"{name}() with {given} arguments", where=_WHERE, expected=expected)
        return call(function, *args)

    called.__name__, called.__doc__ = name, f"``{function}`` of SQL."
    return called


class Expression:
    """A value that is computed of the columns of a row, or an aggregate of rows (``pyflink.table.Expression``).

    Example: ``col("a") + 1``, ``(col("n") > 3) & col("word").is_not_null``, ``col("price").sum.alias("total")``
    """

    def __init__(self, node: syntax.Expression) -> None:
        self._node = node

    def alias(self, name: str, *extra_names: str) -> Expression:
        """The expression under a name, which its column gets."""
        if extra_names:
            names = 1 + len(extra_names)
            raise UnsupportedOperationError(f"an alias of {names} names", where=_WHERE, expected="one name")
        return Expression(syntax.Alias(self._node, name))

    def cast(self, data_type: Any) -> Expression:
        """The value converted to a type. A value that cannot be converted fails the job."""
        return Expression(syntax.Cast(self._node, logical_type(data_type)))

    def try_cast(self, data_type: Any) -> Expression:
        """The value converted to a type, or NULL if it cannot be converted."""
        return Expression(syntax.Cast(self._node, logical_type(data_type), lenient=True))

    @property
    def distinct(self) -> Expression:
        """The aggregate of the distinct values only, as ``col("a").count.distinct``."""
        node = self._node
        if not isinstance(node, syntax.Call):
            expected = "an aggregate, such as col('a').count.distinct"
            raise ProgramError(f"distinct of {self}", where=_WHERE, expected=expected)
        return Expression(replace(node, distinct=True))

    def get(self, name_or_index: str | int) -> Expression:
        """The field of a ROW, by its name or by its index, which counts from 0."""
        node = self._node
        if isinstance(node, syntax.Column) and isinstance(name_or_index, str):
            return Expression(syntax.Column((*node.path, name_or_index)))
        return call("FIELD", self, name_or_index)

    def log(self, base: Any = None) -> Expression:
        return call("LN", self) if base is None else call("LOG", base, self)

    def not_between(self, lower_bound: Any, upper_bound: Any) -> Expression:
        """Whether the value is outside of these bounds."""
        return call("NOT", call("BETWEEN", self, lower_bound, upper_bound))

    def json_value(self, path: str, returning_type: Any = None) -> Expression:
        """The scalar at a path of a JSON text, as STRING or as another type; NULL if it is not there."""
        found = call("JSON_VALUE", self, path)
        return found if returning_type is None else found.try_cast(returning_type)

    over = refusing("OVER", "Expression.over()")

    def __getitem__(self, index: Any) -> Expression:
        return call("ITEM", self, index)

    def __iter__(self) -> NoReturn:
        raise TypeError("an Expression is not iterable")

    def __bool__(self) -> NoReturn:
        raise ProgramError(
            f"the expression {self} has no truth value",
            where=_WHERE,
            expected="& for AND, | for OR, and ~ for NOT, with the operands in parentheses",
            hint="such as (col('a') > 1) & (col('b') < 2)",
        )

    def __getattr__(self, name: str) -> Any:
        # what Python itself asks for, as in pickling, is an attribute that an expression may lack
        if name.startswith("_"):
            raise AttributeError(name)
        hint = "it can be a UDF: @udf(result_type=...)"
        raise UnsupportedOperationError(f"there is no function {name}", where=f"Expression.{name}", hint=hint)

    def __str__(self) -> str:
        return text_of(self._node)

    __repr__ = __str__


def text_of(node: syntax.Expression) -> str:
    match node:
        case syntax.Column(path):
            return ".".join(path)
        case syntax.Literal(value, kind):
            return f"'{value}'" if isinstance(value, str) else "null" if value is None else str(value)
        case syntax.Call(name, args, distinct=distinct):
            inner = ", ".join(map(text_of, args))
            return f"{name}({'DISTINCT ' * distinct}{inner})"
        case syntax.Cast(operand, kind, lenient):
            return f"{'TRY_' * lenient}CAST({text_of(operand)} AS {kind.root})"
        case syntax.Alias(operand, name):
            return f"{text_of(operand)} AS {name}"
    return "*"


def _entries(table: str) -> Iterator[tuple[str, str, str]]:
    """The names of members, the functions of SQL that they call, and the numbers of arguments."""
    for entry in table.split():
        named, _, count = entry.partition(":")
        name, _, target = named.partition("=")
        spaced = target.replace("_", " ") if target.startswith(("IS_", "SIMILAR_")) else target
        yield name, spaced or name.upper(), count


def _interval(factor: int, kind: LogicalType) -> Callable[[Expression], Expression]:
    def get(self: Expression) -> Expression:
        node = self._node
        if isinstance(node, syntax.Literal) and type(node.value) is int:
            return Expression(syntax.Literal(node.value * factor, kind))
        return Expression(syntax.Call("*", (node, syntax.Literal(factor, kind))))

    return get


def _cast(kind: LogicalType) -> Callable[[Expression], Expression]:
    return lambda self: Expression(syntax.Cast(self._node, kind))


def _operator(function: str, swapped: bool = False) -> Callable[..., Expression]:
    return lambda *operands: call(function, *(reversed(operands) if swapped else operands))


def _add_members() -> None:
    members: dict[str, Any] = {}
    for name, function, _ in _entries(_PROPERTIES):
        members[name] = property(calling(name, function, own=1))
    for name, function, count in _entries(_METHODS):
        least, _, most = count.rstrip("+").partition("-")
        greatest = None if count.endswith("+") else int(most or least)
        members[name] = calling(name, function, int(least), greatest, own=1)
    for units, kind in (({**MILLISECONDS, "MILLI": 1}, types.INTERVAL_DAY), (MONTHS, types.INTERVAL_MONTH)):
        for unit, factor in units.items():
            interval = property(_interval(factor, kind), doc=f"An interval of that many {unit.lower()}s.")
            members |= dict.fromkeys((unit.lower(), f"{unit.lower()}s"), interval)
    for name, kind in _TYPES_OF_TEXTS.items():
        members[name] = property(_cast(kind), doc=f"The text as {kind}.")
    for at, (name, function) in enumerate(zip(_OPERATORS[::2], _OPERATORS[1::2], strict=True)):
        members[f"__{name}__"] = _operator(function)
        if at >= 6:
            members[f"__r{name}__"] = _operator(function, swapped=True)
    for name, function in (("neg", "NEG"), ("abs", "ABS"), ("invert", "IS NOT TRUE")):
        members[f"__{name}__"] = _operator(function)
    for name, member in members.items():
        setattr(Expression, name, member)


_add_members()
supply_names(__name__)
