"""Jobs that have ended, out of their archives, as Flink's history server shows them.

Rule: an archive is read when it is new, and of each no more is kept than its line in the list of jobs; whole ones are
read again for who asks, of which the last few are kept. One that cannot be read is logged once and left out.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from flinkish.errors import message_of
from flinkish.session.drivers import is_job
from flinkish.storage.paths import FileKind
from flinkish.storage.stores import Entry, storage_of

_LOG = logging.getLogger("flinkish.HistoryServer")

Json = dict[str, Any]

#: The most archives that are listed, and how many are kept whole.
MOST, _WHOLE = 10_000, 4
_NAME = re.compile("[0-9a-f]{32}")
#: Routes of a job that has ended of which an archive has nothing.
_EMPTY = re.compile(r"/jobs/[0-9a-f]{32}(/vertices/[0-9a-f]{32}(/subtasks(/[0-9]+)?)?)?/(metrics|watermarks)")


class Archives:
    """The archives of some directories. Any thread may use them.

    Args:
        directories: the directories; those that do not exist are empty.
    """

    def __init__(self, directories: Sequence[str]) -> None:
        self._directories = directories
        self._lock = threading.Lock()
        #: path of an archive -> its size and time, and the job's line; None: it cannot be read
        self._known: dict[str, tuple[tuple[int, int], Json | None]] = {}
        self._whole: OrderedDict[str, dict[str, str]] = OrderedDict()
        #: id of a job -> the path of its archive
        self._paths: dict[str, str] = {}

    def refresh(self) -> tuple[Json, ...]:
        """The jobs as ``/jobs/overview`` has them, after a look for new archives."""
        with self._lock:
            found: dict[str, tuple[tuple[int, int], Json | None]] = {}
            for entry in self._entries():
                known, looks = self._known.get(entry.path), (entry.size_bytes, entry.modified_ns)
                if known is None or known[0] != looks:
                    self._whole.pop(entry.path, None)
                    known = looks, self._line(entry.path)
                found[entry.path] = known
            self._known = found
            lines = {path: line for path, (_, line) in found.items() if line is not None}
            self._paths = {line["jid"]: path for path, line in lines.items()}
            return tuple(lines.values())

    def _entries(self) -> list[Entry]:
        found: list[Entry] = []
        for directory in self._directories:
            try:
                entries = storage_of(directory).list(directory)
            except Exception as error:
                _LOG.debug("the archives in %s cannot be listed: %s", directory, error)
                continue
            found += [one for one in entries if one.is_file and _NAME.fullmatch(one.name)]
        return found[:MOST]

    def _line(self, path: str) -> Json | None:
        try:
            (line,) = json.loads(self._read(path)["/jobs/overview"])["jobs"]
            if not is_job(line) or line["jid"] != path.rpartition("/")[2]:
                raise ValueError("it does not tell of the job of its name")
        except Exception as error:
            _LOG.warning("the archive %s cannot be read: %s", path, message_of(error))
            return None
        found: Json = line
        return found

    def _read(self, path: str) -> dict[str, str]:
        whole = self._whole.get(path)
        if whole is None:
            content = json.loads(storage_of(path).read(path, FileKind.MANIFEST))
            whole = {str(one["path"]): str(one["json"]) for one in content["archive"]}
            self._whole[path] = whole
            while len(self._whole) > _WHOLE:
                self._whole.popitem(last=False)
        self._whole.move_to_end(path)
        return whole

    def answer(self, job_id: str, path: str) -> str | None:
        """The JSON that is the answer to a path of a job; None: its archive has nothing of it."""
        with self._lock:
            archive = self._paths.get(job_id)
            try:
                found = None if archive is None else self._read(archive).get(path)
            except Exception as error:
                _LOG.warning("the archive %s cannot be read: %s", archive, message_of(error))
                return None
        return "[]" if found is None and archive is not None and _EMPTY.fullmatch(path) else found
