"""The splits that a source has read to their ends are stored once, beside the checkpoints that need them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flinkish.checkpoint.claim import subsume_claimed
from flinkish.checkpoint.manifest import (
    SAVEPOINT_VERSION,
    VERSION_WITH_FILES,
    CheckpointDirectory,
    Manifest,
    Savepoint,
    TableVersion,
    version_of,
)
from flinkish.core.source import SourceSplit
from flinkish.errors import SavepointError
from flinkish.jobdir.directory import JobDirectory
from flinkish.runtime.sources.progress import (
    OpenSplit,
    SourceProgress,
    decode_position,
    encode_position,
    shown_position,
)
from flinkish.runtime.sources.split_list import MAX_TAIL, SegmentsInMemory, SplitList
from tests.support.job_files import put


class Files:
    """A source that has read all files but the last two, with checkpoints."""

    def __init__(self, folder: Path) -> None:
        self.directory = CheckpointDirectory(str(folder / "checkpoints"))
        self.store, self.splits, self.found = SegmentsInMemory(), SplitList(), list[SourceSplit]()

    @property
    def progress(self) -> SourceProgress:
        last = len(self.found) - 2
        return SourceProgress(self.splits, len(self.found), (OpenSplit(last, 0, 3), OpenSplit(last + 1, 1, 0)))

    def find(self, count: int) -> None:
        """Find so many files, and read all but two."""
        begun = len(self.found)
        self.found += [SourceSplit(f"part-{begun + number:06}", 0, 9) for number in range(count)]
        self.splits = self.splits.with_splits(self.found, begun, frozenset(), self.store)

    def checkpoint(self, number: int, directory: CheckpointDirectory | None = None) -> Path:
        """Write a checkpoint; returns its path."""
        directory = directory or self.directory
        sources = {"files": encode_position(self.progress, self.store, None, directory.store_ids)}
        table = TableVersion("../state", 1)
        version = version_of(sources, None)
        directory.write(
            number, Manifest("ab", "job", number, 0, sources=sources, state=table, savepoint_version=version)
        )
        return Path(directory.checkpoint(number))

    def assert_complete(self, checkpoint: Path) -> None:
        """The checkpoint has the positions of a savepoint."""
        position = Savepoint.open(str(checkpoint)).manifest.sources["files"]
        assert json.loads(position) == json.loads(encode_position(self.progress, self.store))
        restored = decode_position(position, "files", SegmentsInMemory())
        assert (restored.next, len(restored.splits)) == (len(self.found) - 2, len(self.found))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def names(directory: str) -> list[str]:
    return sorted(path.name for path in Path(directory).iterdir())


def test_checkpoint_has_all_splits_that_have_ended_though_its_manifest_stays_small(files: Files) -> None:
    for number in range(1, 60):
        files.find(100)
        checkpoint = files.checkpoint(number)
        if number % 10 == 9:
            files.assert_complete(checkpoint)
        assert (checkpoint / "manifest.json").stat().st_size < 10_000
    assert files.directory.drop_but(1, lambda: None) == [59]
    files.assert_complete(checkpoint)
    assert len(names(files.directory.ended)) == len(files.splits.segments)
    shown = json.loads(shown_position(files.directory.read(59).sources["files"]))
    assert (shown["ended_count"], shown["splits_count"]) == (5_898, 2)


def test_checkpoint_of_few_splits_is_as_that_of_earlier_versions(files: Files) -> None:
    files.find(MAX_TAIL)
    assert files.directory.read(int(files.checkpoint(1).name[4:])).savepoint_version == SAVEPOINT_VERSION
    assert not Path(files.directory.ended).exists()
    files.find(2 * MAX_TAIL)
    files.checkpoint(2)
    files.find(2 * MAX_TAIL)
    assert files.directory.read(int(files.checkpoint(3).name[4:])).savepoint_version == VERSION_WITH_FILES


def test_file_that_any_retained_checkpoint_refers_to_stays(files: Files) -> None:
    checkpoints = []
    for number in range(1, 20):
        files.find(100)
        checkpoints.append((files.checkpoint(number), encode_position(files.progress, files.store)))
        files.directory.drop_but(10, lambda: None)
    for checkpoint, whole in checkpoints[-10:]:
        assert json.loads(Savepoint.open(str(checkpoint)).manifest.sources["files"]) == json.loads(whole)


def test_file_of_a_newer_driver_is_not_deleted_by_an_older_one_that_was_paused(files: Files) -> None:
    files.find(10)
    files.checkpoint(1)
    files.find(200)
    # the older driver has written a file, but never completed the checkpoint that needs it
    encode_position(files.progress, files.store, None, files.directory.store_ids)
    (left,) = names(files.directory.ended)
    newer = CheckpointDirectory(files.directory.path)

    def take_over() -> None:
        files.checkpoint(2, newer)

    files.directory.drop_but(1, take_over)
    assert left not in names(newer.ended)
    files.assert_complete(Path(newer.checkpoint(2)))


def test_next_driver_goes_on_with_the_files_of_the_last_checkpoint(files: Files) -> None:
    for _ in range(3):
        files.find(200)
    files.checkpoint(1)
    before = names(files.directory.ended)
    files.assert_complete(files.checkpoint(2, CheckpointDirectory(files.directory.path)))
    assert names(files.directory.ended) == before


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_damaged_file_is_an_error_that_names_it(files: Files, damage: str) -> None:
    files.find(200)
    checkpoint = files.checkpoint(1)
    (file,) = Path(files.directory.ended).iterdir()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes().replace(b"part-000001", b"part-000000"))
    with pytest.raises(SavepointError, match=f"is damaged.*{file}"):
        Savepoint.open(str(checkpoint))
    assert files.directory.read(1).epoch == 1, "what checkpoints build upon needs no splits"


def test_files_go_with_the_last_checkpoint_that_was_claimed(files: Files, tmp_path: Path) -> None:
    files.find(200)
    checkpoint = files.checkpoint(1)
    directory = JobDirectory(str(tmp_path / "job"))
    put(directory, "restored.json", {"path": str(checkpoint), "claim_mode": "CLAIM"})
    assert subsume_claimed(directory, completed=1, retained=1) == str(checkpoint)
    assert not Path(files.directory.ended).exists()
