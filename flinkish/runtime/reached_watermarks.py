"""Carries the watermarks that aligned sources have reached from the tasks to the planner of epochs.

    <query>/reached-watermarks      {source uid: {stream: watermark in ms}} of the last epoch that has run

Epochs are planned in a process beside the driver, possibly on another machine. The next epoch is planned after the one
that wrote the file is committed, and the watermarks that the plan is based on are then part of its offset.
"""

from __future__ import annotations

import json
import posixpath

from flinkish.common.storage import place
from flinkish.common.storage_errors import storage_errors
from flinkish.runtime.sources.alignment import Watermarks


class ReachedWatermarks:
    """The file with the watermarks that the aligned sources of one query have reached."""

    def __init__(self, query: str) -> None:
        self._path = posixpath.join(query, "reached-watermarks")

    def write(self, reached: Watermarks) -> None:
        """Write the watermarks of an epoch that has run. The epoch is prepared only after this."""
        filesystem, root = place(self._path)
        with storage_errors("write", self._path), filesystem.open_output_stream(root) as stream:
            stream.write(json.dumps(reached).encode())

    def read(self) -> dict[str, dict[str, int]]:
        """The watermarks that were written last; {} if there are none, or if the driver has died while writing them, in
        which case the epoch runs again and writes them anew."""
        filesystem, root = place(self._path)
        with storage_errors("read", self._path):
            try:
                with filesystem.open_input_file(root) as stream:
                    found: dict[str, dict[str, int]] = json.loads(stream.read() or b"{}")
            except (FileNotFoundError, ValueError):
                return {}
        return found
