"""Stored files are refused by type and size before they are read, and logs of Delta by the shape of their actions.

Whoever edits a savepoint or a checkpoint can put anything in the place of a file: a pipe that nobody writes to, a
link to a device without end, a hole of a terabyte, or a Parquet file of 300 bytes that expands to ten gigabytes.
"""

from __future__ import annotations

import io
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flinkish.checkpoint.manifest import CheckpointDirectory, Manifest, Savepoint, TableVersion, write_manifest
from flinkish.checkpoint.table import CheckpointTable
from flinkish.delta import checkpoints as delta_checkpoints
from flinkish.delta.check import check_log
from flinkish.delta.fence import FencingLog
from flinkish.delta.log import DeltaLog, described_table
from flinkish.errors import FlinkishError, SavepointError
from flinkish.jobdir.query import QueryLog
from flinkish.runtime.epoch.changelog_files import read_changes
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.files.references import FileReference
from flinkish.storage.paths import FileKind
from flinkish.storage.stores import storage_of
from tests.unit.engine.test_stored_names_and_shapes import KINDS

TERABYTE = 1 << 40


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """The directory of a Delta table whose log is empty."""
    (tmp_path / "_delta_log").mkdir()
    return tmp_path


def is_refused(table: Path, words: str) -> str:
    """The message of the error by which a damaged log is refused."""
    with pytest.raises(SavepointError, match=words) as caught:
        check_log(str(table), None)
    return str(caught.value)


def hole(path: Path) -> None:
    path.touch()
    os.truncate(path, TERABYTE)


def local_socket(path: Path) -> None:
    before = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("s")  # the path of a socket has at most 107 bytes
        os.rename("s", path.name)
    finally:
        os.chdir(before)


#: What stands in the place of a file -> (how it is made, what is said of it)
IN_PLACE: dict[str, tuple[Callable[[Path], None], str]] = {
    "pipe": (lambda path: os.mkfifo(path), "it is a named pipe, expected a regular file"),
    "link to a device": (
        lambda path: path.symlink_to("/dev/zero"),
        "it is a device, expected|leads to /dev/zero",
    ),
    "socket": (local_socket, "it is a socket, expected a regular file"),
    "hole of a terabyte": (hole, "it has 1,099,511,627,776 bytes, and .* has at most"),
}

COMMIT = f"_delta_log/{0:020d}.json"
CHECKPOINT = f"_delta_log/{0:020d}.checkpoint.parquet"
PART = f"part-{'0' * 32}-{'0' * 64}.parquet"
STATE = FileReference(f"7-{'0' * 32}.arrow", 1, 14, b"", (0, 0), (1, 0))


def open_state_file(folder: Path) -> None:
    StateDirectory(str(folder)).open(STATE)


#: (file, what reads it), for files that are refused by an error that names them
READERS: list[tuple[str, Callable[[Path], Any]]] = [
    *((name, read) for name, _, read in KINDS),
    ("manifest.json", lambda folder: Savepoint.open(str(folder)).manifest),
    (COMMIT, lambda table: check_log(str(table), None)),
    (COMMIT, lambda table: DeltaLog(str(table)).files_of_first_commit()),
    (COMMIT, lambda table: CheckpointTable(None, str(table), lambda: None).actions(0)),
    (COMMIT, lambda table: FencingLog(str(table)).claim(0)),
    (CHECKPOINT, lambda table: check_log(str(table), None)),
    (CHECKPOINT, lambda table: DeltaLog(str(table)).protocol()),
    (f"_delta_log/{0:020d}.{1:020d}.compacted.json", lambda table: check_log(str(table), None)),
    ("_delta_log/_last_checkpoint", lambda table: check_log(str(table), None)),
    (f"_delta_log/{0:020d}.crc", lambda table: check_log(str(table), None)),
    ("offsets/3", lambda query: QueryLog(str(query)).positions(3)),
    (PART, lambda folder: read_changes(str(folder / PART))),
    (STATE.name, open_state_file),
]


@pytest.mark.parametrize("what", IN_PLACE)
@pytest.mark.parametrize(("name", "read"), READERS, ids=[f"{n}-{name}" for n, (name, _) in enumerate(READERS)])
def test_what_is_no_regular_file_of_its_size_is_refused_by_its_name_before_it_is_read(
    name: str, read: Callable[[Path], Any], what: str, tmp_path: Path
) -> None:
    make, said = IN_PLACE[what]
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    if name.startswith("_delta_log/") and name not in (COMMIT, CHECKPOINT):
        (tmp_path / COMMIT).write_text('{"add": {"path": "part-0.parquet"}}')
    make(file)
    with pytest.raises(FlinkishError, match=said) as caught:
        read(tmp_path)
    assert os.path.basename(name) in str(caught.value)


