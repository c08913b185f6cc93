"""Files of state on storage: what is written, mapped, fetched, checked, and refused."""

from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

from flinkish.errors import CorruptStateError, IncompatibleJobError, MissingFileError, OperationError
from flinkish.runtime.exchange.hashes import group_hashes
from flinkish.runtime.state.files import directory as directory_module
from flinkish.runtime.state.files import rows as file_format
from flinkish.runtime.state.files.compaction import StateFiles
from flinkish.runtime.state.files.directory import OpenFiles, StateDirectory
from flinkish.runtime.state.files.references import FileReference, FileSet
from flinkish.runtime.state.files.rows import Rows, RowsBuilder, sort_order
from flinkish.runtime.task.tasks import StandbyTask
from flinkish.storage.paths import is_local
from flinkish.storage.stores import HdfsStorage, Storage, storage_of


def some_rows(keys: list[Any], value: bytes = b"value") -> Rows:
    builder = RowsBuilder()
    hashes = group_hashes("count", None, keys)
    builder.put("count", hashes, [pickle.dumps(key) for key in keys], [value] * len(keys))
    rows = builder.build()
    return rows.take(sort_order(rows))


def values_of(rows: Rows) -> list[bytes]:
    return list(rows.value.to_pylist())


def fresh(path: Path | str, **arguments: Any) -> StateDirectory:
    """As another process sees it."""
    return StateDirectory(str(path), open_files=OpenFiles(), **arguments)


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A directory that is not on the local disk, as far as this package can see: a folder as another file system."""
    (tmp_path / "remote").mkdir()
    folder = fs.SubTreeFileSystem(str(tmp_path / "remote"), fs.LocalFileSystem())

    def storage(path: str) -> Storage:
        return storage_of(path) if is_local(path) else HdfsStorage("hdfs://host/", folder, None)

    monkeypatch.setattr(directory_module, "storage_of", storage)
    return "hdfs://host/store"


def test_what_was_written_is_read_by_another_process(tmp_path: Path) -> None:
    reference = StateDirectory(str(tmp_path)).write(some_rows([1, 2, 3]), 17)
    assert reference.name.startswith("17-")
    assert values_of(fresh(tmp_path).open(reference)) == [b"value"] * 3
    assert fresh(tmp_path).names() == [reference.name]
    content = (tmp_path / reference.name).read_bytes()
    assert (reference.size_bytes, reference.sha256) == (len(content), hashlib.sha256(content).digest())


def test_a_plain_value_state_costs_its_hash_its_bytes_and_their_offsets(tmp_path: Path) -> None:
    rows = some_rows(list(range(10_000)))
    reference = StateDirectory(str(tmp_path)).write(rows, 1)
    content = sum(map(len, rows.id.to_pylist())) + sum(map(len, values_of(rows)))
    assert reference.size_bytes < content + 10_000 * (8 + 4 + 4) + 2_000


def test_a_view_of_rows_is_written_alone(tmp_path: Path) -> None:
    directory = StateDirectory(str(tmp_path))
    whole = directory.write(some_rows(list(range(10_000)), bytes(100)), 1)
    part = directory.write(directory.open(whole).slice(5_000, 5_010), 2)
    assert part.size_bytes < 5_000
    assert len(directory.open(part)) == 10


def test_a_missing_file_and_a_damaged_one_are_told_apart_and_named(tmp_path: Path) -> None:
    reference = StateDirectory(str(tmp_path)).write(some_rows([1, 2, 3]), 1)
    path = tmp_path / reference.name
    content = path.read_bytes()
    for damage in (content[:-1], content + b"x", content[:200] + b"?" + content[201:], b""):
        path.write_bytes(damage)
        with pytest.raises(CorruptStateError, match="not what was written") as caught:
            fresh(tmp_path).open(reference)
        assert caught.value.file == str(path)
        assert not isinstance(caught.value, MissingFileError)
    path.unlink()
    with pytest.raises(MissingFileError, match="is missing") as missing:
        fresh(tmp_path).open(reference)
    assert missing.value.file == str(path)
    assert pickle.loads(pickle.dumps(missing.value)).file == str(path)


def test_a_file_with_the_right_digest_that_is_no_file_of_state_is_damage(tmp_path: Path) -> None:
    (tmp_path / "1-ab.arrow").write_bytes(b"something else")
    digest = hashlib.sha256(b"something else").digest()
    reference = FileReference("1-ab.arrow", 1, 14, digest, (0, 0), (1, 0))
    with pytest.raises(CorruptStateError, match="no file of state"):
        fresh(tmp_path).open(reference)


def test_a_file_of_another_format_version_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_format, "FORMAT_VERSION", 2)
    reference = StateDirectory(str(tmp_path)).write(some_rows([1]), 1)
    monkeypatch.undo()
    with pytest.raises(IncompatibleJobError, match="format version 2.*expected format version 1"):
        fresh(tmp_path).open(reference)
    with pytest.raises(IncompatibleJobError, match="format version 9"):
        FileSet.decode((9, (), ()))
    with pytest.raises(CorruptStateError, match="cannot be decoded"):
        FileSet.decode("something else")


def test_the_digest_is_checked_once_in_a_process_and_not_for_what_it_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_files = OpenFiles()
    writer = StateDirectory(str(tmp_path), open_files=open_files)
    reference = writer.write(some_rows([1]), 1)
    reader = fresh(tmp_path)
    reader.open(reference)

    def no_digest(_: Any) -> Any:
        raise AssertionError("the digest was computed once more")

    monkeypatch.setattr(directory_module.hashlib, "sha256", no_digest)
    writer.open(reference)
    reader.open(reference)
    with pytest.raises(AssertionError):
        fresh(tmp_path).open(reference)


def test_open_files_are_bounded_and_deleted_ones_are_let_go(tmp_path: Path) -> None:
    open_files = OpenFiles(max_files=2)
    directory = StateDirectory(str(tmp_path), open_files=open_files)
    references = [directory.write(some_rows([key]), 1) for key in range(4)]
    for reference in references:
        directory.open(reference)
        assert len(open_files) <= 2
    directory.delete([references[3].name])
    assert len(open_files) == 1
    assert directory.names() == sorted(reference.name for reference in references[:3])
    with pytest.raises(MissingFileError):
        directory.open(references[3])
    directory.delete([references[3].name])


def test_files_that_cannot_be_mapped_are_read_and_few_of_them_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot_map(_: str) -> Any:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(directory_module.pa, "memory_map", cannot_map)
    writer = fresh(tmp_path)
    references = [writer.write(some_rows([key]), 1) for key in range(5)]
    open_files = OpenFiles(max_read_bytes=2 * references[0].size_bytes)
    directory = StateDirectory(str(tmp_path), open_files=open_files)
    for _ in range(2):
        for reference in references:
            assert values_of(directory.open(reference)) == [b"value"]
            assert len(open_files) <= 2
    (tmp_path / references[0].name).unlink()
    with pytest.raises(MissingFileError):
        fresh(tmp_path).open(references[0])


_LIMITED = """
import pickle, resource, sys
from pathlib import Path
import pyarrow.compute as pc
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.files.references import FileReference

