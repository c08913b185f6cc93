"""Carries the request of user code that the next epoch be planned at once (``request_commit``) to the planner.

    <query>/epoch-requested      the number of the last epoch in which user code has asked for that

Epochs are planned in a process beside the driver, possibly on another machine, which polls this file while it waits.
"""

from __future__ import annotations

import posixpath

from flinkish.common.storage import place
from flinkish.common.storage_errors import storage_errors


class EpochRequest:
    """The file through which one query requests that its next epoch be planned at once."""

    def __init__(self, query: str) -> None:
        self._path = posixpath.join(query, "epoch-requested")

    def ask(self, epoch: int) -> None:
        """Record that user code has asked for it in this epoch."""
        filesystem, root = place(self._path)
        with storage_errors("write", self._path), filesystem.open_output_stream(root) as stream:
            stream.write(str(epoch).encode())

    def newest(self) -> int:
        """The last epoch in which user code has asked for it; -1 if there is none or the file is just being written."""
        filesystem, root = place(self._path)
        with storage_errors("read", self._path):
            try:
                with filesystem.open_input_file(root) as stream:
                    return int(stream.read() or b"-1")
            except FileNotFoundError:
                return -1
