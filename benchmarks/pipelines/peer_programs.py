"""Small programs, one per operator of the DataStream API, that flinkish and PyFlink run alike.

Only the package they import differs (`keyed_programs.Package`). Each takes the clicks as tuples (user, time, amount,
logged in) and emits tuples (user, number, count, amount). Of the figures over all results (`Figures`) each names
those that depend neither on the order of a user's clicks nor on when watermarks arrive: engines must agree on these.

Operators that `keyed_programs` has (aggregations in tumbling, sliding and session windows, timers, two keyed streams
connected) are not repeated here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, NamedTuple

from benchmarks.contract import WINDOW_MS
from benchmarks.data import EVENTS_PER_FILE, JITTER_MS
from benchmarks.pipelines.keyed_programs import Package, in_windows, logged_in_or_not, timed

COLUMNS = ("user_id", "ts", "amount", "logged_in")
#: Elements of a count window, or of a list in a ListState.
ELEMENTS = 10
#: The gap of a user's session: for logged-in users, for others.
GAPS_MS = (2_000, 4_000)
#: Amounts below the first bound come so late that they go to the side output; those below the second one come late, but
#: within the allowed lateness. Amounts are 0.25 to 99.75.
TOO_LATE_AMOUNT, LATE_AMOUNT = 2.0, 4.0
TOO_LATE_MS, LATE_MS, ALLOWED_LATENESS_MS = 600_000, 90_000, 120_000
#: Amounts of at least this much are rules that are broadcast.
RULE_AMOUNT = 99.0
#: Milliseconds for which an asynchronous call waits.
CALL_MS = 1
CAPACITY = 100


class Figures:
    """Figures of all results of a program: their number, the sums of their counts and amounts, and the highest amount.

    Example: `Figures().add([("u1", 0, 2, 0.5)]).chosen(("rows", "count")) == {"rows": 1, "count": 2}`.
    """

    def __init__(self, rows: int = 0, count: int = 0, amount: float = 0.0, highest: float = 0.0) -> None:
        self.rows, self.count, self.amount, self.highest = rows, count, amount, highest

    def add(self, results: list[Any]) -> Figures:
        """Add a batch of results."""
        amounts = list(map(_AMOUNT, results))
        return self.merge((len(results), sum(map(_COUNT, results)), sum(amounts), max(amounts, default=0.0)))

    def merge(self, other: Iterable[Any]) -> Figures:
        """Add the figures of another part of the results, in the form of `as_tuple`."""
        rows, count, amount, highest = other
        self.rows, self.count, self.amount = self.rows + rows, self.count + count, self.amount + amount
        self.highest = max(self.highest, highest)
        return self

    def as_tuple(self) -> tuple[int, int, float, float]:
        """The arguments of an equal `Figures`."""
        return self.rows, self.count, self.amount, self.highest

    def chosen(self, names: Iterable[str]) -> dict[str, Any]:
        """The figures with these names."""
        return {name: getattr(self, name) for name in names}


_COUNT, _AMOUNT = itemgetter(2), itemgetter(3)
_SUMS = ("rows", "count", "amount")
_COUNTS = ("rows", "count")


class Program(NamedTuple):
    """A program: the function that builds the stream of its results, and the figures on which engines must agree."""

    build: Callable[[Package, Any], Any]
    figures: tuple[str, ...]
    #: the clicks need timestamps and watermarks
    event_time: bool = False
    #: a third of the clicks is enough, as PyFlink would take minutes
    slow: bool = False

    def events(self, events: int) -> int:
        """The number of clicks of this program when others get ``events``; whole files."""
        return max(1, events // 3 // EVENTS_PER_FILE) * EVENTS_PER_FILE if self.slow else events


def add(package: str, name: str, clicks: Any, bound_ms: int) -> Any:
    """Append a program to a stream of clicks; ``bound_ms`` is the bound of its watermarks.

    Example: `add("pyflink", "count_window", clicks, 1_000).print()`.
    """
    api, program = Package(package), PROGRAMS[name]
    return program.build(api, timed(api, clicks, bound_ms) if program.event_time else clicks)


def _result(click: Any) -> Any:
    """A click in the form of a result."""
    return click[0], click[1], 1, click[2]


def _click_type(api: Package) -> Any:
    """The type of a click; a new one for each use, as PyFlink cannot pickle a tag whose type a stream has as well."""
    types = api.types
    return types.TUPLE([types.STRING(), types.LONG(), types.DOUBLE(), types.BOOLEAN()])


def _results(api: Package, clicks: Any) -> Any:
    return clicks.map(_result, api.result)


def stateless(api: Package, clicks: Any) -> Any:
    """map, flat_map and filter in one chain."""
    pairs = _results(api, clicks).flat_map(lambda one: (one, (one[0], 0, 2, one[3])), api.result)
    return pairs.filter(lambda one: one[1] or one[3] >= 50.0)


def union(api: Package, clicks: Any) -> Any:
    """The union of two streams."""
    first, second = logged_in_or_not(clicks)
    return _results(api, first.union(second))


def co_map(api: Package, clicks: Any) -> Any:
    """Two connected streams, each with its own map."""

    class Both(api.functions.CoMapFunction):  # type: ignore[misc, name-defined]
        def map1(self, value: Any) -> Any:
            return value[0], 1, 1, value[2]

        def map2(self, value: Any) -> Any:
            return value[0], 2, 2, value[2]

    first, second = logged_in_or_not(clicks)
    return first.connect(second).map(Both(), api.result)


def side_output(api: Package, clicks: Any) -> Any:
    """A ProcessFunction that sends half of its results to a side output."""
    tag = api.datastream.OutputTag("others", api.result_type())

    class Sort(api.datastream.ProcessFunction):  # type: ignore[misc, name-defined]
        def process_element(self, value: Any, ctx: Any) -> Any:
            if value[3]:
                yield _result(value)
            else:
                yield tag, (value[0], value[1], 2, value[2])

    sorted_clicks = clicks.process(Sort(), api.result)
    return sorted_clicks.union(sorted_clicks.get_side_output(tag))


def rolling_sum(api: Package, clicks: Any) -> Any:
    """The number of a user's clicks so far."""
    return api.by_key(_results(api, clicks)).sum(2)


