"""What a parsed Avro schema must be like before fastavro reads data with it that somebody else has written.

Rule upheld here: fastavro believes the counts and indices in the data. So each value that a count stands for must take
a byte, and an index must be looked up where a wrong one is an error.
"""

from __future__ import annotations

from typing import Any

from flinkish.common.arguments import abbreviated


class _Members(dict[int, Any]):
    """The symbols of an enum or the members of a union by their indices. A list would take -1 for its last one."""

    def __missing__(self, index: int) -> Any:
        raise ValueError(f"the index of an enum or a union is {index}, and the schema has {len(self)} of them")


def check_indices(schema: Any) -> None:
    """Change the parsed schema of a record in place so that reading with it raises ValueError for an index that is not
    in it."""
    seen: set[int] = set()
    stack = [schema]
    while stack:
        part = stack.pop()
        if isinstance(part, list):
            stack += list.__iter__(part)
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part.get("symbols"), list):
            part["symbols"] = _Members(enumerate(part["symbols"]))
        for holder, name in ((part, "items"), (part, "values"), *((field, "type") for field in part.get("fields", ()))):
            if isinstance(holder.get(name), list):
                holder[name] = _union_of(holder[name])
            stack.append(holder.get(name))


def _union_of(members: list[Any]) -> list[Any]:
    """A list, as fastavro requires it, that has no negative indices: fastavro adds its length to a negative one, and
    then asks for the item."""
    item = staticmethod(_Members(enumerate(members)).__getitem__)
    union: list[Any] = type("Union", (list,), {"__getitem__": item, "__len__": lambda self: 0})(members)
    return union


def check_bounded(schema: Any) -> bool:
    """Check that what is read by the parsed schema takes as many bytes as it has values; returns whether a record of
    it holds itself, so that a value of it may be nested to any depth.

    Raises:
        ValueError: an array has items without bytes.
    """
    named: dict[str, Any] = {}
    holding_themselves: set[str] = set()

    def size_of(part: Any, inside: frozenset[str]) -> int:
        """The least number of bytes of a value, or a smaller one above 0."""
        if isinstance(part, list):
            return 1 + min((size_of(member, inside) for member in part), default=0)
        kind = part["type"] if isinstance(part, dict) else part
        if isinstance(kind, (dict, list)):
            return size_of(kind, inside)
        if kind == "null":
            return 0
        if kind == "array":
            if size_of(part["items"], inside) == 0:
                raise ValueError(f"the items of the array {abbreviated(part['items'])} have no bytes")
            return 1
        if kind == "map":
            size_of(part["values"], inside)
            return 1
        if kind == "fixed":
            named[part["name"]] = part
            return int(part["size"])
        if kind in ("record", "error"):
            named[part["name"]] = part
            within = inside | {part["name"]}
            return sum([size_of(field["type"], within) for field in part["fields"]])
        if kind in inside:
            holding_themselves.add(kind)
            return 1
        return size_of(named[kind], inside) if kind in named else 1

    size_of(schema, frozenset())
    return bool(holding_themselves)
