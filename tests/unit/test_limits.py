"""docs/limits.md says the limits that the code has."""

from __future__ import annotations

import re

import pytest

from flinkish.common import options
from flinkish.connectors.jdbc.committer import CONNECTIONS_KEPT_MAX
from flinkish.connectors.kafka.committer import PRODUCERS_KEPT_MAX
from flinkish.connectors.kept_resources import IDLE_LIMIT_S
from flinkish.connectors.paged_source import PagedSource
from flinkish.core.checkpointed_function import DEFAULT_MAX_FAILURES, DEFAULT_MAX_RATE
from flinkish.delta.checkpoints import PAGE_BYTES_MAX, PAGES_BYTES_MAX, TEXT_BYTES_MAX
from flinkish.errors import MAX_TEXT, MAX_TRACEBACK
from flinkish.graph.stream_graph import MAX_PARALLELISM_LIMIT
from flinkish.jobmanager.requests import MAX_REQUEST_BYTES
from flinkish.runtime.job.log import MAX_CHARACTERS, MAX_LINES
from flinkish.runtime.task.task import RETAINED_EPOCHS
from flinkish.storage.paths import FileKind
from tests.support.documented import DOCS

_ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
ROWS = {row[0]: (row[1], row[2]) for row in _ROW.findall((DOCS / "limits.md").read_text().partition("## How large")[2])}


@pytest.mark.parametrize(
    ("row", "numbers"),
    [
        ("parallelism, max parallelism", [MAX_PARALLELISM_LIMIT]),
        ("unread pages of a `PagedSource`", [PagedSource.max_pages_ahead]),
        ("failures that `on_error` allows a subtask", [DEFAULT_MAX_FAILURES, int(100 * DEFAULT_MAX_RATE)]),
        ("log lines that a task sends to the driver, in an epoch", [MAX_LINES, MAX_CHARACTERS]),
        ("text of an exception, a traceback", [MAX_TEXT, MAX_TRACEBACK]),
        ("a request of a command", [MAX_REQUEST_BYTES // 1024**2]),
        (
            "a manifest, a commit and a checkpoint of the log of a savepoint's table",
            [kind.max_bytes >> 20 for kind in (FileKind.MANIFEST, FileKind.LOG_COMMIT, FileKind.LOG_CHECKPOINT)],
        ),
        (
            "what such a checkpoint expands to: a page, all pages, the texts of all rows",
            [limit >> 20 for limit in (PAGE_BYTES_MAX, PAGES_BYTES_MAX, TEXT_BYTES_MAX)],
        ),
        (
            "connections and producers that a worker keeps",
            [CONNECTIONS_KEPT_MAX, PRODUCERS_KEPT_MAX, int(IDLE_LIMIT_S)],
        ),
        ("epochs that can be replayed", [RETAINED_EPOCHS]),
    ],
)
def test_a_limit_is_that_of_the_code(row: str, numbers: list[int]) -> None:
    assert [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", ROWS[row][0])] == numbers


@pytest.mark.parametrize(
    "row",
    [
        "a line, a CSV record, a block of an Avro file",
        "keyed state of a subtask",
        "rows of the history",
    ],
)
def test_a_limit_that_can_be_changed_is_the_default_of_its_key(row: str) -> None:
    text, key = ROWS[row]
    option = options.lookup(key.strip("`"))
    assert option is not None
    (value,) = re.findall(r"\d+ (?:[KM]iB|days)", text)
    assert option.default == option.parse(value.replace("iB", "b").replace(" days", " d"))
