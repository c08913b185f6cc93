"""WatermarkStrategy is a value that loses nothing that was said."""

from __future__ import annotations

import pickle

import pytest

from flinkish.common import Duration, WatermarkStrategy
from flinkish.common.watermark_strategy import AssignerWithPeriodicWatermarksWrapper, TimestampAssigner


class FirstField(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[0]


def test_monotonous_timestamps_are_bounded_by_zero():
    assert WatermarkStrategy.for_monotonous_timestamps() == WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(0)
    )


def test_no_call_drops_what_an_earlier_one_said_in_any_order():
    assigner, bound, idle = FirstField(), Duration.of_seconds(5), Duration.of_seconds(9)
    base = WatermarkStrategy.for_bounded_out_of_orderness(bound)
    first = (
        base.with_timestamp_assigner(assigner).with_idleness(idle).with_watermark_alignment("g", Duration.of_seconds(1))
    )
    second = (
        base.with_watermark_alignment("g", Duration.of_seconds(1)).with_idleness(idle).with_timestamp_assigner(assigner)
    )
    assert first == second
    assert first.timestamp_assigner is assigner
    assert (first.kind, first.max_out_of_orderness_ms, first.idle_timeout_ms) == ("bounded", 5_000, 9_000)
    assert (first.alignment_group, first.max_allowed_watermark_drift_ms, first.alignment_update_interval_ms) == (
        "g",
        1_000,
        1_000,
    )
    assert base.timestamp_assigner is None


def test_durations_out_of_range_and_other_objects_are_refused():
    with pytest.raises(ValueError, match="0 or more"):
        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(-1))
    with pytest.raises(ValueError, match="max_allowed_watermark_drift is -1 ms"):
        WatermarkStrategy.no_watermarks().with_watermark_alignment("g", Duration.of_millis(-1))
    with pytest.raises(ValueError, match="update_interval is 0 ms"):
        WatermarkStrategy.no_watermarks().with_watermark_alignment("g", Duration(1), Duration(0))
    with pytest.raises(TypeError, match="expected a str"):
        WatermarkStrategy.no_watermarks().with_watermark_alignment(7, Duration(1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="more than 0"):
        WatermarkStrategy.no_watermarks().with_idleness(Duration.of_millis(0))
    with pytest.raises(TypeError, match="a Duration"):
        WatermarkStrategy.for_bounded_out_of_orderness(5)
    with pytest.raises(TypeError, match="TimestampAssigner"):
        WatermarkStrategy.no_watermarks().with_timestamp_assigner(FirstField)  # type: ignore[arg-type]


def test_a_strategy_is_picklable_and_the_old_wrapper_turns_into_one():
    strategy = AssignerWithPeriodicWatermarksWrapper(FirstField(), Duration.of_seconds(1)).to_watermark_strategy()
    copied = pickle.loads(pickle.dumps(strategy))
    assert copied.max_out_of_orderness_ms == 1_000
    assert copied.timestamp_assigner.extract_timestamp((42,), -1) == 42
