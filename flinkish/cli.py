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

from flinkish import __version__
from flinkish.commands import add_commands
from flinkish.common.config_file import load_yaml
from flinkish.errors import ConfigurationError, FlinkishError
from flinkish.launch import class_archive
from flinkish.launch.__main__ import Launch
from flinkish.launch.home import Home
from flinkish.launch.options import CommandLine

_SAVEPOINT = "execution.state-recovery.path"
_CLAIM_MODE = "execution.state-recovery.claim-mode"
_IGNORE_UNCLAIMED = "execution.state-recovery.ignore-unclaimed-state"
_DRY_RUN = "execution.state-recovery.dry-run"
_PARALLELISM = "parallelism.default"


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point of the console script; ``argv`` without the name of the command."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        if arguments.command != "run":
            arguments.carry_out(arguments)
            return 0
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
    run.add_argument("-p", "--parallelism", metavar="N", help="the default parallelism")
    run.add_argument(
        "-D", dest="properties", metavar="KEY=VALUE", action="append", default=[], help="a setting of the configuration"
    )
    run.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        metavar="PROGRAM.py ...",
        help="program, its options, `--`, Spark's options",
    )
    return parser


def _prepare(_: argparse.Namespace) -> None:
    print(class_archive.make(Home(os.environ).cache, os.environ))


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
    if arguments.parallelism is not None:
        settings[_PARALLELISM] = arguments.parallelism
    if not arguments.program:
        raise ConfigurationError("no program given", expected="flinkish run [options] PROGRAM.py [its options]")
    line = CommandLine.parse(arguments.program)
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
