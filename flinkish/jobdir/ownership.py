"""Makes a driver the owner of a job directory that other drivers may know, and shows them that it is alive.

Rule: first the claim, then anything else. Whatever the predecessor begins after the claim is refused by its own checks;
what it was writing at that moment goes to a place that nobody reads any more, because the query is moved away from it
(`move_query_away`) unless the predecessor is known to have ended.

Once it owns the directory, a driver deletes what drivers and commands that were killed have left there.
"""

from __future__ import annotations

import json
import logging
import posixpath
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

from flinkish.errors import FencedError, FlinkishError, OperationError
from flinkish.jobdir.checks import check_release
from flinkish.jobdir.connect_server import EpochsWait
from flinkish.jobdir.directory import JobDirectory, QueryLocation
from flinkish.jobdir.fencing import RENEW_S, SILENCE_S, Claim, Liveness, claim, leaves_nothing_behind
from flinkish.jobdir.layout import QUERY_NAME, Answer, Owner, QueryFile, Restored, RestoredByFallback, StoredRequest
from flinkish.jobdir.probe import is_abandoned
from flinkish.spark.session import is_remote
from flinkish.storage.files import child_names, delete_directory, delete_file, is_directory
from flinkish.storage.stores import Entry, Storage

_SUFFIX = re.compile(r"-owner-\d+$")

#: Directories that are copied first, in this order.
_FIRST = ("commits", "offsets")

_TRIES = 5

#: How many files are copied at a time: each one is a request that waits for the store.
_THREADS = 32


def move_query_away(directory: JobDirectory) -> None:
    """Move the query's checkpoint to where only this driver and later ones look. Called after the claim. A job that has
    no query yet gets the new location, and nothing is moved.

    Spark writes state, offsets and commits itself, in tasks and in the JVM, where flinkish cannot ask the fence. A
    driver that was paused in the midst of that would go on writing when it wakes up. So the newer driver renames the
    directory and leaves a file in its place: writing below a file fails. Object stores have no such rename; there the
    newer driver works on a copy. The order of copying makes the copy consistent: an epoch that is committed in the copy
    has its state in the copy, and the offsets of each epoch that may have reached a sink are in it, because they were
    written before that epoch was allowed to begin.
    """
    for _ in range(_TRIES):
        kept = directory.read(QueryFile) or QueryFile("spark", 0)
        old = kept.name
        new = f"{_SUFFIX.sub('', old)}-owner-{directory.fence.token}"
        directory.write(replace(kept, name=new, moved_from=old))
        finish_move(directory)
        again = directory.read(QueryFile)
        if again is not None and again.name == new:
            return
    raise OperationError(
        "the query's checkpoint could not be taken over: others keep moving it",
        where=f"job directory {directory.path}",
        expected="no more than a few drivers that begin at once",
        hint="start the job again",
    )


def finish_move(directory: JobDirectory) -> None:
    """Finish a move that has begun, if there is one."""
    kept = directory.read(QueryFile)
    if kept is None or kept.moved_from is None:
        return
    old, new = kept.moved_from, kept.name
    if old == new:
        raise kept.damaged(kept.path_in(directory.path), f"the query was moved from {old} to the same place")
    for name in (old, new):
        directory.path_of(QUERY_NAME, name, QueryFile)
    source, target = posixpath.join(directory.path, old), posixpath.join(directory.path, new)
    directory.fence.check()
    if directory.storage.renames_directories:
        _rename(directory.storage, source, target, new)
    else:
        _copy(directory.storage, source, target)
    directory.write(replace(kept, moved_from=None))


def _rename(storage: Storage, source: str, target: str, new: str) -> None:
    if not storage.exists(target) and not storage.is_directory(target):
        with suppress(FileNotFoundError):
            if storage.is_directory(source):
                storage.move(source, target)
    _forbid(storage, source, new)
    _drop_unfinished(storage, target)


def _forbid(storage: Storage, path: str, new: str) -> None:
    """Put a file where the directory was, so that nobody can make the directory again."""
    if storage.is_directory(path):
        # the earlier driver has made it again meanwhile
        storage.delete_directory(path)
    storage.write(path, json.dumps({"moved_to": new, "because": "a newer driver has taken this job over"}).encode())


def _drop_unfinished(storage: Storage, target: str) -> None:
    """Delete files that the earlier driver still had open: what it writes to them belongs to nobody."""
    for entry in storage.list(target, recursive=True):
        name = posixpath.basename(entry.name)
        if entry.is_file and name.startswith(".") and ".tmp" in name:
            storage.delete(entry.path)


