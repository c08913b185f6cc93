"""Reads the command line and runs the command that it names.

Rule: the exit code is the program's own, 0 for a command that was carried out, 3 for an operation that was accepted and
goes on, or 2 for what cannot be done, with one line that says why.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from flinkish.cli import completion, doctor, info, jobmanager, jobs, programs, state
from flinkish.cli.parsers import DONE, REFUSED, add_json, example, in_two_words, print_json
from flinkish.errors import FlinkishError
from flinkish.launch.home import s3_settings_without_spark
from flinkish.storage.stores import S3_SETTINGS

#: The modules of commands, in the order of the help.
_GROUPS = (jobs, programs, info, state, jobmanager, doctor, completion)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the console script and return its exit code. ``argv`` (default: the process's) does not contain the name of
    the command."""
    parser, names = _parser()
    given, program = programs.without_program(sys.argv[1:] if argv is None else argv)
    arguments = parser.parse_args(in_two_words(given, names))
    if arguments.version:
        _print_versions(arguments.json)
        return DONE
    if arguments.command is None:
        parser.print_help(sys.stderr)
        return REFUSED
    if program:
        arguments.program = program
    try:
        if not getattr(arguments, "starts_spark", False) and (settings := s3_settings_without_spark(os.environ)):
            os.environ.setdefault(S3_SETTINGS, json.dumps(settings))
        code: int | None = arguments.carry_out(arguments)
        return DONE if code is None else code
    except FlinkishError as error:
        print(f"flinkish: {error}", file=sys.stderr)
    except BrokenPipeError:
        # who reads the output has seen enough; Python would complain of what is left of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    return REFUSED


def _parser() -> tuple[argparse.ArgumentParser, dict[str, Any]]:
    """The parser, and those of the commands by their names."""
    parser = argparse.ArgumentParser(
        "flinkish",
        description="Flink DataStream programs on Spark.",
        epilog=f"{example('flinkish run clicks.py', 'flinkish list', 'flinkish stop clicks -p /data/savepoints')}\n\n"
        "exit codes: 0 carried out, 2 refused or failed, 3 accepted and going on; of 'run' those of the program",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="show the versions that matter, and exit")
    add_json(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for group in _GROUPS:
        group.add_commands(commands)
    return parser, dict(commands.choices)


def _print_versions(as_json: bool) -> None:
    from flinkish.cli.versions import versions, versions_text

    if as_json:
        print_json(versions())
    else:
        print(versions_text())


if __name__ == "__main__":
    sys.exit(main())
