"""The context that a ProcessWindowFunction or ProcessAllWindowFunction gets from the window operator."""

from __future__ import annotations

from typing import Any

from flinkish.common.detach import detached
from flinkish.core.functions import KeyedStateStore, ProcessAllWindowFunction, ProcessWindowFunction
from flinkish.core.output_tag import OutputTag
from flinkish.core.window.window import Window
from flinkish.errors import StateAccessError
from flinkish.runtime.operators.window.scoped_state_store import ScopedStateStore
from flinkish.runtime.operators.window.window_output import WindowOutput
from flinkish.runtime.operators.window.window_scope import WindowScope


class ScopedProcessWindowContext(ProcessWindowFunction.Context[Any], ProcessAllWindowFunction.Context[Any]):
    """The context of a process window function: window, time and state of the scope's key and window.

    ``merging``: windows may merge, so there is no per-window state.
    """

    def __init__(self, scope: WindowScope, results: WindowOutput, merging: bool) -> None:
        self._scope = scope
        self._results = results
        self._window_state = None if merging else ScopedStateStore(scope, per_window=True)
        self._global_state = ScopedStateStore(scope, per_window=False)

    def window(self) -> Window:
        return self._scope.window

    def current_processing_time(self) -> int:
        return self._scope.processing_time_ms

    def current_watermark(self) -> int:
        return self._scope.watermark_ms

    def window_state(self) -> KeyedStateStore:
        if self._window_state is None:
            raise StateAccessError(
                "Per-window state is not allowed when using merging windows",
                where=self._scope.backend.where,
                expected="windows that do not merge",
                hint="keep what belongs to the key in global_state()",
            )
        return self._window_state

    def global_state(self) -> KeyedStateStore:
        return self._global_state

    def output(self, output_tag: OutputTag, value: Any) -> None:
        self._results.emit_side(output_tag.tag_id, detached(value), self._scope.window.max_timestamp())
