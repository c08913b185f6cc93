"""Types and expressions of SQL text, by the precedences of Flink's parser (Apache Calcite).

Rule: each word is looked at once, and chains are read in a loop, so the time is linear in the length of the text. AND,
OR and ``||`` are calls of as many operands as the chain has.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction

from flinkish.table import logical_types as types
from flinkish.table.logical_types import MAX_LENGTH, MAX_PRECISION, LogicalType
from flinkish.table.syntax import Alias, Call, Cast, Column, Expression, Literal, Star
from flinkish.table.tokens import RESERVED, Tokens, unqualified

#: spelling -> (type, sizes if none are given, least and greatest first size)
_TYPES: dict[str, tuple[str, tuple[int, ...], int, int]] = {
    **{word: (word, (), 0, 0) for word in "BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE DATE".split()},
    "INTEGER": ("INT", (), 0, 0),
    "STRING": ("VARCHAR", (MAX_LENGTH,), 0, 0), "BYTES": ("VARBINARY", (MAX_LENGTH,), 0, 0),
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC"), ("DECIMAL", (10, 0), 1, MAX_PRECISION)),
    **dict.fromkeys(("CHAR", "CHARACTER"), ("CHAR", (1,), 1, MAX_LENGTH)),
    **{word: (word, (MAX_LENGTH,), 1, MAX_LENGTH) for word in ("VARCHAR", "VARBINARY")},
    "BINARY": ("BINARY", (1,), 1, MAX_LENGTH),
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
        return types.INTERVAL_MONTH if qualifier(tokens)[0] in MONTHS else types.INTERVAL_DAY
    if word == "NULL":
        return types.NULL
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


# --- expressions ----------------------------------------------------------------------------------------------------

#: operators between two operands -> precedence
_BINARY = {
    "OR": 22, "AND": 24, "=": 30, "<>": 30, "!=": 30, "<": 30, "<=": 30, ">": 30, ">=": 30, "+": 40, "-": 40,
    "*": 60, "/": 60, "%": 60, "||": 60,
}  # fmt: skip
_NOT, _IS, _PREDICATE, _UNARY = 26, 28, 32, 80
_PREDICATES = ("IS", "NOT", "IN", "BETWEEN", "LIKE", "SIMILAR")
_CHAINS = ("AND", "OR", "||")
_TESTS = ("NULL", "TRUE", "FALSE", "UNKNOWN", "DISTINCT FROM", "JSON")
_CONSTANTS = ("CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP")
_UNITS = (
    "YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND", "NANOSECOND",
    "EPOCH", "DOY", "DOW", "ISODOW", "ISOYEAR", "DECADE", "CENTURY", "MILLENNIUM",
    *(f"SQL_TSI_{unit}" for unit in (*MONTHS, *MILLISECONDS)),
)  # fmt: skip
_NULL = Literal(None, types.NULL)
_LITERALS = {
    "TRUE": Literal(True, types.BOOLEAN), "FALSE": Literal(False, types.BOOLEAN), "NULL": _NULL,
    "UNKNOWN": Literal(None, types.BOOLEAN),
}  # fmt: skip


def expression(tokens: Tokens, above: int = 0) -> Expression:
    """The expression that comes next, of operators whose precedence is above this one."""
    outer, tokens.height = tokens.height, 0
    tokens.enter()
    tokens.weight += 1
    left = _prefix(tokens)
    while True:
        token = tokens.next
        power = _BINARY.get(token.upper)
        if power is None:
            if (predicate := _predicate(tokens, left, above)) is None:
                break
            left = predicate
        elif power <= above:
            break
        else:
            left = _chain(tokens, left, token.upper, power)
        tokens.rise()
    tokens.depth -= 1
    tokens.height = max(outer, tokens.height + 1)
    return left


def _chain(tokens: Tokens, left: Expression, operator: str, power: int) -> Expression:
    """An operator with its right operand; of AND, OR and || with all that follow."""
    at, operands = tokens.position(tokens.next.start), [left]
    while tokens.accept(operator):
        if tokens.accept("ANY", "SOME", "ALL"):
            tokens.refused("subquery")
        operands.append(expression(tokens, power))
        if operator not in _CHAINS:
            break
    return Call("<>" if operator == "!=" else operator, tuple(operands), at=at)


def _predicate(tokens: Tokens, left: Expression, above: int) -> Expression | None:
    """IS, IN, BETWEEN, LIKE or SIMILAR TO behind an operand; None if none of them comes."""
    token = tokens.next
    word = token.upper
    if word not in _PREDICATES:
        return None
    at = tokens.position(token.start)
    if word == "IS" and above < _IS:
        tokens.take()
        negated = "NOT " if tokens.accept("NOT") else ""
        test = tokens.expect(*_TESTS).replace("UNKNOWN", "NULL")
        right = (expression(tokens, 30),) if test == "DISTINCT FROM" else ()
        if test == "JSON" and tokens.next.upper in ("VALUE", "ARRAY", "OBJECT", "SCALAR"):
            tokens.refused("JSON")
        if test == "JSON" and negated:
            return Call("IS NOT TRUE", (Call("IS JSON", (left,), at=at),), at=at)
        return Call(f"IS {negated}{test}", (left, *right), at=at)
    negated = "NOT" if word == "NOT" and tokens.ahead().upper in _PREDICATES[2:] else ""
    if above >= _PREDICATE or not negated and word not in _PREDICATES[2:]:
        return None
    tokens.accept(negated)
    match tokens.expect("IN", "BETWEEN", "LIKE", "SIMILAR TO"):
        case "IN":
            if tokens.ahead().upper in ("SELECT", "WITH", "VALUES", "TABLE"):
                tokens.refused("subquery")
            found = Call("IN", (left, *tokens.in_brackets(lambda: expression(tokens))), at=at)
        case "BETWEEN":
            low = expression(tokens, _PREDICATE)
            tokens.expect("AND")
            high = expression(tokens, _PREDICATE)
            found = Call("BETWEEN", (left, low, high), at=at)
        case name:
            pattern = expression(tokens, _PREDICATE)
            escape = (expression(tokens, _PREDICATE),) if tokens.accept("ESCAPE") else ()
            found = Call(name, (left, pattern, *escape), at=at)
    return Call("NOT", (found,), at=at) if negated else found


def _prefix(tokens: Tokens) -> Expression:
    token = tokens.next
    if token.upper in ("NOT", "-", "+"):
        tokens.take()
        operand = expression(tokens, _NOT if token.upper == "NOT" else _UNARY - 1)
        if token.upper == "+":
            return operand
        if token.upper == "-" and isinstance(operand, Literal) and operand.type.is_numeric:
            whole = operand.type.is_integer or operand.type == types.decimal(19, 0)
            return _integer(-int(operand.value)) if whole else Literal(-operand.value, operand.type)
        return Call(token.upper.replace("-", "NEG"), (operand,), at=tokens.position(token.start))
    found = _primary(tokens)
    while True:
        token = tokens.next
        tokens.rise(token.upper in ("[", "."))
        if tokens.accept("["):
            found = Call("ITEM", (found, expression(tokens)), at=tokens.position(token.start))
            tokens.expect("]")
        elif token.upper == "." and not isinstance(found, Star):
            tokens.take()
            field = tokens.name("the name of a field")
            found = Call("FIELD", (found, _text(field)), at=tokens.position(token.start))
        else:
            return found


def _primary(tokens: Tokens) -> Expression:
    """A literal, a column, a call, or what stands in brackets."""
    token = tokens.next
    upper, behind = token.upper, tokens.ahead()
    if token.kind in ("number", "text"):
        tokens.take()
        return (_number if token.kind == "number" else _quoted)(tokens, token.text, token.start)
    if upper == "(":
        if behind.upper in ("SELECT", "WITH", "VALUES"):
            tokens.refused("subquery")
        values = tokens.in_brackets(lambda: expression(tokens))
        return values[0] if len(values) == 1 else Call("ROW", values, at=tokens.position(token.start))
    if upper == "*" and tokens.ahead(-1).upper in ("SELECT", "DISTINCT", "ALL", ",", "("):
        tokens.take()
        return Star()
    if upper in _LITERALS and behind.upper not in (".", "("):
        tokens.take()
        return _LITERALS[upper]
    if upper == "CASE":
        tokens.take()
        return _case(tokens, Call(upper, at=tokens.position(token.start)))
    if upper in _SPECIAL and behind.upper == _SPECIAL[upper][0]:
        tokens.index += 2
        found = _SPECIAL[upper][1](tokens, Call(upper, at=tokens.position(token.start)))
        tokens.expect(")" if behind.upper == "(" else "]")
        return found
    if upper in _TIMES and (behind.kind == "text" or behind.upper == "WITH"):
        return _time(tokens)
    if upper == "INTERVAL" and (behind.kind in ("text", "number") or behind.upper in ("-", "+")):
        return _interval(tokens)
    if upper in _CONSTANTS and behind.upper != "(":
        tokens.take()
        return Call(upper, at=tokens.position(token.start))
    return _named(tokens)


def _named(tokens: Tokens) -> Expression:
    """A column, all columns of a table, or a call of a function."""
    start = tokens.next
    called = start.kind == "word" and tokens.ahead().upper == "(" and start.upper in _CALLED
    parts = [tokens.take().text] if called else [tokens.name("an expression")]
    while tokens.next.upper == ".":
        tokens.take()
        if tokens.accept("*"):
            return Star(".".join(parts))
        parts.append(tokens.name("the name of a column"))
    at = tokens.position(start.start)
    if tokens.next.upper != "(":
        return Column(tuple(parts), at)
    name = unqualified(parts).upper()
    tokens.take()
    distinct = tokens.accept("DISTINCT", "ALL") == "DISTINCT"
    if tokens.starts("SELECT"):
        tokens.refused("subquery")
    args = () if tokens.next.upper == ")" else tokens.listed(lambda: expression(tokens))
    result = read_type(tokens) if name == "JSON_VALUE" and tokens.accept("RETURNING") else None
    if name.startswith("JSON_") and tokens.next.upper not in (")", "FROM", ""):
        tokens.refused("JSON")
    tokens.expect(")")
    if result is not None:
        return Cast(Call(name, args, at=at), result, lenient=True, at=at)
    if tokens.next.upper in ("IGNORE", "RESPECT") and tokens.ahead().upper == "NULLS":
        tokens.refused("WITHIN")
    condition = None
    if tokens.accept("FILTER"):
        tokens.expect("(")
        tokens.expect("WHERE")
        condition = expression(tokens)
        tokens.expect(")")
    if name in ("ROLLUP", "CUBE"):
        tokens.refused(name)
    return Call(name, args, distinct=distinct, condition=condition, at=at)


# --- literals -------------------------------------------------------------------------------------------------------


def _text(value: str) -> Literal:
    return Literal(value, types.char(len(value)))


def _integer(value: int) -> Literal:
    for kind, bits in ((types.INT, 31), (types.BIGINT, 63)):
        if -(1 << bits) <= value < 1 << bits:
            return Literal(value, kind)
    return Literal(Decimal(value), types.decimal(len(str(abs(value))), 0))


def _number(tokens: Tokens, text: str, start: int) -> Literal:
    if "e" in text.lower():
        return Literal(float(text), types.DOUBLE)
    whole, _, fraction = text.partition(".")
    if len(whole + fraction) > types.MAX_PRECISION:
        raise tokens.error("a number has too many digits", start, f"at most {types.MAX_PRECISION}", "write it as 1e40")
    if not fraction:
        return _integer(int(whole))
    return Literal(Decimal(text), types.decimal(len(whole + fraction), len(fraction)))


def _quoted(tokens: Tokens, text: str, start: int) -> Literal:
    """'text', U&'\\0041' UESCAPE '\\', or x'ff'."""
    prefix, _, body = text[:-1].partition("'")
    body = body.replace("''", "'")
    if not prefix:
        return _text(body)
    try:
        if prefix in ("x", "X"):
            value = bytes.fromhex(body)
            return Literal(value, LogicalType("BINARY", (len(value),)))
        return _text(_unicode(body, tokens.text("a character") if tokens.accept("UESCAPE") else "\\"))
    except ValueError:
        raise tokens.error("a literal cannot be read", start, "x'00ff', U&'\\00e9'") from None


def _unicode(body: str, escape: str) -> str:
    """The text of U&'\\00e9 \\+01F600'. Raises ValueError."""
    first, *rest = body.replace(escape * 2, "\0").split(escape)
    digits = [(part[1:7], part[7:]) if part.startswith("+") else (part[:4], part[4:]) for part in rest]
    text = first + "".join(chr(int(code, 16)) + behind for code, behind in digits)
    return text.replace("\0", escape).encode("utf-16", "surrogatepass").decode("utf-16")


_MOMENT = re.compile(r"(?:(\d{4})-(\d\d?)-(\d\d?))?(?: *(\d\d?):(\d\d?):(\d\d?)(?:\.(\d{1,9}))?)?")
_TIMES = {"DATE": "2026-01-31", "TIME": "12:00:00", "TIMESTAMP": "2026-01-31 12:00:00.123"}


def _time(tokens: Tokens) -> Expression:
    """DATE '...', TIME '...' or TIMESTAMP '...'."""
    root, at = tokens.next.upper, tokens.position(tokens.next.start)
    tokens.take()
    local = root == "TIMESTAMP" and tokens.accept("WITH LOCAL TIME ZONE", "WITH TIME ZONE")
    if local == "WITH TIME ZONE":
        tokens.refused("zoned")
    start, text = tokens.next.start, tokens.text(f"{root} '{_TIMES[root]}'").strip()
    match = _MOMENT.fullmatch(text)
    parts = match.groups("") if match is not None else ("",) * 7
    try:
        day = date.min if root == "TIME" else date(*map(int, parts[:3]))
        has_time = root == "TIME" or root == "TIMESTAMP" and parts[3]
        hour, minute, second = map(int, parts[3:6] if has_time else (0, 0, 0))
        moment = time(hour, minute, second, int(parts[6][:6].ljust(6, "0")))
        if parts[0] and root == "TIME" or parts[3] and root == "DATE":
            raise ValueError(text)
    except ValueError:
        raise tokens.error(f"the {root} cannot be read", start, f"{root} '{_TIMES[root]}'") from None
    if local:
        return Cast(_text(text), LogicalType("TIMESTAMP_LTZ", (len(parts[6]),)), at=at)
    value = {"DATE": day, "TIME": moment, "TIMESTAMP": datetime.combine(day, moment)}[root]
    return Literal(value, LogicalType(root, () if root == "DATE" else (len(parts[6]),)))


def _interval(tokens: Tokens) -> Literal:
    start = tokens.take().start
    sign = -1 if tokens.accept("-", "+") == "-" else 1
    text = tokens.take().text if tokens.next.kind == "number" else tokens.text("INTERVAL '5' SECOND").strip()
    first, last = qualifier(tokens)
    sizes = MONTHS if first in MONTHS else MILLISECONDS
    units = [unit for unit in sizes if unit not in ("QUARTER", "WEEK") or unit == first]
    used = units[units.index(first) : units.index(last) + 1] if last in units else [first]
    parts = re.split(r"[ :]" if first in MILLISECONDS else "-", text.removeprefix("-"))
    fits = [re.fullmatch(r"\d{1,12}(\.\d{1,9})?" if unit == "SECOND" else r"\d{1,12}", part)
            for unit, part in zip(used, parts, strict=False)]  # fmt: skip
    if not used or len(parts) != len(used) or last not in ("", used[-1]) or not all(fits):
        raise tokens.error(
            "the INTERVAL cannot be read", start, "INTERVAL '5' SECOND, INTERVAL '1 02:03:04' DAY TO SECOND"
        )
    total = sum(Fraction(part) * sizes[unit] for part, unit in zip(parts, used, strict=True))
    value = int(total) * sign * (-1 if text.startswith("-") else 1)
    return Literal(value, types.INTERVAL_MONTH if first in MONTHS else types.INTERVAL_DAY)


# --- calls with a grammar of their own: what stands between their brackets -------------------------------------------


def _cast(tokens: Tokens, call: Call) -> Expression:
    operand = expression(tokens)
    tokens.expect("AS")
    return Cast(operand, read_type(tokens), call.name == "TRY_CAST", call.at)


def _case(tokens: Tokens, call: Call) -> Expression:
    """CASE: conditions and values, then the value if none holds."""
    weight = tokens.weight
    operand = None if tokens.next.upper == "WHEN" else expression(tokens)
    weight = tokens.weight - weight
    args: list[Expression] = []
    while (word := tokens.expect("WHEN", *(["ELSE", "END"] if args else []))) == "WHEN":
        tests = tokens.listed(lambda: expression(tokens)) if operand is not None else (expression(tokens),)
        if operand is not None:
            tokens.weigh(weight)
            tests = (Call("=" if len(tests) == 1 else "IN", (operand, *tests), at=call.at),)
        tokens.expect("THEN")
        args += [*tests, expression(tokens)]
    args.append(_NULL if word == "END" else expression(tokens))
    if word == "ELSE":
        tokens.expect("END")
    return replace(call, args=tuple(args))


def _collection(tokens: Tokens, call: Call) -> Expression:
    """ARRAY[a, b] or MAP[key, value, ...]."""
    return replace(call, args=() if tokens.next.upper == "]" else tokens.listed(lambda: expression(tokens)))


def _unit(tokens: Tokens) -> Literal:
    return _text(tokens.expect(*_UNITS).removeprefix("SQL_TSI_"))


def _of_unit(tokens: Tokens, call: Call) -> Expression:
    """EXTRACT(unit FROM value), TIMESTAMPDIFF(unit, value, value) and TIMESTAMPADD."""
    unit = _unit(tokens)
    tokens.expect("FROM" if call.name == "EXTRACT" else ",")
    return replace(call, args=(unit, *tokens.listed(lambda: expression(tokens))))


def _rounded(tokens: Tokens, call: Call) -> Expression:
    """FLOOR(value) and FLOOR(value TO unit), CEIL likewise."""
    value = expression(tokens)
    unit = (_unit(tokens),) if tokens.accept("TO") else ()
    return replace(call, name=call.name.replace("CEILING", "CEIL"), args=(value, *unit))


def _trim(tokens: Tokens, call: Call) -> Expression:
    """TRIM(value), or TRIM(BOTH characters FROM value), which is BTRIM, LTRIM or RTRIM(value, characters)."""
    side = tokens.accept("BOTH", "LEADING", "TRAILING")
    first = () if side and tokens.next.upper == "FROM" else (expression(tokens),)
    if not tokens.accept("FROM"):
        return replace(call, args=first)
    return replace(call, name=_SIDES.get(side, "BTRIM"), args=(expression(tokens), *first))


def _worded(*words: str) -> Callable[[Tokens, Call], Expression]:
    """A call whose arguments may have words between them in place of commas: SUBSTRING(x FROM 1 FOR 2)."""

    def read(tokens: Tokens, call: Call) -> Expression:
        # the IN of POSITION(a IN b) is no operator
        args = [expression(tokens, _PREDICATE)]
        while tokens.accept(",", *words):
            args.append(expression(tokens))
        return replace(call, args=tuple(args))

    return read


_SIDES = {"LEADING": "LTRIM", "TRAILING": "RTRIM"}
#: word -> the bracket that follows it, and what reads what stands in it
_SPECIAL: dict[str, tuple[str, Callable[[Tokens, Call], Expression]]] = {
    "CAST": ("(", _cast), "TRY_CAST": ("(", _cast), "ARRAY": ("[", _collection), "MAP": ("[", _collection),
    "EXTRACT": ("(", _of_unit), "TIMESTAMPDIFF": ("(", _of_unit), "TIMESTAMPADD": ("(", _of_unit),
    "FLOOR": ("(", _rounded), "CEIL": ("(", _rounded), "CEILING": ("(", _rounded), "TRIM": ("(", _trim),
    "SUBSTRING": ("(", _worded("FROM", "FOR")), "POSITION": ("(", _worded("IN")),
    "OVERLAY": ("(", _worded("PLACING", "FROM", "FOR")),
}  # fmt: skip
#: functions whose names are reserved words
_CALLED = ("LEFT", "RIGHT")


def named_expression(tokens: Tokens) -> Expression:
    """An expression of a SELECT, with its name if it has one."""
    found = expression(tokens)
    name = named(tokens)
    return Alias(found, name) if name else found


def named(tokens: Tokens) -> str:
    """The name behind an expression or a table, with AS or without; empty if there is none."""
    token = tokens.next
    if tokens.accept("AS") or token.kind == "quoted" or token.kind == "word" and token.upper not in RESERVED:
        return tokens.name("a name behind AS")
    return ""
