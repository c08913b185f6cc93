"""Rolling ``reduce``, ``sum``, ``min``, ``max``, ``min_by`` and ``max_by`` on a keyed stream: for each record, emits
the value reduced so far for its key; in BATCH mode, emits one result per key at the end of the input.

The reduced value of a key is both kept in state and emitted. If it is a mutable object, a copy of it is emitted, so
that a reduce function may change and return its first argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, localcontext
from enum import Enum
from operator import add
from typing import Any

from flinkish.common.arguments import abbreviated
from flinkish.common.detach import SHARED, detached, handed_over
from flinkish.common.types import Row
from flinkish.core.functions import ReduceFunction
from flinkish.core.time import MAX_WATERMARK_MS, TimeDomain
from flinkish.errors import ArgumentTypeError, TypeMismatchError
from flinkish.runtime.exchange.keys import keys_of
from flinkish.runtime.job.operator import OperatorFactoryBase, StreamOperator
from flinkish.runtime.job.outputs import Converter
from flinkish.runtime.operators.user_function_operator import UserFunctionOperator
from flinkish.runtime.state.state_rows import VOID_NAMESPACE

#: Name of the reducing state that holds the reduced values.
REDUCE_STATE = "_reduce_state"


class ReduceOperator(UserFunctionOperator):
    """Calls a ReduceFunction. Each result has the timestamp of its record. A reduced value of None is an error: it has
    no meaning in Flink."""

    #: whether the function is one of ours, which refers to nothing that it returns
    keeps_nothing = False

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        keys = keys_of(self.context.key_selectors[input_index], values)
        table = self.keyed_state.table(REDUCE_STATE, "reducing")
        self.keyed_state.prefetch(keys)
        reduced = table.namespace(VOID_NAMESPACE)
        table.mark_all(VOID_NAMESPACE, keys)
        self.collect(self._reduce(keys, values, reduced), timestamps)

    def _reduce(self, keys: list[Any], values: list[Any], reduced: dict[Any, Any]) -> list[Any]:
        """Reduce each record into ``reduced``, the state. Returns the value to emit for each record."""
        reduce, get, enter = self.call, reduced.get, self.keyed_state.loans.enter
        sees_state = self.context.may_have_keyed_state()
        keeps_nothing, shared = self.keeps_nothing, self.shared
        results: list[Any] = []
        append = results.append
        arriving = iter(values)
        for key, value in zip(keys, arriving, strict=True):
            left = get(key)
            if left is None:
                result = value
            else:
                if sees_state:
                    enter(key)
                result = reduce(left, value)
                if result is None:
                    raise self.none_error(f"the reduce function (key {abbreviated(key)})")
            if type(result) in shared:
                reduced[key] = result
            else:
                # most are tuples of what cannot change, for which a call of `detached` is too slow
                emitted = result
                for item in result if type(result) is tuple else (result,):
                    if type(item) not in SHARED:
                        emitted = detached(result)
                        # a further reference to a part would make it seem held
                        del item
                        break
                if emitted is not result and not keeps_nothing and left is not None:
                    # the state refers to its value, and the batch to its record, if the function returns one of them
                    result = handed_over(result, 2 if result is left or result is value else 0)
                reduced[key], result = result, emitted
            append(result)
        return results


@dataclass
class ReduceFactory(OperatorFactoryBase):
    """Makes the operator of ``reduce``. ``converter`` converts the results of a batch to the declared type."""

    function: ReduceFunction | Callable[[Any, Any], Any]
    converter: Converter | None = None
    keyed: bool = True
    reads_timestamps: bool = False

    def create(self) -> ReduceOperator:
        return ReduceOperator(self.function, "reduce", self.converter)


class AccumulateType(Enum):
    """The kind of a rolling aggregation, as in PyFlink's ``KeyedStream.AccumulateType``."""

    MIN = 1
    MAX = 2
    MIN_BY = 3
    MAX_BY = 4
    SUM = 5


def _smaller(first: Any, second: Any) -> Any:
    return second if second < first else first


def _greater(first: Any, second: Any) -> Any:
    return second if second > first else first


#: Adds decimals as Java does, without rounding; the context of the program has 28 digits.
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


def _sum(first: Any, second: Any) -> Any:
    result = first + second
    return _EXACT.add(first, second) if result.__class__ is Decimal else result


_COMBINE: dict[AccumulateType, Callable[[Any, Any], Any]] = {
    AccumulateType.SUM: _sum,
    AccumulateType.MIN: _smaller,
    AccumulateType.MAX: _greater,
}


