"""The commands for a job that runs in another process: Flink's names and options, with the job's directory in place of
the job id. ``prepared`` is for a job that has ended because a sink refused what an epoch holds for it.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from flinkish.errors import ConfigurationError


def add_commands(commands: Any) -> None:
    """Add the parsers of these commands."""
    savepoint = _command(commands, "savepoint", "write a savepoint of a running job; prints its path", _savepoint)
    savepoint.add_argument("target", nargs="?", metavar="DIRECTORY", help="where to; default: as configured")
    stop = _command(commands, "stop", "stop a job after a savepoint; prints its path", _stop)
    stop.add_argument("-p", "--savepointPath", metavar="DIRECTORY", help="where to; default: as configured")
    stop.add_argument("-d", "--drain", action="store_true", help="send the highest watermark first: all windows fire")
    _command(commands, "cancel", "cancel a job, without a savepoint", _cancel)
    describe = _command(commands, "describe", "what the driver says of the job, as JSON", _describe)
    describe.add_argument("--attempts", action="store_true", help="with the earlier attempts of each subtask")
    prepared = commands.add_parser("prepared", help="show or skip what an epoch that could not be committed holds")
    prepared.add_argument("job_dir", metavar="JOB_DIR", help="the job's directory (flinkish.job.dir)")
    prepared.add_argument("--sink", metavar="UID", help="show the records for this sink; default: count those of all")
    prepared.add_argument("--subtask", type=int, metavar="N", help="of this subtask of the sink only, from 0")
    prepared.add_argument("--skip", metavar="NUMBERS", help="take these records out of the epoch: 3,7-9 or all")
    prepared.add_argument("--into", metavar="FILE", help="append the skipped records to this file, as JSON")
    prepared.set_defaults(carry_out=_prepared)


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
    wanted = {"attempts": True} if arguments.attempts else {}
    print(json.dumps(_ask(arguments, "describe", **wanted), indent=1))


def _prepared(arguments: argparse.Namespace) -> None:
    from flinkish.jobdir.waiting_epoch import open_waiting, skip_output

    if arguments.skip is not None:
        if arguments.sink is None or arguments.into is None:
            raise ConfigurationError("--skip alone", expected="--sink UID --skip NUMBERS --into FILE")
        numbers = None if arguments.skip == "all" else _numbers(arguments.skip)
        count = skip_output(arguments.job_dir, arguments.sink, arguments.subtask, numbers, arguments.into)
        print(json.dumps({"skipped": count, "into": arguments.into}))
        return
    waiting = open_waiting(arguments.job_dir)
    if arguments.sink is not None:
        for record in waiting.records(arguments.sink, arguments.subtask):
            print(record.as_json(waiting.epoch))
        return
    for (sink, subtask), count in waiting.counts().items():
        print(json.dumps({"epoch": waiting.epoch, "sink": sink, "subtask": subtask, "records": count}))


def _numbers(text: str) -> set[int]:
    try:
        ranges = [[int(end) for end in part.split("-")] for part in text.split(",")]
        return {number for ends in ranges for number in range(ends[0], ends[-1] + 1)}
    except ValueError:
        raise ConfigurationError(f"--skip {text}", expected="numbers and ranges such as 3,7-9, or all") from None
