"""HTML for notebooks, which show an object by its ``_repr_html_``.

Rule: every text is escaped, and what may be a secret in it is hidden; only what these functions return is markup.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flinkish.errors import redact


def text(value: Any) -> str:
    """A value as text within an element or an attribute."""
    return html.escape(redact(str(value)))


def paragraph(value: Any) -> str:
    """A paragraph of text."""
    return f"<p>{text(value)}</p>"


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table of texts; "" if it has no rows."""
    lines = ["".join(f'<td style="text-align: left">{text(cell)}</td>' for cell in row) for row in rows]
    head = "".join(f'<th style="text-align: left">{text(cell)}</th>' for cell in header)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if lines else ""


def facts(values: Mapping[str, Any]) -> str:
    """A table with a line for each name and its value; what is None or "" is left out."""
    return table((), ((name, value) for name, value in values.items() if value not in (None, "")))


def folded(title: str, preformatted: str) -> str:
    """Lines that are shown once somebody asks for them; "" if there are none."""
    return f"<details><summary>{text(title)}</summary><pre>{text(preformatted)}</pre></details>" if preformatted else ""
