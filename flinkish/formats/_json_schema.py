"""Converts a JSON schema to a type, as Flink's ``JsonRowSchemaConverter`` does.

Rule upheld here: a keyword that would change the type but is not supported is an error; keywords that only restrict
values (``minimum``, ``required``, ...) change no type and are ignored.
"""

from __future__ import annotations

import json
from typing import Any

from flinkish.common.typeinfo import TypeInformation, Types

_FORMATS = {"date": Types.SQL_DATE, "time": Types.SQL_TIME, "date-time": Types.SQL_TIMESTAMP}
_SIMPLE = {"boolean": Types.BOOLEAN, "integer": Types.BIG_INT, "number": Types.BIG_DEC}
_UNSUPPORTED = ("patternProperties", "anyOf", "allOf", "not", "if", "then", "else")


def type_of_json_schema(text: str) -> TypeInformation:
    """The type that a JSON schema describes: objects are ROWs, integers BIG_INT, numbers BIG_DEC.

    Raises:
        ValueError: the text is no JSON, or the schema has a part that no type can express.
    """
    try:
        root = json.loads(text)
    except ValueError as error:
        raise ValueError(f"the JSON schema is not JSON: {error}") from None
    try:
        return _type_of("<root>", root, root)
    except RecursionError:
        raise ValueError("the JSON schema refers to itself, for which there is no type") from None


def _type_of(where: str, node: Any, root: Any) -> TypeInformation:
    if not isinstance(node, dict):
        raise ValueError(f"the JSON schema has {node!r} at {where}; expected an object")
    for keyword in _UNSUPPORTED:
        if keyword in node:
            raise ValueError(f"the JSON schema has '{keyword}' at {where}, for which there is no type")
    if "$ref" in node:
        return _type_of(where, _referenced(where, node["$ref"], root), root)
    if "oneOf" in node:
        return _type_of(where, _one(where, [item for item in node["oneOf"] if item.get("type") != "null"]), root)
    kind = node.get("type")
    if isinstance(kind, list):
        kind = _one(where, [item for item in kind if item != "null"])
    if kind == "object":
        properties = node.get("properties", {})
        types = [_type_of(f"{where}/{name}", item, root) for name, item in properties.items()]
        return Types.ROW_NAMED(list(properties), types)
    if kind == "array":
        return _array(where, node, root)
    if kind == "string":
        return _string(where, node)
    if kind in _SIMPLE:
        return _SIMPLE[kind]()
    raise ValueError(
        f"the JSON schema has the type {kind!r} at {where}; expected object, array, string, {', '.join(_SIMPLE)}"
    )


def _array(where: str, node: dict[str, Any], root: Any) -> TypeInformation:
    items = node.get("items")
    if isinstance(items, dict):
        return Types.OBJECT_ARRAY(_type_of(f"{where}/items", items, root))
    raise ValueError(f"the JSON schema has an array at {where} without one type of 'items'")


def _string(where: str, node: dict[str, Any]) -> TypeInformation:
    if node.get("contentEncoding") == "base64":
        return Types.PRIMITIVE_ARRAY(Types.BYTE())
    return _FORMATS.get(str(node.get("format")), Types.STRING)()


def _one(where: str, candidates: list[Any]) -> Any:
    if len(candidates) != 1:
        raise ValueError(f"the JSON schema allows {len(candidates)} types at {where}; expected one, or one and null")
    return candidates[0]


def _referenced(where: str, reference: str, root: Any) -> Any:
    if not reference.startswith("#"):
        raise ValueError(f"the JSON schema refers to {reference!r} at {where}; expected a place in the same document")
    node = root
    for part in reference[1:].strip("/").split("/"):
        part = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, dict) or (part and part not in node):
            raise ValueError(f"the JSON schema refers to {reference!r} at {where}, which is not there")
        node = node[part] if part else node
    return node
