"""docs/configuration.md has every configuration key."""

from __future__ import annotations

from flinkish.common.options import cluster, groups, known_keys, loggers
from tests.support.configuration_keys import COMMAND, PAGE, page


def test_the_page_is_what_the_options_say() -> None:
    assert PAGE.read_text() == page(), f"docs/configuration.md is out of date: run '{COMMAND}'"


def test_each_key_is_on_the_page_once() -> None:
    text = page()
    keys = [*known_keys(), *(key for key in cluster.UNREAD if not key.startswith("$") and not key.endswith("."))]
    counted = {key: text.count(f"`{key}`") for key in keys}
    assert {key: count for key, count in counted.items() if count != 1} == {}


def test_each_group_of_options_has_a_table() -> None:
    options = [option for group in groups().values() for option in group]
    effective = [option.key for option in options if not option.no_effect]
    rows = [
        line for line in page().splitlines() if line.startswith("| `") and not line.startswith(f"| `{loggers.PREFIX}")
    ]
    assert len(rows) == len(effective)
