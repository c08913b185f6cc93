"""The operators that call a function of the program for each record, of one stream or of two connected ones: ``map``,
``flat_map``, ``filter``, and ``process`` on streams without keys. On a keyed stream a function may use keyed state,
which both inputs of connected streams share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import compress
from typing import Any

from flinkish.common.detach import SCALARS, SHARED, cannot_change, handed_over
from flinkish.core.co_functions import CoFlatMapFunction, CoMapFunction, CoProcessFunction
from flinkish.core.functions import FilterFunction, FlatMapFunction, MapFunction, ProcessFunction
from flinkish.core.time import MIN_TIMESTAMP_MS, TimerService
from flinkish.runtime.exchange.buffer import EpochInfo
from flinkish.runtime.job.context import NonKeyedTimerService
from flinkish.runtime.job.operator import OperatorContext, OperatorFactoryBase, Output
from flinkish.runtime.job.outputs import Converter
from flinkish.runtime.operators.user_function_operator import UserFunctionOperator
from flinkish.runtime.stored.code_scan import decoder_of_json, is_function_of


class CoFlatMapOperator(UserFunctionOperator):
    """Emits the results of a CoFlatMapFunction, any number for each record of either input, each with the timestamp of
    its record. A falsy return value stands for no results."""

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        self.collect(*self.flat_results(values, timestamps, input_index))


@dataclass
class CoFlatMapFactory(OperatorFactoryBase):
    """Makes the operator of ``flat_map`` on connected streams.

    ``converter`` converts the results of a batch to the declared type of the main output.
    """

    function: CoFlatMapFunction
    keyed: bool = False
    converter: Converter | None = None
    reads_timestamps: bool = False

    def create(self) -> CoFlatMapOperator:
        return CoFlatMapOperator(self.function, "flat_map1", self.converter, "flat_map2")


class CoMapOperator(UserFunctionOperator):
    """Emits the results of a CoMapFunction, at most one for each record of either input, each with the timestamp of its
    record. None stands for no result, as in PyFlink."""

    keeps_positions = True

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        results = self.results(values, f"map{input_index + 1}()", input_index)
        if any(result is None for result in results):
            kept = [place for place, result in enumerate(results) if result is not None]
            results = [results[place] for place in kept]
            timestamps = None if timestamps is None else [timestamps[place] for place in kept]
        self.collect(results, timestamps)


@dataclass
class CoMapFactory(OperatorFactoryBase):
    """Makes the operator of ``map`` on connected streams.

    ``converter`` converts the results of a batch to the declared type of the main output.
    """

    function: CoMapFunction
    keyed: bool = False
    converter: Converter | None = None
    reads_timestamps: bool = False

    def create(self) -> CoMapOperator:
        return CoMapOperator(self.function, "map1", self.converter, "map2")


class FilterOperator(UserFunctionOperator):
    """Emits the records for which a FilterFunction returns a true value, unchanged and with their timestamps."""

    keeps_positions = True

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        call, arriving = self.per_record(values, input_index), iter(values)
        chosen = self._answers(call, arriving, values, input_index)
        if chosen is not None and not SCALARS.issuperset(map(type, chosen)):
            # an answer may be a part of its record, whose truth is code of the program
            answers, arriving = iter(chosen), iter(values)
            call, chosen = (lambda value: next(answers)), None
        if chosen is not None:
            kept = list(compress(values, chosen))
        else:
            chosen, kept = [], []
            try:
                for value in arriving:
                    is_chosen = bool(call(value))
                    chosen.append(is_chosen)
                    if is_chosen:
                        if type(value) not in SHARED:
                            value = handed_over(value, 1)
                        kept.append(value)
            except StopIteration as error:
                raise self.stop_error("the filter function") from error
        self.collect(kept, None if timestamps is None else list(compress(timestamps, chosen)))

    def _answers(
        self, call: Callable[[Any], Any], arriving: Iterator[Any], values: list[Any], input_index: int
    ) -> list[Any] | None:
        """What the function answers to each record; None if a call may change or keep other records. The truth of each
        answer is tested once, as Python's `filter` does."""
        if self.proof_for(values, input_index) is not None:
            answers = list(map(call, arriving))
        elif cannot_change(values):
            answers = list(map(bool, map(call, arriving)))
        else:
            return None
        if len(answers) != len(values):
            raise self.stop_error("the filter function")
        return answers