def max_by(api: Package, clicks: Any) -> Any:
    """The click of a user with the highest amount so far."""
    return api.by_key(_results(api, clicks)).max_by(3)


def _stateful(api: Package, clicks: Any, opened: Callable[[Any], Any], processed: Callable[[Any, Any], Any]) -> Any:
    """A KeyedProcessFunction with the one state that ``opened`` creates; ``processed`` gives the results of a click."""

    class Stateful(api.datastream.KeyedProcessFunction):  # type: ignore[misc, name-defined]
        def open(self, runtime_context: Any) -> None:
            self.state = opened(runtime_context)

        def process_element(self, value: Any, ctx: Any) -> Any:
            return processed(self.state, value)

    return api.by_key(clicks).process(Stateful(), api.result)


def value_state_ttl(api: Package, clicks: Any) -> Any:
    """The number of a user's clicks so far, in a ValueState that expires after an hour."""
    descriptor = api.state.ValueStateDescriptor("count", api.types.LONG())
    descriptor.enable_time_to_live(api.state.StateTtlConfig.new_builder(api.ms(3_600_000)).build())

    def processed(state: Any, click: Any) -> Any:
        count = (state.value() or 0) + 1
        state.update(count)
        yield click[0], 0, count, click[2]

    return _stateful(api, clicks, lambda context: context.get_state(descriptor), processed)


def map_state(api: Package, clicks: Any) -> Any:
    """The number of a user's clicks so far with about the same amount: ten entries of a MapState."""
    descriptor = api.state.MapStateDescriptor("counts", api.types.LONG(), api.types.LONG())

    def processed(state: Any, click: Any) -> Any:
        tens = int(click[2]) // 10
        count = (state.get(tens) or 0) + 1
        state.put(tens, count)
        yield click[0], tens, count, click[2]

    return _stateful(api, clicks, lambda context: context.get_map_state(descriptor), processed)


def list_state(api: Package, clicks: Any) -> Any:
    """Ten clicks of a user at a time, collected in a ListState."""
    descriptor = api.state.ListStateDescriptor("amounts", api.types.DOUBLE())

    def processed(state: Any, click: Any) -> Any:
        state.add(click[2])
        amounts = list(state.get())
        if len(amounts) == ELEMENTS:
            state.clear()
            yield click[0], 0, len(amounts), sum(amounts)

    return _stateful(api, clicks, lambda context: context.get_list_state(descriptor), processed)


