"""Sets a table of checkpoints aside that is found to be damaged while the job itself is well.

Rule: nothing is built upon a damaged table. It is set aside, and the next checkpoint is a full one into a new table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from flinkish.delta.table_log import check_log, has_log
from flinkish.errors import FlinkishError, SavepointError
from flinkish.storage.files import is_directory, move_directory

_LOG = logging.getLogger("flinkish.CheckpointCoordinator")


def set_aside_if_damaged(table: str, newest_checkpoint: int, job_name: str, check: Callable[[], None]) -> None:
    """Check the log of a table, if there is one yet, and move the table aside if the log is damaged. ``check``: raises
    when the job is no longer this driver's."""
    if not is_directory(table) or not newest_checkpoint and not has_log(table):
        # there is no checkpoint yet: at most data files of a driver that was killed while it took the first one
        return
    try:
        check_log(table, None)
    except SavepointError as error:
        aside = f"{table}-damaged-{newest_checkpoint}"
        check()
        move_directory(table, aside)
        _LOG.warning(
            "job '%s': %s: the checkpoints of before are lost; what is left of their table is kept at %s, and the next "
            "checkpoint is a full one",
            job_name,
            error.what,
            aside,
        )


def may_be_damage(error: Exception) -> bool:
    """Whether a failed write is a reason to mistrust the table: any error is, unless flinkish has raised it for another
    reason."""
    return isinstance(error, SavepointError) or not isinstance(error, FlinkishError)
