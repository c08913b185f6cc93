"""The functions and operators of SQL: one row each, with its signature, the rule of its type, and its kernel.

Rule: a kernel gives Flink's answer, or the function is not here. Kernels compute whole columns with Arrow; what Arrow
has not, or means otherwise, is computed in Python once for each distinct value of a batch (`Run.each`). A kernel never
raises for a value: it marks the rows that have no answer (`Run.fail`), because another function may never look at them,
such as CASE at the branches that it does not take. Rows without an argument (NULL) have no answer either, but quietly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flinkish.table import logical_types as sql
from flinkish.table.logical_types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, LogicalType

#: A column (pa.Array), or the one value that all rows have (pa.Scalar).
Values: TypeAlias = Any
#: It computes a call, of its run and the columns of its arguments.
Kernel: TypeAlias = Callable[..., Values]

#: What `Argument.value` is for an argument that is not the same in all rows.
VARIES: Any = object()

#: Exact arithmetic of DECIMALs of any size.
EXACT = Context(prec=400)

#: The most characters of a text that a function makes, of all that one call makes of a batch, and that the planner
#: computes. Java's texts have up to 2^31 - 1, which no worker has the memory for; a column of Arrow has so many bytes.
MAX_MADE, MAX_MADE_OF_BATCH, MAX_FOLDED = 1 << 26, 1 << 28, 1 << 16


def check_size(size: int) -> None:
    """Raises ValueError: a function is about to make a text, or bytes, of more than `MAX_MADE`."""
    if size > MAX_MADE:
        raise ValueError(f"the result would have {size:,} characters, of which {MAX_MADE:,} are the most")


class Failure(NamedTuple):
    """Rows for which there is no answer, and why: a function of the position of the row among ``rows``."""

    rows: npt.NDArray[np.bool_]
    why: Callable[[int], str]


class Argument(NamedTuple):
    """An argument, as the rule of a type sees it. ``value`` is that of a constant, or VARIES."""

    type: LogicalType
    value: Any = VARIES


class Typed(NamedTuple):
    """The type of a call, and those to which its arguments are converted."""

    result: LogicalType
    arguments: tuple[LogicalType, ...]


#: The type of a call; None: its arguments do not fit.
TypeRule = Callable[[Sequence[Argument]], Typed | None]


class Run:
    """The evaluation of one call on one batch: the types of its arguments and of its result, the processing time of the
    epoch, and the time zone of the session."""

    def __init__(self, rows: int, types: Sequence[LogicalType], result: LogicalType, now_ms: int, zone: str) -> None:
        self.rows, self.types, self.result, self.now_ms, self.zone = rows, types, result, now_ms, zone
        #: of a function that chooses among its arguments: the failures of each of them
        self.inner: Sequence[Sequence[Failure]] = ()
        #: the rows that have no answer
        self.failures: list[Failure] = []

    def mask(self, condition: Values) -> npt.NDArray[np.bool_]:
        return np.asarray(pc.fill_null(self.array(condition), False).to_numpy(zero_copy_only=False))

    def fail(self, condition: Values, why: str) -> None:
        self.failures.append(Failure(self.mask(condition), lambda row: why))

    def fail_where(self, position: int, chosen: npt.NDArray[np.bool_]) -> None:
        """Fails in the chosen rows in which this argument does."""
        self.failures += [Failure(failure.rows & chosen, failure.why) for failure in self.inner[position]]

    def array(self, values: Values) -> pa.Array:
        return pa.repeat(values, self.rows) if isinstance(values, pa.Scalar) else values

    def each(self, function: Callable[..., Any], *columns: Values, strict: bool = True, to: Any = None) -> Values:
        """The results of a function in Python, called once for each distinct combination of arguments.

        A ValueError marks the rows of that combination. ``strict``: it is not called with None, of which the result is
        None. ``to``: the type of the result, if it is not that of the call.
        """
        arrow = to or self.result.arrow
        varying = [position for position, column in enumerate(columns) if isinstance(column, pa.Array)]
        given = [None if isinstance(column, pa.Array) else column.as_py() for column in columns]
        if strict and any(value is None and position not in varying for position, value in enumerate(given)):
            return pa.scalar(None, arrow)
        calls, indices = _distinct([columns[position] for position in varying])
        results: list[Any] = []
        errors: dict[int, str] = {}
        size, rows = 0, np.bincount(indices, minlength=len(calls)).tolist() if varying else [1]
        for call, times in zip(calls, rows, strict=True):
            for position, value in zip(varying, call, strict=True):
                given[position] = value
            try:
                made = None if strict and None in call else function(*given)
                size += len(made) * times if isinstance(made, (str, bytes)) else 0
                if size > MAX_MADE_OF_BATCH:
                    raise ValueError(f"the results of a batch have more than {MAX_MADE_OF_BATCH:,} characters")
                results.append(made)
            except (ValueError, ArithmeticError) as error:
                errors[len(results)] = f"{'' if isinstance(error, ValueError) else 'no number is the result: '}{error}"
                results.append(None)
        found = pa.array(results, arrow)
        if errors:
            at = np.broadcast_to(indices, self.rows) if not varying else indices
            self.failures.append(Failure(np.isin(at, list(errors)), lambda row: errors[int(at[row])]))
        return found.take(pa.array(indices)) if varying else found[0]


def _distinct(columns: Sequence[pa.Array]) -> tuple[Sequence[tuple[Any, ...]], npt.NDArray[Any]]:
    """The distinct combinations of values, and which of them each row has."""
    if len(columns) == 1 and not pa.types.is_nested(columns[0].type):
        encoded = columns[0].dictionary_encode(null_encoding="encode")
        return [(value,) for value in encoded.dictionary.to_pylist()], encoded.indices.to_numpy()
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True)) if columns else [()]
    texts = list(map(repr, rows))
    found = dict(zip(texts, rows, strict=True))
    places = {text: place for place, text in enumerate(found)}
    return list(found.values()), np.array([places[text] for text in texts], np.int32)


def by_value(function: Callable[..., Any]) -> Kernel:
    """A function in Python as a kernel, called once for each distinct combination of arguments without NULL."""
    return lambda run, *columns: run.each(function, *columns)


def by_numpy(function: Callable[..., Any], to: pa.DataType, *columns: Values) -> Values:
    """A function of numpy's numbers (dates are days, times microseconds), NULL where an argument is."""
    size = next((len(column) for column in columns if isinstance(column, pa.Array)), None)
    null = np.zeros(1 if size is None else size, np.bool_)
    values = []
    for column in columns:
        array = column if isinstance(column, pa.Array) else pa.repeat(column, len(null))
        null |= pc.is_null(array).to_numpy(zero_copy_only=False)
        array = array.cast(pa.int32()) if pa.types.is_date32(array.type) else array
        number = array.cast(pa.float64() if pa.types.is_floating(array.type) else pa.int64())
        values.append(pc.fill_null(number, 0).to_numpy(zero_copy_only=False))
    found = pa.array(function(*values), mask=null)
    result = (found.cast(pa.int32()) if pa.types.is_date32(to) else found).cast(to)
    return result[0] if size is None else result


