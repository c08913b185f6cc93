"""The general window operator: any assigner that does not merge, any trigger, any window function.

Semantics, step by step: Flink's ``WindowOperator``. For each element and each of its windows that is not late: add the
element to the window's contents, ask the trigger, fire and purge as it says, register the clean-up timer. Timers ask
the trigger again; the one at the clean-up time then removes all state of that key and window. An element all of whose
windows are late goes to the side output for late data or is counted in ``numLateRecordsDropped``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import repeat
from typing import TYPE_CHECKING, Any

from flinkish.core.functions import Function
from flinkish.core.metrics import Counter
from flinkish.core.time_domain import TimeDomain
from flinkish.core.time_limits import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.core.window.trigger import TriggerResult
from flinkish.core.window.window import Window
from flinkish.errors import InternalError, ProgramError
from flinkish.runtime.operator import StreamOperator
from flinkish.runtime.operators.window.assigner_context import ScopedAssignerContext
from flinkish.runtime.operators.window.trigger_context import ScopedTriggerContext
from flinkish.runtime.operators.window.window_evaluator import WindowEvaluator, make_evaluator
from flinkish.runtime.operators.window.window_output import WindowOutput
from flinkish.runtime.operators.window.window_scope import WindowScope
from flinkish.runtime.windowing.window_namespace import namespace_of, window_of
from flinkish.runtime.windowing.window_time import WindowTime

if TYPE_CHECKING:
    from flinkish.runtime.operators.window.window_operator_factory import WindowOperatorFactory


class WindowOperator(StreamOperator):
    """One per subtask. All that outlives a call is in the keyed state."""

    scope: WindowScope
    results: WindowOutput

    def __init__(self, factory: WindowOperatorFactory) -> None:
        self.assigner = factory.assigner
        self.trigger = factory.trigger
        self.logic = factory.window_logic
        self.contents = factory.window_logic.contents()
        self.time = WindowTime(factory.assigner.is_event_time(), factory.allowed_lateness_ms)
        self.late_tag_id = factory.late_tag_id
        self.converter = factory.converter
        self.evaluator: WindowEvaluator | None = None
        self._cleanup_domain = TimeDomain.EVENT_TIME if self.assigner.is_event_time() else TimeDomain.PROCESSING_TIME
