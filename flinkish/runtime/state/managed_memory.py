"""How much state a worker keeps in memory (Flink's managed memory): what is in files makes room for what is used."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

#: Of `taskmanager.memory.managed.size`.
DEFAULT_BYTES = 512 * 1024 * 1024


class MemoryUser(Protocol):
    """Keeps values in memory that it can read again."""

    @property
    def cached_bytes(self) -> int:
        """About what they take."""

    def release(self) -> None:
        """Let go of values that were not used since the last call."""


class ManagedMemory:
    """Shared by all state of a worker. What was used least recently goes first: the state of the subtask that ran
    longest ago, and of it what was not used lately."""

    def __init__(self, limit_bytes: int = DEFAULT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._users: OrderedDict[int, MemoryUser] = OrderedDict()

    def use(self, user: MemoryUser) -> None:
        """It is at work now."""
        self._users[id(user)] = user
        self._users.move_to_end(id(user))

    def leave(self, user: MemoryUser) -> None:
        """It holds nothing any more."""
        self._users.pop(id(user), None)

    @property
    def used_bytes(self) -> int:
        """About what all of them hold."""
        return sum(user.cached_bytes for user in self._users.values())

    @property
    def free_bytes(self) -> int:
        """About what may be held besides."""
        return max(0, self.limit_bytes - self.used_bytes)

    def reclaim(self) -> None:
        """Make room, if too much is held. To be called when nobody holds a dict of state."""
        # what was used since the last release goes with the second call
        for _ in range(2):
            for user in list(self._users.values()):
                if self.used_bytes <= self.limit_bytes:
                    return
                user.release()