def holds(condition: Values) -> bool:
    return pc.any(condition).as_py() is True


class Function(NamedTuple):
    """A function or an operator, with its forms as Flink writes them in an error."""

    signature: str
    rule: TypeRule
    kernel: Kernel
    #: it takes failures of its arguments from ``Run.inner`` and keeps those that matter
    chooses: bool = False
    #: equal arguments give equal results, at any time
    constant: bool = True


FUNCTIONS: dict[str, Function] = {}

_KINDS: dict[str, tuple[str, Callable[[LogicalType], bool], LogicalType | None]] = {
    "text": ("<CHARACTER>", lambda of: of.is_text, None),
    "int": ("<INTEGER>", lambda of: of.root in ("TINYINT", "SMALLINT", "INT"), INT),
    "long": ("<INTEGER>", lambda of: of.is_integer, BIGINT),
    "number": ("<NUMERIC>", lambda of: of.is_numeric, None),
    "double": ("<NUMERIC>", lambda of: of.is_numeric, DOUBLE),
    "bool": ("<BOOLEAN>", lambda of: of == BOOLEAN, BOOLEAN),
    "ts": ("<TIMESTAMP>", lambda of: of.root in ("TIMESTAMP", "TIMESTAMP_LTZ"), None),
    "time": ("<DATETIME>", lambda of: of.is_time_point, None),
    "interval": ("<DATETIME_INTERVAL>", lambda of: of.is_interval, None),
    "bytes": ("<BINARY>", lambda of: of.is_binary, None),
    "array": ("<ARRAY>", lambda of: of.root == "ARRAY", None),
    "map": ("<MAP>", lambda of: of.root == "MAP", None),
    "row": ("<ROW>", lambda of: of.root == "ROW", None),
    "any": ("<ANY>", lambda of: True, None),
    "same": ("<ANY>", lambda of: True, None),
    "unit": ("<DATETIME_UNIT>", lambda of: of.is_text, STRING),
}
_MARKS = {"?": " (optional)", "*": "..."}
#: A type, the number of the argument of which it is, or a function of the arguments.
Result = LogicalType | int | Callable[[Sequence[Argument]], LogicalType | None]


