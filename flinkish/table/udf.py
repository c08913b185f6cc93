"""Functions of the program that queries call: ``@udf(result_type=...)``, and `ScalarFunction`.

Rule upheld here: a function is called with the values of its arguments only, row by row, or, if it is one of pandas,
with a Series for each argument. What it returns is checked against the type that it declares.
"""

from __future__ import annotations

import importlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flinkish.common.arguments import abbreviated, accepts, check_instance, kind_of
from flinkish.common.no_effect import supply_names
from flinkish.common.typeinfo import Types
from flinkish.common.typeinfo.arrow import arrow_array
from flinkish.common.typeinfo.base import Mismatch
from flinkish.common.types import _create_rows
from flinkish.connectors.columns import RecordReader, columns_of_frame
from flinkish.core.functions import RuntimeContext
from flinkish.core.metrics import MetricGroup
from flinkish.errors import ArgumentTypeError, ArgumentValueError, ProgramError, TypeMismatchError
from flinkish.table import casts, syntax
from flinkish.table.expression import Expression, logical_type, node_of
from flinkish.table.logical_types import LogicalType
from flinkish.table.refusals import refusal, refusing
from flinkish.table.tokens import where_of

__all__ = ["FunctionContext", "ScalarFunction", "UserDefinedFunction", "udaf", "udf", "udtaf", "udtf"]

_WHERE = "udf()"


class FunctionContext:
    """What a function is told when it is opened: its task, the parameters of the job, and the group of its metrics."""

    def __init__(self, context: RuntimeContext) -> None:
        self._context = context

    def get_metric_group(self) -> MetricGroup:
        return self._context.get_metrics_group()


for _name in (
    *("get_job_parameter", "get_task_name", "get_task_name_with_subtasks", "get_number_of_parallel_subtasks"),
    *("get_max_number_of_parallel_subtasks", "get_index_of_this_subtask", "get_attempt_number"),
):
    setattr(FunctionContext, _name, property(attrgetter(f"_context.{_name}")))


class UserDefinedFunction(ABC):
    """A function of the program with a beginning and an end."""

    def open(self, function_context: FunctionContext) -> None:  # noqa: B027 - optional for users
        """Called once per subtask before the first row."""

    def close(self) -> None:  # noqa: B027 - optional for users
        """Called once per subtask after the last row, also when the task failed."""

    def is_deterministic(self) -> bool:
        """Whether equal arguments always have equal results."""
        return True


class ScalarFunction(UserDefinedFunction):
    """A function of the values of a row, as a class: `udf(MyFunction(), result_type=...)` makes it callable."""

    @abstractmethod
    def eval(self, *args: Any) -> Any:
        """The result for the arguments of a row."""


@dataclass(eq=False)
class UserFunction:
    """A function as queries hold it, made by `udf`. Called with expressions it is an expression.

    Args:
        function: a callable, or a ScalarFunction.
        argument_types: the declared types of the arguments; None: any.
        fields: the names of the columns, if the function is called with whole rows as its only argument.
    """

    function: Any
    result_type: LogicalType
    argument_types: tuple[LogicalType, ...] | None = None
    func_type: str = "general"
    deterministic: bool = True
    name: str = ""
    fields: tuple[str, ...] | None = None
    #: how many operators of a subtask have opened it
    _users: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.name = self.name or getattr(self.function, "__name__", type(self.function).__name__)

    def __call__(self, *args: Any) -> Expression:
        return Expression(syntax.Call(self.name, tuple(map(node_of, args)), self))

    def of_rows(self, fields: Sequence[str]) -> UserFunction:
        """This function, called with whole rows of these columns."""
        return replace(self, argument_types=None, fields=tuple(fields))

    def open(self, context: RuntimeContext) -> None:
        """Open the function in a subtask."""
        self._users += 1
        if isinstance(self.function, UserDefinedFunction) and self._users == 1:
            self.function.open(FunctionContext(context))

    def close(self) -> None:
        self._users -= 1
        if isinstance(self.function, UserDefinedFunction) and self._users == 0:
            self.function.close()

    def call(self, columns: Sequence[pa.Array], types: Sequence[LogicalType], rows: int) -> pa.Array:
        """The results for rows, of which ``columns`` are the arguments, of these types.

        Raises:
            TypeMismatchError: a result is not of the declared type, or a Series has another length.
            Exception: what the function raises.
        """
        made = (self._of_series if self.func_type == "pandas" else self._of_values)(columns, types, rows)
        kind = self.result_type
        return casts.cut_digits(made, kind.precision) if kind.root in ("TIMESTAMP", "TIMESTAMP_LTZ") else made

    def takes(self, count: int) -> bool:
        return accepts(self._callable, 1 if self.fields is not None else count) is not False

    @property
    def _callable(self) -> Callable[..., Any]:
        return self.function.eval if isinstance(self.function, ScalarFunction) else self.function

    def _of_values(self, columns: Sequence[pa.Array], types: Sequence[LogicalType], rows: int) -> pa.Array:
        function, values, results = self._callable, self._arguments(columns, types, rows), list[Any]()
        add, arriving = results.append, iter(values)
        # an error names the arguments, which are looked for under these names
        for value in arriving:
            add(function(*value))
        kind = self.result_type
        try:
            return arrow_array(results, kind.arrow, kind.info)
        except Mismatch as mismatch:
            error = kind.info._first_error(results, "", mismatch)
            called = "" if error.position is None else f", called with {abbreviated(values[error.position])}"
            misfit = self._misfit(mismatch.value, mismatch.expected, called)
            misfit.position = error.position
            raise misfit from None

    def _arguments(
        self, columns: Sequence[pa.Array], types: Sequence[LogicalType], rows: int
    ) -> Sequence[tuple[Any, ...]]:
        if not columns:
            return [()] * rows
        reader = RecordReader(Types.TUPLE([kind.info for kind in types]), f"the arguments of {self.name}()")
        names = [str(position) for position in range(len(columns))]
        values = reader.read(pa.RecordBatch.from_arrays(list(columns), names=names))
        return values if self.fields is None else [(row,) for row in _create_rows(list(self.fields), values)]

    def _of_series(self, columns: Sequence[pa.Array], types: Sequence[LogicalType], rows: int) -> pa.Array:
        import pandas as pd

        series: tuple[Any, ...] = tuple(map(_series, columns))
        if self.fields is not None:
            table = pa.RecordBatch.from_arrays(list(columns), names=list(self.fields))
            series = (table.to_pandas(date_as_object=True),)
        kind, found = self.result_type, self._callable(*series)
        if not isinstance(found, (pd.Series, pd.DataFrame)) or len(found) != rows:
            text = f"{kind_of(found)}{f' of the length {len(found)}' if hasattr(found, '__len__') else ''}"
            raise self._misfit(found, f"a Series of the length {rows}, and not {text}")
        is_frame = isinstance(found, pd.DataFrame)
        fields = list(kind.arrow) if is_frame else [pa.field("0", kind.arrow)]
        frame = pd.DataFrame(found)
        frame = frame.set_axis([field.name for field in fields], axis=1) if frame.shape[1] == len(fields) else frame
        try:
            batch = columns_of_frame(frame, pa.schema(fields))
            made = [_nullable(column).cast(field.type) for column, field in zip(batch.columns, fields, strict=True)]
        except Mismatch as error:
            raise self._misfit(error.value, error.expected) from None
        except (ValueError, NotImplementedError) as error:
            raise self._misfit(found, str(error)) from None
        return pa.StructArray.from_arrays(made, fields=fields) if is_frame else made[0]

    def _misfit(self, value: Any, expected: str, called: str = "") -> TypeMismatchError:
        shown, where = abbreviated(value, 80), f"udf(result_type={self.result_type}){called}"
        what = f"the function {self.name}() returned {shown} of type {type(value).__name__}"
        hint = "return a value of the declared type, or declare the type that the function returns"
        error = TypeMismatchError(what, where=where, expected=expected, hint=hint)
        error.value = shown
        return error


