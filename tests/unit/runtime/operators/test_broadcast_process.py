"""Functions over a stream and a broadcast stream, keyed or not."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common.time import Time
from flinkish.common.typeinfo import Types
from flinkish.core.co_functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction, KeyedStateFunction
from flinkish.core.functions import OutputTag, RuntimeContext
from flinkish.core.state import ListStateDescriptor, MapStateDescriptor, StateTtlConfig, ValueStateDescriptor
from flinkish.core.time import MIN_TIMESTAMP_MS, TimeDomain
from flinkish.errors import StateAccessError
from flinkish.runtime.operators.broadcast import BroadcastProcessFactory, KeyedBroadcastProcessFactory
from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.limits import ManagedMemory
from flinkish.testing import BroadcastOperatorTestHarness, KeyedBroadcastOperatorTestHarness, StreamRecord, Watermark
from tests.support.profiles import examples

RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())
OTHER = MapStateDescriptor("other", Types.STRING(), Types.INT())
ANY = Types.PICKLED_BYTE_ARRAY()
TAG = OutputTag("side")


class Apply(BroadcastProcessFunction[Any, Any, Any]):
    """Numbers times the factor of their name; rules are (name, factor), factor None: the rule is over."""

    def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterable[Any]:
        factor = ctx.get_broadcast_state(RULES).get(value[0])
        yield (TAG, value) if factor is None else (value[0], value[1] * factor, ctx.timestamp())

    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> Any:
        rules = ctx.get_broadcast_state(RULES)
        if value[1] is None:
            rules.remove(value[0])
        else:
            rules.put(*value)
        return [("rules", sorted(rules.items()), ctx.current_watermark())]


def broadcast(function: BroadcastProcessFunction[Any, Any, Any], **options: Any) -> BroadcastOperatorTestHarness:
    return BroadcastOperatorTestHarness(BroadcastProcessFactory(function, (RULES, OTHER)), **options)


def test_broadcast_elements_change_what_records_are_processed_with() -> None:
    with broadcast(Apply(), side_outputs=("side",)) as harness:
        harness.process_element(("a", 1), 5)
        harness.process_both_watermarks(7)
        harness.process_broadcast_element(("a", 10), 8)
        harness.process_elements([("a", 2), ("b", 3)], [9, 10])
        harness.process_broadcast_element(("a", None), None)
        harness.process_element(("a", 4))
        assert harness.take_output() == [
            Watermark(7),
            StreamRecord(("rules", [("a", 10)], 7), 8),
            StreamRecord(("a", 20, 9), 9),
            StreamRecord(("rules", [], 7), None),
        ]
        assert harness.output.sides == {"side": [(("a", 1), 5), (("b", 3), 10), (("a", 4), None)]}


def test_broadcast_state_outlives_a_barrier_and_is_written_only_if_it_has_changed() -> None:
    with broadcast(Apply()) as harness:
        assert not harness.operator_state.changed
        harness.process_broadcast_element(("a", 10))
        assert harness.operator_state.changed_names() == [("broadcast", "rules")]
        stored = harness.snapshot()
        assert stored.operator_state == {"broadcast": {"rules": {"a": 10}}}
        harness.process_element(("a", 1))
        assert not harness.operator_state.changed
    with broadcast(Apply(), restored=stored) as harness:
        harness.process_element(("a", 2))
        assert harness.take_values() == [("a", 20, MIN_TIMESTAMP_MS)]


def test_a_broadcast_state_works_like_a_dict() -> None:
    seen: list[Any] = []

    class Look(Apply):
        def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Any:
            rules = ctx.get_broadcast_state(RULES)
            seen.append((list(rules), rules["a"], "a" in rules, "x" in rules, rules.contains("b"), rules.is_empty()))
            seen.append((list(rules.keys()), list(rules.values()), list(rules.items()), rules.get("x")))

        def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> Any:
            rules = ctx.get_broadcast_state(RULES)
            rules.put_all({"c": 3, "a": 1})
            rules["b"] = 2
            del rules["c"]
            del rules["never there"]
            ctx.get_broadcast_state(OTHER).put("o", 1)
            ctx.get_broadcast_state(OTHER).clear()

    with broadcast(Look()) as harness:
        harness.process_broadcast_element(None)
        harness.process_element(None)
        assert harness.snapshot().operator_state == {"broadcast": {"rules": {"a": 1, "b": 2}}}
    assert seen == [(["a", "b"], 1, True, False, True, False), (["a", "b"], [1, 2], [("a", 1), ("b", 2)], None)]


def test_only_a_broadcast_element_changes_an_object_in_the_state_in_place() -> None:
    lists = MapStateDescriptor("lists", Types.STRING(), ANY)

    class Change(BroadcastProcessFunction[Any, Any, Any]):
        def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Any:
            found = ctx.get_broadcast_state(lists).get("a")
            found.append("changed")
            for _, listed in ctx.get_broadcast_state(lists).items():
                listed.append("changed, too")
            return [ctx.get_broadcast_state(lists).get("a")]

        def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> Any:
            ctx.get_broadcast_state(lists).put("a", value)
            value.append("in its call")

    with BroadcastOperatorTestHarness(BroadcastProcessFactory(Change(), (lists,))) as harness:
        harness.process_broadcast_element([1])
        harness.process_element(None)
        assert harness.take_values() == [[1, "in its call"]]


@pytest.mark.parametrize(
    "write",
    [
        lambda state: state.put("a", 1),
        lambda state: state.put_all({"a": 1}),
        lambda state: state.remove("a"),
        lambda state: state.clear(),
        lambda state: state.__setitem__("a", 1),
        lambda state: state.__delitem__("a"),
    ],
)
def test_only_the_broadcast_side_writes(write: Any) -> None:
    class Writes(Apply):
        def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Any:
            write(ctx.get_broadcast_state(RULES))

    with pytest.raises(StateAccessError, match=r"'rules' was changed while no broadcast element.*operator 'tested'"):
        with broadcast(Writes()) as harness:
            harness.process_broadcast_element(("a", 1))
            harness.process_element("a")


def test_a_handle_that_the_broadcast_side_has_kept_cannot_be_written_to_by_the_other_side() -> None:
    class Keeps(Apply):
        def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Any:
            self.kept.put("b", 2)

        def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> Any:
            self.kept = ctx.get_broadcast_state(RULES)

    with pytest.raises(StateAccessError, match="only in process_broadcast_element"):
        with broadcast(Keeps()) as harness:
            harness.process_broadcast_element("a")
            harness.process_element("a")


@pytest.mark.parametrize(
    ("descriptor", "message"),
    [
        (MapStateDescriptor("rulez", Types.STRING(), Types.INT()), "does not exist: broadcast state 'rulez'.*'rules'"),
        (MapStateDescriptor("rules", Types.STRING(), Types.STRING()), "'rules' was asked for as .*same descriptor"),
        (ValueStateDescriptor("rules", Types.INT()), "a ValueStateDescriptor was given.*a MapStateDescriptor"),
    ],
)
def test_a_state_that_was_not_broadcast_is_refused(descriptor: Any, message: str) -> None:
    class Asks(Apply):
        def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Any:
            ctx.get_broadcast_state(descriptor)

    with pytest.raises(StateAccessError, match=message), broadcast(Asks()) as harness:
        harness.process_element("a")


# --- keyed ----------------------------------------------------------------------------------------------------------

TOTAL = ValueStateDescriptor("total", Types.LONG())


class Limits(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """Sums ``(key, number)``; tells a key at once whose sum is above the limit, which comes as ``("limit", number)``,
    and when 10 ms have passed. ``("reset", None)`` halves all sums."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(TOTAL)

    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Iterable[Any]:
        self.total.update((self.total.value() or 0) + value[1])
        limit = ctx.get_broadcast_state(RULES).get("limit")
        if limit is not None and self.total.value() > limit:
            ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10)
            yield ctx.get_current_key(), self.total.value()

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> Any:
        if value[0] == "limit":
            ctx.get_broadcast_state(RULES).put(*value)
            return None
        keys = []

        def halve(key: Any, state: Any) -> None:
            keys.append((key, state.value()))
            if state.value() > 1:
                state.update(state.value() // 2)
            else:
                state.clear()

        ctx.apply_to_keyed_state(TOTAL, halve)
        return [sorted(keys)]

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Iterable[Any]:
        assert ctx.time_domain() is TimeDomain.EVENT_TIME
        yield ctx.get_current_key(), self.total.value(), ctx.get_broadcast_state(RULES).get("limit")


def limits(function: KeyedBroadcastProcessFunction[Any, Any, Any, Any] | None = None, **options: Any) -> Any:
    factory = KeyedBroadcastProcessFactory(function or Limits(), (RULES,))
    return KeyedBroadcastOperatorTestHarness(factory, lambda value: value[0], **options)


def test_keyed_state_timers_and_broadcast_state_work_together() -> None:
    with limits() as harness:
        harness.process_element(("a", 5), 1)
        harness.process_broadcast_element(("limit", 7), 2)
        harness.process_elements([("a", 3), ("b", 7)], [3, 4])
        harness.process_broadcast_element(("limit", 9), 5)
        harness.process_both_watermarks(20)
        assert harness.take_output() == [StreamRecord(("a", 8), 3), StreamRecord(("a", 8, 9), 13), Watermark(20)]


def test_the_broadcast_side_reaches_the_state_of_all_keys() -> None:
    with limits() as harness:
        harness.process_elements([("a", 5), ("b", 1), ("c", 8)])
        harness.process_broadcast_element(("reset", None))
        assert harness.take_values() == [[("a", 5), ("b", 1), ("c", 8)]]
        stored = harness.snapshot()
    with limits(restored=stored) as harness:
        harness.process_broadcast_element(("reset", None))
        assert harness.take_values() == [[("a", 2), ("c", 4)]]


def test_state_that_expires_goes_on_to_expire_when_the_broadcast_side_has_reached_it() -> None:
    expiring = ValueStateDescriptor("total", Types.LONG())
    expiring.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(100)).build())
    seen: list[Any] = []

    class Expires(Limits):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.total = runtime_context.get_state(expiring)

        def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> Any:
            # the descriptor says nothing of a time-to-live
            ctx.apply_to_keyed_state(TOTAL, lambda key, state: seen.append((key, state.value())))

    with limits(Expires()) as harness:
        harness.process_element(("a", 1))
        harness.set_processing_time(50)
        harness.process_element(("b", 2))
        harness.process_broadcast_element(None)
        harness.set_processing_time(120)
        harness.process_broadcast_element(None)
    assert dict(seen[:2]) == {"a": 1, "b": 2} and dict(seen[2:]) == {"a": None, "b": 2}


