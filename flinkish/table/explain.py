"""What EXPLAIN shows: the tree of a plan, in the words of Flink's plans."""

from __future__ import annotations

from collections.abc import Iterable

from flinkish.runtime.columns.described import WindowAssigner
from flinkish.table import plan
from flinkish.table.plan import Aggregate, Changes, Relation, Sink

CATALOG = "default_catalog.default_database."


def explain(plans: Iterable[Relation | Sink]) -> str:
    """The trees of queries and inserts, those of several one below the other."""
    return "\n\n".join("\n".join(_lines(root)) for root in plans) + "\n"


def _lines(root: Relation | Sink) -> list[str]:
    lines: list[str] = []
    work: list[tuple[Relation | Sink, str, str]] = [(root, "", "")]
    while work:
        node, first, below = work.pop()
        lines.append(first + text_of(node))
        inputs = (node.input,) if isinstance(node, Sink) else node.inputs
        for at, one in reversed(list(enumerate(inputs))):
            last = at == len(inputs) - 1
            work.append((one, below + ("+- " if last else ":- "), below + ("   " if last else ":  ")))
    return lines


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


def changing(relation: Relation) -> str:
    """The node by which rows of a relation change, as Flink names it."""
    while not isinstance(relation, Aggregate) and relation.inputs:
        relation = next((one for one in relation.inputs if one.changes is Changes.RETRACT), relation.inputs[0])
    return text_of(relation)
