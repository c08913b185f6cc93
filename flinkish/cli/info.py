"""The command ``info``: the job graph of a program, which runs up to its ``execute`` and no further.

Rule: the program runs in this process, with the settings, arguments and Python path that ``flinkish run`` would give
it, and no Spark is started for it. What it prints goes to standard error: standard output holds the plan alone.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import redirect_stdout
from typing import Any

from flinkish.cli.programs import add_settings, launch_of
from flinkish.errors import ConfigurationError

_USAGE = "flinkish info [options] PROGRAM.py [its options] [--json | --mermaid | --svg [FILE]]"
_CONSOLE = "-"


def add_commands(commands: Any) -> None:
    """Add the parser of the command."""
    info = commands.add_parser(
        "info",
        help="show the job graph of a program, which is not run",
        usage=_USAGE,
        description="Show the operators of a program with their uids, chains, parallelism and state. The program runs "
        "up to its first execute(); no Spark is started. The options stand before the program, or, if none of the "
        "forms does, a form at the end of the line.",
        epilog="example: flinkish info -p 4 --svg plan.svg jobs/click_count.py --input clicks",
    )
    form = info.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="Flink's plan, as get_execution_plan() gives it")
    form.add_argument("--mermaid", action="store_true", help="a flowchart for a block of Mermaid in Markdown")
    form.add_argument("--svg", metavar="FILE", help="a picture; -: to the console")
    add_settings(info)
    info.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM.py ...", help="program and its options")
    info.set_defaults(carry_out=_info)


def _info(arguments: argparse.Namespace) -> None:
    _take_form_at_end(arguments)
    launch = launch_of(arguments.program, {}, arguments, os.environ, _USAGE, runs=False)
    launch.check()
    # imported late: with the program's settings in the environment
    os.environ.update(launch.driver_environment([]))
    sys.path[1:1] = launch.command.python_path()
    from flinkish.jobmanager.submitted_program import captured
    from flinkish.launch.driver import program_in, run_main

    program = program_in(launch.line.job, list(launch.line.job_options))

    def show() -> None:
        with redirect_stdout(sys.stderr):
            found = captured(program)
        _write(_shown(found, arguments), arguments.svg)

    run_main(show)


def _take_form_at_end(arguments: argparse.Namespace) -> None:
    """Take the form from the end of the program's options, unless the command was given one before the program."""
    if arguments.json or arguments.mermaid or arguments.svg is not None or len(arguments.program) < 2:
        return
    program = arguments.program
    end = program.index("--") if "--" in program else len(program)
    *_, before, last = program[:end]
    taken = 1
    if last in ("--json", "--mermaid"):
        setattr(arguments, last[2:], True)
    elif last == "--svg":
        arguments.svg = _CONSOLE
    elif before == "--svg":
        arguments.svg, taken = last, 2
    else:
        return
    arguments.program = program[: end - taken] + program[end:]


def _shown(program: Any, arguments: argparse.Namespace) -> str:
    from flinkish.graph.drawing import drawing_of, mermaid, svg
    from flinkish.graph.explain import explain, plan_json, state_of_plan

    graph, chaining = program.graph, program.chaining
    if arguments.json:
        return plan_json(graph, of_pyflink=True) + "\n"
    if arguments.mermaid:
        return mermaid(drawing_of(graph, chaining))
    if arguments.svg is not None:
        return svg(drawing_of(graph, chaining)) + "\n"
    slots = " (on a cluster: its slots)" if graph.follows_slots else ""
    parallelism = f"parallelism {graph.default_parallelism}{slots}"
    return f"job '{program.name}', {parallelism}\n\n{explain(graph, chaining)}\n\n{state_of_plan(graph, chaining)}\n"


def _write(text: str, file: str | None) -> None:
    if file is None or file == _CONSOLE:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        with open(file, "w", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror}", expected="a file, or -") from error
    print(file)
