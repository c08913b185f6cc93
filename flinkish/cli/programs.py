"""The commands that run a program: as a Spark driver, again for one epoch, or as a console of SQL. They replace this
process by the program's, so they return only if they cannot start it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from flinkish.cli.parsers import add_command, add_json, print_json
from flinkish.errors import ConfigurationError
from flinkish.launch import class_archive
from flinkish.launch.__main__ import Launch
from flinkish.launch.driver import DEFAULT_LIMIT, DRY_RUN_FORMAT, ReplayRequest
from flinkish.launch.home import Home, settings_variable
from flinkish.launch.options import CommandLine
from flinkish.storage.paths import absolute

_SAVEPOINT = "execution.state-recovery.path"
_CLAIM_MODE = "execution.state-recovery.claim-mode"
_IGNORE_UNCLAIMED = "execution.state-recovery.ignore-unclaimed-state"
_DRY_RUN = "execution.state-recovery.dry-run"
_RESTART = "flinkish.job.restart"
_PARALLELISM = "parallelism.default"
_FULL_TRACEBACK = "FLINKISH_FULL_TRACEBACK"


def add_commands(commands: Any) -> None:
    """Add the parsers of these commands."""
    text = "make what jobs on this machine start faster with, once"
    add_json(add_command(commands, "prepare", text, _prepare, "flinkish prepare"))
    text = "copy the example programs into a directory; prints their paths"
    examples = add_command(commands, "examples", text, _examples, "flinkish examples my-examples")
    examples.add_argument("directory", nargs="?", default="flinkish-examples", metavar="DIRECTORY", help="%(default)s")
    add_json(examples)
    run = add_command(
        commands,
        "run",
        "run a program as a Spark driver",
        _run,
        "flinkish run -D flinkish.job.dir=/data/jobs/clicks clicks.py --input /data -- --master 'local[4]'",
        "flinkish run --dry-run --json -D flinkish.job.dir=/data/jobs/clicks clicks.py --input /data",
        "flinkish run -s /data/savepoints/savepoint-1 -p 8 -D flinkish.job.dir=/data/jobs/clicks-2 clicks.py",
    )
    _add_savepoint_options(run)
    add_settings(run)
    run.add_argument("--traceback", action="store_true", help="show all frames of an error, and what led to it")
    run.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        metavar="PROGRAM.py ...",
        help="program, its options, `--`, Spark's options",
    )
    run.set_defaults(starts_spark=True)
    _add_replay(commands)
    sql = add_command(
        commands,
        "sql",
        "Spark SQL with the tables of a job as views: state, savepoints, history",
        _sql,
        "flinkish sql /data/jobs/clicks -e 'SELECT epoch, status, path FROM checkpoints'",
    )
    sql.add_argument("-e", dest="queries", metavar="QUERY", action="append", default=[], help="run this, and end")
    sql.add_argument("job_dir", nargs="?", metavar="JOB_DIR", help="a job's directory, a checkpoint or a savepoint")
    add_settings(sql)
    sql.set_defaults(starts_spark=True)


def _prepare(arguments: argparse.Namespace) -> None:
    archive = class_archive.make(Home(os.environ).cache, os.environ)
    if arguments.json:
        print_json({"archive": str(archive)})
    else:
        print(archive)


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
            if not arguments.json:
                print(path)
    except OSError as error:
        raise ConfigurationError(
            f"the examples cannot be written to {directory}: {error.strerror}", expected="a directory that is writable"
        ) from error
    if arguments.json:
        print_json({"files": [str(path) for path in sorted(examples)]})


def add_settings(command: argparse.ArgumentParser) -> None:
    """Add the options that set what a program's configuration says."""
    command.add_argument("-p", "--parallelism", metavar="N", help="the default parallelism")
    command.add_argument(
        "-D", dest="properties", metavar="KEY=VALUE", action="append", default=[], help="a setting of the configuration"
    )


def _add_replay(commands: Any) -> None:
    replay = add_command(
        commands,
        "replay",
        "run an epoch of a job again in one process, and show what each operator received and emitted",
        _replay,
        "flinkish replay /data/jobs/clicks --epoch 17 clicks.py --input /data",
    )
    replay.usage = "flinkish replay JOB_DIR --epoch N [options] PROGRAM.py [its options] [-- Spark's options]"
    replay.add_argument("job_dir", metavar="JOB_DIR", help="the job's directory (flinkish.job.dir)")
    replay.add_argument("--epoch", type=int, required=True, metavar="N", help="the epoch, committed or failed")
    replay.add_argument(
        "--subtask", default="", metavar="UID/I", help="show only this task; breakpoints hold only there"
    )
    replay.add_argument("--pdb", action="store_true", help="open the debugger where the epoch fails")
    replay.add_argument(
        "--limit", type=_natural, default=DEFAULT_LIMIT, metavar="N", help="records shown of each output"
    )
    add_json(replay)
    add_settings(replay)
    replay.set_defaults(program=[], starts_spark=True)


