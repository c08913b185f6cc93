"""Files on a real file system: whole or not there, and the same whoever delivers an epoch again."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkish.common.serialization import Encoder
from flinkish.common.typeinfo import Types
from flinkish.common.types import Row
from flinkish.connectors.file_system.enumerator import StreamFormat
from flinkish.connectors.file_system.sink import FileSink, StreamingFileSink
from flinkish.connectors.file_system.sink_options import (
    BucketAssigner,
    FileCompactStrategy,
    OutputFileConfig,
    RollingPolicy,
)
from flinkish.core.sink import CommitContext
from flinkish.errors import FencedError, OperationError, ProgramError
from flinkish.minicluster import MiniCluster
from flinkish.runtime.phases import ManualClock
from tests.support.fences import FallingFence
from tests.unit.minicluster.programs import environment, job_of


def context(epoch: int = 0, subtask: int = 0) -> CommitContext:
    return CommitContext("job", "test", "sink", "sink", epoch, 1_700_000_000_000, subtask, 2)


def builder(folder: Path) -> FileSink.RowFormatBuilder:
    made = FileSink.for_row_format(str(folder), Encoder.simple_string_encoder())
    return made.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())


def deliver(sink: FileSink, values: list[Any], epoch: int = 0, subtask: int = 0) -> int:
    sink = pickle.loads(pickle.dumps(sink))
    writer = sink.create_writer()
    writer.open(subtask, 2)
    batches = [writer.write(values[:1], None), writer.write(values[1:], None), writer.prepare_commit()]
    return sink.create_committer().commit(iter(batches), context(epoch, subtask))


_UUID = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-")


def files(folder: Path) -> dict[str, str]:
    """Name -> content. The uuid of job and sink, which each name must have, is left out of it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name, uuids = _UUID.subn("-", str(path.relative_to(folder)))
            assert uuids == 1 and name not in found
            found[name] = path.read_text()
    return found


def test_a_driver_that_is_taken_over_while_it_writes_a_file_shows_nothing_of_it(tmp_path: Path) -> None:
    sink = builder(tmp_path).build()
    deliver(sink, ["a"])
    fenced = replace(context(1), fence=FallingFence())
    with pytest.raises(FencedError):
        sink.create_committer().commit(iter([[(b"b\n", 1)]]), fenced)
    assert list(files(tmp_path).values()) == ["a\n"]


def test_an_epoch_is_one_file_however_often_it_is_delivered(tmp_path: Path) -> None:
    config = OutputFileConfig.builder().with_part_prefix("clicks").with_part_suffix(".txt").build()
    sink = builder(tmp_path / "out").with_output_file_config(config).build()
    assert [deliver(sink, ["a", "b", "c"], 4), deliver(sink, ["a", "b", "c"], 4), deliver(sink, ["d"], 4, 1)] == [
        3,
        3,
        1,
    ]
    assert files(tmp_path / "out") == {"clicks-0-4.txt": "a\nb\nc\n", "clicks-1-4.txt": "d\n"}


def test_a_part_size_cuts_an_epoch_into_files_that_are_all_there_or_none(tmp_path: Path) -> None:
    sink = builder(tmp_path).with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=4)).build()
    batches = [[(b"aa\n", 1), (b"bb\n", 1)], [(b"cccc\n", 1)], [(b"d\n", 1)]]
    for _ in range(2):
        assert sink.create_committer().commit(iter(batches), context(3)) == 4
        assert files(tmp_path) == {"part-0-3": "aa\nbb\n", "part-0-3-1": "cccc\n", "part-0-3-2": "d\n"}
    with pytest.raises(FencedError):
        sink.create_committer().commit(iter(batches), replace(context(4), fence=FallingFence()))
    assert len(files(tmp_path)) == 3
    with pytest.raises(ProgramError, match="part_size=0"):
        RollingPolicy.default_rolling_policy(part_size=0)


def test_an_epoch_without_records_makes_no_file(tmp_path: Path) -> None:
    assert deliver(builder(tmp_path / "out").build(), []) == 0
    assert files(tmp_path) == {}


def test_a_committer_that_dies_leaves_nothing_that_is_seen(tmp_path: Path) -> None:
    sink = builder(tmp_path).build()

    def dying() -> Iterator[list[Any]]:
        yield [(b"a\n", 1)]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sink.create_committer().commit(dying(), context())
    assert files(tmp_path) == {}
    assert deliver(sink, ["a"]) == 1
    assert files(tmp_path) == {"part-0-0": "a\n"}


def test_buckets_are_by_the_epochs_time(tmp_path: Path) -> None:
    by_hour = BucketAssigner.date_time_bucket_assigner(timezone_id="UTC")
    sink = builder(tmp_path).with_bucket_assigner(by_hour).build()
    assert deliver(sink, ["a"]) == 1
    assert files(tmp_path) == {"2023-11-14--22/part-0-0": "a\n"}


def test_a_pattern_that_is_not_understood_is_an_error_when_the_program_is_built() -> None:
    for pattern, zone in (("yyyy-QQ", None), ("yyyy", "Mars/Base")):
        with pytest.raises(ProgramError, match="are not understood"):
            BucketAssigner.date_time_bucket_assigner(pattern, zone)


def test_the_stream_s_type_decides_the_text(tmp_path: Path) -> None:
    sink = builder(tmp_path).with_rolling_policy(RollingPolicy.default_rolling_policy()).build()
    row = Types.ROW([Types.STRING(), Types.INT()])
    deliver(sink, [Row("a", None)], 0)
    deliver(sink.with_input_type(row), [Row("a", None)], 1)
    assert files(tmp_path) == {"part-0-0": "<Row('a', None)>\n", "part-0-1": "+I[a, null]\n"}


