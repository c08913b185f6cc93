"""What MkDocs does with the pages of docs/ before it renders them.

The pages are written for GitHub, and with marks for tests. Both can be read as they are; the site shows neither.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

#: The first line of a block of code that a test runs (tests/support/documented.py).
_MARK = re.compile(r"^```(\w+) (?:tried|printed|file=(\S+))$", re.MULTILINE)

#: A list within a numbered one. GitHub wants it below the text of the item, MkDocs four columns in.
_NESTED = re.compile(r"^ {3}(?=\* )", re.MULTILINE)

#: A row of a table that begins with a link to a page.
_ROW = re.compile(r"^\| \[[^]]+\]\(([\w-]+\.md)\) \|.*\n", re.MULTILINE)


def on_config(config: Any) -> Any:
    """Leave pages that do not exist yet out of the navigation."""
    docs = Path(config["docs_dir"])
    for index, entry in enumerate(config["nav"]):
        for title, pages in entry.items():
            if isinstance(pages, list):
                config["nav"][index] = {title: [page for page in pages if (docs / page).exists()]}
    return config


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    """Show the file that a block of code is written to as the title of the block, and no other mark. Leave out the rows
    of the start page that name a page that does not exist yet."""
    docs = Path(config["docs_dir"])
    markdown = _ROW.sub(lambda match: match[0] if (docs / match[1]).exists() else "", markdown)
    markdown = _NESTED.sub("    ", markdown)
    return _MARK.sub(lambda match: f"```{match[1]}" + (f' title="{match[2]}"' if match[2] else ""), markdown)