@pytest.mark.parametrize("what", [what for what in IN_PLACE if "hole" not in what])
@pytest.mark.parametrize(
    "name", ["part-0.parquet", ".part-0.parquet.crc", "ab/deletion.bin", f"_delta_log/.{0:020d}.json.crc"]
)
def test_a_table_with_a_pipe_or_a_device_is_never_given_to_spark(name: str, what: str, table: Path) -> None:
    (table / COMMIT).write_text('{"add": {"path": "part-0.parquet"}}')
    (table / "gone").symlink_to(table / "nowhere")
    check_log(str(table), None)
    (table / name).parent.mkdir(exist_ok=True)
    IN_PLACE[what][0](table / name)
    assert os.path.basename(name) in is_refused(table, IN_PLACE[what][1])


@pytest.mark.parametrize("what", IN_PLACE)
def test_counts_that_cannot_be_read_count_as_damaged(what: str, tmp_path: Path) -> None:
    IN_PLACE[what][0](tmp_path / "counter.json")
    (tmp_path / "chk-6").mkdir()
    directory = CheckpointDirectory(str(tmp_path))
    assert directory.next_id() == 7


def test_a_file_is_read_as_far_as_it_reached_when_it_was_opened_and_a_link_to_a_file_is_followed(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert storage_of("/").read(str(tmp_path / "link")) == b"content"
    with pytest.raises(IsADirectoryError):
        storage_of("/").read(str(tmp_path))


@pytest.mark.parametrize("kind", FileKind, ids=lambda kind: kind.name)
def test_a_file_of_the_largest_size_of_its_kind_is_read_and_a_longer_one_is_not(kind: FileKind) -> None:
    kind.check_size(kind.max_bytes)
    with pytest.raises(ValueError, match=f"it has {kind.max_bytes + 1:,} bytes, and {kind.called} has at most"):
        kind.check_size(kind.max_bytes + 1)


def test_a_manifest_of_many_states_and_splits_is_read(tmp_path: Path) -> None:
    ended = [f"/input/day=2026-01-01/part-{number:06d}.json" for number in range(100_000)]
    position = json.dumps({"complete": True, "ended": ended, "splits": []})
    write_manifest(str(tmp_path / "s"), Manifest("", "", 1, 0, sources={"s": position}, state=TableVersion("state")))
    assert Savepoint.open(str(tmp_path / "s")).manifest.sources["s"] == position


# ------------------------------------------------------------------------------------------------ actions of a log

#: A line of a log -> what is said of it
LINES: dict[str, str] = {
    '{"add": null}': "line 2: it\\['add'\\] is None, expected an object",
    '{"remove": null, "add": {"path": "a"}}': "line 2: it\\['remove'\\] is None, expected an object",
    '{"add": 7}': "line 2: it\\['add'\\] is 7, expected an object",
    '{"add": []}': "line 2: it\\['add'\\] is a list of 0, expected an object",
    '{"add": {}}': "line 2: it.add.path is missing",
    '{"add": {"path": 7}}': "line 2: it.add.path is 7, expected a text",
    '{"add": {"path": ["a"]}}': "line 2: it.add.path is a list of 1, expected a text",
    '{"add": {"path": "a", "deletionVector": 7}}': "line 2: it.add.deletionVector is 7, expected an object",
    '{"remove": {"path": null}}': "line 2: it.remove.path is None, expected a text",
    '{"metaData": {"configuration": []}}': "line 2: it.metaData.configuration is a list of 0, expected an object",
    '{"metaData": {"partitionColumns": {"a": 1}}}': "line 2: it.metaData.partitionColumns is an object of 1",
    '{"protocol": {"minWriterVersion": "2"}}': "line 2: it.protocol.minWriterVersion is '2', expected a whole number",
    '{"protocol": {"minWriterVersion": 2, "minReaderVersion": []}}': "line 2: it.protocol.minReaderVersion is a list",
    '{"txn": "a"}': "line 2: it\\['txn'\\] is 'a', expected an object",
    '"add"': "line 2: it is 'add', expected an object",
    "null": "line 2: it is None, expected an object",
    "[]": "line 2: it is a list of 0, expected an object",
    '{"add": {"path": "a"}} {}': "line 2: Extra data",
}


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize(
    "read",
    [
        lambda table: check_log(table, None),
        lambda table: DeltaLog(table).files_of_first_commit(),
        lambda table: CheckpointTable(None, table, lambda: None).actions(0),
        lambda table: FencingLog(table).claim(0),
    ],
    ids=["checked", "first commit", "checkpoints", "fencing"],
)
def test_an_action_of_another_shape_is_an_error_that_names_the_file_and_the_line(
    read: Callable[[str], Any], line: str, table: Path
) -> None:
    file = table / COMMIT
    file.write_text('{"txn": {"appId": "a", "version": 1}}\n' + line)
    with pytest.raises(FlinkishError, match=LINES[line]) as caught:
        read(str(table))
    assert str(file) in str(caught.value)
    assert described_table(str(table)) is None


@pytest.mark.parametrize("hint", ['{"version": 0, "v2Checkpoint": {"path": "/etc/x"}}', "[]", '{"version": 0} {}'])
def test_the_hint_to_the_last_checkpoint_names_no_files(hint: str, table: Path) -> None:
    (table / COMMIT).write_text('{"add": {"path": "part-0.parquet"}}')
    file = table / "_delta_log" / "_last_checkpoint"
    file.write_text('{"version": 0, "size": 1}')
    check_log(str(table), None)
    file.write_text(hint)
    is_refused(table, str(file))


# ------------------------------------------------------------------------------------------------ checkpoints of a log


def repeated(rows: int, size: int) -> pa.Array:
    """A text of a size in each of the rows, which Parquet stores once."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * size]))


def added(paths: pa.Array) -> pa.Table:
    return pa.table({"add": pa.StructArray.from_arrays([paths], ["path"])})


def parquet(table: pa.Table, **how: Any) -> bytes:
    content = io.BytesIO()
    pq.write_table(table, content, compression="zstd", store_schema=False, write_statistics=False, **how)
    return content.getvalue()


def tags(size: int) -> pa.Table:
    entries = pa.MapArray.from_arrays([0, 100_000], repeated(100_000, 5), repeated(100_000, size))
    return pa.table({"add": pa.StructArray.from_arrays([pa.array(["a.parquet"]), entries], ["path", "tags"])})


#: A checkpoint of a few bytes -> (its content, what is said of it)
BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "one text of 1 MB in 10,000 rows": (
        lambda: parquet(added(repeated(10_000, 1_000_000))),
        "its texts have more than",
    ),
    "the same in a column that nobody reads here": (
        lambda: parquet(added(pa.array(["a"] * 10_000)).append_column("txn", repeated(10_000, 1_000_000))),
        "its texts have more than",
    ),
    "one text of 1 MB in 100,000 entries of a row": (lambda: parquet(tags(1_000_000)), "its texts have more than"),
    "a page of 100 MB": (
        lambda: parquet(added(pa.array(["x" * 100_000_000])), use_dictionary=False),
        "it has a page of 100,000,010 bytes",
    ),
    "a dictionary of 100 MB": (lambda: parquet(added(repeated(1, 100_000_000))), "it has a page of 100,000,004 bytes"),
}


def test_a_checkpoint_that_expands_to_more_than_its_size_explains_is_refused(table: Path) -> None:
    file = table / CHECKPOINT
    for what, (content, said) in BOMBS.items():
        file.write_bytes(content())
        assert file.stat().st_size < 20_000, what
        allocated = pa.total_allocated_bytes()
        for read in (
            lambda: check_log(str(table), None),
            lambda: DeltaLog(str(table)).protocol(),
        ):
            with pytest.raises(SavepointError, match=f"{file.name} is not what Delta writes .*{said}"):
                read()
        assert described_table(str(table)) is None
        assert pa.total_allocated_bytes() - allocated < 10_000_000, what


def test_texts_that_share_their_beginnings_count_as_what_they_are(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parquet stores each of them as the number of bytes that it shares with the one before it."""
    how = {"use_dictionary": False, "column_encoding": {"add.path": "DELTA_BYTE_ARRAY"}}
    (table / CHECKPOINT).write_bytes(parquet(added(pa.array(["x" * 10_000] * 1_000)), **how))
    check_log(str(table), None)
    monkeypatch.setattr(delta_checkpoints, "TEXT_BYTES_MAX", 9_000_000)
    is_refused(table, "its texts have more than 9,000,000 bytes")


def test_a_checkpoint_has_a_limit_of_values(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = pa.array([f"part-{number}.parquet" for number in range(1_000)])
    for version in ("1.0", "2.0"):
        (table / CHECKPOINT).write_bytes(parquet(added(paths), data_page_version=version))
        check_log(str(table), None)
        with monkeypatch.context() as patch:
            patch.setattr(delta_checkpoints, "VALUES_MAX", 999)
            is_refused(table, "1,000 values in a column; expected at most")


@pytest.mark.parametrize("name", ["ADD", "Sidecar"])
def test_a_column_whose_name_only_spark_would_recognise_is_refused(name: str, table: Path) -> None:
    hidden = pa.table({name: pa.array([{"path": "/etc/x.parquet"}])})
    (table / CHECKPOINT).write_bytes(parquet(hidden))
    is_refused(table, f"it has a column '{name}'")
    (table / CHECKPOINT).write_bytes(parquet(pa.table({"add": pa.array([{"path": "a", "PATH": "/etc/x"}])})))
    is_refused(table, "it has two columns of one name")


def test_a_checkpoint_with_flipped_bytes_is_read_or_refused(table: Path) -> None:
    good = parquet(added(pa.array([f"part-{number}.parquet" for number in range(50)])))
    for place in range(4, len(good)):
        (table / CHECKPOINT).write_bytes(good[:place] + bytes([good[place] ^ 0x15]) + good[place + 1 :])
        try:
            check_log(str(table), None)
        except SavepointError as error:
            assert CHECKPOINT in str(error)
