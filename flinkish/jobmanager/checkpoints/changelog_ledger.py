"""Remembers from which epoch on the changelog of a job has no gap, which decides whether a checkpoint can be
incremental.

    <job dir>/changelog.json    {"since": 12, "location": "spark", "refused": null}

Rule: in doubt there is no changelog. It begins after the first epoch that is known to have been written by tasks that
keep one; it ends with any run that does not keep one, and with any change of the query. Only files are deleted that
were there before the last check that this driver still owns the job.
"""

from __future__ import annotations

import posixpath

from flinkish.jobdir.directory import JobDirectory
from flinkish.runtime.epoch.changelog_files import changelog_directory, epoch_directory
from flinkish.storage.files import child_names, delete_directory, delete_directory_at_once

_FILE = "changelog.json"
_PREFIX = "epoch="


class ChangelogLedger:
    """Keeps the record of one job's changelog: which epochs it covers, and why checkpoints may not use it."""

    def __init__(self, directory: JobDirectory) -> None:
        self._directory = directory
        self.path = changelog_directory(directory.path)
        self._location: str | None = None
        self._since: int | None = None
        #: why checkpoints of this job cannot be incremental; None: they can
        self.refused: str | None = None

    def drop(self) -> None:
        """Delete the changelog, if there is one, and forget why checkpoints could not use it."""
        self._since = self.refused = None
        # checks that this driver still owns the directory
        self._directory.delete(_FILE)
        delete_directory_at_once(self.path)

    def epoch_written(self, epoch: int, location: str) -> None:
        """Record that the tasks of the query at this location have written the changes of an epoch."""
        if location != self._location:
            self._begin(location)
        if self._since is None:
            # not this epoch: its files may just have been dropped, and rows of a savepoint it took in are no changes
            self._since = epoch + 1
            self._write()

    def _begin(self, location: str) -> None:
        self._location = location
        kept = self._directory.read(_FILE)
        if kept is not None and kept["location"] == posixpath.basename(location):
            self._since, self.refused = kept["since"], kept["refused"]
        else:
            self.drop()
        self._location = location

    def refuse(self, reason: str) -> None:
        """Let all checkpoints be full from now on, for this reason."""
        self.refused = reason
        self._write()

    def _write(self) -> None:
        assert self._location is not None
        content = {"since": self._since, "location": posixpath.basename(self._location), "refused": self.refused}
        self._directory.write(_FILE, content)

    def covers(self, first: int) -> bool:
        """Whether the changelog has all epochs from this one on."""
        return self._since is not None and self._since <= first

    def epochs(self, first: int, last: int) -> list[int]:
        """The epochs from ``first`` to ``last`` in which something has changed, in order."""
        found = (name[len(_PREFIX) :] for name in child_names(self.path) if name.startswith(_PREFIX))
        return sorted(epoch for epoch in map(int, found) if first <= epoch <= last)

    def forget(self, last: int) -> None:
        """Delete the changes up to an epoch, which are part of a checkpoint now."""
        epochs = self.epochs(0, last)
        self._directory.fence.check()
        for epoch in epochs:
            delete_directory(epoch_directory(self.path, epoch))
