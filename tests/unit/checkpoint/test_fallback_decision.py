"""When a job may go back to a checkpoint: decided by the names of files alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flinkish.checkpoint.fallback import Candidate, decide
from flinkish.common import Types
from flinkish.connectors.frame_sinks import DeltaSink
from flinkish.connectors.jdbc.options import JdbcConnectionOptions
from flinkish.connectors.jdbc.sink import JdbcSink
from flinkish.connectors.results import PrintSink
from flinkish.core.sink import Sink
from flinkish.errors import CorruptStateError
from flinkish.jobdir.directory import QueryLocation
from flinkish.jobdir.query import Traces, check_query, read_traces
from flinkish.jobmanager.job.settings import Fallback
from flinkish.testing import TestingSink

CHECKPOINT = Candidate("/job/checkpoints/chk-3", 7)


def traces(last_planned: int, last_committed: int, **more: Any) -> Traces:
    return Traces(tuple(range(last_planned + 1)), tuple(range(last_committed + 1)), **more)


def test_with_a_checkpoint_of_the_last_planned_epoch_nothing_is_repeated() -> None:
    for seen in (traces(7, 7), traces(7, 7, last_state=7), traces(8, 7), traces(8, 7, last_state=8)):
        decision = decide(Fallback.EXACT, seen, CHECKPOINT)
        assert (decision.checkpoint, list(decision.repeated)) == (CHECKPOINT, [])


def test_numbers_of_epochs_are_not_given_twice() -> None:
    assert decide(Fallback.EXACT, traces(7, 7), CHECKPOINT).first_epoch == 8
    assert decide(Fallback.EXACT, traces(8, 7), CHECKPOINT).first_epoch == 9
    assert decide(Fallback.REPLAY, traces(11, 10), CHECKPOINT).first_epoch == 12
    assert decide(Fallback.REPLAY, Traces((), ()), CHECKPOINT).first_epoch == 8


@pytest.mark.parametrize(
    "seen",
    [
        traces(8, 8),
        traces(8, 7, prepared=(7, 8)),
        traces(8, 7, last_state=9),
        Traces(tuple(range(10)), ()),
        Traces(tuple(range(8)), (), 8, (8,)),
    ],
)
def test_epochs_that_may_have_reached_sinks_are_repeated_only_if_that_is_allowed(seen: Traces) -> None:
    refused = decide(Fallback.EXACT, seen, CHECKPOINT)
    assert refused.checkpoint is None
    assert "epochs up to 8 have been delivered" in refused.refusal
    allowed = decide(Fallback.REPLAY, seen, CHECKPOINT)
    assert (allowed.checkpoint, list(allowed.repeated)) == (CHECKPOINT, [8])
    # without the offsets of the checkpoint's epoch it is not known what came after
    unknown = decide(Fallback.EXACT, Traces((4, 5), (4, 5, 6, 7)), CHECKPOINT)
    assert unknown.checkpoint is None and "the offsets of epoch 7 are gone" in unknown.refusal


def test_epochs_are_repeated_by_themselves_if_all_sinks_are_idempotent() -> None:
    decision = decide(Fallback.EXACT, traces(10, 9), CHECKPOINT, idempotent=True)
    assert (decision.checkpoint, list(decision.repeated), decision.first_epoch) == (CHECKPOINT, [8, 9], 11)
    assert decide(Fallback.NEVER, traces(8, 8), CHECKPOINT, idempotent=True).checkpoint is None
    assert decide(Fallback.EXACT, traces(8, 8), None, idempotent=True).checkpoint is None


ROW = Types.ROW_NAMED(["id", "n"], [Types.STRING(), Types.LONG()])
DATABASE = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("sqlite:////nowhere/x.db").build()


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        (lambda: JdbcSink.upsert("counts", ["id"], ROW, DATABASE), True),
        (lambda: JdbcSink.sink("INSERT INTO counts VALUES (?, ?)", ROW, DATABASE), False),
        (lambda: DeltaSink.merge("/nowhere/counts", ["id"]), True),
        (lambda: DeltaSink("/nowhere/counts"), False),
        (TestingSink, False),
        (PrintSink, False),
    ],
)
def test_sinks_that_keep_one_row_per_key_are_idempotent(sink: Callable[[], Sink], expected: bool) -> None:
    assert sink().is_idempotent is expected


def test_never_means_never_and_no_checkpoint_is_none() -> None:
    assert decide(Fallback.NEVER, traces(7, 7), CHECKPOINT).checkpoint is None
    for mode in Fallback:
        assert decide(mode, traces(7, 7), None).checkpoint is None


def make_query(folder: Path, planned: int, committed: int, state: int) -> QueryLocation:
    """A query with so many batches; numbered from epoch 10 on."""
    query = folder / "spark"
    for name in ("offsets", "commits", "state/0/0", "state/0/_metadata"):
        (query / name).mkdir(parents=True)
    (query / "metadata").write_text('{"id":"7b7a"}')
    for batch in range(planned):
        (query / "offsets" / str(batch)).write_text('v1\n{"batchWatermarkMs":0}\n{"offset":1}')
        (query / "offsets" / f".{batch}.crc").write_text("")
    for batch in range(committed):
        (query / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    for version in range(1, state + 1):
        (query / "state/0/0" / f"{version}.delta").write_text("state")
    return QueryLocation(str(query), 10)


def test_traces_are_epochs_of_the_job(tmp_path: Path) -> None:
    location = make_query(tmp_path, 3, 2, 3)
    assert read_traces(location) == Traces((10, 11, 12), (10, 11), 12)
    assert read_traces(location).last_delivered == 11
    (tmp_path / "spark/prepared/12").mkdir(parents=True)
    assert read_traces(location).last_delivered == 11, "the tasks have ended, but nothing was prepared"
    (tmp_path / "spark/prepared/12.json").touch()
    assert read_traces(location).last_delivered == 12


def test_a_query_is_whole_without_its_last_commit_and_a_file_that_cannot_be_read_is_known_by_its_path(
    tmp_path: Path,
) -> None:
    assert check_query(QueryLocation(str(tmp_path / "new"), 5)).planned == ()
    location = make_query(tmp_path, 3, 3, 3)
    for name in ("offsets/2", "commits/2", "metadata"):
        file = Path(location.path) / name
        whole = file.read_bytes()
        for damaged in (None, b"", whole[:-5]):
            file.unlink() if damaged is None else file.write_bytes(damaged)
            if (name, damaged) == ("commits/2", None):
                # as if the driver had died before: the batch is run again
                assert check_query(location).planned == (10, 11, 12)
                continue
            with pytest.raises(CorruptStateError) as caught:
                check_query(location)
            assert caught.value.file == str(file)
        file.write_bytes(whole)
