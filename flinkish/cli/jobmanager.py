"""The command that runs a session process."""

from __future__ import annotations

import argparse
import os
from typing import Any

from flinkish.cli.parsers import add_command
from flinkish.cli.programs import setting

_PORT = "rest.bind-port"


def add_commands(commands: Any) -> None:
    """Add the parser of the command."""
    text = "show the jobs of a folder, whichever drivers run them, and start drivers: Flink's REST API and Web UI"
    example = "flinkish jobmanager --jobs /data/jobs --port 8081"
    parser = add_command(commands, "jobmanager", text, _jobmanager, example)
    parser.add_argument("--port", type=int, metavar="PORT", help="where to listen; default: as configured (8081-8099)")
    parser.add_argument(
        "--jobs", metavar="FOLDER", default="flinkish-jobs", help="the folder of the job directories; %(default)s"
    )
    parser.add_argument(
        "-D", dest="properties", metavar="KEY=VALUE", action="append", default=[], help="a setting of the configuration"
    )


def _jobmanager(arguments: argparse.Namespace) -> int:
    from flinkish.session.process import serve

    settings = dict(setting(text) for text in arguments.properties)
    if arguments.port is not None:
        settings[_PORT] = str(arguments.port)
    return serve(arguments.jobs, settings, os.environ)
