"""The console command ``flinkish``: Flink's command line, as far as it exists here.

Rule: this module reads the command line only; what a command does lies elsewhere. Exit codes: the program's own, or 2
for a command that cannot be carried out, with one line that says why.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flinkish import __version__
from flinkish.commands import add_commands
from flinkish.common.config_file import load_yaml
from flinkish.errors import ConfigurationError, FlinkishError
from flinkish.launch import class_archive
from flinkish.launch.__main__ import Launch
from flinkish.launch.home import Home
from flinkish.launch.options import CommandLine
from flinkish.launch.replay import DEFAULT_LIMIT, ReplayRequest

_SAVEPOINT = "execution.state-recovery.path"
_CLAIM_MODE = "execution.state-recovery.claim-mode"
_IGNORE_UNCLAIMED = "execution.state-recovery.ignore-unclaimed-state"
_DRY_RUN = "execution.state-recovery.dry-run"
_PARALLELISM = "parallelism.default"


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point of the console script; ``argv`` without the name of the command."""
    parser = _parser()
    given, program = _without_program(sys.argv[1:] if argv is None else argv)
    arguments = parser.parse_args(given)
    if arguments.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        if arguments.command == "replay":
            _replay(arguments, program, os.environ)
        elif arguments.command != "run":
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
    run = commands.add_parser("run", help="run a program as a Spark driver")
    _add_savepoint_options(run)
    _add_settings(run)
    _add_replay(commands)
    run.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        metavar="PROGRAM.py ...",
        help="program, its options, `--`, Spark's options",
    )
    return parser


def _prepare(_: argparse.Namespace) -> None:
    print(class_archive.make(Home(os.environ).cache, os.environ))


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
    """The command's own arguments, and the program with its own: of ``replay``, from the first Python file on."""
    own = list(arguments)
    if not own or own[0] != "replay":
        return own, []
    start = next((place for place, text in enumerate(own) if text.endswith(".py")), len(own))
    return own[:start], own[start:]


def _add_savepoint_options(run: argparse.ArgumentParser) -> None:
    """As Flink's command line names them; the dry run is flinkish's own."""
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
        "--dry-run",
        action="store_true",
        help="only say what would be restored; exit code 0: all of it, 1: not possible",
    )


def _run(arguments: argparse.Namespace, environment: Mapping[str, str]) -> None:
    """Replaces this process by the program."""
    settings = dict(_property(text) for text in arguments.properties)
    if arguments.fromSavepoint is not None:
        settings[_SAVEPOINT] = arguments.fromSavepoint
    if arguments.allowNonRestoredState:
        settings[_IGNORE_UNCLAIMED] = "true"
    if arguments.claimMode is not None:
        settings[_CLAIM_MODE] = arguments.claimMode
    if arguments.dry_run:
        settings[_DRY_RUN] = "true"
    _launch(arguments.program, settings, arguments, environment, "flinkish run [options] PROGRAM.py [its options]")


def _replay(arguments: argparse.Namespace, program: list[str], environment: Mapping[str, str]) -> None:
    """Replaces this process by the program, which carries out the replay where it would execute its job."""
    request = ReplayRequest(
        os.path.abspath(arguments.job_dir) if "://" not in arguments.job_dir else arguments.job_dir,
        arguments.epoch,
        arguments.subtask,
        arguments.pdb,
        arguments.limit,
        arguments.json,
    )
    if "--" not in program:
        # the state is read by Spark, on this machine
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
    line = CommandLine.parse(program)
    launch = Launch(line, environment)
    launch.check()
    if settings:
        home = launch.command.home
        changed = _with_settings(home.configuration_file, settings, home.cache)
        launch = Launch(line, {**environment, "FLINKISH_CONF": str(changed)})
    launch.run()


def _property(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals or "\n" in text:
        raise ConfigurationError(f"-D {text}", expected="-D KEY=VALUE in one line, e.g. -D parallelism.default=4")
    return key, value


def _with_settings(base: str | None, settings: Mapping[str, str], cache: Path) -> Path:
    """A configuration file with the settings of ``base`` and, above them, these (Flink: dynamic properties win)."""
    merged = {**(load_yaml(base).to_dict() if base else {}), **settings}
    text = "".join(f"{key}: {_quoted(value)}\n" for key, value in merged.items())
    cache.mkdir(parents=True, exist_ok=True)
    # named by its content: a job that was started with other settings keeps its file
    path = cache / f"flinkish-{hashlib.sha256(text.encode()).hexdigest()[:16]}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def _quoted(value: str) -> str:
    doubled = value.replace("'", "''")
    return f"'{doubled}'"
