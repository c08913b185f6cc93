"""Operators: arithmetic, comparison, logic, conditions; and mathematics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flinkish.table import logical_types as sql
from flinkish.table.functions import (
    EXACT,
    VARIES,
    Argument,
    Kernel,
    Run,
    Typed,
    Values,
    by_numpy,
    fit_decimal,
    holds,
    plain,
    rounded,
    row,
    special,
)
from flinkish.table.logical_types import BIGINT, BOOLEAN, DOUBLE, LogicalType


def _arithmetic(operator: str, run: Run, left: Values, right: Values) -> Values:
    """``+ - *``; of DECIMALs and integers as wide as the exact result is."""
    if not run.result.is_decimal:
        return getattr(pc, operator)(left, right)
    a, b = (sql.as_decimal(of) for of in run.types)
    digits = max(a.precision - a.scale, b.precision - b.scale) + max(a.scale, b.scale) + 1
    digits = a.precision + b.precision + 1 if operator == "multiply" else digits
    if digits > 76:
        return _in_python(getattr(EXACT, operator), run, left, right)
    wide = pa.decimal128 if digits <= sql.MAX_PRECISION else pa.decimal256
    sides = [pc.cast(side, wide(of.precision, of.scale)) for side, of in ((left, a), (right, b))]
    return fit_decimal(getattr(pc, operator)(*sides), run.result)


def _in_python(operator: Callable[..., Decimal], run: Run, left: Values, right: Values) -> Values:
    return run.each(lambda x, y: rounded(operator(Decimal(x), Decimal(y)), run.result), left, right)


def _divided(run: Run, left: Values, right: Values) -> Values:
    if run.result.is_float:
        if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar) and right.as_py() == 0:
            run.fail(pa.scalar(True), "Division by zero")  # what Flink computes when it plans
        return pc.divide(left, right)
    right = _without_zero(run, left, right)
    if not run.result.is_decimal:
        opposite = pc.equal(right, pa.scalar(-1, right.type))  # the least number has none: it wraps
        return pc.if_else(opposite, pc.negate(left), pc.divide(left, right))
    a, b = (sql.as_decimal(of) for of in run.types)
    # Arrow divides to the scale s1 + p2 - s2 + 1 at least and cuts: one digit more than the result has is enough
    more = max(0, run.result.scale - (a.scale + b.precision - b.scale))
    if a.precision + b.precision + more + 1 > 76:
        return _in_python(EXACT.divide, run, left, right)
    dividend = pc.cast(left, pa.decimal256(a.precision + more, a.scale + more))
    return fit_decimal(pc.divide(dividend, pc.cast(right, pa.decimal256(*b.sizes))), run.result)


def _without_zero(run: Run, left: Values, right: Values) -> Values:
    """The divisor; rows in which it is 0 fail, if there is something to divide."""
    zero = pc.equal(right, pa.scalar(0, right.type) if run.result.is_integer else 0)
    if not holds(zero):
        return right
    run.fail(pc.and_(zero, pc.is_valid(left)), "/ by zero")
    return pc.if_else(zero, pa.scalar(None, right.type), right)


def _remainder(run: Run, left: Values, right: Values) -> Values:
    right = _without_zero(run, left, right)
    if run.result.is_decimal:
        return _in_python(EXACT.remainder, run, left, right)
    wide = max((left.type, right.type), key=lambda of: of.bit_width)
    x, y = pc.cast(left, wide), pc.cast(right, wide)
    y = pc.if_else(pc.equal(y, pa.scalar(-1, wide)), pa.scalar(1, wide), y)
    return pc.cast(pc.subtract(x, pc.multiply(pc.divide(x, y), y)), run.result.arrow, safe=False)


def _arithmetic_rule(operator: str, arguments: Sequence[Argument]) -> Typed | None:
    if len(arguments) != 2:
        return None
    left, right = (argument.type for argument in arguments)
    result = sql.arithmetic(operator, left, right)
    if result is None or (operator == "%" and result.is_float):
        return None
    # exact operands keep their digits; a remainder of integers is computed in the wider of their types
    as_they_are = result.is_decimal or (operator == "%" and result.is_integer)
    return Typed(result, (left, right) if as_they_are else (result, result))


for _sign, _name in (("+", "add"), ("-", "subtract"), ("*", "multiply")):
    special(_sign, f"<NUMERIC> {_sign} <NUMERIC>", partial(_arithmetic_rule, _sign), partial(_arithmetic, _name))
special("/", "<NUMERIC> / <NUMERIC>", partial(_arithmetic_rule, "/"), _divided)
special("%", "<EXACT_NUMERIC> % <EXACT_NUMERIC>", partial(_arithmetic_rule, "%"), _remainder)
special("MOD", "MOD(<EXACT_NUMERIC>, <EXACT_NUMERIC>)", partial(_arithmetic_rule, "%"), _remainder)
row("NEG", "number|interval", plain(pc.negate), 0)


def _comparable(left: LogicalType, right: LogicalType) -> LogicalType | None:
    """The type in which values of two types are compared; None: they are not."""
    if left.is_time_point and right.is_text:
        return left
    if left.is_text and right.is_time_point:
        return right
    if left.is_time_point and right.is_time_point and left.root != right.root:
        # moments are compared by their local times
        return sql.timestamp(max(left.precision, right.precision)) if "DATE" not in (left.root, right.root) else None
    return sql.common(left, right)


def _compared(arguments: Sequence[Argument]) -> Typed | None:
    of: LogicalType | None = arguments[0].type
    for argument in arguments[1:]:
        of = of and _comparable(of, argument.type)
    return None if of is None else Typed(BOOLEAN, (of,) * len(arguments))


def _comparison(name: str, run: Run, left: Values, right: Values) -> Values:
    if pa.types.is_nested(left.type):
        return run.each(lambda x, y: (x == y) == (name == "equal"), left, right)
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        return pa.scalar(None, pa.bool_())
    return getattr(pc, name)(left, right)


_equal = partial(_comparison, "equal")


def _not_distinct(run: Run, left: Values, right: Values) -> Values:
    both = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(both, pc.fill_null(_equal(run, left, right), False))


def _in(run: Run, value: Values, *choices: Values) -> Values:
    if any(isinstance(choice, pa.Array) for choice in choices) or pa.types.is_nested(value.type):
        return reduce(pc.or_kleene, [_equal(run, value, choice) for choice in choices])
    known = [choice.as_py() for choice in choices if choice.is_valid]
    found = pc.is_in(value, pa.array(known, value.type))
    null = pa.scalar(None, pa.bool_())
    return pc.if_else(pc.is_valid(value), found if len(known) == len(choices) else pc.if_else(found, True, null), null)


def _logic(decides: bool, run: Run, *operands: Values) -> Values:
    """AND (``decides`` is False) and OR: an operand behind one that decides is not looked at."""
    found = operands[0]
    run.failures += run.inner[0]
    for position, operand in enumerate(operands[1:], 1):
        if run.inner[position]:
            run.fail_where(position, ~run.mask(found if decides else pc.invert(found)))
        found = (pc.or_kleene if decides else pc.and_kleene)(found, operand)
    return found


def _is_null(run: Run, values: Values) -> Values:
    """What has no answer is not NULL: Flink's planner asks the operands of an expression in place of it."""
    null = pc.is_null(values)
    for failure in run.inner[0]:
        null = pc.and_(null, pa.array(~failure.rows)) if run.rows else null
    return null