def reducing_state(api: Package, clicks: Any) -> Any:
    """The number of a user's clicks so far, in a ReducingState."""
    descriptor = api.state.ReducingStateDescriptor("count", lambda left, right: left + right, api.types.LONG())

    def processed(state: Any, click: Any) -> Any:
        state.add(1)
        yield click[0], 0, state.get(), click[2]

    return _stateful(api, clicks, lambda context: context.get_reducing_state(descriptor), processed)


def aggregating_state(api: Package, clicks: Any) -> Any:
    """The number of a user's clicks so far, in an AggregatingState."""

    class Count(api.functions.AggregateFunction):  # type: ignore[misc, name-defined]
        def create_accumulator(self) -> Any:
            return 0

        def add(self, value: Any, accumulator: Any) -> Any:
            return accumulator + 1

        def get_result(self, accumulator: Any) -> Any:
            return accumulator

        def merge(self, acc_a: Any, acc_b: Any) -> Any:
            return acc_a + acc_b

    descriptor = api.state.AggregatingStateDescriptor("count", Count(), api.types.LONG())

    def processed(state: Any, click: Any) -> Any:
        state.add(click[2])
        yield click[0], 0, state.get(), click[2]

    return _stateful(api, clicks, lambda context: context.get_aggregating_state(descriptor), processed)


def _summed(left: Any, right: Any) -> Any:
    return left[0], max(left[1], right[1]), left[2] + right[2], left[3] + right[3]


def _amounts(key: Any, number: int, elements: Any) -> Any:
    """The one result of a window that keeps all its elements."""
    amounts = [click[2] for click in elements]
    return key, number, len(amounts), sum(amounts)


def _all_elements(api: Package, windows: Any) -> Any:
    """Passes all elements of a time window to a function at once."""

    class AllElements(api.functions.ProcessWindowFunction):  # type: ignore[misc, name-defined]
        def process(self, key: Any, context: Any, elements: Any) -> Any:
            yield _amounts(key, context.window().start, elements)

    return windows.process(AllElements(), api.result)


def _counted(api: Package, windows: Any) -> Any:
    """Passes all elements of a count window to a function at once."""

    class AllElements(api.functions.WindowFunction):  # type: ignore[misc, name-defined]
        def apply(self, key: Any, window: Any, inputs: Any) -> Any:
            yield _amounts(key, 0, inputs)

    return windows.apply(AllElements(), api.result)


def count_window(api: Package, clicks: Any) -> Any:
    """Ten clicks of a user at a time, passed to a window function at once."""
    return _counted(api, api.by_key(clicks).count_window(ELEMENTS))


