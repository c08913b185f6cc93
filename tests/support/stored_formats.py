"""The tables of ``docs/formats.md`` that are made of the list of stored files.

``python -m tests.support.stored_formats`` writes them; ``tests/unit/test_formats_page.py`` fails while they are out of
date.
"""

from __future__ import annotations

import re

from flinkish.checkpoint.manifest import CHECKPOINT_LAYOUT
from flinkish.jobdir.formats import LAYOUT
from flinkish.session.children import StartedDrivers
from flinkish.storage.stored_file import RESTORE, StoredFile
from tests.support.documented import DOCS

COMMAND = "python -m tests.support.stored_formats"
PAGE = DOCS / "formats.md"
_BEGIN, _END = "<!-- made by `" + COMMAND + "` -->", "<!-- end -->"
_HEAD = """\
| file | holds | there | version | reads | read by | a damaged one |
| --- | --- | --- | ---: | ---: | --- | --- |
"""


def _holds(kind: type[StoredFile]) -> str:
    """The first sentence about a kind."""
    text = " ".join((kind.__doc__ or "").split()).partition(". ")[0].removesuffix(".").replace("``", "`")
    return text[0].lower() + text[1:]


def _row(kind: type[StoredFile]) -> str:
    name = re.sub(r"\{.*?\}", "*", kind.NAME)
    version = str(kind.VERSION) if kind.VERSION and kind.SEALED else "–"
    oldest = "–" if version == "–" else version if kind.OLDEST == kind.VERSION else f"{kind.OLDEST} to {version}"
    damaged = "counts as missing" if kind.LENIENT else "–" if kind.REMEDY is RESTORE else kind.REMEDY
    cells = (
        f"`{kind.FOLDER}/{name}`".replace("`/", "`"),
        _holds(kind),
        kind.WHEN,
        version,
        oldest,
        kind.READER,
        damaged,
    )
    return f"| {' | '.join(cells)} |\n"


def page(now: str) -> str:
    """The page with its table as the list says."""
    tables = (_HEAD + "".join(map(_row, layout)) for layout in (LAYOUT, CHECKPOINT_LAYOUT, (StartedDrivers,)))
    made = f"{re.escape(_BEGIN)}\n.*?{re.escape(_END)}"
    return re.sub(made, lambda _: f"{_BEGIN}\n{next(tables)}{_END}", now, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
