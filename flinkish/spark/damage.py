"""Tells damage of what Spark has stored about a query from all else that it raises, and which file is damaged.

What Spark 4.2 says, tried for each kind of file: flipped and truncated files fail their checksum (local file systems
and HDFS keep one), emptied ones are incomplete logs or end too early, deleted ones do not exist.
"""

from __future__ import annotations

import re

from flinkish.errors import CorruptStateError

_FILE = r"(?P<file>(?:\w+:)?/[^\s,\]]+)"

#: With the name of the file, most telling first.
_NAMED = tuple(
    re.compile(pattern)
    for pattern in (
        rf"Checksum error: {_FILE} at ",
        rf"Failed to read log file {_FILE}\.(?: |$)",
        rf"[Uu]nable to find batch {_FILE}\.(?:\s|$)",
        rf"Error reading delta file {_FILE}(?: of |$)",
        rf"Error reading streaming state file of {_FILE} does not exist",
        rf"Error reading snapshot file {_FILE} of ",
        rf"CANNOT_LOAD_STATE_STORE.*?(?:file|File) {_FILE} does not exist",
    )
)

#: With the directory of the query.
_NO_METADATA = re.compile(rf"Checkpoint location {_FILE} is in an inconsistent state: the metadata file is missing")

#: Without it.
_UNNAMED = re.compile(
    r"CANNOT_LOAD_STATE_STORE|state store.*(corrupt|does not exist)|CANNOT_READ_.*FILE_DOES_NOT_EXIST|"
    r"STATE_STORE_.*CHECKSUM|STREAMING_CHECKPOINT_MISSING_METADATA_FILE|Log file was malformed|"
    r"StreamMetadata\$\.read|batch \d+ doesn't exist|BATCH_METADATA_NOT_FOUND|failed to read .* log version",
    re.DOTALL,
)

#: What keeps a good file from being read.
_PASSING = re.compile(
    r"ConnectException|SocketTimeoutException|UnknownHostException|Connection (?:refused|reset)|No space left|"
    r"OutOfMemoryError|InterruptedException|ClosedByInterrupt|Permission denied|AccessControlException"
)

_HINT = "restore the file from a copy, or the job from its last checkpoint or savepoint"


def damage_in(text: str) -> CorruptStateError | None:
    """The error for a text that tells of damage; None when it does not."""
    for pattern in _NAMED:
        found = pattern.search(text)
        if found is not None:
            return _error(_plain(found.group("file")), "")
    found = _NO_METADATA.search(text)
    if found is not None:
        return _error(_plain(found.group("file")) + "/metadata", "")
    if _UNNAMED.search(text) and not _PASSING.search(text):
        return _error("", text)
    return None


def _plain(file: str) -> str:
    """The path without the scheme of local files."""
    return "/" + file[len("file:") :].lstrip("/") if file.startswith("file:") else file


def _error(file: str, text: str) -> CorruptStateError:
    what = f"the file {file}" if file else f"a file of the query's own checkpoint ({_gist(text)})"
    error = CorruptStateError(f"{what} is damaged or missing", hint=_HINT)
    error.file = file
    return error


def _gist(text: str) -> str:
    """What the innermost cause says."""
    causes = re.findall(r"Caused by: ([^\n]+)", text)
    return str(causes[-1] if causes else text.splitlines()[0])[:200]
