"""The watermarks that aligned sources have reached, on their way from the tasks to who plans epochs.

    <query>/reached-watermarks      {source uid: {stream: watermark in ms}} of the last epoch that has run

Epochs are planned in a process beside the driver, maybe on another machine. The next epoch is planned when the one that
wrote the file is committed, and what it is planned by then lies in its offset.
"""

from __future__ import annotations

import json
import posixpath

from flinkish.common.storage import place
from flinkish.common.storage_errors import storage_errors
from flinkish.runtime.sources.alignment import Watermarks


class ReachedWatermarks:
    """The file, of one query."""

    def __init__(self, query: str) -> None:
        self._path = posixpath.join(query, "reached-watermarks")

    def write(self, reached: Watermarks) -> None:
        """Those of an epoch that has run. The epoch is not prepared before they are written."""
        filesystem, root = place(self._path)
        with storage_errors("write", self._path), filesystem.open_output_stream(root) as stream:
            stream.write(json.dumps(reached).encode())

    def read(self) -> dict[str, dict[str, int]]:
        """Those that were written last; {} if none were, or if the driver died while it wrote them: then that epoch
        runs again and writes them anew."""
        filesystem, root = place(self._path)
        with storage_errors("read", self._path):
            try:
                with filesystem.open_input_file(root) as stream:
                    found: dict[str, dict[str, int]] = json.loads(stream.read() or b"{}")
            except (FileNotFoundError, ValueError):
                return {}
        return found
