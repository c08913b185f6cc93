"""Makes a driver the owner of a job directory that other drivers may know, and shows them that it is alive.

Rule: first the claim, then anything else. Whatever the predecessor begins after the claim is refused by its own checks;
what it was writing at that moment goes to a place that nobody reads any more, because the query is moved away from it
(`query_move.py`) unless the predecessor is known to have ended.
"""

from __future__ import annotations

import threading
from typing import Any

from flinkish.errors import FencedError, FlinkishError
from flinkish.jobmanager.directory.fencing import Claim, claim
from flinkish.jobmanager.directory.job_directory import JobDirectory
from flinkish.jobmanager.directory.owner import RENEW_S, SILENCE_S, Life, leaves_nothing_behind
from flinkish.jobmanager.directory.query_move import finish_move, move_query_away
from flinkish.spark.session import is_remote

#: Values of ``flinkish.job.takeover``.
REFUSE, NEWEST = "refuse", "newest"


def take_ownership(
    spark: Any, directory: JobDirectory, job_name: str, takeover: str, silence_s: float = SILENCE_S
) -> None:
    """Claim the directory, and renew the claim in the background until the directory is released.

    Args:
        spark: the session that writes the claim.
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
