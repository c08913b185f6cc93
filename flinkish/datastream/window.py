"""Windows, assigners and triggers, at PyFlink's module path."""

from __future__ import annotations

from flinkish.core.window.assigner import WindowAssigner
from flinkish.core.window.count_trigger import CountTrigger
from flinkish.core.window.event_time_trigger import EventTimeTrigger
from flinkish.core.window.processing_time_trigger import ProcessingTimeTrigger
from flinkish.core.window.purging_trigger import PurgingTrigger
from flinkish.core.window.serializers import CountWindowSerializer, GlobalWindowSerializer, TimeWindowSerializer
from flinkish.core.window.trigger import Trigger, TriggerResult
from flinkish.core.window.tumbling_event_time import TumblingEventTimeWindows
from flinkish.core.window.tumbling_processing_time import TumblingProcessingTimeWindows
from flinkish.core.window.window import CountWindow, GlobalWindow, TimeWindow, Window

__all__ = [
    "CountTrigger",
    "CountWindow",
    "CountWindowSerializer",
    "EventTimeTrigger",
    "GlobalWindow",
    "GlobalWindowSerializer",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "TimeWindow",
    "TimeWindowSerializer",
    "Trigger",
    "TriggerResult",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "Window",
    "WindowAssigner",
]
