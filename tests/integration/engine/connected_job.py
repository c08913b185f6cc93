"""Every kind of function over two streams, in one program whose results depend on the records alone.

    python connected_job.py '{"folder": ...}'

Orders and payments are ``(account, number, time)``, rules ``(number, factor, time)``. What is put out does not depend
on how the records of two inputs follow each other within what their watermarks allow.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from flinkish.common.serialization import Encoder
from flinkish.common.typeinfo import Types
from flinkish.connectors.file_system.sink import FileSink
from flinkish.connectors.file_system.sink_options import BucketAssigner, OutputFileConfig
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.core.sink import Sink
from flinkish.datastream import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    DataStream,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    OutputTag,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from flinkish.datastream.state import MapStateDescriptor, ValueStateDescriptor
from tests.integration.engine.collecting import by_field, environment
from tests.support.processes import wait_until

ACCOUNTS, RECORDS, RULE_COUNT, PER_EPOCH = 11, 300, 30, 30
HOLD_S = 300
Event = tuple[str, int, int]

RULES = MapStateDescriptor("rules", Types.LONG(), Types.TUPLE([Types.LONG(), Types.LONG()]))
NUMBERS = MapStateDescriptor("numbers", Types.LONG(), Types.LONG())
FACTOR_1 = OutputTag("factor 1", Types.PICKLED_BYTE_ARRAY())
ODD = OutputTag("odd", Types.PICKLED_BYTE_ARRAY())
TOTAL = ValueStateDescriptor("total", Types.LONG())


def order(index: int) -> Event:
    return f"u{index * 7 % ACCOUNTS}", index % 17, index * 100


class HeldOrders:
    """The orders; an epoch waits before its first one until the test lets it go on."""

    def __init__(self, folder: Path, per_epoch: int) -> None:
        self._folder = folder
        self._per_epoch = per_epoch

    def __call__(self, index: int) -> Event:
        epoch, place = divmod(index, self._per_epoch)
        if place == 0:
            wait_until((self._folder / f"go-{epoch}").exists, HOLD_S, f"epoch {epoch} to be let go")
        return order(index)

    def let_go(self, *epochs: int) -> None:
        """These epochs may go on."""
        for epoch in epochs:
            (self._folder / f"go-{epoch}").touch()


def payment(index: int) -> Event:
    return f"u{index * 5 % ACCOUNTS}", index % 13, index * 100 + 30


def rule(index: int) -> tuple[int, int, int]:
    return index, index % 4, index * 1_000


class Matched(KeyedCoProcessFunction):
    """What both streams give for an account in two seconds."""

    def open(self, runtime_context: RuntimeContext) -> None:
        sums = Types.TUPLE([Types.LONG(), Types.LONG()])
        self._sums = runtime_context.get_map_state(MapStateDescriptor("sums", Types.LONG(), sums))

    def process_element1(self, value: Event, ctx: KeyedCoProcessFunction.Context) -> None:
        self._add(ctx, value[1], 0)

    def process_element2(self, value: Event, ctx: KeyedCoProcessFunction.Context) -> None:
        self._add(ctx, 0, value[1])

    def _add(self, ctx: KeyedCoProcessFunction.Context, ordered: int, paid: int) -> None:
        end = ctx.timestamp() // 2_000 * 2_000 + 1_999
        before = self._sums.get(end) or (0, 0)
        self._sums.put(end, (before[0] + ordered, before[1] + paid))
        ctx.timer_service().register_event_time_timer(end)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp, *(self._sums.get(timestamp) or ())
        self._sums.remove(timestamp)


class Counted(CoMapFunction):
    """Numbers the records of an account, whichever stream they come from."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def map1(self, value: Event) -> Any:
        self._count.update((self._count.value() or 0) + 1)
        return value[0], self._count.value()

    map2 = map1


class Split(CoFlatMapFunction):
    """Orders twice, odd payments to a side output, even ones nowhere."""

    def flat_map1(self, value: Event) -> Any:
        return [("order", *value)] * 2

    def flat_map2(self, value: Event) -> Iterator[Any]:
        if value[1] % 2:
            yield ODD, value


class InTime(CoProcessFunction):
    """Whether a record is behind the watermark."""

    def process_element1(self, value: Event, ctx: CoProcessFunction.Context) -> Iterator[Any]:
        yield "order", value, ctx.timestamp() > ctx.timer_service().current_watermark()

    def process_element2(self, value: Event, ctx: CoProcessFunction.Context) -> Iterator[Any]:
        yield "payment", value, ctx.timestamp() > ctx.timer_service().current_watermark()


