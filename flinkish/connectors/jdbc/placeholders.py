"""Counts the ``?`` placeholders of JDBC statements, and rewrites them for psycopg.

A ``?`` inside a literal, a quoted identifier, a dollar-quoted string or a comment is no placeholder; ``??`` is how JDBC
writes PostgreSQL's operator ``?``.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""
      '(?:[^']|'')*'                          # literal
    | "(?:[^"]|"")*"                          # quoted identifier
    | (?P<tag>\$(?:[A-Za-z_]\w*)?\$).*?(?P=tag)   # dollar-quoted text
    | --[^\n]*
    | /\*.*?\*/
    | \?\?
    | \?
    """,
    re.VERBOSE | re.DOTALL,
)


def count_placeholders(sql: str) -> int:
    """The number of placeholders of a statement.

    >>> count_placeholders("INSERT INTO t VALUES (?, '?', ?) -- ?")
    2
    """
    return sum(match[0] == "?" for match in _TOKEN.finditer(sql))


def psycopg_placeholders(sql: str) -> str:
    """The statement in psycopg's syntax: ``%s`` for each placeholder, and every other ``%`` doubled.

    >>> psycopg_placeholders("UPDATE t SET a = ? WHERE b LIKE '5%?' AND c ?? 'k'")
    "UPDATE t SET a = %s WHERE b LIKE '5%%?' AND c ? 'k'"
    """
    return _TOKEN.sub(_rewritten, sql.replace("%", "%%"))


def _rewritten(match: re.Match[str]) -> str:
    return {"?": "%s", "??": "?"}.get(match[0], match[0])
