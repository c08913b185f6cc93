"""``process`` on a stream that is connected with a broadcast stream: calls a BroadcastProcessFunction, or a
KeyedBroadcastProcessFunction if the stream is keyed.

On a keyed stream, records and timers have a current key, broadcast elements have none: their calls can reach keyed
state only through ``apply_to_keyed_state``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flinkish.core.co_functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction, KeyedStateFunction
from flinkish.core.state import BroadcastState, MapStateDescriptor, StateDescriptor
from flinkish.core.time import MIN_TIMESTAMP_MS, TimeDomain, TimerService
from flinkish.errors import StateAccessError
from flinkish.runtime.exchange.buffer import EpochInfo
from flinkish.runtime.exchange.keys import thawed
from flinkish.runtime.job.context import KeyedTimerService
from flinkish.runtime.job.operator import OperatorContext, OperatorFactoryBase, Output
from flinkish.runtime.job.outputs import Converter
from flinkish.runtime.operators.functions import ProcessOperator
from flinkish.runtime.operators.keyed_process import TIMER_SERVICE, KeyedProcessOperator, overrides_on_timer
from flinkish.runtime.state.backend import KeyedStateBackend
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


class KeyedBroadcastContext(BroadcastContext, KeyedBroadcastProcessFunction.Context):
    """The context of broadcast elements: one object for all of them."""

    def __init__(self, states: BroadcastStates, epoch: EpochInfo, backend: KeyedStateBackend) -> None:
        super().__init__(states, epoch)
        self._backend = backend

    def apply_to_keyed_state(
        self, state_descriptor: StateDescriptor, function: KeyedStateFunction | Callable[[Any, Any], Any]
    ) -> None:
        call = function.process if isinstance(function, KeyedStateFunction) else function
        backend = self._backend
        _, known = backend.declared.get(state_descriptor.name, (None, None))
        if known is not None and known.kind == state_descriptor.kind:
            # the descriptor that was used in open() says whether the state expires
            state_descriptor = known
        state = backend.partitioned_state(state_descriptor)
        for keys in backend.key_batches(state_descriptor.name):
            for key in keys:
                backend.loans.enter(key)
                call(thawed(key), state)
        backend.leave_key()


class KeyedReadOnlyContext(BroadcastContext, KeyedBroadcastProcessFunction.ReadOnlyContext):
    """The context of records, whose broadcast state is read-only: one object for all of them."""

    def __init__(
        self, states: BroadcastStates, epoch: EpochInfo, backend: KeyedStateBackend, timer_service: TimerService
    ) -> None:
        super().__init__(states, epoch)
        self._backend = backend
        self._timer_service = timer_service

    def get_current_key(self) -> Any:
        return thawed(self._backend.current_key)

    def timer_service(self) -> TimerService:
        return self._timer_service


class KeyedBroadcastOnTimerContext(KeyedReadOnlyContext, KeyedBroadcastProcessFunction.OnTimerContext):
    """The context of timers: one object for all of them."""

    current_domain = TimeDomain.EVENT_TIME

    def time_domain(self) -> TimeDomain:
        return self.current_domain


class KeyedBroadcastProcessOperator(KeyedProcessOperator):
    """Calls a KeyedBroadcastProcessFunction. Each result has the timestamp of its record, broadcast element or
    event-time timer."""

    def __init__(
        self,
        function: KeyedBroadcastProcessFunction[Any, Any, Any, Any],
        converter: Converter | None,
        descriptors: tuple[MapStateDescriptor, ...],
    ) -> None:
        super().__init__(function, "process_element", converter, "process_broadcast_element")
        self._descriptors = descriptors

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        backend, epoch = self.keyed_state, context.epoch
        timer_service = KeyedTimerService(epoch, backend, TIMER_SERVICE)
        self._states = BroadcastStates(context.operator_state, self._descriptors, self.where)
        self.calls = self.call, self._states.written_by(self.calls[BROADCAST_INPUT])
        self._broadcast_context = KeyedBroadcastContext(self._states, epoch, backend)
        self._process_context = KeyedReadOnlyContext(self._states, epoch, backend, timer_service)
        self._timer_context = KeyedBroadcastOnTimerContext(self._states, epoch, backend, timer_service)

    def open(self) -> None:
        super().open()
        for descriptor in self._descriptors:
            if descriptor.name in self.keyed_state.declared:
                raise StateAccessError(
                    f"state {descriptor.name!r} is declared as keyed state and as broadcast state",
                    where=self.where,
                    expected="one kind per state name",
                    hint="give one of them another name",
                )

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        if input_index != BROADCAST_INPUT:
            super().process_batch(values, timestamps, input_index)
            self._states.look()
            return
        self.keyed_state.leave_key()
        self._states.writable = True
        try:
            results, times = self.results_with_context(self._broadcast_context, values, timestamps, input_index)
        finally:
            self._states.writable = False
        self.collect(results, times)


@dataclass
class KeyedBroadcastProcessFactory(OperatorFactoryBase):
    """Makes the operator of ``process`` on a keyed stream that is connected with a broadcast stream.

    ``converter`` converts the results of a batch to the declared type of the main output.
    """

    function: KeyedBroadcastProcessFunction[Any, Any, Any, Any]
    descriptors: tuple[MapStateDescriptor, ...]
    converter: Converter | None = None
    keyed: bool = True
    has_operator_state: bool = True
    watermark_sensitive: bool = True
    #: BATCH mode: the broadcast side is consumed to its end before the other one
    broadcast_first: bool = False

    @property
    def has_timers(self) -> bool:  # type: ignore[override]
        """Whether the function does anything when a timer fires."""
        return overrides_on_timer(self.function, KeyedBroadcastProcessFunction)

    def create(self) -> KeyedBroadcastProcessOperator:
        return KeyedBroadcastProcessOperator(self.function, self.converter, self.descriptors)
