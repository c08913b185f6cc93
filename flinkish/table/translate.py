"""Makes operators of plans: each relation becomes a stream of batches of columns (`ColumnBatch`).

Rules upheld here: a relation is one operator, however many queries read it; `projections.prune` has made equal ones one
object. What has state gets a uid that says the table that is written, the place among what has state on the way there,
and the keys, so that it stays the same as long as the shape of the query does. Sources and sinks get that of their
table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from flinkish.common.no_effect import say_once
from flinkish.common.options import tables
from flinkish.common.typeinfo import Types
from flinkish.common.watermark_strategy import WatermarkStrategy
from flinkish.core.sink import Sink
from flinkish.datastream import DataStream
from flinkish.datastream.streams.sinks import add_sink
from flinkish.errors import ProgramError
from flinkish.graph.stream_graph import StreamNode, Tap
from flinkish.runtime.columns.aggregate import AggregateFactory
from flinkish.runtime.columns.calc import CalcFactory, ColumnNamed, LimitFactory
from flinkish.runtime.columns.described import WindowAssigner
from flinkish.runtime.columns.expand import ExpandFactory
from flinkish.runtime.columns.normalize import normalize
from flinkish.runtime.columns.rows import ColumnsToRowsFactory, RowsToColumnsFactory, SourceColumnsFactory
from flinkish.runtime.columns.watermarks import ColumnWatermarksFactory
from flinkish.runtime.exchange.column_keys import ColumnKeys
from flinkish.runtime.exchange.keys import default_max_parallelism
from flinkish.runtime.exchange.partitioners import GlobalPartitioner, KeyGroupPartitioner
from flinkish.runtime.job.operator import OperatorFactory
from flinkish.runtime.operators.source_and_sink import SinkWriterFactory
from flinkish.table import connectors, plan
from flinkish.table.declared import rows_reader, takes_updates_alone
from flinkish.table.explain import text_of
from flinkish.table.plan import Changes, Field, Relation, TimeAttribute, row_type_of, schema_of
from flinkish.table.projections import inputs_first

if TYPE_CHECKING:
    from flinkish.table.table_environment import TableEnvironment


#: A relation that an operator computes, or the columns that it has.
Made: TypeAlias = Relation | Sequence[Field]
_ONE_SUBTASK = {"parallelism": 1, "max_parallelism": 1}


def insert(sinks: Sequence[plan.Sink], t_env: TableEnvironment) -> list[StreamNode]:
    """Add what writes the rows of queries into tables to the program of the environment. Returns the sinks."""
    translation = Translation(t_env, [sink.input for sink in sinks])
    if len(sinks) == 1:
        translation.upserts = _upserts(sinks[0])
    return [translation.sink(sink) for sink in sinks]


def rows_of(relation: Relation, t_env: TableEnvironment, name: str = "stream") -> DataStream:
    """The rows of a query as a stream of Rows with their kinds, whose timestamps are those of the column of event time.
    ``name`` stands for the table in the uids of what has state."""
    return Translation(t_env, [relation]).rows(relation, name)


class Translation:
    """Makes operators of relations, each of which is one operator, however often it is used.

    Args:
        t_env: the environment, to whose program they are added.
        relations: all that will be translated.
    """

    def __init__(self, t_env: TableEnvironment, relations: Sequence[Relation]) -> None:
        self._env = t_env._env
        self._zone = t_env._catalog.zone()
        self._settings = self._env._configuration
        self._idle_ms, self._ttl_ms = (
            self._settings.get(key).to_millis() for key in (tables.SOURCE_IDLE_TIMEOUT, tables.STATE_TTL)
        )
        self._made: dict[Any, DataStream] = {}
        # they are kept, since their ids are
        self._relations = relations
        self._number = 0
        #: the aggregation whose only consumer needs no rows that say what an update replaces
        self.upserts: plan.Aggregate | None = None

    def sink(self, sink: plan.Sink) -> StreamNode:
        """The operator that writes the rows of a query into a table."""
        stream = self._stream(sink.input, (sink.name,))
        takes, writer, parallelism = connectors.sink(sink.table, sink.name, self._zone)
        before = stream._taps[0].node.parallelism
        if parallelism and parallelism != before and sink.input.changes is Changes.RETRACT:
            stream = self._by_primary_key(stream, sink, parallelism)
        if takes == "rows":
            stream = self._to_rows(stream, sink.input)
            node = add_sink(stream, writer, sink.name)._settings._node
        else:
            node = self._column_sink(stream, writer, sink.name)
        node.description = text_of(sink)
        node.name, node.pyflink_name, node.uid = f"Sink: {sink.name}", None, self._uid(f"table/sink/{sink.name}")
        node.parallelism = parallelism or before
        return node

    def _by_primary_key(self, stream: DataStream, sink: plan.Sink, parallelism: int) -> DataStream:
        """The changes of a query for a sink of another parallelism: those of a row stay in their order.

        Raises:
            ProgramError: the table has no primary key.
        """
        keys = sink.table.definition.primary_key
        if not keys:
            raise ProgramError(
                f"The sink for table '{sink.name}' has a configured parallelism of {parallelism}, which is not that of "
                "its input, whose rows change, so the sink requires a primary key",
                where=f"table '{sink.name}'",
                expected="PRIMARY KEY (...) NOT ENFORCED among its columns",
                hint="or leave out the option 'sink.parallelism'",
            )
        partitioner = KeyGroupPartitioner(ColumnKeys(keys), default_max_parallelism(parallelism))
        stream = self._selected(stream, sink.input.names, sink.input.fields)
        node = stream._taps[0].node
        node.taps = [[replace(tap, partitioner=partitioner) for tap in node.taps[0]]]
        node.parallelism = parallelism
        return stream

    def _column_sink(self, stream: DataStream, sink: Sink, name: str) -> StreamNode:
        factory = SinkWriterFactory(sink.with_input_type(stream._type), stream._type, f"sink '{name}'")
        return self._env._add_node(f"Sink: {name}", factory, stream._type, [stream._taps], sink=factory.sink)

    def rows(self, relation: Relation, name: str) -> DataStream:
        return self._to_rows(self._stream(relation, (name,)), relation)

    def _to_rows(self, stream: DataStream, relation: Relation) -> DataStream:
        time = next((field.name for field in relation.fields if field.time is TimeAttribute.ROWTIME), None)
        row_type = row_type_of(relation.fields)
        factory = ColumnsToRowsFactory(partial(rows_reader, row_type), time)
        return self._operator("ColumnsToRows", relation, factory, stream._taps)

    # --- relations ----------------------------------------------------------------------------------------------

    def _stream(self, relation: Relation, path: tuple[str, ...]) -> DataStream:
        """The stream of a relation. ``path``: the table that is written, and what has state on the way to it."""
        if id(relation) not in self._made:
            self._made[id(relation)] = _MAKERS[type(relation)](self, relation, path)
        return self._made[id(relation)]

    def _scan(self, scan: plan.Scan, path: tuple[str, ...]) -> DataStream:
        make = self._source if scan.changes is Changes.INSERT else self._of_changes
        return make(scan, scan.fields)

    def _of_changes(self, scan: plan.Scan, wanted: tuple[Field, ...]) -> DataStream:
        """The rows of a table of changes by its primary key, with the rows that they replace."""
        types = {each.name: each.type for each in scan.table.definition.columns if each.type is not None}
        keys = [Field(name, types[name]) for name in scan.table.definition.primary_key]
        read = (*keys, *(field for field in wanted if field not in keys))
        return self._normalized(self._source(scan, read), len(keys), read, wanted, f"table/source/{scan.name}")

    def _normalized(
        self, stream: DataStream, width: int, columns: Sequence[Field], wanted: Sequence[Field], place: str
    ) -> DataStream:
        """Changes by a key with the rows that they replace. ``width``: how many of the columns are the key."""
        keys = columns[:width]
        names = tuple(field.name for field in keys)
        factory = normalize(names, schema_of(columns), self._ttl_ms)
        uid = f"{place}/normalize({','.join(names)})"
        changes = self._keyed("ChangelogNormalize", tuple(columns), factory, stream, keys, uid)
        return self._selected(changes, [field.name for field in wanted], wanted)

    def _source(self, scan: plan.Scan, read: tuple[Field, ...]) -> DataStream:
        names = tuple(field.name for field in read)
        source, in_columns = connectors.source(scan.table, scan.name, names, self._zone)
        if in_columns:
            node = self._env._add_node(
                f"Source: {scan.name}", SourceColumnsFactory(), row_type_of(read), [], source=source
            )
            stream = DataStream(self._env, [Tap(node)], node.output_type, [node])
        else:
            stream = self._env.from_source(source, WatermarkStrategy.no_watermarks(), scan.name)
            node = stream._taps[0].node
        first = node
        while first.taps:
            first = first.taps[0][0].node
        first.name, first.description = f"Source: {scan.name}[{self._next()}]", text_of(replace(scan, fields=read))
        first.uid = self._uid(f"table/source/{scan.name}")
        return stream if in_columns else self._to_columns(stream, read, f"table '{scan.name}'")

    def _to_columns(self, stream: DataStream, columns: Sequence[Field], where: str) -> DataStream:
        """The columns of a stream of Rows, chained to its source."""
        positions = tuple(map(stream._type.get_field_names().index, (field.name for field in columns)))  # type: ignore[attr-defined]
        factory = RowsToColumnsFactory(stream._type, schema_of(columns), positions, None, where)
        return self._operator("RowsToColumns", columns, factory, stream._taps, part_of_source=True)

    def _watermarks(self, marks: plan.Watermarks, path: tuple[str, ...]) -> DataStream:
        factory = ColumnWatermarksFactory(
            out_of_orderness_ms=marks.delay_ms - 1 if marks.watermark is None else -1,
            idle_timeout_ms=self._idle_ms or None,
            time=marks.time,
            watermark=marks.watermark,
        )
        stream = self._stream(marks.input, path)
        of_source = isinstance(inputs_first([marks.input])[0], plan.Scan)
        node = stream._taps[0].node
        while of_source and node.source is None:
            # as in Flink, the source makes the watermarks, split by split
            node.part_of_source = True
            node = node.taps[0][0].node
        return self._operator("WatermarkAssigner", marks, factory, stream._taps, part_of_source=of_source)

    def _stream_scan(self, scan: plan.StreamScan, path: tuple[str, ...]) -> DataStream:
        columns, positions = scan.fields, scan.positions
        if scan.key:
            stored = [field for field in columns if field.name != scan.time]
            found = {**dict(scan.key), **dict(zip(stored, positions, strict=True))}
            columns = (*found, *(field for field in columns if field.name == scan.time))
            positions = tuple(found.values())
        factory = RowsToColumnsFactory(
            scan.stream._type, schema_of(columns), positions, scan.time, "from_data_stream()"
        )
        stream = self._operator("RowsToColumns", columns, factory, scan.stream._taps)
        return self._normalized(stream, len(scan.key), columns, scan.fields, "table/stream") if scan.key else stream

    def _rows(self, rows: plan.Rows, path: tuple[str, ...]) -> DataStream:
        row_type = row_type_of(rows.fields)
        read = rows_reader(row_type)
        records = [row for batch in rows.columns.to_batches() for row in read(batch)]
        stream = self._env.from_collection(records, row_type)
        node = stream._taps[0].node
        node.name, node.uid = f"Source: Values[{self._next()}]", self._uid("table/source/values")
        return self._to_columns(stream, rows.fields, "VALUES")

    def _calc(self, calc: plan.Calc, path: tuple[str, ...]) -> DataStream:
        stream, used = self._stream(calc.input, path), frozenset[str]().union(*(one.columns for one in calc.outputs))
        columns = tuple(field.name for field in calc.input.fields if field.name in used)
        factory = CalcFactory(calc.condition, calc.outputs, schema_of(calc.fields), columns)
        return self._operator("Calc", calc, factory, stream._taps)

    def _selected(self, stream: DataStream, names: Sequence[str], columns: Sequence[Field]) -> DataStream:
        factory = CalcFactory(None, tuple(map(ColumnNamed, names)), schema_of(columns), tuple(names))
        return self._operator("Calc", columns, factory, stream._taps)

    def _union(self, union: plan.Union, path: tuple[str, ...]) -> DataStream:
        taps = list[Tap]()
        for number, query in enumerate(union.queries):
            taps += self._stream(query, (*path, f"union{number}"))._taps
        return DataStream(self._env, taps, row_type_of(union.fields))

    def _expand(self, expand: plan.Expand, path: tuple[str, ...]) -> DataStream:
        stream = self._stream(expand.input, path)
        return self._operator("WindowTableFunction", expand, ExpandFactory(expand.window), stream._taps)

    def _aggregate(self, made: plan.Aggregate, path: tuple[str, ...]) -> DataStream:
        number = 1 + sum(map(str.isdecimal, path))
        stream, schema = self._stream(made.input, (*path, str(number))), schema_of(made.input.fields)
        factory: OperatorFactory
        if made.window is None:
            retracting, final = made.input.changes is Changes.RETRACT, made.changes is Changes.INSERT
            if not final and not self._settings.contains(tables.MINI_BATCH):
                say_once(
                    "the results of GROUP BY are updated once for each key and batch of rows, as Flink does with "
                    f"'{tables.MINI_BATCH.key}' = 'true': set it, and this line goes"
                )
            both = made is not self.upserts
            factory = AggregateFactory(made.keys, made.calls, schema, retracting, self._ttl_ms, both, final)
            uid = f"{number}-aggregate({','.join(made.keys)})"
        else:
            from flinkish.runtime.columns.windows import WindowFactory

            factory = WindowFactory(made.keys, made.calls, made.window, schema)
            uid = f"{number}-window({','.join(made.keys)})/{_text_of_windows(made.window)}"
        marks = [mark for mark in path if not mark.isdecimal()]
        kind, uid = "Group" if made.window is None else "Window", "/".join(("table", *marks, uid))
        return self._keyed(f"{kind}Aggregate", made, factory, stream, made.fields[: len(made.keys)], uid)

    def _limit(self, limit: plan.Limit, path: tuple[str, ...]) -> DataStream:
        taps = [Tap(tap.node, GlobalPartitioner()) for tap in self._stream(limit.input, path)._taps]
        uid, factory = self._uid(f"table/{'/'.join(path)}/limit"), LimitFactory(limit.count)
        return self._operator("Limit", limit, factory, taps, uid=uid, **_ONE_SUBTASK)

    # --- operators ----------------------------------------------------------------------------------------------

    def _keyed(
        self, name: str, made_of: Made, factory: OperatorFactory, stream: DataStream, keys: Sequence[Field], uid: str
    ) -> DataStream:
        """Add an operator with state by these columns of its input. Without any, all rows are of one key."""
        selector, types = ColumnKeys(tuple(field.name for field in keys)), [field.type.info for field in keys]
        settings: dict[str, Any] = {"parallelism": None} if keys else _ONE_SUBTASK
        taps = [replace(tap, key_selector=selector) for tap in stream._taps]
        key_type = types[0] if len(types) == 1 else Types.TUPLE(types) if types else None
        return self._operator(
            name, made_of, factory, taps, uid=self._uid(uid), key_selectors=(selector,), key_type=key_type, **settings
        )

    def _operator(
        self, name: str, made_of: Made, factory: OperatorFactory, taps: Sequence[Tap], **settings: Any
    ) -> DataStream:
        """Add an operator with the parallelism of its inputs, if they agree, and return its stream."""
        before = {tap.node.parallelism for tap in taps}
        settings.setdefault("parallelism", before.pop() if len(before) == 1 else None)
        columns = made_of.fields if isinstance(made_of, Relation) else made_of
        if isinstance(made_of, Relation) and not isinstance(factory, (RowsToColumnsFactory, ColumnsToRowsFactory)):
            settings["description"] = text_of(made_of)
        row_type = row_type_of(columns)
        node = self._env._add_node(f"{name}[{self._next()}]", factory, row_type, [taps], **settings)
        return DataStream(self._env, [Tap(node)], row_type, [node])

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _uid(self, uid: str) -> str:
        """The uid, with a number behind it if the program has it already."""
        taken = {node.uid for node in self._env._program.nodes()}
        numbers = range(2, len(taken) + 3)
        return next(one for one in (uid, *(f"{uid}-{number}" for number in numbers)) if one not in taken)


_MAKERS: dict[type[Relation], Callable[[Translation, Any, tuple[str, ...]], DataStream]] = {
    plan.Scan: Translation._scan,
    plan.Watermarks: Translation._watermarks,
    plan.StreamScan: Translation._stream_scan,
    plan.Rows: Translation._rows,
    plan.Calc: Translation._calc,
    plan.Union: Translation._union,
    plan.Expand: Translation._expand,
    plan.Aggregate: Translation._aggregate,
    plan.Limit: Translation._limit,
}


def _upserts(sink: plan.Sink) -> plan.Aggregate | None:
    """The aggregation whose results a table takes as they are, without those that an update replaces; None: there is
    none."""
    found = sink.input
    if not takes_updates_alone(sink.table, found.unique_key):
        return None
    while isinstance(found, plan.Calc) and found.condition is None:
        found = found.input
    return found if isinstance(found, plan.Aggregate) else None


def _text_of_windows(windows: WindowAssigner) -> str:
    """Windows in the uid of what keeps them: the state of those of another size or time zone is no use."""
    sizes = (windows.size_ms, windows.step_ms, windows.offset_ms, windows.zone)
    return f"{windows.kind.lower()}({','.join(str(each) for each in (windows.time, *sizes) if each)})"