@dataclass
class FilterFactory(OperatorFactoryBase):
    """Makes the operator of ``filter``. The type of the records stays the same, so ``converter`` is mostly None."""

    function: FilterFunction | Callable[[Any], Any]
    keyed: bool = False
    converter: Converter | None = None
    forwards_records: bool = True
    reads_timestamps: bool = False

    def create(self) -> FilterOperator:
        return FilterOperator(self.function, "filter", self.converter)


class FlatMapOperator(UserFunctionOperator):
    """Emits the results of a FlatMapFunction, any number for each record, each with the timestamp of its record. A
    falsy return value stands for no results."""

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        self.collect(*self.flat_results(values, timestamps, input_index))


@dataclass
class FlatMapFactory(OperatorFactoryBase):
    """Makes the operator of ``flat_map``. ``converter`` converts the results of a batch to the declared type."""

    function: FlatMapFunction | Callable[[Any], Any]
    keyed: bool = False
    converter: Converter | None = None
    reads_timestamps: bool = False

    def create(self) -> FlatMapOperator:
        return FlatMapOperator(self.function, "flat_map", self.converter)


#: The function as it was when this module was loaded, and its code: a program may replace both.
_LOADS = json.loads
_CODE = getattr(_LOADS, "__code__", None)


class MapOperator(UserFunctionOperator):
    """Emits the result of a MapFunction for each record, with the record's timestamp. None is a result as any other."""

    keeps_positions = True

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        self.collect(self.results(values, "the map function", input_index), timestamps)

    def results(self, values: list[Any], what: str, input_index: int = 0) -> list[Any]:
        is_original = self.function is _LOADS and is_function_of(_LOADS, json) and _LOADS.__code__ is _CODE
        decoder = decoder_of_json() if is_original else None
        return super().results(values, what, input_index) if decoder is None else self._loaded(values, decoder)

    def _loaded(self, values: list[Any], decoder: json.JSONDecoder) -> list[Any]:
        """The result of ``json.loads`` for each value, by the C scanner behind that function, for which it takes three
        calls in Python and two regular expressions. What the scanner does not read from end to end is left to it."""
        scan = decoder.scan_once  # type: ignore[attr-defined]
        results: list[Any] = []
        arriving = iter(values)
        for value in arriving:
            try:
                text = value if value.__class__ is str else value.decode() if value.__class__ is bytes else ""
                result, end = scan(text, 0)
                whole = end == len(text)
            except (TypeError, ValueError, StopIteration, RecursionError):
                whole = False
            results.append(result if whole else _LOADS(value))
        return results


@dataclass
class MapFactory(OperatorFactoryBase):
    """Makes the operator of ``map``. ``converter`` converts the results of a batch to the declared type."""

    function: MapFunction | Callable[[Any], Any]
    keyed: bool = False
    converter: Converter | None = None
    reads_timestamps: bool = False

    def create(self) -> MapOperator:
        return MapOperator(self.function, "map", self.converter)


class ProcessContext(ProcessFunction.Context):
    """The context of records: one object for all of them."""

    def __init__(self, timer_service: TimerService, epoch: EpochInfo) -> None:
        self.current_timestamp = MIN_TIMESTAMP_MS
        self._timer_service = timer_service
        self._epoch = epoch

    def timer_service(self) -> TimerService:
        return self._timer_service

    def timestamp(self) -> int:
        return self.current_timestamp

    def request_commit(self) -> None:
        self._epoch.commit_requested = True


class ProcessOperator(UserFunctionOperator):
    """Calls a ProcessFunction, or a CoProcessFunction for two inputs, which has access to time and side outputs. Each
    result has the timestamp of its record."""

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._process_context: Any = ProcessContext(NonKeyedTimerService(context.epoch, self.where), context.epoch)

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        results, times = self.results_with_context(self._process_context, values, timestamps, input_index)
        self.collect(results, times)


@dataclass
class ProcessFactory(OperatorFactoryBase):
    """Makes the operator of ``process`` on a stream without keys.

    ``converter`` converts the results of a batch to the declared type of the main output.
    """

    function: ProcessFunction
    converter: Converter | None = None
    #: the function can ask for the current watermark at each record
    watermark_sensitive: bool = True

    def create(self) -> ProcessOperator:
        return ProcessOperator(self.function, "process_element", self.converter)


@dataclass
class CoProcessFactory(OperatorFactoryBase):
    """Makes the operator of ``process`` on connected streams without keys.

    ``converter`` converts the results of a batch to the declared type of the main output.
    """

    function: CoProcessFunction
    converter: Converter | None = None
    #: the function can ask for the current watermark at each record
    watermark_sensitive: bool = True

    def create(self) -> ProcessOperator:
        return ProcessOperator(self.function, "process_element1", self.converter, "process_element2")