class RollingAggregation(ReduceFunction):
    """A reduce function that aggregates one field of the records: ``sum``, ``min``, ``max``, ``min_by`` or ``max_by``.

    Semantics: Flink's ``SumAggregator`` and ``ComparableAggregator``. ``sum``, ``min`` and ``max`` emit the *first*
    record of the key with the field replaced; ``min_by`` and ``max_by`` emit the whole record that has the extreme
    value, of several the first or the last one (``first``). Records may be tuples (named tuples too), Rows, lists or
    single values (position 0); results have the type of their records. No record is changed in place.

    Args:
        accumulate_type: the kind of the aggregation.
        position: of the field: an index, counted from 0, or a field name.
        first: of several records with the extreme value, ``min_by`` and ``max_by`` return the first one, else the last.

    >>> RollingAggregation(AccumulateType.SUM, 1).reduce(("a", 1, "first"), ("a", 2, "second"))
    ('a', 3, 'first')
    >>> RollingAggregation(AccumulateType.MAX_BY, 1).reduce(("a", 1, "first"), ("a", 2, "second"))
    ('a', 2, 'second')

    Raises:
        TypeError: the position is neither an int nor a str.
    """

    def __init__(self, accumulate_type: AccumulateType, position: int | str = 0, first: bool = True) -> None:
        if not isinstance(position, (int, str)):
            raise ArgumentTypeError(
                "The field position must be of int or str type to locate the value to calculate for min, max, min_by, "
                f"max_by and sum. The given type is: {type(position)}",
                where=f"{accumulate_type.name.lower()}() of a keyed or windowed stream",
                expected="the position of a field, counted from 0, or its name",
                hint="aggregate what is computed with reduce() or aggregate()",
            )
        self._type = accumulate_type
        self._position = position
        self._first = first
        self._reduce: Callable[[Any, Any], Any] | None = None
        self._record_type: type | None = None

    def reduce(self, value1: Any, value2: Any) -> Any:
        try:
            return self.function_for(value2)(value1, value2)
        except Exception:
            self.check((value1, value2), {type(value1), type(value2)})
            raise

    def check(self, records: Sequence[Any], kinds: Set[type]) -> None:
        """Check that all records have the field.

        Args:
            records: of the types ``kinds``.

        Raises:
            TypeMismatchError: a record does not have it; the error names the record.
        """
        if isinstance(self._position, int) and all(issubclass(kind, (tuple, list)) for kind in kinds):
            records = (min(records, key=len),)
        elif not any(issubclass(kind, (tuple, list, Row)) for kind in kinds):
            records = records[:1]
        for record in records:
            self._resolve(record)

    def function_for(self, record: Any) -> Callable[[Any, Any], Any]:
        """The reduce function for records of the type of this one.

        Raises:
            TypeMismatchError: the record does not have the field.
        """
        if self._reduce is None or type(record) is not self._record_type:
            self._reduce = self._make(record)
            self._record_type = type(record)
        return self._reduce

    def _make(self, record: Any) -> Callable[[Any, Any], Any]:
        position = self._resolve(record)
        single = not isinstance(record, (tuple, list, Row))
        if self._type in (AccumulateType.MIN_BY, AccumulateType.MAX_BY):
            return self._extreme(position, single)
        combine = _COMBINE[self._type]
        if single:
            return combine
        if self._type is AccumulateType.SUM and isinstance(record, tuple):
            return _summing_tuples(getattr(type(record), "_make", tuple), position)
        return _replacing(type(record), position, combine)

    def _extreme(self, position: Any, single: bool) -> Callable[[Any, Any], Any]:
        """The function (a, b) -> the record with the smaller or greater value, by the kind of the aggregation."""
        if self._type is AccumulateType.MIN_BY:
            if single:
                return _smaller
            if self._first:
                return lambda a, b: b if b[position] < a[position] else a
            return lambda a, b: a if a[position] < b[position] else b
        if single:
            return _greater
        if self._first:
            return lambda a, b: b if b[position] > a[position] else a
        return lambda a, b: a if a[position] > b[position] else b

    def _resolve(self, record: Any) -> Any:
        """The index of the field in a record; for a Row, the position as it was given, which may be a name.

        Raises:
            TypeMismatchError: the record does not have the field.
        """
        position = self._position
        if isinstance(record, Row):
            try:
                record[position]
            except (IndexError, ValueError, AttributeError, KeyError):
                raise self._no_field(record) from None
            return position
        if isinstance(record, tuple) and isinstance(position, str) and position in getattr(record, "_fields", ()):
            return list(getattr(record, "_fields", ())).index(position)
        if isinstance(record, (tuple, list)):
            if isinstance(position, str) or not -len(record) <= position < len(record):
                raise self._no_field(record)
        elif position != 0:
            raise TypeMismatchError(
                f"The {position} field selected on a basic type ({type(record).__name__})",
                expected="field 0, which means the entire value",
                hint="map the records to tuples or Rows before key_by()",
            )
        return position

    def _no_field(self, record: Any) -> TypeMismatchError:
        return TypeMismatchError(
            f"{self._type.name.lower()} of field {self._position!r}, which the record {record!r} does not have",
            expected="an index or, for records with names, the name of a field",
            hint="indexes are counted from 0; output_type=Types.ROW_NAMED(...) gives records names",
        )


