"""Drivers of the big job as processes of their own, which tests kill."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from tests.integration.exactness import job
from tests.integration.exactness.outputs import rows_so_far
from tests.support import faults
from tests.support.processes import ProcessGroup, start_driver

TIMEOUT_S = 600
KILLED = -9
#: An epoch takes about this long at least: a kill this long after one has begun hits any point of one.
EPOCH_S = 0.3


def drive(folder: Path, plan: Path | None = None, **options: Any) -> ProcessGroup:
    """A driver of its own that runs the job. ``plan``: where its faults are planned."""
    log = folder / f"driver-{time.time_ns()}.log"
    arguments = json.dumps({"folder": str(folder), **options})
    env = None if plan is None else faults.environment(plan)
    return start_driver(Path(job.__file__), arguments, log_file=log, env=env)


def drive_until_killed(folder: Path, plan: Path, **options: Any) -> None:
    """A driver that must not survive its fault."""
    with drive(folder, plan, **options) as driver:
        status = driver.wait(TIMEOUT_S)
        assert status == KILLED and faults.happened(plan), driver.output()


def drive_to_end(folder: Path, **options: Any) -> str:
    """A driver that must end by itself; the path of its savepoint, or nothing."""
    with drive(folder, **options) as driver:
        output = driver.succeed(TIMEOUT_S)
    found = re.search(r"^savepoint (.*)$", output, re.MULTILINE)
    return found.group(1) if found else ""


def wait_for_more_rows(driver: ProcessGroup, folder: Path) -> None:
    """Until the job has put out more than now."""
    before = rows_so_far(folder)
    driver.wait_for(lambda: rows_so_far(folder) > before, TIMEOUT_S, f"more than {before} rows")
