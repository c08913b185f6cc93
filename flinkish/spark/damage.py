"""Recognizes damage to the files in which Spark keeps a query (its checkpoint) by the text of the exception that Spark
raises, and finds out which file is damaged.

The patterns are the messages of Spark 4.2, tried for each kind of file: files with flipped bits and truncated files
fail their checksum (local file systems and HDFS keep one), emptied files are incomplete logs or end too early, deleted
files do not exist.
"""

from __future__ import annotations

import re

from flinkish.errors import CorruptStateError

_FILE = r"(?P<file>(?:\w+:)?/[^\s,\]]+)"

#: Messages that name the damaged file, the most specific first.
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

#: The message that names only the query's directory: its metadata file is missing.
_NO_METADATA = re.compile(rf"Checkpoint location {_FILE} is in an inconsistent state: the metadata file is missing")

#: Messages of damage that name no file.
_UNNAMED = re.compile(
    r"CANNOT_LOAD_STATE_STORE|state store.*(corrupt|does not exist)|CANNOT_READ_.*FILE_DOES_NOT_EXIST|"
    r"STATE_STORE_.*CHECKSUM|STREAMING_CHECKPOINT_MISSING_METADATA_FILE|Log file was malformed|"
    r"StreamMetadata\$\.read|batch \d+ doesn't exist|BATCH_METADATA_NOT_FOUND|failed to read .* log version",
    re.DOTALL,
)

#: Reasons for which a good file could not be read: with one of them, a message of `_UNNAMED` is no sign of damage.
_PASSING = re.compile(
    r"ConnectException|SocketTimeoutException|UnknownHostException|Connection (?:refused|reset)|No space left|"
    r"OutOfMemoryError|InterruptedException|ClosedByInterrupt|Permission denied|AccessControlException"
)

_HINT = "restore the file from a copy, or the job from its last checkpoint or savepoint"


def damage_in(text: str) -> CorruptStateError | None:
    """The error for the text of an exception that reports damage; None if the text reports something else."""
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
    """The path of a file, without the scheme ``file:`` if it is local."""
    return "/" + file[len("file:") :].lstrip("/") if file.startswith("file:") else file


def _error(file: str, text: str) -> CorruptStateError:
    what = f"the file {file}" if file else f"a file of the query's own checkpoint ({_gist(text)})"
    error = CorruptStateError(f"{what} is damaged or missing", hint=_HINT)
    error.file = file
    return error


def _gist(text: str) -> str:
    """The message of the innermost cause, at most 200 characters."""
    causes = re.findall(r"Caused by: ([^\n]+)", text)
    return str(causes[-1] if causes else text.splitlines()[0])[:200]
