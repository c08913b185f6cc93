"""The commands of ``flinkish`` for a job that runs in another process: savepoint, stop, cancel, describe.

Their names and options are those of Flink's command line, with the job's directory in place of the job id.
"""

from __future__ import annotations

import argparse
import json
from typing import Any


def add_commands(commands: Any) -> None:
    """Add the parsers of these commands to ``commands``, the subparsers of the command line. Each parser sets the
    default ``carry_out``, the function that takes the parsed arguments and runs the command."""
    savepoint = _command(commands, "savepoint", "write a savepoint of a running job; prints its path", _savepoint)
    savepoint.add_argument("target", nargs="?", metavar="DIRECTORY", help="where to; default: as configured")
    stop = _command(commands, "stop", "stop a job after a savepoint; prints its path", _stop)
    stop.add_argument("-p", "--savepointPath", metavar="DIRECTORY", help="where to; default: as configured")
    stop.add_argument("-d", "--drain", action="store_true", help="send the highest watermark first: all windows fire")
    _command(commands, "cancel", "cancel a job, without a savepoint", _cancel)
    _command(commands, "describe", "what the driver says of the job, as JSON", _describe)


def _command(commands: Any, name: str, text: str, carry_out: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text)
    parser.add_argument("job_dir", metavar="JOB_DIR", help="the job's directory (flinkish.job.dir)")
    parser.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS", help="for the driver's answer")
    parser.set_defaults(carry_out=carry_out)
    return parser


def _ask(arguments: argparse.Namespace, action: str, **details: Any) -> Any:
    from flinkish.jobmanager.requests import ask

    return ask(arguments.job_dir, action, arguments.timeout, **details)


def _savepoint(arguments: argparse.Namespace) -> None:
    print(_ask(arguments, "savepoint", directory=arguments.target))


def _stop(arguments: argparse.Namespace) -> None:
    print(_ask(arguments, "stop", directory=arguments.savepointPath, drain=arguments.drain))


def _cancel(arguments: argparse.Namespace) -> None:
    _ask(arguments, "cancel")


def _describe(arguments: argparse.Namespace) -> None:
    print(json.dumps(_ask(arguments, "describe"), indent=1))
