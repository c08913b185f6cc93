"""What every kind of storage promises, as functions of an empty directory: the same for all of them."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from contextlib import nullcontext

import pytest

from flinkish.storage.paths import FileKind
from flinkish.storage.stores import storage_of

Check = Callable[[str], None]


def what_was_written_is_read(directory: str) -> None:
    path, storage = f"{directory}/a b/100%/x", storage_of(directory)
    for content in (b"old content", b"new", b""):
        storage.write(path, content)
        assert storage.read(path) == content
    storage.write(path, b"0123456789")
    assert [storage.read_slice(path, *part) for part in ((2, 3), (8, 5), (20, 5))] == [b"234", b"89", b""]


def a_file_that_is_too_large_for_its_kind_is_refused(directory: str) -> None:
    path, storage = f"{directory}/counter.json", storage_of(directory)
    for surplus in (0, 1):
        storage.write(path, b"0" * (FileKind.COUNTER.max_bytes + surplus))
        with nullcontext() if not surplus else pytest.raises(ValueError, match="it has 1,048,577 bytes, and a file of"):
            assert len(storage.read(path, FileKind.COUNTER)) == FileKind.COUNTER.max_bytes


def a_missing_file_is_said_to_be_missing(directory: str) -> None:
    storage, path = storage_of(directory), f"{directory}/none"
    with pytest.raises(FileNotFoundError):
        storage.read(path)
    with pytest.raises(FileNotFoundError):
        storage.read_slice(path, 0, 1)
    assert not storage.exists(path)
    assert not storage.is_directory(path)
    assert storage.list(path) == []
    storage.delete(path)
    storage.delete_directory(path)


def a_file_is_replaced_whole(directory: str) -> None:
    storage, path = storage_of(directory), f"{directory}/sub/owner.json"
    for durable in (False, True):
        for content in (b"a longer content", b"b"):
            storage.replace(path, content, durable=durable)
            assert storage.read(path) == content
    assert [entry.name for entry in storage.list(f"{directory}/sub")] == ["owner.json"]


def of_several_creators_one_succeeds(directory: str) -> None:
    storage, path = storage_of(directory), f"{directory}/prepared/7.json"
    created, refused = list[bytes](), list[bytes]()

    def create(content: bytes) -> None:
        try:
            storage.create(path, content)
            created.append(content)
        except FileExistsError:
            refused.append(content)

    creators = [threading.Thread(target=create, args=(b"%d" % number,)) for number in range(5)]
    for creator in creators:
        creator.start()
    for creator in creators:
        creator.join()
    assert (len(created), len(refused)) == (1, 4)
    assert storage.read(path) == created[0]
    with pytest.raises(FileExistsError):
        storage.create(path, b"later")
    assert [entry.name for entry in storage.list(f"{directory}/prepared")] == ["7.json"]


def an_opened_file_is_there_when_it_is_closed(directory: str) -> None:
    storage, path = storage_of(directory), f"{directory}/epoch/part"
    file = storage.open(path)
    for chunk in (b"one ", b"two"):
        file.write(chunk)
    file.close()
    file.close()
    assert storage.read(path) == b"one two"


def a_directory_is_listed(directory: str) -> None:
    storage = storage_of(directory)
    for name, content in (("a", b"12"), (".hidden", b""), ("sub/b", b"3"), ("sub/deep/c", b"4567")):
        storage.write(f"{directory}/{name}", content)
    flat = sorted(storage.list(directory))
    assert [(entry.name, entry.path, entry.is_file, entry.is_directory, entry.size_bytes) for entry in flat] == [
        (".hidden", f"{directory}/.hidden", True, False, 0),
        ("a", f"{directory}/a", True, False, 2),
        ("sub", f"{directory}/sub", False, True, 0),
    ]
    files = sorted(entry.name for entry in storage.list(directory, recursive=True) if entry.is_file)
    assert files == [".hidden", "a", "sub/b", "sub/deep/c"]
    assert storage.is_directory(f"{directory}/sub") and not storage.is_directory(f"{directory}/a")
    assert storage.exists(f"{directory}/a") and not storage.exists(f"{directory}/sub")


def files_and_directories_are_deleted(directory: str) -> None:
    storage = storage_of(directory)
    for name in ("a", "b", "c", "sub/d", "sub/deep/e"):
        storage.write(f"{directory}/{name}", b"x")
    storage.delete(f"{directory}/a")
    storage.delete_many([f"{directory}/b", f"{directory}/none"])
    storage.delete_directory(f"{directory}/sub")
    assert [entry.path for entry in storage.list(directory, recursive=True)] == [f"{directory}/c"]


def moves_replace_files_and_take_directories_along(directory: str) -> None:
    storage = storage_of(directory)
    for name in ("new", "old", "sub/x", "sub/deep/y"):
        storage.write(f"{directory}/{name}", name.encode())
    storage.move(f"{directory}/new", f"{directory}/old")
    assert storage.read(f"{directory}/old") == b"new"
    storage.move(f"{directory}/sub", f"{directory}/moved")
    assert storage.read(f"{directory}/moved/deep/y") == b"sub/deep/y"
    files = sorted(entry.name for entry in storage.list(directory, recursive=True) if entry.is_file)
    assert files == ["moved/deep/y", "moved/x", "old"]


def storage_travels_to_other_processes_without_its_keys(directory: str) -> None:
    storage = storage_of(directory)
    pickled = pickle.dumps(storage)
    assert b"not-a-secret" not in pickled
    pickle.loads(pickled).write(f"{directory}/x", b"1")
    assert storage.read(f"{directory}/x") == b"1"


CONTRACT: tuple[Check, ...] = (
    what_was_written_is_read,
    a_file_that_is_too_large_for_its_kind_is_refused,
    a_missing_file_is_said_to_be_missing,
    a_file_is_replaced_whole,
    of_several_creators_one_succeeds,
    an_opened_file_is_there_when_it_is_closed,
    a_directory_is_listed,
    files_and_directories_are_deleted,
    moves_replace_files_and_take_directories_along,
    storage_travels_to_other_processes_without_its_keys,
)