def count_sliding(api: Package, clicks: Any) -> Any:
    """The last ten clicks of a user, after every five."""
    assigner = api.window.CountSlidingWindowAssigner.of(ELEMENTS, ELEMENTS // 2)
    return _counted(api, api.by_key(clicks).window(assigner))


def global_window(api: Package, clicks: Any) -> Any:
    """Ten clicks of a user at a time, in a global window whose trigger purges it."""
    trigger = api.window.PurgingTrigger.of(api.window.CountTrigger.of(ELEMENTS))
    windows = api.by_key(_results(api, clicks)).window(api.window.GlobalWindows.create()).trigger(trigger)
    return windows.reduce(_summed)


def _minute(api: Package) -> Any:
    return api.window.TumblingEventTimeWindows.of(api.ms(WINDOW_MS))


def window_process(api: Package, clicks: Any) -> Any:
    """Windows of a minute whose elements are passed to a function at once."""
    return _all_elements(api, api.by_key(clicks).window(_minute(api)))


def window_lateness(api: Package, clicks: Any) -> Any:
    """Windows of a minute; some clicks come late but within the allowed lateness, others go to a side output.

    Each firing clears the elements, so that a click is counted once.
    """
    delayed = clicks.map(lambda click: (click[0], click[1] - _delay_ms(click[2]), click[2], click[3]), _click_type(api))
    tag = api.datastream.OutputTag("late", _click_type(api))
    windows = (
        api.by_key(timed(api, delayed, JITTER_MS))
        .window(_minute(api))
        .trigger(api.window.PurgingTrigger.of(api.window.EventTimeTrigger.create()))
        .allowed_lateness(ALLOWED_LATENESS_MS)
        .side_output_late_data(tag)
    )
    results = _all_elements(api, windows)
    return results.union(_results(api, results.get_side_output(tag)))


def _delay_ms(amount: float) -> int:
    return TOO_LATE_MS if amount < TOO_LATE_AMOUNT else LATE_MS if amount < LATE_AMOUNT else 0


def dynamic_session(api: Package, clicks: Any) -> Any:
    """Sessions whose gap depends on each click."""

    class Gap(api.window.SessionWindowTimeGapExtractor):  # type: ignore[misc, name-defined]
        def extract(self, element: Any) -> int:
            return GAPS_MS[0] if element[3] else GAPS_MS[1]

    return in_windows(api, clicks, api.window.EventTimeSessionWindows.with_dynamic_gap(Gap()))


def window_all(api: Package, clicks: Any) -> Any:
    """Windows of a minute over all users."""
    return _results(api, clicks).window_all(_minute(api)).reduce(_summed)


def broadcast(api: Package, clicks: Any) -> Any:
    """The number of a user's clicks so far, marked by a broadcast rule that changes with one click in a hundred."""
    types = api.types
    rules = api.state.MapStateDescriptor("rules", types.STRING(), types.DOUBLE())
    count = api.state.ValueStateDescriptor("count", types.LONG())

    class Rules(api.functions.KeyedBroadcastProcessFunction):  # type: ignore[misc, name-defined]
        def open(self, runtime_context: Any) -> None:
            self.count = runtime_context.get_state(count)

        def process_element(self, value: Any, ctx: Any) -> Any:
            clicks_before = self.count.value() or 0
            self.count.update(clicks_before + 1)
            bound = ctx.get_broadcast_state(rules).get("bound") or 0.0
            yield value[0], int(value[2] > bound), clicks_before + 1, value[2]

        def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
            ctx.get_broadcast_state(rules).put("bound", value[2] / 100)
            return ()

    changes = clicks.filter(lambda click: click[2] >= RULE_AMOUNT).broadcast(rules)
    return api.by_key(clicks).connect(changes).process(Rules(), api.result)


def _called(api: Package, clicks: Any, call_ms: int) -> Any:
    class Call(api.datastream.AsyncFunction):  # type: ignore[misc, name-defined]
        async def async_invoke(self, value: Any) -> Any:
            if call_ms:
                await asyncio.sleep(call_ms / 1_000)
            return [_result(value)]

        def timeout(self, value: Any) -> Any:
            return []

    stream = api.datastream.AsyncDataStream
    return stream.unordered_wait(clicks, Call(), api.ms(60_000), CAPACITY, api.result)


def async_at_once(api: Package, clicks: Any) -> Any:
    """Asynchronous calls that return at once."""
    return _called(api, clicks, 0)


def async_call(api: Package, clicks: Any) -> Any:
    """Asynchronous calls that wait for a millisecond, 100 at a time."""
    return _called(api, clicks, CALL_MS)


def partition_custom(api: Package, clicks: Any) -> Any:
    """Clicks go to the subtask that a function chooses."""
    chosen = clicks.partition_custom(lambda user, partitions: int(user[1:]) % partitions, lambda click: click[0])
    return _results(api, chosen)


def rebalance(api: Package, clicks: Any) -> Any:
    """Clicks go to one subtask after the other."""
    return _results(api, clicks.rebalance())


PROGRAMS: dict[str, Program] = {
    "stateless": Program(stateless, _SUMS),
    "union": Program(union, _SUMS),
    "co_map": Program(co_map, _SUMS),
    "side_output": Program(side_output, _SUMS),
    "rebalance": Program(rebalance, _SUMS),
    "partition_custom": Program(partition_custom, _SUMS),
    "rolling_sum": Program(rolling_sum, _COUNTS),
    "max_by": Program(max_by, ("rows", "highest")),
    "value_state_ttl": Program(value_state_ttl, _SUMS, slow=True),
    "map_state": Program(map_state, _SUMS),
    "list_state": Program(list_state, _COUNTS),
    "reducing_state": Program(reducing_state, _SUMS),
    "aggregating_state": Program(aggregating_state, _SUMS),
    "broadcast": Program(broadcast, _SUMS),
    "count_window": Program(count_window, _COUNTS),
    "count_sliding": Program(count_sliding, _COUNTS, slow=True),
    "global_window": Program(global_window, _COUNTS),
    "window_process": Program(window_process, _SUMS, event_time=True),
    "window_lateness": Program(window_lateness, ("count", "amount")),
    "dynamic_session": Program(dynamic_session, _SUMS, event_time=True, slow=True),
    "window_all": Program(window_all, _SUMS, event_time=True),
    "async_at_once": Program(async_at_once, _SUMS, slow=True),
    "async_call": Program(async_call, _SUMS, slow=True),
}
