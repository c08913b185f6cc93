"""Reads ``conf/flinkish.yaml``: flat (``a.b: c``) or nested keys.

Rule upheld here: values are texts, whatever YAML would make of them (``on``, ``1:30`` and ``0x10`` stay what was
written), so a flat file means the same whether or not pyyaml is installed to read it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from flinkish.common.configuration import Configuration
from flinkish.common.units import format_list, format_map, unquote
from flinkish.errors import ConfigurationError, EnvironmentVersionError

__all__ = ["load_yaml", "parse_yaml"]

_COMMENT = re.compile(r"(^|\s)#.*$")
_FLAT_LINE = re.compile(r"""(?P<key>[A-Za-z0-9_.\-/]+)\s*:(?:\s+(?P<value>.*))?$""")
# what only YAML can read: anchors, tags, block and flow collections, block texts
_YAML_VALUE = tuple("&*!|>[{%@`")


def load_yaml(path: str | os.PathLike[str]) -> Configuration:
    """The configuration in a file. It is not validated; call :meth:`Configuration.validate`.

    Raises:
        ConfigurationError: the file cannot be read, is not YAML or is not a mapping of keys to values.
        EnvironmentVersionError: the file has nested keys or lists and pyyaml is not installed.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"the configuration file cannot be read: {error}", where=str(path), expected="a UTF-8 text file"
        ) from error
    return parse_yaml(text, where=str(path))


def parse_yaml(text: str, where: str = "configuration text") -> Configuration:
    """The configuration in a YAML text; see :func:`load_yaml`.

    >>> parse_yaml("parallelism.default: 2  # cores").to_dict()
    {'parallelism.default': '2'}
    """
    flat = _flat_entries(text, where)
    return Configuration.from_dict(_nested_entries(text, where) if flat is None else flat)


def _flat_entries(text: str, where: str) -> dict[str, str] | None:
    """The entries if every line is ``key: value``; None if the file needs a YAML parser."""
    entries: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = _without_comment(line).rstrip()
        if not stripped or stripped == "---":
            continue
        match = _FLAT_LINE.fullmatch(stripped)
        value = (match["value"] or "").strip() if match else ""
        if match is None or not value or value.startswith(_YAML_VALUE) or "\\" in value and value[0] == '"':
            return None
        if match["key"] in entries:
            raise ConfigurationError(
                f"the key '{match['key']}' occurs twice", where=f"{where}, line {number}", expected="each key once"
            )
        entries[match["key"]] = unquote(value)
    return entries


def _without_comment(line: str) -> str:
    match = re.match(r"""(\s*[^\s'"#:]+\s*:\s+)('(?:[^']|'')*'|"(?:[^"\\]|\\.)*")(.*)$""", line)
    if match:  # a quoted value may hold a '#'
        return match[1] + match[2] + _COMMENT.sub("", match[3])
    return _COMMENT.sub("", line)


def _nested_entries(text: str, where: str) -> dict[str, str]:
    try:
        import yaml
    except ImportError:
        raise EnvironmentVersionError(
            "the configuration file has nested keys or lists, and the package pyyaml is not installed",
            where=where,
            expected="flat lines 'key: value', or pyyaml",
            hint="pip install pyyaml, or write the keys flat, such as 'parallelism.default: 2'",
        ) from None
    try:
        # BaseLoader leaves every scalar a string
        document = yaml.load(text, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError) as error:
        # the parser's own message quotes the line, in which a secret may stand
        mark = getattr(error, "problem_mark", None)
        place = where if mark is None else f"{where}, line {mark.line + 1}, column {mark.column + 1}"
        raise ConfigurationError("the configuration is not YAML", where=place, expected="YAML") from None
    if document is None or document == "":
        return {}
    if not isinstance(document, dict):
        raise ConfigurationError(
            f"the configuration is a {type(document).__name__}", where=where, expected="keys with values"
        )
    entries: dict[str, str] = {}
    for key, value in _leaves(document, ""):
        if key in entries:
            raise ConfigurationError(f"the key '{key}' occurs twice", where=where, expected="each key once")
        entries[key] = value
    return entries


def _leaves(node: dict[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    from flinkish.common.options import lookup

    for key, value in node.items():
        path = f"{prefix}{key}"
        option = lookup(path)
        if isinstance(value, dict) and (option is None or option.kind != "map"):
            yield from _leaves(value, path + ".")
        elif isinstance(value, dict):
            yield path, format_map(value)
        elif isinstance(value, list):
            yield path, format_list(value)
        else:
            yield path, str(value)
