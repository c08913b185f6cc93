"""The general window operator: for any assigner that does not merge windows, any trigger, evictor and window function,
with the contexts that it gives to assigners, triggers and evictors.

Semantics, step by step: Flink's ``WindowOperator``. For each element and each of its windows that is not late: add the
element to the window's contents, call the trigger, fire and purge as it says, register the clean-up timer. Each timer
calls the trigger again; the one at the clean-up time then removes all state of that key and window. An element all of
whose windows are late goes to the side output for late data or is counted in ``numLateRecordsDropped``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from operator import add
from typing import TYPE_CHECKING, Any

from flinkish.common.detach import detached
from flinkish.core.functions import Function, RuntimeContext
from flinkish.core.metrics import Counter, MetricGroup
from flinkish.core.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
)
from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS, TimeDomain
from flinkish.core.window.assigner import WindowAssigner
from flinkish.core.window.evictor import Evictor, TimestampedValue
from flinkish.core.window.trigger import Trigger, TriggerResult
from flinkish.core.window.window import Window
from flinkish.errors import InternalError, ProgramError, StateAccessError
from flinkish.runtime.exchange.keys import keys_of
from flinkish.runtime.job.context import StreamingRuntimeContext
from flinkish.runtime.job.operator import OperatorContext, Output, StreamOperator
from flinkish.runtime.operators.window.contents import (
    TIMERS,
    ListContents,
    WindowContents,
    WindowScope,
    WindowTime,
    merge_namespaces,
    namespace_of,
    window_of,
)
from flinkish.runtime.operators.window.evaluator import (
    ScopedProcessWindowContext,
    WindowEvaluator,
    WindowOutput,
    make_evaluator,
)

if TYPE_CHECKING:
    from flinkish.runtime.operators.window.factory import WindowOperatorFactory


class ScopedAssignerContext(WindowAssigner.WindowAssignerContext):
    """The context of a window assigner: the scope's processing time and the subtask's runtime context."""

    def __init__(self, scope: WindowScope, runtime_context: RuntimeContext) -> None:
        self._scope = scope
        self._runtime_context = runtime_context

    def get_current_processing_time(self) -> int:
        return self._scope.processing_time_ms

    def get_runtime_context(self) -> RuntimeContext:
        return self._runtime_context


class ScopedEvictorContext(Evictor.EvictorContext):
    """The context of an evictor: the scope's time and the operator's metrics."""

    def __init__(self, scope: WindowScope) -> None:
        self._scope = scope

    def get_current_processing_time(self) -> int:
        return self._scope.processing_time_ms

    def get_metric_group(self) -> MetricGroup:
        return self._scope.context.metrics

    def get_current_watermark(self) -> int:
        return self._scope.watermark_ms


class ScopedTriggerContext(Trigger.TriggerContext):
    """The context of a trigger: time, timers and state of the scope's key and window."""

    def __init__(self, scope: WindowScope) -> None:
        self._scope = scope

    def get_current_processing_time(self) -> int:
        return self._scope.processing_time_ms

    def get_metric_group(self) -> MetricGroup:
        return self._scope.context.metrics

    def get_current_watermark(self) -> int:
        return self._scope.watermark_ms

    def register_processing_time_timer(self, time: int) -> None:
        self._scope.timers.register(TimeDomain.PROCESSING_TIME, time, self._scope.key, self._scope.namespace)

    def register_event_time_timer(self, time: int) -> None:
        self._scope.timers.register(TimeDomain.EVENT_TIME, time, self._scope.key, self._scope.namespace)

    def delete_processing_time_timer(self, time: int) -> None:
        self._scope.timers.delete(TimeDomain.PROCESSING_TIME, time, self._scope.key, self._scope.namespace)

    def delete_event_time_timer(self, time: int) -> None:
        self._scope.timers.delete(TimeDomain.EVENT_TIME, time, self._scope.key, self._scope.namespace)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> State:
        return self._scope.handles.state(state_descriptor, self._scope.namespace)


