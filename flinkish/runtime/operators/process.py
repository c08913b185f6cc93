"""``process`` on a stream without keys: calls a ProcessFunction, which has access to time and side outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flinkish.core.functions import ProcessFunction
from flinkish.core.time_limits import MIN_TIMESTAMP_MS
from flinkish.core.timer_service import TimerService
from flinkish.runtime.exchange.buffer import EpochInfo
from flinkish.runtime.operator import OperatorContext, OperatorFactoryBase, Output
from flinkish.runtime.operators.user_function_operator import UserFunctionOperator
from flinkish.runtime.outputs import Converter
from flinkish.runtime.timer_services import NonKeyedTimerService


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
    """Calls a ProcessFunction, or a CoProcessFunction for two inputs. Each result has the timestamp of its record."""

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
