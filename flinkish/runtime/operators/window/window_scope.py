"""Where the window operator is right now: key, window, time and state.

One object per operator, changed in place: contexts that user code got look at it at each call.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from flinkish.core.time_limits import MIN_TIMESTAMP_MS
from flinkish.core.window.window import Window
from flinkish.runtime.operator import OperatorContext
from flinkish.runtime.state.handle_cache import HandleCache
from flinkish.runtime.state.keyed_state_backend import KeyedStateBackend
from flinkish.runtime.state.state_table import StateTable
from flinkish.runtime.state.timer_queue import TimerQueue

#: name of the state that holds the windows' contents; no state of users can have it by accident
CONTENTS = "__window_contents__"
#: name of the timer service
TIMERS = "window-timers"


class WindowScope:
    """The current position. Valid from `enter_group` until the operator returns to its task."""

    table: StateTable
    timers: TimerQueue
    #: of the current call
    key: Any
    window: Window
    #: of the trigger's state, the timers and the state per window
    namespace: Hashable
    #: of the window's contents; another one after a merge (`MergingWindowSet`)
    contents_namespace: Hashable

    def __init__(self, context: OperatorContext, backend: KeyedStateBackend, contents_kind: str) -> None:
        self.context = context
        self.backend = backend
        self.handles = HandleCache(backend)
        self._contents_kind = contents_kind
        self.watermark_ms = MIN_TIMESTAMP_MS
        self.processing_time_ms = 0

    def enter_group(self, watermark_ms: int, processing_time_ms: int) -> None:
        """Begin to work. Decodes the state, if that did not happen yet."""
        self.table = self.backend.table(CONTENTS, self._contents_kind)
        self.timers = self.backend.timers(TIMERS)
        self.watermark_ms = watermark_ms
        self.processing_time_ms = processing_time_ms

    def enter(self, key: Any, window: Window, namespace: Hashable) -> None:
        """Go to a key and window: before any user code is called for them."""
        self.key = self.backend.current_key = key
        self.window = window
        self.namespace = self.contents_namespace = namespace
