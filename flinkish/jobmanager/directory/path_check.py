"""Which paths a job's directory may have."""

from __future__ import annotations

import re
import tempfile

from flinkish.errors import ConfigurationError
from flinkish.jobmanager.directory.files import absolute

#: What stands escaped in a URI. Spark's reader of state (Spark 4.2) escapes the path and then looks for a directory of
#: the escaped name: epochs would run, and no checkpoint or savepoint could ever be written. A ``*`` is a pattern to it.
_ESCAPED = re.compile(r'[\s"#%*<>?\[\]^`{|}\x00-\x1f\x7f]')


def check_path(path: str, setting: str = "flinkish.job.dir", hint: str = "choose another directory for the job") -> str:
    """The path, which ``setting`` gives, if state can be read there.

    Raises:
        ConfigurationError: it has a character that Spark's reader of state cannot have.
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
    """A new directory, which may hold a job.

    Raises:
        ConfigurationError: the system's directory for temporary files is none for state.
    """
    place = tempfile.gettempdir()
    check_path(place, "TMPDIR", "set flinkish.job.dir, or TMPDIR to another directory")
    return tempfile.mkdtemp(prefix="flinkish-", dir=place)
