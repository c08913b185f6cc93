"""Resolved expressions: trees of typed nodes that compute a column of a batch (`Node`).

They are plain data, so that they travel to workers, where the kernels of `functions` compute them. A tree may be deeper
than Python's stack: whatever looks at all of it goes over the list of its nodes (`Node.nodes`), and so does the form in
which it is pickled. Every node is computed once for a batch, whoever refers to it.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from flinkish.common.time import Instant
from flinkish.errors import FlinkishError, MalformedRecordError, message_of
from flinkish.table import casts, functions_nested, functions_text, functions_time, operators, syntax
from flinkish.table import logical_types as sql
from flinkish.table.functions import FUNCTIONS, MAX_FOLDED, VARIES, Argument, Failure, Run, Values
from flinkish.table.logical_types import BIGINT, BOOLEAN, NULL, STRING, LogicalType
from flinkish.table.plan import parts_first

if TYPE_CHECKING:
    from flinkish.table.plan import Field
    from flinkish.table.planner import Planner
    from flinkish.table.udf import UserFunction

# their rows are in FUNCTIONS
_ = functions_nested, functions_text, functions_time, operators


@dataclass(frozen=True, eq=False)
class Node:
    """A typed expression. ``args``: the expressions that it is computed of."""

    type: LogicalType
    args: tuple[Node, ...] = field(default=(), kw_only=True)
    #: the function takes failures of its arguments upon itself
    chooses = False
    #: equal arguments give equal values
    constant = True

    def __eq__(self, other: object) -> bool:
        """Whether it gives the same values for equal columns."""
        if self is other or not isinstance(other, Node):
            return self is other
        return self.type == other.type and self.text == other.text and self.deterministic and other.deterministic

    def __hash__(self) -> int:
        return hash(self.text)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes of the tree, each once, those that another is computed of before it."""
        if not self.args:
            return (self,)
        return tuple(parts_first([self], lambda node: node.args))

    @cached_property
    def _steps(self) -> list[tuple[Node, tuple[int, ...]]]:
        """The nodes, each with the positions of its arguments."""
        positions = {id(node): position for position, node in enumerate(self.nodes)}
        return [(node, tuple(positions[id(arg)] for arg in node.args)) for node in self.nodes]

    @cached_property
    def text(self) -> str:
        texts: list[str] = []
        for node, links in self._steps:
            texts.append(node._text([texts[position] for position in links]))
        return texts[-1]

    @cached_property
    def columns(self) -> frozenset[str]:
        return frozenset(node.name for node in self.nodes if isinstance(node, InputColumn))

    @cached_property
    def functions(self) -> tuple[UserFunction, ...]:
        return tuple(node.function for node in self.nodes if isinstance(node, UserCall))

    @property
    def deterministic(self) -> bool:
        """Whether equal columns give equal values."""
        return all(node.constant for node in self.nodes)

    def __call__(self, columns: pa.RecordBatch, now_ms: int) -> Values:
        found, failures = self.evaluated(columns, now_ms, columns.num_rows)
        for failure in failures:
            if failure.rows.any():
                row = int(failure.rows.argmax())
                error = MalformedRecordError(failure.why(row), where=f"{self.text}, row {row} of the batch")
                error.__dict__["position"] = row
                raise error
        return found

    def evaluated(self, columns: pa.RecordBatch, now_ms: int, rows: int) -> tuple[Values, Sequence[Failure]]:
        """The values, and the rows that have none."""
        values: list[Any] = []
        failures: list[Sequence[Failure]] = []
        for node, links in self._steps:
            run = Run(rows, [arg.type for arg in node.args], node.type, now_ms, getattr(node, "zone", "UTC"))
            inner = [failures[position] for position in links]
            if node.chooses:
                run.inner = inner
            else:
                run.failures = [failure for each in inner for failure in each]
            try:
                values.append(node._compute(run, columns, [values[position] for position in links]))
            except (pa.ArrowCapacityError, ArithmeticError, MemoryError, ValueError) as error:
                if isinstance(node, UserCall) or isinstance(error, FlinkishError):
                    raise
                values.append(pa.scalar(None, node.type.arrow))
                run.fail(pa.scalar(True), f"{node.text:.100}: {message_of(error)}")
            failures.append(run.failures)
        return values[-1], failures[-1]

    def __reduce__(self) -> tuple[Any, ...]:
        flat = []
        for node, links in self._steps:
            own = {name: getattr(node, name) for name in node.__dataclass_fields__ if name != "args"}
            flat.append((type(node), own, links))
        return _rebuilt, (flat,)

    def _text(self, args: list[str]) -> str:
        raise NotImplementedError

    def _compute(self, run: Run, columns: pa.RecordBatch, args: list[Values]) -> Values:
        raise NotImplementedError


