"""Re-exports windows, window assigners, triggers and evictors at PyFlink's module path."""

from __future__ import annotations

from flinkish.common.no_effect import supply_names
from flinkish.core.functions import IN, KEY, OUT
from flinkish.core.window.assigner import W2, GlobalWindows, MergingWindowAssigner, T, WindowAssigner
from flinkish.core.window.counts import CountSlidingWindowAssigner, CountTrigger, CountTumblingWindowAssigner
from flinkish.core.window.evictor import CountEvictor, DeltaEvictor, Evictor, TimeEvictor, TimestampedValue
from flinkish.core.window.sessions import (
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SessionWindowTimeGapExtractor,
)
from flinkish.core.window.trigger import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerResult,
)
from flinkish.core.window.tumbling_sliding import (
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from flinkish.core.window.window import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
    W,
    Window,
    long_to_int_with_bit_mixing,
    mod_inverse,
)

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
