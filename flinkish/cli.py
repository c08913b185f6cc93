"""The console command ``flinkish``: the part of Flink's command line that exists here.

Rule: this module only reads the command line; the commands themselves are implemented in other modules. The exit code
is the program's own, or 2 if the command cannot be carried out, with one line that says why.

The commands for a job that runs in another process (savepoint, stop, cancel, describe) have the names and options of
Flink's command line, with the job's directory in place of the job id. ``prepared`` is for a job that has ended because
a sink refused what an epoch holds for it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from flinkish import __version__
from flinkish.errors import ConfigurationError, FlinkishError
from flinkish.launch import class_archive
from flinkish.launch.__main__ import Launch
from flinkish.launch.driver import DEFAULT_LIMIT, ReplayRequest
from flinkish.launch.home import Home, s3_settings_without_spark, settings_variable
from flinkish.launch.options import CommandLine
from flinkish.storage.paths import absolute
from flinkish.storage.stores import S3_SETTINGS


def add_commands(commands: Any) -> None:
    """Add the parsers of these commands to ``commands``, the subparsers of the command line. Each parser sets the
    default ``carry_out``, the function that takes the parsed arguments and runs the command."""
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


_SAVEPOINT = "execution.state-recovery.path"
_CLAIM_MODE = "execution.state-recovery.claim-mode"
_IGNORE_UNCLAIMED = "execution.state-recovery.ignore-unclaimed-state"
_DRY_RUN = "execution.state-recovery.dry-run"
_RESTART = "flinkish.job.restart"
_PARALLELISM = "parallelism.default"
_FULL_TRACEBACK = "FLINKISH_FULL_TRACEBACK"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the console script and return its exit code. ``argv`` (default: the process's) does not contain the name of
    the command. ``run`` and ``replay`` replace this process, so they return only if they cannot start the program."""
    parser = _parser()
    given, program = _without_program(sys.argv[1:] if argv is None else argv)
    arguments = parser.parse_args(given)
    if arguments.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        if arguments.command == "replay":
            _replay(arguments, program, os.environ)
        elif arguments.command == "sql":
            _sql(arguments, os.environ)
        elif arguments.command != "run":
            settings = s3_settings_without_spark(os.environ)
            if settings:
                os.environ.setdefault(S3_SETTINGS, json.dumps(settings))
            arguments.carry_out(arguments)
            return 0
        else:
            _run(arguments, os.environ)
    except FlinkishError as error:
        print(f"flinkish: {error}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("flinkish", description="Flink DataStream programs on Spark.")
    parser.add_argument("--version", action="version", version=f"flinkish {__version__}")
    commands = parser.add_subparsers(dest="command")
    add_commands(commands)
    prepare = commands.add_parser("prepare", help="make what jobs on this machine start faster with, once")
    prepare.set_defaults(carry_out=_prepare)
    examples = commands.add_parser("examples", help="copy the example programs into a directory; prints their paths")
    examples.add_argument("directory", nargs="?", default="flinkish-examples", metavar="DIRECTORY", help="%(default)s")
    examples.set_defaults(carry_out=_examples)
    run = commands.add_parser("run", help="run a program as a Spark driver")
    _add_savepoint_options(run)
    _add_settings(run)
    run.add_argument("--traceback", action="store_true", help="show all frames of an error, and what led to it")
    _add_replay(commands)
    sql = commands.add_parser("sql", help="Spark SQL with the tables of a job as views: state, savepoints, history")
    sql.add_argument("-e", dest="queries", metavar="QUERY", action="append", default=[], help="run this, and end")
    sql.add_argument("job_dir", nargs="?", metavar="JOB_DIR", help="a job's directory, a checkpoint or a savepoint")
    _add_settings(sql)
    run.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        metavar="PROGRAM.py ...",
        help="program, its options, `--`, Spark's options",
    )
    return parser


def _prepare(_: argparse.Namespace) -> None:
    print(class_archive.make(Home(os.environ).cache, os.environ))


def _examples(arguments: argparse.Namespace) -> None:
    """Copy the programs that came with the package. A file that is there with other contents is not replaced, since it
    may be an example that somebody has changed."""
    directory = Path(arguments.directory)
    examples = {
        directory / file.name: file.read_bytes()
        for file in resources.files("flinkish.examples").joinpath("jobs").iterdir()
        if file.name.endswith((".py", ".md"))
    }
    try:
        changed = [str(path) for path in sorted(examples) if path.exists() and path.read_bytes() != examples[path]]
        if changed:
            raise ConfigurationError(
                f"{', '.join(changed)}: exists, with other contents", expected="a directory without these files"
            )
        directory.mkdir(parents=True, exist_ok=True)
        for path, contents in sorted(examples.items()):
            path.write_bytes(contents)
            print(path)
    except OSError as error:
        raise ConfigurationError(
            f"the examples cannot be written to {directory}: {error.strerror}", expected="a directory that is writable"
        ) from error


def _add_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument("-p", "--parallelism", metavar="N", help="the default parallelism")
    command.add_argument(
        "-D", dest="properties", metavar="KEY=VALUE", action="append", default=[], help="a setting of the configuration"
    )


