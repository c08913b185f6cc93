"""What is looked for in a job directory before anything in it changes.

A file that is missing although other files show that it was there is detected, since without it a job would silently
begin anew. A newer release may have written a directory: then it is refused.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from flinkish.errors import FlinkishError
from flinkish.jobdir import layout
from flinkish.jobdir.connect_server import EpochsWait, ServerEnd, ServerReport, StopRequest
from flinkish.jobdir.layout import Job, Query, QueryFile, RestoredByFallback, TotalsDescription
from flinkish.storage.files import child_names
from flinkish.storage.paths import is_local, local_path
from flinkish.storage.stored_file import NewerReleaseError, StoredFile

#: The files at the top of a job directory.
OF_DIRECTORY: tuple[type[StoredFile], ...] = (
    *(Job, layout.Owner, QueryFile, Query, layout.Attempts, layout.States, layout.Sources, layout.Restored),
    *(RestoredByFallback, layout.DrainMarker, layout.JobEnd, layout.Finished, layout.EndOfInput, layout.Changelog),
    *(TotalsDescription, layout.SavingNote, layout.StoredRequest, layout.Answer),
    *(StopRequest, EpochsWait, ServerEnd, ServerReport),
)

#: Those of other processes, which do not wait for this one.
_MESSAGES = (layout.StoredRequest, layout.Answer)
#: How many files are read at a time where each one is a request.
_THREADS = 16


def check_release(directory: str) -> None:
    """Check that no newer release has written a file at the top of a job directory: whoever changes the format of one
    below it raises the version of `Job`, too. Of damaged files whoever needs them tells.

    Raises:
        FinalOperationError: one has; the error names the file.
    """

    def read(kind: type[StoredFile], parts: tuple[str, ...]) -> None:
        try:
            kind.read(directory, *parts)
        except FlinkishError as error:
            if isinstance(error.__cause__, NewerReleaseError):
                raise

    kinds = [kind for kind in OF_DIRECTORY if kind not in _MESSAGES]
    names = child_names(directory)
    found = [(kind, parts) for kind in kinds for name in names if (parts := kind.parts_of(name)) is not None]
    with ThreadPoolExecutor(1 if is_local(directory) else _THREADS) as pool:
        for _ in pool.map(lambda one: read(*one), found):
            pass


#: Files that are written before the first epoch.
_BEFORE_EPOCHS: tuple[type[StoredFile], ...] = (Job, Query)
_FALLBACK = re.compile(r"spark-(\d+)(-owner-\d+)?")


def check_nothing_missing(directory: str) -> None:
    """Check that a job directory has the files that its epochs need.

    Raises:
        FinalOperationError: epochs have been planned here, and a file that was there by then is missing.
    """
    names = child_names(directory)
    begun = [name for name in names if _is_query(name) and child_names(posixpath.join(directory, name, "offsets"))]
    needed: list[tuple[type[StoredFile], tuple[str, ...]]] = [(kind, ()) for kind in _BEFORE_EPOCHS if begun]
    if any(name != "spark" for name in begun):
        needed.append((QueryFile, ()))
    # a query that has taken the place of a damaged one was restored from a checkpoint
    needed += [(RestoredByFallback, (found[1],)) for name in begun if (found := _FALLBACK.fullmatch(name))]
    for kind, parts in needed:
        if kind.file_name(*parts) not in names:
            raise kind.missing(directory, *parts)
    kept = QueryFile.read(directory) if TotalsDescription.NAME in names else None
    if kept is not None and kept.name.startswith("minicluster"):
        query, totals = posixpath.join(directory, kept.name), None
        with suppress(FlinkishError):
            # damaged ones begin anew
            totals = TotalsDescription.read(directory)
        from flinkish.minicluster.stored_epochs import Committed

        if totals is not None and totals.records_in and Committed.NAME not in child_names(query):
            raise Committed.missing(query)


def _is_query(name: str) -> bool:
    return name == "spark" or name.startswith("spark-")


_FULL = re.compile(r"no space left|quota", re.IGNORECASE)


def with_free_space(error: FlinkishError, job_dir: str) -> FlinkishError:
    """The same error; one about missing space also says how many bytes are free at a local job directory. Spark says
    neither which file it was writing nor on which disk."""
    local = local_path(job_dir)
    if local is not None and _FULL.search(error.what):
        try:
            free = shutil.disk_usage(local).free
        except OSError:
            return error
        error.expected = f"space for the epoch's files; {free:,} bytes are free at {local}"
    return error