folder, references = pickle.loads(sys.stdin.buffer.read())
directory = StateDirectory(folder)
pc.binary_length(directory.open(references[0]).value)
in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = in_use + 3 * references[0].size_bytes
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(sum(pc.binary_length(directory.open(reference).value)[0].as_py() for reference in references * 2))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit and its measure are Linux's")
def test_a_process_whose_address_space_is_limited_reads_all_files(tmp_path: Path) -> None:
    directory, size = StateDirectory(str(tmp_path)), 16_000_000
    references = [directory.write(some_rows([key], bytes(size)), 1) for key in range(8)]
    given = pickle.dumps((str(tmp_path), references))
    done = subprocess.run([sys.executable, "-c", _LIMITED], input=given, capture_output=True, check=False)
    assert done.stdout.split() == [b"%d" % (16 * size)], done.stderr.decode()


def test_files_on_other_storage_are_fetched_once_and_mapped(remote: str, tmp_path: Path) -> None:
    reference = StateDirectory(remote).write(some_rows([1, 2]), 1)
    cache = tmp_path / "cache"
    directory = fresh(remote, cache_path=str(cache))
    assert not directory.fetched(reference)
    assert directory.fetch(reference) == reference.size_bytes
    assert directory.fetched(reference)
    (tmp_path / "remote" / "store" / reference.name).unlink()
    assert values_of(directory.open(reference)) == [b"value"] * 2
    assert values_of(fresh(remote, cache_path=str(cache)).open(reference)) == [b"value"] * 2
    directory.release([reference.name])
    assert not list(cache.iterdir())
    with pytest.raises(MissingFileError) as caught:
        directory.open(reference)
    assert caught.value.file == f"{remote}/{reference.name}"


