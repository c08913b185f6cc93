"""The barrier of an epoch and the files that tasks leave before it: whole or not there, and never somebody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flinkish.core.sink import NO_FENCE
from flinkish.errors import CorruptStateError, FencedError, OperationError
from flinkish.runtime.epoch.commit import batches_in_order
from flinkish.runtime.epoch.files import (
    CHANGES_IN_FILE,
    CHANGES_INLINE,
    EpochFiles,
    PreparedEpoch,
    PreparedEpochs,
    TaskOutput,
)
from flinkish.runtime.exchange.buffer import BufferHeader, BufferKind, decode, encode
from flinkish.runtime.job.deployment import (
    CHANGELOG_VERTEX,
    JobDescriptor,
    SinkDescriptor,
    VertexDescriptor,
    sink_vertex,
)
from flinkish.runtime.job.report import Row
from flinkish.runtime.operators.source_and_sink import encode_committables
from flinkish.testing import TestingSink
from tests.support.fences import FallingFence

SINKS = ("first", "second")
JOB = JobDescriptor(
    "0" * 32,
    "job",
    (VertexDescriptor(0, "v", 0, (), 1, 1),),
    tuple(SinkDescriptor(number, uid, uid, TestingSink(), 1, uid_given=True) for number, uid in enumerate(SINKS)),
)
LARGE = 64 * 1024 + 1


def row(values: list[Any], sink: int = 0, subtask: int = 0, sequence: int = 0) -> Row:
    """What a task hands over to a sink."""
    vertex = sink_vertex(sink)
    header = BufferHeader(BufferKind.COMMITTABLES, vertex, subtask, 0, "0/a", 0, sequence, len(values))
    return vertex, subtask, encode(header, encode_committables(5, values))


def large(letter: str, sequence: int = 0, sink: int = 0) -> Row:
    return row([letter * LARGE], sink, sequence=sequence)


def prepared(epoch: int, *rows: Row) -> PreparedEpoch:
    return PreparedEpoch(epoch, 99, False, (b"report",), tuple(data for _, _, data in rows), SINKS)


@pytest.fixture
def files(tmp_path: Path) -> EpochFiles:
    return EpochFiles(str(tmp_path / "spark/prepared"), str(tmp_path / "changelog"))


def handed_over(files: EpochFiles, epoch: int, *rows: Row) -> list[Row]:
    """The rows of a run of a task, as they leave it."""
    with TaskOutput(JOB, files).of_run(epoch) as output:
        return output.referenced(list(rows))


def written(files: EpochFiles) -> list[str]:
    root = Path(files.prepared)
    return sorted(path.relative_to(root).parts[0] for path in root.rglob("*") if path.is_file())


def test_what_is_small_travels_in_the_row_and_what_is_large_lies_in_one_file_per_run(files: EpochFiles) -> None:
    rows = handed_over(files, 7, row([1]), large("a", 1), large("b", 2), row([2], sequence=3), (4, 0, b"for a vertex"))
    kinds = [decode(data).header.kind for vertex, _, data in rows if vertex < 0]
    inline, in_file = BufferKind.COMMITTABLES, BufferKind.COMMITTABLES_IN_FILE
    assert kinds == [inline, in_file, in_file, inline]
    assert rows[-1] == (4, 0, b"for a vertex")
    assert written(files) == ["7"]
    back = [value for batch in batches_in_order([data for _, _, data in rows[:4]], files) for value in batch]
    assert back == [1, "a" * LARGE, "b" * LARGE, 2]


def test_many_small_ones_travel_inline_only_up_to_a_bound(files: EpochFiles) -> None:
    half = "x" * 40_000
    kinds = [decode(data).header.kind for _, _, data in handed_over(files, 7, row([half]), row([half], sequence=1))]
    assert kinds == [BufferKind.COMMITTABLES, BufferKind.COMMITTABLES_IN_FILE]


def test_a_run_that_is_tried_again_leaves_the_file_of_the_first_one_alone(files: EpochFiles) -> None:
    first = handed_over(files, 7, large("a"))
    second = handed_over(files, 7, large("b"))
    for rows, letter in ((first, "a"), (second, "b")):
        assert list(batches_in_order([rows[0][2]], files)) == [[letter * LARGE]]


def test_a_run_that_fails_leaves_no_file(files: EpochFiles) -> None:
    with pytest.raises(ZeroDivisionError), TaskOutput(JOB, files).of_run(7) as output:
        output.referenced([large("a")])
        raise ZeroDivisionError
    assert written(files) == []


def test_storage_that_cannot_be_written_is_an_error_of_the_operator(files: EpochFiles, tmp_path: Path) -> None:
    (tmp_path / "spark").write_text("moved")
    with pytest.raises(OperationError, match="spark/prepared/7/"):
        handed_over(files, 7, large("a"))


def test_changes_of_the_state_travel_inline_or_as_the_name_of_a_file(files: EpochFiles) -> None:
    rows = handed_over(files, 7, (CHANGELOG_VERTEX, 0, b"few"), (CHANGELOG_VERTEX, 0, b"x" * LARGE))
    assert rows[0][2] == CHANGES_INLINE + b"few"
    (part,) = Path(files.changelog).glob("epoch=7/*")
    assert rows[1][2] == CHANGES_IN_FILE + part.name.encode()


@pytest.mark.parametrize("how", ["deleted", "cut", "changed"])
def test_damaged_committables_are_named_and_never_committed(files: EpochFiles, how: str) -> None:
    rows = handed_over(files, 7, large("a"))
    (path,) = Path(files.prepared).glob("7/*")
    if how == "deleted":
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes(data[:-1] if how == "cut" else data[:-2] + b"?" + data[-1:])
    with pytest.raises(CorruptStateError) as caught:
        list(batches_in_order([rows[0][2]], files))
    assert caught.value.file == str(path)


def test_a_prepared_epoch_is_read_as_it_was_written(files: EpochFiles) -> None:
    epochs = PreparedEpochs(files.prepared)
    assert (epochs.read(7), epochs.epochs()) == (None, [])
    epoch = prepared(7, row([1], sink=1, subtask=2), row([2]), row([3], sink=1, subtask=2, sequence=1))
    epochs.write(epoch, NO_FENCE)
    assert (epochs.read(7), epochs.epochs()) == (epoch, [7])
    shares = [(sink, subtask, list(batches_in_order(data))) for sink, subtask, data in epoch.by_target(JOB)]
    assert shares == [(0, 0, [[2]]), (1, 2, [[1], [3]])]
    assert not [path for path in Path(files.prepared).iterdir() if path.name.startswith(".")]


def test_an_epoch_is_prepared_once(files: EpochFiles) -> None:
    epochs = PreparedEpochs(files.prepared)
    epochs.write(prepared(7, row([1])), NO_FENCE)
    with pytest.raises(FencedError, match="epoch 7 has been prepared by another process"):
        epochs.write(prepared(7, row([2])), NO_FENCE)
    assert epochs.read(7) == prepared(7, row([1]))


@pytest.mark.parametrize("how", ["emptied", "cut", "changed", "of another epoch"])
def test_a_damaged_file_of_an_epoch_is_named_and_still_says_that_sinks_have_heard_of_it(
    files: EpochFiles, how: str
) -> None:
    epochs = PreparedEpochs(files.prepared)
    epochs.write(prepared(7, row([1])), NO_FENCE)
    epochs.write(prepared(8, row([2])), NO_FENCE)
    path = Path(epochs.file(7))
    data = path.read_bytes()
    other = Path(epochs.file(8)).read_bytes()
    changes = {"emptied": b"", "cut": data[:-9], "changed": data.replace(b"99", b"98"), "of another epoch": other}
    path.write_bytes(changes[how])
    with pytest.raises(CorruptStateError) as caught:
        epochs.read(7)
    assert caught.value.file == str(path)
    assert epochs.epochs() == [7, 8]


def test_a_driver_that_has_lost_the_job_prepares_nothing_and_deletes_nothing(files: EpochFiles) -> None:
    epochs, lost = PreparedEpochs(files.prepared), FallingFence()
    with pytest.raises(FencedError):
        epochs.write(prepared(7, row([1])), lost)
    assert epochs.epochs() == []
    epochs.write(prepared(7, row([1])), NO_FENCE)
    handed_over(files, 8, large("a"))
    with pytest.raises(FencedError):
        epochs.delete_up_to(7, lost)
    with pytest.raises(FencedError):
        epochs.delete_unreferenced(lost)
    assert written(files) == ["7.json", "8"]


def test_a_driver_whose_query_was_taken_away_prepares_nothing(files: EpochFiles, tmp_path: Path) -> None:
    epochs = PreparedEpochs(files.prepared)

    def take_away() -> None:
        (tmp_path / "spark").rename(tmp_path / "spark-owner-2")
        (tmp_path / "spark").write_text("moved")

    class Late:
        """Passes when it is asked first, and the query is taken away right behind that."""

        token, asked = 1, 0

        def check(self) -> None:
            self.asked += 1
            if self.asked > 1:
                raise FencedError("taken over")
            take_away()

    handed_over(files, 7, large("a"))
    with pytest.raises(FencedError, match="taken over"):
        epochs.write(prepared(7, row([1])), Late())
    assert PreparedEpochs(str(tmp_path / "spark-owner-2/prepared")).epochs() == []


def test_epochs_that_will_not_come_again_are_deleted_with_all_that_runs_have_left_of_them(files: EpochFiles) -> None:
    epochs = PreparedEpochs(files.prepared)
    for epoch in (6, 7, 8):
        handed_over(files, epoch, large("of a run that failed"))
        epochs.write(prepared(epoch, *handed_over(files, epoch, large("a"))), NO_FENCE)
    handed_over(files, 5, large("of a run that was paused until now"))
    epochs.delete_up_to(7, NO_FENCE)
    assert written(files) == ["8", "8", "8.json"]
    assert list(batches_in_order(epochs.read(8).committables, files)) == [["a" * LARGE]]  # type: ignore[union-attr]


def test_what_failed_runs_have_left_goes_but_nothing_of_a_prepared_epoch(files: EpochFiles) -> None:
    epochs = PreparedEpochs(files.prepared)
    epochs.write(prepared(7, *handed_over(files, 7, large("a"))), NO_FENCE)
    handed_over(files, 8, large("b"))
    Path(files.prepared, ".8.json.half").touch()
    epochs.delete_unreferenced(NO_FENCE)
    assert written(files) == ["7", "7.json"]
    assert epochs.read(7) is not None
