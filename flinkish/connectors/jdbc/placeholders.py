"""``?`` placeholders of JDBC statements: counted, and rewritten for psycopg.

A ``?`` inside a literal, a quoted identifier, a dollar-quoted text or a comment is no placeholder; ``??`` is JDBC's
way to write PostgreSQL's operator ``?``.
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
    """
    >>> count_placeholders("INSERT INTO t VALUES (?, '?', ?) -- ?")
    2
    """
    return sum(match[0] == "?" for match in _TOKEN.finditer(sql))


def psycopg_placeholders(sql: str) -> str:
    """The statement with ``%s`` for each placeholder, and ``%`` doubled everywhere else.

    >>> psycopg_placeholders("UPDATE t SET a = ? WHERE b LIKE '5%?' AND c ?? 'k'")
    "UPDATE t SET a = %s WHERE b LIKE '5%%?' AND c ? 'k'"
    """
    return _TOKEN.sub(_rewritten, sql.replace("%", "%%"))


def _rewritten(match: re.Match[str]) -> str:
    return {"?": "%s", "??": "?"}.get(match[0], match[0])
