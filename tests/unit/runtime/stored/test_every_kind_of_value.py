"""Whatever kind of value a program has: it is refused when it is stored, or equal when it is read, in every place where
values are stored."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flinkish.common import Configuration, Types, WatermarkStrategy
from flinkish.common.accumulators import ListAccumulator
from flinkish.core.time import TimeDomain
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.datastream.functions import AggregateFunction, KeyedProcessFunction, RuntimeContext
from flinkish.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from flinkish.errors import FlinkishError, StoredClassError, TypeMismatchError
from flinkish.runtime.job.accumulators import decode_accumulators, encode_accumulators
from flinkish.runtime.job.report import TaskHeader
from flinkish.runtime.operators.source_and_sink import decode_committables, encode_committables
from flinkish.runtime.state.changelog import Change, decode_changes, encode_changes
from flinkish.runtime.state.column_changes import ColumnChanges
from flinkish.runtime.state.keyed_body import KeyedBody
from flinkish.runtime.state.operator_state import OperatorState
from flinkish.runtime.state.saved.columns import stored_rows
from flinkish.runtime.state.saved.operator_states import StoredOperatorStates, decode_operator_states
from flinkish.runtime.state.saved.restore import decode_columns, encode_columns
from flinkish.runtime.state.saved.texts import (
    from_savepoint_columns,
    from_savepoint_row,
    to_savepoint_columns,
    to_savepoint_row,
)
from flinkish.runtime.state.state_rows import StateColumns, StateRow
from flinkish.runtime.state.state_table import InlineState
from flinkish.runtime.state.stored_state import StoredState
from flinkish.runtime.state.timer_queue import StoredTimers
from flinkish.runtime.stored.classes import ProgramClasses
from flinkish.runtime.stored.column_pickles import dumps_columns
from flinkish.runtime.stored.pickles import dumps, loads, loads_all
from flinkish.runtime.stored.texts import to_text
from flinkish.testing import End, Pause, ProgramTestHarness, TestingSink, TestingSource
from tests.support.rows import hold
from tests.unit.runtime.stored import kinds_of_values
from tests.unit.runtime.stored.kinds_of_values import VALUES, content

PROGRAM = ProgramClasses(modules=frozenset({kinds_of_values.__name__}))
IN_FILES = StoredState(classes=PROGRAM)


def keyed(value: Any, kind: str = "value", namespace: Any = None, key: Any = "k") -> bytes | None:
    state = InlineState(
        *({"kind": kind, "present": {namespace: ([key], [value])}, "removed": {}}[name] for name in InlineState._fields)
    )
    return KeyedBody({"s": state}).encode("uid 'u'", PROGRAM)


def of_operator(put: Callable[[OperatorState], Any]) -> bytes | None:
    state = OperatorState()
    put(state)
    return StoredOperatorStates({"u": state}, classes=PROGRAM).snapshot(0)


def in_operator(data: bytes | None, kind: str) -> Any:
    return decode_operator_states(data, None, "", PROGRAM)["u"][kind]["s"]


def broadcast(state: OperatorState, value: Any) -> None:
    state.broadcast("s")["k"] = value
    state.mark_broadcast("s")


def accumulated(value: Any) -> Any:
    accumulator: Any = ListAccumulator()
    accumulator.add(value)
    return accumulator


#: Where values are stored: how each is written, and how it is read.
PLACES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "keyed state": (keyed, lambda data: next(stored_rows(data, None, "", PROGRAM)).value),
    "list state": (
        lambda value: keyed((0, [value]), "list"), lambda data: next(stored_rows(data, None, "", PROGRAM)).value[0]
    ),
    "keyed state in files": (
        lambda value: IN_FILES.encoded([value, 1]), lambda data: IN_FILES.decoded(data.to_pylist())[0]
    ),
    "column of a table": (
        lambda value: dumps_columns(tuple, [[value, 1]], 2, PROGRAM),
        lambda data: loads_all(data.to_pylist(), "it", "", PROGRAM)[0][0],
    ),
    "operator state": (
        lambda value: of_operator(lambda state: state.put("s", value)), lambda data: in_operator(data, "operator")
    ),
    "broadcast state": (
        lambda value: of_operator(lambda state: broadcast(state, value)),
        lambda data: in_operator(data, "broadcast")["k"],
    ),
    "list of operator state": (
        lambda value: of_operator(lambda state: state.set_list("operator_list", "s", [], [value])),
        lambda data: in_operator(data, "operator_list")[0],
    ),
    "changelog": (
        lambda value: encode_changes(0, [Change("u", "s", "value", None, "k", None, (value,))], PROGRAM),
        lambda data: decode_changes(data, "", PROGRAM)[1][0].values[0],
    ),
    "changelog in columns": (
        lambda value: ColumnChanges("u", "s", [None], None, [pa.array(["k"])], [[value]], 1).encode(PROGRAM),
        lambda data: next(ColumnChanges.entries(data, PROGRAM))[4][0],
    ),
    "committable": (
        lambda value: encode_committables(0, [value], PROGRAM), lambda data: decode_committables(data, PROGRAM)[1][0]
    ),
    "accumulator": (
        lambda value: encode_accumulators({("", "a"): accumulated(value)}, PROGRAM),
        lambda data: decode_accumulators(data, PROGRAM)["", "a"].get_local_value()[0],
    ),
    "header of a task": (
        lambda value: TaskHeader("u", 0, 0, saved={"u": value}).encode(PROGRAM),
        lambda data: TaskHeader.decode(data, "", PROGRAM).saved["u"],
    ),
    "restored rows": (
        lambda value: encode_columns("u", StateColumns("s", "value", [None], ["k"], [value]), PROGRAM),
        lambda data: decode_columns(data, PROGRAM)[1].values[0],
    ),
    "row of a savepoint": (
        lambda value: to_savepoint_row("u", StateRow("s", "value", None, "k", value), PROGRAM),
        lambda data: from_savepoint_row(data, PROGRAM)[1].value,
    ),
    "column of a savepoint": (
        lambda value: to_savepoint_columns("u", StateColumns("s", "value", [None] * 2, ["k"] * 2, [value, 1]), PROGRAM),
        lambda data: from_savepoint_columns(data, PROGRAM).values[0],
    ),
}  # fmt: skip


def timer(key: Any, namespace: Any = None) -> bytes | None:
    stored = {"runs": {TimeDomain.EVENT_TIME.name: [(5, namespace, [key])]}, "deleted": {}, "taken_ms": {}}
    return KeyedBody({}, {"t": StoredTimers(*(stored.get(name, {}) for name in StoredTimers._fields))}).encode(
        "", PROGRAM
    )


def in_files(ids: list[bytes]) -> Any:
    return IN_FILES.decoded_groups(pa.array(ids, pa.large_binary()))[0]


#: The same for what is hashed: keys and namespaces.
PLACES_OF_KEYS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "key": (lambda key: keyed(1, key=key), lambda data: next(stored_rows(data, None, "", PROGRAM)).key),
    "namespace": (
        lambda key: keyed(1, namespace=key), lambda data: next(stored_rows(data, None, "", PROGRAM)).namespace
    ),
    "key in files": (
        lambda key: IN_FILES.ids([None], [key, "k"]), lambda data: in_files(data)[1]
    ),
    "namespace in files": (
        lambda key: IN_FILES.ids([key], ["k"] * 20), lambda data: in_files(data)[0]
    ),
    "key of a timer": (timer, lambda data: KeyedBody.decode(data, "", PROGRAM).timers["t"].runs["EVENT_TIME"][0][2][0]),
    "namespace of a timer": (
        lambda key: timer("k", key),
        lambda data: KeyedBody.decode(data, "", PROGRAM).timers["t"].runs["EVENT_TIME"][0][1],
    ),
    "key of a row of a savepoint": (
        lambda key: to_savepoint_row("u", StateRow("s", "value", key, key, 1), PROGRAM),
        lambda data: from_savepoint_row(data, PROGRAM)[1].key,
    ),
}  # fmt: skip


def outcomes(place: str, of: dict[str, Any] = PLACES) -> dict[str, str]:
    """Kind of value -> what becomes of one in a place."""
    write, read = of[place]
    found = {}
    for kind, make in VALUES.items():
        try:
            value = make()
        except Exception:
            continue  # another version of Python or of a library does not have it
        if of is PLACES_OF_KEYS and (not hashable(value) or type(value) in (list, tuple)):
            continue
        try:
            data = write(value)
        except (FlinkishError, TypeError, AttributeError):
            found[kind] = "refused"
            continue
        try:
            same = content(read(data)) == content(value)
        except Exception as error:
            found[kind] = f"unreadable: {type(error).__name__}: {error}"[:200]
        else:
            found[kind] = "equal" if same else "another one"
    return found


def hashable(value: Any) -> bool:
    try:
        return value == value and isinstance(hash(value), int) and value is not None
    except Exception:
        return False


def wrong(found: dict[str, str]) -> dict[str, str]:
    return {kind: outcome for kind, outcome in found.items() if outcome not in ("refused", "equal")}


@pytest.mark.parametrize("place", PLACES)
def test_a_value_is_refused_when_it_is_stored_or_equal_when_it_is_read(place: str) -> None:
    found = outcomes(place)
    assert len(found) > 550 and wrong(found) == {}
    read = [kind for kind, outcome in found.items() if outcome == "equal"]
    assert len(read) >= 300, "values that were stored once can be stored"
    assert {
        "Ellipsis",
        "NotImplemented",
        "holds itself: tree",
        "holds itself: dataclass",
        "UUID",
        "window of the program",
        "numpy array of longlong",
        "member of an enum with names of its own",
    } <= set(read)
    refused = {kind for kind in found if kind.endswith(": refused")} | {"holds itself: hashed pairs"}
    assert len(refused) == 10 and refused.isdisjoint(read), "its class has stored another object before"


@pytest.mark.parametrize("place", PLACES_OF_KEYS)
def test_a_key_is_refused_when_it_is_stored_or_equal_when_it_is_read(place: str) -> None:
    found = outcomes(place, PLACES_OF_KEYS)
    assert wrong(found) == {} and list(found.values()).count("equal") >= 100


def test_what_is_refused_in_one_place_is_refused_in_all_that_hold_the_state_of_the_job() -> None:
    """Each with the smallest value of its kind of refusal."""
    refused = {
        "lambda": StoredClassError,
        "object with a list as its state": StoredClassError,
        "lock": (TypeError, TypeMismatchError, StoredClassError),
    }

    def check(place: str, kind: str) -> None:
        with pytest.raises(refused[kind]):
            PLACES[place][0](VALUES[kind]())

    hold(check, ((place, kind) for place in PLACES for kind in refused))


def test_the_error_for_what_could_not_be_read_names_it_and_says_why() -> None:
    for kind, message in {
        "object with a list as its state": "a StateIsList could not be read again: state is not a dictionary",
        "object with a false state": "a FalseState could not be read again: pickle does not set",
        "Row of the program": "a OwnRow could not be read again: it would be a Row",
        "keyed": "a Keyed could not be read again|a Keyed cannot be stored",
    }.items():
        with pytest.raises(StoredClassError, match=rf"state 's', the value of key 'k': {message}.*\[uid 'u'\]"):
            keyed(VALUES.get(kind, VALUES["holds itself: keyed by content"])())


def test_a_class_whose_first_object_is_fine_may_still_hold_itself_where_it_is_hashed() -> None:
    good = kinds_of_values.Keyed("a")
    assert loads(dumps(good, 2, PROGRAM), 2, "it", "", PROGRAM) == good
    for _ in range(2):
        with pytest.raises(StoredClassError, match="has no attribute 'name'"):
            dumps(VALUES["holds itself: keyed by content"](), 2, PROGRAM)


# --------------------------------------------------------------------------------------------------- in a program


class Keeps(KeyedProcessFunction):
    """Puts the value of a name into three states, and says later whether it is there."""

    def open(self, context: RuntimeContext) -> None:
        """Get the states."""
        anything = Types.PICKLED_BYTE_ARRAY()
        self.value = context.get_state(ValueStateDescriptor("value", anything))
        self.list = context.get_list_state(ListStateDescriptor("list", anything))
        self.map = context.get_map_state(MapStateDescriptor("map", Types.STRING(), anything))

    def process_element(self, value: Any, ctx: Any) -> Any:
        """Put, or look."""
        name, step = value
        if step == "put":
            self.value.update(VALUES[name]())
            self.list.add(VALUES[name]())
            self.map.put("k", VALUES[name]())
        else:
            there = [self.value.value(), *self.list.get(), self.map.get("k")]
            yield name, [content(found) == content(VALUES[name]()) for found in there]


class Both(AggregateFunction):
    """Says whether the two values that a window has are the same, of which the first was kept."""

    def create_accumulator(self) -> Any:
        """Nothing."""
        return "", []

    def add(self, value: Any, accumulator: Any) -> Any:
        """Make the value."""
        return value[0], [*accumulator[1], VALUES[value[0]]()]

    def get_result(self, accumulator: Any) -> Any:
        """Compare."""
        name, values = accumulator
        return name, [content(found) == content(VALUES[name]()) for found in values]

    def merge(self, a: Any, b: Any) -> Any:
        """Counted windows are not merged."""
        raise AssertionError


def program(
    names: list[str], inline: str, parallelism: int
) -> tuple[StreamExecutionEnvironment, TestingSink, TestingSink]:
    config = {"execution.target": "minicluster", "flinkish.state.inline-size": inline, "flinkish.progress": "never"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(config))
    env.set_parallelism(parallelism)
    kept, both = TestingSink(), TestingSink()
    steps = [*((name, "put") for name in names), Pause(), *((name, "get") for name in names), End()]
    stream = env.from_source(TestingSource(*steps), WatermarkStrategy.no_watermarks(), "names").uid("names")
    keyed_by_name = stream.key_by(lambda value: value[0])
    keyed_by_name.process(Keeps()).uid("keeps").sink_to(kept).uid("kept")
    keyed_by_name.count_window(2).aggregate(Both()).uid("window").sink_to(both).uid("both")
    return env, kept, both


@cache
def storable() -> list[str]:
    found = []
    for name, make in VALUES.items():
        try:
            to_text(make(), PROGRAM)
        except Exception:
            continue
        found.append(name)
    return found


@pytest.mark.parametrize("inline", ["64 mb", "0 b"], ids=["in memory", "in files"])
def test_what_a_program_keeps_is_there_after_a_crash_and_behind_a_savepoint(inline: str, tmp_path: Path) -> None:
    names = storable()
    expected = tuple(sorted((name, [True] * count) for name in names) for count in (3, 2))
    env, kept, both = program(names, inline, 1)
    with ProgramTestHarness(env, state_directory=str(tmp_path / "one")) as harness:
        harness.run_epoch()
        harness.crash()
        savepoint = harness.savepoint()
        harness.run()
    assert (sorted(kept.values), sorted(both.values)) == expected
    env, kept, both = program(names, inline, 2)
    with ProgramTestHarness(env, restored=savepoint, state_directory=str(tmp_path / "two")) as harness:
        harness.run()
    assert (sorted(kept.values), sorted(both.values)) == expected


@pytest.mark.parametrize("inline", ["64 mb", "0 b"], ids=["in memory", "in files"])
@pytest.mark.parametrize("kind", ["lambda", "object with a list as its state", "UUID without its field", "lock"])
def test_what_a_program_cannot_keep_fails_the_epoch_that_stores_it(kind: str, inline: str, tmp_path: Path) -> None:
    env, kept, both = program([kind], inline, 1)
    with ProgramTestHarness(env, state_directory=str(tmp_path)) as harness:
        for _ in range(2):
            with pytest.raises(FlinkishError, match="uid (keeps|window)"):
                harness.run_epoch()
        assert kept.values == both.values == [] and harness.next_epoch == 0