def _replacing(record_type: type, position: Any, combine: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The function (a, b) -> a copy of a in which the field is the combination of both fields."""
    if issubclass(record_type, tuple):
        make = getattr(record_type, "_make", tuple)

        def replace_in_tuple(first: Any, second: Any) -> Any:
            fields = list(first)
            fields[position] = combine(fields[position], second[position])
            return make(fields)

        return replace_in_tuple

    def replace_in_copy(first: Any, second: Any) -> Any:
        result = detached(first)
        result[position] = combine(first[position], second[position])
        return result

    return replace_in_copy


def _summing_tuples(make: Callable[[Any], Any], position: int) -> Callable[[Any, Any], Any]:
    """`_replacing` by the sum, for tuples: without a call for it, since sums of tuples are the most common ones."""
    add_decimals = _EXACT.add

    def replace_by_sum(first: Any, second: Any) -> Any:
        fields = list(first)
        result = first[position] + second[position]
        fields[position] = add_decimals(first[position], second[position]) if result.__class__ is Decimal else result
        return make(fields)

    return replace_by_sum


class RollingAggregationOperator(ReduceOperator):
    """A reduce operator that calls the reduce function for the type of the batch's records directly.

    All records of a batch are checked before any is reduced. Otherwise a wrong record that is the first of its key
    would be kept without an error, and which record an error names would depend on the batch.
    """

    function: RollingAggregation
    keeps_nothing = True

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        kinds = set(map(type, values))
        self.function.check(values, kinds)
        self.call = self.function.function_for(values[0]) if len(kinds) == 1 else self.function.reduce
        super().process_batch(values, timestamps, input_index)

    def _reduce(self, keys: list[Any], values: list[Any], reduced: dict[Any, Any]) -> list[Any]:
        if self.call is not _sum or type(values[0]) not in (int, float):
            return super()._reduce(keys, values, reduced)
        # no code of the program runs here, so that the context can be the exact one for all of them
        self.call = add
        with localcontext(_EXACT):
            return super()._reduce(keys, values, reduced)


@dataclass
class RollingAggregationFactory(OperatorFactoryBase):
    """Makes the operator of a rolling aggregation. ``position`` is an index, counted from 0, or a field name."""

    accumulate_type: AccumulateType
    position: int | str = 0
    converter: Converter | None = None
    keyed: bool = True
    reads_timestamps: bool = False

    def create(self) -> RollingAggregationOperator:
        return RollingAggregationOperator(
            RollingAggregation(self.accumulate_type, self.position), "reduce", self.converter
        )


#: Name of the timer service.
TIMER_SERVICE = "final-results"

#: The number of results that are emitted as one batch.
_BATCH = 10_000


class FinalReduceOperator(ReduceOperator):
    """Reduces the records of each key and emits one result per key at the end of the input (PyFlink's reduce in BATCH
    mode); emits no rolling results.

    As in PyFlink, each key has an event-time timer at the maximum watermark: results come in the order in which their
    keys were first seen, with the timestamp of that timer.
    """

    def collect(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Drop rolling results: a later record may change them."""

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        keys = keys_of(self.context.key_selectors[input_index], values)
        self.keyed_state.timers(TIMER_SERVICE).register_all(TimeDomain.EVENT_TIME, MAX_WATERMARK_MS, keys)
        super().process_batch(values, timestamps, input_index)

    def process_watermark(self, watermark_ms: int) -> None:
        """Emit all results, which are final, at the last watermark of the bounded input."""
        if watermark_ms == MAX_WATERMARK_MS:
            table = self.keyed_state.table(REDUCE_STATE, "reducing")
            results: list[Any] = []
            for _, key, _ in self.keyed_state.due(TIMER_SERVICE, TimeDomain.EVENT_TIME, watermark_ms):
                table.fetch(VOID_NAMESPACE, (key,))
                results.append(detached(table.namespace(VOID_NAMESPACE)[key]))
                if len(results) == _BATCH:
                    super().collect(results, [MAX_WATERMARK_MS] * len(results))
                    results = []
            super().collect(results, [MAX_WATERMARK_MS] * len(results))
        super().process_watermark(watermark_ms)


class FinalRollingAggregationOperator(FinalReduceOperator, RollingAggregationOperator):
    """`FinalReduceOperator` for ``sum``, ``min``, ``max``, ``min_by`` and ``max_by``."""


@dataclass
class FinalReduceFactory(OperatorFactoryBase):
    """Makes the operator that a rolling one becomes in BATCH mode."""

    rolling: ReduceFactory | RollingAggregationFactory
    keyed: bool = True
    reads_timestamps: bool = False

    def create(self) -> StreamOperator:
        """A fresh operator."""
        if isinstance(self.rolling, ReduceFactory):
            return FinalReduceOperator(self.rolling.function, "reduce", self.rolling.converter)
        template = self.rolling.create()
        return FinalRollingAggregationOperator(template.function, "reduce", template.converter)
