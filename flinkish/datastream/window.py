"""Re-exports windows, window assigners, triggers and evictors at PyFlink's module path."""

from __future__ import annotations

from flinkish.common.no_effect import supply_names
from flinkish.core.functions import IN, KEY, OUT
from flinkish.core.window.assigner import T, WindowAssigner
from flinkish.core.window.continuous_event_time_trigger import ContinuousEventTimeTrigger
from flinkish.core.window.continuous_processing_time_trigger import ContinuousProcessingTimeTrigger
from flinkish.core.window.count_evictor import CountEvictor
from flinkish.core.window.count_sliding import CountSlidingWindowAssigner
from flinkish.core.window.count_trigger import CountTrigger
from flinkish.core.window.count_tumbling import CountTumblingWindowAssigner
from flinkish.core.window.delta_evictor import DeltaEvictor
from flinkish.core.window.dynamic_event_time_session import DynamicEventTimeSessionWindows
from flinkish.core.window.dynamic_processing_time_session import DynamicProcessingTimeSessionWindows
from flinkish.core.window.event_time_session import EventTimeSessionWindows
from flinkish.core.window.event_time_trigger import EventTimeTrigger
from flinkish.core.window.evictor import Evictor, TimestampedValue
from flinkish.core.window.global_windows import GlobalWindows
from flinkish.core.window.hashing import long_to_int_with_bit_mixing, mod_inverse
from flinkish.core.window.merging_assigner import W2, MergingWindowAssigner
from flinkish.core.window.never_trigger import NeverTrigger
from flinkish.core.window.processing_time_session import ProcessingTimeSessionWindows
from flinkish.core.window.processing_time_trigger import ProcessingTimeTrigger
from flinkish.core.window.purging_trigger import PurgingTrigger
from flinkish.core.window.serializers import CountWindowSerializer, GlobalWindowSerializer, TimeWindowSerializer
from flinkish.core.window.session_gap import SessionWindowTimeGapExtractor
from flinkish.core.window.sliding_event_time import SlidingEventTimeWindows
from flinkish.core.window.sliding_processing_time import SlidingProcessingTimeWindows
from flinkish.core.window.time_evictor import TimeEvictor
from flinkish.core.window.trigger import Trigger, TriggerResult
from flinkish.core.window.tumbling_event_time import TumblingEventTimeWindows
from flinkish.core.window.tumbling_processing_time import TumblingProcessingTimeWindows
from flinkish.core.window.window import CountWindow, GlobalWindow, TimeWindow, W, Window

__all__ = [
    "W",
    "W2",
    "T",
    "IN",
    "KEY",
    "OUT",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountSlidingWindowAssigner",
    "CountTrigger",
    "CountTumblingWindowAssigner",
    "CountWindow",
    "CountWindowSerializer",
    "DeltaEvictor",
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "Evictor",
    "GlobalWindow",
    "GlobalWindowSerializer",
    "GlobalWindows",
    "MergingWindowAssigner",
    "NeverTrigger",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "SessionWindowTimeGapExtractor",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "TimeEvictor",
    "TimeWindow",
    "TimeWindowSerializer",
    "TimestampedValue",
    "Trigger",
    "TriggerResult",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "Window",
    "WindowAssigner",
    "long_to_int_with_bit_mixing",
    "mod_inverse",
]

supply_names(__name__, "datastream.functions", "datastream.state", "common", "metrics", "datastream")