def _series(column: pa.Array) -> Any:
    if pa.types.is_struct(column.type):
        return pa.RecordBatch.from_arrays(column.flatten(), names=[field.name for field in column.type]).to_pandas()
    return column.to_pandas(date_as_object=True)


def _nullable(column: pa.Array) -> pa.Array:
    """The column with NULL for NaN, which is a missing value in pandas."""
    return pc.if_else(pc.is_nan(column), None, column) if pa.types.is_floating(column.type) else column


def udf(
    f: Any = None,
    input_types: Any = None,
    result_type: Any = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
) -> Any:
    """A function of the values of a row, for queries. Without ``f`` it decorates.

    Example::

        @udf(result_type=DataTypes.BIGINT())
        def add(i, j):
            return i + j

        table.select(add(col("a"), 1))
        t_env.create_temporary_function("add", add)

    Args:
        f: a callable, or a ScalarFunction.
        input_types: the types of the arguments; None: those that it is called with.
        result_type: the type of the results, one of DataTypes or a text such as ``BIGINT``.
        deterministic: whether equal arguments always have equal results; None: yes.
        func_type: ``general``: called row by row; ``pandas``: called with a Series for each argument.

    Raises:
        TypeError, ValueError: the declaration is wrong.
    """
    if f is None:
        return lambda decorated: udf(decorated, input_types, result_type, deterministic, name, func_type)
    if inspect.iscoroutinefunction(f) or inspect.iscoroutinefunction(getattr(f, "eval", None)):
        raise refusal("async", _WHERE)
    hint = f"udf({f.__name__}(), ...)" if isinstance(f, type) else ""
    if hint or not (callable(f) or isinstance(f, ScalarFunction)):
        expected = "a callable, or a ScalarFunction"
        raise ArgumentTypeError(f"the function is {kind_of(f)}", where=_WHERE, expected=expected, hint=hint)
    if result_type is None:
        what = f"the function {getattr(f, '__name__', type(f).__name__)} has no result type"
        raise ArgumentTypeError(what, where=_WHERE, hint="@udf(result_type=DataTypes.BIGINT())")
    if func_type not in ("general", "pandas"):
        what = f"The func_type must be one of 'general, pandas', got {func_type!r}"
        raise ArgumentValueError(what, where=_WHERE, expected="'general' or 'pandas'")
    own = f.is_deterministic() if isinstance(f, UserDefinedFunction) else deterministic is not False
    if deterministic not in (None, own):
        what = f"deterministic={deterministic}, and is_deterministic() is {own}"
        raise ArgumentValueError(what, where=_WHERE, expected="the same")
    given = input_types if isinstance(input_types, (list, tuple)) or input_types is None else [input_types]
    kinds = None if given is None else tuple(map(logical_type, given))
    return UserFunction(f, logical_type(result_type), kinds, func_type, own, name or "")


def imported(target: str, statement: str) -> UserFunction:
    """The function ``module.attribute`` that a statement names."""
    module, _, name = target.rpartition(".")
    where = where_of(statement)
    try:
        found: UserFunction = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ProgramError(f"the function '{target}' cannot be imported: {error}", where=where) from None
    check_instance(found, UserFunction, f"'{target}' is", where, "@udf(result_type=...)", "what udf() makes")
    return found


udtf = refusing("LATERAL", "udtf()")
udaf = refusing("udaf", "udaf()")
udtaf = refusing("udaf", "udtaf()")

supply_names(__name__)
