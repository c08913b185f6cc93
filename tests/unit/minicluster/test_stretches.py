"""Keyed process functions that get stretches of records with the watermarks inside do what they do when they get the
records between two watermarks one batch after the other: same output in the same order, same state and timers at each
barrier, same errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common.time import Time
from flinkish.common.typeinfo import Types
from flinkish.core.functions import OutputTag
from flinkish.datastream import DataStream, KeyedProcessFunction, ProcessFunction, RuntimeContext
from flinkish.datastream.functions import KeyedCoProcessFunction
from flinkish.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from flinkish.errors import UserCodeError
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.job.operator import OperatorFactoryBase, StreamOperator
from flinkish.runtime.operators.keyed_process import KeyedCoProcessFactory, KeyedProcessFactory
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.state.saved.columns import rows_of_task
from flinkish.testing import TestingSink
from tests.support.functions import AtWatermark
from tests.support.profiles import examples

from .programs import bounded, environment, job_of, list_source

ANY = Types.PICKLED_BYTE_ARRAY()
SIDE = OutputTag("side", ANY)

#: The methods of the operator that have called functions of these tests.
CALLED_BY: set[str] = set()


class Scripted:
    """Does with state and timers what its records say: each one has a list of (command, number)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.value = runtime_context.get_state(ValueStateDescriptor("value", ANY))
        expiring = ValueStateDescriptor("expiring", ANY)
        expiring.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(3)).build())
        self.expiring = runtime_context.get_state(expiring)
        self.list = runtime_context.get_list_state(ListStateDescriptor("list", ANY))
        self.map = runtime_context.get_map_state(MapStateDescriptor("map", ANY, ANY))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        CALLED_BY.add(sys._getframe(1).f_code.co_name)
        yield from self._follow(value[1], value[2], ctx, value)

    process_element1 = process_element

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        for result in self.process_element(value, ctx):
            yield result if isinstance(result[0], OutputTag) else ("second", *result)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        script = self.map.get(timestamp % 4)
        yield from self._follow(script or (), timestamp, ctx, "timer")

    def _follow(self, script: Any, time_ms: int, ctx: Any, what: Any) -> Iterator[Any]:
        timers = ctx.timer_service()
        for command, number in script:
            if command == "register":
                timers.register_event_time_timer(time_ms + number)
            elif command == "delete":
                timers.delete_event_time_timer(time_ms + number)
            elif command == "update":
                self.value.update((self.value.value() or 0) + number)
                self.expiring.update(number)
            elif command == "add":
                self.list.add(number)
            elif command == "clear":
                self.list.clear()
                self.value.clear()
            elif command == "at timers":
                # what timers of this key do from now on. They come to an end: a timer registers one whose time has
                # another remainder by 4, and none with the remainder 3 does anything
                later = [("register", 3), ("update", number), ("side", 0), ("tell", 0)]
                self.map.put(number % 3, later[number // 3 % 3 :])
            elif command == "side":
                yield SIDE, (ctx.get_current_key(), what, timers.current_watermark())
            elif command == "commit":
                ctx.request_commit()
            elif command == "raise":
                raise ValueError(f"{what} at {timers.current_watermark()}")
            else:
                held = self.value.value(), self.expiring.value(), list(self.list.get() or ())
                yield (ctx.get_current_key(), what, ctx.timestamp(), timers.current_watermark(), *held)


class One(Scripted, KeyedProcessFunction):
    pass


class Both(Scripted, KeyedCoProcessFunction):
    pass


@dataclass
class InBatches(OperatorFactoryBase):
    """Makes the same operator, which is then given batches."""

    factory: Any
    keyed: bool = True
    watermark_sensitive: bool = True

    def create(self) -> StreamOperator:
        operator: StreamOperator = self.factory.create()
        operator.process_stretch = None
        return operator


def in_batches(job: JobDescriptor) -> JobDescriptor:
    """The job with keyed process functions that are given batches."""
    scripted = KeyedProcessFactory, KeyedCoProcessFactory
    vertices = []
    for vertex in job.vertices:
        operators = tuple(
            replace(one, factory=InBatches(one.factory)) if isinstance(one.factory, scripted) else one
            for one in vertex.operators
        )
        vertices.append(replace(vertex, operators=operators))
    return replace(job, vertices=tuple(vertices))


class Behind(ProcessFunction):
    """An operator in the same chain, which sees the watermarks between the results."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()


def key_of(record: Any) -> Any:
    return record[0]


def listed_key_of(record: Any) -> Any:
    return [record[0]]


def one_input(records: DataStream, key: Callable[[Any], Any]) -> DataStream:
    return records.key_by(key).process(One())


def two_inputs(records: DataStream, key: Callable[[Any], Any]) -> DataStream:
    first, second = (records.filter(lambda r, odd=odd: r[2] % 2 == odd) for odd in (0, 1))
    both = first.key_by(key).connect(second.key_by(key))
    return both.process(Both())


def story_of(
    program: Any, splits: list[Any], per_epoch: int, key: Any, in_stretches: bool, files: Path | None = None
) -> list[Any]:
    """What the sinks get and what is stored, epoch by epoch; at last the error, if there is one."""
    env = environment(2)
    records = env.from_source(list_source(*splits), bounded(1), "records")
    results = program(records, key).uid("scripted")
    sinks = [TestingSink() for _ in range(3)]
    results.process(Behind()).sink_to(sinks[0])
    results.get_side_output(SIDE).sink_to(sinks[1])
    results.key_by(lambda result: result[0]).process(AtWatermark()).sink_to(sinks[2])
    # state in files, and hardly any memory for what was read of it
    job = job_of(env) if files is None else job_of(env, inline_state_bytes=0, managed_memory_bytes=1)
    job = job if in_stretches else in_batches(job)
    store = StateStore(keyed_state="" if files is None else str(files / str(in_stretches)))
    clock = ManualClock()
    cluster = MiniCluster(job, clock, store, per_epoch)
    story: list[Any] = []
    try:
        while not store.finished and len(story) < 100:
            report = cluster.run_epoch()
            clock.advance(1)
            stored = [
                rows_of_task(header, body, store.keyed_state, job.classes) for header, body in store.tasks.values()
            ]
            asked = [task.commit_requested for task in report.tasks]
            rows = sorted(repr(row) for task in stored for columns in task for row in columns.rows())
            story.append(([dict(sink.commits) for sink in sinks], rows, asked))
    except UserCodeError as error:
        story.append((error.where, error.what))
    finally:
        cluster.dispose()
    return story


numbers = st.integers(-3, 9)
commands = st.sampled_from(["register"] * 3 + ["delete", "update", "add", "clear", "at timers", "side", "tell", "tell"])
scripts = st.lists(st.tuples(commands, numbers), max_size=4)
records = st.tuples(st.sampled_from("abc"), scripts, st.integers(0, 40))
splits = st.lists(st.lists(records, max_size=40).map(lambda split: sorted(split, key=lambda r: r[2] // 3)), min_size=1)


@pytest.mark.parametrize("program", [one_input, two_inputs])
@pytest.mark.parametrize("in_files", [False, True])
@settings(max_examples=examples(25), deadline=None)
@given(splits=splits, per_epoch=st.integers(3, 60), rare=st.sampled_from(["tell", "tell", "raise", "commit"]))
def test_results_state_timers_and_errors_are_those_of_batches(
    program: Any, in_files: bool, splits: list[Any], per_epoch: int, rare: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if splits[0]:
        splits[0][-1][1].append((rare, 0))
    files = tmp_path_factory.mktemp("state") if in_files else None
    stretched, batched = (
        story_of(program, splits, per_epoch, key_of, in_stretches, files) for in_stretches in (True, False)
    )
    assert stretched == batched


@pytest.mark.parametrize(
    ("program", "key", "in_files"),
    [
        (one_input, listed_key_of, False),
        (two_inputs, key_of, True),
        pytest.param(one_input, key_of, False, marks=pytest.mark.nightly),
        pytest.param(one_input, key_of, True, marks=pytest.mark.nightly),
        pytest.param(two_inputs, key_of, False, marks=pytest.mark.nightly),
        pytest.param(two_inputs, listed_key_of, False, marks=pytest.mark.nightly),
    ],
)
def test_more_records_than_a_stretch_holds_give_what_they_give_in_batches(
    program: Any, key: Any, in_files: bool, tmp_path: Path
) -> None:
    def split(shift: int) -> list[Any]:
        script = [("register", 5), ("update", 1), ("tell", 0), ("at timers", 1)]
        return [(f"key-{at % 97}", script[at % 2 :], at // 2 + shift) for at in range(1_300)]

    stories = []
    for in_stretches in (True, False):
        CALLED_BY.clear()
        files = tmp_path if in_files else None
        stories.append(story_of(program, [split(0), split(1)], 2_000, key, in_stretches, files))
        assert ("process_batch" in CALLED_BY) is not in_stretches
    assert stories[0] == stories[1]
    assert len(stories[0]) > 1