def test_a_folder_that_cannot_be_written_is_the_operators_business(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OperationError, match="cannot write .* is not a directory.*epoch 3.*name a path"):
        deliver(builder(tmp_path / "file" / "out").build(), ["a"], 3)


def test_a_charset_without_lines_is_refused() -> None:
    for charset in ("UTF-16", "none"):
        with pytest.raises(ProgramError, match="cannot be read in lines"):
            StreamFormat.text_line_format(charset)


def test_the_older_name_of_the_sink_writes_the_same_files(tmp_path: Path) -> None:
    made = StreamingFileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    assert isinstance(made, StreamingFileSink.DefaultRowFormatBuilder)
    deliver(made.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build(), ["a"])
    assert files(tmp_path) == {"part-0-0": "a\n"}


def test_a_strategy_that_never_compacts_is_refused() -> None:
    with pytest.raises(ProgramError, match="a strategy that never compacts"):
        FileCompactStrategy.builder().build()


def test_a_relative_path_is_the_programs_wherever_the_workers_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    sink = builder(Path("out")).build()
    monkeypatch.chdir(tmp_path / "elsewhere")
    deliver(sink, ["a"])
    assert files(tmp_path) == {"out/part-0-0": "a\n"}


@pytest.mark.parametrize(
    "other", [{"job_id": "other"}, {"sink_uid": "other"}], ids=["another job or run", "another sink"]
)
def test_whoever_shares_a_folder_leaves_the_files_of_the_others_alone(tmp_path: Path, other: dict[str, str]) -> None:
    sink = builder(tmp_path).build()
    for record, who in (("a", context()), ("b", replace(context(), **other))):
        sink.create_committer().commit(iter([[(record.encode(), 1)]]), who)
    assert sorted(path.read_text() for path in tmp_path.iterdir()) == ["a", "b"]


def test_two_sinks_of_a_program_that_runs_twice_add_to_one_folder(tmp_path: Path) -> None:
    for job_id in ("first", "second"):
        env = environment(1)
        letters = env.from_collection(["a"], Types.STRING())
        letters.sink_to(builder(tmp_path).build()).uid("one")
        letters.sink_to(builder(tmp_path / "x" / "..").build()).uid("other")
        MiniCluster(replace(job_of(env), job_id=job_id), ManualClock()).run()
    assert [path.read_text() for path in tmp_path.iterdir()] == ["a\n"] * 4


def test_the_last_epoch_is_that_of_the_sinks_own_visible_files_in_all_buckets(tmp_path: Path) -> None:
    committer = builder(tmp_path).build().create_committer()
    assert committer.last_committed_epoch(context()) is None
    for epoch, who in ((9, "job"), (11, "job"), (30, "other")):
        by_hour = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build()
        hours_later = replace(context(epoch, subtask=1), job_id=who, epoch_time_ms=epoch * 3_600_000)
        by_hour.create_committer().commit(iter([[(b"a", 1)]]), hours_later)
    (visible,) = tmp_path.glob("*/*-1-11")
    (visible.parent / f".{visible.name[:-2]}12.inprogress.0").touch()
    assert committer.last_committed_epoch(context()) == 11


@pytest.mark.parametrize("suffix", ["", ".csv", "2024.csv", "-7", "-7.csv", "7-1", "\u0663", ".7", "9-9-9"])
@pytest.mark.parametrize("prefix", ["part", "", ".hidden", "2024-01", "a-1-2", "v1.0", "x.inprogress.1"])
def test_the_last_epoch_is_read_whatever_prefix_and_suffix_the_files_have(
    tmp_path: Path, prefix: str, suffix: str
) -> None:
    config = OutputFileConfig.builder().with_part_prefix(prefix).with_part_suffix(suffix).build()
    sink = (
        builder(tmp_path)
        .with_output_file_config(config)
        .with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=1))
    )
    for epoch in (9, 0, 12):
        deliver(sink.build(), ["a", "b", "c"], epoch)
    assert len(files(tmp_path)) == 6
    assert all(path.name.startswith(prefix) and path.name.endswith(suffix) for path in tmp_path.iterdir())
    assert sink.build().create_committer().last_committed_epoch(context()) == 12


@pytest.mark.parametrize("suffix", ["2024.csv", "7"])
def test_files_of_an_earlier_version_whose_suffix_follows_the_epoch_are_recognised(tmp_path: Path, suffix: str) -> None:
    deliver(builder(tmp_path).build(), ["a"], epoch=3)
    (written,) = tmp_path.iterdir()
    written.rename(f"{written}{suffix}")
    config = OutputFileConfig.builder().with_part_suffix(suffix).build()
    committer = builder(tmp_path).with_output_file_config(config).build().create_committer()
    assert committer.last_committed_epoch(context()) == 3


def test_two_sinks_of_a_job_with_prefixes_of_their_own_share_a_folder(tmp_path: Path) -> None:
    env = environment(1)
    letters = env.from_collection(["a"], Types.STRING())
    letters.sink_to(builder(tmp_path).build())
    config = OutputFileConfig.builder().with_part_prefix("other").build()
    letters.sink_to(builder(tmp_path).with_output_file_config(config).build())
    MiniCluster(job_of(env), ManualClock()).run()
    assert files(tmp_path) == {"other-0-0": "a\n", "part-0-0": "a\n"}
