"""Converts a JSON schema to a type, as Flink's ``JsonRowSchemaConverter`` does.

Rule upheld here: a keyword that makes a union of types or extends one (``anyOf``, ``not``, ...) is an error; other
keywords that no type can express (``minimum``, ``required``, ``if``, ...) are ignored.
"""

from __future__ import annotations

import json
import re
from typing import Any

from flinkish.common.typeinfo import TypeInformation, Types

_FORMATS = {"date": Types.SQL_DATE, "time": Types.SQL_TIME, "date-time": Types.SQL_TIMESTAMP}
_SIMPLE = {"boolean": Types.BOOLEAN, "integer": Types.BIG_DEC, "number": Types.BIG_DEC}
_UNSUPPORTED = ("anyOf", "allOf", "not", "extends", "disallow")
#: The parts of a schema that Jackson reads beyond JSON: comments, and texts and names in single or without quotes.
_BEYOND_JSON = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*")|/\*.*?\*/|//[^\n]*|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<name>[A-Za-z_$][\w$]*)(?=\s*:)""",
    re.DOTALL,
)


def type_of_json_schema(text: str) -> TypeInformation:
    """The type that a JSON schema describes: objects are ROWs, integers and numbers BIG_DEC. As in Flink, the text may
    have comments, and texts and names in single or without quotes.

    Raises:
        ValueError: the text is no JSON, or the schema has a part that no type can express.
    """
    try:
        root = json.loads(_BEYOND_JSON.sub(_as_json, text))
    except ValueError as error:
        raise ValueError(f"the JSON schema is not JSON: {error}") from None
    try:
        return _type_of("<root>", root, root)
    except RecursionError:
        raise ValueError("the JSON schema refers to itself, for which there is no type") from None


def _as_json(found: re.Match[str]) -> str:
    if found["single"] is not None:
        return json.dumps(found["single"].replace("\\'", "'"))
    return found["text"] or (f'"{found["name"]}"' if found["name"] else " ")


def _type_of(where: str, node: Any, root: Any) -> TypeInformation:
    types = set(_types_of(where, node, root))
    if len(types) != 1:
        raise ValueError(f"the JSON schema allows {len(types)} types at {where}; expected one, or one and null")
    return types.pop()


def _types_of(where: str, node: Any, root: Any) -> list[TypeInformation]:
    """The types that a node allows, without null; those of the node that it refers to are the fallback."""
    if not isinstance(node, dict):
        raise ValueError(f"the JSON schema has {node!r} at {where}; expected an object")
    for keyword in _UNSUPPORTED:
        if keyword in node:
            raise ValueError(f"the JSON schema has '{keyword}' at {where}, for which there is no type")
    if "type" not in node and "oneOf" not in node and "$ref" in node:
        return _types_of(where, _referenced(where, node["$ref"], root), root)
    kinds = node.get("type", [])
    types = [
        _type_of_kind(where, kind, node, root)
        for kind in (kinds if isinstance(kinds, list) else [kinds])
        if kind != "null"
    ]
    for choice in node.get("oneOf", []):
        types += _types_of(f"{where}/oneOf", choice, root)
    return types


def _type_of_kind(where: str, kind: Any, node: dict[str, Any], root: Any) -> TypeInformation:
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
    if "format" in node:
        return _FORMATS.get(str(node["format"]), Types.STRING)()
    encoding = node.get("contentEncoding", "base64")
    if encoding != "base64":
        raise ValueError(f"the JSON schema has the contentEncoding {encoding!r} at {where}; expected base64")
    return Types.PRIMITIVE_ARRAY(Types.BYTE()) if "contentEncoding" in node else Types.STRING()


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