def _add_replay(commands: Any) -> None:
    replay = commands.add_parser(
        "replay",
        help="run an epoch of a job again in one process, and show what each operator received and emitted",
        usage="flinkish replay JOB_DIR --epoch N [options] PROGRAM.py [its options] [-- Spark's options]",
    )
    replay.add_argument("job_dir", metavar="JOB_DIR", help="the job's directory (flinkish.job.dir)")
    replay.add_argument("--epoch", type=int, required=True, metavar="N", help="the epoch, committed or failed")
    replay.add_argument(
        "--subtask", default="", metavar="UID/I", help="show only this task; breakpoints hold only there"
    )
    replay.add_argument("--pdb", action="store_true", help="open the debugger where the epoch fails")
    replay.add_argument(
        "--limit", type=_natural, default=DEFAULT_LIMIT, metavar="N", help="records shown of each output"
    )
    replay.add_argument("--json", action="store_true", help="print JSON")
    _add_settings(replay)


def _natural(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def _without_program(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the command line of ``replay`` before its first Python file, into the command's own arguments and the
    program with its arguments; other commands keep the whole line."""
    own = list(arguments)
    if not own or own[0] != "replay":
        return own, []
    settings = {place + 1 for place, text in enumerate(own) if text == "-D"}
    files = (place for place, text in enumerate(own) if text.endswith(".py") and text[:2] != "-D")
    start = next((place for place in files if place not in settings), len(own))
    return own[:start], own[start:]


def _add_savepoint_options(run: argparse.ArgumentParser) -> None:
    """Add the options that restore a job from a savepoint, named as in Flink's command line; ``--dry-run`` is
    flinkish's own."""
    run.add_argument(
        "-s",
        "--fromSavepoint",
        "--from-savepoint",
        metavar="PATH",
        help="savepoint or retained checkpoint (.../chk-7) to restore the job from",
    )
    run.add_argument(
        "-n",
        "--allowNonRestoredState",
        action="store_true",
        help="drop state of the savepoint that belongs to operators that the program no longer has",
    )
    run.add_argument(
        "-claim",
        "--claimMode",
        "-rm",
        "--restoreMode",
        choices=["NO_CLAIM", "CLAIM", "LEGACY"],
        type=str.upper,
        help="who owns the savepoint after the restore",
    )
    run.add_argument(
        "--restart",
        action="store_true",
        help="let a job that was stopped or cancelled go on in its directory, instead of ending at once",
    )
    run.add_argument(
        "--dry-run",
        action="store_true",
        help="only say what would be restored; exit code 0: all of it, 1: not possible",
    )


def _run(arguments: argparse.Namespace, environment: Mapping[str, str]) -> None:
    """Replace this process by the program."""
    settings = dict(_property(text) for text in arguments.properties)
    if arguments.fromSavepoint is not None:
        settings[_SAVEPOINT] = arguments.fromSavepoint
    if arguments.allowNonRestoredState:
        settings[_IGNORE_UNCLAIMED] = "true"
    if arguments.claimMode is not None:
        settings[_CLAIM_MODE] = arguments.claimMode
    if arguments.restart:
        settings[_RESTART] = "true"
    if arguments.dry_run:
        settings[_DRY_RUN] = "true"
    if arguments.traceback:
        environment = {**environment, _FULL_TRACEBACK: "1"}
    _launch(arguments.program, settings, arguments, environment, "flinkish run [options] PROGRAM.py [its options]")


def _sql(arguments: argparse.Namespace, environment: Mapping[str, str]) -> None:
    """Replace this process by the driver of the console."""
    console = resources.files("flinkish.state").joinpath("console.py")
    directory = "" if arguments.job_dir is None else absolute(arguments.job_dir)
    settings = dict(_property(text) for text in arguments.properties)
    _launch([str(console), directory, *arguments.queries], settings, arguments, environment, "flinkish sql [JOB_DIR]")


def _replay(arguments: argparse.Namespace, program: list[str], environment: Mapping[str, str]) -> None:
    """Replace this process by the program, which carries out the replay where it would execute its job."""
    request = ReplayRequest(
        absolute(arguments.job_dir),
        arguments.epoch,
        arguments.subtask,
        arguments.pdb,
        arguments.limit,
        arguments.json,
    )
    if "--" not in program:
        # the replay reads the state with Spark, on this machine
        program = [*program, "--", "--master", "local[1]"] if program else []
    local = {name: value for name, value in environment.items() if name != "SPARK_REMOTE"}
    settings = dict(_property(text) for text in arguments.properties)
    expected = "flinkish replay JOB_DIR --epoch N [options] PROGRAM.py [its options]"
    _launch(program, settings, arguments, {**local, **request.variables()}, expected)


def _launch(
    program: list[str],
    settings: dict[str, str],
    arguments: argparse.Namespace,
    environment: Mapping[str, str],
    expected: str,
) -> None:
    if arguments.parallelism is not None:
        settings[_PARALLELISM] = arguments.parallelism
    if not program:
        raise ConfigurationError("no program given", expected=expected)
    Launch(CommandLine.parse(program), {**environment, **settings_variable(settings, environment)}).run()


def _property(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals or "\n" in text:
        name = f" of '{key}'" if equals and key else ""
        raise ConfigurationError(
            f"an option -D{name} is not of its form", expected="-D KEY=VALUE in one line, e.g. -D parallelism.default=4"
        )
    return key, value


if __name__ == "__main__":
    sys.exit(main())
