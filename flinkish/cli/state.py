"""The commands for the state in savepoints and checkpoints: ``state list``, ``state query`` and ``state diff``."""

from __future__ import annotations

import argparse
import json
from itertools import islice
from typing import Any

from flinkish.storage.paths import absolute

_PLACE = "a job's directory (its latest checkpoint), a checkpoint or a savepoint"


def add_commands(commands: Any) -> None:
    """Add the parsers of these commands."""
    state = commands.add_parser("state", help="show, search and compare the state in savepoints and checkpoints")
    of_state = state.add_subparsers(dest="state_command", required=True, metavar="COMMAND")
    listed = _command(of_state, "list", "all states, with their types, rows, keys and bytes", "/data/jobs/clicks")
    listed.add_argument("path", metavar="PATH", help=_PLACE)
    listed.set_defaults(carry_out=_list)
    example = "/data/jobs/clicks --uid counts --state n --key ann"
    query = _command(of_state, "query", "the entries of a state", example)
    query.add_argument("path", metavar="PATH", help=_PLACE)
    query.add_argument("--uid", required=True, metavar="UID", help="of the operator")
    query.add_argument("--state", required=True, metavar="NAME", help="of the state's descriptor")
    query.add_argument("--key", metavar="KEY", help="only this key: text, number, or a JSON list for a tuple")
    query.add_argument(
        "--limit", type=int, default=20, metavar="N", help="entries that are shown; default: %(default)s"
    )
    query.set_defaults(carry_out=_query)
    _add_diff(of_state, "diff")
    _add_diff(commands, "savepoint diff")


def _add_diff(commands: Any, name: str) -> None:
    diff = _command(commands, name, "how the states of two savepoints differ", "savepoint-1f savepoint-2e --uid counts")
    diff.add_argument("before", metavar="BEFORE", help=_PLACE)
    diff.add_argument("after", metavar="AFTER", help=_PLACE)
    diff.add_argument("--uid", metavar="UID", help="only the states of this operator")
    diff.add_argument(
        "--limit", type=int, default=10, metavar="N", help="changes shown of a state; default: %(default)s"
    )
    diff.set_defaults(carry_out=_diff)


def _command(commands: Any, name: str, text: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, epilog=f"example: ... {name} {example}")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _list(arguments: argparse.Namespace) -> None:
    from flinkish.state.contents import as_json, describe_savepoint

    found = describe_savepoint(absolute(arguments.path))
    print(json.dumps(as_json(found), indent=1) if arguments.json else found)


def _query(arguments: argparse.Namespace) -> None:
    from flinkish.state.contents import as_lines, entries, entry_json, shown

    every = entries(absolute(arguments.path), arguments.uid, arguments.state, arguments.key)
    found = list(islice(every, max(0, arguments.limit) + 1))
    more, found = len(found) > arguments.limit, found[: arguments.limit]
    if arguments.json:
        print(json.dumps({"entries": [entry_json(*one) for one in found], "more": more}, indent=1))
        return
    lines = ((shown(e.key), shown(e.namespace), shown(e.map_key), shown(value)) for e, value in found)
    print(as_lines(("key", "namespace", "map key", "value"), lines))
    if more:
        print(f"the first {arguments.limit} entries; --limit shows more, --key those of one key")


def _diff(arguments: argparse.Namespace) -> None:
    from flinkish.state.contents import as_json, as_lines, difference, shown

    found = difference(absolute(arguments.before), absolute(arguments.after), arguments.uid, max(0, arguments.limit))
    if arguments.json:
        print(json.dumps({"states": as_json(found), "equal": all(one.is_equal for one in found)}, indent=1))
        return
    counts = ((d.uid, d.state, *(f"{n:,}" for n in (d.added, d.removed, d.changed, d.same))) for d in found)
    print(as_lines(("uid", "state", "added", "removed", "changed", "same"), counts))
    for one in found:
        for change in one.changes:
            entry = ", ".join(filter(None, map(shown, change.entry)))
            values = " -> ".join(shown(text) for text in (change.before, change.after) if text is not None)
            print(f"{one.uid}.{one.state} {change.kind} {entry}: {values}")
        left = one.added + one.removed + one.changed - len(one.changes)
        if one.changes and left:
            print(f"{one.uid}.{one.state} and {left:,} more")
