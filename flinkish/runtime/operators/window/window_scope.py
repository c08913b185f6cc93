"""The key, window, time and state that the window operator works with at the moment.

There is one object per operator, which is changed in place: the contexts that user code has got read it at each call.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from flinkish.core.time_limits import MIN_TIMESTAMP_MS
from flinkish.core.window.window import Window
from flinkish.runtime.operator import OperatorContext
from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.state_table import StateTable
from flinkish.runtime.state.timer_queue import TimerQueue
from flinkish.runtime.state.ttl import HandleCache

#: name of the state that holds the windows' contents; no user gives a state this name by accident
CONTENTS = "__window_contents__"
#: name of the timer service
TIMERS = "window-timers"


class WindowScope:
    """The current key, window, time and state of a window operator. Valid from `enter_group` until the operator returns
    to its task."""

    table: StateTable
    timers: TimerQueue
    #: key and window of the current call of user code
    key: Any
    window: Window
    #: namespace of the trigger's state, the timers and the per-window state
    namespace: Hashable
    #: namespace of the window's contents; it is another one after a merge (`MergingWindowSet`)
    contents_namespace: Hashable

    def __init__(self, context: OperatorContext, backend: KeyedStateBackend, contents_kind: str) -> None:
        self.context = context
        self.backend = backend
        self.handles = HandleCache(backend)
        self._contents_kind = contents_kind
        self.watermark_ms = MIN_TIMESTAMP_MS
        self.processing_time_ms = 0

    def enter_group(self, watermark_ms: int, processing_time_ms: int) -> None:
        """Get the tables of state and timers, and set the time. This decodes the state if that was not done yet."""
        self.table = self.backend.table(CONTENTS, self._contents_kind)
        self.timers = self.backend.timers(TIMERS)
        self.watermark_ms = watermark_ms
        self.processing_time_ms = processing_time_ms

    def enter(self, key: Any, window: Window, namespace: Hashable) -> None:
        """Set the current key and window, before any user code is called for them."""
        self.key = key
        self.backend.loans.enter(key)
        self.window = window
        self.namespace = self.contents_namespace = namespace
