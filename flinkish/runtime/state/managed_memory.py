"""Limits the state that a worker process keeps in memory (Flink's managed memory): evicts values that lie in files."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

#: Default of ``taskmanager.memory.managed.size``, in bytes.
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
