"""The general window operator: any assigner that does not merge, any trigger, any window function.

Semantics, step by step: Flink's ``WindowOperator``. For each element and each of its windows that is not late: add the
element to the window's contents, ask the trigger, fire and purge as it says, register the clean-up timer. Timers ask
the trigger again; the one at the clean-up time then removes all state of that key and window. An element all of whose
windows are late goes to the side output for late data or is counted in ``numLateRecordsDropped``.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import repeat
from typing import TYPE_CHECKING, Any

from flinkish.core.functions import Function
from flinkish.core.metrics import Counter
from flinkish.core.time_domain import TimeDomain
from flinkish.core.time_limits import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.core.window.trigger import TriggerResult
from flinkish.core.window.window import Window
from flinkish.errors import InternalError, ProgramError
from flinkish.runtime.list_keys import keys_of
from flinkish.runtime.operator import OperatorContext, Output, StreamOperator
from flinkish.runtime.operators.window.assigner_context import ScopedAssignerContext
from flinkish.runtime.operators.window.trigger_context import ScopedTriggerContext
from flinkish.runtime.operators.window.window_evaluator import WindowEvaluator, make_evaluator
from flinkish.runtime.operators.window.window_output import WindowOutput
from flinkish.runtime.operators.window.window_scope import TIMERS, WindowScope
from flinkish.runtime.runtime_context import StreamingRuntimeContext
from flinkish.runtime.windowing.window_namespace import namespace_of, window_of
from flinkish.runtime.windowing.window_time import WindowTime

if TYPE_CHECKING:
    from flinkish.runtime.operators.window.window_operator_factory import WindowOperatorFactory


class WindowOperator(StreamOperator):
    """One per subtask. All that outlives a call is in the keyed state."""

    scope: WindowScope
    results: WindowOutput
    late_records_dropped: Counter

    def __init__(self, factory: WindowOperatorFactory) -> None:
        self.factory = factory
        self.assigner = factory.assigner
        self.trigger = factory.trigger
        self.contents = factory.window_logic.contents()
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
        self.late_records_dropped = context.metrics.counter("numLateRecordsDropped")
        self.key_selector = context.key_selectors[0]
        self.evaluator = make_evaluator(function, self.scope)
        self.trigger_context = ScopedTriggerContext(self.scope)

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
        self.scope.backend.prefetch(keys)
        for value, timestamp_ms, key in zip(values, timestamps or repeat(MIN_TIMESTAMP_MS), keys, strict=False):
            self.process_element(value, timestamp_ms, key)
        self.results.flush()

    def enter_group(self, watermark_ms: int) -> None:
        """Work at this watermark."""
        self.scope.enter_group(watermark_ms, self.context.epoch.processing_time_ms)

    def process_element(self, value: Any, timestamp_ms: int, key: Any) -> None:
        """Put one element into its windows."""
        scope = self.scope
        scope.backend.current_key = key
        late = True
        for window in self.assigner.assign_windows(value, timestamp_ms, self.assigner_context):
            if not self.time.is_window_late(window, scope.watermark_ms):
                late = False
                self._add_to_window(value, timestamp_ms, key, window)
        if late and self.time.is_element_late(timestamp_ms, scope.watermark_ms):
            if not self.results.emit_late(value, timestamp_ms):
                self.late_records_dropped.inc()

    def _add_to_window(self, value: Any, timestamp_ms: int, key: Any, window: Window) -> None:
        scope = self.scope
        namespace = namespace_of(window)
        scope.enter(key, window, namespace)
        scope.table.fetch(namespace, (key,))
        self.contents.add(scope.table.namespace(namespace), key, value)
        scope.table.mark_grown(namespace, (key,))
        self._obey(self.trigger.on_element(value, timestamp_ms, window, self.trigger_context))
        cleanup_ms = self.time.cleanup_ms(window)
        if cleanup_ms < MAX_WATERMARK_MS:
            scope.timers.register(self.cleanup_domain, cleanup_ms, key, namespace)

    # --- time ---------------------------------------------------------------------------------------------------

    def process_watermark(self, watermark_ms: int) -> None:
        due_ms, _ = self.scope.backend.next_timer_ms()
        if due_ms is not None and due_ms <= watermark_ms:
            self.enter_group(watermark_ms)
            self.fire_event_timers(watermark_ms)
            self.results.flush()
        self.output.emit_watermark(watermark_ms)

    def advance_processing_time(self, time_ms: int) -> None:
        _, due_ms = self.scope.backend.next_timer_ms()
        if due_ms is None or due_ms > time_ms:
            return
        self.enter_group(self.context.epoch.watermark_ms)
        self.scope.processing_time_ms = time_ms
        for timer_ms, key, namespace in self.scope.backend.due(TIMERS, TimeDomain.PROCESSING_TIME, time_ms):
            self._enter_timer(key, namespace)
            self._obey(self.trigger.on_processing_time(timer_ms, self.scope.window, self.trigger_context))
            self._clean_up_if_due(timer_ms, TimeDomain.PROCESSING_TIME)
        self.results.flush()

    def fire_event_timers(self, watermark_ms: int) -> None:
        """Fire what is due, one timer at a time: a trigger may register or delete others."""
        for timer_ms, key, namespace in self.scope.backend.due(TIMERS, TimeDomain.EVENT_TIME, watermark_ms):
            self._enter_timer(key, namespace)
            self._obey(self.trigger.on_event_time(timer_ms, self.scope.window, self.trigger_context))
            self._clean_up_if_due(timer_ms, TimeDomain.EVENT_TIME)

    def _enter_timer(self, key: Any, namespace: Hashable) -> None:
        self.scope.enter(key, window_of(namespace), namespace)

    def _clean_up_if_due(self, timer_ms: int, domain: TimeDomain) -> None:
        scope = self.scope
        if domain is self.cleanup_domain and timer_ms == self.time.cleanup_ms(scope.window):
            scope.table.fetch(scope.namespace, (scope.key,))
            scope.table.remove(scope.namespace, scope.key)
            self.trigger.clear(scope.window, self.trigger_context)
            if self.evaluator is not None:
                self.evaluator.clear()

    # --- firing -------------------------------------------------------------------------------------------------

    def _obey(self, result: TriggerResult) -> None:
        """Do with the scope's key and window what the trigger said."""
        if result is TriggerResult.CONTINUE:
            return
        if not isinstance(result, TriggerResult):
            raise ProgramError(f"{self.trigger!r} returned {result!r}", expected="a TriggerResult")
        scope = self.scope
        if result.is_fire():
            scope.table.fetch(scope.namespace, (scope.key,))
            stored = scope.table.existing(scope.namespace)
            if stored and scope.key in stored:
                self.evaluate(stored[scope.key])
        if result.is_purge():
            scope.table.fetch(scope.namespace, (scope.key,))
            scope.table.remove(scope.namespace, scope.key)

    def evaluate(self, stored_value: Any) -> None:
        """Emit what the stored value of the scope's key and window stands for."""
        contents = self.contents.read(stored_value)
        if contents is None:  # Flink's rule: a window without contents emits nothing
            return
        scope = self.scope
        timestamp_ms = scope.window.max_timestamp()
        if self.evaluator is None:
            self.results.emit([contents], timestamp_ms)
        else:
            elements = self.contents.as_elements(contents)
            self.results.emit(self.evaluator.evaluate(scope.key, scope.window, elements), timestamp_ms)
