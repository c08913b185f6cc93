"""Projections of relations: how time attributes and keys go through them, which columns nobody uses, and which
projections become one.

Rule upheld here: no expression is computed more often than the query says. One moves into the projection behind its own
only if one expression there uses it, or if it is a column or a constant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from flinkish.errors import ProgramError
from flinkish.table import plan
from flinkish.table.logical_types import BOOLEAN, INT
from flinkish.table.plan import Aggregate, Calc, Changes, Expand, Field, Relation, Rows, TimeAttribute, parts_first
from flinkish.table.resolved import Constant, FunctionCall, InputColumn, Node

#: One row, for queries without FROM.
ONE_ROW = Rows(
    (Field("ZERO", INT),), Changes.INSERT, (), True, pa.Table.from_arrays([pa.nulls(1, INT.arrow)], ["ZERO"])
)

#: The most nodes that an expression may get by taking others in.
_MAX_NODES = 200


def column_of(computed: Node) -> str | None:
    """The name of the column that an expression is, if it is a column alone."""
    return computed.name if isinstance(computed, InputColumn) else None


def unique(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """The names, of which those that were there before get a number, as in Flink.

    >>> unique(["a", "a", "a0", "a"])
    ['a', 'a0', 'a00', 'a1']
    """
    used = set(taken)
    return [fresh(name, used) for name in names]


def fresh(name: str, used: set[str]) -> str:
    """The name, or the name with a number if it is used already. It is used then."""
    number, candidate = 0, name
    while candidate in used:
        candidate, number = f"{name}{number}", number + 1
    used.add(candidate)
    return candidate


def project(relation: Relation, outputs: Sequence[tuple[str, Node]], condition: Node | None = None) -> Calc:
    """The rows of which the condition is true, with these columns. A column alone keeps its time attribute, and a key
    all of whose columns are there stays a key."""
    of = relation.of
    fields: list[Field] = []
    renamed: dict[str, str] = {}
    for name, (_, computed) in zip(unique(name for name, _ in outputs), outputs, strict=True):
        column = column_of(computed)
        is_now = isinstance(computed, FunctionCall) and computed.name == "PROCTIME"
        time = TimeAttribute.PROCTIME if is_now else None
        if column is not None:
            time = of[column].time
            renamed.setdefault(column, name)
        fields.append(Field(name, computed.type, time))
    kept = all(column in renamed for column in relation.unique_key)
    key = tuple(renamed[column] for column in relation.unique_key) if kept else ()
    computeds = tuple(computed for _, computed in outputs)
    return Calc(tuple(fields), relation.changes, key, relation.bounded, relation, condition, computeds)


def selected(relation: Relation, names: Sequence[str]) -> Relation:
    """The relation with these columns, in this order."""
    if relation.names == list(names):
        return relation
    of = relation.of
    return project(relation, [(name, InputColumn(of[name].type, name)) for name in names])


def prune(relations: Sequence[Relation]) -> list[Relation]:
    """The relations, of which all that nobody uses is left out: columns of tables and of projections, calls of
    aggregate functions, and watermarks by which no window is fired. Sources that several of them read are the same
    object.

    Raises:
        ProgramError: no aggregate follows the table function SESSION, so that no windows are known.
    """
    return _Pruning(_shared(relations)).results()


def _shared(roots: Sequence[Relation]) -> list[Relation]:
    """The relations, in which equal ones are the same object."""
    known: dict[Any, list[Relation]] = {}
    done: dict[int, Relation] = {}
    for relation in inputs_first(roots):
        found = _with_inputs(relation, [done[id(one)] for one in relation.inputs])
        alike = known.setdefault((type(found), found.fields, *map(id, found.inputs)), [])
        done[id(relation)] = next((one for one in alike if one == found), found)
        alike.append(found)
    return [done[id(root)] for root in roots]


def _with_inputs(relation: Relation, inputs: Sequence[Relation]) -> Relation:
    if all(new is old for new, old in zip(inputs, relation.inputs, strict=True)):
        return relation
    changed: Any = {"queries": tuple(inputs)} if isinstance(relation, plan.Union) else {"input": inputs[0]}
    return replace(relation, **changed)


class _Pruning:
    def __init__(self, roots: Sequence[Relation]) -> None:
        self._roots = roots
        self._used: dict[int, set[str]] = {}
        self._readers: Counter[int] = Counter()
        self._done: dict[int, Relation] = {}
        for root in roots:
            self._used.setdefault(id(root), set()).update(root.names)
            self._readers[id(root)] += 1
        self._order = inputs_first(roots)
        for relation in reversed(self._order):
            used = self._used[id(relation)]
            if not used:
                # rows are counted by one column at least
                used.update(field.name for field in _narrowest(relation))
            for one, names in zip(relation.inputs, self._needed(relation), strict=True):
                self._used.setdefault(id(one), set()).update(names)
                self._readers[id(one)] += 1

    def results(self) -> list[Relation]:
        for relation in self._order:
            self._done[id(relation)] = self._smaller(relation, self._used[id(relation)])
        return [selected(self._done[id(root)], root.names) for root in self._roots]

    def _needed(self, relation: Relation) -> list[set[str]]:
        """The columns of each input that a relation reads."""
        used = self._used[id(relation)]
        match relation:
            case Calc():
                computed = [
                    each for field, each in zip(relation.fields, relation.outputs, strict=True) if field.name in used
                ]
                return [set().union(*(each.columns for each in [*computed, relation.condition] if each is not None))]
            case Aggregate():
                calls = [call for call in relation.calls if call.name in used]
                columns = {name for call in calls for name in (call.column, call.condition) if name is not None}
                return [{*relation.keys, *columns, *_times(relation)}]
            case Expand():
                return [(used & set(relation.input.names)) | _times(relation)]
            case plan.Watermarks():
                if relation.time not in used:
                    return [set(used)]
                return [{relation.time, *used, *(() if relation.watermark is None else relation.watermark.columns)}]
        return [set(used) for _ in relation.inputs]

    def _smaller(self, relation: Relation, used: set[str]) -> Relation:
        fields = tuple(field for field in relation.fields if field.name in used)
        source = self._done[id(relation.inputs[0])] if relation.inputs else relation
        match relation:
            case plan.Scan():
                return replace(relation, fields=fields)
            case plan.StreamScan():
                stored = (field for field in relation.fields if field.name != relation.time)
                at = dict(zip(stored, relation.positions, strict=True))
                positions = tuple(at[field] for field in fields if field in at)
                return replace(
                    relation, fields=fields, positions=positions, time=relation.time if relation.time in used else None
                )
            case Calc():
                return self._calc(relation, used, fields, source)
            case Aggregate():
                calls = tuple(call for call in relation.calls if call.name in used)
                dropped = {call.name for call in relation.calls} - {call.name for call in calls}
                fields = tuple(field for field in relation.fields if field.name not in dropped)
                return replace(relation, fields=fields, input=source, calls=calls)
            case Expand():
                if relation.window.kind == "SESSION":
                    raise no_session()
                return replace(relation, fields=(*source.fields, *relation.fields[-3:]), input=source)
            case plan.Watermarks():
                if relation.time not in used:
                    return source
                return replace(relation, fields=tuple(relation.of[name] for name in source.names), input=source)
            case plan.Union():
                names = [field.name for field in fields]
                queries = tuple(selected(self._done[id(query)], names) for query in relation.queries)
                return replace(relation, fields=fields, queries=queries)
            case plan.Limit():
                return replace(relation, fields=source.fields, input=source)
        return relation

    def _calc(self, calc: Calc, used: set[str], fields: tuple[Field, ...], source: Relation) -> Relation:
        alone = self._readers[id(calc.input)] == 1
        outputs = tuple(each for field, each in zip(calc.fields, calc.outputs, strict=True) if field.name in used)
        key = calc.unique_key if set(calc.unique_key) <= used else ()
        small = replace(calc, fields=fields, unique_key=key, input=source, outputs=outputs)
        while isinstance(small.input, Calc):
            fused = _fused(small, small.input, alone)
            if fused is None:
                break
            small, alone = fused, False
        names = [column_of(each) for each in small.outputs]
        same = names == small.names
        if small.condition is None and same and set(names) == set(small.input.names):
            return small.input
        return small


def _fused(upper: Calc, lower: Calc, alone: bool) -> Calc | None:
    """One projection in place of two; None: an expression would be computed more often, or for rows that it is not for.
    ``alone``: nobody else reads the lower one."""
    of = {field.name: each for field, each in zip(lower.fields, lower.outputs, strict=True)}
    computed = [each for each in (*upper.outputs, upper.condition) if each is not None]
    users = Counter(node.name for each in computed for node in each.nodes if isinstance(node, InputColumn))
    heavy = {name for name in users if not isinstance(of[name], InputColumn | Constant)}
    if heavy and (not alone or any(users[name] > 1 or len(of[name].nodes) > _MAX_NODES for name in heavy)):
        return None
    if lower.condition is not None and not alone:
        return None
    outputs = tuple(substituted(each, of) for each in upper.outputs)
    condition = None if upper.condition is None else substituted(upper.condition, of)
    if lower.condition is not None:
        below = lower.condition
        condition = below if condition is None else FunctionCall(BOOLEAN, "AND", args=(below, condition))
    return replace(upper, input=lower.input, condition=condition, outputs=outputs)


def substituted(computed: Node, of: Mapping[str, Node]) -> Node:
    """The expression with other expressions in place of columns."""
    made: dict[int, Node] = {}
    for node in computed.nodes:
        args = tuple(made[id(arg)] for arg in node.args)
        if isinstance(node, InputColumn):
            made[id(node)] = of.get(node.name, node)
        elif any(new is not old for new, old in zip(args, node.args, strict=True)):
            made[id(node)] = replace(node, args=args)
        else:
            made[id(node)] = node
    return made[id(computed)]


def no_session() -> ProgramError:
    """The error for sessions that are not grouped by their windows."""
    return ProgramError(
        "SESSION without GROUP BY of its windows is not supported",
        where="the window table function SESSION",
        expected="GROUP BY window_start, window_end and exactly the columns of PARTITION BY",
        hint="SESSION(TABLE t PARTITION BY user_id, DESCRIPTOR(ts), INTERVAL '5' MINUTE)",
    )


def inputs_first(roots: Iterable[Relation]) -> list[Relation]:
    """All relations, each once, behind its inputs."""
    return parts_first(roots, lambda relation: relation.inputs)


def _times(relation: Aggregate | Expand) -> set[str]:
    return set() if relation.window is None or relation.window.time is None else {relation.window.time}


def _narrowest(relation: Relation) -> list[Field]:
    """The column that costs least: one that is not computed, and a number rather than a text."""
    outputs = relation.outputs if isinstance(relation, Calc) else [None] * len(relation.fields)
    costs = [
        (not isinstance(computed, InputColumn | None), not field.type.is_numeric, bool(field.type.parts))
        for computed, field in zip(outputs, relation.fields, strict=True)
    ]
    return [relation.fields[costs.index(min(costs))]] if costs else []
