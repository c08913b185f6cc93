"""JSON that carries its own digest, so that a file whose content has changed is never accepted; JSON whose fields have
declared types, so that content of any other shape is never used; and the checksum files of Hadoop, by which Spark
refuses a file that was damaged.

Digests tell damage, not forgery: whoever can write the file can write its digest. What the fields may hold is declared
by a dataclass for each kind of file.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
import types
import zlib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from flinkish.storage.paths import NameForm

_BLOCK_BYTES = 512


def checksum_path(path: str) -> str:
    """The path of the checksum file of a file.

    >>> checksum_path("/data/part-0.parquet")
    '/data/.part-0.parquet.crc'
    """
    parent, name = os.path.split(path)
    return os.path.join(parent, f".{name}.crc")


def write_checksums(path: str) -> None:
    """Create the checksum file of a local file, as Hadoop keeps one beside each file on a local file system:

        <directory>/.<name>.crc    "crc", a zero byte, the length of a block (4 bytes), then the CRC-32 of each block

    Where it is there, Spark refuses to read a file that was damaged since.
    """
    with open(path, "rb") as file, open(checksum_path(path), "wb") as checksums:
        checksums.write(b"crc\0" + struct.pack(">i", _BLOCK_BYTES))
        while block := file.read(_BLOCK_BYTES):
            checksums.write(struct.pack(">I", zlib.crc32(block)))


_SEAL = "digest"

#: The first version of the job directory's files that carries a digest.
_SEALED_SINCE = 2

T = TypeVar("T")

#: What the types of fields are called in errors.
_CALLED: dict[Any, str] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number of 64 bits",
    float: "a number",
    bytes: "a text in base64",
    type(None): "null",
}


def optional(default: Any) -> Any:
    """The default of a field of a dataclass that is not written while it has it."""
    return field(default=default, metadata={"optional": True})


def content_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass as they are written: without those that are `optional` and have their default."""
    found = ((one, getattr(value, one.name)) for one in fields(value))
    return {one.name: part for one, part in found if not one.metadata.get("optional") or part != one.default}


def plain(value: Any) -> Any:
    """What `typed` reads, for JSON that has no such values: bytes as text in base64, dataclasses as objects."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return content_of(value)


def sealed(value: dict[str, Any]) -> bytes:
    """The content of a file that holds this value and its digest."""
    # the digest covers the value as it will be read: JSON turns tuples into lists, and all keys into strings
    value = json.loads(json.dumps(value, default=plain))
    return json.dumps({**value, _SEAL: _digest(value)}, indent=1).encode()


def unsealed(data: bytes) -> dict[str, Any]:
    """The value that `sealed` wrote. Files of older versions have no digest and are accepted without one.

    Raises:
        ValueError: the content is not what was written; the message gives the reason.
    """
    value = _parsed(data)
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    digest = value.pop(_SEAL, None)
    version = value.get("version", 0)
    old = digest is None and isinstance(version, int) and version < _SEALED_SINCE
    if not old and digest != _digest(value):
        raise ValueError("its content does not fit its digest")
    return value


@dataclass(frozen=True)
class Bits:
    """The most bits of a whole number that may have more than 64: ``Annotated[int, Bits(256)]``."""

    count: int


def unsealed_as(kind: type[T], data: bytes) -> T:
    """The value that `sealed` wrote, as an instance of a dataclass that declares its fields (see `typed`). Fields that
    the class does not have, such as those of other versions, are left out.

    Raises:
        ValueError: the content is not what was written, or a field is not of its type; the message gives the reason.
    """
    return typed(kind, unsealed(data))


def json_as(kind: type[T], data: bytes | str) -> T:
    """JSON without a digest, as a value of this type (see `typed`).

    >>> json_as(dict[str, int], '{"a": 1}')
    {'a': 1}

    Raises:
        ValueError: the text is no JSON, or not of that type; the message gives the reason.
    """
    return typed(kind, _parsed(data))


def _parsed(data: bytes | str) -> Any:
    if not data.strip():
        raise ValueError("it is empty")
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
    except MemoryError:
        raise ValueError("it does not fit into memory") from None


def _digest(value: dict[str, Any]) -> str:
    content = {key: entry for key, entry in value.items() if key != _SEAL}
    try:
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


def typed(kind: type[T], value: object) -> T:
    """A value of JSON as the value of a type: a dataclass made of an object (fields without a default must be there),
    ``str``, ``bool``, ``int``, ``float``, ``None``, ``bytes`` (in base64), ``dict[str, ...]``, ``list[...]``,
    ``tuple[...]``, unions of these, ``Any``, and names of files: ``Annotated[str, NameForm(...)]``.

    Raises:
        ValueError: the value is not of that type; the message names the field.
    """
    made: T = _typed(kind, value, "it")
    return made


def _typed(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any or kind is object:
        return value
    if origin is Annotated:
        if isinstance(arguments[1], Bits):
            _check(type(value) is int and abs(value) < 1 << arguments[1].count, "a whole number", value, where)
            return value
        value = _typed(arguments[0], value, where)
        for form in arguments[1:]:
            if isinstance(form, NameForm) and value is not None:
                form.checked(value)
        return value
    if origin in (Union, types.UnionType):
        return _one_of(arguments, value, where)
    if origin in (dict, Mapping):
        _check(isinstance(value, dict), "an object", value, where)
        return {key: _typed(arguments[1], entry, f"{where}[{key[:60]!r}]") for key, entry in value.items()}
    if origin in (list, tuple):
        _check(isinstance(value, list), "a list", value, where)
        each = arguments[:1] * len(value) if origin is list or arguments[1:] == (...,) else arguments
        _check(len(each) == len(value), f"a list of {len(each)}", value, where)
        return origin(_typed(one, entry, f"{where}[{n}]") for n, (one, entry) in enumerate(zip(each, value)))
    if is_dataclass(kind):
        return _made(kind, value, where)
    return _plain(kind, value, where)


def _one_of(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    for kind in kinds:
        try:
            return _typed(kind, value, where)
        except ValueError as error:
            last = error
    if len(kinds) == 2 and type(None) in kinds and value is not None:
        kinds = tuple(kind for kind in kinds if kind is not type(None))
        return _typed(kinds[0], value, where)
    raise last


def _made(kind: Any, value: Any, where: str) -> Any:
    _check(isinstance(value, dict), "an object", value, where)
    hints, given = _hints(kind), {}
    for one in fields(kind):
        if one.name in value:
            given[one.name] = _typed(hints[one.name], value[one.name], f"{where}.{one.name}")
        elif one.default is MISSING and one.default_factory is MISSING:
            raise ValueError(f"{where}.{one.name} is missing")
    return kind(**given)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _plain(kind: Any, value: Any, where: str) -> Any:
    if kind is bytes:
        _check(isinstance(value, str), _CALLED[kind], value, where)
        try:
            return base64.b64decode(value, validate=True)
        except ValueError:
            raise ValueError(f"{where} is no text in base64") from None
    if kind is float:
        _check(type(value) in (int, float), _CALLED[kind], value, where)
        return value
    fits = type(value) is kind and (kind is not int or -(1 << 63) <= value < 1 << 63)
    _check(fits, _CALLED.get(kind, kind.__name__), value, where)
    return value


def _check(condition: bool, expected: str, value: Any, where: str) -> None:
    if not condition:
        raise ValueError(f"{where} is {_shown(value)}, expected {expected}")


def _shown(value: Any) -> str:
    """A value as text, without what is nested in it."""
    if isinstance(value, (dict, list)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    try:
        return repr(value)[:100]
    except ValueError:
        return "a number with too many digits"
