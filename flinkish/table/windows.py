"""Windows in queries: table functions such as TUMBLE, what their columns are behind projections, and group windows.

Rule upheld here: where GROUP BY names window_start and window_end, the windows are those of the aggregate, and no row
is copied for each window that it belongs to. Where it names those of an aggregate that has fired already, rows of one
window meet again at its last millisecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from flinkish.runtime.columns.described import WindowAssigner
from flinkish.table import syntax
from flinkish.table.explain import no_changes_for
from flinkish.table.functions import Run, Values
from flinkish.table.logical_types import BIGINT, LogicalType, timestamp, timestamp_ltz
from flinkish.table.plan import (
    Aggregate,
    Calc,
    Changes,
    Expand,
    Field,
    Relation,
    Scan,
    TimeAttribute,
    Union,
    Watermarks,
)
from flinkish.table.projections import column_of, inputs_first, project, unique
from flinkish.table.resolved import InputColumn, Node
from flinkish.table.syntax import Column

if TYPE_CHECKING:
    from flinkish.table.planner import Names, Planned, Planner

#: The columns of a window behind the operator that makes them.
START, END, TIME = BOUNDS = ("window_start", "window_end", "window_time")

#: Window functions -> the number of their intervals.
KINDS = {"TUMBLE": 1, "HOP": 2, "CUMULATE": 2, "SESSION": 1}


class WindowColumns(NamedTuple):
    """The columns of a relation that are the bounds of its windows, and what has made these. ``time``: the event time
    of the window; None: the relation does not have it."""

    start: str
    end: str
    time: str | None
    made_by: Aggregate | Expand


@dataclass(frozen=True, eq=False)
class Bound(Node):
    """A bound of a window as a time: it comes as a number of milliseconds of local time. ``zone``: whose local time it
    is, if the result is a TIMESTAMP_LTZ."""

    zone: str = "UTC"

    def _text(self, args: list[str]) -> str:
        return args[0]

    def _compute(self, run: Run, columns: pa.RecordBatch, args: list[Values]) -> Values:
        local = pc.cast(args[0], pa.timestamp("ms"))
        if self.type.root == "TIMESTAMP_LTZ":
            local = pc.assume_timezone(local, self.zone, ambiguous="earliest", nonexistent="latest")
        return pc.cast(local, self.type.arrow)


def assigner(
    planner: Planner, relation: Relation, window: syntax.Windowed, time: syntax.Expression, table_function: bool
) -> WindowAssigner:
    """What assigns the rows of a relation to windows. ``time`` names a field.

    Raises:
        ProgramError: the time is no time attribute, the sizes do not fit, or the rows change.
    """
    kind, intervals = window.kind, window.intervals
    field = _time_field(planner, relation, window, time)
    if relation.changes is Changes.RETRACT:
        raise planner.error(
            no_changes_for(f"The window function {kind}", relation),
            "rows that are only inserted",
            "put the window before the aggregate, or aggregate without a window",
            at=window.time.at,
        )
    size, step = intervals[-1], intervals[0] if len(intervals) > 1 else 0
    what, name = {"HOP": ("slide", "size"), "CUMULATE": ("step", "maxSize")}.get(kind, ("size", "size"))
    if min(intervals) <= 0:
        raise planner.error(f"the {what} of {kind} is {min(intervals)} ms", "more than 0", at=window.time.at)
    if step and table_function and size % step:
        raise planner.error(
            f"{kind} table function based aggregate requires {name} must be an integral multiple of {what}, "
            f"but got {name} {size} ms and {what} {step} ms",
            at=window.time.at,
        )
    event_time = field.time is not TimeAttribute.PROCTIME
    zone = planner.catalog.zone() if field.type.root == "TIMESTAMP_LTZ" else None
    return WindowAssigner(kind, size, step, window.offset_ms, field.name if event_time else None, zone)


def _time_field(planner: Planner, relation: Relation, window: syntax.Windowed, time: syntax.Expression) -> Field:
    of = relation.of
    field = of.get(time.path[0]) if isinstance(time, Column) and len(time.path) == 1 else None
    is_time = field is not None and field.type.root in ("TIMESTAMP", "TIMESTAMP_LTZ")
    if field is not None and is_time and (field.time is not None or (planner.catalog.is_batch() and relation.bounded)):
        return field
    name = ".".join(window.time.path)
    below = inputs_first([relation])
    scan = next((one for one in below if isinstance(one, Scan)), None)
    statement = f"CREATE TABLE {scan.name}" if scan is not None else "the declaration of the table"
    marks = next((one for one in below if isinstance(one, Watermarks)), None)
    has = f", which has it for {marks.time}: windows take that as it is, before an aggregate" if marks else ""
    shown = "" if field is None else f", but is {field.type}"
    raise planner.error(
        f"The window function {window.kind} requires the timecol '{name}' to be a time attribute{shown}",
        "a column of TIMESTAMP(3) or TIMESTAMP_LTZ(3) with WATERMARK, or of PROCTIME(), that comes here unchanged",
        f"declare WATERMARK FOR {name} AS {name} - INTERVAL '5' SECOND in {statement}{has}",
        at=window.time.at,
    )


def table_function(planner: Planner, window: syntax.Windowed, source: Planned, names: Names) -> Planned:
    """A window table function: the rows of a table with the bounds of their windows."""
    relation, time = source.relation, names(window.time)
    made = assigner(planner, relation, window, time, True)
    if any(name in BOUNDS for name in relation.names):
        # the query may name them, but not these columns here
        renamed = dict(zip(relation.names, unique(relation.names, BOUNDS), strict=True))
        outputs: list[tuple[str, Node]] = [(renamed[f.name], InputColumn(f.type, f.name)) for f in relation.fields]
        relation, made = project(relation, outputs), replace(made, time=renamed[made.time] if made.time else None)
    partition = tuple(".".join(column.path) for column in map(names, window.partition) if isinstance(column, Column))
    fields = (*relation.fields, *(Field(name, BIGINT) for name in BOUNDS))
    expand = Expand(fields, Changes.INSERT, (), relation.bounded, relation, made, partition)
    found = with_times(expand, _of_windows(relation, made.time), made.zone or "UTC", made.time)
    return source._replace(relation=found, names=(*source.names, *BOUNDS), qualifier=None)


def _of_windows(relation: Relation, time: str | None) -> LogicalType:
    """The type of window_time of windows on this column; None: on processing time."""
    return timestamp(3) if time is not None and relation.of[time].type.root == "TIMESTAMP" else timestamp_ltz(3)


def with_times(relation: Expand | Aggregate, of_time: LogicalType, zone: str, event_time: str | None) -> Relation:
    """The relation with the bounds of windows as times."""
    outputs: list[tuple[str, Node]] = []
    for field in relation.fields:
        column = InputColumn(field.type, field.name)
        if field.name in BOUNDS:
            kind = of_time if field.name == TIME else timestamp(3)
            outputs.append((field.name, Bound(kind, zone=zone, args=(column,))))
        else:
            outputs.append((field.name, column))
    found = project(relation, outputs)
    attribute = TimeAttribute.PROCTIME if event_time is None else TimeAttribute.ROWTIME
    fields = tuple(field._replace(time=attribute) if field.name == TIME else field for field in found.fields)
    return replace(found, fields=fields, unique_key=relation.unique_key)


def window_columns(relation: Relation) -> WindowColumns | None:
    """The columns of a relation that are bounds of windows: projections keep them."""
    match relation:
        case Aggregate(window=WindowAssigner() as window):
            before = window_columns(relation.input) if replace(window, time="") == _MEETING else None
            if before is not None and {*before[:2]} <= {*relation.keys}:
                return WindowColumns(before.start, before.end, TIME, relation)
            return WindowColumns(START, END, TIME, relation)
        case Expand():
            return WindowColumns(START, END, TIME, relation)
        case Calc():
            found = window_columns(relation.input)
            if found is None:
                return None
            of: dict[str, str] = {}
            for field, computed in zip(relation.fields, relation.outputs, strict=True):
                column = column_of(computed.args[0] if isinstance(computed, Bound) else computed)
                if column is not None:
                    of.setdefault(column, field.name)
            if found.start in of and found.end in of:
                return WindowColumns(of[found.start], of[found.end], of.get(found.time or ""), found.made_by)
        case Union():
            first, *others = map(window_columns, relation.queries)
            if first is not None and all(one is not None and _alike(first, one) for one in others):
                return first
    return None


def _alike(left: WindowColumns, right: WindowColumns) -> bool:
    windows = [one.made_by.window and replace(one.made_by.window, time=None) for one in (left, right)]
    return left[:3] == right[:3] and windows[0] == windows[1]


def without_windows(relation: Relation) -> tuple[Relation, str | None] | None:
    """A relation behind a window table function without the columns of windows, and its column of time; None: its rows
    were selected by their windows."""
    if isinstance(relation, Expand):
        return relation.input, relation.window.time
    if not isinstance(relation, Calc) or (found := without_windows(relation.input)) is None:
        return None
    source, time = found
    of = set(source.names)
    if relation.condition is not None and not relation.condition.columns <= of:
        return None
    outputs = [
        (field.name, computed)
        for field, computed in zip(relation.fields, relation.outputs, strict=True)
        if computed.columns <= of
    ]
    if time is not None:
        kept = next((name for name, computed in outputs if column_of(computed) == time), None)
        if kept is None:
            [kept] = unique([time], relation.names)
            outputs.append((kept, InputColumn(source.of[time].type, time)))
        time = kept
    return project(source, outputs, relation.condition), time


#: The windows in which the rows of one window, that was fired before, meet again.
_MEETING = WindowAssigner("TUMBLE", 1, time="")


class GroupWindow(NamedTuple):
    """The windows of a GROUP BY.

    Args:
        relation: the rows that are grouped.
        keys: those beside the window.
        window: None: it is a GROUP BY without windows.
        time: the expression of the event time, which the window needs as a column.
        time_type: the type of window_time.
        bounds: what the bounds of the windows are called in the query -> the columns of the aggregate.
    """

    relation: Relation
    keys: Sequence[syntax.Expression]
    window: WindowAssigner | None = None
    time: syntax.Expression | None = None
    time_type: LogicalType = timestamp(3)
    bounds: dict[syntax.Expression, str] = {}


def of_group(planner: Planner, relation: Relation, keys: Sequence[syntax.Expression]) -> GroupWindow:
    calls = [key for key in keys if isinstance(key, syntax.Call) and group_window(planner, key)]
    if not calls:
        return _of_table_function(relation, keys)
    if len(calls) > 1:
        raise planner.error("GROUP BY has more than one window", "one window and other columns")
    [call] = calls
    made = assigner(planner, relation, _windowed(planner, call), call.args[0], False)
    bounds: dict[syntax.Expression, str] = {
        syntax.Call(f"{call.name}_{end}", call.args): name for end, name in _AUXILIARY.items()
    }
    rest, time = [key for key in keys if key is not call], call.args[0] if made.time else None
    assert isinstance(call.args[0], Column)
    return GroupWindow(relation, rest, made, time, _of_windows(relation, call.args[0].path[0]), bounds)


_AUXILIARY = {"START": START, "END": END, "ROWTIME": TIME, "PROCTIME": "PROCTIME"}


def group_window(planner: Planner, call: syntax.Call, bounds: bool = False) -> str:
    """The kind of a window such as TUMBLE(ts, INTERVAL '1' MINUTE), or (``bounds``) also of its TUMBLE_START and such;
    empty: it is none."""
    kind, _, end = call.name.rpartition("_") if bounds else ("", "", "")
    kind = kind if end in _AUXILIARY else call.name
    return kind if kind in ("TUMBLE", "HOP", "SESSION") and planner.catalog.function(call.name) is None else ""


def _windowed(planner: Planner, call: syntax.Call) -> syntax.Windowed:
    count = KINDS[call.name]
    literals = [
        arg.value for arg in call.args[1:] if isinstance(arg, syntax.Literal) and arg.type.root == "INTERVAL_DAY"
    ]
    if len(literals) != count or len(call.args) != count + 1:
        expected = f"{call.name}(time, {', '.join(['INTERVAL ...'] * count)})"
        raise planner.error(f"the arguments of {call.name}", expected, at=call.at)
    time = call.args[0] if isinstance(call.args[0], Column) else Column((call.name,), call.at)
    return syntax.Windowed(call.name, syntax.Values(()), replace(time, at=call.at), tuple(literals))


def _of_table_function(relation: Relation, keys: Sequence[syntax.Expression]) -> GroupWindow:
    columns = window_columns(relation)
    named = {key.path[0] for key in keys if isinstance(key, Column) and len(key.path) == 1}
    if columns is None or not {columns.start, columns.end} <= named:
        return GroupWindow(relation, keys)
    made_by = columns.made_by
    bounds: dict[syntax.Expression, str] = {Column((columns.start,)): START, Column((columns.end,)): END}
    if columns.time in named:
        bounds[Column((columns.time or TIME,))] = TIME
    rest = [key for key in keys if key not in bounds]
    assert made_by.window is not None
    if isinstance(made_by, Expand):
        found = without_windows(relation)
        # sessions stay as they are, which `prune` refuses, if others than their rows meet
        divided = made_by.window.kind != "SESSION" or {Column((name,)) for name in made_by.partition} == set(rest)
        if found is not None and divided:
            bare, time = found
            column, window = None if time is None else Column((time,)), replace(made_by.window, time=time)
            return GroupWindow(bare, rest, window, column, _of_windows(bare, time), bounds)
    if made_by.window.time is None:
        return GroupWindow(relation, keys)
    return _grouped_again(relation, columns, [*list(bounds)[:2], *rest])


def _grouped_again(relation: Relation, columns: WindowColumns, keys: list[syntax.Expression]) -> GroupWindow:
    if columns.time is not None:
        time: syntax.Expression = Column((columns.time,))
        kind = relation.of[columns.time].type
    else:
        made_by = columns.made_by
        zoned = made_by.window is not None and made_by.window.zone is not None
        kind = timestamp_ltz(3) if zoned else timestamp(3)
        last = syntax.Call("-", (Column((columns.end,)), syntax.Literal(1, LogicalType("INTERVAL_DAY"))))
        time = syntax.Cast(last, kind) if zoned else last
    bounds: dict[syntax.Expression, str] = {} if columns.time is None else {Column((columns.time,)): TIME}
    return GroupWindow(relation, keys, _MEETING, time, kind, bounds)