for _sign, _compute in (
    ("=", _equal), ("<>", partial(_comparison, "not_equal")), ("<", partial(_comparison, "less")),
    ("<=", partial(_comparison, "less_equal")), (">", partial(_comparison, "greater")),
    (">=", partial(_comparison, "greater_equal")), ("IS NOT DISTINCT FROM", _not_distinct),
    ("IS DISTINCT FROM", lambda run, left, right: pc.invert(_not_distinct(run, left, right))),
):  # fmt: skip
    special(_sign, f"<COMPARABLE_TYPE> {_sign} <COMPARABLE_TYPE>", _compared, _compute)
special("IN", "<COMPARABLE_TYPE> IN (<COMPARABLE_TYPE>, ...)", _compared, _in)
row("AND", "bool bool*", partial(_logic, False), BOOLEAN, chooses=True)
row("OR", "bool bool*", partial(_logic, True), BOOLEAN, chooses=True)
row("NOT", "bool", plain(pc.invert), BOOLEAN)
row("IS NULL", "any", _is_null, BOOLEAN, chooses=True)
row("IS NOT NULL", "any", lambda run, values: pc.invert(_is_null(run, values)), BOOLEAN, chooses=True)
row("IS TRUE", "bool", plain(lambda x: pc.fill_null(x, False)), BOOLEAN)
row("IS NOT TRUE", "bool", plain(lambda x: pc.invert(pc.fill_null(x, False))), BOOLEAN)
row("IS FALSE", "bool", plain(lambda x: pc.invert(pc.fill_null(x, True))), BOOLEAN)
row("IS NOT FALSE", "bool", plain(lambda x: pc.fill_null(x, True)), BOOLEAN)


