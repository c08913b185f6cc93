"""What a ProcessWindowFunction sees of the window operator."""

from __future__ import annotations

from typing import Any

from flinkish.core.functions import KeyedStateStore, ProcessWindowFunction
from flinkish.core.window.window import Window
from flinkish.runtime.operators.window.scoped_state_store import ScopedStateStore
from flinkish.runtime.operators.window.window_scope import WindowScope


class ScopedProcessWindowContext(ProcessWindowFunction.Context[Any]):
    """Window, time and state of the scope's key and window."""

    def __init__(self, scope: WindowScope) -> None:
        self._scope = scope
        self._window_state = ScopedStateStore(scope, per_window=True)
        self._global_state = ScopedStateStore(scope, per_window=False)

    def window(self) -> Window:
        return self._scope.window

    def current_processing_time(self) -> int:
        return self._scope.processing_time_ms

    def current_watermark(self) -> int:
        return self._scope.watermark_ms

    def window_state(self) -> KeyedStateStore:
        return self._window_state

    def global_state(self) -> KeyedStateStore:
        return self._global_state