@pytest.mark.parametrize("writer", ["the task", "a standby task"])
def test_copies_that_a_killed_worker_left_unfinished_go_with_their_files(
    remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    cache = tmp_path / "cache"
    directory = fresh(remote, cache_path=str(cache))
    with monkeypatch.context() as killed:
        killed.setattr("os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        killed.setattr("os.unlink", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            directory.write(some_rows([1]), 1)
    (name,) = directory.names()
    (unfinished,) = cache.iterdir()
    # a live worker may be writing it
    update(writer, directory)
    assert unfinished.exists()
    directory.delete([name])
    update(writer, directory)
    assert not list(cache.iterdir())


def update(writer: str, directory: StateDirectory) -> None:
    if writer == "the task":
        directory.release_stale(directory.names())
    else:
        StandbyTask((1, 0), "standby", directory).update(0)


def test_a_damaged_copy_is_fetched_again_and_a_damaged_original_is_refused(remote: str, tmp_path: Path) -> None:
    reference = StateDirectory(remote).write(some_rows([1, 2]), 1)
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / reference.name).write_bytes(b"x" * reference.size_bytes)
    assert values_of(fresh(remote, cache_path=str(cache)).open(reference)) == [b"value"] * 2
    (tmp_path / "remote" / "store" / reference.name).write_bytes(b"x" * reference.size_bytes)
    (cache / reference.name).unlink()
    for cache_path in (str(cache), None):
        with pytest.raises(CorruptStateError, match="not what was written") as caught:
            fresh(remote, cache_path=cache_path).open(reference)
        assert caught.value.file == f"{remote}/{reference.name}"


def test_files_on_other_storage_can_be_read_without_a_folder_for_copies(remote: str) -> None:
    reference = StateDirectory(remote).write(some_rows([1, 2]), 1)
    assert values_of(fresh(remote).open(reference)) == [b"value"] * 2


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    with pytest.raises(OperationError, match="cannot write"):
        StateDirectory(str(blocked / "state")).write(some_rows([1]), 1)
    assert StateDirectory(str(tmp_path / "absent")).names() == []


def test_the_content_of_a_file_does_not_depend_on_how_its_rows_came(tmp_path: Path) -> None:
    files = StateFiles(StateDirectory(str(tmp_path)))
    there = files.add(FileSet(), some_rows([1, 2, 3]), 1)
    back = files.add(FileSet(), some_rows([3, 2, 1]), 1)
    assert [file.sha256 for file in there.files] == [file.sha256 for file in back.files]
    assert there.names != back.names


def test_bytes_of_both_kinds_of_offsets_are_one_column() -> None:
    from flinkish.runtime.state.files.rows import concat

    rows = some_rows([1])
    buffer = file_format.encode(rows)
    both = concat([rows, file_format.decode(buffer, "")])
    assert both.value.to_pylist() == [b"value", b"value"]
    assert pa.types.is_large_binary(both.value.type)