def _rebuilt(flat: list[tuple[type[Node], dict[str, Any], tuple[int, ...]]]) -> Node:
    nodes: list[Node] = []
    for kind, own, links in flat:
        nodes.append(kind(**own, args=tuple(nodes[position] for position in links)))
    return nodes[-1]


@dataclass(frozen=True, eq=False)
class InputColumn(Node):
    """A column of the input."""

    name: str

    def _text(self, args: list[str]) -> str:
        return self.name

    def _compute(self, run: Run, columns: pa.RecordBatch, args: list[Values]) -> Values:
        return columns.column(self.name)


@dataclass(frozen=True, eq=False)
class Constant(Node):
    """A value that all rows have, as Arrow takes it."""

    value: Any

    @cached_property
    def _scalar(self) -> pa.Scalar:
        return pa.scalar(self.value, self.type.arrow)

    def _text(self, args: list[str]) -> str:
        if self.value is None:
            return f"null:{self.type}"
        if self.type.is_integer:
            return str(self.value)
        if self.type.is_text:
            quoted = self.value.replace("'", "''")
            return f"'{quoted}'"
        if self.type.is_binary:
            return f"X'{self.value.hex()}'"
        shown = casts.text_of(self.value, self.type)
        return shown.lower() if self.type == BOOLEAN else shown if self.type.is_numeric else f"{shown}:{self.type}"

    def _compute(self, run: Run, columns: pa.RecordBatch, args: list[Values]) -> Values:
        return self._scalar


@dataclass(frozen=True, eq=False)
class FunctionCall(Node):
    """A call of a built-in function. ``zone``: of the session."""

    name: str
    zone: str = "UTC"

    def __post_init__(self) -> None:
        function = FUNCTIONS[self.name]
        self.__dict__.update(chooses=function.chooses, constant=function.constant)

    def _text(self, args: list[str]) -> str:
        name, first = self.name, args[0] if args else ""
        if name in _INFIX and len(args) > 1:
            nested = [isinstance(arg, FunctionCall) and arg.name in _INFIX for arg in self.args]
            return f" {name} ".join(f"({text})" if inside else text for text, inside in zip(args, nested, strict=True))
        if name.startswith("IS ") and len(args) == 1:
            return f"{first} {name}"
        match name:
            case "NEG":
                return f"-{first}"
            case "FIELD":
                return f"{first}.{args[1].strip(chr(39))}"
            case "ITEM":
                return f"{first}[{args[1]}]"
        return f"{name}({', '.join(args)})"

    def _compute(self, run: Run, columns: pa.RecordBatch, args: list[Values]) -> Values:
        return FUNCTIONS[self.name].kernel(run, *args)