class ScopedOnMergeContext(ScopedTriggerContext, Trigger.OnMergeContext):
    """The context of ``Trigger.on_merge``: the scope's window is the result of the merge."""

    #: namespaces of the windows that were merged into the scope's window, without that window itself
    merged: Sequence[Hashable] = ()

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        scope, name, kind = self._scope, state_descriptor.name, state_descriptor.kind
        merge = _merge_of(state_descriptor)
        if merge is None or state_descriptor.ttl_config is not None:
            raise StateAccessError(
                f"on_merge merges the {kind} state {name!r}"
                + (" which expires" if state_descriptor.ttl_config is not None else ""),
                where=scope.backend.where,
                expected="list, reducing or aggregating state without a time-to-live",
            )
        # what the trigger has changed in the state that is merged
        scope.backend.loans.settle()
        merge_namespaces(scope.backend.table(name, kind), scope.key, scope.namespace, self.merged, merge)


def _merge_of(descriptor: StateDescriptor) -> Callable[[Any, Any], Any] | None:
    """The function that merges two values of a state; None if states of this kind cannot be merged."""
    if isinstance(descriptor, ListStateDescriptor):
        return add
    if isinstance(descriptor, ReducingStateDescriptor):
        return descriptor.get_reduce_function().reduce
    if isinstance(descriptor, AggregatingStateDescriptor):
        return descriptor.get_agg_function().merge
    return None


