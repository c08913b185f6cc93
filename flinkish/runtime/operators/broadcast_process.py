"""``process`` on a stream without keys that is connected with a broadcast stream: calls a BroadcastProcessFunction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flinkish.core.broadcast_functions import BroadcastProcessFunction
from flinkish.core.state import BroadcastState, MapStateDescriptor
from flinkish.core.time_limits import MIN_TIMESTAMP_MS
from flinkish.runtime.exchange.buffer import EpochInfo
from flinkish.runtime.operator import OperatorContext, OperatorFactoryBase, Output
from flinkish.runtime.operators.process import ProcessOperator
from flinkish.runtime.outputs import Converter
from flinkish.runtime.state.operator_state import BroadcastStates

#: Index of the input that receives the broadcast stream.
BROADCAST_INPUT = 1


class BroadcastContext:
    """Base of the contexts of both inputs, keyed or not: time and broadcast state. The states themselves refuse writes
    where they are read-only."""

    def __init__(self, states: BroadcastStates, epoch: EpochInfo) -> None:
        self.current_timestamp = MIN_TIMESTAMP_MS
        self._states = states
        self._epoch = epoch

    def timestamp(self) -> int:
        return self.current_timestamp

    def current_processing_time(self) -> int:
        return self._epoch.processing_time_ms

    def current_watermark(self) -> int:
        return self._epoch.watermark_ms

    def request_commit(self) -> None:
        self._epoch.commit_requested = True

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        return self._states.get(state_descriptor)


class NonKeyedBroadcastContext(
    BroadcastContext, BroadcastProcessFunction.Context, BroadcastProcessFunction.ReadOnlyContext
):
    """The context of a BroadcastProcessFunction: one object for all records of both inputs."""


class BroadcastProcessOperator(ProcessOperator):
    """Calls a BroadcastProcessFunction for each record and each broadcast element. Each result has the timestamp of its
    record or broadcast element."""

    def __init__(
        self,
        function: BroadcastProcessFunction[Any, Any, Any],
        converter: Converter | None,
        descriptors: tuple[MapStateDescriptor, ...],
    ) -> None:
        super().__init__(function, "process_element", converter, "process_broadcast_element")
        self._descriptors = descriptors

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._states = BroadcastStates(context.operator_state, self._descriptors, self.where)
        self.calls = self.call, self._states.written_by(self.calls[BROADCAST_INPUT])
        self._process_context = NonKeyedBroadcastContext(self._states, context.epoch)

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        self._states.writable = input_index == BROADCAST_INPUT
        super().process_batch(values, timestamps, input_index)
        self._states.look()


@dataclass
class BroadcastProcessFactory(OperatorFactoryBase):
    """Makes the operator of ``process`` on a stream that is connected with a broadcast stream.

    ``converter`` converts the results of a batch to the declared type of the main output.
    """

    function: BroadcastProcessFunction[Any, Any, Any]
    descriptors: tuple[MapStateDescriptor, ...]
    converter: Converter | None = None
    has_operator_state: bool = True
    #: the function can ask for the current watermark at each record
    watermark_sensitive: bool = True
    #: BATCH mode: the broadcast side is consumed to its end before the other one
    broadcast_first: bool = False

    def create(self) -> BroadcastProcessOperator:
        return BroadcastProcessOperator(self.function, self.converter, self.descriptors)
