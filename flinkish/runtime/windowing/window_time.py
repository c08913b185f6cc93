"""When a window is over: clean-up time and lateness, as in Flink's ``WindowOperator``.

A window is *late* when nothing can change it any more, because the watermark has reached its clean-up time, which is
its last timestamp plus the allowed lateness. Its state is gone by then, so an element for it must not bring it back.
"""

from __future__ import annotations

from flinkish.core.time_limits import MAX_WATERMARK_MS
from flinkish.core.window.window import Window


class WindowTime:
    """Decides when windows and elements of one operator are late, and when windows are cleaned up. All times are in ms.

    >>> from flinkish.core.window.window import TimeWindow
    >>> time = WindowTime(event_time=True, allowed_lateness_ms=5)
    >>> time.cleanup_ms(TimeWindow(0, 10)), time.is_window_late(TimeWindow(0, 10), watermark_ms=14)
    (14, True)
    """

    def __init__(self, event_time: bool, allowed_lateness_ms: int) -> None:
        self._event_time = event_time
        self._allowed_lateness_ms = allowed_lateness_ms

    def cleanup_ms(self, window: Window) -> int:
        """The time at which the window's state is deleted; ``MAX_WATERMARK_MS`` means never (Flink's rule for a sum
        that overflows)."""
        if not self._event_time:
            return window.max_timestamp()
        # Python's integers do not overflow: the minimum does what Flink's check for it does
        return min(window.max_timestamp() + self._allowed_lateness_ms, MAX_WATERMARK_MS)

    def is_window_late(self, window: Window, watermark_ms: int) -> bool:
        """Whether the window's state is already gone, in event time; False in processing time."""
        return self._event_time and self.cleanup_ms(window) <= watermark_ms

    def is_element_late(self, timestamp_ms: int, watermark_ms: int) -> bool:
        """Whether the element itself is behind the watermark by at least the allowed lateness, in event time."""
        return self._event_time and timestamp_ms + self._allowed_lateness_ms <= watermark_ms
