"""What is known of a planned epoch of which no sink has heard, so that damage met before it makes nothing double."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkish.jobmanager.attempt.beginnings import Beginnings
from flinkish.jobmanager.directory.job_directory import JobDirectory
from flinkish.jobmanager.directory.not_begun import epoch_not_begun, remember_not_begun
from flinkish.jobmanager.recovery.decision import Traces

BEFORE = Traces(planned=(0, 1, 2, 3), committed=(0, 1, 2))


@pytest.fixture
def directory(tmp_path: Path) -> JobDirectory:
    owned = JobDirectory(str(tmp_path))
    owned.claim("job")
    return owned


def test_a_new_epoch_that_a_stop_prevents_is_remembered(directory: JobDirectory) -> None:
    Beginnings.after(BEFORE, True).prevented(directory, 4)
    assert epoch_not_begun(directory) == 4


def test_of_an_epoch_that_was_planned_before_nothing_is_claimed(directory: JobDirectory) -> None:
    beginnings = Beginnings.after(BEFORE, True)
    beginnings.prevented(directory, 3)
    assert epoch_not_begun(directory) is None
    assert not beginnings.proves_state(directory, 3)
    assert epoch_not_begun(directory) is None


@pytest.mark.parametrize("prevented_before", [True, False])
def test_the_first_epoch_begins_only_when_all_state_was_read(directory: JobDirectory, prevented_before: bool) -> None:
    epoch = 3 if prevented_before else 4
    if prevented_before:
        remember_not_begun(directory, epoch)
    beginnings = Beginnings.after(BEFORE, True)
    assert beginnings.proves_state(directory, epoch)
    assert epoch_not_begun(directory) == epoch
    beginnings.state_is_proved(directory)
    assert epoch_not_begun(directory) is None
    assert not beginnings.proves_state(directory, epoch + 1)


@pytest.mark.parametrize("before, stateful", [(BEFORE, False), (Traces((), ()), True), (Traces((0,), ()), True)])
def test_without_state_in_storage_there_is_nothing_to_prove(
    directory: JobDirectory, before: Traces, stateful: bool
) -> None:
    epoch = before.last_planned + 1
    remember_not_begun(directory, epoch)
    assert not Beginnings.after(before, stateful).proves_state(directory, epoch)
    assert epoch_not_begun(directory) is None
