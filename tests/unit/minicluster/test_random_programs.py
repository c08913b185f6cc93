"""A program that does something else whenever it runs: whatever fails at whatever phase, output and state agree.

Each record gets a random token, and the one before it of the same key out of the state. So the output is a chain per
key, and it holds only if the output of each epoch and the state after it come from one and the same run.
"""

from __future__ import annotations

import itertools
import uuid
from typing import Any

import pytest

from flinkish.common.typeinfo import Types
from flinkish.datastream import MapFunction, RuntimeContext
from flinkish.datastream.state import ValueStateDescriptor
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.phases import ManualClock, Phase, set_hook
from flinkish.testing import TestingSink

from .programs import bounded, environment, job_of, list_source
from .test_failures import PHASES, Killed

RECORDS = [("abc"[serial % 3], serial) for serial in range(24)]

#: How often anything was run: what no replay may change back.
_runs = itertools.count()


class Chained(MapFunction):
    """(key, serial, random token, token of the record before)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.PICKLED_BYTE_ARRAY()))

    def map(self, value: Any) -> Any:
        token, before = (uuid.uuid4().hex, next(_runs)), self.last.value()
        self.last.update(token)
        return *value, token, before


def program() -> tuple[JobDescriptor, list[TestingSink]]:
    env = environment()
    sinks = [TestingSink(), TestingSink()]
    stream = env.from_source(list_source(RECORDS[::2], RECORDS[1::2]), bounded(60), "records")
    chained = stream.key_by(lambda r: r[0]).map(Chained())
    chained.sink_to(sinks[0])
    chained.rebalance().map(lambda r: r).sink_to(sinks[1])
    return job_of(env), sinks


def assert_chained(values: list[Any]) -> None:
    assert sorted(value[:2] for value in values) == sorted(RECORDS)
    last: dict[str, Any] = {}
    for key, _, token, before in values:
        assert before == last.get(key), "the state is that of another run than the output"
        last[key] = token


@pytest.mark.parametrize("new_worker", [False, pytest.param(True, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("phase", PHASES)
def test_output_and_state_come_from_the_same_run(phase: Phase, new_worker: bool) -> None:
    job, sinks = program()
    store, failed = StateStore(), set[tuple[int, int]]()
    passing: dict[int, int] = {}

    def hook(passed: Phase, details: dict[str, Any]) -> None:
        if passed is not phase:
            return
        # in each epoch at its first passing of the phase, and when it is tried again at the second one
        number = passing[details["epoch"]] = passing.get(details["epoch"], 0) + 1
        if number in (1, 3):
            failed.add((details["epoch"], number))
            raise Killed

    set_hook(hook)
    cluster = MiniCluster(job, ManualClock(100), store, 3)
    while not store.finished:
        try:
            cluster.run_epoch()
        except Killed:
            if new_worker:
                cluster = MiniCluster(job, ManualClock(100), store, 3)
    assert len({epoch for epoch, _ in failed}) == store.next_epoch
    assert_chained(sinks[0].values)
    assert sorted(sinks[1].values) == sorted(sinks[0].values)


def test_a_prepared_epoch_is_not_run_again() -> None:
    job, sinks = program()
    store, tries = StateStore(), itertools.count()

    def hook(passed: Phase, details: dict[str, Any]) -> None:
        if passed is Phase.SINK_COMMITTED and next(tries) == 1:
            raise Killed

    set_hook(hook)
    cluster = MiniCluster(job, ManualClock(100), store, 3)
    with pytest.raises(Killed):
        cluster.run_epoch()
    runs = next(_runs)
    cluster.run_epoch()
    assert next(_runs) == runs + 1
    assert sorted(sinks[1].values) == sorted(sinks[0].values)
