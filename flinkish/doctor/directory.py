"""Tries out a job directory from this process: whatever a driver or a task does there."""

from __future__ import annotations

import posixpath
import time
import uuid
from collections.abc import Callable
from contextlib import suppress

from flinkish.doctor.findings import Trial
from flinkish.errors import FlinkishError
from flinkish.storage.paths import is_local
from flinkish.storage.stores import Storage, storage_of


def trial_folder(job_dir: str) -> str:
    """A new folder in a job directory; a driver deletes it if this process does not come to it."""
    return posixpath.join(job_dir, f"probe-{int(time.time())}-{uuid.uuid4().hex}")


def tried(folder: str, exclusively: bool) -> list[Trial]:
    """What comes of each operation in a folder that is made for it, and deleted. The first that fails is the last.

    Args:
        folder: the folder (`trial_folder`).
        exclusively: whether files are created exclusively too, which on object stores only drivers can.
    """
    trials: list[Trial] = []
    try:
        storage = storage_of(folder)
    except (OSError, FlinkishError) as error:
        return [Trial("reach the storage", 0.0, _message(error))]
    one, other = posixpath.join(folder, "one"), posixpath.join(folder, "other")
    steps: list[tuple[str, Callable[[], object]]] = [
        ("write", lambda: storage.replace(one, b"flinkish", durable=True)),
        ("read", lambda: _same(storage.read(one))),
        ("list", lambda: _listed(storage, folder)),
        ("fsync", lambda: storage.synchronise(folder)),
        ("rename", lambda: storage.move(one, other)),
        *([("link", lambda: _create_once(storage, posixpath.join(folder, "link")))] if exclusively else []),
        ("delete", lambda: storage.delete(other)),
    ]
    try:
        for operation, step in steps:
            began = time.perf_counter()
            problem = ""
            try:
                step()
            except (OSError, ValueError, FlinkishError) as error:
                problem = _message(error)
            trials.append(Trial(operation, time.perf_counter() - began, problem))
            if problem:
                break
    finally:
        with suppress(OSError, FlinkishError):
            storage.delete_directory(folder)
    return trials


def storage_clock(folder: str) -> tuple[float, float, float] | None:
    """What the clock of the storage says of a file, and this process's clock before and after it was written; None: the
    storage does not tell."""
    storage, path = storage_of(folder), posixpath.join(folder, "clock")
    try:
        before = time.time()
        storage.write(path, b"")
        after = time.time()
        modified = storage.modified_s(path)
        return None if modified is None else (modified, before, after)
    finally:
        with suppress(OSError, FlinkishError):
            storage.delete_directory(folder)


def _same(content: bytes) -> None:
    if content != b"flinkish":
        raise ValueError("something else is there than was written")


def _listed(storage: Storage, folder: str) -> None:
    if [entry.name for entry in storage.list(folder)] != ["one"]:
        raise ValueError("the file that was written is not in the list")


def _create_once(storage: Storage, path: str) -> None:
    """A second process must not be able to create the file: on it rests that one driver owns a job."""
    storage.create(path, uuid.uuid4().bytes, only_by_link=is_local(path))
    try:
        storage.create(path, uuid.uuid4().bytes, only_by_link=is_local(path))
    except FileExistsError:
        return
    raise ValueError("two processes can create the same file")


def _message(error: Exception) -> str:
    return error.what if isinstance(error, FlinkishError) else f"{type(error).__name__}: {error}"
