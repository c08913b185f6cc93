"""User code asks that the next epoch be planned at once (``request_commit``): on its way to who plans epochs.

    <query>/epoch-requested      the number of the last epoch in which that was asked for

Epochs are planned in a process beside the driver, maybe on another machine: it looks at this file while it waits.
"""

from __future__ import annotations

import posixpath

from flinkish.common.storage import place
from flinkish.common.storage_errors import storage_errors


class EpochRequest:
    """The file, of one query."""

    def __init__(self, query: str) -> None:
        self._path = posixpath.join(query, "epoch-requested")

    def ask(self, epoch: int) -> None:
        """It was asked for in this epoch."""
        filesystem, root = place(self._path)
        with storage_errors("write", self._path), filesystem.open_output_stream(root) as stream:
            stream.write(str(epoch).encode())

    def newest(self) -> int:
        """The last epoch in which it was asked for; -1: there is none, or it is just being written."""
        filesystem, root = place(self._path)
        with storage_errors("read", self._path):
            try:
                with filesystem.open_input_file(root) as stream:
                    return int(stream.read() or b"-1")
            except FileNotFoundError:
                return -1
