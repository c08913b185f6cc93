"""What a job keeps in its directory, besides the Spark query's own checkpoint: who owns it and what wrote it.

    <job dir>/spark/            checkpoint of the streaming query
    <job dir>/query-location.json  where that is instead, once the query has been replaced by another one
    <job dir>/job.json          the stateful structure of the program that wrote it
    <job dir>/owner.json        the driver that owns it (fencing)
    <job dir>/end-of-input.json from which epoch on the sources' end is announced
    <job dir>/finished.json     the job has ended
    <job dir>/restore/          rows of the savepoint that the job began with

Files are written whole and renamed. Any file system that pyarrow or the local machine knows.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import socket
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flinkish.core.source import GeneratedSource
from flinkish.errors import FencedError, IncompatibleJobError, OperationError
from flinkish.runtime.deployment import JobDescriptor, VertexDescriptor

#: An owner on another host that has not renewed its claim for so long is taken for dead.
OWNER_TIMEOUT_S = 60

#: Version of the files in the directory.
FORMAT_VERSION = 1


def local_path(path: str) -> str | None:
    """The path without scheme when it is on the local file system, else None."""
    if path.startswith("file:"):
        return "/" + path[len("file:") :].lstrip("/")
    return None if "://" in path else path


@dataclass(frozen=True)
class QueryLocation:
    """The checkpoint directory of a streaming query. Spark numbers its batches from 0; the job's epochs go on from
    ``first_epoch``, so that a number stands for one epoch only, whatever query ran it: sinks know epochs by it."""

    path: str
    first_epoch: int


class JobDirectory:
    """The files of one job."""

    def __init__(self, path: str, token: str | None = None) -> None:
        """``token``: of the owner on whose behalf another process works here; by default a new one."""
        from pyarrow import fs

        local = local_path(path)
        self.is_local = local is not None
        if local is not None:
            local = os.path.abspath(local)
            try:
                os.makedirs(local, exist_ok=True)
            except OSError as error:
                raise OperationError(
                    f"the job directory cannot be created: {error}",
                    where=path,
                    hint="check the path and its permissions",
                ) from error
            self.path = local
            self._fs: Any = fs.LocalFileSystem()
            self._root = local
        else:
            self.path = path
            self._fs, self._root = fs.FileSystem.from_uri(path)
            self._fs.create_dir(self._root, recursive=True)
        self._token = token or uuid.uuid4().hex

    def query_location(self) -> QueryLocation:
        """Where the query keeps its own checkpoint."""
        kept = self.read("query-location.json") or {"name": "spark", "first_epoch": 0}
        return QueryLocation(posixpath.join(self.path, str(kept["name"])), int(kept["first_epoch"]))

    def move_query(self, name: str, first_epoch: int) -> None:
        """From now on the query is another one, below ``name``; its epochs are numbered from ``first_epoch`` on."""
        self.write("query-location.json", {"name": name, "first_epoch": first_epoch})

    @property
    def restore_rows(self) -> str:
        """Directory of the rows of a savepoint."""
        return posixpath.join(self.path, "restore")

    # ------------------------------------------------------------------ files

    def _file(self, name: str) -> str:
        return posixpath.join(self._root, name)

    def read(self, name: str) -> dict[str, Any] | None:
        """A JSON file; None when there is none."""
        try:
            with self._fs.open_input_stream(self._file(name)) as stream:
                data = stream.read()
        except FileNotFoundError:
            return None
        try:
            value = json.loads(data)
        except ValueError as error:
            raise OperationError(
                f"the file {name} cannot be read: {error}",
                where=f"job directory {self.path}",
                hint="restore the file from a copy, or start the job in a new directory from a savepoint",
            ) from error
        return dict(value)

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Write a JSON file, whole or not at all."""
        temporary = self._file(f".{name}.{self._token}")
        with self._fs.open_output_stream(temporary) as stream:
            stream.write(json.dumps({"version": FORMAT_VERSION, **value}, indent=1).encode())
        self._fs.move(temporary, self._file(name))

    def delete(self, name: str) -> None:
        """Delete a file if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.delete_file(self._file(name))

    def names(self, prefix: str, suffix: str) -> list[str]:
        """The names of the files that begin and end so, sorted."""
        from pyarrow import fs

        found = (info.base_name for info in self._fs.get_file_info(fs.FileSelector(self._root)))
        return sorted(name for name in found if name.startswith(prefix) and name.endswith(suffix))

    # ------------------------------------------------------------------ ownership

    @property
    def token(self) -> str:
        """What tells this owner of the directory from all others."""
        return self._token

    def claim(self, job_name: str) -> None:
        """Become the one driver of this directory. FencedError when another one is alive."""
        owner = self.read("owner.json")
        if owner is not None and self._alive(owner):
            raise FencedError(
                f"another driver (process {owner['pid']} on {owner['host']}) runs a job in this directory",
                where=f"job '{job_name}', directory {self.path}",
                expected="one driver per job directory",
                hint="stop the other driver, or give this job a directory of its own (flinkish.job.dir)",
            )
        self._write_owner()
        time.sleep(0.02)
        self.check_owner(job_name)

    def _write_owner(self) -> None:
        self.write(
            "owner.json",
            {
                "token": self._token,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "started": _process_start(os.getpid()),
                "renewed_s": time.time(),
            },
        )

    def has_living_owner(self) -> bool:
        """Whether a driver runs a job here, as far as can be seen from this host."""
        owner = self.read("owner.json")
        return owner is not None and self._alive(owner)

    @staticmethod
    def _alive(owner: dict[str, Any]) -> bool:
        if owner.get("released"):
            return False
        if owner["host"] != socket.gethostname():
            return time.time() - float(owner["renewed_s"]) < OWNER_TIMEOUT_S
        return _process_start(int(owner["pid"])) == owner.get("started") is not None

    def check_owner(self, job_name: str) -> None:
        """FencedError when somebody else has claimed the directory since. Called before each commit."""
        owner = self.read("owner.json")
        if owner is not None and owner["token"] != self._token:
            raise FencedError(
                f"the driver {owner['pid']} on {owner['host']} has taken over this job directory",
                where=f"job '{job_name}', directory {self.path}",
                hint="nothing to do if that was intended; this driver stops",
            )

    def renew(self, job_name: str) -> None:
        """Show other hosts that this driver lives. FencedError when the directory is no longer its own."""
        self.check_owner(job_name)
        self._write_owner()

    def release(self) -> None:
        """Give the directory back."""
        owner = self.read("owner.json")
        if owner is not None and owner["token"] == self._token:
            self.write("owner.json", {**owner, "released": True})

    # ------------------------------------------------------------------ what wrote it

    def check_compatible(self, job: JobDescriptor, partitions: int) -> bool:
        """Compare the program's stateful structure with the remembered one; True when there is none yet.
        IncompatibleJobError says what differs."""
        now = describe_structure(job, partitions)
        before = self.read("job.json")
        if before is None:
            return True
        differences = _differences(before["structure"], now)
        if differences:
            raise IncompatibleJobError(
                "the program differs from the one that wrote this job directory: " + "; ".join(differences),
                where=f"job '{job.name}', directory {self.path}",
                expected="the same stateful operators, levels, parallelism and max parallelism as before",
                hint="take a savepoint with the old program and start the new one from it (-s) in a new directory, "
                "or undo the change",
            )
        return False

    def remember_structure(self, job: JobDescriptor, partitions: int) -> None:
        """From now on only programs like this one may run here."""
        if self.read("job.json") is None:
            structure = describe_structure(job, partitions)
            self.write("job.json", {"job_id": job.job_id, "name": job.name, "structure": structure})

    def job_id(self) -> str | None:
        """The id of the job that wrote the directory."""
        job = self.read("job.json")
        return None if job is None else str(job["job_id"])


def describe_structure(job: JobDescriptor, partitions: int) -> dict[str, Any]:
    """What must stay the same for Spark's state to be found again."""
    return {
        "partitions": partitions,
        "sources": [_source_of(vertex) for vertex in job.vertices if vertex.level == 0],
        "vertices": [
            {
                "id": vertex.id,
                "uid": vertex.head.uid,
                "level": vertex.level,
                "parallelism": vertex.parallelism,
                "max_parallelism": vertex.max_parallelism,
                "keyed": vertex.keyed,
            }
            for vertex in job.vertices
            if vertex.level > 0
        ],
    }


