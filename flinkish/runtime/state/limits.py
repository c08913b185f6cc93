"""The limits of state: how much of it a worker process keeps in memory (Flink's managed memory), and whether the
changes of an epoch are stored with the task, in Spark's state, or written to a file."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

#: When the subtask has state in files, changes are written to a file once they exceed one part in so many of the limit:
#: to write a small file takes less time than to encode and store the same changes again in each of the next epochs.
_CHANGES_PART = 4


class InlineLimit:
    """The limit of the changes of an epoch that are stored with the task, in Spark's state
    (``flinkish.state.inline-size``); larger ones are written to a file.

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


#: The managed memory of a worker where nothing is said of it, in bytes.
DEFAULT_BYTES = 512 * 1024 * 1024


class MemoryUser(Protocol):
    """A user of managed memory: keeps values in memory that it can read again from files."""

    @property
    def cached_bytes(self) -> int:
        """About how many bytes of memory its values take."""

    def release(self) -> None:
        """Evict values that were not used since the last call."""


class ManagedMemory:
    """The managed memory that all keyed state of a job in a worker process shares. Values that were used least recently
    are evicted first: those of the subtask that ran longest ago, and of these the ones not used lately."""

    def __init__(self, limit_bytes: int = DEFAULT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._users: OrderedDict[int, MemoryUser] = OrderedDict()

    def use(self, user: MemoryUser) -> None:
        """Mark a user as the one at work now, so that its values are evicted last."""
        self._users[id(user)] = user
        self._users.move_to_end(id(user))

    def leave(self, user: MemoryUser) -> None:
        """Remove a user, which holds no values any more."""
        self._users.pop(id(user), None)

    @property
    def used_bytes(self) -> int:
        """About how many bytes the values of all users take."""
        return sum(user.cached_bytes for user in self._users.values())

    @property
    def free_bytes(self) -> int:
        """About how many bytes are left."""
        return max(0, self.limit_bytes - self.used_bytes)

    def reclaim(self) -> None:
        """Evict values if more than the limit is used. To be called only while nobody holds a dict of a table."""
        # values that were used since the last release are evicted by the second call
        for _ in range(2):
            for user in list(self._users.values()):
                if self.used_bytes <= self.limit_bytes:
                    return
                user.release()
