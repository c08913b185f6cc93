"""Arrays, maps, rows, and texts of JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flinkish.table import logical_types as sql
from flinkish.table.functions import Argument, Run, Typed, Values, by_value, row, special
from flinkish.table.logical_types import BOOLEAN, INT, STRING, LogicalType


def _array(run: Run, *columns: Values) -> Values:
    rows, count = run.rows, len(columns)
    # the values of the first row, those of the second, and so on
    indices = (np.arange(rows)[:, None] + np.arange(count)[None, :] * rows).ravel()
    values = pa.concat_arrays([run.array(column) for column in columns]).take(pa.array(indices))
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * count)
    return pa.ListArray.from_arrays(offsets, values, type=run.result.arrow)


def _map_rule(arguments: Sequence[Argument]) -> Typed | None:
    types = [argument.type for argument in arguments]
    key, value = sql.common(*types[::2]), sql.common(*types[1::2])
    if key is None or value is None or len(types) % 2:
        return None
    return Typed(sql.map_of(key, value), (key, value) * (len(types) // 2))


def _map(run: Run, *columns: Values) -> Values:
    def one(*values: Any) -> list[tuple[Any, Any]]:
        pairs = dict(zip(values[::2], values[1::2], strict=True))
        return [(key, value) for key, value in pairs.items() if key is not None]  # Arrow's maps have no NULL as a key

    return run.each(one, *columns, strict=False)


def _part(arguments: Sequence[Argument], position: int = 0) -> LogicalType:
    """The type of the elements, or of the keys or values, of the first argument."""
    return arguments[0].type.parts[position]


def _item_type(arguments: Sequence[Argument]) -> LogicalType:
    index = arguments[1].value
    if isinstance(index, int) and index < 1:
        raise ValueError(f"Array element access needs an index starting at 1 but was {index}")
    return _part(arguments)


def _item(run: Run, values: Values, by: Values) -> Values:
    arrays = run.array(values)
    index = pc.cast(run.array(by), pa.int64())
    inside = pc.and_(pc.greater_equal(index, 1), pc.less_equal(index, pc.list_value_length(arrays)))
    at = pc.if_else(inside, pc.add(index, pc.subtract(pc.cast(arrays.offsets[:-1], pa.int64()), 1)), None)
    return arrays.values.take(at)


def _looked_up_rule(arguments: Sequence[Argument]) -> Typed | None:
    if len(arguments) != 2 or arguments[0].type.root != "MAP":
        return None
    of, by = arguments[0].type, arguments[1].type
    return None if sql.common(of.parts[0], by) is None else Typed(of.parts[1], (of, of.parts[0]))


def _looked_up(run: Run, values: Values, by: Values) -> Values:
    if isinstance(by, pa.Scalar):
        return pc.map_lookup(run.array(values), by, "last")
    return run.each(lambda pairs, key: dict(pairs).get(key), values, by)


def _field_type(arguments: Sequence[Argument]) -> LogicalType:
    of, name = arguments[0].type, arguments[1].value
    position = _position(of, name) if isinstance(name, int) or name in of.names else -1
    if not 0 <= position < len(of.parts):
        raise ValueError(f"there is no field {name} among the fields {', '.join(of.names)} of {of}")
    return of.parts[position]


def _position(of: LogicalType, field: int | str) -> int:
    return field if isinstance(field, int) else of.names.index(field)


def _field(run: Run, values: Values, name: Values) -> Values:
    return pc.struct_field(run.array(values), [_position(run.types[0], name.as_py())])


def _size(run: Run, values: Values) -> Values:
    column = run.array(values)
    if not pa.types.is_map(column.type):
        return pc.cast(pc.list_value_length(column), pa.int32())
    return pa.array(np.diff(column.offsets.to_numpy()).astype(np.int32), mask=run.mask(pc.is_null(column)))


def _element(items: list[Any]) -> Any:
    if len(items) > 1:
        raise ValueError("Array has more than one element.")
    return items[0] if items else None


def _contains_rule(arguments: Sequence[Argument]) -> Typed | None:
    if len(arguments) != 2 or arguments[0].type.root != "ARRAY":
        return None
    element = sql.common(arguments[0].type.parts[0], arguments[1].type)
    return None if element is None else Typed(BOOLEAN, (sql.array(element), element))


row("ARRAY", "same same*", _array, lambda args: sql.array(args[0].type))
special("MAP", "MAP[<ANY>, <ANY>, ...], keys of one type and values of one type", _map_rule, _map)
row(
    "ROW", "any*",
    lambda run, *columns: pa.StructArray.from_arrays([*map(run.array, columns)], fields=list(run.result.arrow)),
    lambda args: sql.row([f"EXPR${n}" for n in range(len(args))], [each.type for each in args]),
)  # fmt: skip
row("ITEM", "array long", _item, _item_type)
special("ITEM", "<MAP>[<ANY>]", _looked_up_rule, _looked_up)
row("FIELD", "row any", _field, _field_type)
row("CARDINALITY", "array|map", _size, INT)
row("ELEMENT", "array", by_value(_element), _part)
row("MAP_KEYS", "map", by_value(lambda pairs: [key for key, _ in pairs]), lambda args: sql.array(_part(args)))
row("MAP_VALUES", "map", by_value(lambda pairs: [each for _, each in pairs]), lambda args: sql.array(_part(args, 1)))
special(
    "ARRAY_CONTAINS", "ARRAY_CONTAINS(<ARRAY>, <ANY>)", _contains_rule,
    lambda run, *columns: run.each(lambda items, one: None if items is None else one in items, *columns, strict=False),
)  # fmt: skip


_STEP = re.compile(r"\.([\w-]+)|\.?\[\s*'((?:[^'\\]|\\.)*)'\s*\]|\.?\[\s*\"((?:[^\"\\]|\\.)*)\"\s*\]|\[\s*(\d+)\s*\]")
_MISSING = object()


@lru_cache(maxsize=1024)
def json_path(path: str) -> tuple[str | int, ...]:
    """The steps of a path; ValueError: it has a part that is not known here. Strict and lax paths differ in their
    errors only, for which there is NULL.

    >>> json_path("lax $.a['b c'][0]")
    ('a', 'b c', 0)
    """
    rest = path.strip()
    for mode in ("lax ", "strict "):
        rest = rest.removeprefix(mode).lstrip()
    found = list(_STEP.finditer(rest))
    if f"${''.join(step[0] for step in found)}" != rest:
        raise ValueError(f"the path '{path}' has a part that is not known here: write it as $.name['name'][0]")
    steps: list[str | int] = []
    for step in found:
        name = next((part for part in step.groups()[:3] if part is not None), None)
        steps.append(int(step[4]) if name is None else re.sub(r"\\(.)", r"\1", name))
    return tuple(steps)


@lru_cache(maxsize=256)
def _read(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=Decimal)
    except (ValueError, RecursionError):
        return _MISSING


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _at(text: str, path: str) -> Any:
    value = _read(text)
    for step in json_path(path):
        if isinstance(step, str) and isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            return _MISSING
    return value


def _json_text(value: Any) -> str:
    match value:
        case dict():
            return f"{{{','.join(f'{json.dumps(k, ensure_ascii=False)}:{_json_text(v)}' for k, v in value.items())}}}"
        case list():
            return f"[{','.join(map(_json_text, value))}]"
        case Decimal():
            return str(value)
    return json.dumps(value, ensure_ascii=False)


def _json_value(text: str, path: str) -> str | None:
    value = _at(text, path)
    if value is _MISSING or value is None or isinstance(value, (dict, list)):
        return None
    return value if isinstance(value, str) else _json_text(value)


def _json_query(text: str, path: str) -> str | None:
    value = _at(text, path)
    return _json_text(value) if isinstance(value, (dict, list)) else None


row("JSON_VALUE", "text text", by_value(_json_value), STRING, check=json_path)
row("JSON_QUERY", "text text", by_value(_json_query), STRING, check=json_path)
row("JSON_EXISTS", "text text", by_value(lambda text, path: _at(text, path) not in (_MISSING, None)), BOOLEAN,
    check=json_path)  # fmt: skip
row("IS JSON", "text", by_value(lambda text: _read(text) is not _MISSING), BOOLEAN)
