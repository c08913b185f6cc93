"""Durations, instants and the texts of configuration values."""

from __future__ import annotations

import pickle
from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flinkish.common import Configuration, Duration, Instant, Time
from flinkish.common.units import (
    format_list,
    format_map,
    parse_boolean,
    parse_duration,
    parse_list,
    parse_map,
    parse_memory,
)
from tests.support.rows import hold, refuses

UNITS_IN_NANOS = {
    "": 10**6, "d": 86_400 * 10**9, "days": 86_400 * 10**9, "h": 3_600 * 10**9, "hour": 3_600 * 10**9,
    "min": 60 * 10**9, "m": 60 * 10**9, "s": 10**9, "sec": 10**9, "ms": 10**6, "millis": 10**6, "µs": 10**3, "ns": 1,
}  # fmt: skip


@given(st.integers(0, 10**6), st.sampled_from(sorted(UNITS_IN_NANOS)), st.sampled_from(["", " ", "  "]))
def test_a_duration_is_a_number_and_a_unit_in_any_case(number, unit, blank):
    expected = Duration(number * UNITS_IN_NANOS[unit])
    assert parse_duration(f"{number}{blank}{unit}") == expected
    assert parse_duration(f" {number}{blank}{unit.upper()} ") == expected


def test_durations_and_times_are_values():
    assert Duration.of_minutes(1) == Duration.of_seconds(60) == Duration.of_millis(60_000)
    assert Duration.of_days(1) == Duration.of_hours(24)
    assert hash(Duration.of_nanos(5)) == hash(Duration(5))
    assert Duration.of_timedelta(timedelta(milliseconds=1.5)).to_nanos() == 1_500_000
    assert Duration.of_nanos(-1).to_millis() == -1
    assert pickle.loads(pickle.dumps(Duration(7))) == Duration(7)
    assert Time.days(1).to_milliseconds() == Time.hours(24).to_milliseconds() == 86_400_000
    assert Time.minutes(1) == Time.seconds(60) == Time.milliseconds(60_000)
    assert str(Time.seconds(5)) == "5000 ms"


@pytest.mark.parametrize(
    ("text", "count"), [("64mb", 64 * 2**20), ("1 g", 2**30), ("10", 10), ("2 kibibytes", 2048), ("1TB", 2**40)]
)
def test_memory_sizes_are_read_in_powers_of_1024(text, count):
    assert parse_memory(text) == count


def test_what_flink_does_not_read_is_refused():
    assert parse_boolean(" TRUE ") and not parse_boolean("false")
    durations = ["", "s", "-1 s", "1.5 s", "1 fortnight", "1 s 2", "٣ s", "1 s\n2"]
    rows = [
        *((lambda text=text: parse_duration(text), ValueError, "expected a duration") for text in durations),
        (lambda: parse_memory("5 potatoes"), ValueError, "one of the units"),
        (lambda: parse_boolean("yes"), ValueError, "true or false"),
        (lambda: parse_map("a,b"), ValueError, "expected a map"),
    ]
    hold(refuses, rows)


def test_lists_are_read_in_all_of_flinks_forms():
    assert Configuration.parse_list_value(None) == []
    assert parse_list("a;b") == parse_list("[a, b]") == parse_list("- a\n- b\n") == ["a", "b"]
    assert parse_list("'a;b';c") == ["a;b", "c"]
    # only items that would not read back are quoted
    assert format_list(["file:///a.jar", "b,c", "d;e", "it's"]) == "file:///a.jar;b,c;'d;e';'it''s'"


@given(st.lists(st.text(alphabet="ab;'\"[],-: \n", max_size=6), max_size=4))
@example(["a;b"])
@example(["[a", "b]"])
@example(["- a", "- b"])
def test_a_list_reads_back_from_its_text(items):
    assert parse_list(format_list(items)) == items


@given(
    st.integers(0, 10**18),
    st.integers(-(2**62), 2**62),
    st.dictionaries(st.text(min_size=1, max_size=6), st.text(max_size=6), max_size=4),
)
def test_durations_maps_and_instants_are_kept(nanos, millis, values):
    assert parse_duration(str(Duration(nanos))) == Duration(nanos)
    assert Instant.of_epoch_milli(millis).to_epoch_milli() == millis
    assert parse_map(format_map(values)) == values
