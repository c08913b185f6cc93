"""``python -m tests.public_names`` writes ``docs/api.md`` anew, and fails if the notes are wrong."""

from __future__ import annotations

import sys

from tests.public_names.table import PAGE, current

text, faults = current()
PAGE.write_text(text)
sys.exit("\n".join(faults) or None)