def row(
    name: str,
    signature: str,
    kernel: Kernel,
    result: Result,
    check: Callable[[str], object] | None = None,
    **properties: Any,
) -> None:
    """Adds a function, or another form of one.

    Args:
        signature: words of `_KINDS`, with ``?`` for arguments that may be left out, and ``*`` for a last one that may
            come any number of times; several forms are separated by ``|``. Arguments that are ``same`` are converted
            to their common type.
        check: raises ValueError for a constant second argument that is no pattern.
    """
    forms = [[(word.rstrip("?*"), word[-1:]) for word in form.split()] for form in signature.split("|")]

    def rule(arguments: Sequence[Argument]) -> Typed | None:
        if check and len(arguments) > 1 and isinstance(arguments[1].value, str):
            check(arguments[1].value)
        return next((typed for form in forms if (typed := _typed(form, arguments, result))), None)

    shown = [f"{name}({', '.join(_KINDS[kind][0] + _MARKS.get(mark, '') for kind, mark in form)})" for form in forms]
    special(name, " or ".join(shown), rule, kernel, **properties)


def _typed(form: Sequence[tuple[str, str]], arguments: Sequence[Argument], result: Result) -> Typed | None:
    least = sum(mark not in ("?", "*") for _, mark in form)
    if not least <= len(arguments) <= (math.inf if form and form[-1][1] == "*" else len(form)):
        return None
    kinds = [form[min(position, len(form) - 1)][0] for position in range(len(arguments))]
    if not all(_KINDS[kind][1](argument.type) for kind, argument in zip(kinds, arguments, strict=True)):
        return None
    if any(kind == "unit" and argument.value is VARIES for kind, argument in zip(kinds, arguments, strict=True)):
        return None
    same = sql.common(*(argument.type for kind, argument in zip(kinds, arguments, strict=True) if kind == "same"))
    if same is None and "same" in kinds:
        return None
    fitting = [
        argument._replace(type=(same if kind == "same" else _KINDS[kind][2]) or argument.type)
        for kind, argument in zip(kinds, arguments, strict=True)
    ]
    found = fitting[result].type if isinstance(result, int) else result(fitting) if callable(result) else result
    return None if found is None else Typed(found, tuple(argument.type for argument in fitting))


def special(name: str, signature: str, rule: TypeRule, kernel: Kernel, **properties: Any) -> None:
    """Adds a function whose type has a rule of its own, or another form of a function."""
    first = FUNCTIONS.get(name)
    if first is None:
        FUNCTIONS[name] = Function(signature, rule, kernel, **properties)
        return

    def either(run: Run, *columns: Values) -> Values:
        values = [column.as_py() if isinstance(column, pa.Scalar) else VARIES for column in columns]
        of_first = first.rule(list(map(Argument, run.types, values))) is not None
        return (first.kernel if of_first else kernel)(run, *columns)

    signature = f"{first.signature} or {signature}"
    FUNCTIONS[name] = first._replace(
        signature=signature, rule=lambda arguments: first.rule(arguments) or rule(arguments), kernel=either
    )


def plain(function: Kernel) -> Kernel:
    return lambda run, *columns: function(*columns)


def limit(of: LogicalType) -> int:
    """The least whole number that a DECIMAL has too few digits for."""
    return int(10 ** (of.precision - of.scale))


def fit_decimal(values: Values, of: LogicalType) -> Values:
    """DECIMALs of any size as a DECIMAL: rounded half up, NULL where there are too many digits."""
    precision, scale = values.type.precision, values.type.scale
    if scale > of.scale or precision - scale > of.precision - of.scale:
        # rounding may need one digit more
        wide = pa.decimal128 if precision < sql.MAX_PRECISION else pa.decimal256
        values = pc.cast(values, wide(min(76, precision + 1), scale))
        if scale > of.scale:
            values = pc.round(values, of.scale, round_mode="half_towards_infinity")
        if precision + 1 - scale > of.precision - of.scale:
            fits = pc.less(pc.abs(values), pa.scalar(Decimal(limit(of)), values.type))
            values = pc.if_else(fits, values, pa.scalar(None, values.type))
    return values if values.type == of.arrow else pc.cast(values, of.arrow, safe=False)


def rounded(value: Decimal, of: LogicalType) -> Decimal | None:
    """A number as a DECIMAL: rounded half up, None if it has too many digits."""
    found = value.quantize(Decimal((0, (1,), -of.scale)), ROUND_HALF_UP, EXACT)
    return found if found.copy_abs() < limit(of) else None
