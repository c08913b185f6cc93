"""Reads the command line and runs the command that it names.

Rule: the exit code is the program's own, 0 for a command that was carried out, or 2 for one that cannot be, with one
line that says why.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from flinkish import __version__
from flinkish.cli import doctor, info, jobmanager, jobs, programs, state
from flinkish.errors import FlinkishError
from flinkish.launch.home import s3_settings_without_spark
from flinkish.storage.stores import S3_SETTINGS

#: The modules of commands, in the order of the help.
_GROUPS = (jobs, programs, info, state, jobmanager, doctor)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the console script and return its exit code. ``argv`` (default: the process's) does not contain the name of
    the command."""
    parser = _parser()
    given, program = programs.without_program(sys.argv[1:] if argv is None else argv)
    arguments = parser.parse_args(given)
    if arguments.command is None:
        parser.print_help(sys.stderr)
        return 2
    if program:
        arguments.program = program
    try:
        if not getattr(arguments, "starts_spark", False) and (settings := s3_settings_without_spark(os.environ)):
            os.environ.setdefault(S3_SETTINGS, json.dumps(settings))
        code: int | None = arguments.carry_out(arguments)
        return 0 if code is None else code
    except FlinkishError as error:
        print(f"flinkish: {error}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("flinkish", description="Flink DataStream programs on Spark.")
    parser.add_argument("--version", action="version", version=f"flinkish {__version__}")
    commands = parser.add_subparsers(dest="command")
    for group in _GROUPS:
        group.add_commands(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
