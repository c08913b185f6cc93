"""From which epoch a changed program goes on, and with which positions of its sources."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flinkish.checkpoint.claim import read_restored
from flinkish.checkpoint.compatibility import CompatibilityReport
from flinkish.checkpoint.manifest import manifest_of, write_manifest
from flinkish.checkpoint.restore import RestoredProgram
from flinkish.common import Configuration
from flinkish.core.sink import NO_FENCE
from flinkish.errors import FinalOperationError, IncompatibleJobError
from flinkish.jobdir.directory import JobDirectory, ends_at_once
from flinkish.jobdir.layout import DrainMarker, EventTimes, Job, JobEnd, RestoredByFallback
from flinkish.jobdir.query import QueryLog, Traces
from flinkish.jobmanager import upgrade
from flinkish.jobmanager.job.settings import driver_settings
from flinkish.jobmanager.query_inputs import positions_by_uid
from flinkish.jobmanager.upgrade import Upgrade, UpgradeStep, decide
from flinkish.runtime.epoch.files import PreparedEpoch, PreparedEpochs, prepared_directory
from flinkish.runtime.exchange.buffer import BufferHeader, BufferKind, encode
from flinkish.runtime.job.deployment import JobDescriptor, sink_vertex
from flinkish.runtime.sources.progress import SourceProgress
from flinkish.runtime.sources.split_list import SegmentFiles
from flinkish.runtime.state.saved.values import ProgramStates
from tests.unit.jobdir.test_job_directory_structure import job


@pytest.mark.parametrize(
    ("first_epoch", "planned", "committed", "prepared", "step"),
    [
        # nothing has ever run: the numbers of the query itself are not used again
        (0, (), (), (), UpgradeStep(None, None, 1)),
        (0, (0,), (), (), UpgradeStep(None, None, 1)),
        (7, (), (), (), UpgradeStep(None, None, 8)),
        (7, (7,), (), (), UpgradeStep(None, None, 8)),
        # between two epochs, as after a stop; a prepared file outlives its commit
        (0, (0, 1, 2), (0, 1, 2), (), UpgradeStep(2, None, 3)),
        (0, (0, 1, 2), (0, 1, 2), (1, 2), UpgradeStep(2, None, 3)),
        (7, (7, 8), (7, 8), (8,), UpgradeStep(8, None, 9)),
        # planned and not prepared: no sink has heard of it, and the number is not used again
        (0, (0, 1, 2), (0, 1), (1,), UpgradeStep(1, None, 3)),
        # prepared and not committed
        (0, (0,), (), (0,), UpgradeStep(None, 0, 1)),
        (0, (1, 2), (1,), (1, 2), UpgradeStep(1, 2, 3)),
        (7, (7,), (), (7,), UpgradeStep(None, 7, 8)),
    ],
)
def test_an_upgrade_goes_on_behind_the_last_epoch_that_a_sink_can_have_heard_of(
    first_epoch: int, planned: tuple[int, ...], committed: tuple[int, ...], prepared: tuple[int, ...], step: UpgradeStep
) -> None:
    assert decide(Traces(planned, committed, None, prepared), first_epoch) == step


SPLITS = json.dumps({"sources": {"b": SourceProgress().encode()}})


@pytest.mark.parametrize(
    ("uids", "ends", "found"),
    [
        (["b"], [SPLITS], {"b": None}),
        (["a", "b", "c"], [SPLITS, "1", "2"], {"a": "1", "b": None, "c": "2"}),
        (["a", "b", "c"], [SPLITS, None, "2"], {"b": None, "c": "2"}),
        # nothing has been read of splits, if there are any
        (["a", "c"], [None, "1", "2"], {"a": "1", "c": "2"}),
        (["a", "b"], [None, None, None], {}),
        ([], [], {}),
    ],
)
def test_positions_of_an_earlier_program_are_found_by_the_uids_of_its_sources(
    tmp_path: Path, uids: list[str], ends: list[str | None], found: dict[str, str | None]
) -> None:
    # None: a position that is not compared
    positions = positions_by_uid(uids, ends, SegmentFiles(str(tmp_path)), {}, "job 'clicks'")
    assert {uid: end if found.get(uid) else None for uid, end in positions.items()} == found


def test_positions_that_may_be_those_of_another_source_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FinalOperationError, match="which of the sources a, b has which position"):
        positions_by_uid(["a", "b"], [None, "1"], SegmentFiles(str(tmp_path)), {}, "job 'clicks'")


def structures(directory: JobDirectory, found: JobDescriptor) -> list[str] | None:
    return directory.differences(found, 2)


def test_until_the_query_of_an_upgrade_has_taken_its_place_the_program_before_counts(tmp_path: Path) -> None:
    directory, old, new = JobDirectory(str(tmp_path)), job(), job(uid="sums")
    directory.remember_structure(old, 2)
    directory.remember_upgrade(new, 2, first_epoch=5)
    assert structures(directory, old) == [] and structures(directory, new) == [
        "operator 'counts' is gone",
        "operator 'sums' is new",
    ]
    directory.move_query("spark-5", 5, "keyed-state-5")
    assert structures(directory, new) == [] and structures(directory, old)
    assert directory.keyed_state == f"{tmp_path}/keyed-state-5"
    # a second one, before the first has been written down for good
    directory.remember_upgrade(old, 2, first_epoch=9)
    assert structures(directory, new) == [] and structures(directory, old)
    directory.remember_structure(new, 2)
    written = directory.read(Job)
    assert written is not None and written.upgrade is None and written.job_id == old.job_id
    # a drain and a fallback keep the files of keyed state where they are
    directory.move_query("spark-drain", 9)
    assert directory.keyed_state == f"{tmp_path}/keyed-state-5"


def test_an_upgrade_that_was_begun_and_left_does_not_come_back_with_a_later_query(tmp_path: Path) -> None:
    directory, old, new = JobDirectory(str(tmp_path)), job(), job(uid="sums")
    directory.remember_structure(old, 2)
    directory.remember_upgrade(new, 2, first_epoch=5)
    directory.remember_structure(old, 2)
    directory.move_query("spark-5", 5)
    assert structures(directory, old) == []


def begun(folder: Path) -> JobDirectory:
    """The directory of a job whose query has committed epoch 0 and planned epoch 1."""
    directory = JobDirectory(str(folder))
    directory.remember_structure(job(), 2)
    query = folder / "spark"
    for name, text in (("metadata", '{"id":"0"}'), ("offsets/0", "v1\n{}\n-"), ("offsets/1", "v1\n{}\n-")):
        (query / name).parent.mkdir(parents=True, exist_ok=True)
        (query / name).write_text(text)
    QueryLog(str(query)).commit(0)
    return directory


def draining(directory: JobDirectory) -> None:
    directory.write(DrainMarker(0, {}, None, 2))


def at_its_end(directory: JobDirectory) -> None:
    """No driver has lived to say that it has ended."""
    offset = json.dumps({"sources": {"events": SourceProgress(complete=True).encode()}})
    Path(directory.path, "spark", "offsets", "0").write_text(f"v1\n{{}}\n{offset}")
    Path(directory.path, "spark", "offsets", "1").unlink()


def damaged(directory: JobDirectory) -> None:
    Path(directory.path, "spark", "metadata").write_text("")


def prepared(directory: JobDirectory) -> None:
    header = BufferHeader(BufferKind.COMMITTABLES, sink_vertex(0), 0, 0, "", 0, 0, 0)
    epoch = PreparedEpoch(1, 0, False, (), (encode(header, b""),), ("a sink that is gone",))
    PreparedEpochs(prepared_directory(directory.query_location().path)).write(epoch, NO_FENCE)


@pytest.mark.parametrize(
    ("happens", "said"),
    [
        (draining, "and the job is being drained.*start it once more: it completes the drain.*operator 'sums' is new"),
        (at_its_end, "and the job has read all of its input.*start it once more: it comes to its end"),
        (damaged, "metadata is empty.*start it once more: it goes back to its last checkpoint if it can"),
        (prepared, "epoch 1 is prepared and has output for the sink 'a sink that is gone'"),
    ],
)
def test_what_only_the_earlier_program_can_end_is_refused_before_anything_is_looked_at(
    tmp_path: Path, happens: Callable[[JobDirectory], None], said: str
) -> None:
    directory = begun(tmp_path)
    happens(directory)
    settings = driver_settings(Configuration())
    program = RestoredProgram(job(uid="sums"), {})
    before = sorted(tmp_path.rglob("*"))
    upgrade = Upgrade(None, settings, directory, program, ("operator 'sums' is new",))
    for what in (upgrade.report, upgrade.carry_out):
        with pytest.raises(IncompatibleJobError, match=said):
            what()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_job_that_went_back_to_a_checkpoint_begins_with_it_however_often_its_program_changes_before_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, taken = begun(tmp_path), list[str]()
    checkpoint = str(tmp_path / "checkpoints" / "chk-3")
    write_manifest(checkpoint, manifest_of(job(), 3, {"events": "12"}))
    directory.write(RestoredByFallback(checkpoint=checkpoint, rows="restore-epoch-5"), 5)
    directory.move_query("spark-5", 5)

    def take_over(*arguments: Any) -> tuple[CompatibilityReport, EventTimes]:
        taken.append(arguments[3].path)
        return CompatibilityReport(arguments[3].given, "clicks", False, ()), EventTimes({"counts": 7})

    monkeypatch.setattr(upgrade, "take_over", take_over)
    monkeypatch.setattr(upgrade, "declared_states", lambda *of: ProgramStates({}, {}))
    for uid, first_epoch in (("sums", 6), ("counts", 7), ("sums", 8)):
        program = RestoredProgram(job(uid=uid), {})
        Upgrade(None, driver_settings(Configuration()), directory, program, ("it differs",)).carry_out()
        assert directory.query_location().first_epoch == first_epoch and structures(directory, program.job) == []
        restored = read_restored(directory)
        assert restored is not None and restored.checkpoint == checkpoint
        assert (restored.sources, restored.watermarks, restored.state) == ({"events": "12"}, {"counts": 7}, True)
    assert taken == [checkpoint] * 3


@pytest.mark.parametrize(
    ("restart", "end", "at_once"),
    [
        (False, None, False),
        (True, None, False),
        (False, {"done": False}, True),
        (True, {"done": False}, False),
        (True, {"done": True}, True),
    ],
)
def test_a_job_that_has_ended_is_not_changed_unless_it_is_to_go_on(
    tmp_path: Path, restart: bool, end: dict[str, bool] | None, at_once: bool
) -> None:
    directory = JobDirectory(str(tmp_path))
    if end is not None:
        directory.write(JobEnd(**end))
    found = directory.end()
    assert (found is not None and ends_at_once(found, restart)) is at_once


def test_a_batch_that_is_committed_by_hand_is_one_for_every_reader_of_the_log(tmp_path: Path) -> None:
    log = QueryLog(str(tmp_path / "spark"))
    log.commit(3)
    assert log.committed() == [3] and log.is_committed(3)
    assert (tmp_path / "spark" / "commits" / "3").read_text() == 'v1\n{"nextBatchWatermarkMs":0}'
