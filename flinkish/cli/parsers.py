"""What the parsers of all commands share: an example in the help, ``--json``, and exit codes.

A command may have a name of two words (``savepoint status``); the first word may be a command of its own. So any module
of commands can add one of its own beside those of other modules.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

#: Exit codes: it was carried out; it was refused, or has failed; it was accepted, and goes on.
DONE, REFUSED, ACCEPTED = 0, 2, 3


def add_command(
    commands: Any, name: str, text: str, carry_out: Callable[[argparse.Namespace], int | None], *examples: str
) -> argparse.ArgumentParser:
    """Add the parser of a command; returns it.

    Args:
        commands: the subparsers of `argparse`.
        name: one word, or two.
        text: what the command does, in one line.
        carry_out: runs it, and returns the exit code; None: 0.
        examples: command lines, of which there must be one.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=example(*examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(carry_out=carry_out)
    return parser


def example(*lines: str) -> str:
    """What stands below the help of a command."""
    return "\n  ".join([f"example{'s' if len(lines) > 1 else ''}:", *lines])


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def in_two_words(arguments: list[str], names: dict[str, argparse.ArgumentParser]) -> list[str]:
    """A command line whose first two words are one, if they name a command together."""
    return [both, *arguments[2:]] if (both := " ".join(arguments[:2])) in names and len(arguments) > 1 else arguments


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=1))
