"""The command ``doctor``: what is wrong with this installation, its Spark and a job's directory, before a job finds
out."""

from __future__ import annotations

import argparse
import os
from typing import Any

from flinkish.cli.parsers import add_json, print_json
from flinkish.cli.programs import settings_of
from flinkish.storage.paths import absolute

_USAGE = "flinkish doctor [options] [JOB_DIR] [-- Spark's options]"


def add_commands(commands: Any) -> None:
    """Add the parser of the command."""
    doctor = commands.add_parser(
        "doctor",
        help="look at versions, jars, storage, executors and clocks; say what to do",
        usage=_USAGE,
        description="Look at what a job needs: versions of Python, Java, PySpark and Delta Lake, jars, configuration, "
        "modes of files with secrets; the job directory as this process, Spark's JVM and the executors see it; "
        "executors, slots and clocks; and the REST API of a running job. Exit code 1 if something failed.",
        epilog="example: flinkish doctor /data/jobs/clicks -- --master yarn",
    )
    doctor.add_argument("job_dir", nargs="?", metavar="JOB_DIR", help="the job's directory (flinkish.job.dir)")
    doctor.add_argument("--no-spark", action="store_true", help="start no Spark, and look at the rest")
    add_json(doctor)
    doctor.add_argument(
        "-D", dest="properties", metavar="KEY=VALUE", action="append", default=[], help="a setting of the configuration"
    )
    doctor.set_defaults(carry_out=_doctor, starts_spark=True, program=[])


def _doctor(arguments: argparse.Namespace) -> int:
    from flinkish.doctor.findings import exit_code, shown, summed_up
    from flinkish.doctor.machine import findings

    environment = {**os.environ, **settings_of(arguments.properties, os.environ)}
    directory = None if arguments.job_dir is None else absolute(arguments.job_dir)
    found = []
    for one in findings(directory, arguments.program, not arguments.no_spark, environment):
        found.append(one)
        if not arguments.json:
            print(shown(one), flush=True)
    if arguments.json:
        print_json({"findings": [one.to_json() for one in found], "exit_code": exit_code(found)})
    else:
        print(summed_up(found))
    return exit_code(found)