def _case(run: Run, *columns: Values) -> Values:
    """``columns``: condition, value, ..., and the value if none is true. Only what is chosen may fail."""
    conditions, values, otherwise = columns[:-1:2], columns[1:-1:2], columns[-1]
    if any(run.inner):
        undecided = np.ones(run.rows, np.bool_)
        for position, condition in enumerate(conditions):
            true = run.mask(condition)
            run.fail_where(2 * position, undecided)
            run.fail_where(2 * position + 1, undecided & true)
            undecided = undecided & ~true
        run.fail_where(-1, undecided)
    scalars = all(isinstance(column, pa.Scalar) for column in columns)
    if len(values) > 1 and not scalars and not pa.types.is_nested(run.result.arrow):
        masks = [pc.fill_null(run.array(condition), False) for condition in conditions]
        return pc.case_when(pa.StructArray.from_arrays(masks, [str(n) for n in range(len(masks))]), *values, otherwise)
    pairs = reversed(list(zip(conditions, values, strict=True)))
    return reduce(lambda found, pair: pc.if_else(pc.fill_null(pair[0], False), pair[1], found), pairs, otherwise)


def _case_rule(arguments: Sequence[Argument]) -> Typed | None:
    types = [argument.type for argument in arguments]
    conditions = types[:-1:2]
    result = sql.common(*types[1:-1:2], types[-1])
    if result is None or not len(types) % 2 or not all(of in (BOOLEAN, sql.NULL) for of in conditions):
        return None
    return Typed(result, (*(BOOLEAN, result) * len(conditions), result))


def _coalesce(run: Run, *columns: Values) -> Values:
    if any(run.inner):
        undecided = np.ones(run.rows, np.bool_)
        for position, column in enumerate(columns):
            run.fail_where(position, undecided)
            undecided = undecided & run.mask(pc.is_null(column))
    return pc.coalesce(*columns)


def _extreme(name: str, choose: Callable[..., Any], run: Run, *columns: Values) -> Values:
    if run.result.is_text or run.result.is_decimal:
        return run.each(lambda *values: choose(values), *columns)
    return getattr(pc, name)(*columns, skip_nulls=False)


special("CASE", "CASE WHEN <BOOLEAN> THEN <ANY> ... END, values of one type", _case_rule, _case, chooses=True)
row("IF", "bool same same", _case, 1, chooses=True)
row("COALESCE", "same same*", _coalesce, 0, chooses=True)
row("IFNULL", "same same", _coalesce, 0, chooses=True)
row("GREATEST", "same same*", partial(_extreme, "max_element_wise", max), 0)
row("LEAST", "same same*", partial(_extreme, "min_element_wise", min), 0)


def _whole(kernel: Kernel, run: Run, values: Values) -> Values:
    return values if run.result.is_integer else pc.cast(kernel(values), run.result.arrow)


def _whole_type(arguments: Sequence[Argument]) -> LogicalType:
    of = arguments[0].type
    return sql.decimal(of.precision, 0) if of.is_decimal else of


def _sign_of(run: Run, values: Values) -> Values:
    sign = pc.sign(values)
    if not run.result.is_decimal:
        return pc.cast(sign, run.result.arrow)
    return fit_decimal(pc.cast(pc.cast(sign, pa.int64()), pa.decimal128(19, 0)), run.result)


def _round_type(arguments: Sequence[Argument]) -> LogicalType:
    of = arguments[0].type
    if not of.is_decimal:
        return of
    digits = arguments[1].value if len(arguments) > 1 else 0
    digits = of.scale if digits is VARIES or digits is None else digits
    if digits >= of.scale:
        return of
    return sql.decimal(min(38, 1 + of.precision - of.scale + max(0, digits)), max(0, digits))


