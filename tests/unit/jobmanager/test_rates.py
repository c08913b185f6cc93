"""Rates are those of the last minute, whatever an execution did before."""

from __future__ import annotations

import pytest

from flinkish.jobmanager.job.description import RatesDescription
from flinkish.jobmanager.rates import NO_TOTALS, Rates, Totals


def records(count: float) -> Totals:
    return Totals(count, 2 * count, 3 * count, 4 * count, count / 10)


def known(until_ms: int | None, *totals: Totals) -> list[tuple[int | None, Totals]]:
    return [(until_ms, each) for each in totals]


def test_the_rates_of_a_young_execution_are_those_since_it_has_begun() -> None:
    rates = Rates()
    rates.begin(0, 2)
    rates.look(4_000, [records(100), NO_TOTALS])
    found, other = rates.now(known(10_000, records(400), NO_TOTALS))
    assert (found.records_in, found.records_out, found.bytes_in, found.bytes_out, found.busy_ms) == (
        40,
        80,
        120,
        160,
        4,
    )
    assert other == RatesDescription(idle_ms=1000)


def test_what_was_before_the_last_minute_does_not_count() -> None:
    rates = Rates()
    rates.begin(0, 1)
    for second in range(0, 600, 5):
        rates.look(second * 1_000, [records(1_000 * second if second < 300 else 300_000)])
    assert rates.now(known(600_000, records(300_000)))[0].records_in == 0
    assert rates.now(known(600_000, records(300_600)))[0].records_in == pytest.approx(10, rel=0.1)


def test_executions_that_begin_anew_have_no_rates_of_those_before() -> None:
    rates = Rates()
    rates.begin(0, 1)
    rates.look(10_000, [records(1_000_000)])
    rates.begin(20_000, 1)
    assert rates.now(known(22_000, records(10)))[0].records_in == 5


@pytest.mark.parametrize("now_ms", [0, 500, 5_000])
def test_a_clock_that_was_set_back_leads_to_no_negative_rates(now_ms: int) -> None:
    rates = Rates()
    rates.begin(1_000_000, 1)
    rates.look(2_000_000, [records(10)])
    rates.look(now_ms, [records(20)])
    assert rates.now(known(now_ms + 10_000, records(30)))[0].records_in >= 0


def test_work_is_at_most_all_the_time() -> None:
    rates = Rates()
    rates.begin(0, 1)
    assert rates.now(known(10_000, Totals(busy_ms=50_000.0)))[0].busy_ms == 1_000


def test_work_and_back_pressure_are_together_at_most_all_the_time() -> None:
    rates = Rates()
    rates.begin(0, 1)
    found = rates.now(known(10_000, Totals(busy_ms=7_000.0, backpressured_ms=8_000.0)))[0]
    assert (found.busy_ms, found.backpressured_ms) == (700, 300)


def test_epochs_longer_than_a_minute_have_the_rates_of_the_last_one() -> None:
    rates = Rates()
    rates.begin(0, 1)
    rates.look(100_000, [records(1_000)])
    rates.look(300_000, [records(7_000)])
    assert rates.now(known(300_000, records(7_000)))[0].records_in == 30


def test_of_what_is_not_known_there_are_no_rates() -> None:
    rates = Rates()
    assert rates.now(known(5_000, NO_TOTALS)) == [None], "nothing has begun"
    rates.begin(5_000, 2)
    assert rates.now(known(5_000, NO_TOTALS)) == [None], "no time has passed"
    rates.look(15_000, [records(100), NO_TOTALS])
    assert rates.now(known(None, records(100))) == [None]
    assert [None if one is None else one.records_in for one in rates.now(known(15_000, records(100)))] == [10]