def test_keys_are_reached_in_an_order_that_does_not_depend_on_how_they_came() -> None:
    orders = []
    for keys in ("abcdef", "fedcba"):
        seen: list[Any] = []

        class Sees(Limits):
            def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> Any:
                ctx.apply_to_keyed_state(TOTAL, lambda key, state, seen=seen: seen.append(key))  # noqa: B023

        with limits(Sees()) as harness:
            harness.process_elements([(key, 1) for key in keys])
            harness.process_broadcast_element(None)
        orders.append(seen)
    assert orders[0] == orders[1] and sorted(orders[0]) == list("abcdef")


def test_a_keyed_state_function_is_an_object_or_a_callable() -> None:
    class Clear(KeyedStateFunction):
        def process(self, key: Any, state: Any) -> None:
            state.clear()

    class Function(Limits):
        def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> Any:
            ctx.apply_to_keyed_state(TOTAL, Clear())

    with limits(Function()) as harness:
        harness.process_element((["a", "list"], 5))
        harness.process_broadcast_element(None)
        assert harness.snapshot().keyed_state is None


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 9)),
            st.sampled_from(["reset", "barrier", "release"]),
        ),
        max_size=40,
    )
)
def test_all_keys_are_reached_whether_their_state_is_in_memory_or_in_files(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    directory = StateDirectory(str(tmp_path_factory.mktemp("state")))
    backend = KeyedStateBackend("files", directory=directory, inline_bytes=1, memory=ManagedMemory(1))
    totals: dict[str, int] = {}
    with limits() as harness:
        harness.backend = backend
        harness.operator.context.keyed_state = backend
        harness.operator.setup(harness.operator.context, harness.output)
        harness.operator.open()
        for step in steps:
            if step == "barrier":
                backend.snapshot()
            elif step == "release":
                backend.make_room()
            elif step == "reset":
                harness.process_broadcast_element((step, None))
                assert harness.take_values() == [sorted(totals.items())]
                totals = {key: total // 2 for key, total in totals.items() if total > 1}
            else:
                harness.process_element(step)
                totals[step[0]] = totals.get(step[0], 0) + step[1]


def test_the_broadcast_side_has_no_current_key() -> None:
    class Uses(Limits):
        def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> Any:
            self.total.update(1)

    with pytest.raises(StateAccessError, match="'total' was used while no record is processed"):
        with limits(Uses()) as harness:
            harness.process_element(("a", 1))
            harness.process_broadcast_element(("b", 1))


@pytest.mark.parametrize("where", ["process_element", "on_timer"])
def test_neither_records_nor_timers_write_to_broadcast_state(where: str) -> None:
    class Writes(Limits):
        def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Any:
            ctx.timer_service().register_event_time_timer(1)
            if where == "process_element":
                ctx.get_broadcast_state(RULES).put("a", 1)  # type: ignore[attr-defined]

        def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Any:
            ctx.get_broadcast_state(RULES).clear()

    with pytest.raises(StateAccessError, match="'rules' was changed while no broadcast element is processed"):
        with limits(Writes()) as harness:
            harness.process_broadcast_element(("limit", 1))
            harness.process_element(("b", 1))
            harness.process_both_watermarks(5)


def test_one_name_is_not_for_keyed_and_broadcast_state() -> None:
    class Same(Limits):
        def open(self, runtime_context: RuntimeContext) -> None:
            runtime_context.get_list_state(ListStateDescriptor("rules", ANY))

    with pytest.raises(StateAccessError, match="'rules' is declared as keyed state and as broadcast state"):
        limits(Same())


def test_only_a_function_that_reacts_to_processing_time_timers_asks_for_epochs_without_data(tmp_path: Path) -> None:
    class WithoutTimers(KeyedBroadcastProcessFunction):
        process_element = Limits.process_element
        process_broadcast_element = Limits.process_broadcast_element

    class Processing(Limits):
        def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Any:
            ctx.timer_service().register_processing_time_timer(1)

    uses = [KeyedBroadcastProcessFactory(f, (RULES,)).has_timers for f in (WithoutTimers(), Processing())]
    assert uses == [False, True]


@pytest.mark.parametrize("keys", [[f"k{i}" for i in range(500)], list(range(500)), [("a", i) for i in range(500)]])
def test_the_order_of_the_keys_is_the_same_in_memory_and_in_files(tmp_path: Path, keys: list[Any]) -> None:
    orders = []
    for directory in (None, StateDirectory(str(tmp_path))):
        backend = KeyedStateBackend("", directory=directory, inline_bytes=1, memory=ManagedMemory(1))
        table = backend.table("total", "value")
        for part in (keys[:300], keys[200:400], keys[400:]):
            table.namespace(None).update(dict.fromkeys(part, 1))
            table.mark_all(None, part)
            if part is not keys[400:] and directory is not None:
                backend.snapshot()
        table.fetch(None, keys[10:12])
        for removed in keys[10:12]:
            table.remove(None, removed)
        orders.append([key for batch in backend.key_batches("total") for key in batch])
    assert orders[0] == orders[1]
    assert sorted(orders[0]) == sorted(keys[:10] + keys[12:])


def test_a_map_or_list_of_many_rows_is_one_key(tmp_path: Path) -> None:
    backend = KeyedStateBackend("", directory=StateDirectory(str(tmp_path)), inline_bytes=1)
    maps = backend.partitioned_state(MapStateDescriptor("maps", ANY, ANY))
    lists = backend.partitioned_state(ListStateDescriptor("lists", ANY))
    for key in ("a", "b"):
        backend.current_key = key
        maps.put_all(dict.fromkeys(range(1_000), 1))  # type: ignore[attr-defined]
        for _ in range(3):
            lists.add(1)  # type: ignore[attr-defined]
            backend.snapshot()
    for name in ("maps", "lists"):
        assert sorted(key for batch in backend.key_batches(name) for key in batch) == ["a", "b"]
