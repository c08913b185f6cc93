"""The context that window assigners get from the window operator."""

from __future__ import annotations

from flinkish.core.functions import RuntimeContext
from flinkish.core.window.assigner import WindowAssigner
from flinkish.runtime.operators.window.window_scope import WindowScope


class ScopedAssignerContext(WindowAssigner.WindowAssignerContext):
    """The context of a window assigner: the scope's processing time and the subtask's runtime context."""

    def __init__(self, scope: WindowScope, runtime_context: RuntimeContext) -> None:
        self._scope = scope
        self._runtime_context = runtime_context

    def get_current_processing_time(self) -> int:
        return self._scope.processing_time_ms

    def get_runtime_context(self) -> RuntimeContext:
        return self._runtime_context
