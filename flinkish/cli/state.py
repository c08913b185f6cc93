"""The commands for the state in savepoints and checkpoints: ``state list``, ``state query`` and ``state diff``."""

from __future__ import annotations

import argparse
from itertools import islice
from typing import Any

from flinkish.cli.parsers import add_command, add_json, print_json
from flinkish.common.text_table import aligned
from flinkish.errors import ConfigurationError
from flinkish.storage.paths import absolute

_SNAPSHOT = "a job's directory (its latest checkpoint), a checkpoint or a savepoint"


def add_commands(commands: Any) -> None:
    """Add the parsers of these commands."""
    whole = "show, search and compare the state in savepoints and checkpoints: state list, query, diff"
    add_command(commands, "state", whole, _without_word, "flinkish state list /data/jobs/clicks")
    text = "list all states of a savepoint or checkpoint, with their types, rows, keys and bytes"
    listed = add_command(commands, "state list", text, _list, "flinkish state list /data/jobs/clicks")
    listed.add_argument("path", metavar="PATH", help=_SNAPSHOT)
    add_json(listed)
    query = add_command(
        commands,
        "state query",
        "show the entries of a state",
        _query,
        "flinkish state query /data/jobs/clicks --uid counts --state n --key ann",
    )
    query.add_argument("path", metavar="PATH", help=_SNAPSHOT)
    query.add_argument("--uid", required=True, metavar="UID", help="of the operator")
    query.add_argument("--state", required=True, metavar="NAME", help="of the state's descriptor")
    query.add_argument("--key", metavar="KEY", help="only this key: text, number, or a JSON list for a tuple")
    query.add_argument(
        "--limit", type=int, default=20, metavar="N", help="entries that are shown; default: %(default)s"
    )
    add_json(query)
    for name in ("state diff", "savepoint diff"):
        _add_diff(commands, name)


def _add_diff(commands: Any, name: str) -> None:
    text = "show how the states of two savepoints differ"
    diff = add_command(commands, name, text, _diff, f"flinkish {name} savepoint-1f savepoint-2e --uid counts")
    diff.add_argument("before", metavar="BEFORE", help=_SNAPSHOT)
    diff.add_argument("after", metavar="AFTER", help=_SNAPSHOT)
    diff.add_argument("--uid", metavar="UID", help="only the states of this operator")
    diff.add_argument(
        "--limit", type=int, default=10, metavar="N", help="changes shown of a state; default: %(default)s"
    )
    add_json(diff)


def _without_word(arguments: argparse.Namespace) -> None:
    raise ConfigurationError("state alone", expected="flinkish state list, query or diff")


def _list(arguments: argparse.Namespace) -> None:
    from flinkish.state.contents import as_json, describe_savepoint

    found = describe_savepoint(absolute(arguments.path))
    if arguments.json:
        print_json(as_json(found))
    else:
        print(found)


def _query(arguments: argparse.Namespace) -> None:
    from flinkish.state.contents import entries, entry_json, shown

    every = entries(absolute(arguments.path), arguments.uid, arguments.state, arguments.key)
    found = list(islice(every, max(0, arguments.limit) + 1))
    more, found = len(found) > arguments.limit, found[: arguments.limit]
    if arguments.json:
        print_json({"entries": [entry_json(*one) for one in found], "more": more})
        return
    lines = ((shown(e.key), shown(e.namespace), shown(e.map_key), shown(value)) for e, value in found)
    print(aligned([("key", "namespace", "map key", "value"), *lines]))
    if more:
        print(f"the first {arguments.limit} entries; --limit shows more, --key those of one key")


def _diff(arguments: argparse.Namespace) -> None:
    from flinkish.state.contents import as_json, difference, shown

    found = difference(absolute(arguments.before), absolute(arguments.after), arguments.uid, max(0, arguments.limit))
    if arguments.json:
        print_json({"states": as_json(found), "equal": all(one.is_equal for one in found)})
        return
    counts = ((d.uid, d.state, *(f"{n:,}" for n in (d.added, d.removed, d.changed, d.same))) for d in found)
    print(aligned([("uid", "state", "added", "removed", "changed", "same"), *counts]))
    for one in found:
        for change in one.changes:
            entry = ", ".join(filter(None, map(shown, change.entry)))
            values = " -> ".join(shown(text) for text in (change.before, change.after) if text is not None)
            print(f"{one.uid}.{one.state} {change.kind} {entry}: {values}")
        left = one.added + one.removed + one.changed - len(one.changes)
        if one.changes and left:
            print(f"{one.uid}.{one.state} and {left:,} more")
