"""A process checks the fence of a job once in each epoch at a step that many of its tasks take."""

from __future__ import annotations

import pytest

from flinkish.core.sink import FenceOfEpochs
from flinkish.errors import FencedError
from tests.support.fences import FallingFence


def test_many_tasks_of_an_epoch_make_one_check() -> None:
    fence, step = FallingFence(passes=2), FenceOfEpochs()
    for epoch in (4, 4, 4, 5, 5):
        step.check(fence, "job", 0, epoch)
    assert fence.checks == 2


def test_a_check_that_fails_is_made_again() -> None:
    fence, step = FallingFence(), FenceOfEpochs()
    for _ in range(3):
        with pytest.raises(FencedError):
            step.check(fence, "job", 0, 4)
    assert fence.checks == 3


@pytest.mark.parametrize(
    ("job", "attempt", "epoch"),
    [("other", 0, 4), ("job", 1, 4), ("job", 0, 3)],
    ids=["of another job", "in another attempt", "that runs again"],
)
def test_an_epoch_is_checked_anew(job: str, attempt: int, epoch: int) -> None:
    fence, step = FallingFence(passes=1), FenceOfEpochs()
    step.check(fence, "job", 0, 4)
    with pytest.raises(FencedError):
        step.check(fence, job, attempt, epoch)
    step.check(FallingFence(passes=1), "job", 0, 7)
    with pytest.raises(FencedError):
        step.check(FallingFence(), "job", 0, 7)  # that of another driver
