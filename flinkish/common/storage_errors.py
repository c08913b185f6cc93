"""Errors of storage as OperationErrors, which name the path, the cause and the remedy.

Waiting may help, so all of them are worth a retry.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from flinkish.errors import FlinkishError, JobDirectoryError, OperationError

#: errno -> (what is wrong, what to do)
_KNOWN = {
    errno.ENOSPC: ("no space left", "make space there, then start the same job again: it goes on where it was"),
    errno.EDQUOT: ("the disk quota is used up", "raise the quota or make space, then start the same job again"),
    errno.EROFS: ("the file system is read-only", "mount it for writing, or name another directory"),
    errno.EACCES: ("permission denied", "let this user write there, or name another directory"),
    errno.EPERM: ("operation not permitted", "let this user write there, or name another directory"),
    errno.ENOTDIR: ("a part of the path is not a directory", "name a path whose parents are directories"),
    errno.EEXIST: ("there is a file of that name", "name a path that is a directory, or that is not there yet"),
    errno.EISDIR: ("it is a directory", "remove the directory that stands in the place of the file"),
}
#: What does not pass by itself: somebody must change the path, its owner or its permissions.
_LASTING = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EEXIST)
_OTHERWISE = "check the storage, then start the same job again"


def storage_error(error: OSError, action: str, path: str) -> OperationError:
    """The typed error for an OSError that came up when ``path`` was to be read, written or the like (``action``).

    >>> storage_error(OSError(28, "full"), "write", "/job/owner.json").what
    'cannot write /job/owner.json: no space left'
    """
    what, hint = _KNOWN.get(error.errno or 0, (str(error), _OTHERWISE))
    return OperationError(f"cannot {action} {path}: {what}", hint=hint)


def job_directory_error(error: OSError, action: str, path: str) -> OperationError:
    """`storage_error` for a job directory: final, if waiting does not help."""
    failed = storage_error(error, action, path)
    return JobDirectoryError(failed.what, hint=failed.hint) if error.errno in _LASTING else failed


@contextmanager
def storage_errors(action: str, path: str) -> Iterator[None]:
    """Raise errors of the file system within the block as OperationError. ``action`` is the verb, such as "write"."""
    try:
        yield
    except OSError as error:
        if isinstance(error, FlinkishError):
            raise
        raise storage_error(error, action, path) from error