def _copy(storage: Storage, source: str, target: str) -> None:
    copied = posixpath.join(target, "_COPIED")
    if storage.exists(copied) or not storage.is_directory(source):
        return
    for name in (*_FIRST, ""):
        _copy_new(storage, posixpath.join(source, name), posixpath.join(target, name))
    storage.write(copied, b"")


def _copy_new(storage: Storage, source: str, target: str) -> None:
    """Copy the files that the target does not have. Commits and offsets are copied in their own turn only: the state of
    a later commit may be missing."""
    commits_or_offsets = posixpath.basename(target.rstrip("/")) in _FIRST
    copied = {entry.name for entry in storage.list(target, recursive=True)}
    new = [
        entry
        for entry in storage.list(source, recursive=True)
        if entry.is_file and entry.name not in copied and (commits_or_offsets or entry.name.split("/")[0] not in _FIRST)
    ]

    def copy(entry: Entry) -> None:
        with suppress(FileNotFoundError):
            storage.copy(entry.path, posixpath.join(target, entry.name))

    with ThreadPoolExecutor(_THREADS, "flinkish-query-move") as pool:
        for _ in pool.map(copy, new):
            pass


_LOG = logging.getLogger("flinkish.JobManager")

#: Values of ``flinkish.job.takeover``.
REFUSE, NEWEST = "refuse", "newest"


def take_ownership(
    spark: Any,
    directory: JobDirectory,
    job_name: str,
    takeover: str,
    silence_s: float = SILENCE_S,
    waiting: Callable[[], None] = lambda: None,
) -> None:
    """Claim the directory, and renew the claim in the background until the directory is released.

    Args:
        spark: the session that writes the claim where this process cannot; None in the minicluster.
        directory: the directory to claim; gets the fence of the claim.
        job_name: name of the job, for messages.
        takeover: ``refuse``: claim it only if no living driver owns it; ``newest``: claim it whoever owns it.
        silence_s: with ``refuse``, how many seconds an owner on another machine is watched for a sign of life.
        waiting: called again and again meanwhile; what it raises ends the wait.

    Raises:
        FencedError: another driver owns the directory, or has claimed it in the same moment and later.
        FinalOperationError: a newer release has written the directory.
    """
    check_release(directory.path)
    if takeover == REFUSE:
        liveness = directory.refuse_if_owned(job_name, silence_s, waiting)
    else:
        liveness = directory.owner_liveness()
    whole = liveness is Liveness.GONE and leaves_nothing_behind(directory.read(Owner))
    directory.remote = is_remote(spark)
    directory.fence = claim(spark, directory.path, Claim.of_this_process(directory.token, job_name))
    try:
        directory.write_owner()
        finish_move(directory)
        if not whole:
            move_query_away(directory)
        directory.check_owner(job_name)
        sweep(directory)
    except BaseException:
        # this process may live on, and would be taken for a driver at work
        directory.release()
        raise
    Renewal(directory, job_name).start()


class Renewal:
    """Renews a claim in the background as long as this driver lives and owns the directory: also while a savepoint is
    restored or the job waits for its restart."""

    def __init__(self, directory: JobDirectory, job_name: str, interval_s: float = RENEW_S) -> None:
        self._directory = directory
        self._job_name = job_name
        self._interval_s = interval_s

    def start(self) -> None:
        """Start the thread that renews the claim."""
        threading.Thread(target=self._run, name=f"flinkish-owner-{self._job_name}", daemon=True).start()

    def _run(self) -> None:
        while not self._directory.released.wait(self._interval_s):
            try:
                self._directory.renew(self._job_name)
            except FlinkishError:
                # the job's own thread finds this out by itself and reports it
                if self._lost():
                    return
            except OSError:
                continue

    def _lost(self) -> bool:
        try:
            self._directory.check_owner(self._job_name)
        except FencedError:
            return True
        except FlinkishError:
            return False
        return False


#: Requests of the command line and answers to them, and files that were being written, under the names that
#: `JobDirectory.write`, `files.write_bytes` and `stores` give them.
_MESSAGE = re.compile("|".join(rf"\.?{kind.NAME.partition('{')[0]}.*" for kind in (StoredRequest, Answer)))
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{32}")
_DELETED = re.compile(r".+\.deleted-[0-9a-f]{32}")
_ROWS = re.compile(r"restore(-[0-9]+)?")
_FALLBACK_ROWS = re.compile(r"restore-epoch-([0-9]+)")
_OF_QUERY = re.compile(rf"spark.*|keyed-state.*|{_ROWS.pattern}|{_FALLBACK_ROWS.pattern}")
_OWNED_QUERY = re.compile(r"(.+?)(?:-owner-([0-9]+))?")