class WindowOperator(StreamOperator):
    """The window operator of one subtask, for windows that do not merge. All that must outlive a batch is in keyed
    state."""

    scope: WindowScope
    results: WindowOutput
    late_records_dropped: Counter
    #: whether windows may merge
    merging = False

    def __init__(self, factory: WindowOperatorFactory) -> None:
        self.factory = factory
        self.assigner = factory.assigner
        self.trigger = factory.trigger
        self.evictor = factory.evictor
        #: folds elements into the contents that a window function gets; with an evictor, those that it leaves
        self.fold = factory.window_logic.contents()
        # with an evictor, the state of a window holds (element, timestamp) for each of its elements
        self.contents: WindowContents = self.fold if self.evictor is None else ListContents()
        self.time = WindowTime(self.assigner.is_event_time(), factory.allowed_lateness_ms)
        self.cleanup_domain = TimeDomain.EVENT_TIME if self.assigner.is_event_time() else TimeDomain.PROCESSING_TIME
        self.evaluator: WindowEvaluator | None = None
        self._open_functions: list[Function] = []

    # --- lifecycle ----------------------------------------------------------------------------------------------

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        if context.keyed_state is None:
            raise InternalError("a window operator has no keyed state", where=f"operator {context.uid!r}")
        self.scope = WindowScope(context, context.keyed_state, self.contents.kind)
        function = self.factory.window_logic.window_function
        self.results = WindowOutput(output, self.factory.converter, function is not None, self.factory.late_tag_id)
        self.late_records_dropped = context.exact_counter("numLateRecordsDropped")
        self.key_selector = context.key_selectors[0]
        self.evaluator = make_evaluator(function, ScopedProcessWindowContext(self.scope, self.results, self.merging))
        self.trigger_context = ScopedTriggerContext(self.scope)
        self.evictor_context = ScopedEvictorContext(self.scope)

    def open(self) -> None:
        runtime_context = StreamingRuntimeContext(self.context)
        self.assigner_context = ScopedAssignerContext(self.scope, runtime_context)
        for function in self.factory.window_logic.functions():
            self._open_functions.append(function)
            function.open(runtime_context)

    def close(self) -> None:
        while self._open_functions:
            self._open_functions.pop(0).close()

    def dispose(self) -> None:
        self.close()

    # --- elements -----------------------------------------------------------------------------------------------

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        self.enter_group(self.context.epoch.watermark_ms)
        keys = keys_of(self.key_selector, values)
        timestamps = timestamps or [MIN_TIMESTAMP_MS] * len(values)
        self.scope.backend.prefetch(keys)
        windows = self._assign_all(values, timestamps, keys)
        if self.scope.backend.in_files:
            self.fetch_windows(keys, windows)
        arriving = iter(values)
        for value, timestamp_ms, key, of_element in zip(arriving, timestamps, keys, windows, strict=True):
            self.process_element(value, timestamp_ms, key, of_element)
        self.results.flush()

    def enter_group(self, watermark_ms: int) -> None:
        """Prepare the scope for a batch or for timers: get its state, and set its watermark and processing time."""
        self.scope.enter_group(watermark_ms, self.context.epoch.processing_time_ms)

    def _assign_all(self, values: list[Any], timestamps: list[int], keys: list[Any]) -> list[Collection[Window]]:
        """The windows of each element."""
        assign, backend, context = self.assigner.assign_windows, self.scope.backend, self.assigner_context
        windows: list[Collection[Window]] = []
        arriving = iter(values)
        for value, timestamp_ms, key in zip(arriving, timestamps, keys, strict=True):
            backend.loans.enter(key)
            of_element = assign(value, timestamp_ms, context)
            if of_element.__class__ is not list and not isinstance(of_element, Collection):
                raise ProgramError(
                    f"{self.assigner!r} gave the windows {of_element!r} for {value!r:.200}",
                    expected="a list of windows",
                )
            windows.append(of_element)
        return windows

    def fetch_windows(self, keys: list[Any], windows: list[Collection[Window]]) -> None:
        """Bring the state of all windows of a batch into memory, for each window that of all its keys at once."""
        by_namespace: dict[Hashable, list[Any]] = {}
        for key, of_element in zip(keys, windows, strict=True):
            for window in of_element:
                by_namespace.setdefault(namespace_of(window), []).append(key)
        self.scope.backend.fetch_all(by_namespace)

    def fetch_due(self, by_namespace: dict[Hashable, list[Any]]) -> None:
        """Bring into memory the state that the timers of these namespaces and keys need."""
        self.scope.backend.fetch_all(by_namespace)

    def process_element(
        self, value: Any, timestamp_ms: int, key: Any, windows: Collection[Window], skipped: bool = True
    ) -> None:
        """Add one element to those of its windows that are not late.

        Args:
            windows: of the element.
            skipped: no other window has taken the element, so `skip` is called if none of these takes it.
        """
        scope = self.scope
        scope.backend.loans.enter(key)
        shared = self.contents.folds and len(windows) > 1
        for window in windows:
            if not self.time.is_window_late(window, scope.watermark_ms):
                skipped = False
                scope.enter(key, window, namespace_of(window))
                self.add_to_window(detached(value) if shared else value, timestamp_ms)
        if skipped:
            self.skip(value, timestamp_ms)

    def skip(self, value: Any, timestamp_ms: int) -> None:
        """Emit or count an element that no window has taken, if it is late."""
        if self.time.is_element_late(timestamp_ms, self.scope.watermark_ms):
            if not self.results.emit_late(value, timestamp_ms):
                self.late_records_dropped.inc()

    def add_to_window(self, value: Any, timestamp_ms: int) -> None:
        """Add an element to the scope's window, call the trigger, and register the clean-up timer."""
        scope = self.scope
        namespace, key = scope.contents_namespace, scope.key
        scope.table.fetch(namespace, (key,))
        stored = value if self.evictor is None else (value, timestamp_ms)
        contents = scope.table.namespace(namespace)
        scope.table.mark_grown(namespace, (key,))
        self.contents.add(contents, key, stored)
        self.obey(self.trigger.on_element(value, timestamp_ms, scope.window, self.trigger_context))
        cleanup_ms = self.time.cleanup_ms(scope.window)
        if cleanup_ms < MAX_WATERMARK_MS:
            scope.timers.register(self.cleanup_domain, cleanup_ms, key, scope.namespace)

    # --- time ---------------------------------------------------------------------------------------------------

    def process_watermark(self, watermark_ms: int) -> None:
        if self.scope.backend.may_be_due(TimeDomain.EVENT_TIME, watermark_ms):
            self.enter_group(watermark_ms)
            self.fire_event_timers(watermark_ms)
            self.results.flush()
        self.output.emit_watermark(watermark_ms)

    def advance_processing_time(self, time_ms: int) -> None:
        if not self.scope.backend.may_be_due(TimeDomain.PROCESSING_TIME, time_ms):
            return
        self.enter_group(self.context.epoch.watermark_ms)
        self.scope.processing_time_ms = time_ms
        for timer_ms, key, namespace in self._due(TimeDomain.PROCESSING_TIME, time_ms):
            self.on_timer(TimeDomain.PROCESSING_TIME, timer_ms, key, namespace)
        self.results.flush()

    def fire_event_timers(self, watermark_ms: int) -> None:
        """Fire the event-time timers that are due, one at a time: a trigger may register or delete others."""
        for timer_ms, key, namespace in self._due(TimeDomain.EVENT_TIME, watermark_ms):
            self.on_timer(TimeDomain.EVENT_TIME, timer_ms, key, namespace)

    def on_timer(self, domain: TimeDomain, timer_ms: int, key: Any, namespace: Hashable) -> None:
        """Fire one timer, which was already removed from its queue."""
        if self.enter_timer(key, namespace):
            ask = self.trigger.on_event_time if domain is TimeDomain.EVENT_TIME else self.trigger.on_processing_time
            self.obey(ask(timer_ms, self.scope.window, self.trigger_context))
            if self.ends_window(domain, timer_ms):
                self.clean_up()

    def _due(self, domain: TimeDomain, upto_ms: int) -> Iterator[tuple[int, Any, Hashable]]:
        return self.scope.backend.due(TIMERS, domain, upto_ms, self.fetch_due)

    def enter_timer(self, key: Any, namespace: Hashable) -> bool:
        """Set the scope to the key and window of a timer. Returns False if that window is over."""
        self.scope.enter(key, window_of(namespace), namespace)
        return True

    def ends_window(self, domain: TimeDomain, timer_ms: int) -> bool:
        """Whether this timer is the clean-up timer of the scope's window."""
        return domain is self.cleanup_domain and timer_ms == self.time.cleanup_ms(self.scope.window)

    def clean_up(self) -> None:
        """Remove all state of the scope's window and key, which is over, and call the trigger's and the window
        function's ``clear``."""
        self.trigger.clear(self.scope.window, self.trigger_context)
        if self.evaluator is not None:
            self.evaluator.clear()
        self.remove_window()

    def remove_window(self) -> None:
        """Remove the operator's own state of the scope's key and window."""
        self._purge()

    def write_back(self) -> None:
        """Write changes to state that subclasses hold back over several calls of user code; this class holds back
        none."""

    def drop_unwritten(self) -> None:
        """Forget the changes that `write_back` would write, since the call that made them is undone."""

    # --- firing -------------------------------------------------------------------------------------------------

    def obey(self, result: TriggerResult) -> None:
        """Fire or purge the scope's key and window, as the trigger said."""
        if result is TriggerResult.CONTINUE:
            return
        if not isinstance(result, TriggerResult):
            raise ProgramError(f"{self.trigger!r} returned {result!r}", expected="a TriggerResult")
        scope = self.scope
        if result.is_fire():
            scope.table.fetch(scope.contents_namespace, (scope.key,))
            stored = scope.table.existing(scope.contents_namespace)
            if stored and scope.key in stored:
                self.evaluate(stored[scope.key])
        if result.is_purge():
            self._purge()

    def _purge(self) -> None:
        scope = self.scope
        scope.table.fetch(scope.contents_namespace, (scope.key,))
        scope.table.remove(scope.contents_namespace, scope.key)

    def evaluate(self, stored_value: Any) -> None:
        """Emit the results of the scope's key and window, given the stored value of its contents."""
        if self.evictor is None:
            self._emit(self.contents.read(stored_value))
        else:
            self._evict_and_emit(stored_value)

    def _evict_and_emit(self, stored: list[tuple[Any, int]]) -> None:
        """Evaluate the elements that the evictor leaves. Flink's order: ``evict_before``, evaluate, ``evict_after``,
        and keep the remaining elements."""
        assert self.evictor is not None
        scope = self.scope
        elements = [TimestampedValue(*element) for element in stored]
        self.evictor.evict_before(elements, len(elements), scope.window, self.evictor_context)
        self._emit(self.fold.of([element.value for element in elements]))
        self.evictor.evict_after(elements, len(elements), scope.window, self.evictor_context)
        if not elements:
            scope.table.remove(scope.contents_namespace, scope.key)
        elif len(elements) < len(stored):
            scope.table.mark(scope.contents_namespace, scope.key)
            scope.table.namespace(scope.contents_namespace)[scope.key] = [tuple(element) for element in elements]

    def _emit(self, contents: Any) -> None:
        if contents is None:  # Flink's rule: a window without contents emits nothing
            return
        scope = self.scope
        timestamp_ms = scope.window.max_timestamp()
        if self.evaluator is None:
            self.results.emit([contents], timestamp_ms)
        else:
            elements = self.fold.as_elements(contents)
            self.results.emit(self.evaluator.evaluate(scope.key, scope.window, elements), timestamp_ms)
