"""CheckpointedFunction and CheckpointListener: operator state over epochs, restarts and changes of parallelism."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.checkpoint.compatibility import states_of_program
from flinkish.common import Types, WatermarkStrategy
from flinkish.common.time import Time
from flinkish.datastream import OnError
from flinkish.datastream.functions import (
    CheckpointedFunction,
    CheckpointListener,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
)
from flinkish.datastream.state import ListStateDescriptor, MapStateDescriptor, StateTtlConfig, ValueStateDescriptor
from flinkish.errors import IncompatibleJobError, ProgramError, StateAccessError, UserCodeError
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.exchange.buffer import BufferHeader, BufferKind, encode
from flinkish.runtime.job.report import TaskHeader
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.state.saved.columns import TaskBody
from flinkish.runtime.state.saved.operator_states import decode_operator_states
from flinkish.runtime.state.saved.restore import encode_columns, operator_state_rows, subtasks_of_row
from flinkish.runtime.state.saved.texts import from_savepoint_row, to_savepoint_row
from flinkish.runtime.state.saved.values import RowReader
from flinkish.runtime.state.state_rows import StateColumns, StateRow
from flinkish.testing import TestingSink
from tests.support.profiles import examples

from .programs import bounded, environment, job_of, list_source, run

#: What functions were told: (what, subtask, ...)
TOLD: list[tuple[Any, ...]] = []


class Holds(FlatMapFunction, CheckpointedFunction):
    """Holds back all records until it is told to give them out, in attributes that go into state at each barrier."""

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("held", Types.PICKLED_BYTE_ARRAY()))
        self.union = store.get_union_list_state(ListStateDescriptor("seen", Types.LONG()))
        self.names = store.get_broadcast_state(MapStateDescriptor("names", Types.STRING(), Types.LONG()))
        self.held = self.state.get()
        self.before = self.union.get()
        self.seen = 0
        self.restored = context.is_restored(), context.get_restored_checkpoint_id()

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        TOLD.append(("open", self.subtask, sorted(self.held), self.before, self.names.items(), self.restored))

    def flat_map(self, value: Any) -> Any:
        self.seen += 1
        self.names.put("a", 1)
        if value == "out":
            held, self.held = self.held, []
            return held
        self.held.append(value)
        return ()

    def snapshot_state(self, context: Any) -> None:
        self.state.update(self.held)
        self.union.update([self.subtask * 1000 + self.seen])
        TOLD.append(("snapshot", self.subtask, context.get_checkpoint_id(), context.get_checkpoint_timestamp()))


def holding(values: list[Any], parallelism: int, sink: TestingSink) -> Any:
    env = environment(parallelism)
    stream = env.from_source(list_source(values), WatermarkStrategy.no_watermarks(), "source").uid("source")
    stream.set_parallelism(1).rebalance().flat_map(Holds()).uid("holds").sink_to(sink)
    return job_of(env)


class Counts(MapFunction, CheckpointedFunction):
    """Counts its records, in state."""

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("n", Types.LONG()))
        self.n = sum(self.state.get())

    def snapshot_state(self, context: Any) -> None:
        self.state.update([self.n])

    def map(self, value: Any) -> Any:
        self.n += 1
        return self.n


def counting(sink: TestingSink, uids: list[str], fails: str = "", **settings: Any) -> Any:
    """``rebalance -> head -> operators that count``, and one with ``on_error`` that fails always."""
    env = environment(1)
    source = env.from_source(list_source(list(range(6))), WatermarkStrategy.no_watermarks(), "source").uid("source")
    stream = source.rebalance().map(abs).uid("head")
    if fails:
        stream = stream.map(lambda value: value / 0).on_error(OnError.skip(max_failures=4, max_rate=0)).uid(fails)
    for uid in uids:
        stream = stream.map(Counts()).uid(uid)
    stream.sink_to(sink)
    return job_of(env, **settings)


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        ({"uids": ["op"]}, {"uids": ["renamed"]}, "op"),
        ({"uids": ["op"]}, {"uids": []}, "op"),
        ({"uids": ["op"], "fails": "failing"}, {"uids": ["op"], "fails": "renamed"}, "failing"),
        ({"uids": ["op"], "fails": "failing"}, {"uids": ["op"]}, "failing"),
    ],
)
def test_state_of_an_operator_that_its_task_does_not_have_any_more_is_refused_by_name_and_kept(
    before: dict[str, Any], after: dict[str, Any], lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = StateStore()

    def run_epoch(program: dict[str, Any], store: StateStore = store, **settings: Any) -> list[Any]:
        sink = TestingSink()
        MiniCluster(counting(sink, **program, **settings), ManualClock(), store, 2).run(1)
        return sink.values

    run_epoch(before)
    kept = copy.deepcopy(store.tasks)
    with pytest.raises(IncompatibleJobError, match=rf"the task holds state of operators .*'{lost}' \(.*task 'Map"):
        run_epoch(after)
    assert store.tasks == kept
    run_epoch(after, copy.deepcopy(store), given_up=(lost, "another"))
    assert "gives up" not in caplog.text
    allowed = copy.deepcopy(store)
    run_epoch(after, allowed, ignore_unclaimed_state=True)
    assert f"gives up the state of operators that it does not have: '{lost}' (" in caplog.text
    run_epoch(after, allowed)
    assert run_epoch(before) == ([] if "fails" in before else [3, 4])


def rows_of(store: StateStore, uid: str) -> list[StateRow]:
    """What a savepoint would hold of an operator, through its texts."""
    rows = []
    for header, body in store.tasks.values():
        decoded = TaskHeader.decode(header)
        for row in operator_state_rows(
            decoded.subtask,
            decoded.parallelism,
            decode_operator_states(TaskBody.decode(body).operators).get(uid, {}),
        ):
            rows.append(from_savepoint_row(to_savepoint_row(uid, row))[1])
    return rows


class RestoredCluster(MiniCluster):
    """Begins with rows of a savepoint."""

    rows: list[StateRow]

    def _read_sources(self, shares: Iterable[Any], stamp: Any) -> list[Any]:
        found = super()._read_sources(shares, stamp)
        vertex = next(v for v in self.job.vertices if any(op.uid == "holds" for op in v.operators))
        for row in self.rows:
            for subtask in subtasks_of_row(row.kind, row.key, row.namespace, row.value, vertex.parallelism):
                columns = StateColumns(row.state, row.kind, [row.namespace], [row.key], [row.value])
                header = BufferHeader(BufferKind.STATE, vertex.id, subtask, 0, "", 0, 0, 1)
                found.append((vertex.id, subtask, encode(header, encode_columns("holds", columns, self.job.classes))))
        self.rows = []
        return found


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.integers(0, 9) | st.just("out"), max_size=30),
    st.integers(1, 8),
    st.sampled_from([None, 1, 2]),
    st.integers(0, 6),
    st.integers(1, 5),
    st.integers(1, 5),
    st.randoms(),
)
def test_nothing_held_is_lost_or_doubled_whatever_the_epochs_the_restarts_and_the_parallelism(
    values: list[Any], per_epoch: int, restart_every: int | None, first_epochs: int, before: int, after: int, rng: Any
) -> None:
    sink = TestingSink()
    job, store = holding(values, before, sink), StateStore()
    cluster = MiniCluster(job, ManualClock(), store, per_epoch)
    for epoch in range(first_epochs):
        if store.finished:
            break
        if restart_every and epoch % restart_every == 0:
            cluster.dispose()
            cluster = MiniCluster(job, ManualClock(), store, per_epoch)
        cluster.run_epoch()
    cluster.dispose()
    rows = rows_of(store, "holds")
    rng.shuffle(rows)
    assert Counter(sink.values) + Counter(row.value[1] for row in rows if row.state == "held") == Counter(
        value for value in values[: first_epochs * per_epoch] if value != "out"
    )
    if store.finished:
        return
    # a job of another parallelism goes on
    again = StateStore(offset=copy.deepcopy(store.offset), segments=store.segments, next_epoch=store.next_epoch)
    more = TestingSink()
    restored = RestoredCluster(holding(values, after, more), ManualClock(), again, per_epoch)
    restored.rows = list(rows)
    TOLD.clear()
    while not again.finished:
        restored.run_epoch()
    left = [row.value[1] for row in rows_of(again, "holds") if row.state == "held"]
    assert Counter(sink.values) + Counter(more.values) + Counter(left) == Counter(v for v in values if v != "out")
    opened = [told for told in TOLD if told[0] == "open"]
    seen = sorted((row.key, row.value) for row in rows if row.state == "seen")
    union = [element for _, (_, element) in seen]
    held = [told[2] for told in opened]
    if rows:
        assert all(told[3] == union for told in opened), "all elements, in their order, in all subtasks"
        assert len(opened) == after
        assert sorted(value for some in held for value in some) == sorted(r.value[1] for r in rows if r.state == "held")
        names = [("a", 1)] if any(row.state == "names" for row in rows) else []
        assert all(told[4] in ([], names) for told in opened)
        sizes = sorted(map(len, held))
        # each list is dealt out evenly
        assert before == after or sizes[-1] - sizes[0] <= before


def test_snapshots_are_taken_at_the_end_of_each_epoch_and_the_state_is_there_before_open() -> None:
    TOLD.clear()
    job, store = holding([1, 2, 3, "out"], 1, TestingSink()), StateStore()
    run(job, 1, store=store, restart_every=2)
    assert [told[2] for told in TOLD if told[0] == "snapshot"] == [0, 1, 2, 3]
    assert [told[2:] for told in TOLD if told[0] == "open"] == [
        ([], [], [], (False, None)),
        ([1, 2], [2], [("a", 1)], (True, 1)),
    ]


def test_an_epoch_that_fails_leaves_nothing_in_operator_state() -> None:
    class Fails(Holds):
        def flat_map(self, value: Any) -> Any:
            found = super().flat_map(value)
            if value == 3 and FAILS:
                FAILS.clear()
                raise ValueError(value)
            return found

    FAILS = [1]
    sink = TestingSink()
    env = environment(1)
    stream = env.from_source(list_source([1, 2, 3, "out"]), WatermarkStrategy.no_watermarks(), "source")
    stream.rebalance().flat_map(Fails()).uid("holds").sink_to(sink)
    store = StateStore()
    cluster = MiniCluster(job_of(env), ManualClock(), store, 2)
    cluster.run_epoch()
    with pytest.raises(UserCodeError):
        cluster.run_epoch()
    cluster.run_epoch()
    assert sink.values == [1, 2, 3]


@pytest.mark.parametrize("per_epoch", [1, 2, 10])
def test_behind_a_source_it_has_a_task_of_its_own(per_epoch: int) -> None:
    """Tasks of sources keep nothing between epochs."""
    env, sink = environment(1), TestingSink()
    stream = env.from_source(list_source([1, 2, "out"]), WatermarkStrategy.no_watermarks(), "source")
    stream.map(lambda v: v).flat_map(Holds()).uid("holds").sink_to(sink)
    run(job_of(env), per_epoch, restart_every=1)
    assert sink.values == [1, 2]


class KeyedHolds(KeyedProcessFunction, CheckpointedFunction):
    """Keyed state and operator state beside each other; raises for negative numbers after it has changed both."""

    def initialize_state(self, context: Any) -> None:
        self.count = context.get_keyed_state_store().get_state(ValueStateDescriptor("count", Types.LONG()))
        self.all = context.get_operator_state_store().get_list_state(
            ListStateDescriptor("all", Types.PICKLED_BYTE_ARRAY())
        )

    def process_element(self, value: int, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        self.all.add([value])
        if value % 5 == 0:
            self.all.update([[value], [value]])
        for nested in self.all.get():
            nested.append("changed in place")
        if value < 0:
            raise ValueError(value)
        yield ctx.get_current_key(), self.count.value(), self.all.get()

    def snapshot_state(self, context: Any) -> None:
        pass


def test_a_failed_call_is_undone_in_operator_state_too() -> None:
    def results(values: list[int]) -> list[Any]:
        env, sink = environment(1), TestingSink()
        stream = env.from_source(list_source(values), WatermarkStrategy.no_watermarks(), "source")
        stream = stream.key_by(lambda v: abs(v) % 2).process(KeyedHolds()).uid("holds").on_error(OnError.skip())
        stream.sink_to(sink)
        run(job_of(env), 3, restart_every=1)
        return sink.values

    assert results([1, -1, 5, -5, 3, -10, -3, 7, 10]) == results([1, 5, 3, 7, 10])


class Listens(MapFunction, CheckpointListener):
    def map(self, value: int) -> int:
        TOLD.append(("map", value))
        return value

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        TOLD.append(("complete", checkpoint_id))

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        TOLD.append(("aborted", checkpoint_id))


@pytest.mark.parametrize("chained", [True, False])
@pytest.mark.parametrize("restart_every", [None, 1])
def test_listeners_hear_of_the_epoch_before_at_the_beginning_of_each(chained: bool, restart_every: int | None) -> None:
    TOLD.clear()
    env = environment(1)
    stream = env.from_source(list_source([1, 2, 3]), WatermarkStrategy.no_watermarks(), "source")
    (stream if chained else stream.rebalance()).map(Listens()).sink_to(TestingSink())
    run(job_of(env), 1, restart_every=restart_every)
    assert TOLD == [("map", 1), ("complete", 0), ("map", 2), ("complete", 1), ("map", 3)]


def test_a_listener_that_has_seen_an_epoch_fail_elsewhere_hears_of_it() -> None:
    fails = [2]

    def failing(value: int) -> int:
        if value in fails:
            fails.clear()
            raise ValueError(value)
        return value

    TOLD.clear()
    env = environment(1)
    stream = env.from_source(list_source([1, 2, 3]), WatermarkStrategy.no_watermarks(), "source")
    stream.map(Listens()).rebalance().map(failing).sink_to(TestingSink())
    cluster = MiniCluster(job_of(env, share_functions=True), ManualClock(), StateStore(), 1)
    # the task of the source outlives the failure of the other one
    cluster.dispose = lambda: None  # type: ignore[method-assign]
    cluster.run_epoch()
    with pytest.raises(UserCodeError):
        cluster.run_epoch()
    cluster.run_epoch()
    cluster.run_epoch()
    assert TOLD == [("map", 1), ("complete", 0), ("map", 2), ("aborted", 1), ("map", 2), ("complete", 1), ("map", 3)]


def test_a_restore_knows_the_states_without_any_record() -> None:
    found = states_of_program(holding([1], 1, TestingSink())).states["holds"]
    assert {name: state.kind for name, state in found.items()} == {
        "held": "operator_list",
        "seen": "operator_union_list",
        "names": "broadcast",
    }
    reader = RowReader(states_of_program(holding([1], 1, TestingSink())), {}, convert=True)
    bad = to_savepoint_row("holds", StateRow("seen", "operator_union_list", 1, 0, (0, "text")))
    assert reader.read(bad) is None
    assert "'text'" in next(iter(reader.found.values())).problem
    misplaced = to_savepoint_row("holds", StateRow("held", "operator_list", 1, 1, (0, 5)))
    assert reader.read(misplaced) is None


def asking(ask: Any) -> MapFunction:
    class Asks(MapFunction, CheckpointedFunction):
        def initialize_state(self, context: Any) -> None:
            ask(context)

        def snapshot_state(self, context: Any) -> None:
            pass

        def map(self, value: Any) -> Any:
            return value

    return Asks()


LIST = ListStateDescriptor("n", Types.LONG())
TTL = ListStateDescriptor("n", Types.LONG())
TTL.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
MAP = MapStateDescriptor("n", Types.LONG(), Types.LONG())
MISUSE: dict[str, tuple[Any, str]] = {
    "kind": (lambda s: (s.get_list_state(LIST), s.get_union_list_state(LIST)), "two kinds"),
    "type": (lambda s: s.get_list_state(MAP), "a MapStateDescriptor was given.*ListStateDescriptor"),
    "ttl": (lambda s: s.get_list_state(TTL), "time-to-live"),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_is_refused_in_words(name: str) -> None:
    ask, problem = MISUSE[name]
    env = environment(1)
    stream = env.from_source(list_source([1]), WatermarkStrategy.no_watermarks(), "source")
    stream.map(asking(lambda context: ask(context.get_operator_state_store()))).sink_to(TestingSink())
    with pytest.raises(StateAccessError, match=problem):
        run(job_of(env))


def test_keyed_state_needs_a_keyed_stream() -> None:
    env = environment(1)
    stream = env.from_source(list_source([1]), WatermarkStrategy.no_watermarks(), "source")
    ask = asking(lambda context: context.get_keyed_state_store().get_state(ValueStateDescriptor("n", Types.LONG())))
    stream.map(ask).sink_to(TestingSink())
    with pytest.raises(StateAccessError, match="KeyedStream"):
        run(job_of(env))


def test_functions_of_windows_and_joins_refuse_it() -> None:
    from flinkish.datastream.functions import ProcessWindowFunction, ReduceFunction

    class Window(ProcessWindowFunction, CheckpointedFunction):
        def process(self, key: Any, context: Any, elements: Any) -> Any:
            return []

        def initialize_state(self, context: Any) -> None:
            pass

        def snapshot_state(self, context: Any) -> None:
            pass

    class Reduces(ReduceFunction, CheckpointListener):
        def reduce(self, value1: Any, value2: Any) -> Any:
            return value1

    env = environment(1)
    stream = env.from_source(list_source([1]), bounded(), "source")
    windowed = stream.key_by(lambda v: v).count_window(1)
    with pytest.raises(ProgramError, match="Window.*CheckpointedFunction.*window"):
        windowed.process(Window())
    with pytest.raises(ProgramError, match="Reduces.*CheckpointListener.*window"):
        windowed.reduce(Reduces())