def sweep(directory: JobDirectory) -> None:
    """Delete what nobody needs any more: requests to other drivers, answers of theirs, and what let epochs of theirs
    wait; files that were being written when a process was killed; rows of restores that came to nothing; and, where a
    takeover has copied the query, the copies that it was taken from. To be called by the owner, before it runs
    anything.

    What cannot be deleted is logged, and left to the next driver."""
    try:
        for path in _left_files(directory):
            delete_file(path)
        for name in _left_directories(directory):
            delete_directory(posixpath.join(directory.path, name))
    except (FlinkishError, OSError) as error:
        _LOG.warning("what earlier drivers have left in %s cannot be deleted: %s", directory.path, error)


def _left_files(directory: JobDirectory) -> list[str]:
    """The paths of the files to delete."""
    top = child_names(directory.path)
    # what lets the epochs of a driver wait is of no use to the next one
    found = [
        name for name in top if name == EpochsWait.NAME or _MESSAGE.fullmatch(name) and directory.token not in name
    ]
    checkpoints = [name for name in child_names(posixpath.join(directory.path, "checkpoints")) if "-" in name]
    folders = ["", "accumulators", "checkpoints", *(posixpath.join("checkpoints", name) for name in checkpoints)]
    folders.append(posixpath.join(posixpath.basename(directory.query_location().path), "prepared"))
    for folder in folders:
        names = child_names(posixpath.join(directory.path, folder)) if folder else top
        # a command may just be writing its request to this driver
        unfinished = (name for name in names if _UNFINISHED.fullmatch(name) and not _MESSAGE.fullmatch(name))
        found += [posixpath.join(folder, name) for name in unfinished]
    return [posixpath.join(directory.path, name) for name in found]


def _left_directories(directory: JobDirectory) -> list[str]:
    """The names of the directories to delete. In doubt one stays: where a file is missing that says what is needed, the
    start is about to be refused, and whoever puts the file back needs what it names."""
    top, location = child_names(directory.path), directory.query_location()
    restored = [
        directory.read(kind, *parts) for kind in (Restored, RestoredByFallback) for parts in directory.kept(kind)
    ]
    needed = {one.rows for one in restored if one is not None}
    begun = bool(child_names(posixpath.join(location.path, "offsets")))
    found = []
    for name in top:
        fallback = _FALLBACK_ROWS.fullmatch(name)
        if _DELETED.fullmatch(name) or is_abandoned(name):
            found.append(name)
        elif _ROWS.fullmatch(name) and name not in needed and (Restored.NAME in top or not begun):
            found.append(name)
        elif fallback and name not in needed and int(fallback[1]) != location.first_epoch:
            found.append(name)
        elif name.startswith(("spark", "minicluster")):
            if _is_earlier_copy(directory, name, posixpath.basename(location.path)):
                found.append(name)
    return found + _superseded(directory, location, top, found)


def _superseded(directory: JobDirectory, location: QueryLocation, top: list[str], found: list[str]) -> list[str]:
    """The names of the directories of earlier queries, from which the job was upgraded, of their keyed state and of the
    rows that they began with, once the query that has taken their place has committed an epoch: nothing goes back to
    them any more."""
    own = directory.read(RestoredByFallback, location.first_epoch)
    if own is None or not own.upgraded or not child_names(posixpath.join(location.path, "commits")):
        return []
    used = {posixpath.basename(path) for path in (location.path, directory.keyed_state)} | {own.rows, *found}
    earlier = [name for name in top if name not in used and _OF_QUERY.fullmatch(name)]
    # where a query was moved, a file keeps earlier drivers from making the directory again
    return [name for name in earlier if is_directory(posixpath.join(directory.path, name))]


def _is_earlier_copy(directory: JobDirectory, name: str, query: str) -> bool:
    """Whether this is the directory from which a takeover has copied or moved the query."""
    earlier, now = _OWNED_QUERY.fullmatch(name), _OWNED_QUERY.fullmatch(query)
    if earlier is None or now is None or now[2] is None or earlier[1] != now[1]:
        return False
    # where it was moved, a file keeps earlier drivers from making the directory again
    return int(earlier[2] or -1) < int(now[2]) and is_directory(posixpath.join(directory.path, name))
