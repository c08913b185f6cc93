"""WatermarkStrategy is a value that loses nothing that was said."""

from __future__ import annotations

import pickle
from operator import itemgetter

from flinkish.common import Duration, WatermarkStrategy
from flinkish.common.watermark_strategy import AssignerWithPeriodicWatermarksWrapper
from tests.support.functions import TimeOf
from tests.support.rows import hold, refuses


def test_no_call_drops_what_an_earlier_one_said_in_any_order():
    assigner, idle, drift = TimeOf(itemgetter(0)), Duration.of_seconds(9), Duration.of_seconds(1)
    base = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
    first = base.with_timestamp_assigner(assigner).with_idleness(idle).with_watermark_alignment("g", drift)
    second = base.with_watermark_alignment("g", drift).with_idleness(idle).with_timestamp_assigner(assigner)
    assert first == second
    assert first.timestamp_assigner is assigner and base.timestamp_assigner is None
    assert (first.kind, first.max_out_of_orderness_ms, first.idle_timeout_ms) == ("bounded", 5_000, 9_000)
    alignment = (first.alignment_group, first.max_allowed_watermark_drift_ms, first.alignment_update_interval_ms)
    assert alignment == ("g", 1_000, 1_000)
    monotonous = WatermarkStrategy.for_monotonous_timestamps()
    assert monotonous == WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(0))


def test_durations_out_of_range_and_other_objects_are_refused():
    none, bounded = WatermarkStrategy.no_watermarks(), WatermarkStrategy.for_bounded_out_of_orderness
    aligned = none.with_watermark_alignment
    rows = [
        (lambda: bounded(Duration.of_millis(-1)), ValueError, "0 or more"),
        (lambda: aligned("g", Duration.of_millis(-1)), ValueError, "max_allowed_watermark_drift is -1 ms"),
        (lambda: aligned("g", Duration(1), Duration(0)), ValueError, "update_interval is 0 ms"),
        (lambda: aligned(7, Duration(1)), TypeError, "expected a str"),
        (lambda: none.with_idleness(Duration.of_millis(0)), ValueError, "more than 0"),
        (lambda: bounded(5), TypeError, "a Duration"),
        (lambda: none.with_timestamp_assigner(TimeOf), TypeError, "TimestampAssigner"),
    ]
    hold(refuses, rows)


def test_a_strategy_is_picklable_and_the_old_wrapper_turns_into_one():
    strategy = AssignerWithPeriodicWatermarksWrapper(
        TimeOf(itemgetter(0)), Duration.of_seconds(1)
    ).to_watermark_strategy()
    copied = pickle.loads(pickle.dumps(strategy))
    assert copied.max_out_of_orderness_ms == 1_000
    assert copied.timestamp_assigner.extract_timestamp((42,), -1) == 42