class Rated(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """Sums per account in time order; numbers are multiplied by the factor that holds at their time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._total = runtime_context.get_state(TOTAL)
        self._waiting = runtime_context.get_map_state(NUMBERS)

    def process_element(self, value: Event, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> None:
        self._waiting.put(value[2], value[1])
        ctx.timer_service().register_event_time_timer(value[2])

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        ctx.get_broadcast_state(RULES).put(value[0], value[1:])
        # reaches all accounts and changes nothing
        ctx.apply_to_keyed_state(TOTAL, lambda key, state: state.update(state.value()))

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Iterable[Any]:
        rules = ctx.get_broadcast_state(RULES)
        factor = max((since, factor) for factor, since in rules.values() if since <= timestamp)[1]
        self._total.update((self._total.value() or 0) + factor * (self._waiting.get(timestamp) or 0))
        self._waiting.remove(timestamp)
        rated = ctx.get_current_key(), timestamp, self._total.value()
        yield (FACTOR_1, rated) if factor == 1 else rated


class Consistent(BroadcastProcessFunction[Any, Any, Any]):
    """Whether a subtask knows all rules up to the last one that it has seen."""

    def process_element(self, value: Event, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterator[Any]:
        known = sorted(ctx.get_broadcast_state(RULES).keys())
        yield value, known == list(range(len(known)))

    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> None:
        ctx.get_broadcast_state(RULES).put(value[0], value[1:])


def build(
    env: StreamExecutionEnvironment, folder: Path, per_epoch: int = RECORDS, order_of: Callable[[int], Event] = order
) -> None:
    """The program, which writes below the folder; an epoch takes in so many orders."""

    def source(name: str, function: Any, records: int, splits: int) -> DataStream:
        generator = DataGeneratorSource(
            function, records, records_per_epoch=max(1, per_epoch * records // RECORDS), splits=splits
        )
        return env.from_source(generator, by_field(2), name).uid(name)

    def account(value: Event) -> str:
        return value[0]

    orders = source("orders", order_of, RECORDS, 2)
    payments = source("payments", payment, RECORDS, 1)
    rules = source("rules", rule, RULE_COUNT, 1).broadcast(RULES)
    both = orders.connect(payments)
    keyed = both.key_by(account, account, Types.STRING())
    rated = orders.key_by(account, Types.STRING()).connect(rules).process(Rated()).uid("rated")
    split = both.flat_map(Split()).uid("split")
    outputs = {
        "matched": keyed.process(Matched()).uid("matched"),
        "counted": keyed.map(Counted(), Types.TUPLE([Types.STRING(), Types.LONG()])).uid("counted"),
        "split": split,
        "odd": split.get_side_output(ODD),
        "in time": both.process(InTime()).uid("in time"),
        "rated": rated,
        "factor 1": rated.get_side_output(FACTOR_1),
        "consistent": orders.rebalance().connect(rules).process(Consistent()).uid("consistent"),
    }
    for name, stream in outputs.items():
        stream.map(json.dumps, Types.STRING()).sink_to(file_sink(folder, name)).uid(f"sink of {name}")


def file_sink(folder: Path, name: str) -> Sink:
    """Files whose names begin with that of the result, exactly once."""
    config = OutputFileConfig.builder().with_part_prefix(name).build()
    builder = FileSink.for_row_format(str(folder / "out"), Encoder.simple_string_encoder())
    builder = builder.with_output_file_config(config)
    return builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()


def results(folder: Path) -> dict[str, list[str]]:
    """What was put out, by the name of the result, in an order that does not depend on subtasks and epochs."""
    found: dict[str, list[str]] = {}
    for path in (folder / "out").glob("[!.]*"):
        # <name>-<uuid>-<subtask>-<epoch>, and the uuid has five parts
        found.setdefault(path.name.rsplit("-", 7)[0], []).extend(path.read_text().splitlines())
    return {name: sorted(lines) for name, lines in sorted(found.items())}


def main(options: dict[str, Any]) -> None:
    """One run in a driver of its own, which says ``finished``."""
    from tests.support.spark_session import start_session

    folder = Path(options["folder"])
    start_session(folder / f"spark-{time.time_ns()}")
    env = environment(folder / "job")
    build(env, folder, PER_EPOCH)
    env.execute("connected")
    print("finished", flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
