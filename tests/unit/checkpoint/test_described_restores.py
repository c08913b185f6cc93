"""What a job was restored from is described by what its directory remembers."""

from __future__ import annotations

from typing import Any

import pytest

from flinkish.checkpoint.claim import describe_restored
from flinkish.jobdir.layout import Restored
from flinkish.jobmanager.job.description import RestoreDescription


@pytest.mark.parametrize(
    ("remembered", "expected"),
    [
        (None, None),
        ({"savepoint": None, "path": None}, None),
        (
            {"savepoint": "s", "path": "/savepoints/s", "time_ms": 5},
            RestoreDescription(0, 5, "/savepoints/s", is_savepoint=True),
        ),
        # written by a version that did not note the time
        ({"savepoint": "s", "path": None}, RestoreDescription(0, 0, "s", is_savepoint=True)),
        (
            {"savepoint": "c", "path": "/job/checkpoints/chk-12/", "time_ms": 5},
            RestoreDescription(12, 5, "/job/checkpoints/chk-12/", is_savepoint=False),
        ),
        # the job has gone back to a checkpoint since
        (
            {"savepoint": "s", "path": "/savepoints/s", "checkpoint": "/job/checkpoints/chk-3", "time_ms": 7},
            RestoreDescription(3, 7, "/job/checkpoints/chk-3", is_savepoint=False),
        ),
    ],
)
def test_a_restore_is_that_of_the_checkpoint_or_savepoint_which_came_last(
    remembered: dict[str, Any] | None, expected: RestoreDescription | None
) -> None:
    assert describe_restored(None if remembered is None else Restored(**remembered)) == expected