def _natural(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def without_program(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the command line of ``replay`` before its first Python file, into the command's own arguments and the
    program with its arguments, and that of ``doctor`` before Spark's options; other commands keep the whole line."""
    own = list(arguments)
    if own[:1] == ["doctor"] and "--" in own:
        start = own.index("--")
        return own[:start], own[start + 1 :]
    if not own or own[0] != "replay":
        return own, []
    settings = {place + 1 for place, text in enumerate(own) if text == "-D"}
    files = (place for place, text in enumerate(own) if text.endswith(".py") and text[:2] != "-D")
    start = next((place for place in files if place not in settings), len(own))
    return own[:start], own[start:]


def _add_savepoint_options(run: argparse.ArgumentParser) -> None:
    """Add the options that restore a job from a savepoint, named as in Flink's command line; ``--dry-run`` and
    ``--restart`` are flinkish's own."""
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
        help="only say what would happen, state by state; exit code 0: it is possible, 1: it is not",
    )
    run.add_argument("--json", action="store_true", help="with --dry-run: print JSON")


def _run(arguments: argparse.Namespace) -> None:
    """Replace this process by the program."""
    environment: Mapping[str, str] = os.environ
    settings = {}
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
    if arguments.json:
        if not arguments.dry_run:
            raise ConfigurationError("--json is for what a dry run prints", expected="--dry-run --json")
        environment = {**environment, DRY_RUN_FORMAT: "json"}
    if arguments.traceback:
        environment = {**environment, _FULL_TRACEBACK: "1"}
    _launch(arguments.program, settings, arguments, environment, "flinkish run [options] PROGRAM.py [its options]")


def _sql(arguments: argparse.Namespace) -> None:
    """Replace this process by the driver of the console."""
    console = resources.files("flinkish.state").joinpath("console.py")
    directory = "" if arguments.job_dir is None else absolute(arguments.job_dir)
    _launch([str(console), directory, *arguments.queries], {}, arguments, os.environ, "flinkish sql [JOB_DIR]")


def _replay(arguments: argparse.Namespace) -> None:
    """Replace this process by the program, which carries out the replay where it would execute its job."""
    request = ReplayRequest(
        absolute(arguments.job_dir),
        arguments.epoch,
        arguments.subtask,
        arguments.pdb,
        arguments.limit,
        arguments.json,
    )
    program = arguments.program
    if "--" not in program:
        # the replay reads the state with Spark, on this machine
        program = [*program, "--", "--master", "local[1]"] if program else []
    local = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
    expected = "flinkish replay JOB_DIR --epoch N [options] PROGRAM.py [its options]"
    _launch(program, {}, arguments, {**local, **request.variables()}, expected)


def _launch(
    program: list[str],
    settings: dict[str, str],
    arguments: argparse.Namespace,
    environment: Mapping[str, str],
    expected: str,
) -> None:
    launch_of(program, settings, arguments, environment, expected).run()


def launch_of(
    program: list[str],
    settings: dict[str, str],
    arguments: argparse.Namespace,
    environment: Mapping[str, str],
    expected: str,
    runs: bool = True,
) -> Launch:
    """The start of a program with the settings of the command line.

    Args:
        program: its file, its options, ``--`` and Spark's options.
        settings: those that the command itself makes.
        arguments: those of the command, with `add_settings`.
        environment: the environment variables.
        expected: the form of the command, for the error.
        runs: False if the program is only wanted for its plan.

    Raises:
        ConfigurationError: there is no program, or an option is not of its form.
    """
    settings = {**dict(setting(text) for text in arguments.properties), **settings}
    if arguments.parallelism is not None:
        settings[_PARALLELISM] = arguments.parallelism
    if not program:
        raise ConfigurationError("no program given", expected=expected)
    return Launch(CommandLine.parse(program), {**environment, **settings_variable(settings, environment)}, runs)


def settings_of(properties: list[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that hold the settings of ``-D KEY=VALUE``."""
    return settings_variable(dict(map(setting, properties)), environment)


def setting(text: str) -> tuple[str, str]:
    """Key and value of an option ``-D KEY=VALUE``.

    Raises:
        ConfigurationError: it does not have that form.
    """
    key, equals, value = text.partition("=")
    if not key or not equals or "\n" in text:
        name = f" of '{key}'" if equals and key else ""
        raise ConfigurationError(
            f"an option -D{name} is not of its form", expected="-D KEY=VALUE in one line, e.g. -D parallelism.default=4"
        )
    return key, value
