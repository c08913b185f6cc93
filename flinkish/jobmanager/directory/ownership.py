"""Makes a driver the owner of a job directory that other drivers may know, and shows them that it is alive.

Rule: first the claim, then anything else. Whatever the predecessor begins after the claim is refused by its own checks;
what it was writing at that moment goes to a place that nobody reads any more, because the query is moved away from it
(`query_move.py`) unless the predecessor is known to have ended.

Once it owns the directory, a driver deletes what drivers and commands that were killed have left there.
"""

from __future__ import annotations

import logging
import posixpath
import re
import threading
from typing import Any

from flinkish.errors import FencedError, FlinkishError
from flinkish.jobmanager.directory.fencing import Claim, claim
from flinkish.jobmanager.directory.job_directory import JobDirectory
from flinkish.jobmanager.directory.owner import RENEW_S, SILENCE_S, Life, leaves_nothing_behind
from flinkish.jobmanager.directory.probe import is_abandoned
from flinkish.jobmanager.directory.query_move import finish_move, move_query_away
from flinkish.spark.session import is_remote
from flinkish.storage.files import child_names, delete_directory, delete_file, is_directory

_LOG = logging.getLogger("flinkish.JobManager")

#: Values of ``flinkish.job.takeover``.
REFUSE, NEWEST = "refuse", "newest"


def take_ownership(
    spark: Any, directory: JobDirectory, job_name: str, takeover: str, silence_s: float = SILENCE_S
) -> None:
    """Claim the directory, and renew the claim in the background until the directory is released.

    Args:
        spark: the session that writes the claim where this process cannot; None in the minicluster.
        directory: the directory to claim; gets the fence of the claim.
        job_name: name of the job, for messages.
        takeover: ``refuse``: claim it only if no living driver owns it; ``newest``: claim it whoever owns it.
        silence_s: with ``refuse``, how many seconds an owner on another machine is watched for a sign of life.

    Raises:
        FencedError: another driver owns the directory, or has claimed it in the same moment and later.
    """
    if takeover == REFUSE:
        life = directory.refuse_if_owned(job_name, silence_s)
    else:
        life = directory.owner_life()
    whole = life is Life.GONE and leaves_nothing_behind(directory.read("owner.json"))
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
_MESSAGE = re.compile(r"\.?(request|answer)-.*")
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{32}")
_DELETED = re.compile(r".+\.deleted-[0-9a-f]{32}")
_RESTORED_FILE = re.compile(r"restored(-[0-9]+)?\.json")
_ROWS = re.compile(r"restore(-[0-9]+)?")
_FALLBACK_ROWS = re.compile(r"restore-epoch-([0-9]+)")
_OWNED_QUERY = re.compile(r"(.+?)(?:-owner-([0-9]+))?")


def sweep(directory: JobDirectory) -> None:
    """Delete what nobody needs any more: requests to other drivers and answers of theirs; files that were being written
    when a process was killed; rows of restores that came to nothing; and, where a takeover has copied the query, the
    copies that it was taken from. To be called by the owner, before it runs anything.

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
    found = [name for name in top if _MESSAGE.fullmatch(name) and directory.token not in name]
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
    restored = [directory.read(name) or {} for name in top if _RESTORED_FILE.fullmatch(name)]
    needed = {str(one.get("rows", "restore")) for one in restored}
    begun = bool(child_names(posixpath.join(location.path, "offsets")))
    found = []
    for name in top:
        fallback = _FALLBACK_ROWS.fullmatch(name)
        if _DELETED.fullmatch(name) or is_abandoned(name):
            found.append(name)
        elif _ROWS.fullmatch(name) and name not in needed and ("restored.json" in top or not begun):
            found.append(name)
        elif fallback and name not in needed and int(fallback[1]) != location.first_epoch:
            found.append(name)
        elif name.startswith(("spark", "minicluster")):
            if _is_earlier_copy(directory, name, posixpath.basename(location.path)):
                found.append(name)
    return found


def _is_earlier_copy(directory: JobDirectory, name: str, query: str) -> bool:
    """Whether this is the directory from which a takeover has copied or moved the query."""
    earlier, now = _OWNED_QUERY.fullmatch(name), _OWNED_QUERY.fullmatch(query)
    if earlier is None or now is None or now[2] is None or earlier[1] != now[1]:
        return False
    # where it was moved, a file keeps earlier drivers from making the directory again
    return int(earlier[2] or -1) < int(now[2]) and is_directory(posixpath.join(directory.path, name))
