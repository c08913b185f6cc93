"""Chooses the path of a job's directory, and checks whether it can be used.

Rule: ``flinkish.job.dir`` is the directory of a program. Its first job has the directory itself. Each further job, that
is, one of another name, has a directory of its own below it: ``<flinkish.job.dir>/jobs/<name of the job>``.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import tempfile

from flinkish.errors import ConfigurationError
from flinkish.storage.files import is_directory
from flinkish.storage.paths import absolute

#: Characters that are escaped in a URI. Spark's reader of state (Spark 4.2) escapes the path and then looks for a
#: directory of the escaped name: epochs would run, and no checkpoint or savepoint could ever be written. A ``*`` is a
#: pattern to it.
_ESCAPED = re.compile(r'[\s"#%*<>?\[\\\]^`{|}\x00-\x1f\x7f]')

#: The folder of the directories of a program's further jobs.
_FURTHER_JOBS = "jobs"

#: directory that the program was given -> name of the first job that this process has run in it
_first_jobs: dict[str, str] = {}


def directory_of_job(given: str, job_name: str) -> str:
    """The directory of a job that a program with the directory ``given`` executes.

    A job that has a directory below the given one keeps it, whichever job of the program is the first in this process.
    """
    own = posixpath.join(given.rstrip("/"), _FURTHER_JOBS, _directory_name(job_name))
    if is_directory(own):
        return own
    return given if _first_jobs.setdefault(absolute(given), job_name) == job_name else own


def may_be_directory_of(directory: str, job_name: str) -> bool:
    """Whether this directory can be that of a job of this name. Only a further job's directory is named after it."""
    above, name = posixpath.split(absolute(directory))
    return posixpath.basename(above) != _FURTHER_JOBS or name == _directory_name(job_name)


def _directory_name(job_name: str) -> str:
    """The job's name, with a digest if it is too long for a directory or has characters that do not belong there."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", job_name)[:60].strip("-_")
    return name if name == job_name else f"{name}-{hashlib.sha256(job_name.encode()).hexdigest()[:8]}".lstrip("-")


def check_path(path: str, setting: str = "flinkish.job.dir", hint: str = "choose another directory for the job") -> str:
    """Return the path if state can be read there. ``setting`` and ``hint`` are part of the error.

    Raises:
        ConfigurationError: the path has a character that Spark's reader of state cannot handle.
    """
    whole = absolute(path)
    found = _ESCAPED.search(whole)
    if found is not None:
        raise ConfigurationError(
            f"Spark cannot read state below a path with the character {found.group()!r}",
            where=f"{setting} = '{path}' ({whole})",
            expected='a path without blanks and without any of " # % * < > ? [ \\ ] ^ ` { | }',
            hint=hint,
        )
    return path


def temporary_directory() -> str:
    """Make a temporary directory for a job; returns its path.

    Raises:
        ConfigurationError: state cannot be read below the system's directory for temporary files.
    """
    place = tempfile.gettempdir()
    check_path(place, "TMPDIR", "set flinkish.job.dir, or TMPDIR to another directory")
    return tempfile.mkdtemp(prefix="flinkish-", dir=place)
