"""Checks whether a path can be used for a job directory."""

from __future__ import annotations

import re
import tempfile

from flinkish.errors import ConfigurationError
from flinkish.jobmanager.directory.files import absolute

#: Characters that are escaped in a URI. Spark's reader of state (Spark 4.2) escapes the path and then looks for a
#: directory of the escaped name: epochs would run, and no checkpoint or savepoint could ever be written. A ``*`` is a
#: pattern to it.
_ESCAPED = re.compile(r'[\s"#%*<>?\[\]^`{|}\x00-\x1f\x7f]')


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
            expected='a path without blanks and without any of " # % * < > ? [ ] ^ ` { | }',
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
