"""When a job may go back to a checkpoint: decided by the names of files alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flinkish.checkpoint.fallback import Candidate, decide
from flinkish.errors import CorruptStateError
from flinkish.jobdir.directory import QueryLocation
from flinkish.jobdir.query import Traces, check_query, read_traces
from flinkish.jobmanager.job.settings import Fallback

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


def test_without_the_offsets_of_the_checkpoints_epoch_it_is_not_known_what_came_after() -> None:
    decision = decide(Fallback.EXACT, Traces((4, 5), (4, 5, 6, 7)), CHECKPOINT)
    assert decision.checkpoint is None
    assert "the offsets of epoch 7 are gone" in decision.refusal


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


def test_a_query_that_is_whole_passes(tmp_path: Path) -> None:
    assert check_query(QueryLocation(str(tmp_path / "new"), 5)).planned == ()
    assert check_query(make_query(tmp_path, 3, 2, 3)).planned == (10, 11, 12)


@pytest.mark.parametrize("how", ["deleted", "emptied", "cut"])
@pytest.mark.parametrize("name", ["offsets/2", "commits/2", "metadata"])
def test_the_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, how: str) -> None:
    location = make_query(tmp_path, 3, 3, 3)
    file = Path(location.path) / name
    if how == "deleted":
        file.unlink()
    else:
        file.write_bytes(b"" if how == "emptied" else file.read_bytes()[:-5])
    if (name, how) == ("commits/2", "deleted"):
        assert check_query(location).planned[-1] == 12  # as if the driver had died before: the batch is run again
        return
    with pytest.raises(CorruptStateError) as caught:
        check_query(location)
    assert caught.value.file == str(file)


def test_offsets_that_are_gone_are_missed_because_of_the_state_that_their_batch_has_left(tmp_path: Path) -> None:
    location = make_query(tmp_path, 4, 3, 4)
    (Path(location.path) / "offsets/3").unlink()
    with pytest.raises(CorruptStateError, match="offsets/3 is missing"):
        check_query(location)