def _rounding(arrow_mode: str, python_mode: str) -> Kernel:
    def one(value: Any, digits: int) -> Decimal:
        # a DOUBLE is taken for the number that its text says
        number = Decimal(str(value)) if isinstance(value, float) else Decimal(value)
        return number.quantize(Decimal((0, (1,), -digits)), python_mode, EXACT)

    def of_float(value: float, digits: int) -> float:
        return float(one(value, digits)) if math.isfinite(value) else value

    def compute(run: Run, values: Values, *places: Values) -> Values:
        of, digits = run.result, places[0] if places else pa.scalar(0)
        fixed = digits.as_py() if isinstance(digits, pa.Scalar) else None
        if fixed is not None and fixed >= (run.types[0].scale if of.is_decimal else 0) and not of.is_float:
            return values
        if of.is_decimal:
            if fixed is not None and fixed >= 0:
                return pc.cast(pc.round(values, fixed, round_mode=arrow_mode), of.arrow)
            return run.each(lambda x, n: rounded(one(x, n), of), values, digits)
        if of.is_integer:
            half = 1 << (63 if of == BIGINT else 31)
            whole = run.each(lambda x, n: (int(one(x, n)) + half) % (2 * half) - half, values, digits, to=pa.int64())
            return pc.cast(whole, of.arrow, safe=False)
        if fixed is None or not 0 <= fixed <= 15 or of != DOUBLE:
            return run.each(of_float, values, digits)

        def of_doubles(numbers: Any) -> Any:
            found, unsure = _rounded_doubles(numbers, 10.0**fixed, 0.5 if python_mode == ROUND_HALF_UP else 0.0)
            for position in np.flatnonzero(unsure):
                found[position] = of_float(float(numbers[position]), fixed)
            return found

        return by_numpy(of_doubles, values.type, values)

    return compute


def _rounded_doubles(numbers: Any, factor: float, half: float) -> tuple[Any, Any]:
    """The numbers rounded, and those that are so near to the border that only their texts decide."""
    with np.errstate(all="ignore"):
        size = np.abs(numbers) * factor
        found = np.copysign(np.floor(size + half), numbers) / factor
        border = np.abs(size + half - np.rint(size + half))
        return found, ~(border > 1e-14 * (size + 1)) | ~(size < 2.0**50)


row("FLOOR", "number", partial(_whole, pc.floor), _whole_type)
row("CEIL", "number", partial(_whole, pc.ceil), _whole_type)
row("ABS", "number", plain(pc.abs), 0)
row("SIGN", "number", _sign_of, 0)
row("ROUND", "number long?", _rounding("half_towards_infinity", ROUND_HALF_UP), _round_type)
row("TRUNCATE", "number long?", _rounding("towards_zero", ROUND_DOWN), _round_type)
for _name, _function in (
    ("SQRT", pc.sqrt), ("EXP", pc.exp), ("SIN", pc.sin), ("COS", pc.cos), ("TAN", pc.tan), ("ASIN", pc.asin),
    ("ACOS", pc.acos), ("ATAN", pc.atan), ("SINH", pc.sinh), ("COSH", pc.cosh), ("TANH", pc.tanh), ("LN", pc.ln),
    ("LOG10", pc.log10), ("LOG2", pc.log2), ("DEGREES", lambda x: pc.multiply(x, 180 / math.pi)),
    ("RADIANS", lambda x: pc.multiply(pc.divide(x, 180.0), math.pi)), ("COT", lambda x: pc.divide(1.0, pc.tan(x))),
):  # fmt: skip
    row(_name, "double", plain(_function), DOUBLE)
row("POWER", "double double", plain(pc.power), DOUBLE)
row("ATAN2", "double double", plain(pc.atan2), DOUBLE)
row("LOG", "double double?", plain(lambda x, y=None: pc.ln(x) if y is None else pc.divide(pc.ln(y), pc.ln(x))), DOUBLE)
row("PI", "", lambda run: pa.scalar(math.pi), DOUBLE)
row("E", "", lambda run: pa.scalar(math.e), DOUBLE)
