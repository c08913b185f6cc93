"""One global window for all elements of a key. Semantics: Flink's ``GlobalWindows``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from flinkish.core.window.assigner import WindowAssigner
from flinkish.core.window.never_trigger import NeverTrigger
from flinkish.core.window.serializers import GlobalWindowSerializer
from flinkish.core.window.window import GlobalWindow


class GlobalWindows(WindowAssigner[Any, GlobalWindow]):
    """Assigns all elements of a key to one window, which has no end and never fires by itself.

    It needs a trigger, which should purge it now and then.

    Example: the sum of each hundred elements::

        ds.key_by(lambda v: v[0]).window(GlobalWindows.create()).trigger(PurgingTrigger.of(CountTrigger.of(100))).sum(1)
    """

    @staticmethod
    def create() -> GlobalWindows:
        """The assigner of the global window."""
        return GlobalWindows()

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[GlobalWindow]:
        return [GlobalWindow.get()]

    def get_default_trigger(self, env: Any) -> NeverTrigger:
        return NeverTrigger()

    def get_window_serializer(self) -> GlobalWindowSerializer:
        return GlobalWindowSerializer()

    def is_event_time(self) -> bool:
        return False

    def needs_processing_time(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "GlobalWindows()"