_INFIX = {
    "+", "-", "*", "/", "%", "||", "=", "<>", "<", "<=", ">", ">=", "AND", "OR", "LIKE", "SIMILAR TO",
    "IS DISTINCT FROM", "IS NOT DISTINCT FROM",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class CastCall(Node):
    """CAST, TRY_CAST (``lenient``), or the conversion of an argument to what its function takes."""

    lenient: bool = False
    zone: str = "UTC"

    def _text(self, args: list[str]) -> str:
        return f"{'TRY_' * self.lenient}CAST({args[0]} AS {self.type})"

    def _compute(self, run: Run, columns: pa.RecordBatch, args: list[Values]) -> Values:
        return casts.cast(run, args[0], self.args[0].type, self.type, self.lenient)


@dataclass(frozen=True, eq=False)
class UserCall(Node):
    """A call of a function of the program, by this name, which is open in the job only."""

    function: UserFunction
    name: str
    constant = False

    def _text(self, args: list[str]) -> str:
        return f"{self.name}({', '.join(args)})"

    def _compute(self, run: Run, columns: pa.RecordBatch, args: list[Values]) -> Values:
        return self.function.call([run.array(arg) for arg in args], run.types, run.rows)


def resolve_expression(expression: syntax.Expression, planner: Planner, fields: Mapping[str, Field]) -> Node:
    """The typed tree of an expression whose columns are named as these fields; ProgramError: there is no such column or
    function, or types do not fit."""
    return syntax.folded(expression, _children, _Resolver(planner, fields).node)


class _Resolver:
    def __init__(self, planner: Planner, fields: Mapping[str, Field]) -> None:
        self._planner, self._fields, self._zone = planner, fields, planner.catalog.zone()

    def node(self, expression: syntax.Expression, args: tuple[Node, ...]) -> Node:
        match expression:
            case syntax.Column():
                return self._column(expression)
            case syntax.Literal():
                return literal(expression.value, expression.type)
            case syntax.Cast():
                return self._cast(expression, args[0])
            case syntax.Call():
                return self._call(expression, args)
            case syntax.Alias():
                return args[0]
        raise self._planner.error("* stands in an expression", "a column or a value", "COUNT(*) counts rows")

    def _column(self, column: syntax.Column) -> Node:
        name, *inside = column.path
        if name not in self._fields:
            raise self._planner.no_column(column, list(self._fields))
        node: Node = InputColumn(self._fields[name].type, name)
        for part in inside:
            node = self._built("FIELD", (node, Constant(STRING, part)), column.at)
        return node

    def _cast(self, cast: syntax.Cast, operand: Node) -> Node:
        if not casts.castable(operand.type, cast.type):
            raise self._planner.error(
                f"there is no CAST of {operand.type} to {cast.type}: {operand.text}",
                "a type that its values can become",
                casts.instead_of(operand.type, cast.type),
                at=cast.at,
            )
        return self._folded(self._converted(operand, cast.type, cast.lenient))

    def _converted(self, node: Node, to: LogicalType, lenient: bool = False) -> Node:
        if node.type == to:
            return node
        if isinstance(node, Constant):
            # a number in a wider type needs no kernel: statements may have thousands
            wider = node.type.is_integer and to.is_integer and node.type.arrow.bit_width <= to.arrow.bit_width
            if node.value is None or wider:
                return Constant(to, node.value)
        return CastCall(to, lenient, self._zone, args=(node,))

    def _call(self, call: syntax.Call, args: tuple[Node, ...]) -> Node:
        name = _ALIASES.get(call.name.upper(), call.name.upper())
        user = call.function or self._planner.catalog.function(call.name)
        if user is not None:
            return self._user_call(user, args, call)
        if name == "PLUS":  # of the Table API, which joins texts with it
            name = "CONCAT" if any(arg.type.root in ("CHAR", "VARCHAR") for arg in args) else "+"
        if name in _REWRITTEN:
            if len(args) != _REWRITTEN[name]:
                signature = f"{name}({', '.join(['<COMPARABLE_TYPE>'] * _REWRITTEN[name])})"
                raise self._misfit(name, signature, args, call.at)
            if name == "NULLIF":
                equal = self._built("=", args, call.at)
                return self._built("CASE", (equal, Constant(args[0].type, None), args[0]), call.at)
            bounds = [
                self._built(sign, (args[0], bound), call.at) for sign, bound in zip((">=", "<="), args[1:], strict=True)
            ]
            return self._built("AND", tuple(bounds), call.at)
        if name in AGGREGATES:
            raise self._planner.error(
                f"the aggregate function {name} stands where there is no group",
                "aggregates in SELECT or HAVING, none inside another",
                "filter with HAVING, or aggregate in a subquery",
                at=call.at,
            )
        return self._built(name, args, call.at)

    def _built(self, name: str, args: tuple[Node, ...], at: syntax.Position | None) -> Node:
        function = FUNCTIONS.get(name)
        if name in ("RAND", "RAND_INTEGER", "UUID"):
            raise self._planner.error(
                f"{name} is not supported: an epoch that is repeated would get other values",
                "values that follow from the row",
                "such as MD5 of its key, or a UDF: @udf(result_type=..., deterministic=False)",
                at=at,
            )
        if function is None:
            raise self._unknown(name, at)
        if name not in _TAKE_NULL and any(arg.type == NULL for arg in args):
            raise self._planner.error(
                "Illegal use of 'NULL'", f"{function.signature}", "CAST(NULL AS ...) has a type", at=at
            )
        described = [Argument(arg.type, arg.value if isinstance(arg, Constant) else VARIES) for arg in args]
        try:
            typed = function.rule(described)
        except ValueError as fault:
            raise self._planner.error(str(fault), function.signature, at=at) from None
        if typed is None:
            raise self._misfit(name, function.signature, args, at)
        converted = self._arguments(args, typed.arguments)
        return self._folded(FunctionCall(typed.result, name, self._zone, args=converted))

    def _arguments(self, args: Sequence[Node], types: Sequence[LogicalType]) -> tuple[Node, ...]:
        """The arguments as their function takes them: texts of any length are texts."""
        pairs = zip(args, types, strict=True)
        return tuple(self._folded(self._converted(arg, to)) if _becomes(arg.type, to) else arg for arg, to in pairs)

    def _folded(self, node: Node) -> Node:
        """A call of constants is computed here, as in Flink. One that fails does so when a row needs it, and
        a long text is made where it is needed: the plan goes to all workers."""
        if not node.args or not all(isinstance(arg, Constant) for arg in node.args) or not node.constant:
            return node
        values, failures = node.evaluated(_NO_COLUMNS, 0, 1)
        if failures or node.type.root == "RAW":
            return node
        value = (values if isinstance(values, pa.Scalar) else values[0]).as_py()
        return node if isinstance(value, (str, bytes)) and len(value) > MAX_FOLDED else Constant(node.type, value)

    def _user_call(self, user: UserFunction, args: tuple[Node, ...], call: syntax.Call) -> Node:
        declared = user.argument_types
        if not user.takes(len(args)):
            raise self._misfit(user.name, f"{user.name} with the number of arguments that it takes", args, call.at)
        if declared is not None:
            if len(declared) != len(args) or not all(map(implicitly, (arg.type for arg in args), declared)):
                raise self._misfit(call.name, f"{call.name}({', '.join(map(str, declared))})", args, call.at)
            args = self._arguments(args, declared)
        return UserCall(user.result_type, user, call.name, args=args)

    # --- refusals ------------------------------------------------------------------------------------------------

    def _unknown(self, name: str, at: syntax.Position | None) -> FlinkishError:
        near = difflib.get_close_matches(name, [*FUNCTIONS, *_REWRITTEN, *_ALIASES, *AGGREGATES], 3, 0.75)
        return self._planner.error(
            f"there is no function {name}",
            f"a function that there is, such as {', '.join(near)}" if near else "a function that there is",
            "it can be a UDF: @udf(result_type=...) and create_temporary_function(...)",
            at=at,
        )

    def _misfit(self, name: str, signature: str, args: Sequence[Node], at: syntax.Position | None) -> FlinkishError:
        types = [str(arg.type) for arg in args]
        applied = f" {name} ".join(types) if name in _INFIX else f"{name}({', '.join(types)})"
        return self._planner.error(
            f"{name} cannot be applied to {applied}", signature, _cast_that_helps(name, args), at=at
        )


def _children(expression: syntax.Expression) -> tuple[syntax.Expression, ...]:
    """The operands: all of ``a AND b AND c``, however the parser has nested them."""
    if not isinstance(expression, syntax.Call):
        return syntax.parts_of(expression)
    if expression.name not in ("AND", "OR"):
        return expression.args
    operands: list[syntax.Expression] = []
    work: list[syntax.Expression] = [expression]
    while work:
        part = work.pop()
        if isinstance(part, syntax.Call) and part.name == expression.name:
            work += reversed(part.args)
        else:
            operands.append(part)
    return tuple(operands)


_NO_COLUMNS = pa.RecordBatch.from_arrays([], names=[])

#: Other names of functions.
_ALIASES = {
    "!=": "<>", "CHARACTER_LENGTH": "CHAR_LENGTH", "SUBSTR": "SUBSTRING", "CEILING": "CEIL", "POW": "POWER",
    "LOG_10": "LOG10", "NOW": "CURRENT_TIMESTAMP", "CURRENT_ROW_TIMESTAMP": "CURRENT_TIMESTAMP", "NVL": "COALESCE",
}  # fmt: skip

#: Calls that are other calls, with the number of their arguments.
_REWRITTEN = {"BETWEEN": 3, "NULLIF": 2}


#: What takes a NULL without a type for one of the type of the other operands.
_TAKE_NULL = {
    "=", "<>", "<", "<=", ">", ">=", "IN", "IS NULL", "IS NOT NULL", "IS DISTINCT FROM", "IS NOT DISTINCT FROM", "CASE",
    "COALESCE", "IFNULL", "ARRAY", "MAP", "ROW",
}  # fmt: skip


def literal(value: Any, of: LogicalType) -> Constant:
    """A literal of the syntax as a constant."""
    if of.root == "INTERVAL_DAY" and value is not None:
        value = timedelta(milliseconds=value)
    if isinstance(value, Instant):
        value = datetime.fromtimestamp(value.seconds, timezone.utc) + timedelta(microseconds=value.nanos // 1_000)
    return Constant(of, value)


def _becomes(of: LogicalType, to: LogicalType) -> bool:
    return of != to and not (of.is_text and to.is_text) and not (of.is_binary and to.is_binary)


def implicitly(of: LogicalType, to: LogicalType) -> bool:
    """Whether INSERT makes values of one type those of another without a CAST."""
    if of in (to, NULL) or (of.root == to.root and not of.parts):
        return True
    if of.is_numeric and to.is_numeric:
        return to.is_decimal or _WIDTHS.index(of.root) <= _WIDTHS.index(to.root)
    if of.root == to.root:
        return len(of.parts) == len(to.parts) and all(map(implicitly, of.parts, to.parts))
    return (of.root, to.root) in _IMPLICIT


_WIDTHS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL", "FLOAT", "DOUBLE")
_IMPLICIT = {
    ("CHAR", "VARCHAR"), ("BINARY", "VARBINARY"), ("TIMESTAMP", "DATE"), ("TIMESTAMP", "TIME"),
    ("TIMESTAMP", "TIMESTAMP_LTZ"), ("TIMESTAMP_LTZ", "TIMESTAMP"),
}  # fmt: skip


def _cast_that_helps(name: str, args: Sequence[Node]) -> str:
    text = next((arg.text for arg in args if arg.type.is_text), None)
    number = next((arg.type for arg in args if arg.type.is_numeric), None)
    if text and number:
        return f"CAST({text} AS {number}) is a number{' to add; || joins texts' * (name == '+')}"
    other = next((arg.text for arg in args if not arg.type.is_text), "...")
    return f"convert an argument, such as CAST({other} AS ...)"


#: The aggregate functions, with the types of arguments that they take.
AGGREGATES = {
    "COUNT": "ANY", "SUM": "NUMERIC", "AVG": "NUMERIC", "MIN": "COMPARABLE_TYPE", "MAX": "COMPARABLE_TYPE",
    "FIRST_VALUE": "ANY", "LAST_VALUE": "ANY", "STDDEV_POP": "NUMERIC", "STDDEV_SAMP": "NUMERIC", "STDDEV": "NUMERIC",
    "VAR_POP": "NUMERIC", "VAR_SAMP": "NUMERIC", "VARIANCE": "NUMERIC", "LISTAGG": "CHARACTER",
}  # fmt: skip


def aggregate_type(function: str, argument: LogicalType | None) -> LogicalType | None:
    """The type of an aggregate; None: it does not take the argument. ``argument`` None: COUNT(*).

    >>> str(aggregate_type("COUNT", None)), str(aggregate_type("AVG", sql.decimal(10, 2)))
    ('BIGINT', 'DECIMAL(38, 6)')
    """
    if function == "COUNT":
        return BIGINT
    if argument is None:
        return None
    match AGGREGATES[function]:
        case "CHARACTER":
            return STRING if argument.is_text else None
        case "NUMERIC" if argument.is_decimal:
            return sql.decimal(38, argument.scale if function == "SUM" else max(6, argument.scale))
        case "NUMERIC":
            return argument if argument.is_numeric else None
        case "COMPARABLE_TYPE" if argument.parts or argument.root in ("NULL", "RAW"):
            return None
    return argument
