"""Decides whether the changes of an epoch are stored with the task, in Spark's state, or written to a file."""

from __future__ import annotations

#: When the subtask has state in files, changes are written to a file once they exceed one part in so many of the limit:
#: to write a small file takes less time than to encode and store the same changes again in each of the next epochs.
_CHANGES_PART = 4


class InlineLimit:
    """The limit of the changes that are stored with the task (``flinkish.state.inline-size``).

    The size of changes is known only once they are encoded, which is in vain if they are too large. So the estimate of
    their size is corrected by how far off it was when that last happened.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        #: the encoded size of changes relative to the estimate, at first low enough that they are rather tried
        self._factor = 0.5

    def may_hold(self, estimated_bytes: int, has_files: bool) -> bool:
        """Whether it is worthwhile to encode changes of this estimated size. ``has_files``: whether the subtask has
        state in files."""
        return estimated_bytes * self._factor <= self._limit(has_files)

    def holds(self, data: bytes, estimated_bytes: int, has_files: bool) -> bool:
        """Whether these encoded changes may be stored with the task."""
        if len(data) <= self._limit(has_files):
            return True
        self._factor = len(data) / max(estimated_bytes, 1)
        return False

    def _limit(self, has_files: bool) -> int:
        return self._limit_bytes // (_CHANGES_PART if has_files else 1)