def _source_of(vertex: VertexDescriptor) -> str:
    """The splits of a generated source are numbered: with other ones its ticks would mean other records."""
    if isinstance(vertex.source, GeneratedSource):
        return f"{vertex.head.uid} ({vertex.source.splits} splits)"
    return vertex.head.uid


def _differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    found: list[str] = []
    old = {vertex["uid"]: vertex for vertex in before["vertices"]}
    new = {vertex["uid"]: vertex for vertex in now["vertices"]}
    found.extend(f"operator '{uid}' is gone" for uid in old if uid not in new)
    found.extend(f"operator '{uid}' is new" for uid in new if uid not in old)
    for uid in old:
        if uid in new:
            found.extend(
                f"{key} of '{uid}' was {old[uid][key]} and is {new[uid][key]}"
                for key in old[uid]
                if old[uid][key] != new[uid][key]
            )
    if before["sources"] != now["sources"]:
        found.append(f"the sources were {before['sources']} and are {now['sources']}")
    if not found and before["partitions"] != now["partitions"]:
        found.append(f"the number of subtasks was {before['partitions']} and is {now['partitions']}")
    return found


def _process_start(pid: int) -> str | None:
    """When a process of this host was started, so that a reused pid is not mistaken for it; None: there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return _process_exists(pid)
    return None if fields[0] == "Z" else fields[19]


def _process_exists(pid: int) -> str | None:
    """Without /proc all that can be told is whether the pid is in use."""
    if os.path.isdir("/proc/self"):
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return "unknown"
    return "unknown"
