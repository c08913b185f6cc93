"""The command that runs random programs; see the package."""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.random_programs.program import Program, random_program, smaller
from tests.random_programs.running import OnSpark, Results, differences, expected, in_minicluster

Runner = Callable[[str], Results]


def check(source: str, run: Runner) -> list[str]:
    """What is wrong with a program; an exception counts."""
    wanted = expected(source)
    try:
        return differences(source, run(source), wanted)
    except Exception:
        return [traceback.format_exc()[-3000:]]


def shrunk(program: Program, run: Runner, attempts: int = 400) -> Program:
    """A smaller program that is wrong as well."""
    found = True
    while found and attempts > 0:
        found = False
        for candidate in smaller(program):
            attempts -= 1
            try:
                wrong = check(candidate.source, run)
            except Exception:
                continue
            if wrong and wrong[0].startswith("sink"):
                program, found = candidate, True
                break
            if attempts <= 0:
                break
    return program


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.random_programs", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    parser.add_argument("--file", type=Path, help="run the program in this file instead")
    parser.add_argument("--idle", action="store_true", help="programs whose sources are idle at times")
    parser.add_argument("--restores", action="store_true", help="programs that go on from savepoints")
    parser.add_argument("--spark", action="store_true", help="run in a local Spark session")
    parser.add_argument("--quiet", action="store_true", help="print no programs, only what their operators are")
    parser.add_argument("--show", action="store_true", help="print the programs, whatever comes of them")
    options = parser.parse_args(arguments)
    if not options.spark:
        return run_all(options, in_minicluster)
    # imported here: without Spark the command needs no PySpark
    from tests.support.spark_session import COMPILED, start_session

    with tempfile.TemporaryDirectory() as folder:
        session = start_session(Path(folder), extra=COMPILED)
        try:
            return run_all(options, OnSpark(Path(folder)))
        finally:
            session.stop()


def run_all(options: argparse.Namespace, run: Runner) -> int:
    """Run the programs that the options ask for; returns whether any is wrong."""
    if options.file:
        wrong = check(options.file.read_text(), run)
        print("\n".join(wrong) or "right")
        return bool(wrong)
    failed: list[int] = []
    blamed: Counter[str] = Counter()
    for number in range(options.first, options.first + options.programs):
        which = {"spark": options.spark, "idle": options.idle, "restores": options.restores}
        program = random_program(f"{options.seed}/{number}", **which)
        if options.show:
            print(program.source)
        wrong = check(program.source, run)
        if not wrong:
            continue
        failed.append(number)
        # a run on Spark takes a second or more
        program = shrunk(program, run, 20 if options.spark else 400)
        wrong = check(program.source, run) or wrong
        blamed["; ".join(step.kind.name for step in program.steps)] += 1
        if not options.quiet:
            print(f"--- wrong: program {number} of seed {options.seed}, made smaller:\n{program.source}\n")
            print("\n".join(wrong), flush=True)
    print(f"seed {options.seed}: {len(failed)} of {options.programs} programs are wrong: {failed}")
    for operators, count in blamed.most_common():
        print(f"{count:5} {operators}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
