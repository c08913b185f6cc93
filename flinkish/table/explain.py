"""What EXPLAIN and DESCRIBE show: the tree of a plan, in the words of Flink's plans, and the columns of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flinkish.common.types import Row
from flinkish.runtime.columns.described import WindowAssigner
from flinkish.table import plan
from flinkish.table.plan import Aggregate, Changes, Relation, Sink, TimeAttribute
from flinkish.table.syntax import ColumnDefinition, TableDefinition

CATALOG = "default_catalog.default_database."


def explain(plans: Iterable[Relation | Sink]) -> str:
    """The trees of queries and inserts, those of several one below the other."""
    return "\n\n".join("\n".join(_lines(root)) for root in plans) + "\n"


def _lines(node: Relation | Sink, first: str = "", below: str = "") -> Iterator[str]:
    yield first + text_of(node)
    inputs = (node.input,) if isinstance(node, Sink) else node.inputs
    for at, one in enumerate(inputs, 1):
        last = at == len(inputs)
        yield from _lines(one, below + ("+- " if last else ":- "), below + ("   " if last else ":  "))


def text_of(node: Relation | Sink) -> str:
    """A node of a plan in one line.

    >>> from flinkish.table.projections import ONE_ROW
    >>> text_of(ONE_ROW)
    'Values(rows=[1], values=[ZERO])'
    """
    names = ", ".join(field.name for field in (node.input if isinstance(node, Sink) else node).fields)
    match node:
        case Sink():
            return f"Sink(table=[{CATALOG}{node.name}], fields=[{names}])"
        case plan.Scan():
            return f"TableSourceScan(table=[[{CATALOG.replace('.', ', ')}{node.name}]], fields=[{names}])"
        case plan.StreamScan():
            return f"DataStreamScan(fields=[{names}])"
        case plan.Rows():
            return f"Values(rows=[{node.columns.num_rows}], values=[{names}])"
        case plan.Watermarks():
            mark = node.watermark.text if node.watermark is not None else f"{node.time} - {node.delay_ms} ms"
            return f"WatermarkAssigner(rowtime=[{node.time}], watermark=[{mark}])"
        case plan.Calc():
            shown = [
                each.text if each.text == field.name else f"{each.text} AS {field.name}"
                for each, field in zip(node.outputs, node.fields, strict=True)
            ]
            where = "" if node.condition is None else f", where=[{node.condition.text}]"
            return f"Calc(select=[{', '.join(shown)}]{where})"
        case Aggregate():
            return _aggregate(node)
        case plan.Expand():
            return f"WindowTableFunction(window=[{_window(node.window)}])"
        case plan.Union():
            return f"Union(all=[true], union=[{names}])"
        case plan.Limit():
            return f"Limit(offset=[0], fetch=[{node.count}])"
    return type(node).__name__


def _window(window: WindowAssigner) -> str:
    column = f"time_col=[{window.time}]" if window.time is not None else "proctime"
    step = f", step=[{window.step_ms} ms]" if window.step_ms else ""
    offset = f", offset=[{window.offset_ms} ms]" if window.offset_ms else ""
    size = "gap" if window.kind == "SESSION" else "size"
    return f"{window.kind}({column}, {size}=[{window.size_ms} ms]{step}{offset})"


def _aggregate(node: Aggregate) -> str:
    calls = [call.name for call in node.calls]
    if node.input.changes is Changes.RETRACT:
        calls = [name.replace("(", "_RETRACT(", 1) for name in calls]
    parts = [f"groupBy=[{', '.join(node.keys)}]"] * bool(node.keys)
    parts += [f"window=[{_window(node.window)}]"] if node.window is not None else []
    parts.append(f"select=[{', '.join([*node.keys, *calls])}]")
    return f"{'Group' if node.window is None else 'Window'}Aggregate({', '.join(parts)})"


def no_changes_for(consumer: str, relation: Relation) -> str:
    """Flink's sentence on a consumer of rows that change, with the node by which they do."""
    while not isinstance(relation, Aggregate) and relation.inputs:
        relation = next((one for one in relation.inputs if one.changes is Changes.RETRACT), relation.inputs[0])
    return f"{consumer} doesn't support consuming update changes which is produced by node {text_of(relation)}"


def described(relation: Relation, definition: TableDefinition) -> tuple[list[str], list[Row]]:
    """The columns of a table as DESCRIBE shows them: the names of what is shown, and a row for each. ``definition``:
    that of the table; of a view it is empty."""
    source, mark = relation, ""
    if isinstance(source, plan.Watermarks):
        delay = f" - INTERVAL '{source.delay_ms / 1_000:g}' SECOND" if source.delay_ms else ""
        mark = source.watermark.text if source.watermark is not None else f"`{source.time}`{delay}"
        source = source.input
    outputs = source.outputs if isinstance(source, plan.Calc) else ()
    texts = {field.name: output.text for field, output in zip(source.fields, outputs, strict=False)}
    of = {column.name: column for column in definition.columns}
    shown = ["name", "type", "null", "key", "extras", "watermark", "comment"]
    rows = []
    for field in relation.fields:
        column = of.get(field.name, ColumnDefinition(field.name))
        nullable = field.name not in definition.required and field.time is not TimeAttribute.PROCTIME
        key = f"PRI({', '.join(definition.primary_key)})" if field.name in definition.primary_key else ""
        marked = mark if definition.watermark is not None and definition.watermark[0] == field.name else ""
        extras = _extras(column, texts.get(field.name, ""))
        rows.append([field.name, field.shown, str(nullable).upper(), key, extras, marked, column.comment])
    if not any(row[-1] for row in rows):
        shown, rows = shown[:-1], [row[:-1] for row in rows]
    return shown, [Row(*row) for row in rows]


def _extras(column: ColumnDefinition, computed: str) -> str:
    if column.expression is not None:
        return f"AS {computed}"
    if column.metadata is None:
        return ""
    source = f" FROM '{column.metadata}'" if column.metadata != column.name else ""
    return f"METADATA{source}{' VIRTUAL' * column.virtual}"
