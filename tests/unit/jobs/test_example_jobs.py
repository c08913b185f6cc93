"""Word counts, reminders and alerts in the minicluster, against plain loops: in one epoch, over many, and restarted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from flinkish.common import WatermarkStrategy
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.examples.sensors import GATEWAYS, Gateway
from flinkish.minicluster import MiniCluster
from flinkish.runtime.phases import ManualClock
from flinkish.testing import TestingSink
from jobs import abandoned_carts, iot_alerts, word_count
from tests.support.example_jobs import expected_alerts, expected_reminders, expected_words
from tests.unit.minicluster.programs import environment, job_of, run

#: the parallelism, most records of a source in an epoch, and after how many epochs the job is restarted
WAYS = [
    (1, 1_000_000, None),
    (3, 700, None),
    (3, 700, 1),
    *(pytest.param(*way, marks=pytest.mark.nightly) for way in [(3, 1_000_000, None), (1, 700, None), (1, 700, 1)]),
]


def rows(values: Iterable[Any], key_fields: int) -> list[tuple[Any, ...]]:
    """What is in a table in which later rows replace earlier ones of the same key."""
    return sorted({tuple(value)[:key_fields]: tuple(value) for value in values}.values())


@pytest.mark.parametrize(("parallelism", "per_epoch", "restart_every"), WAYS)
class TestJobs:
    """The same results, whatever the parallelism, the size of epochs, and how often a job is restarted."""

    def test_words_are_counted(self, parallelism: int, per_epoch: int, restart_every: int | None) -> None:
        env, counts = environment(parallelism), TestingSink()
        word_count.build(env.from_source(word_count.lines(2_000, 1), WatermarkStrategy.no_watermarks(), "l"), counts)
        run(job_of(env), per_epoch, restart_every=restart_every)
        assert rows(counts.values, 1) == expected_words(2_000)

    def test_customers_are_reminded(self, parallelism: int, per_epoch: int, restart_every: int | None) -> None:
        env, reminders = environment(parallelism), TestingSink()
        source = env.from_source(abandoned_carts.events(4_000, 1_500), abandoned_carts.watermarks(), "events")
        abandoned_carts.build(source, reminders)
        run(job_of(env), per_epoch, restart_every=restart_every)
        expected = expected_reminders(4_000, 1_500)
        assert sorted(map(tuple, reminders.values)) == expected
        assert len(expected) > 1_500 and any(things > 1 for _, _, things, _ in expected)

    def test_hot_sensors_give_alerts_and_broken_ones_are_counted(
        self, parallelism: int, per_epoch: int, restart_every: int | None
    ) -> None:
        env, alerts, broken = environment(parallelism), TestingSink(), TestingSink()
        readings = [
            env.from_source(gateway, iot_alerts.watermarks(), name)
            for name, gateway in zip(GATEWAYS, iot_alerts.gateways(8_000, 40), strict=True)
        ]
        iot_alerts.build(readings, alerts, broken)
        run(job_of(env), per_epoch, restart_every=restart_every)
        expected = expected_alerts(8_000, 40)
        assert (rows(alerts.values, 2), rows(broken.values, 1)) == expected
        assert all(expected)


def endless_gateways(env: StreamExecutionEnvironment, strategy: WatermarkStrategy) -> list[Any]:
    """The north goes on; the south tells a hundred readings, and then nothing."""
    north = Gateway("north", 100_000, 40, records_per_epoch=1_000, endless=True)
    south = Gateway("south", 100, 40, endless=True)
    return [env.from_source(gateway, strategy, name) for name, gateway in zip(GATEWAYS, (north, south), strict=True)]


@pytest.mark.parametrize("with_idleness", [True, False])
def test_a_silent_gateway_holds_alerts_back_until_it_is_idle(with_idleness: bool) -> None:
    env, alerts, clock = environment(2), TestingSink(), ManualClock()
    strategy = iot_alerts.watermarks()
    if not with_idleness:
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(iot_alerts.OUT_OF_ORDER).with_timestamp_assigner(
            iot_alerts.ReadingTime()
        )
    iot_alerts.build(endless_gateways(env, strategy), alerts, TestingSink())
    cluster = MiniCluster(job_of(env), clock)
    idle_after_ms = iot_alerts.IDLE_AFTER.to_millis()
    cluster.run(3)
    assert alerts.values == []
    clock.advance(idle_after_ms - 1)
    cluster.run(2)
    assert alerts.values == []
    clock.advance(idle_after_ms)
    cluster.run(2)
    clock.advance(idle_after_ms)
    cluster.run(2)
    assert bool(alerts.values) is with_idleness
    cluster.dispose()
