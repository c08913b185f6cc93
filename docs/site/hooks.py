"""What MkDocs does with the pages of docs/ before it renders them.

The pages are written for GitHub, and with marks for tests. Both can be read as they are; the site shows neither.
"""

from __future__ import annotations

import re
from typing import Any

#: The first line of a block of code that a test runs (tests/support/documented.py).
_MARK = re.compile(r"^```(\w+) (?:tried|printed|file=(\S+))$", re.MULTILINE)

#: A list within a numbered one. GitHub wants it below the text of the item, MkDocs four columns in.
_NESTED = re.compile(r"^ {3}(?=\* )", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Show the file that a block of code is written to as the title of the block, and no other mark."""
    markdown = _NESTED.sub("    ", markdown)
    return _MARK.sub(lambda match: f"```{match[1]}" + (f' title="{match[2]}"' if match[2] else ""), markdown)
