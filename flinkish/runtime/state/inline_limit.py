"""Decides whether the changes of an epoch are stored with the task, in Spark's state, or written to a file."""

from __future__ import annotations

from collections.abc import Callable

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

    def encoded(
        self,
        encode: Callable[[], bytes | None],
        write_files: Callable[[], None],
        estimated_bytes: int,
        has_files: bool,
    ) -> bytes | None:
        """What is stored with the task; changes that are too large for that are written to files before.

        Args:
            encode: encodes what lies in no file, together with the references to files.
            write_files: writes the changes to files.
            estimated_bytes: about how many bytes the changes take.
            has_files: whether the subtask has state in files.
        """
        limit_bytes = self._limit_bytes // (_CHANGES_PART if has_files else 1)
        tried = None
        if estimated_bytes * self._factor <= limit_bytes:
            tried = encode()
            if tried is None or len(tried) <= limit_bytes:
                return tried
        write_files()
        data = encode()
        if tried is not None:
            # without the references to files, which are no changes
            self._factor = (len(tried) - len(data or b"")) / max(estimated_bytes, 1)
        return data
